"""The handlers below /results: large results that were stored, for those alone who caused them."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from onetool.core.errors import ToolFailure
from onetool.core.principal import owner
from onetool.interfaces.json_data import encode
from onetool.interfaces.rest.problem import RestError, database_problem
from onetool.interfaces.rest.request import NO_CONTENT, RestRequest, RestResponse

if TYPE_CHECKING:
    from onetool.services.results import Results
    from onetool.services.results.kept import KeptResult

PER_PAGE = 100

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


def _store(request: RestRequest) -> "tuple[Results, str]":
    """The store, and who asks: the owner of what calls of this client have stored."""
    return request.context.app.runtime.results, owner()


def _list(request: RestRequest) -> RestResponse:
    store, owner = _store(request)
    wanted = request.query["q"].casefold()
    try:
        found = (one for one in _after(store.kept(owner), request.query["pageToken"]) if _fits(one, wanted))
        page = list(islice(found, PER_PAGE + 1))
    except OSError as error:
        raise RestError(503, "unavailable", f"Results can't be listed: {error.strerror or error}.") from None
    shown = ResultList(
        results=[_entry(store, one) for one in page[:PER_PAGE]],
        next_page_token=page[PER_PAGE - 1].handle if len(page) > PER_PAGE else None,
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


def _entry(store: "Results", kept: "KeptResult") -> ResultEntry:
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
    from onetool.services.results.errors import BadQueryError, HandleNotFoundError, ResultExpiredError

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
