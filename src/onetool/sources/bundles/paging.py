"""Gathers a page of those rows that are to be listed, from a store that also has others."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def page_of(
    more: Callable[[Any, int], Iterable[tuple[Any, T]]], is_listed: Callable[[T], bool], after: Any, limit: int
) -> tuple[list[T], Any]:
    """So many of those that are listed, and where the next ones begin."""
    page: list[T] = []
    last = None
    while True:
        wanted = limit + 1 - len(page)
        found = list(more(after, wanted))
        for place, thing in found:
            if is_listed(thing):
                if len(page) == limit:
                    return page, last
                page.append(thing)
                last = place
        if len(found) < wanted:
            return page, None
        after = found[-1][0]
