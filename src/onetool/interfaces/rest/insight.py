"""The handler of what pages show of one tool beside its definition: its usage."""

import asyncio

import msgspec

from onetool.core.errors import ToolFailure
from onetool.interfaces.json_data import encode
from onetool.interfaces.rest.problem import RestError
from onetool.interfaces.rest.request import RestRequest, RestResponse
from onetool.services.stats.tool_usage import NOT_COUNTED, ToolUsage


async def usage(request: RestRequest) -> RestResponse:
    context, visibility = request.context, await request.context.visibility()
    await context.bundles.keep_in_step()  # what it is counted under depends on the others

    def read() -> ToolUsage:
        names = context.bundles.counted_names(*request.path, visibility=visibility)
        stats = context.app.runtime.stats
        return NOT_COUNTED if stats is None else stats.usage(names, request.query["days"])

    try:
        found = await asyncio.to_thread(read)
    except ToolFailure as error:
        raise RestError(503, "unavailable", str(error)) from None
    return RestResponse(200, encode(context.clean(msgspec.to_builtins(found), None)))
