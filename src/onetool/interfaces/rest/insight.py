"""The handlers of what calls leave behind: what was counted of them, the audit log, and large results."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from onetool.core.errors import ToolFailure
from onetool.core.principal import owner, stats_caller
from onetool.interfaces.asgi import encode
from onetool.interfaces.rest.handlers import read_token, sign_token
from onetool.interfaces.rest.problem import RestError, database_problem, role_error
from onetool.interfaces.rest.request import NO_CONTENT, RestRequest, RestResponse
from onetool.services.audit import AuditRecord
from onetool.services.audit.record import AuditFilter, AuditPosition
from onetool.services.stats.usage import NOT_COUNTED, StatsFilter, StatsOverview, ToolUsage

if TYPE_CHECKING:
    from onetool.services.results import KeptResult
    from onetool.services.results.store import ResultStore


# What was counted


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


# The audit log


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


# Large results that were stored, for those alone who caused them


RESULTS_PER_PAGE = 100

T = TypeVar("T")


class ResultEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A result that is stored."""

    handle: str
    name: str | UnsetType = UNSET
    created_at: str
    expires_at: str
    size: int
    lines: int
    type: str
    head: str


class ResultList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Stored results, the newest first."""

    results: list[ResultEntry]
    next_page_token: str | None


class ResultLines(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Some lines of a result, or of those that match."""

    lines: list[str]
    total: int
    first: int = msgspec.field(name="from")
    returned: int
    has_more: bool
    numbers: list[int] | UnsetType = UNSET
    column: int | UnsetType = UNSET
    next: dict[str, int] | UnsetType = UNSET


async def list_results(request: RestRequest) -> RestResponse:
    return await asyncio.to_thread(_told, lambda: _list(request))


async def get_result(request: RestRequest) -> RestResponse:
    query, (handle,) = request.query, request.path

    def read() -> RestResponse:
        store, owner = _store(request)
        search = query["q"] or None
        page: Any = store.page(handle, owner, query["from"], query["limit"], search, column=query["column"])
        more = {key: page[key] for key in ("numbers", "column", "next") if key in page}
        facts = {"lines": page["lines"], "total": page["total_lines"], "first": page["offset"]}
        shown = ResultLines(**facts, returned=page["returned"], has_more=page["has_more"], **more)
        return RestResponse(200, encode(shown))

    return await asyncio.to_thread(_told, read)


async def delete_result(request: RestRequest) -> RestResponse:
    def remove() -> RestResponse:
        store, owner = _store(request)
        store.remove(request.path[0], owner)
        return NO_CONTENT

    return await asyncio.to_thread(_told, remove)


def _store(request: RestRequest) -> "tuple[ResultStore, str]":
    """The store, and who asks: the owner of what calls of this client have stored."""
    return request.context.app.runtime.results, owner()


def _list(request: RestRequest) -> RestResponse:
    store, owner = _store(request)
    wanted = request.query["q"].casefold()
    found = (one for one in _after(store.kept(owner), request.query["pageToken"]) if _fits(one, wanted))
    page = list(islice(found, RESULTS_PER_PAGE + 1))
    shown = ResultList(
        results=[_entry(store, one) for one in page[:RESULTS_PER_PAGE]],
        next_page_token=page[RESULTS_PER_PAGE - 1].handle if len(page) > RESULTS_PER_PAGE else None,
    )
    return RestResponse(200, encode(shown))


def _after(kept: "Iterator[KeptResult]", token: str | None) -> "Iterator[KeptResult]":
    """Those that follow the one that a page token names."""
    if token is None or any(one.handle == token for one in kept):
        return kept
    message = "The page token is not one of this list any more: begin anew."
    raise RestError(400, "bad_page_token", message, part="query", pointer="/pageToken")


def _fits(kept: "KeptResult", wanted: str) -> bool:
    return not wanted or any(wanted in text.casefold() for text in (kept.name or "", kept.head, kept.handle))


def _entry(store: "ResultStore", kept: "KeptResult") -> ResultEntry:
    return ResultEntry(
        handle=kept.handle,
        name=kept.name or UNSET,
        created_at=_iso(kept.at),
        expires_at=_iso(store.expires_at(kept)),
        size=kept.size,
        lines=kept.lines,
        type="text",
        head=kept.head,
    )


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _told(work: Callable[[], T]) -> T:
    """What a store says, as a refusal."""
    from onetool.services.results import HandleNotFoundError, ResultExpiredError
    from onetool.services.results.paging import BadQueryError

    try:
        return work()
    except HandleNotFoundError as error:
        raise RestError(404, "not_found", f"{error}.", hints=error.hints) from None
    except ResultExpiredError as error:
        raise RestError(404, "expired", f"{error}.", hints=error.hints) from None
    except BadQueryError as error:
        raise RestError(400, "bad_parameter", f"{error}.", part="query", pointer="/q") from None
    except ToolFailure as error:
        if (refused := database_problem(error)) is not None:
            raise refused from None
        raise RestError(503, "unavailable", f"{error}.", hints=error.hints) from None
