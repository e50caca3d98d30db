"""SearchIndex: finds the tools that fit a query, best first.

A query that names a tool finds it whatever its text says. All other queries are ranked by BM25F: a word counts more in
a name than in a description, less in a long text, each further time a little less, and more the fewer tools have it.
Where numpy is installed, that is blended with how near a tool's meaning is: see `meaning` and `blend`.
"""

import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from math import log
from typing import NamedTuple

from onetool.core.spec import ToolSpec
from onetool.services.search.blend import blended
from onetool.services.search.meaning import ToolMeanings, is_installed
from onetool.services.search.words import (
    Group,
    QueryWords,
    ToolTexts,
    Vocabulary,
    name_key,
    query_words,
    split_words,
    stem,
    tool_texts,
)

ToolPositions = frozenset[int]
NO_TOOLS: ToolPositions = frozenset()

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


class NameIndex:
    """Immutable. Tools go by their position."""

    def __init__(self, names: Sequence[str]) -> None:
        self._exact = _by(names, lambda name: [name])
        self._spelled = _by(names, lambda name: [name_key(name)])
        self._parts = _by(names, lambda name: map(name_key, _BETWEEN_PARTS.split(name)))
        self._words = _by(names, split_words)
        self._stems = _by(names, lambda name: map(stem, split_words(name)))
        self._sorted = sorted(self._words)

    def named(self, query: str, telling: Sequence[Group]) -> dict[int, Naming]:
        """Tool -> the surest way in which the query names it. Tools that it does not name are left out."""
        spelled = name_key(query)
        ways = (
            (Naming.BEGUN, self._with_all(telling, last=self._with_prefix)),
            (Naming.WORDS, self._with_all(telling, last=self._with)),
            (Naming.PART, self._parts.get(spelled, NO_TOOLS)),
            (Naming.MENTIONED, self._mentioned(query)),
            (Naming.SPELLED, self._spelled.get(spelled, NO_TOOLS)),
            (Naming.EXACT, self._exact.get(query.strip(), NO_TOOLS)),
        )
        return {tool: way for way, tools in ways for tool in tools}

    def _with_all(self, words: Sequence[Group], last: Callable[[Group], ToolPositions]) -> ToolPositions:
        if not words:
            return NO_TOOLS
        tools = last(words[-1])
        for group in words[:-1]:
            if not tools:
                break
            tools = tools & self._with(group)
        return tools

    def _with(self, group: Group) -> ToolPositions:
        word, *parts = group
        return self._stems.get(stem(word)) or self._with_all([(part,) for part in parts], last=self._with)

    def _with_prefix(self, group: Group) -> ToolPositions:
        start = group[0]
        first, last = bisect_left(self._sorted, start), bisect_left(self._sorted, start + "\U0010ffff")
        return NO_TOOLS.union(*(self._words[word] for word in self._sorted[first:last]))

    def _mentioned(self, query: str) -> ToolPositions:
        """A name of one plain word may be just that word, so only longer ones count."""
        names = (name.strip(_AROUND) for name in query.split())
        return NO_TOOLS.union(
            *(self._exact[name] for name in names if name in self._exact and len(split_words(name)) > 1)
        )


def _by(names: Sequence[str], keys: Callable[[str], Iterable[str]]) -> dict[str, ToolPositions]:
    """Key -> the tools whose names have it."""
    tools: dict[str, set[int]] = {}
    for tool, name in enumerate(names):
        for found in filter(None, keys(name)):
            tools.setdefault(found, set()).add(tool)
    return {found: frozenset(having) for found, having in tools.items()}


# BM25F weights, computed once per catalogue


SATURATION = 1.0


class SearchField(NamedTuple):
    weight: float
    evening: float  # 0: its length does not matter; 1: only the share of the text counts


