"""Which tools a query names, and which share its words (BM25F). Both are about the words of one `WordIndex`."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from enum import IntEnum
from heapq import nsmallest
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from onetool.services.search.blend import summed
from onetool.services.search.documents import NAMES, Said
from onetool.services.search.postings import NO_TOOLS, WordIndex
from onetool.services.search.words import Group, QueryWords, name_key, split_words, stem

if TYPE_CHECKING:
    from onetool.services.search.meaning import Doubles

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
    """Which tools a query names. Tools go by their slots."""

    def __init__(self, words: WordIndex) -> None:
        self._words = words

    def named(self, query: str, telling: Sequence[Group]) -> Iterator[tuple[Naming, Collection[int]]]:
        """The ways in which the query may name tools, the surest first, and the tools that each of them names."""
        spelled, text = name_key(query), query.strip()
        yield Naming.EXACT, self._exact(text)
        yield Naming.SPELLED, self._words.spelled.get(spelled) if spelled else ()
        yield Naming.MENTIONED, self._mentioned(query)
        yield Naming.PART, self._words.parts.get(spelled)
        yield Naming.WORDS, self._with_all(telling, last=self._with)
        yield Naming.BEGUN, self._with_all(telling, last=self._with_prefix)

    def _with_all(self, words: Sequence[Group], last: Callable[[Group], Set[int]]) -> Set[int]:
        if not words:
            return NO_TOOLS
        tools = last(words[-1])
        for group in words[:-1]:
            if not tools:
                break
            tools = tools & self._with(group)
        return tools

    def _with(self, group: Group) -> Set[int]:
        word, *parts = group
        named = self._words.having(self._words.forms(stem(word)), NAMES)
        return named or self._with_all([(part,) for part in parts], last=self._with)

    def _with_prefix(self, group: Group) -> Set[int]:
        return self._words.having_begun(group[0], NAMES)

    def _exact(self, name: str) -> list[int]:
        found = self._words.spelled.get(name_key(name) or name)
        return [tool for tool in found if self._words.name(tool) == name]

    def _mentioned(self, query: str) -> set[int]:
        """A name of one plain word may be just that word, so only longer ones count."""
        names = (name.strip(_AROUND) for name in query.split())
        return {tool for name in names if len(split_words(name)) > 1 for tool in self._exact(name)}


# Scores of words


# What a word of a tool counts when it is not the word of the query, but
PREFIX_WEIGHT = 0.5  # one that the query only begins
GUESS_WEIGHT = 0.5  # one that the query may have mistyped
EVERYDAY_WEIGHT = 0.3  # a part of it, or a longer one, though the tools have the word itself
TIE_WEIGHT = 0.05  # an everyday one: it finds nothing, but `get info` is rather get_info than set_info

MOST_TERMS = 64  # of a query: words, their parts and what they begin
SHORTEST_PREFIX = 3  # letters; the last word of a query may have fewer, it is still being typed
MOST_GUESSES = 4  # words: a guess is slow, and nobody mistypes all of a long query

COMMON = 2_000  # tools that have a word: going through all of them takes longer than finding out who matters
DENSE = 50  # one of so many tools: see `ToolOrder`

QueryTerm = tuple[set[str], float]
"""Stems, any of which will do, and what finding one counts."""


class ToolOrder(NamedTuple):
    """In which order tools stand that fit alike."""

    slots: Sequence[int]  # all of them, in that order
    there: Set[int]  # those that count
    key: Callable[[int], tuple[int, int, str]]

    def first(self, tools: Set[int], most: int) -> Iterable[int]:
        if len(tools) * DENSE > len(self.slots):  # then some stand near the beginning
            return islice((tool for tool in self.slots if tool in tools and tool in self.there), most)
        return nsmallest(most, tools & self.there, key=self.key)


class Wanted(NamedTuple):
    """What a search is about to use of the scores: so many of the best in this order, and some tools in any case."""

    most: int
    order: ToolOrder
    also: Set[int]
    everyday: Sequence[Said] = ()  # words of the query that may lift a tool above its equals

    def first_of(self, said: Said) -> set[int]:
        found = set[int]()
        for tools in said.by_weight:
            found.update(self.order.first(tools, self.most - len(found)))
            if len(found) >= self.most:
                break
        return found


class LexicalIndex:
    """BM25F over the words. Tools go by their slots."""

    def __init__(self, words: WordIndex) -> None:
        self._words = words

    def scores(self, asked: QueryWords, wanted: Wanted | None = None) -> dict[int, float]:
        """Tool -> a positive number. Tools that share nothing with the query are left out.

        With `wanted`, those may be left out, too, that are neither among the best nor asked for.
        """
        everyday = list(self._everyday(asked))
        if wanted is not None:
            wanted = wanted._replace(everyday=[said for said, _ in everyday])
        scores = self._summed(self._known(asked.telling), wanted) or self._summed(self._fuzzy(asked.telling), wanted)
        for one, times in everyday:
            for tool in scores.keys() & one.by_slot.keys():
                scores[tool] += times * one.by_slot[tool]
        return scores

    def all_scores(self, asked: QueryWords) -> "Doubles":
        """The same of all tools, by slot, for numpy; 0 of those that share nothing with the query."""
        size, everyday = self._words.slots, list(self._everyday(asked))
        scores = summed(map(self._parts_of, self._known(asked.telling)), everyday, size)
        return scores if scores.any() else summed(map(self._parts_of, self._fuzzy(asked.telling)), everyday, size)

    def _parts_of(self, term: QueryTerm) -> list[tuple[Said, float]]:
        stems, factor = term
        return [(self._words.said(one), factor * self._words.rarity(one)) for one in stems]

    def _everyday(self, asked: QueryWords) -> Iterator[tuple[Said, float]]:
        for word, *_ in asked.everyday:
            for one in self._stems_of([word]):
                yield self._words.said(one), TIE_WEIGHT * self._words.rarity(one)

    def _summed(self, terms: Iterable[QueryTerm], wanted: Wanted | None) -> dict[int, float]:
        scores: dict[int, float] = {}
        common: list[tuple[Said, float]] = []
        for stems, factor in terms:
            if wanted is not None and len(stems) == 1 and len(self._words.said(*stems).slots) > COMMON:
                common.append((self._words.said(*stems), factor * self._words.rarity(*stems)))
                continue
            best = self._best(stems, factor)
            both = scores.keys() & best.keys()  # most tools have one of the words: theirs are taken over at once
            sums = {tool: scores[tool] + best[tool] for tool in both}
            scores |= best
            scores |= sums
        if wanted is not None:
            _add_common(scores, common, wanted)
        return scores

    def _known(self, telling: Sequence[Group]) -> Iterator[QueryTerm]:
        """Of what is pasted, the beginning counts: each term takes as long as a word of its own."""
        every = (self._terms(group, last=group is telling[-1]) for group in telling)
        return islice(chain.from_iterable(every), MOST_TERMS)

    def _fuzzy(self, telling: Sequence[Group]) -> Iterator[QueryTerm]:
        """Matches with the first letter open, too, when no word was understood."""
        for word, *_ in telling[:MOST_GUESSES]:
            yield self._stems_of(self._words.vocabulary.close_with_any_start(word)), GUESS_WEIGHT

    def _terms(self, group: Group, last: bool) -> Iterator[QueryTerm]:
        word, *parts = group
        if not self._words.knows(word):
            yield from self._parts(parts, last) if parts else self._completed(word, last)
            return
        yield {stem(word)}, 1.0
        for part in parts:
            yield self._stems_of([part]), EVERYDAY_WEIGHT
        if last:  # somebody may still be typing it
            yield self._stems_of(self._words.vocabulary.longer(word)) - {stem(word)}, EVERYDAY_WEIGHT

    def _parts(self, parts: Iterable[str], last: bool) -> Iterator[QueryTerm]:
        for part in parts:
            yield from self._terms((part,), last)

    def _completed(self, word: str, last: bool) -> Iterator[QueryTerm]:
        """No tool has this word: take it as the start of one, else as a mistyped one."""
        if (last or len(word) >= SHORTEST_PREFIX) and (begun := self._words.vocabulary.longer(word)):
            yield self._stems_of(begun), PREFIX_WEIGHT
        else:
            yield self._stems_of(self._words.vocabulary.close(word)), GUESS_WEIGHT

    def _stems_of(self, words: Iterable[str]) -> set[str]:
        return self._words.stems_of(words)

    def _best(self, stems: set[str], factor: float) -> dict[int, float]:
        """Tools that have any of these words, each with what the most telling one says for it, times the factor."""
        best: dict[int, float] = {}
        for one in stems:
            said, times = self._words.said(one), factor * self._words.rarity(one)
            found = dict(zip(said.slots, [times * weight for weight in said.weights], strict=True))
            both = {tool: max(best[tool], found[tool]) for tool in best.keys() & found.keys()}
            best = found | best | both if best else found
        return best


def _add_common(scores: dict[int, float], common: Sequence[tuple[Said, float]], wanted: Wanted) -> None:
    """Add what words say that very many tools have. A tool that has only one of these, and no other word of the query,
    can't be among the best unless it is among the best of that word: all others of its kind are left out.
    """
    some = {*scores, *wanted.also}
    for said, _ in common:
        some |= wanted.first_of(said)
        for one in wanted.everyday:
            some |= said.by_slot.keys() & one.by_slot.keys()
    once = set[int]()
    for said, _ in common:  # those that have two of them
        some |= once & said.by_slot.keys()
        once |= said.by_slot.keys()
    for said, times in common:
        weights = said.by_slot
        for tool in some:  # not `some & weights.keys()`: that goes through all that have the word
            if tool in weights:
                scores[tool] = scores.get(tool, 0.0) + times * weights[tool]
