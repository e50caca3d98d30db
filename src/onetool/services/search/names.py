"""Whether a query names a tool: whoever knows the name must not depend on how well the text fits."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum

from onetool.services.search.stems import stem
from onetool.services.search.words import Group, key, words

Tools = frozenset[int]
NONE: Tools = frozenset()

_BETWEEN_PARTS = re.compile(r"[./:@]")
_AROUND = "\"'`()[]{}<>,;:.!?"


class Naming(IntEnum):
    """The ways to name a tool, the surest last."""

    BEGUN = 1  # the words of the query are in the name, the last one not finished
    WORDS = 2  # the words of the query are in the name
    PART = 3  # it is the pack, or the name without the pack
    MENTIONED = 4  # the name stands in a sentence
    SPELLED = 5  # it is the name, but for case and signs
    EXACT = 6


class Names:
    """Immutable. Tools go by their position."""

    def __init__(self, names: Sequence[str]) -> None:
        self._exact = _by(names, lambda name: [name])
        self._spelled = _by(names, lambda name: [key(name)])
        self._parts = _by(names, lambda name: map(key, _BETWEEN_PARTS.split(name)))
        self._words = _by(names, words)
        self._stems = _by(names, lambda name: map(stem, words(name)))
        self._sorted = sorted(self._words)

    def named(self, query: str, telling: Sequence[Group]) -> dict[int, Naming]:
        """Tool -> the surest way in which the query names it. Tools that it does not name are left out."""
        spelled = key(query)
        ways = (
            (Naming.BEGUN, self._with_all(telling, last=self._with_begun)),
            (Naming.WORDS, self._with_all(telling, last=self._with)),
            (Naming.PART, self._parts.get(spelled, NONE)),
            (Naming.MENTIONED, self._mentioned(query)),
            (Naming.SPELLED, self._spelled.get(spelled, NONE)),
            (Naming.EXACT, self._exact.get(query.strip(), NONE)),
        )
        return {tool: way for way, tools in ways for tool in tools}

    def _with_all(self, words: Sequence[Group], last: Callable[[Group], Tools]) -> Tools:
        if not words:
            return NONE
        tools = last(words[-1])
        for group in words[:-1]:
            if not tools:
                break
            tools = tools & self._with(group)
        return tools

    def _with(self, group: Group) -> Tools:
        word, *parts = group
        return self._stems.get(stem(word)) or self._with_all([(part,) for part in parts], last=self._with)

    def _with_begun(self, group: Group) -> Tools:
        start = group[0]
        first, last = bisect_left(self._sorted, start), bisect_left(self._sorted, start + "\U0010ffff")
        return NONE.union(*(self._words[word] for word in self._sorted[first:last]))

    def _mentioned(self, query: str) -> Tools:
        """A name of one plain word may be just that word, so only longer ones count."""
        names = (name.strip(_AROUND) for name in query.split())
        return NONE.union(*(self._exact[name] for name in names if name in self._exact and len(words(name)) > 1))


def _by(names: Sequence[str], keys: Callable[[str], Iterable[str]]) -> dict[str, Tools]:
    """Key -> the tools whose names have it."""
    tools: dict[str, set[int]] = {}
    for tool, name in enumerate(names):
        for found in filter(None, keys(name)):
            tools.setdefault(found, set()).add(tool)
    return {found: frozenset(having) for found, having in tools.items()}
