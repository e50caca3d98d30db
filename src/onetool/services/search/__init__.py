"""SearchIndex: finds the tools that fit a query, best first.

A query that names a tool finds it whatever its text says. All other queries are ranked by BM25F: a word counts more in
a name than in a description, less in a long text, each further time a little less, and more the fewer tools have it.
See `lexical`. That is blended with how near a tool's meaning is: see `meaning` and `blend`.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence, Set
from heapq import nlargest
from pathlib import Path

from onetool.core.principal import AllowList
from onetool.core.registry import NO_PACKS, LazyPacks, LazyTool, as_spec
from onetool.core.spec import ToolSpec
from onetool.services.search.blend import Blend, WordFits
from onetool.services.search.documents import Document
from onetool.services.search.lexical import DENSE, LexicalIndex, NameIndex, Naming, ToolOrder, Wanted
from onetool.services.search.meaning import ToolMeanings
from onetool.services.search.postings import KeptDocuments, WordIndex
from onetool.services.search.words import Group, QueryWords, query_words, tool_words

MANY = 64  # lazy tools that are new or gone: fewer are put in their places one by one
MOST_ALLOWED = 16  # allow-lists of which it is known which tools they are
TEXTS = ("name", "description", "tags", "examples", "input_schema")
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
        self._meanings = ToolMeanings(background=background, cache=vectors)
        self._tools: dict[int, ToolSpec | LazyTool] = {}  # by slot
        self._slots: list[int] = []  # in their order: first those that are not lazy, as they were given
        self._places: dict[int, int] = {}  # of these
        self._own: dict[int, tuple[int, ToolSpec]] = {}  # by the spec's id: of those that are kept nowhere else
        self._lazy: LazyPacks = NO_PACKS
        self._lazy_slots: dict[str, int] = {}  # by their ids
        self._unknown: dict[str, LazyTool] = {}  # by their ids: not in the store yet, so that their words are ours
        self._in_order = ToolOrder(self._slots, self._tools.keys(), self._order)
        self._allowed: dict[int, tuple[AllowList, Set[int]]] = {}  # by id: see `_allowed_slots`
        self.update(specs, lazy)

    def update(self, specs: Iterable[ToolSpec], lazy: LazyPacks = NO_PACKS) -> None:
        """From now on it is about these. Only what is not there yet is read, and only what is gone is removed."""
        with self._words.lock:
            self._allowed = {}
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
        is_many = len(new) + len(gone) > MANY  # then all of them are sorted together
        for tool in gone:
            self._drop_lazy(tool, is_many)
        known = [tool for id, tool in self._unknown.items() if self._kept_slot(id) is not None]
        for tool in known:
            self._drop_lazy(tool, is_many)
        slot_of = self.kept.slots().get if self.kept is not None and is_many else self._kept_slot
        for tool in (*new, *known):
            self._put_lazy(tool, slot_of(tool.kept_as), is_many)
        if is_many:
            self._slots[len(self._places) :] = [slot for _, slot in sorted(self._lazy_slots.items())]

    def _put_lazy(self, tool: LazyTool, slot: int | None, is_many: bool) -> None:
        """`slot` is where the store has its words."""
        id = tool.kept_as
        if slot is not None:
            self._free_slot(slot, is_many)
        else:
            slot, self._unknown[id] = self._words.add(tool_document(tool.spec())), tool
        if not is_many:
            self._slots.insert(self._place_of(id), slot)
        self._lazy_slots[id] = slot
        self._set(slot, tool)

    def _free_slot(self, slot: int, is_many: bool) -> None:
        """The store may be ahead of these tools: then it gives a slot away before we hear that its tool is gone."""
        before = self._tools.get(slot)
        if before is not None and not isinstance(before, ToolSpec):
            self._drop_lazy(before, is_many)

    def _drop_lazy(self, tool: LazyTool, is_many: bool) -> None:
        id = tool.kept_as
        if (slot := self._lazy_slots.get(id)) is None:  # it is switched off, or its slot was given away
            return
        if not is_many:
            del self._slots[self._place_of(id)]
        del self._lazy_slots[id]
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
        if known is not tool and not _say_the_same(known, tool):
            self._meanings.set(slot, tool)

    def load_meanings(self) -> None:
        """Begin to load them, in a thread."""
        self._meanings.load()

    def _slot(self, spec: ToolSpec, before: dict[int, tuple[int, ToolSpec]]) -> int:
        if spec.kept_as and (slot := self._kept_slot(spec.kept_as)) is not None:
            return slot
        found = before.pop(id(spec), None) or (self._words.add(tool_document(spec)), spec)
        self._own[id(spec)] = found  # with the spec: so that its id stays its own
        return found[0]

    def _kept_slot(self, id: str) -> int | None:
        return None if self.kept is None else self.kept.slot_of(id)

    def search(
        self, query: str, limit: int = 5, allowed: Collection[str] | None = None
    ) -> list[tuple[ToolSpec, float]]:
        """With an allow-list, only those of these names are looked at."""
        if limit < 1:
            return []
        with self._words.lock:
            order = self._in_order if allowed is None else self._in_order._replace(there=self._allowed_slots(allowed))
            found = self._best(self._scores(query[:LONGEST_QUERY], limit, order), limit)
            tools = [(self._tools[slot], score) for slot, score in found if self._is_still(slot)]
        return [(as_spec(tool), score) for tool, score in tools]

    def _is_still(self, slot: int) -> bool:
        """Whether the store has this tool where it had it: the store may be ahead, and slots are used again."""
        tool = self._tools[slot]
        return isinstance(tool, ToolSpec) or tool.kept_as in self._unknown or self._kept_slot(tool.kept_as) == slot

    def _allowed_slots(self, allowed: Collection[str]) -> Set[int]:
        """Of an `AllowList`, which nobody changes, it is kept until the tools change."""
        if not isinstance(allowed, AllowList):
            names = {*allowed}
            return {slot for slot, tool in self._tools.items() if tool.name in names}
        if (known := self._allowed.get(id(allowed))) is None:
            if len(self._allowed) >= MOST_ALLOWED:
                self._allowed = {}
            slots = {slot for slot, tool in self._tools.items() if tool.name in allowed}
            known = self._allowed[id(allowed)] = (allowed, slots)
        return known[1]

    def _scores(self, query: str, limit: int, order: ToolOrder) -> dict[int, float]:
        """Of those tools that may be among the first `limit` ones."""
        words = query_words(query)
        sure, way, others = self._named(query, words.telling, limit, order.there)
        fits, left = self._fits(query, words, Wanted(limit, order, sure.keys() | others)), limit - len(sure)
        scores = {tool: naming + fit for (tool, naming), fit in zip(sure.items(), fits.of(sure), strict=True)}
        if others:  # what is named less surely has no room
            best = fits.best(left, others)
            unfit = dict.fromkeys(others - best.keys(), 0.0) if len(best) < left else {}
            return scores | {tool: way + fit for tool, fit in (best | unfit).items()}
        return self._best_fits(fits, limit, order.there) | scores if left else scores

    def _named(
        self, query: str, telling: Sequence[Group], limit: int, there: Set[int]
    ) -> tuple[dict[int, Naming], float, set[int]]:
        """Tools that the query names, the surest way first, as many as have room; and the way that names too many, with
        these.
        """
        sure: dict[int, Naming] = {}
        for way, tools in self._names.named(query, telling):
            new = {tool for tool in tools if tool in there} - sure.keys()
            if len(sure) + len(new) > limit:
                return sure, way, new if len(sure) < limit else set()
            sure |= dict.fromkeys(new, way)
        return sure, 0.0, set()

    def _fits(self, query: str, words: QueryWords, wanted: Wanted) -> WordFits | Blend:
        """How well texts fit: of the best ones, and of those that are wanted in any case."""
        meanings = self._meanings.similarities(query)
        if meanings is not None:
            return Blend(self._lexical.all_scores(words), meanings)
        return WordFits(self._lexical.scores(words, wanted))

    def _best_fits(self, fits: WordFits | Blend, limit: int, there: Set[int]) -> dict[int, float]:
        """The best of those that count: others may share the words."""
        if len(there) * DENSE < len(fits):
            return fits.best(limit, there)
        most = limit
        while True:
            every = fits.best(most)
            ours = {tool: score for tool, score in every.items() if tool in there}
            if most >= len(fits) or len(ours) >= limit:
                return ours
            most *= 8

    def _best(self, scores: dict[int, float], limit: int) -> list[tuple[int, float]]:
        if len(scores) > limit:  # comparing bare numbers is much quicker than sorting pairs, and many may be equal
            least = nlargest(limit, scores.values())[-1]
            equals = {tool for tool, score in scores.items() if score == least}
            scores = {tool: score for tool, score in scores.items() if score > least}
            scores |= dict.fromkeys(self._in_order.first(equals, limit - len(scores)), least)
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
