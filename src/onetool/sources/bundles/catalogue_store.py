"""`CatalogueStore` is a folder of bundles together with the bundles that are derived from the catalogue.

Both are listed and searched as one: a page of each is asked for, and they are merged by id or by rank, which depend on
nothing but the row. For the search the derived ones have an index of their own, in memory; who searches brings it up to
date.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from heapq import merge
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from onetool.sources.bundles.derived import DerivedBundles, DerivedSet
from onetool.sources.bundles.files.overlay import read_switches
from onetool.sources.bundles.files.store import FileStore
from onetool.sources.bundles.index import Index
from onetool.sources.bundles.model import Bundle, Tool
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


class CatalogueStore(FileStore):
    def __init__(
        self,
        folder: Path,
        built_in: Sequence[tuple[Bundle, Sequence[Tool]]],
        derived: DerivedBundles,
        **options: Any,
    ) -> None:
        super().__init__(folder, built_in, **options)
        self._derived = derived
        self._switched: SwitchedSet | None = None
        self._in_memory: Index | None = None  # of the derived ones
        self._indexed: SwitchedSet | None = None
        self._indexing = Lock()

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
        if (index := self._searchable()) is None:
            return found
        derived = index.search(query, include_disabled, after, limit)
        return list(islice(merge(found, derived, key=lambda hit: hit.rank), limit))

    def derived(self) -> list[tuple[Bundle, Sequence[Tool]]]:
        return list(self._current().by_id.values())

    def are_all_on(self) -> bool:
        return not self._read(Index.switches)

    def close(self) -> None:
        super().close()
        with self._indexing:
            if self._in_memory is not None:
                self._in_memory.close()

    # How it is done

    def _built_in_bundle(self, id: str) -> tuple[Bundle, Sequence[Tool]] | None:
        return super()._built_in_bundle(id) or self._derived.now().by_id.get(id)

    def _current(self) -> SwitchedSet:
        of, switches, known = self._derived.now(), self._read(Index.switches), self._switched
        if known is None or known.of is not of or known.switches != switches:
            known = self._switched = SwitchedSet(of, switches)
        return known

    def _searchable(self) -> Index | None:
        """The index of the derived ones, up to date; None where there are none."""
        now = self._current()
        if not now.by_id:
            return None
        with self._indexing:
            index = self._in_memory = self._in_memory or Index(None)
            if self._indexed is not now:
                with index.changing() as changes:
                    changes.built_in(now.by_id.values())
                self._indexed = now
        return index


def _id(one: Bundle | Tool) -> str:
    return one.id


def _behind(things: list[Thing], after: str | None) -> Iterator[Thing]:
    return islice(things, 0 if after is None else bisect_right(things, after, key=_id), None)
