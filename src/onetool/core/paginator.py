"""A paginator that collects the items of all pages of a tool, recognising its arguments and results by their names.
Pages are requested by a cursor, a page number or an offset, depending on the tool's schema.

The results tell the position of the next page, if any: `nextPageToken`, `page` and `pages`, `offset` and `total`,
`has_more`.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

from onetool.core.errors import cut
from onetool.core.json_data import size_of
from onetool.core.spec import ToolSpec
from onetool.core.type_names import types_of

DEFAULT_LIMIT = 10_000
MAX_PAGES = 1_000  # if nothing else limits the number of calls
MAX_ITEM_BYTES = 16 * 1024 * 1024  # of all items: the limit for a tool's value in code
MAX_SHOWN = 200  # characters shown in an error

# Names without case and punctuation, the usual ones first.
CURSORS = ("cursor", "pagetoken", "nextpagetoken", "nexttoken", "nextcursor", "startcursor", "continuationtoken",
           "paginationtoken", "continue", "startingafter", "after", "marker")  # fmt: skip
PAGES = ("page", "pagenumber", "pageno", "pageindex")
OFFSETS = ("offset", "skip", "start", "startat", "startindex", "from")
NEXT = ("nextpagetoken", "nextcursor", "nexttoken", "continuationtoken", "endcursor", "nextmarker", "next", "continue",
        "cursor")  # fmt: skip
HERE = (*PAGES, "currentpage", "number")
LAST_PAGES = ("pages", "totalpages", "pagecount", "numpages", "lastpage")
TOTALS = ("total", "totalcount", "totalitems", "totalresults", "totalsize", "totalrecords")
MORE = ("hasmore", "hasnextpage", "hasnext", "more", "istruncated", "truncated")
LAST = ("islast", "islastpage", "last")


class PagingError(ValueError):
    """An error for a tool whose pages can't be followed. The message shows why."""