# In the order of `texts`. Parameters are many and alike (`path`, `limit`): they hint, they do not decide.
FIELDS = (SearchField(2.0, 0.3), SearchField(1.0, 0.5), SearchField(0.3, 0.7), SearchField(2.0, 0.3))


class Posting(NamedTuple):
    """The tools that have one word, in their order, and what the word says for each."""

    tools: "array[int]"
    weights: "array[float]"


def postings(tools: Sequence[ToolTexts], stems: Mapping[str, str]) -> dict[str, Posting]:
    """Stem -> its posting."""
    counted = _counted(tools, stems)
    return {stem: _posting(counts, len(tools)) for stem, counts in counted.items()}


def _counted(tools: Sequence[ToolTexts], stems: Mapping[str, str]) -> dict[str, dict[int, float]]:
    """Stem -> tool -> how often, each time weighed by where it stands."""
    usual = [_usual_length(words) for words in zip(*tools, strict=True)]
    counted: dict[str, dict[int, float]] = {}
    for tool, fields in enumerate(tools):
        for words, field, length in zip(fields, FIELDS, usual, strict=True):
            worth = field.weight / (1 - field.evening + field.evening * len(words) / length)
            for word in words:
                counts = counted.setdefault(stems[word], {})
                counts[tool] = counts.get(tool, 0.0) + worth
    return counted


def _usual_length(texts: Iterable[Sequence[str]]) -> float:
    lengths = [len(words) for words in texts if words]
    return sum(lengths) / len(lengths) if lengths else 1.0


def _posting(counts: Mapping[int, float], tools: int) -> Posting:
    rarity = log(1 + (tools - len(counts) + 0.5) / (len(counts) + 0.5))
    weights = (rarity * count / (SATURATION + count) for count in counts.values())
    return Posting(array("L", counts), array("d", weights))


# Scores of words


# What a word of a tool counts when it is not the word of the query, but
PREFIX_WEIGHT = 0.5  # one that the query only begins
GUESS_WEIGHT = 0.5  # one that the query may have mistyped
EVERYDAY_WEIGHT = 0.3  # a part of it, or a longer one, though the tools have the word itself
TIE_WEIGHT = 0.05  # an everyday one: it finds nothing, but `get info` is rather get_info than set_info

SHORTEST_PREFIX = 3  # letters; the last word of a query may have fewer, it is still being typed
MOST_GUESSES = 4  # words: a guess is slow, and nobody mistypes all of a long query

Meaning = tuple[set[str], float]
"""Stems, any of which will do, and what finding one counts."""


