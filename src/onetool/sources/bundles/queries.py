"""Queries of a store of bundles and their results, and `Visibility`: the bundles and tools that a client may see."""

from bisect import bisect_right
from collections.abc import Collection, Container, Iterator, Sequence
from hashlib import sha256
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import msgspec

from onetool.sources.bundles.model import Bundle, Tool

ETag = str
"""An ETag of a bundle or tool, without quotes. "*" matches anything that exists."""


class Rank(NamedTuple):
    """The sort key of a search hit: lower comes first. It depends on that tool alone."""

    tier: int
    score: float  # within the tier; lower is better
    place: str  # the bundle, MCP servers last; empty for an empty query
    age: int  # minus the modification time in ms
    id: str


class SearchHit(NamedTuple):
    rank: Rank
    tool: Tool


T = TypeVar("T", bound=Any)  # a Tool, or a KeptTool, whose module imports this one


class ListQuery(msgspec.Struct, frozen=True):
    """A query for a page of bundles or tools, in the order of their ids, starting after `after`."""

    tags: Collection[str] = ()  # only tools with one of these tags
    bundle_ids: Collection[str] = ()  # only these bundles, or tools in these; empty: all
    include_disabled: bool = False
    after: str | None = None
    limit: int = 100

    def bundles(self, in_order: Sequence[Bundle]) -> Iterator[Bundle]:
        for bundle in islice(in_order, self._start(in_order), None):
            if (self.include_disabled or is_live(bundle)) and (not self.bundle_ids or bundle.id in self.bundle_ids):
                yield bundle

    def tools(self, in_order: Sequence[T], live: Container[str]) -> Iterator[T]:
        """Yield the tools of the page. `live` are the ids of bundles that are neither disabled nor soft-deleted."""
        tags = frozenset(self.tags)
        for tool in islice(in_order, self._start(in_order), None):
            if (self.include_disabled or (tool.is_enabled and tool.bundle_id in live)) and (
                not tags or not tags.isdisjoint(tool.tags)
            ):
                yield tool

    def _start(self, in_order: Sequence[Any]) -> int:
        return 0 if self.after is None else bisect_right(in_order, self.after, key=get_id)


FIRST_PAGE = ListQuery()
get_id = attrgetter("id")


def is_live(bundle: Bundle) -> bool:
    return bundle.is_enabled and bundle.soft_deleted_at is None


def tag_of(thing: Bundle | Tool) -> ETag:
    """Return an ETag of the content."""
    return sha256(msgspec.json.encode(thing, order="deterministic")).hexdigest()[:24]


# Visibility


class Visibility:
    """A visibility rule. In this class, everything is visible."""

    def tool(self, tool: Tool) -> bool:
        return True

    def bundle(self, bundle: Bundle) -> bool:
        return True


EVERYTHING = Visibility()
