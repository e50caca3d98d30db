"""The arrays behind the search: changed step by step, merged, or read from a file, they answer like ones made anew."""

from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile
from zlib import crc32

import msgspec
import numpy as np
import pytest
from helpers import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from onetool.core.spec import ToolSpec
from onetool.services.search import SearchIndex, lexical, meaning, postings
from onetool.services.search.documents import DESCRIPTION, OWN, SCORED, Document, tool_document, with_titles
from onetool.services.search.files import read_arrays, write_arrays
from onetool.services.search.part import ARRAY_NAMES, TEXT_NAMES, IndexPart
from onetool.services.search.postings import WordIndex, Words
from onetool.services.search.tiers import TierSearch
from onetool.services.search.words import query_words

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


@pytest.fixture(params=[postings.MAX_RECENT, 2])
def max_recent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many tools the second part may have: all of them, or nearly none."""
    monkeypatch.setattr(postings, "MAX_RECENT", request.param)
    return request.param


WITH_FIXTURES = settings(
    deadline=None, max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@WITH_FIXTURES
@given(
    pool=st.lists(tools, min_size=1, max_size=10), steps=st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=5)
)
def test_changed_step_by_step_it_answers_like_one_made_anew(
    max_recent: int, pool: list[ToolSpec], steps: list[list[int]]
) -> None:
    index = SearchIndex(pool)
    for step in steps:
        some = [pool[number % len(pool)] for number in dict.fromkeys(number % len(pool) for number in step)]
        index.update(some)
        assert answers(index) == answers(SearchIndex(some))


class Lazy:
    """A tool that is made when somebody needs it. Its id is its number."""

    digest, pack = b"", "p"

    def __init__(self, number: int, of: ToolSpec, enabled: bool = True) -> None:
        self.name, self.kept_as, self.enabled, self.made = f"p.{of.name}", f"{number:03}", enabled, 0
        self._spec = msgspec.structs.replace(of, name=self.name, kept_as=self.kept_as)

    def spec(self) -> ToolSpec:
        self.made += 1
        return self._spec


def document(spec: ToolSpec) -> Document:
    return tool_document(spec.name, spec.description, spec.input_schema, spec.tags)


def kept_words(*tools: Lazy) -> Words:
    index = WordIndex()
    for tool in tools:
        index.put(tool.kept_as, document(tool._spec))
    return index.current()


lazy_packs = st.lists(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9), max_size=6), min_size=2, max_size=2)


@pytest.mark.long
@WITH_FIXTURES
@given(pool=st.lists(tools, min_size=1, max_size=10), steps=st.lists(lazy_packs, max_size=6), data=st.data())
def test_lazy_tools_are_followed_pack_by_pack(max_recent: int, pool: list[Any], steps: list[Any], data: Any) -> None:
    """Also those whose words the store does not know yet."""
    pool = [msgspec.structs.replace(one, hidden=False) for one in pool]
    kept, known = WordIndex(), {number: Lazy(number, pool[number % len(pool)], number != 7) for number in range(10)}
    index = SearchIndex(pool)
    for step in steps:
        packs, seen = dict[str, dict[str, Lazy]](), set[int]()
        for pack, numbers in zip("pq", step, strict=True):
            owns = {own: number for own, number in numbers.items() if number not in seen}
            packs[pack] = {own: known[number] for number, own in {number: own for own, number in owns.items()}.items()}
            seen |= set(owns.values())
        for number in seen:
            if data.draw(st.booleans()):
                kept.put(known[number].kept_as, document(known[number]._spec))
        index.update(pool, packs, kept.current())
        assert answers(index) == answers(SearchIndex(pool, packs, kept.current()))


def pack_of(size: int) -> dict[str, Lazy]:
    return {f"t{n}": Lazy(n, ToolSpec(name=f"tool{n}", description="customer")) for n in range(size)}


def test_lazy_tools_that_nobody_finds_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "load_table", lambda: None)
    pack = pack_of(200)
    index = SearchIndex((), {"p": pack}, kept_words(*pack.values()))
    assert [spec.kept_as for spec, _ in index.search("customer", 3)] == ["000", "001", "002"]
    assert sum(one.made for one in pack.values()) == 3


def test_with_an_allow_list_no_others_are_looked_at() -> None:
    pack = pack_of(200)
    kept = kept_words(*pack.values())
    index = SearchIndex((), {"p": pack}, kept)
    allowed = ["p.tool7", "p.tool150", "p.gone"]
    for query in ("customer", "tool150", "p tool7", "custmer"):
        every = [(spec.name, score) for spec, score in index.search(query, 200) if spec.name in allowed]
        assert [(spec.name, score) for spec, score in index.search(query, 5, allowed)] == every != []
    for one in pack.values():
        one.made = 0
    assert len(index.search("customer", 5, allowed)) == 2
    assert sum(one.made for one in pack.values()) == 2
    index.update((), {"p": {"t7": pack["t7"]}}, kept)
    assert [spec.name for spec, _ in index.search("customer", 5, allowed)] == ["p.tool7"]


def test_a_store_that_is_ahead_gives_no_other_tool_in_place_of_one_that_is_gone() -> None:
    pack, new = pack_of(3), Lazy(7, ToolSpec(name="tool7", description="volcano"))
    index = SearchIndex((), {"p": pack}, kept_words(pack["t0"], pack["t2"], new))
    assert index.search("volcano") == []
    assert {spec.kept_as for spec, _ in index.search("customer")} == {"000", "001", "002"}, "words it lacks are read"
    index.update((), {"p": {"t0": pack["t0"], "t7": new}}, kept_words(pack["t0"], new))
    assert [spec.kept_as for spec, _ in index.search("customer volcano")] == ["007", "000"]


# --- parts


def specs_of(count: int) -> list[ToolSpec]:
    return [
        ToolSpec(name=f"p{n}.{NAMES[n % 6]}", description=TEXTS[n % 8], tags=("mail",) * (n % 2)) for n in range(count)
    ]


def ranked(words: Words) -> dict[str, list[tuple[str, float]]]:
    """What each query scores, by key."""
    found = {}
    for query in QUERIES:
        points = lexical.scores(words, query_words(query)).tolist()
        found[query] = sorted((key, one) for key, one in zip(words.keys, points, strict=True) if one)
    return found


def test_parts_answer_as_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    documents = {f"{n:02}": document(spec)._replace(age=n % 3) for n, spec in enumerate(specs_of(40))}
    whole, split = WordIndex(), WordIndex()
    for key, one in documents.items():
        whole.put(key, one)
    monkeypatch.setattr(postings, "CHUNK", 7)
    for key, one in documents.items():
        split.put(key, documents["00"])
        split.put(key, one)
    assert ranked(split.current()) == ranked(whole.current())
    assert len(split.current().parts) == 1
    for index in (whole, split):
        for key in ("00", "07", "39"):
            index.drop(key)
        index.put("07", documents["08"])
        index.put("99", documents["00"])
    assert len(split.current().parts) == 2
    assert ranked(split.current()) == ranked(whole.current())
    write_arrays(tmp_path / "words", "words 1", split.merged().saved())
    names = (*TEXT_NAMES, *ARRAY_NAMES)
    saved = read_arrays(tmp_path / "words", "words 1", names)
    assert saved is not None
    again = WordIndex(IndexPart.read(saved)).current()
    assert ranked(again) == ranked(whole.current())
    assert read_arrays(tmp_path / "words", "words 2", names) is None


def npy(header: bytes, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + data


def npz(header: bytes, data: bytes = b"", compression: int = ZIP_STORED) -> bytes:
    stream = BytesIO()
    with ZipFile(stream, "w", compression) as archive:
        archive.writestr("x.npy", npy(header, data) if header else data)
    return stream.getvalue()


HEADER = b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d,)}"
HOSTILE = {
    "empty": b"",
    "text": b"something else",
    "zip": b"PK\x03\x04" + bytes(60),
    "one array": npy(HEADER % 1, bytes(4)),
    "no array": npz(b"", b"something else"),
    "unfinished": npz(b"{'descr':"),
    "petabytes": npz(HEADER % 10**15),
    "number": npz(HEADER % 10**30),
    "bomb": npz(HEADER % 10**6, bytes(4 * 10**6), ZIP_DEFLATED),
}


@pytest.mark.attack("state")
@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_file_of_something_else_is_of_no_use_though_its_checksum_is_right(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "words").write_bytes(b"onetool words 1\n" + crc32(body).to_bytes(4, "big") + body)
    assert read_arrays(tmp_path / "words", "words 1", ["x"]) is None
    write_arrays(tmp_path / "words", "words 1", {"y": np.zeros(3)})
    assert read_arrays(tmp_path / "words", "words 1", ["x"]) is None


def test_what_is_gone_completes_and_corrects_nothing() -> None:
    index = WordIndex()
    index.put("1", Document((), description=["weather", "weathered"]))
    index.put("2", Document((), description=["weathers"], own=["leather"]))
    index = WordIndex(index.merged())
    assert index.current().longer("weat") == ["weather", "weathers", "weathered"]
    index.drop("1")
    words = index.current()
    assert words.longer("weat") == ["weathers"]
    assert words.mistyped("weathr", SCORED) == {}
    assert words.mistyped("weathrs", DESCRIPTION) == {"weathers": 1}
    assert words.mistyped("lether", OWN) == {"leather": 1}


def test_the_order_of_keys_and_of_recency_goes_through_both_parts() -> None:
    index = WordIndex()
    for key, age in (("b", 2), ("d", 1), ("f", 2)):
        index.put(key, Document(["x"], age=age))
    index = WordIndex(index.merged())
    for key, age in (("a", 2), ("c", 2), ("e", 0), ("g", 1)):
        index.put(key, Document(["x"], age=age))
    words = index.current()
    by = lambda places: "".join(words.keys[slot] for slot in np.argsort(places))  # noqa: E731
    assert by(words.by_key) == "abcdefg"
    assert by(words.recency) == "edgabcf"
    assert "".join(key for key, is_behind in zip(words.keys, words.behind(2, "a"), strict=True) if is_behind) == "bfc"


class Tiers(RuleBasedStateMachine):
    """Tools come, change, go and are switched; now and then all goes through arrays."""

    def __init__(self) -> None:
        super().__init__()
        self.index = WordIndex()
        self.documents: dict[str, Document] = {}

    @rule(
        number=st.integers(0, 5),
        spec=tools,
        title=st.sampled_from(["", "Read File", "地图 😀"]),
        group=st.sampled_from("abc"),
        on=st.booleans(),
    )
    def put(self, number: int, spec: ToolSpec, title: str, group: str, on: bool) -> None:
        one = with_titles(document(spec), spec.name, title)._replace(group=group, age=number % 3, enabled=on)
        self.documents[f"id{number}"] = one
        self.index.put(f"id{number}", one)

    @rule(number=st.integers(0, 5))
    def drop(self, number: int) -> None:
        self.documents.pop(f"id{number}", None)
        self.index.drop(f"id{number}")

    @rule()
    def merge(self) -> None:
        self.index.merged()

    @rule()
    def through_arrays(self) -> None:
        self.index = WordIndex(IndexPart.read(self.index.merged().saved()))

    @invariant()
    def answers_like_one_made_anew(self) -> None:
        anew = WordIndex()
        for key, one in self.documents.items():
            anew.put(key, one)
        search, expected = (
            TierSearch(words, words.gathered("enabled").astype(bool), {"a"})
            for words in (self.index.current(), anew.current())
        )
        for query in (*QUERIES, ""):
            for off in (True, False):
                found = search.search(query, off, None, 100)
                assert found == expected.search(query, off, None, 100) == sorted(found)
                assert {place for _, _, place, _, _ in found} <= ({""} if not query else {"1a", "0b", "0c"})
                if found:
                    middle = found[len(found) // 2]
                    assert search.search(query, off, middle, 2) == found[len(found) // 2 + 1 :][:2]


EQUAL = [("z.copy", "proxy:z"), ("b.copy", "local"), ("a.copy", "local"), ("y.copy", "proxy:y")]


def test_of_equals_local_tools_come_first() -> None:
    equal = [ToolSpec(name=name, description="x", source=source) for name, source in EQUAL]
    found = SearchIndex(equal, {"p": {"copy": Lazy(1, ToolSpec(name="copy", description="x"))}}).search("copy", 10)
    assert [spec.name for spec, _ in found] == ["b.copy", "a.copy", "p.copy", "z.copy", "y.copy"]


def test_of_equals_those_of_a_pack_stand_together() -> None:
    equal = [ToolSpec(name=name, description="Copy", source="local") for name in ("b.c1", "a.c1", "b.c2", "a.c2")]
    index = SearchIndex(equal)
    ranking = index._current()
    assert ranking is not None
    ranking.meanings.similarities = lambda *_: None  # their names mean different things
    assert [spec.name for spec, _ in index.search("copy", 10)] == ["b.c1", "b.c2", "a.c1", "a.c2"]


TestTiers = Tiers.TestCase
TestTiers.settings = settings(max_examples=examples(20), stateful_step_count=12, deadline=None)


def test_a_pasted_query_has_few_terms() -> None:
    """Each takes as long as a word of its own."""
    spec = ToolSpec(name="p.id", description="limit which one customer id")
    words = ["IdLimitWhichOneCustomerId" * 4 + f"Id{number}" for number in range(64)]
    keywords = query_words(" ".join(words)).keywords
    assert sum(map(len, keywords)) > 500
    index = WordIndex()
    index.put("1", document(spec))
    assert len([*lexical._known(index.current(), keywords)]) <= lexical.MAX_TERMS
    assert [spec.name for spec, _ in SearchIndex([spec]).search(" ".join(words))] == ["p.id"]
