"""The index behind the search: one that was changed step by step, or read from a file, answers like one made anew."""

from typing import Any

import msgspec
import pytest
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import onetool.services.search as search_module
import onetool.services.search.lexical as lexical_module
import onetool.services.search.meaning as meaning_module
from onetool.core.spec import ToolSpec
from onetool.services.search import SearchIndex, tool_document
from onetool.services.search.postings import SavedWords, WordIndex
from onetool.services.search.slots import SavedSlots, SlotMap, SortedWords
from onetool.services.search.tiers import SavedTiers, TierIndex, TierRow, row_of

NAMES = (
    "files.read",
    "files.readAll",
    "web.fetch",
    "Web.Fetch",
    "mail.send",
    "mail.sendMany2",
    "地图.查询",
    "++",
    "x.get",
)
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
    "get a customer",
    "get pages",
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

    digest = b""

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
        self._slots: dict[str, int] = {}

    def add(self, tool: Lazy) -> None:
        if tool.kept_as not in self._slots:
            self._slots[tool.kept_as] = self.words.add(tool_document(tool._spec))

    def slot_of(self, id: str) -> int | None:
        return self._slots.get(id)

    def slots(self) -> dict[str, int]:
        return self._slots


lazy_packs = st.lists(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9), max_size=6), min_size=2, max_size=2)


