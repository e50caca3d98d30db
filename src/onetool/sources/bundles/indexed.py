"""`IndexedReads`: the reading half of a store whose bundles are in an index, which the store keeps in step."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from onetool.sources.bundles.index import Index
from onetool.sources.bundles.index.feed import FunctionOf, no_function
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.store import Rank, SearchHit, SeenRevision, ToolChanges

if TYPE_CHECKING:
    from onetool.services.search.postings import Words

T = TypeVar("T")


class IndexedReads(ABC):
    function: FunctionOf = staticmethod(no_function)

    @abstractmethod
    def _read(self, question: Callable[[Index], T]) -> T:
        """Ask the index."""

    # See BundleStore

    def bundle(self, id: str) -> Bundle | None:
        return self._read(lambda index: index.bundle(id))

    def bundles(
        self, ids: Iterable[str] = (), include_disabled: bool = False, after: str | None = None, limit: int = 100
    ) -> list[Bundle]:
        return self._read(lambda index: index.bundles(ids, include_disabled, after, limit))

    def bundles_of(self, ids: Iterable[str]) -> Mapping[str, Bundle]:
        return self._read(lambda index: index.bundles_of(ids))

    def tool(self, bundle_id: str, slug: str, version: str) -> Tool | None:
        return self._read(lambda index: index.tool(bundle_id, slug, version))

    def versions(self, bundle_id: str, slug: str) -> list[Tool]:
        return self._read(lambda index: index.versions(bundle_id, slug))

    def tools(
        self,
        tags: Iterable[str] = (),
        bundle_ids: Iterable[str] = (),
        include_disabled: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Tool]:
        return self._read(lambda index: index.tools(tags, bundle_ids, include_disabled, after, limit))

    def search(
        self, query: str, include_disabled: bool = False, after: Rank | None = None, limit: int = 100
    ) -> list[SearchHit]:
        return self._read(lambda index: index.search(query, include_disabled, after, limit, self.function))

    def searched(self) -> "Words":
        return self._read(lambda index: index.searched(self.function))

    def everything(self) -> tuple[list[Bundle], Iterator[Tool]]:
        return self._read(Index.everything)

    def changes(self, seen: SeenRevision | None) -> ToolChanges:
        return self._read(lambda index: index.changes(seen))

    def built_in_mark(self) -> str:
        return self._read(Index.built_in_mark)

    def state(self) -> int:
        return self._read(Index.state)
