"""`Ranking`: combines names, words and meanings into one order.

A tool's score is the similarity of its meaning to the query's, plus a small amount for each BM25F point of its words.
The weights don't depend on the query, since BM25F already gives rare words much more weight than common words. So rare
words that a query shares with a tool decide the order; without shared words, the meaning decides. A query that names a
tool finds it whatever its text says: see `Naming`.
"""

from collections.abc import Collection, Iterable
from itertools import count
from pathlib import Path

import numpy as np

from onetool.core.principal import AllowList
from onetool.core.registry import NO_PACKS, LazyPacks, LazyTool, as_spec
from onetool.core.spec import ToolSpec
from onetool.services.search.documents import tool_document
from onetool.services.search.lexical import naming, scores
from onetool.services.search.meaning import Similarities, ToolMeanings
from onetool.services.search.postings import WordIndex, Words, smallest
from onetool.services.search.words import query_words

WORD_POINT = 0.03  # of a BM25F point, next to similarities of about 0.2 to 1; 0.02 to 0.05 work as well
MIN_NEAR = 0.25  # similarity of a tool without shared words; lower values are noise
FAIR_WORDS, FAIR_BLEND = 5.0, 0.6  # the score of a fair match, which maps to one half

MAX_ALLOWED = 16  # allow-lists with a cached mask


def fits(words: np.ndarray, meanings: Similarities | None) -> np.ndarray:
    """Return how well each tool matches, from 0 (not at all) to less than 1."""
    if meanings is None:
        return words / (words + FAIR_WORDS)
    found = words > 0
    if meanings.may_find:
        found |= meanings.near >= MIN_NEAR
    totals = np.maximum(meanings.near, 0.0, dtype=np.float64)
    totals += WORD_POINT * words
    totals *= found
    totals /= totals + FAIR_BLEND
    return totals


class Ranking:
    """A ranking of tools. Only one thread at a time may use it.

    Each tool has a key: lazy tools their id in their store, other tools a number.
    """

    def __init__(self, *, background: bool, vectors: Path | None) -> None:
        self.meanings = ToolMeanings(background=background, cache=vectors)
        self._index = WordIndex()  # of tools without words in a store
        self._own: dict[str, ToolSpec | LazyTool] = {}  # the same tools, in their given order
        self._lazy: dict[str, LazyTool] = {}
        self._packs: LazyPacks = NO_PACKS
        self._numbers = count()
        self.update((), NO_PACKS, Words())

    def update(self, specs: Iterable[ToolSpec], packs: LazyPacks, kept: Words) -> None:
        """Replace the tools. `kept` has the words of lazy tools; tools missing there are indexed here."""
        self._follow(packs)
        there = np.fromiter(map(self._lazy.__contains__, kept.keys), bool, kept.size) & kept.alive
        unknown = list[LazyTool]()
        if np.count_nonzero(there) < len(self._lazy):
            known = {kept.keys[slot] for slot in np.flatnonzero(there).tolist()}
            unknown = [self._lazy[key] for key in sorted(self._lazy.keys() - known)]
        self._set_own([*(spec for spec in specs if not spec.hidden), *unknown])
        own = self._index.current()
        places = self._places()
        self._words = own.joined(kept)
        self._order = np.concatenate([[places.get(key, 0) for key in own.keys], kept.by_group / (kept.size + 1)])
        self._there = np.concatenate([own.alive, there])
        self._allowed: dict[int, tuple[AllowList, np.ndarray]] = {}  # by id

    def _places(self) -> dict[str, int]:
        """Return the order of tools with equal scores: pack by pack, MCP servers last.

        Tools of the store have places between 0 and 1: after local tools and before those of servers.
        """
        packs: dict[tuple[bool, str], list[str]] = {}
        for key, tool in self._own.items():
            is_served = isinstance(tool, ToolSpec) and tool.source != "local"
            packs.setdefault((is_served, tool.pack), []).append(key)
        local = [key for (is_served, _), keys in packs.items() if not is_served for key in keys]
        served = [key for (is_served, _), keys in packs.items() if is_served for key in keys]
        return {key: place - len(local) for place, key in enumerate(local)} | {
            key: place for place, key in enumerate(served, 1)
        }

    def _follow(self, packs: LazyPacks) -> None:
        """Update the lazy tools. Skip packs whose mapping is the same object as before."""
        before, self._packs = self._packs, packs
        changed = [pack for pack in before.keys() | packs.keys() if before.get(pack) is not packs.get(pack)]
        gone = {tool.kept_as: tool for pack in changed for tool in before.get(pack, {}).values()}
        new = {tool.kept_as: tool for pack in changed for tool in packs.get(pack, {}).values() if tool.enabled}
        for key in gone.keys() - new.keys():
            if self._lazy.pop(key, None) is not None:
                self.meanings.set(key, None)
        for key, tool in new.items():
            if self._lazy.get(key) is not tool:
                self._lazy[key] = tool
                self.meanings.set(key, tool)

    def _set_own(self, tools: list[ToolSpec | LazyTool]) -> None:
        """Index the new tools. A tool may occur several times."""
        known: dict[int, list[str]] = {}
        for key, tool in self._own.items():
            known.setdefault(id(tool), []).append(key)
        before, self._own = self._own, {}
        for tool in tools:
            if keys := known.get(id(tool)):
                self._own[keys.pop()] = tool
                continue
            spec, key = as_spec(tool), f"#{next(self._numbers)}" if isinstance(tool, ToolSpec) else tool.kept_as
            self._own[key] = tool
            self._index.put(key, tool_document(spec.name, spec.description, spec.input_schema, spec.tags))
            self.meanings.set(key, tool)
        for key in before.keys() - self._own.keys():
            self._index.drop(key)
            if key not in self._lazy:
                self.meanings.set(key, None)

    def search(
        self, query: str, limit: int, allowed: Collection[str] | None
    ) -> list[tuple[ToolSpec | LazyTool, float]]:
        words, asked = self._words, query_words(query)
        meanings = self.meanings.similarities(query, words.keys)
        values = naming(words, self._name, query, asked.keywords) + fits(scores(words, asked), meanings)
        there = self._there if allowed is None else self._there & self._mask(allowed)
        found = np.flatnonzero(there & (values > 0))
        chosen = found[smallest(-values[found], self._order[found], limit)].tolist()
        return [(self._tool(slot), float(values[slot])) for slot in chosen]

    def _tool(self, slot: int) -> ToolSpec | LazyTool:
        key = self._words.keys[slot]
        return self._own.get(key) or self._lazy[key]

    def _name(self, slot: int) -> str:
        return self._tool(slot).name if self._there[slot] else ""

    def _mask(self, allowed: Collection[str]) -> np.ndarray:
        """Return a mask of the allowed tools. The mask of an immutable `AllowList` is cached until tools change."""
        if (known := self._allowed.get(id(allowed))) is not None:
            return known[1]
        names = allowed if isinstance(allowed, AllowList) else {*allowed}
        found = np.fromiter((self._name(slot) in names for slot in range(self._words.size)), bool, self._words.size)
        if isinstance(allowed, AllowList):
            if len(self._allowed) >= MAX_ALLOWED:
                self._allowed = {}
            self._allowed[id(allowed)] = allowed, found
        return found
