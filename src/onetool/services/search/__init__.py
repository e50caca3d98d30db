"""SearchIndex: finds the tools that fit a query, best first.

A query that names a tool finds it whatever its text says. All other queries are ranked by BM25F: a word counts more in
a name than in a description, less in a long text, each further time a little less, and more the fewer tools have it.
Where numpy is installed, that is blended with how near a tool's meaning is: see `meaning` and `blend`.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from enum import IntEnum
from heapq import nlargest, nsmallest
from itertools import combinations, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from onetool.core.registry import NO_PACKS, LazyPacks, LazyTool, as_spec
from onetool.core.spec import ToolSpec
from onetool.services.search.blend import Blend, summed, words_alone
from onetool.services.search.kept import KeptDocuments
from onetool.services.search.meaning import ToolMeanings, is_installed
from onetool.services.search.postings import Document, Said, WordIndex
from onetool.services.search.words import Group, QueryWords, name_key, query_words, split_words, stem, tool_words

if TYPE_CHECKING:
    from onetool.services.search.meaning import Doubles

NO_TOOLS: Set[int] = frozenset()

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

    def named(self, query: str, telling: Sequence[Group]) -> dict[int, Naming]:
        """Tool -> the surest way in which the query names it. Tools that it does not name are left out."""
        spelled, text = name_key(query), query.strip()
        ways = (
            (Naming.BEGUN, self._with_all(telling, last=self._with_prefix)),
            (Naming.WORDS, self._with_all(telling, last=self._with)),
            (Naming.PART, self._words.parts.get(spelled)),
            (Naming.MENTIONED, self._mentioned(query)),
            (Naming.SPELLED, self._words.spelled.get(spelled) if spelled else ()),
            (Naming.EXACT, self._exact(text)),
        )
        return {tool: way for way, tools in ways for tool in tools}

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
        named = self._words.named(self._words.forms(stem(word)))
        return named or self._with_all([(part,) for part in parts], last=self._with)

    def _with_prefix(self, group: Group) -> Set[int]:
        return self._words.named(self._words.vocabulary.sorted.with_prefix(group[0]))

    def _exact(self, name: str) -> list[int]:
        found = self._words.spelled.get(name_key(name) or name)
        return [tool for tool in found if self._words.names[tool] == name]

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

SHORTEST_PREFIX = 3  # letters; the last word of a query may have fewer, it is still being typed
MOST_GUESSES = 4  # words: a guess is slow, and nobody mistypes all of a long query

COMMON = 2_000  # tools that have a word: going through all of them takes longer than finding out who matters
DENSE = 50  # one of so many tools: see `first_of`

Meaning = tuple[set[str], float]
"""Stems, any of which will do, and what finding one counts."""


class Wanted(NamedTuple):
    """What a search is about to use of the scores: so many of the best in this order, and some tools in any case."""

    most: int
    ordered: Sequence[int]
    there: Set[int]  # the same
    order: Callable[[int], tuple[int, int, str]]  # what they are ordered by
    also: Set[int]

    def first_of(self, said: Said) -> set[int]:
        found = set[int]()
        for tools in said.by_weight:
            left = self.most - len(found)
            if len(tools) * DENSE > len(self.ordered):  # then some stand near the beginning
                found.update(islice((tool for tool in self.ordered if tool in tools), left))
            else:
                found.update(nsmallest(left, tools & self.there, key=self.order))
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
        scores = self._summed(self._known(asked.telling), wanted) or self._summed(self._fuzzy(asked.telling), wanted)
        for one, times in self._everyday(asked):
            for tool in scores.keys() & one.by_slot.keys():
                scores[tool] += times * one.by_slot[tool]
        return scores

    def all_scores(self, asked: QueryWords) -> "Doubles":
        """The same of all tools, by slot, for numpy; 0 of those that share nothing with the query."""
        size, everyday = len(self._words.names), list(self._everyday(asked))
        scores = summed(map(self._parts_of, self._known(asked.telling)), everyday, size)
        return scores if scores.any() else summed(map(self._parts_of, self._fuzzy(asked.telling)), everyday, size)

    def _parts_of(self, meaning: Meaning) -> list[tuple[Said, float]]:
        stems, factor = meaning
        return [(self._words.said(one), factor * self._words.rarity(one)) for one in stems]

    def _everyday(self, asked: QueryWords) -> Iterator[tuple[Said, float]]:
        for word, *_ in asked.everyday:
            for one in self._stems_of([word]):
                yield self._words.said(one), TIE_WEIGHT * self._words.rarity(one)

    def _summed(self, meanings: Iterable[Meaning], wanted: Wanted | None) -> dict[int, float]:
        scores: dict[int, float] = {}
        common: list[tuple[Said, float]] = []
        for stems, factor in meanings:
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

    def _known(self, telling: Sequence[Group]) -> Iterator[Meaning]:
        for position, group in enumerate(telling, start=1):
            yield from self._meanings(group, last=position == len(telling))

    def _fuzzy(self, telling: Sequence[Group]) -> Iterator[Meaning]:
        """Matches with the first letter open, too, when no word was understood."""
        for word, *_ in telling[:MOST_GUESSES]:
            yield self._stems_of(self._words.vocabulary.close_with_any_start(word)), GUESS_WEIGHT

    def _meanings(self, group: Group, last: bool) -> Iterator[Meaning]:
        word, *parts = group
        if not self._words.knows(word):
            yield from self._parts(parts, last) if parts else self._completed(word, last)
            return
        yield {stem(word)}, 1.0
        for part in parts:
            yield self._stems_of([part]), EVERYDAY_WEIGHT
        if last:  # somebody may still be typing it
            yield self._stems_of(self._words.vocabulary.longer(word)) - {stem(word)}, EVERYDAY_WEIGHT

    def _parts(self, parts: Iterable[str], last: bool) -> Iterator[Meaning]:
        for part in parts:
            yield from self._meanings((part,), last)

    def _completed(self, word: str, last: bool) -> Iterator[Meaning]:
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
    """Add what words say that very many tools have. A tool that has only one of these, and no other word, can't be
    among the best unless it is among the best of that word: all others of its kind are left out.
    """
    some = {*scores, *wanted.also}
    for said, _ in common:
        some |= wanted.first_of(said)
    for (one, _), (other, _) in combinations(common, 2):
        some |= one.by_slot.keys() & other.by_slot.keys()
    for said, times in common:
        weights = said.by_slot
        for tool in some:  # not `some & weights.keys()`: that goes through all that have the word
            if tool in weights:
                scores[tool] = scores.get(tool, 0.0) + times * weights[tool]


# The index


MANY = 64  # lazy tools that are new: fewer are put in their places one by one
TEXTS = ("name", "description", "tags", "examples", "input_schema")
ROUNDED = 1 - 1e-9
LONGEST_QUERY = 10_000  # characters of a query: a pasted document must not cost more than a question


class SearchIndex:
    """Finds tools. They come and go by `update`; any number of threads may share one.

    A score is a whole number, how surely the query names the tool (see `Naming`), and a fraction, how well the text
    fits. Tools that score the same stay in the order in which they were given.
    """

    def __init__(
        self,
        specs: Iterable[ToolSpec],
        kept: KeptDocuments | None = None,
        lazy: LazyPacks = NO_PACKS,
        *,
        background: bool = False,
        vectors: Path | None = None,
    ) -> None:
        """`kept` has the words of tools that are kept in a store. With `background`, words answer alone until a thread
        has loaded the meanings; otherwise a query waits for them. `vectors` is the file that meanings are ready from.
        """
        self.kept = kept
        self._words = WordIndex() if kept is None else kept.words
        self._names = NameIndex(self._words)
        self._lexical = LexicalIndex(self._words)
        self._meanings = ToolMeanings(background=background, cache=vectors) if is_installed() else None
        self._tools: dict[int, ToolSpec | LazyTool] = {}  # by slot
        self._slots: list[int] = []  # in their order: first those that are not lazy, as they were given
        self._places: dict[int, int] = {}  # of these
        self._own: dict[int, tuple[int, ToolSpec]] = {}  # by the spec's id: of those that are kept nowhere else
        self._lazy: LazyPacks = NO_PACKS
        self._lazy_slots: dict[str, int] = {}  # by their ids
        self._unknown: dict[str, LazyTool] = {}  # by their ids: not in the store yet, so that their words are ours
        self.update(specs, lazy)

    def update(self, specs: Iterable[ToolSpec], lazy: LazyPacks = NO_PACKS) -> None:
        """From now on it is about these. Only what is not there yet is read, and only what is gone is removed."""
        with self._words.lock:
            before, self._own = self._own, {}
            own = {self._slot(spec, before): spec for spec in specs if not spec.hidden}
            for slot, _ in before.values():
                self._words.remove(slot)
            for slot in self._places.keys() - own.keys():
                self._set(slot, None)
            for slot, spec in own.items():
                self._set(slot, spec)
            self._slots[: len(self._places)] = own
            self._places = {slot: place for place, slot in enumerate(own)}
            self._follow(lazy)

    def _follow(self, lazy: LazyPacks) -> None:
        """Of the lazy ones. Packs that are the same mapping as the last time are not looked at."""
        before, self._lazy = self._lazy, lazy
        gone, new = list[LazyTool](), list[LazyTool]()
        for pack in before.keys() | lazy.keys():
            old, now = before.get(pack, {}), lazy.get(pack, {})
            if old is not now:
                gone += [tool for own, tool in old.items() if now.get(own) is not tool]
                new += [tool for own, tool in now.items() if tool.enabled and old.get(own) is not tool]
        for tool in gone:
            self._drop_lazy(tool)
        known = [tool for id, tool in self._unknown.items() if self._kept_slot(id) is not None]
        for tool in known:
            self._drop_lazy(tool)
        is_many = len(new) > MANY
        for tool in (*new, *known):
            self._put_lazy(tool, is_many)
        if is_many:
            self._slots[len(self._places) :] = sorted(self._lazy_slots.values(), key=self._order)

    def _put_lazy(self, tool: LazyTool, is_many: bool) -> None:
        id = tool.kept_as
        slot = self._kept_slot(id)
        if slot is None:
            slot, self._unknown[id] = self._words.add(tool_document(tool.spec())), tool
        if not is_many:  # else all of them are sorted together
            self._slots.insert(self._place_of(id), slot)
        self._lazy_slots[id] = slot
        self._set(slot, tool)

    def _drop_lazy(self, tool: LazyTool) -> None:
        id = tool.kept_as
        if (slot := self._lazy_slots.get(id)) is None:  # it is switched off
            return
        del self._slots[self._place_of(id)], self._lazy_slots[id]
        self._set(slot, None)
        if self._unknown.pop(id, None) is not None:
            self._words.remove(slot)

    def _place_of(self, id: str) -> int:
        return bisect_left(self._slots, (1, 0, id), len(self._places), key=self._order)

    def _order(self, slot: int) -> tuple[int, int, str]:
        """Lazy ones go by their ids."""
        place = self._places.get(slot)
        return (0, place, "") if place is not None else (1, 0, self._tools[slot].kept_as or "")

    def _set(self, slot: int, tool: ToolSpec | LazyTool | None) -> None:
        """Which tool has this slot from now on. Meanings are told where it says something else."""
        known = self._tools.get(slot)
        if tool is None:
            self._tools.pop(slot, None)
        else:
            self._tools[slot] = tool
        if self._meanings is not None and known is not tool and not _say_the_same(known, tool):
            self._meanings.set(slot, tool)

    def load_meanings(self) -> None:
        """Begin to load them, in a thread."""
        if self._meanings is not None:
            self._meanings.load()

    def _slot(self, spec: ToolSpec, before: dict[int, tuple[int, ToolSpec]]) -> int:
        if spec.kept_as and (slot := self._kept_slot(spec.kept_as)) is not None:
            return slot
        found = before.pop(id(spec), None) or (self._words.add(tool_document(spec)), spec)
        self._own[id(spec)] = found  # with the spec: so that its id stays its own
        return found[0]

    def _kept_slot(self, id: str) -> int | None:
        return None if self.kept is None else self.kept.slot_of(id)

    def search(self, query: str, limit: int = 5) -> list[tuple[ToolSpec, float]]:
        if limit < 1:
            return []
        with self._words.lock:
            scores = self._scores(query[:LONGEST_QUERY], limit)
            if self._meanings is not None or len(self._tools) != len(self._words):  # others share the words
                scores = {tool: score for tool, score in scores.items() if tool in self._tools}
            found = [(self._tools[tool], score) for tool, score in self._best(scores, limit)]
        return [(as_spec(tool), score) for tool, score in found]

    def _scores(self, query: str, limit: int) -> dict[int, float]:
        """Of very many tools only those that may be among the first `limit` ones."""
        words = query_words(query)
        named = self._names.named(query, words.telling)
        meanings = None if self._meanings is None else self._meanings.similarities(query)
        if meanings is None:
            wanted = Wanted(limit, self._slots, self._tools.keys(), self._order, named.keys())
            scores = words_alone(self._likely(self._lexical.scores(words, wanted), limit, named))
        else:
            scores = self._blended(Blend(self._lexical.all_scores(words), meanings), named, limit)
        for tool, naming in named.items():
            scores[tool] = naming + scores.get(tool, 0.0)
        return scores

    def _likely(self, scores: dict[int, float], limit: int, named: Mapping[int, Naming]) -> dict[int, float]:
        """Without those that can't be among the first: what follows looks at each. Rounding must not decide."""
        if len(scores) <= limit:
            return scores
        best = nlargest(limit, (score for tool, score in scores.items() if tool in self._tools))
        least = best[-1] * ROUNDED if len(best) == limit else 0.0
        return {tool: score for tool, score in scores.items() if score >= least or tool in named}

    def _blended(self, blend: Blend, named: Mapping[int, Naming], limit: int) -> dict[int, float]:
        """Those that are named, and the best of the others. Not all that share the words are ours: see `search`."""
        most = limit
        while True:
            scores = blend.best(most)
            if most >= len(blend) or sum(tool in self._tools for tool in scores) >= limit:
                return scores | blend.of(named)
            most *= 8

    def _best(self, scores: dict[int, float], limit: int) -> list[tuple[int, float]]:
        if len(scores) > limit:  # comparing bare numbers is much quicker than sorting pairs, and many may be equal
            least = nlargest(limit, scores.values())[-1]
            equals = [tool for tool, score in scores.items() if score == least]
            scores = {tool: score for tool, score in scores.items() if score > least}
            scores |= dict.fromkeys(nsmallest(limit - len(scores), equals, key=self._order), least)
        return sorted(scores.items(), key=lambda item: (-item[1], self._order(item[0])))


def _say_the_same(one: ToolSpec | LazyTool | None, other: ToolSpec | LazyTool | None) -> bool:
    """All that a tool's meaning is made of is equal. Lazy ones are not made for that."""
    if not (isinstance(one, ToolSpec) and isinstance(other, ToolSpec)):
        return False
    return all(getattr(one, text) == getattr(other, text) for text in TEXTS)


def tool_document(spec: ToolSpec) -> Document:
    words = tool_words(spec.name, spec.description, spec.input_schema, spec.tags)
    return Document(spec.name, words.names, words.description, words.parameters, words.tags)


__all__ = ["KeptDocuments", "SearchIndex"]
