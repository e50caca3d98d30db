"""The index behind the search: one that was changed step by step, or read from a file, answers like one made anew."""

from typing import Any

import msgspec
import pytest
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import onetool.services.search as search_module
from onetool.core.spec import ToolSpec
from onetool.services.search import SearchIndex, tool_document
from onetool.services.search.postings import SavedWords, WordIndex
from onetool.services.search.slots import SlotMap, SortedWords
from onetool.services.search.tiers import SavedTiers, TierIndex, TierRow, row_of

NAMES = ("files.read", "files.readAll", "web.fetch", "Web.Fetch", "mail.send", "mail.sendMany2", "地图.查询", "++")
TEXTS = (
    "",
    "Read the text of a file",
    "Reads files and readers",
    "fetch a page, fetching pages",
    "Send an e-mail to customers 😀",
    "customer customers custom",
    "查询城市的天气预报",
    "the a of and",
)
QUERIES = (
    "read",
    "files.read",
    "fetch the page",
    "custmer",
    "send email to a customer",
    "天气",
    "rea",
    "😀",
    "++",
    "web fetch customer read",
    "2",
)

tools = st.builds(
    lambda name, description, tags, hidden: ToolSpec(name=name, description=description, tags=tags, hidden=hidden),
    name=st.sampled_from(NAMES),
    description=st.sampled_from(TEXTS) | st.text(max_size=20),
    tags=st.lists(st.sampled_from(["mail", "Web Pages", "customer"]), max_size=2).map(tuple),
    hidden=st.booleans(),
)


def answers(index: SearchIndex) -> dict[str, list[tuple[int, float]]]:
    return {query: [(id(spec), score) for spec, score in index.search(query, 4)] for query in QUERIES}


@settings(deadline=None, max_examples=examples(50))
@given(
    pool=st.lists(tools, min_size=1, max_size=10), steps=st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=5)
)
def test_changed_step_by_step_it_answers_like_one_made_anew(pool: list[ToolSpec], steps: list[list[int]]) -> None:
    index = SearchIndex(pool)
    for step in steps:
        some = [pool[number % len(pool)] for number in dict.fromkeys(number % len(pool) for number in step)]
        index.update(some)
        assert answers(index) == answers(SearchIndex(some))


class Lazy:
    """A tool that is made when somebody needs it. Its id is its number."""

    digest = None

    def __init__(self, number: int, of: ToolSpec, enabled: bool = True) -> None:
        self.name, self.kept_as, self.enabled, self.made = f"p.{of.name}", f"{number:03}", enabled, 0
        self._spec = msgspec.structs.replace(of, name=self.name, kept_as=self.kept_as)

    def spec(self) -> ToolSpec:
        self.made += 1
        return self._spec


class Kept:
    """The words of lazy tools; it may not know all of them yet."""

    def __init__(self) -> None:
        self.words = WordIndex()
        self.slots: dict[str, int] = {}

    def add(self, tool: Lazy) -> None:
        if tool.kept_as not in self.slots:
            self.slots[tool.kept_as] = self.words.add(tool_document(tool._spec))

    def slot_of(self, id: str) -> int | None:
        return self.slots.get(id)


lazy_packs = st.lists(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9), max_size=6), min_size=2, max_size=2)


@settings(deadline=None, max_examples=examples(50))
@given(pool=st.lists(tools, min_size=1, max_size=10), steps=st.lists(lazy_packs, max_size=6), data=st.data())
def test_lazy_tools_are_followed_pack_by_pack(pool: list[ToolSpec], steps: list[Any], data: Any) -> None:
    """Also those whose words the store does not know yet."""
    pool = [msgspec.structs.replace(one, hidden=False) for one in pool]
    kept, known = Kept(), {number: Lazy(number, pool[number % len(pool)], number != 7) for number in range(10)}
    index = SearchIndex(pool, kept)
    for step in steps:
        packs, seen = dict[str, dict[str, Lazy]](), set[int]()
        for pack, numbers in zip("pq", step, strict=True):
            owns = {own: number for own, number in numbers.items() if number not in seen}
            packs[pack] = {own: known[number] for number, own in {number: own for own, number in owns.items()}.items()}
            seen |= set(owns.values())
        for number in seen:
            if data.draw(st.booleans()):
                kept.add(known[number])
        index.update(pool, packs)
        anew = SearchIndex(pool, kept, packs)
        assert answers(index) == answers(anew)
        anew.update((), {})  # so that words which it has put in are gone again


def test_lazy_tools_that_nobody_finds_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "is_installed", lambda: False)
    kept = Kept()
    pack = {f"t{n}": Lazy(n, ToolSpec(name=f"tool{n}", description="customer")) for n in range(200)}
    for one in pack.values():
        kept.add(one)
    index = SearchIndex((), kept, {"p": pack})
    assert [spec.kept_as for spec, _ in index.search("customer", 3)] == ["000", "001", "002"]
    assert sum(one.made for one in pack.values()) == 3