class LexicalIndex:
    """Immutable. Tools go by their position."""

    def __init__(self, specs: Sequence[ToolSpec]) -> None:
        tools = [tool_texts(spec) for spec in specs]
        words = {word for tool in tools for field in tool for word in field}
        self._stems = {word: stem(word) for word in words}
        self._postings = postings(tools, self._stems)
        self._vocabulary = Vocabulary(words)

    def scores(self, asked: QueryWords) -> dict[int, float]:
        """Tool -> a positive number. Tools that share nothing with the query are left out."""
        scores = self._summed(self._known(asked.telling)) or self._summed(self._fuzzy(asked.telling))
        for word, *_ in asked.everyday:
            for tool, weight in self._best(self._stems_of([word])):
                if tool in scores:
                    scores[tool] += TIE_WEIGHT * weight
        return scores

    def _summed(self, meanings: Iterable[Meaning]) -> dict[int, float]:
        scores: dict[int, float] = {}
        for stems, factor in meanings:
            for tool, weight in self._best(stems):
                scores[tool] = scores.get(tool, 0.0) + factor * weight
        return scores

    def _known(self, telling: Sequence[Group]) -> Iterator[Meaning]:
        for position, group in enumerate(telling, start=1):
            yield from self._meanings(group, last=position == len(telling))

    def _fuzzy(self, telling: Sequence[Group]) -> Iterator[Meaning]:
        """Matches with the first letter open, too, when no word was understood."""
        for word, *_ in telling[:MOST_GUESSES]:
            yield self._stems_of(self._vocabulary.close_with_any_start(word)), GUESS_WEIGHT

    def _meanings(self, group: Group, last: bool) -> Iterator[Meaning]:
        word, *parts = group
        if stem(word) not in self._postings:
            yield from self._parts(parts, last) if parts else self._completed(word, last)
            return
        yield {stem(word)}, 1.0
        for part in parts:
            yield self._stems_of([part]), EVERYDAY_WEIGHT
        if last:  # somebody may still be typing it
            yield self._stems_of(self._vocabulary.with_prefix(word)) - {stem(word)}, EVERYDAY_WEIGHT

    def _parts(self, parts: Iterable[str], last: bool) -> Iterator[Meaning]:
        for part in parts:
            yield from self._meanings((part,), last)

    def _completed(self, word: str, last: bool) -> Iterator[Meaning]:
        """No tool has this word: take it as the start of one, else as a mistyped one."""
        if (last or len(word) >= SHORTEST_PREFIX) and (begun := self._vocabulary.with_prefix(word)):
            yield self._stems_of(begun), PREFIX_WEIGHT
        else:
            yield self._stems_of(self._vocabulary.close(word)), GUESS_WEIGHT

    def _stems_of(self, words: Iterable[str]) -> set[str]:
        return {self._stems[word] for word in words if word in self._stems}

    def _best(self, stems: set[str]) -> Iterable[tuple[int, float]]:
        """Tools that have any of these words, each with what the most telling one says for it."""
        found = [zip(*self._postings[stem], strict=True) for stem in stems]
        if len(found) == 1:
            return found[0]
        best: dict[int, float] = {}
        for posting in found:
            for tool, weight in posting:
                best[tool] = max(weight, best.get(tool, 0.0))
        return best.items()


# The index


LONGEST_QUERY = 10_000  # characters of a query: a pasted document must not cost more than a question


class SearchIndex:
    """Built once over a list of tools, then only read: any number of threads may share one.

    A score is a whole number, how surely the query names the tool (see `Naming`), and a fraction, how well the text
    fits. Tools that score the same stay in the order in which they were given.
    """

    def __init__(self, specs: Iterable[ToolSpec], *, background: bool = False) -> None:
        """With `background`, words answer alone until a thread has loaded the meanings; otherwise a query waits."""
        self._specs = tuple(spec for spec in specs if not spec.hidden)
        self._names = NameIndex([spec.name for spec in self._specs])
        self._lexical = LexicalIndex(self._specs)
        self._meanings = ToolMeanings(background=background) if is_installed() else None
        if self._meanings is not None:
            for slot, spec in enumerate(self._specs):
                self._meanings.set(slot, spec)

    def load_meanings(self) -> None:
        """Begin to load them, in a thread."""
        if self._meanings is not None:
            self._meanings.load()

    def search(self, query: str, limit: int = 5) -> list[tuple[ToolSpec, float]]:
        if limit < 1:
            return []
        scores = self._scores(query[:LONGEST_QUERY])
        return [(self._specs[tool], score) for tool, score in _best(scores, limit)]

    def _scores(self, query: str) -> dict[int, float]:
        words = query_words(query)
        meanings = None if self._meanings is None else self._meanings.similarities(query)
        scores = blended(self._lexical.scores(words), meanings)
        for tool, naming in self._names.named(query, words.telling).items():
            scores[tool] = naming + scores.get(tool, 0.0)
        return scores


def _best(scores: dict[int, float], limit: int) -> list[tuple[int, float]]:
    if len(scores) > limit:  # comparing bare numbers first is much quicker than sorting pairs
        least = sorted(scores.values(), reverse=True)[limit - 1]
        scores = {tool: score for tool, score in scores.items() if score >= least}
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:limit]


__all__ = ["SearchIndex"]
