"""The handlers of usage counts, the audit log, and stored results."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from time import time
from typing import Annotated
from urllib.parse import quote

import msgspec
from msgspec import Meta

from onetool.app.operations.fields import Pages, Query, ToolName, Words
from onetool.app.operations.paging import page_token, read_page_token
from onetool.app.operations.results import ResultLines, ResultQuery, lines_of, result_errors
from onetool.core.errors import ToolFailure
from onetool.core.principal import stats_caller
from onetool.http.asgi import encode, read_weights
from onetool.http.files import ANY_BYTES, stored_file
from onetool.interfaces.rest.problem import RestError, role_error
from onetool.interfaces.rest.request import RestRequest, RestResponse
from onetool.interfaces.rest.route import TOOL, RestRoute
from onetool.services.journal.audit import AuditFilter, AuditLog, AuditPosition, AuditRecord, read_moment
from onetool.services.journal.row import AuditKind
from onetool.services.journal.usage import NOT_COUNTED, StatsFilter, StatsOverview, ToolUsage
from onetool.services.results import ResultTooLargeError
from onetool.sources.bundles.errors import invalid_at

Moment = Annotated[
    str | None,
    Meta(
        description="A date, or a duration before now.",
        examples=["2h"],
        extra_json_schema={
            "pattern": "^([0-9]{1,6}[smhdw]|20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8]))$",
        },
    ),
]

# Usage counts


class UsageQuery(Query, frozen=True):
    """The days that are counted."""

    days: Annotated[int, Meta(ge=1, le=366, description="The number of days until now.")] = 30


class StatsQuery(UsageQuery, frozen=True):
    """The calls that are counted."""

    tool: ToolName = None
    source: Annotated[Words | None, Meta(description="Only calls through this interface.")] = None
    client: Annotated[Words | None, Meta(description="Only calls of this client.")] = None
    caller: Annotated[
        Words | None,
        Meta(description="Only for admins: calls of this token or `iss|sub`; empty: of `http.token`."),
    ] = None


@RestRoute("GET", f"{TOOL}/usage", "Tools", query=UsageQuery, gives=ToolUsage, errors=(404,))
async def get_usage(request: RestRequest) -> RestResponse:
    """Get the usage of a tool: calls, errors and durations.

    Covers the calls kept under `stats` in the config, without arguments and values. The series is hourly for up to two
    days, otherwise daily, and includes times without calls. Only admins see the calls of other callers.
    """
    context, visibility = request.context, await request.context.visibility()
    await context.bundles.keep_in_step()  # the name that calls are counted under depends on other tools

    def read() -> ToolUsage:
        names = context.bundles.counted_names(*request.path, visibility=visibility)
        stats = context.app.runtime.stats
        return NOT_COUNTED if stats is None else stats.usage(names, request.query.days, stats_caller())

    with _stats_errors():
        return context.response(await asyncio.to_thread(read))


@RestRoute("GET", "/stats", "Server", query=StatsQuery, gives=StatsOverview)
async def get_stats(request: RestRequest) -> RestResponse:
    """Get the usage of all tools: calls, errors and durations.

    Like `getUsage`, for all tools; under an allow-list, only for tools that lists show.
    """
    context, query = request.context, request.query
    caller = stats_caller(query.caller)
    if query.caller not in (None, caller):
        raise role_error(context.principal, "admin")
    await context.app.catalog.refresh(at_once=True)

    def read() -> StatsOverview:
        if (counted := context.app.runtime.stats) is None:
            return StatsOverview(enabled=False)
        tool = None if query.tool is None else context.app.catalog.real_name(query.tool)
        allowed = None if context.may_change else context.allowed
        return counted.overview(
            StatsFilter(
                days=query.days,
                tool=tool,
                source=query.source,
                client=query.client,
                caller=caller,
                allowed=allowed,
            )
        )

    with _stats_errors():
        return context.response(await asyncio.to_thread(read))


@contextmanager
def _stats_errors() -> Iterator[None]:
    try:
        yield
    except ToolFailure as error:
        if error.reason == "database_away":
            raise RestError(503, "database_away", str(error), headers=((b"retry-after", b"2"),)) from None
        raise RestError(503, "unavailable", str(error)) from None


# The audit log


class AuditQuery(Pages, frozen=True):
    """The records that are listed."""

    since: Moment = None
    until: Moment = None
    who: Annotated[Words | None, Meta(description="Only records of this token or user.")] = None
    kind: Annotated[AuditKind | None, Meta(description="Only lines of this kind.")] = None
    tool: ToolName = None
    outcome: Annotated[
        Words | None,
        Meta(description="ok, error, the code or reason of an error, or a status.", examples=["error"]),
    ] = None
    request: Annotated[
        Words | None, Meta(description="A request id, from X-Request-Id or a log line, or a trace id.")
    ] = None


def _moment(text: str | None, pointer: str) -> float | None:
    if text is None:
        return None
    if (found := read_moment(text, time())) is None:
        what = "expected a time (2026-11-16T12:00:00Z) or a duration before now (30m, 2h, 7d)"
        raise invalid_at(pointer, what)
    return found


class AuditList(msgspec.Struct, frozen=True, rename="camel"):
    """A page of the audit log."""

    enabled: Annotated[bool, Meta(description="Whether the audit log is enabled: `audit` in the config.")]
    records: Annotated[tuple[AuditRecord, ...], Meta(description="Newest first.")] = ()
    next_page_token: Annotated[str | None, Meta(description="Null on the last page. Any page may be short.")] = None
    lost: Annotated[int, Meta(description="Number of lines that this server failed to write.")] = 0
    problem: Annotated[str | None, Meta(description="Why the log can't be written at the moment.")] = None


@RestRoute(
    "GET",
    "/audit",
    "Server",
    role="admin",
    audited=False,
    query=AuditQuery,
    gives=AuditList,
)
def list_audit(request: RestRequest) -> RestResponse:
    """List the records of the audit log, newest first.

    `tool` may be a pattern such as `web.*`. Any page may have fewer records than requested, not only the last one.
    """
    context, query = request.context, request.query
    wanted = AuditFilter(
        since=_moment(query.since, "/since"),
        until=_moment(query.until, "/until"),
        who=query.who,
        kind=query.kind,
        tool=query.tool,
        outcome=query.outcome,
        request=query.request,
    )
    found, journal = AuditList(enabled=False), context.app.journal.audit
    if journal is not None:
        journal.flush()
        page = AuditLog(journal.table).page(wanted, query.page_size, read_page_token(context, query, AuditPosition))
        found = AuditList(
            enabled=True,
            records=tuple(page.records),
            next_page_token=page_token(context, query, page.before),
            lost=journal.lost,
            problem=journal.problem,
        )
    return RestResponse(200, encode(msgspec.to_builtins(found)))


# Stored results

MAX_DOWNLOAD = 128 * 1024**2  # of a stored text


@RestRoute(
    "GET",
    "/results/{handle}",
    "Results",
    query=ResultQuery,
    gives=ResultLines,
    sends=(ANY_BYTES,),
    errors=(404,),
)
def read_result(request: RestRequest) -> RestResponse:
    """Read lines of a stored result, or all of it as a file.

    With `q`, a regular expression, returns only lines that match. With `Accept: application/octet-stream` the response
    is the stored image or file, or the whole text.
    """
    (handle,), runtime = request.path, request.context.app.runtime
    try:
        if ANY_BYTES not in read_weights(request.headers.get(b"accept", b"")):
            return RestResponse(200, encode(lines_of(request.context, handle, request.query)))
        with result_errors():
            data = runtime.results.read(handle, runtime.result_owner(handle), MAX_DOWNLOAD)
        file = stored_file(data, MAX_DOWNLOAD)
    except ResultTooLargeError as error:
        raise RestError(413, "too_large", f"{error}.") from None
    disposition = f"attachment; filename*=UTF-8''{quote(file.name, safe='')}"
    headers = ((b"content-disposition", disposition.encode()),)
    return RestResponse(200, file.data, headers, ANY_BYTES.encode())