class Paginator:
    """The pages of a tool: call it with `next_args`, and pass the result to `add`, until `next_args` is None."""

    def __init__(
        self, spec: ToolSpec, args: Mapping[str, Any], limit: int | None = None, key: str | None = None
    ) -> None:
        self._tool = spec.name
        self._limit = limit
        self._key = key
        properties: Mapping[str, Any] = spec.input_schema.get("properties") or {}
        named = {_plain(name): name for name in reversed(spec.order)}
        counted = {plain: name for plain, name in named.items() if _takes_number(properties.get(name))}
        self._named = named
        self._cursor = named.get(_first(CURSORS, named) or "")
        self._page, self._offset = (counted.get(_first(names, counted) or "") for names in (PAGES, OFFSETS))
        self._begin = {
            name: _integer(args.get(name, properties[name].get("default")))
            for name in (self._page, self._offset)
            if name
        }
        self._base: int | None = None  # the number of the first page
        self._last: Any = None
        self._bytes = 0
        self.items: list[Any] = []
        self.next_args: dict[str, Any] | None = dict(args)

    def add(self, value: Any) -> None:
        """Add a page. Raises PagingError."""
        args, self.next_args = self.next_args or {}, None
        items, metadata = self._read(value)
        if items and items == self._last:
            raise PagingError(
                f"{self._tool} returned the same page twice, for {_short_value(args)}: {_short_value(metadata)}"
            )
        self._last = items
        self._bytes += size_of(items)
        if self._bytes > MAX_ITEM_BYTES:
            raise PagingError(f"The items of {self._tool} exceed {MAX_ITEM_BYTES:,} bytes: request fewer")
        self.items += items
        if self._limit is not None and len(self.items) >= self._limit:
            del self.items[self._limit :]
            return
        if len(self.items) > DEFAULT_LIMIT and self._limit is None:
            raise PagingError(f"{self._tool} has more than {DEFAULT_LIMIT:,} items: pass limit=… to get the first ones")
        changes = self._following(args, items, metadata)
        self.next_args = None if changes is None else {**args, **changes}

    def _read(self, value: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the items and the metadata of a page."""
        if isinstance(value, list) and self._key is None:
            return cast(list[Any], value), {}
        found = _lists(value)
        keys = [key for key in found if self._key in (None, key, key.rpartition(".")[2])]
        if len(keys) != 1:
            result = f"the result of {self._tool}"
            if not found:
                raise PagingError(f"There is no list of items in {result}: {_short_value(value)}")
            wanted = "pass key=…" if self._key is None else f"there is no list {self._key!r}"
            message = f"Can't tell which list in {result} holds the items; {wanted}: its lists are {', '.join(found)}"
            raise PagingError(message)
        return found[keys[0]], _metadata(cast(dict[str, Any], value))

    def _following(self, args: Mapping[str, Any], items: list[Any], metadata: dict[str, Any]) -> dict[str, Any] | None:
        """Return the changed arguments for the next page; None after the last page."""
        more, pages, total = _first(MORE, metadata), _number(LAST_PAGES, metadata), _number(TOTALS, metadata)
        is_more, following = more is not None and bool(metadata[more]), metadata.get(_first(NEXT, metadata) or "")
        if (more is not None and not is_more) or any(metadata.get(word) is True for word in LAST):
            return None
        if self._cursor is not None and _is_token(following):
            return {self._cursor: following}
        for plain, name in self._named.items():  # `next_since_id` is the next `since_id`
            if items and _is_token(value := metadata.get(f"next{plain}")):
                return {name: value}
        has_next = {bool(value) for word, value in metadata.items() if "next" in word}
        if has_next == {False} and pages is None and total is None:
            return None
        if self._page is not None and items:
            return self._next_page(self._page, args, metadata, pages, total)
        if self._offset is not None and items:
            return self._next_offset(self._offset, args, len(items), metadata, total)
        if (
            self._page is None
            and self._offset is None
            and (
                is_more
                or following
                or (items and True in has_next)
                or (pages or 1) > 1
                or (total or 0) > len(self.items)
                or (self._cursor and not metadata)
            )
        ):
            raise self._unknown(metadata, items)
        return None

    def _next_page(
        self, name: str, args: Mapping[str, Any], metadata: dict[str, Any], pages: int | None, total: int | None
    ) -> dict[str, Any] | None:
        if not (following := metadata.get("nextpage", True)):
            return None
        if (number := _integer(following)) is not None:
            return {name: number}
        known = (_number(HERE, metadata), _integer(args.get(name)), self._begin[name], 1)
        here = next(number for number in known if number is not None)
        self._base = min(here, 1) if self._base is None else self._base
        is_last = pages is not None and here - self._base + 1 >= pages
        if is_last or (pages is None and total is not None and len(self.items) >= total):
            return None
        return {name: here + 1}

    def _next_offset(
        self, name: str, args: Mapping[str, Any], count: int, metadata: dict[str, Any], total: int | None
    ) -> dict[str, Any] | None:
        if not (following := metadata.get("nextoffset", True)):
            return None
        if (number := _integer(following)) is not None:
            return {name: number}
        known = (_integer(args.get(name)), self._begin[name], 0)
        here = next(number for number in known if number is not None)
        is_last = total is not None and (here + count >= total or len(self.items) >= total)
        return None if is_last else {name: here + count}

    def _unknown(self, metadata: dict[str, Any], items: list[Any]) -> PagingError:
        takes = self._cursor or "no cursor, page or offset"
        has = f"{len(items)} items and {_short_value(metadata)}" if metadata else f"a bare list of {len(items)} items"
        return PagingError(
            f"Can't tell how {self._tool} paginates: it takes {takes}, and its result has {has}. Call it page by page."
        )


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def _first(names: tuple[str, ...], among: Mapping[str, Any]) -> str | None:
    return next((name for name in names if name in among), None)


def _number(names: tuple[str, ...], metadata: Mapping[str, Any]) -> int | None:
    return _integer(metadata.get(_first(names, metadata) or ""))


def _integer(value: Any) -> int | None:
    return value if type(value) is int else None


def _takes_number(schema: Any) -> bool:
    """Return whether an argument takes a number: `from` may be a date, and `page` a title."""
    return isinstance(schema, Mapping) and bool(
        {"integer", "number"} & types_of(schema, cast(Mapping[str, Any], schema))
    )


def _lists(value: Any) -> dict[str, list[Any]]:
    """Return the lists in an object by key; if there are none, those in its inner objects: `data.items`."""
    if not isinstance(value, dict):
        return {}
    members = cast(dict[str, Any], value)
    own = {key: cast(list[Any], one) for key, one in members.items() if isinstance(one, list)}
    return own or {
        f"{key}.{name}": cast(list[Any], part)
        for key, one in members.items()
        if isinstance(one, dict)
        for name, part in cast(dict[str, Any], one).items()
        if isinstance(part, list)
    }


def _metadata(value: dict[str, Any]) -> dict[str, Any]:
    """Return the scalar members of an object and of its inner objects by plain name. Outer members take precedence."""
    inner = {
        _plain(name): part
        for one in value.values()
        if isinstance(one, dict)
        for name, part in cast(dict[str, Any], one).items()
        if not isinstance(part, list | dict)
    }
    return {**inner, **{_plain(name): one for name, one in value.items() if not isinstance(one, list | dict)}}


def _is_token(value: Any) -> bool:
    """Return whether a value can be a cursor. URLs can't: no argument takes them."""
    return type(value) is int or (isinstance(value, str) and value != "" and not value.startswith(("http", "/")))


def _short_value(value: Any) -> str:
    return cut(repr(value), MAX_SHOWN)
