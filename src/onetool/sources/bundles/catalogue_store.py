"""`WithDerived` adds the bundles that are derived from the catalogue to a store; `CatalogueStore` is a folder and them.

Both are listed and searched as one: a page of each is asked for, and they are merged by id or by rank, which depend on
nothing but the row. For the search the derived ones have words of their own; who searches brings them up to date.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from onetool.sources.bundles.derived import DerivedBundles, DerivedSet
from onetool.sources.bundles.files.overlay import BuiltIn, read_switches
from onetool.sources.bundles.files.store import FileStore
from onetool.sources.bundles.index import Index
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.rules import StoreRules
from onetool.sources.bundles.searching import BundleSearch
from onetool.sources.bundles.store import Rank, SearchHit

Thing = TypeVar("Thing", Bundle, Tool)


class SwitchedSet:
    """The derived bundles with their switches, and what they were made of."""

    def __init__(self, of: DerivedSet, switches: str) -> None:
        self.of = of
        self.switches = switches
        found = read_switches(switches).over(of.bundles) if switches else of.bundles
        self.by_id: dict[str, tuple[Bundle, Sequence[Tool]]] = {one[0].id: one for one in found}

    @cached_property
    def bundles(self) -> list[Bundle]:
        """In the order of their ids, as the tools are."""
        return sorted((bundle for bundle, _ in self.by_id.values()), key=_id)

    @cached_property
    def tools(self) -> list[Tool]:
        return sorted((tool for _, tools in self.by_id.values() for tool in tools), key=_id)

    def is_in_use(self, tool: Tool) -> bool:
        return tool.is_enabled and self.by_id[tool.bundle_id][0].is_enabled


class WithDerived(StoreRules):
    """Goes before the class of a store."""

    def add_derived(self, derived: DerivedBundles) -> None:
        """Before anything else is done with the store."""
        self._derived = derived
        self._switched: SwitchedSet | None = None
        self._searched = DerivedSearch()

    # Reading

    def bundle(self, id: str) -> Bundle | None:
        found = self._current().by_id.get(id)
        return super().bundle(id) if found is None else found[0]

    def bundles(
        self, ids: Iterable[str] = (), include_disabled: bool = False, after: str | None = None, limit: int = 100
    ) -> list[Bundle]:
        wanted = set(ids)
        derived = (
            one
            for one in _behind(self._current().bundles, after)
            if (include_disabled or one.is_enabled) and (not wanted or one.id in wanted)
        )
        found = super().bundles(wanted, include_disabled, after, limit)
        return list(islice(merge(found, derived, key=_id), limit))

    def tool(self, bundle_id: str, slug: str, version: str) -> Tool | None:
        found = self._current().by_id.get(bundle_id)
        if found is None:
            return super().tool(bundle_id, slug, version)
        return next((one for one in found[1] if (one.slug, one.version) == (slug, version)), None)

    def versions(self, bundle_id: str, slug: str) -> list[Tool]:
        found = self._current().by_id.get(bundle_id)
        return super().versions(bundle_id, slug) if found is None else [one for one in found[1] if one.slug == slug]

    def tools(
        self,
        tags: Iterable[str] = (),
        bundle_ids: Iterable[str] = (),
        include_disabled: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Tool]:
        some, wanted, now = set(tags), set(bundle_ids), self._current()
        derived = (
            one
            for one in _behind(now.tools, after)
            if (not wanted or one.bundle_id in wanted)
            and (not some or not some.isdisjoint(one.tags))
            and (include_disabled or now.is_in_use(one))
        )
        found = super().tools(some, wanted, include_disabled, after, limit)
        return list(islice(merge(found, derived, key=_id), limit))

    def search(
        self, query: str, include_disabled: bool = False, after: Rank | None = None, limit: int = 100
    ) -> list[SearchHit]:
        found = super().search(query, include_disabled, after, limit)
        derived = self._searched.search(self._current(), query, include_disabled, after, limit)
        return list(islice(merge(found, derived, key=lambda hit: hit.rank), limit)) if derived else found

    def derived(self) -> list[tuple[Bundle, Sequence[Tool]]]:
        return list(self._current().by_id.values())

    def are_all_on(self) -> bool:
        return not self._read(Index.switches)

    # How it is done

    def _built_in_bundle(self, id: str) -> tuple[Bundle, Sequence[Tool]] | None:
        return super()._built_in_bundle(id) or self._derived.now().by_id.get(id)

    def _current(self) -> SwitchedSet:
        of, switches, known = self._derived.now(), self._read(Index.switches), self._switched
        if known is None or known.of is not of or known.switches != switches:
            known = self._switched = SwitchedSet(of, switches)
        return known


class CatalogueStore(WithDerived, FileStore):
    def __init__(self, folder: Path, built_in: BuiltIn, derived: DerivedBundles, **options: Any) -> None:
        super().__init__(folder, built_in, **options)
        self.add_derived(derived)


class DerivedSearch:
    """The search over the derived ones. Who searches brings it up to date."""

    def __init__(self) -> None:
        self._found = BundleSearch()
        self._of: SwitchedSet | None = None
        self._tools: dict[str, Tool] = {}

    def search(
        self, now: SwitchedSet, query: str, include_disabled: bool, after: Rank | None, limit: int
    ) -> list[SearchHit]:
        if not now.by_id:
            return []
        with self._found.words.lock:
            if self._of is not now:
                self._follow(now)
            ranks = self._found.search(query, include_disabled, after, limit)
            return [SearchHit(rank, self._tools[rank.id]) for rank in ranks]

    def _follow(self, now: SwitchedSet) -> None:
        before, self._tools = self._tools, {tool.id: tool for tool in now.tools}
        for id in before.keys() - self._tools.keys():
            self._found.drop_tool(id)
        if self._of is not None:
            for id in self._of.by_id.keys() - now.by_id.keys():
                self._found.drop_bundle(id, tuple)
        for bundle, tools in now.by_id.values():
            self._found.put_bundle(bundle, lambda tools=tools: tools)
        for id, tool in self._tools.items():
            if before.get(id) != tool:
                self._found.put_tool(tool)
        self._of = now


def _id(one: Bundle | Tool) -> str:
    return one.id


def _behind(things: list[Thing], after: str | None) -> Iterator[Thing]:
    return islice(things, 0 if after is None else bisect_right(things, after, key=_id), None)