@settings(deadline=None, max_examples=examples(50))
@given(pool=st.lists(tools, min_size=1, max_size=25), query=st.sampled_from(QUERIES), limit=st.integers(1, 6))
def test_leaving_out_common_words_changes_no_answer(pool: list[ToolSpec], query: str, limit: int) -> None:
    expected = SearchIndex(pool).search(query, limit)
    with pytest.MonkeyPatch.context() as patch:
        for common in (0, 1, 3):
            patch.setattr(search_module, "COMMON", common)
            for dense in (1, 50):
                patch.setattr(search_module, "DENSE", dense)
                found = SearchIndex(pool).search(query, limit)
                assert [id(spec) for spec, _ in found] == [id(spec) for spec, _ in expected]
                assert [score for _, score in found] == pytest.approx([score for _, score in expected])


def test_an_index_from_a_file_answers_the_same_and_can_be_changed() -> None:
    specs = [
        ToolSpec(name=f"p{n}.{NAMES[n % 6]}", description=TEXTS[n % 8], tags=("mail",) * (n % 2)) for n in range(40)
    ]
    words = WordIndex()
    slots = [words.add(tool_document(spec)) for spec in specs]
    for slot in slots[5:9]:
        words.remove(slot)
    again = WordIndex()
    again.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(words.saved()), type=SavedWords))
    for one in (words, again):
        one.remove(slots[0])
        one.add(tool_document(specs[6]))
    for stem in ("read", "custom", "fetch", "mail", "sendmany2"):
        assert words.forms(stem) == again.forms(stem)
        if words.forms(stem):
            assert list(words.said(stem).slots) == list(again.said(stem).slots)
            assert list(words.said(stem).weights) == list(again.said(stem).weights)
    assert words.vocabulary.near("raed") == again.vocabulary.near("raed") != {}
    assert list(words.spelled.get("p10mailsend")) == list(again.spelled.get("p10mailsend")) == [10]


class Tiers(RuleBasedStateMachine):
    """Tools come, change, go and are switched; now and then the whole goes through a file."""

    def __init__(self) -> None:
        super().__init__()
        self.index = TierIndex(WordIndex())
        self.rows: dict[str, tuple[TierRow, ToolSpec, bool]] = {}

    @rule(number=st.integers(0, 5), spec=tools, title=st.sampled_from(["", "Read File", "地图 😀"]), on=st.booleans())
    def put(self, number: int, spec: ToolSpec, title: str, on: bool) -> None:
        row = row_of(f"id{number}", spec.name, title, number % 3)
        self.rows[row.id] = (row, spec, on)
        self.index.put(row, tool_document(spec), on)

    @rule(number=st.integers(0, 5))
    def drop(self, number: int) -> None:
        if self.rows.pop(f"id{number}", None):
            self.index.drop(f"id{number}")

    @rule(number=st.integers(0, 5), on=st.booleans())
    def switch(self, number: int, on: bool) -> None:
        if known := self.rows.get(f"id{number}"):
            self.rows[known[0].id] = (*known[:2], on)
            self.index.switch(self.index.slot_of(known[0].id), on)

    @rule()
    def through_a_file(self) -> None:
        saved: Any = msgspec.msgpack.encode(self.index.saved())
        self.index = TierIndex(WordIndex())
        self.index.restore(msgspec.msgpack.decode(saved, type=SavedTiers))

    @invariant()
    def answers_like_one_made_anew(self) -> None:
        anew = TierIndex(WordIndex())
        for row, spec, on in self.rows.values():
            anew.put(row, tool_document(spec), on)
        for query in (*QUERIES, ""):
            for off in (True, False):
                found = self.index.search(query, off, None, 100)
                assert found == anew.search(query, off, None, 100) == sorted(found)
                if found:
                    middle = found[len(found) // 2]
                    assert self.index.search(query, off, middle, 2) == found[len(found) // 2 + 1 :][:2]


TestTiers = Tiers.TestCase
TestTiers.settings = settings(max_examples=examples(20), stateful_step_count=12, deadline=None)


def test_keys_of_one_tool_and_of_many() -> None:
    slots = SlotMap()
    assert slots.add("a", 7)
    assert not slots.add("a", 3)
    assert not slots.add("a", 3)
    assert list(slots.get("a")) == [3, 7]
    assert not slots.discard("a", 9)
    assert not slots.discard("a", 3)
    assert list(slots.get("a")) == [7]
    assert slots.discard("a", 7)
    assert list(slots.get("a")) == []


def test_sorted_words_whether_they_come_one_by_one_or_together() -> None:
    one_by_one, together = SortedWords(), SortedWords()
    every = [f"w{number % 97:02}{number}" for number in range(300)]
    for word in every:
        one_by_one.add(word)
        one_by_one.with_prefix("w")
    together.add_all(every)
    assert one_by_one.with_prefix("w1") == together.with_prefix("w1") != []
    assert sorted(one_by_one.containing("12")) == sorted(together.containing("12")) != []
