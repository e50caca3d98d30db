"""SearchIndex: finds the tools that match a query, best first.

    words       splits text into words, and stems them
    documents   the searchable fields of a tool
    part        an immutable inverted index, as arrays
    postings    an index of changing tools, made of parts
    lexical     tools named by a query, and scores for shared words (BM25F)
    meaning     the similarity between a query and each tool, by meaning
    blend       combines these into one ranking
    tiers       the ranking of the REST API
    files       arrays in a file

The first search imports numpy.
"""

import logging
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

from onetool.core.registry import NO_PACKS, LazyPacks, as_spec
from onetool.core.spec import ToolSpec
from onetool.core.text import lazy_pattern
from onetool.services.search.words import MAX_QUERY

if TYPE_CHECKING:
    from onetool.services.search.blend import Ranking
    from onetool.services.search.postings import Words

log = logging.getLogger("onetool")
# Requests in the form of a question don't begin so: "can you …", "how do I …".
QUESTION = lazy_pattern(
    r"\s*(?!how (?:to|do|can|could)\b)"
    r"(?:what|which|who|whom|whose|when|where|why|how|is|are|was|were|does|did|has|have)\b",
    re.IGNORECASE,
)
CHANGING = 0.85  # for a question, the factor of tools that change something; 0.8 to 0.9 work as well
FURTHER = 20  # extra results for a question, whose order changes


class SearchIndex:
    """A thread-safe search index of tools, which `update` replaces.

    The integer part of a score is how surely the query names the tool (see `Naming`); the fraction is how well the text
    matches. Tools with equal scores keep their given order.
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
        """Index these tools. `kept` has the words of lazy tools.

        With `background`, only words are searched until a thread has loaded the meanings; otherwise a query waits for
        them. `vectors` is the cache file for meanings.
        """
        self.vectors = vectors
        self._background = background
        self._ranking: Ranking | None = None
        self._lock = RLock()
        self.update(specs, lazy, kept)

    def update(self, specs: Iterable[ToolSpec], lazy: LazyPacks = NO_PACKS, kept: "Words | None" = None) -> None:
        """Replace the tools. The next query indexes the new ones."""
        with self._lock:
            self._given, self._is_read = ([*specs], lazy, kept), False

    def load_meanings(self) -> None:
        """Start loading meanings in a thread."""
        if (ranking := self._current()) is not None:
            ranking.meanings.load()

    def search(
        self, query: str, limit: int = 5, allowed: Collection[str] | None = None
    ) -> list[tuple[ToolSpec, float]]:
        """Return the best tools and their scores. An allow-list limits the search to tools with these names."""
        if limit < 1:
            return []
        is_question = QUESTION.match(query) is not None
        with self._lock:
            ranking = self._current()
            if ranking is None:
                return self._containing(query.strip().lower(), limit, allowed)
            found = ranking.search(query[:MAX_QUERY], limit + FURTHER if is_question else limit, allowed)
        specs = [(as_spec(tool), score) for tool, score in found]
        if is_question:  # prefers tools that read, unless the query names another one
            specs = [(one, score * CHANGING if one.read_only is False and score < 1 else score) for one, score in specs]
            specs.sort(key=lambda one: -one[1])
        return specs[:limit]

    def _current(self) -> "Ranking | None":
        """Return the up-to-date ranking. If numpy can't be imported, log this and return None."""
        with self._lock:
            try:
                from onetool.services.search.blend import Ranking
                from onetool.services.search.postings import Words
            except (ImportError, RuntimeError) as error:  # numpy raises RuntimeError on old processors
                log.warning("Search only finds names and descriptions, because numpy can't be imported: %s", error)
                return None
            if self._ranking is None:
                self._ranking = Ranking(background=self._background, vectors=self.vectors)
            if not self._is_read:
                specs, lazy, kept = self._given
                self._ranking.update(specs, lazy, Words() if kept is None else kept)
                self._is_read = True
            return self._ranking

    def _containing(self, text: str, limit: int, allowed: Collection[str] | None) -> list[tuple[ToolSpec, float]]:
        """Return the tools whose name or description contains the whole query."""
        specs, lazy, _ = self._given
        every = [*specs, *(tool.spec() for pack in lazy.values() for tool in pack.values() if tool.enabled)]
        visible = (spec for spec in every if not spec.hidden and (allowed is None or spec.name in allowed))
        found = (spec for spec in visible if text and text in f"{spec.name}\n{spec.description}".lower())
        return [(spec, 0.5) for spec in found][:limit]
