"""The handlers of what was counted: the usage of one tool, and that of all."""

import asyncio

import msgspec

from onetool.core.errors import ToolFailure
from onetool.core.principal import stats_caller
from onetool.interfaces.json_data import encode
from onetool.interfaces.rest.problem import RestError, role_error
from onetool.interfaces.rest.request import RestRequest, RestResponse
from onetool.services.stats.overview import StatsFilter, StatsOverview
from onetool.services.stats.tool_usage import NOT_COUNTED, ToolUsage


async def usage(request: RestRequest) -> RestResponse:
    context, visibility = request.context, await request.context.visibility()
    await context.bundles.keep_in_step()  # what it is counted under depends on the others

    def read() -> ToolUsage:
        names = context.bundles.counted_names(*request.path, visibility=visibility)
        stats = context.app.runtime.stats
        return NOT_COUNTED if stats is None else stats.usage(names, request.query["days"], stats_caller())

    try:
        found = await asyncio.to_thread(read)
    except ToolFailure as error:
        raise _unreadable(error) from None
    return RestResponse(200, encode(context.clean(msgspec.to_builtins(found), None)))


async def stats(request: RestRequest) -> RestResponse:
    """What was counted of all tools; under an allow-list, of those that lists show. Admins see others' calls, too."""
    context, query = request.context, request.query
    caller = stats_caller(query["caller"])
    if query["caller"] not in (None, caller):
        raise role_error(context.principal, "admin")
    await context.app.catalog.refresh(at_once=True)

    def read() -> StatsOverview:
        if (counted := context.app.runtime.stats) is None:
            return StatsOverview(enabled=False)
        tool = None if query["tool"] is None else context.app.catalog.real_name(query["tool"])
        allowed = None if context.may_change else context.allowed
        return counted.overview(
            StatsFilter(
                days=query["days"],
                tool=tool,
                source=query["source"],
                client=query["client"],
                caller=caller,
                allowed=allowed,
            )
        )

    try:
        found = await asyncio.to_thread(read)
    except ToolFailure as error:
        raise _unreadable(error) from None
    return RestResponse(200, encode(context.clean(msgspec.to_builtins(found), None)))


def _unreadable(error: ToolFailure) -> RestError:
    if error.reason == "database_away":
        return RestError(503, "database_away", str(error), headers=((b"retry-after", b"2"),))
    return RestError(503, "unavailable", str(error))
