"""All that a shelf has, however many pages that is."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onetool.sources.bundles.shelf import Shelf, Shown

PAGE = 1000
LONGEST = 120  # characters of a description, in a list


def all_bundles(shelf: "Shelf") -> "Iterator[Shown]":
    """Those that are switched off or deleted, too."""
    after: str | None = None
    while True:
        page, after = shelf.bundles((), True, after, PAGE)
        yield from page
        if after is None:
            return


def all_tools(shelf: "Shelf", bundle_id: str | None = None) -> "Iterator[Shown]":
    """Of one bundle, or of all; those that are switched off, too."""
    ids = [] if bundle_id is None else [bundle_id]
    after: str | None = None
    while True:
        page, after = shelf.tools((), ids, True, after, PAGE)
        yield from page
        if after is None:
            return


def found_tools(shelf: "Shelf", query: str, include_disabled: bool, limit: int) -> "list[Shown]":
    found, _ = shelf.search(query, include_disabled, None, limit)
    return found


def title(thing: dict[str, Any]) -> str:
    """The first line of what it is for, or the beginning of a long one; its name where nobody said."""
    return _one_line(thing["description"] or thing["displayName"])


def heading(bundle: dict[str, Any]) -> str:
    """What people call it; what it is for, where that is no more than its slug."""
    name = bundle["displayName"]
    return _one_line(bundle["description"] if name in ("", bundle["slug"]) else name)


def _one_line(text: str) -> str:
    from onetool.core.failure import cut

    return cut(text.strip().partition("\n")[0], LONGEST)
