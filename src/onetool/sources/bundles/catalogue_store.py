"""`CatalogueStore` is a folder of bundles together with the bundles that are derived from the catalogue.

Both are listed and searched as one: a page of each is asked for, and they are merged by id or by rank, which depend on
nothing but the row. The derived ones have an index of their own, in memory, which is brought up to date by who asks.
"""

from collections.abc import Iterable, Sequence
from heapq import merge
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from onetool.sources.bundles.derived import DerivedBundles, DerivedSet
from onetool.sources.bundles.files.form import read_switches
from onetool.sources.bundles.files.store import FileStore
from onetool.sources.bundles.index import Index
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.store import Rank, SearchHit


class SwitchedSet(NamedTuple):
    """The derived bundles with their switches, and what they were made of."""

    of: DerivedSet
    switches: str
    bundles: dict[str, tuple[Bundle, Sequence[Tool]]]  # by id


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
        found = self._with_switches().get(id)
        return super().bundle(id) if found is None else found[0]

    def bundles(
        self, ids: Iterable[str] = (), include_disabled: bool = False, after: str | None = None, limit: int = 100
    ) -> list[Bundle]:
        wanted = list(ids)
        found = super().bundles(wanted, include_disabled, after, limit)
        if (index := self._index_of(wanted)) is None:
            return found
        derived = index.bundles(wanted, include_disabled, after, limit)
        return list(islice(merge(found, derived, key=lambda one: one.id), limit))

    def tool(self, bundle_id: str, slug: str, version: str) -> Tool | None:
        found = self._with_switches().get(bundle_id)
        if found is None:
            return super().tool(bundle_id, slug, version)
        return next((one for one in found[1] if (one.slug, one.version) == (slug, version)), None)

    def tools(
        self,
        tags: Iterable[str] = (),
        bundle_ids: Iterable[str] = (),
        include_disabled: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Tool]:
        some, wanted = list(tags), list(bundle_ids)
        found = super().tools(some, wanted, include_disabled, after, limit)
        if (index := self._index_of(wanted)) is None:
            return found
        derived = index.tools(some, wanted, include_disabled, after, limit)
        return list(islice(merge(found, derived, key=lambda one: one.id), limit))

    def search(
        self, query: str, include_disabled: bool = False, after: Rank | None = None, limit: int = 100
    ) -> list[SearchHit]:
        found = super().search(query, include_disabled, after, limit)
        if (index := self._index_of(())) is None:
            return found
        derived = index.search(query, include_disabled, after, limit)
        return list(islice(merge(found, derived, key=lambda hit: hit.rank), limit))

    def derived(self) -> list[tuple[Bundle, Sequence[Tool]]]:
        return list(self._with_switches().values())

    def are_all_on(self) -> bool:
        return not self._ask(Index.switches)

    def close(self) -> None:
        super().close()
        with self._indexing:
            if self._in_memory is not None:
                self._in_memory.close()

    # How it is done

    def _built_in_bundle(self, id: str) -> tuple[Bundle, Sequence[Tool]] | None:
        return super()._built_in_bundle(id) or self._derived.now().by_id.get(id)

    def _with_switches(self) -> dict[str, tuple[Bundle, Sequence[Tool]]]:
        return self._current().bundles

    def _current(self) -> SwitchedSet:
        of, switches, known = self._derived.now(), self._ask(Index.switches), self._switched
        if known is None or known.of is not of or known.switches != switches:
            bundles = read_switches(switches).over(of.bundles) if switches else of.bundles
            known = self._switched = SwitchedSet(of, switches, {one[0].id: one for one in bundles})
        return known

    def _index_of(self, ids: Sequence[str]) -> Index | None:
        """The index of the derived ones, up to date; None where it has nothing of these bundles."""
        now = self._current()
        if not now.bundles or (ids and now.bundles.keys().isdisjoint(ids)):
            return None
        with self._indexing:
            index = self._in_memory = self._in_memory or Index(None)
            if self._indexed is not now:
                with index.changing() as changes:
                    changes.built_in(now.bundles.values())
                self._indexed = now
        return index
