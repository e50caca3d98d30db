"""How well the words of a query fit the words of each tool."""

from collections.abc import Iterable, Iterator, Sequence

from onetool.core.spec import ToolSpec
from onetool.services.search.postings import postings
from onetool.services.search.query import Asked
from onetool.services.search.stems import stem
from onetool.services.search.texts import texts
from onetool.services.search.vocabulary import Vocabulary
from onetool.services.search.words import Group

# What a word of a tool counts when it is not the word of the query, but
BEGUN = 0.5  # one that the query only begins
GUESSED = 0.5  # one that the query may have mistyped
BESIDES = 0.3  # a part of it, or a longer one, though the tools have the word itself
TIPPING = 0.05  # an everyday one: it finds nothing, but `get info` is rather get_info than set_info

SHORTEST_BEGUN = 3  # letters; the last word of a query may have fewer, it is still being typed
MOST_GUESSES = 4  # words: a guess is slow, and nobody mistypes all of a long query

Meaning = tuple[set[str], float]
"""Stems, any of which will do, and what finding one counts."""


class Lexical:
    """Immutable. Tools go by their position."""

    def __init__(self, specs: Sequence[ToolSpec]) -> None:
        tools = [texts(spec) for spec in specs]
        words = {word for tool in tools for field in tool for word in field}
        self._stems = {word: stem(word) for word in words}
        self._postings = postings(tools, self._stems)
        self._vocabulary = Vocabulary(words)

    def scores(self, asked: Asked) -> dict[int, float]:
        """Tool -> a positive number. Tools that share nothing with the query are left out."""
        scores = self._summed(self._meant(asked.telling)) or self._summed(self._guessed(asked.telling))
        for word, *_ in asked.everyday:
            for tool, weight in self._best(self._stems_of([word])):
                if tool in scores:
                    scores[tool] += TIPPING * weight
        return scores

    def _summed(self, meanings: Iterable[Meaning]) -> dict[int, float]:
        scores: dict[int, float] = {}
        for stems, factor in meanings:
            for tool, weight in self._best(stems):
                scores[tool] = scores.get(tool, 0.0) + factor * weight
        return scores

    def _meant(self, telling: Sequence[Group]) -> Iterator[Meaning]:
        for position, group in enumerate(telling, start=1):
            yield from self._meanings(group, last=position == len(telling))

    def _guessed(self, telling: Sequence[Group]) -> Iterator[Meaning]:
        """The last resort, when not one word was understood."""
        for word, *_ in telling[:MOST_GUESSES]:
            yield self._stems_of(self._vocabulary.less_close(word)), GUESSED

    def _meanings(self, group: Group, last: bool) -> Iterator[Meaning]:
        word, *parts = group
        if stem(word) not in self._postings:
            yield from self._parts(parts, last) if parts else self._supposed(word, last)
            return
        yield {stem(word)}, 1.0
        for part in parts:
            yield self._stems_of([part]), BESIDES
        if last:  # somebody may still be typing it
            yield self._stems_of(self._vocabulary.begun(word)) - {stem(word)}, BESIDES

    def _parts(self, parts: Iterable[str], last: bool) -> Iterator[Meaning]:
        for part in parts:
            yield from self._meanings((part,), last)

    def _supposed(self, word: str, last: bool) -> Iterator[Meaning]:
        """No tool has this word: take it as the start of one, else as a mistyped one."""
        if (last or len(word) >= SHORTEST_BEGUN) and (begun := self._vocabulary.begun(word)):
            yield self._stems_of(begun), BEGUN
        else:
            yield self._stems_of(self._vocabulary.close(word)), GUESSED

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
