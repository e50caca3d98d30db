"""SearchIndex: finds the tools that fit a query, best first.

    words       splits texts into words, and stems them
    documents   what is known of a tool, field by field
    part        which terms stand in which tools, as arrays
    postings    the parts of tools that come and go
    lexical     which tools a query names, and which share its words (BM25F)
    meaning     how near the meaning of a tool is to that of a query
    blend       makes one order of these
    tiers       the order of the REST API
    files       arrays in a file

numpy is imported when somebody first searches.
"""

import logging
from collections.abc import Collection, Iterable
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

from onetool.core.registry import NO_PACKS, LazyPacks, as_spec
from onetool.core.spec import ToolSpec
from onetool.services.search.words import MAX_QUERY

if TYPE_CHECKING:
    from onetool.services.search.blend import Ranking
    from onetool.services.search.postings import Words

log = logging.getLogger("onetool")


class SearchIndex:
    """Finds tools. They come and go by `update`; any number of threads may share one.

    A score is a whole number, how surely the query names the tool (see `Naming`), and a fraction, how well the text
    fits. Tools that score the same stay in the order in which they were given.
    """

    def __init__(
        self,
        specs: Iterable[ToolSpec],
        lazy: LazyPacks = NO_PACKS,
        kept: "Words | None" = None,
        *,
        background: bool = False,
        vectors: Path | None = None,
    ) -> None:
        """`kept` has the words of lazy tools. With `background`, words answer alone until a thread has loaded the
        meanings; otherwise a query waits for them. `vectors` is the file that meanings are ready from.
        """
        self.vectors = vectors
        self._background = background
        self._ranking: Ranking | None = None
        self._lock = RLock()
        self.update(specs, lazy, kept)

    def update(self, specs: Iterable[ToolSpec], lazy: LazyPacks = NO_PACKS, kept: "Words | None" = None) -> None:
        """Search these tools from now on. The next query reads those that are new."""
        with self._lock:
            self._given, self._is_read = ([*specs], lazy, kept), False

    def load_meanings(self) -> None:
        """Begin to load them, in a thread."""
        if (ranking := self._current()) is not None:
            ranking.meanings.load()

    def search(
        self, query: str, limit: int = 5, allowed: Collection[str] | None = None
    ) -> list[tuple[ToolSpec, float]]:
        """Return the best tools, with their scores. With an allow-list, only tools of these names are looked at."""
        if limit < 1:
            return []
        with self._lock:
            ranking = self._current()
            if ranking is None:
                return self._containing(query.strip().lower(), limit, allowed)
            found = ranking.search(query[:MAX_QUERY], limit, allowed)
        return [(as_spec(tool), score) for tool, score in found]

    def _current(self) -> "Ranking | None":
        """Return the ranking of the tools, or None, logged, where numpy can't be imported."""
        with self._lock:
            try:
                from onetool.services.search.blend import Ranking
                from onetool.services.search.postings import Words
            except (ImportError, RuntimeError) as error:  # numpy refuses old processors by RuntimeError
                log.warning("Search only finds names and descriptions: numpy can't be imported: %s", error)
                return None
            if self._ranking is None:
                self._ranking = Ranking(background=self._background, vectors=self.vectors)
            if not self._is_read:
                specs, lazy, kept = self._given
                self._ranking.update(specs, lazy, Words() if kept is None else kept)
                self._is_read = True
            return self._ranking

    def _containing(self, text: str, limit: int, allowed: Collection[str] | None) -> list[tuple[ToolSpec, float]]:
        """Return the tools that have the whole query in their name or description."""
        specs, lazy, _ = self._given
        every = [*specs, *(tool.spec() for pack in lazy.values() for tool in pack.values() if tool.enabled)]
        shown = (spec for spec in every if not spec.hidden and (allowed is None or spec.name in allowed))
        found = (spec for spec in shown if text and text in f"{spec.name}\n{spec.description}".lower())
        return [(spec, 0.5) for spec in found][:limit]


__all__ = ["SearchIndex"]
