"""The handlers of usage counts, the audit log, and stored results."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import merge
from itertools import islice
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onetool.core.errors import ToolFailure
from onetool.core.principal import owners, stats_caller
from onetool.http.asgi import encode, read_weights
from onetool.http.files import ANY_BYTES, stored_file
from onetool.interfaces.rest.handlers import bad_page_token, page_token, read_page_token
from onetool.interfaces.rest.problem import RestError, database_problem, role_error
from onetool.interfaces.rest.query import (
    CALLER,
    CLIENT,
    COLUMN,
    DAYS,
    FROM,
    KIND,
    LIMIT,
    OUTCOME,
    PAGE_SIZE,
    PAGE_TOKEN,
    PER_PAGE,
    REQUEST,
    SINCE,
    SOURCE,
    TOOL_NAME,
    UNTIL,
    WHO,
    Q,
)
from onetool.interfaces.rest.request import NO_CONTENT, RestRequest, RestResponse
from onetool.interfaces.rest.route import TOOL, RestRoute
from onetool.services.audit import AuditRecord
from onetool.services.audit.record import AuditFilter, AuditPosition
from onetool.services.results import HandleNotFoundError, ResultExpiredError, ResultTooLargeError
from onetool.services.results.paging import BadQueryError
from onetool.services.stats.summary import iso
from onetool.services.stats.usage import NOT_COUNTED, StatsFilter, StatsOverview, ToolUsage

# Usage counts


@RestRoute("GET", f"{TOOL}/usage", "Tools", query=(DAYS,), gives=ToolUsage, errors=(404,))
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
        return NOT_COUNTED if stats is None else stats.usage(names, request.query["days"], stats_caller())

    with _stats_errors():
        return context.response(await asyncio.to_thread(read))


@RestRoute("GET", "/stats", "Server", query=(DAYS, TOOL_NAME, SOURCE, CLIENT, CALLER), gives=StatsOverview)
async def get_stats(request: RestRequest) -> RestResponse:
    """Get the usage of all tools: calls, errors and durations.

    Like `getUsage`, for all tools; under an allow-list, only for tools that lists show.
    """
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


class AuditList(msgspec.Struct, frozen=True, rename="camel"):
    """A page of the audit log."""

    enabled: Annotated[bool, Meta(description="Whether the audit log is enabled: `audit` in the config.")]
    records: Annotated[tuple[AuditRecord, ...], Meta(description="Newest first.")] = ()
    next_page_token: Annotated[str | None, Meta(description="Null on the last page. Any page may be short.")] = None
    skipped: Annotated[int, Meta(description="Number of unreadable lines.")] = 0
    lost: Annotated[int, Meta(description="Number of lines that this server failed to write.")] = 0
    problem: Annotated[str | None, Meta(description="Why the log can't be written at the moment.")] = None


@RestRoute(
    "GET",
    "/audit",
    "Server",
    role="admin",
    audited=False,
    query=(SINCE, UNTIL, WHO, KIND, TOOL_NAME, OUTCOME, REQUEST, PAGE_SIZE, PAGE_TOKEN),
    gives=AuditList,
)
def list_audit(request: RestRequest) -> RestResponse:
    """List the records of the audit log, newest first.

    `tool` may be a pattern such as `web.*`. Any page may have fewer records than requested, not only the last one.
    """
    context, query = request.context, request.query
    wanted = AuditFilter(**{name: query[name] for name in AuditFilter.__struct_fields__ if name != "args"})
    found, log = AuditList(enabled=False), context.app.audit.log
    if log is not None:
        log.flush()
        page = log.table.page(wanted, query["pageSize"], read_page_token(request, AuditPosition))
        found = AuditList(
            enabled=True,
            records=tuple(page.records),
            next_page_token=page_token(request, page.before),
            skipped=page.skipped,
            lost=log.lost,
            problem=log.problem,
        )
    return RestResponse(200, encode(msgspec.to_builtins(found)))


# Large results are stored, each for the caller whose call returned it


class ResultEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A stored result."""

    handle: str
    name: Annotated[str | UnsetType, Meta(description="The tool that returned it, if known.")] = UNSET
    created_at: str
    expires_at: str
    size: Annotated[int, Meta(description="Bytes of UTF-8.")]
    lines: int
    type: str
    head: Annotated[str, Meta(description="The beginning of the text.")]


