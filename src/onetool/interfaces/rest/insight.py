"""The handlers of what was counted and noted: the usage of one tool, that of all, and the audit log."""

import asyncio

import msgspec

from onetool.core.errors import ToolFailure
from onetool.core.principal import stats_caller
from onetool.interfaces.json_data import encode
from onetool.interfaces.rest.handlers import read_token, sign_token
from onetool.interfaces.rest.problem import RestError, database_problem, role_error
from onetool.interfaces.rest.request import RestRequest, RestResponse
from onetool.services.audit import AuditRecord
from onetool.services.audit.reader import AuditFilter, AuditPosition
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


class AuditList(msgspec.Struct, frozen=True, rename="camel"):
    """A page of the audit log."""

    enabled: bool
    records: tuple[AuditRecord, ...] = ()
    next_page_token: str | None = None
    skipped: int = 0
    lost: int = 0
    problem: str | None = None


async def list_audit(request: RestRequest) -> RestResponse:
    """The newest lines first. A page may have fewer than were asked for, and still not be the last one."""
    context, query = request.context, request.query
    wanted = AuditFilter(**{name: query[name] for name in ("since", "until", "who", "kind", "tool", "outcome")})
    log = context.app.audit.log

    def read() -> AuditList:
        if log is None:
            return AuditList(enabled=False)
        log.flush()
        key, route, token = context.bundles.key(), request.scope["path"], query["pageToken"]
        before = None if token is None else AuditPosition(*read_token(token, key, route, query))
        page = log.reader.page(wanted, query["pageSize"], before)
        following = None if page.before is None else sign_token([*page.before], key, route, query)
        return AuditList(
            enabled=True,
            records=tuple(page.records),
            next_page_token=following,
            skipped=page.skipped,
            lost=log.lost,
            problem=log.problem,
        )

    try:
        found = await asyncio.to_thread(read)
    except OSError as error:
        why, refused = f"The audit log can't be read: {error.strerror or error}.", database_problem(error)
        code, headers = ("unavailable", ()) if refused is None else (refused.code, refused.headers)
        raise RestError(503, code, why, headers=headers) from None
    return RestResponse(200, encode(msgspec.to_builtins(found)))