@pytest.mark.long
@settings(deadline=None, max_examples=examples(50))
@given(pool=st.lists(tools, min_size=1, max_size=10), steps=st.lists(lazy_packs, max_size=6), data=st.data())
@pytest.mark.parametrize("many", [search_module.MANY, 2])
def test_lazy_tools_are_followed_pack_by_pack(many: int, pool: list[ToolSpec], steps: list[Any], data: Any) -> None:
    """Also those whose words the store does not know yet; one by one, and many together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_module, "MANY", many)
        follow_lazy_tools(pool, steps, data)


def follow_lazy_tools(pool: list[ToolSpec], steps: list[Any], data: Any) -> None:
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
    monkeypatch.setattr(meaning_module, "load_table", lambda: None)
    kept = Kept()
    pack = {f"t{n}": Lazy(n, ToolSpec(name=f"tool{n}", description="customer")) for n in range(200)}
    for one in pack.values():
        kept.add(one)
    index = SearchIndex((), kept, {"p": pack})
    assert [spec.kept_as for spec, _ in index.search("customer", 3)] == ["000", "001", "002"]
    assert sum(one.made for one in pack.values()) == 3


def test_with_an_allow_list_no_others_are_looked_at() -> None:
    kept = Kept()
    pack = {f"t{n}": Lazy(n, ToolSpec(name=f"tool{n}", description="customer")) for n in range(200)}
    for one in pack.values():
        kept.add(one)
    index = SearchIndex((), kept, {"p": pack})
    allowed = ["p.tool7", "p.tool150", "p.gone"]
    for query in ("customer", "tool150", "p tool7", "custmer"):
        every = [(spec.name, score) for spec, score in index.search(query, 200) if spec.name in allowed]
        assert [(spec.name, score) for spec, score in index.search(query, 5, allowed)] == every != []
    for one in pack.values():
        one.made = 0
    assert len(index.search("customer", 5, allowed)) == 2
    assert sum(one.made for one in pack.values()) == 2
    index.update((), {"p": {"t7": pack["t7"]}})
    assert [spec.name for spec, _ in index.search("customer", 5, allowed)] == ["p.tool7"]


def test_a_slot_that_the_store_gave_away_is_its_new_tools() -> None:
    kept, pack = Kept(), {f"t{n}": Lazy(n, ToolSpec(name=f"tool{n}", description="customer")) for n in range(3)}
    for one in pack.values():
        kept.add(one)
    index = SearchIndex((), kept, {"p": pack})
    new = Lazy(7, ToolSpec(name="tool7", description="volcano"))
    kept.words.remove(kept._slots.pop("001"))
    kept.add(new)
    index.update((), {"p": pack, "q": {"t7": new}})  # that the other one is gone is heard later
    assert [spec.kept_as for spec, _ in index.search("volcano")] == ["007"]
    index.update((), {"p": {"t0": pack["t0"]}, "q": {"t7": new}})
    assert [spec.kept_as for spec, _ in index.search("customer volcano")] == ["007", "000"]


def test_a_store_that_is_ahead_gives_no_other_tool_in_place_of_one_that_is_gone() -> None:
    kept, pack = Kept(), {f"t{n}": Lazy(n, ToolSpec(name=f"tool{n}", description="customer")) for n in range(3)}
    for one in pack.values():
        kept.add(one)
    index = SearchIndex((), kept, {"p": pack})
    kept.words.remove(kept._slots.pop("001"))
    kept.add(Lazy(7, ToolSpec(name="tool7", description="volcano")))  # it gets that slot
    assert index.search("volcano") == []
    assert [spec.kept_as for spec, _ in index.search("customer")] == ["000", "002"]


@settings(deadline=None, max_examples=examples(50))
@given(pool=st.lists(tools, min_size=1, max_size=25), query=st.sampled_from(QUERIES), limit=st.integers(1, 6))
def test_leaving_out_common_words_changes_no_answer(pool: list[ToolSpec], query: str, limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meaning_module, "load_table", lambda: None)  # with meanings, no word is left out
        expected = SearchIndex(pool).search(query, limit)
        for common in (0, 1, 3):
            patch.setattr(lexical_module, "COMMON", common)
            for dense in (1, 50):
                patch.setattr(lexical_module, "DENSE", dense)
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
    left = [slots[9], *slots[10:], *slots[:5]]  # in the file they have the slots of their places here
    again = WordIndex(msgspec.msgpack.decode(msgspec.msgpack.encode(words.saved(left)), type=SavedWords))
    words.remove(slots[0])
    again.remove(left.index(slots[0]))
    for one in (words, again):
        one.add(tool_document(specs[6]))
    assert len(words) == len(again)
    for stem in ("read", "custom", "fetch", "mail", "sendmany2"):
        assert words.forms(stem) == again.forms(stem)
        if words.forms(stem):
            assert weights(words, stem) == weights(again, stem) != []
    assert words.vocabulary.near("raed") == again.vocabulary.near("raed") != {}
    assert [again.name(slot) for slot in again.spelled.get("p10mailsend")] == ["p10.mail.send"]


def weights(words: WordIndex, stem: str) -> list[tuple[str, float]]:
    said = words.said(stem)
    return sorted((words.name(slot), weight) for slot, weight in zip(said.slots, said.weights, strict=True))


class Tiers(RuleBasedStateMachine):
    """Tools come, change, go and are switched; now and then the whole goes through a file."""

    def __init__(self) -> None:
        super().__init__()
        self.index = TierIndex()
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
        saved = msgspec.msgpack.encode(self.index.saved()[0])
        self.index = TierIndex(msgspec.msgpack.decode(saved, type=SavedTiers))

    @invariant()
    def answers_like_one_made_anew(self) -> None:
        anew = TierIndex()
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
    for slot in (7, 3, 3):
        slots.add("a", slot)
    assert list(slots.get("a")) == [3, 7]
    slots.discard("a", 9)
    slots.discard("a", 3)
    assert list(slots.get("a")) == [7]
    slots.discard("a", 7)
    assert list(slots.get("a")) == []
    assert slots.having_begun("a") == set()


keys = st.sampled_from(["", "a", "ab", "abc", "abd", "b", "bab", "é", "éa", "日本", "日", "word", "words", "wrod"])
changes = st.lists(st.tuples(st.booleans(), keys, st.integers(0, 3)), max_size=12)


@settings(deadline=None, max_examples=examples(100))
@given(steps=st.lists(changes, min_size=1, max_size=4))
def test_keys_that_go_through_a_file_and_change_are_found_like_those_of_a_dict(steps: list[Any]) -> None:
    slots, known = SlotMap(), dict[str, set[int]]()
    for step in steps:
        for is_new, key, slot in step:
            (slots.add if is_new else slots.discard)(key, slot)
            (known.setdefault(key, set()).add if is_new else known.get(key, set()).discard)(slot)
        known = {key: held for key, held in known.items() if held}
        for start in ("", "a", "ab", "b", "é", "日", "x"):
            begun = {key: held for key, held in known.items() if key.startswith(start)}
            assert slots.having_begun(start) == set[int]().union(*begun.values())
            found = slots.keys.lengths(slots.keys.begun(start))
            assert {slots.keys.text(number): length for number, length in found} == {key: len(key) for key in begun}
            inside = {slots.keys.text(number) for number in slots.keys.containing("ab")}
            assert inside == {key for key in known if "ab" in key}
        assert {key: {*slots.get(key)} for key in known} == known
        assert slots.keys.near("wrds") == {key: 1 for key in known if key in ("words",)}
        assert slots.keys.longer("a") == sorted((key for key in known if key[:1] == "a" and key != "a"), key=str)
        saved = msgspec.msgpack.encode(slots.saved(lambda slot: slot))
        slots = SlotMap(msgspec.msgpack.decode(saved, type=SavedSlots))


def test_a_pasted_query_has_few_terms() -> None:
    """Each takes as long as a word of its own."""
    index = SearchIndex([ToolSpec(name="p.id", description="limit which one customer id")])
    words = ["IdLimitWhichOneCustomerId" * 4 + f"Id{number}" for number in range(64)]
    telling = search_module.query_words(" ".join(words)).telling
    assert sum(map(len, telling)) > 500
    assert len([*index._lexical._known(telling)]) <= lexical_module.MOST_TERMS
    assert [spec.name for spec, _ in index.search(" ".join(words))] == ["p.id"]


def test_what_comes_and_goes_leaves_nothing_behind() -> None:
    index = TierIndex()
    for number in range(50):
        index.put(
            row_of("id", f"name{number}", "", 0), tool_document(ToolSpec(name=f"p.name{number}", description="")), True
        )
    vocabularies = [index.words.vocabulary, *(one.keys for one in (index._ids, index._names, index.words.spelled))]
    assert max(len(one._texts) for one in vocabularies) < 10
    assert max(map(len, (index.words._changed, index._names._changed, index.words.spelled._changed))) < 10


def test_sorted_words_whether_they_come_one_by_one_or_together() -> None:
    every = [f"w{number % 97:02}{number}" for number in range(300)]
    one_by_one, together = SortedWords(), SortedWords()
    for word in every:
        one_by_one.add(word)
        one_by_one.with_prefix("w")
        together.add(word)
    assert one_by_one.with_prefix("w1") == together.with_prefix("w1") != []