class ResultList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Stored results, the newest first."""

    results: list[ResultEntry]
    next_page_token: str | None


class ResultLines(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Lines of a result, or its lines that match a search."""

    lines: list[str]
    total: Annotated[int, Meta(description="The total number of lines or matches.")]
    first: Annotated[int, Meta(description="The first line, or match of a search.")] = msgspec.field(name="from")
    returned: int
    has_more: bool
    numbers: Annotated[list[int] | UnsetType, Meta(description="Only for a search: the line numbers.")] = UNSET
    column: Annotated[int | UnsetType, Meta(description="The column where the first line begins, if not 1.")] = UNSET
    next: Annotated[dict[str, int] | UnsetType, Meta(description="The next position if the page was cut.")] = UNSET


@RestRoute("GET", "/results", "Results", query=(Q, PAGE_TOKEN), gives=ResultList)
def list_results(request: RestRequest) -> RestResponse:
    """List stored results, newest first.

    Lists only results of this client, from all processes that share the state folder.
    """
    store, words, token = request.context.app.runtime.results, request.query["q"].casefold(), request.query["pageToken"]
    with _result_errors():
        kept = merge(*map(store.kept, owners()), key=lambda one: one.at, reverse=True)
        if token is not None and not any(one.handle == token for one in kept):  # `any` moves `kept` behind that result
            raise bad_page_token()
        found = (
            one for one in kept if any(words in text.casefold() for text in (one.name or "", one.head, one.handle))
        )
        page = list(islice(found, PER_PAGE + 1))
        entries = [
            ResultEntry(
                handle=one.handle,
                name=one.name or UNSET,
                created_at=iso(one.at),
                expires_at=iso(store.expires_at(one)),
                size=one.size,
                lines=one.lines,
                type="text",
                head=one.head,
            )
            for one in page[:PER_PAGE]
        ]
    next_page_token = entries[-1].handle if len(page) > PER_PAGE else None
    return RestResponse(200, encode(ResultList(results=entries, next_page_token=next_page_token)))


MAX_DOWNLOAD = 128 * 1024**2  # of a stored text


@RestRoute(
    "GET",
    "/results/{handle}",
    "Results",
    query=(FROM, LIMIT, COLUMN, Q),
    gives=ResultLines,
    sends=(ANY_BYTES,),
    errors=(404,),
)
def read_result(request: RestRequest) -> RestResponse:
    """Read lines of a stored result, or all of it as a file.

    With `q`, a regular expression, returns only lines that match. With `Accept: application/octet-stream` the response
    is the stored image or file, or the whole text.
    """
    query, (handle,), runtime = request.query, request.path, request.context.app.runtime
    store = runtime.results
    with _result_errors():
        owner = runtime.result_owner(handle)
        if ANY_BYTES in read_weights(request.headers.get(b"accept", b"")):
            file = stored_file(store.read(handle, owner, MAX_DOWNLOAD), MAX_DOWNLOAD)
            disposition = f"attachment; filename*=UTF-8''{quote(file.name, safe='')}"
            headers = ((b"content-disposition", disposition.encode()),)
            return RestResponse(200, file.data, headers, ANY_BYTES.encode())
        search = query["q"] or None
        page: Any = store.page(handle, owner, query["from"], query["limit"], search, column=query["column"])
    more = {key: page[key] for key in ("numbers", "column", "next") if key in page}
    facts = {"lines": page["lines"], "total": page["total_lines"], "first": page["offset"]}
    return RestResponse(200, encode(ResultLines(**facts, returned=page["returned"], has_more=page["has_more"], **more)))


@RestRoute("DELETE", "/results/{handle}", "Results", role="call", status=(204,), errors=(404,))
def delete_result(request: RestRequest) -> RestResponse:
    """Delete a stored result."""
    with _result_errors():
        (handle,), runtime = request.path, request.context.app.runtime
        runtime.results.remove(handle, runtime.result_owner(handle))
    return NO_CONTENT


@contextmanager
def _result_errors() -> Iterator[None]:
    """Raise errors from the result store as RestError."""
    try:
        yield
    except HandleNotFoundError as error:
        raise RestError(404, "not_found", f"{error}.", hints=error.hints) from None
    except ResultExpiredError as error:
        raise RestError(404, "expired", f"{error}.", hints=error.hints) from None
    except ResultTooLargeError as error:
        raise RestError(413, "too_large", f"{error}.") from None
    except BadQueryError as error:
        raise RestError(400, "bad_parameter", f"{error}.", part="query", pointer="/q") from None
    except ToolFailure as error:
        if (refused := database_problem(error)) is not None:
            raise refused from None
        raise RestError(503, "unavailable", f"{error}.", hints=error.hints) from None
