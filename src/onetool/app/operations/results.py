"""List, show and delete stored results of tools. Each belongs to the caller whose call returned it."""

from collections.abc import Iterator
from contextlib import contextmanager
from heapq import merge
from itertools import islice
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onetool.app.operations import At, Command, operation
from onetool.app.operations.fields import PER_PAGE, PageToken, Query, Search
from onetool.app.operations.paging import bad_page_token
from onetool.core.errors import ToolFailure
from onetool.core.principal import owners
from onetool.core.text import utc_text
from onetool.database import DatabaseError
from onetool.services.results import HandleNotFoundError, ResultExpiredError, ResultTooLargeError
from onetool.services.results.paging import BadQueryError
from onetool.sources.bundles.errors import BundleError, NotFoundError, UnavailableError, invalid_at

Position = Annotated[int, Meta(ge=1, le=10**15 - 1)]


class ResultsQuery(Query, frozen=True):
    """The results that are listed."""

    q: Search = ""
    page_token: PageToken = None


class ResultQuery(Query, frozen=True):
    """The lines of a result."""

    first: Annotated[Position, Meta(description="The first line, counted from 1.")] = msgspec.field(
        default=1, name="from"
    )
    limit: Annotated[int, Meta(ge=1, le=1000, description="Maximum number of lines.")] = PER_PAGE
    column: Annotated[Position, Meta(description="The first column of the first line, counted from 1.")] = 1
    q: Search = ""


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


@operation(
    "GET",
    "/results",
    "Results",
    completes="handle",
    command=Command(
        "results list",
        rows="results",
        columns=("handle", "name", "createdAt", "size", "lines", "head"),
        empty="There are no stored results.",
    ),
)
def list_results(at: At, query: ResultsQuery) -> ResultList:
    """List stored results, newest first.

    Lists only results of this client, from all processes that share the state folder.
    """
    store, words, token = at.app.runtime.results, query.q.casefold(), query.page_token
    with result_errors():
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
                created_at=_iso(one.at),
                expires_at=_iso(store.expires_at(one)),
                size=one.size,
                lines=one.lines,
                type="text",
                head=one.head,
            )
            for one in page[:PER_PAGE]
        ]
    next_page_token = entries[-1].handle if len(page) > PER_PAGE else None
    return ResultList(results=entries, next_page_token=next_page_token)


@operation(command=Command("results show"))
def show_result(at: At, handle: str, query: ResultQuery) -> ResultLines:
    """Show lines of a stored result, or its lines that match a regular expression."""
    found = lines_of(at, handle, query)
    if at.is_shown:
        at.say("\n".join(found.lines))
        if found.has_more:
            at.note(f"Lines {found.first} to {found.first + found.returned - 1} of {found.total}: --from shows more.")
    return found


def lines_of(at: At, handle: str, query: ResultQuery) -> ResultLines:
    runtime = at.app.runtime
    with result_errors():
        owner, search = runtime.result_owner(handle), query.q or None
        page: Any = runtime.results.page(handle, owner, query.first, query.limit, search, column=query.column)
    more = {key: page[key] for key in ("numbers", "column", "next") if key in page}
    facts = {"lines": page["lines"], "total": page["total_lines"], "first": page["offset"]}
    return ResultLines(**facts, returned=page["returned"], has_more=page["has_more"], **more)


@operation(
    "DELETE", "/results/{handle}", "Results", role="call", errors=(404,), command=Command("results delete", many=True)
)
def delete_result(at: At, handle: str) -> None:
    """Delete a stored result."""
    with result_errors():
        at.app.runtime.results.remove(handle, at.app.runtime.result_owner(handle))
    at.note(f"Deleted {handle}.")


@contextmanager
def result_errors() -> Iterator[None]:
    """Translate the errors of stored results."""
    try:
        yield
    except HandleNotFoundError as error:
        raise _hinted(NotFoundError(f"{error}."), error) from None
    except ResultExpiredError as error:
        raise _hinted(NotFoundError(f"{error}.", "expired"), error) from None
    except BadQueryError as error:
        raise invalid_at("/q", str(error)) from None
    except ToolFailure as error:
        if isinstance(error, ResultTooLargeError) or isinstance(error.__cause__, DatabaseError):
            raise
        raise _hinted(UnavailableError(f"{error}."), error) from None


def _hinted(refused: BundleError, error: ToolFailure) -> BundleError:
    vars(refused)["hints"] = error.hints
    return refused


def _iso(at: float) -> str:
    return utc_text(at).replace("Z", "+00:00")
