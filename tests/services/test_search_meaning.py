"""Search by meaning: what it finds that words do not, when it is silent, and how it loads."""

import logging
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from shutil import copytree
from threading import Event

import numpy as np
import pytest
from helpers import each

from onetool.core.spec import ToolSpec
from onetool.services.search import SearchIndex, meaning
from onetool.services.search.blend import MIN_NEAR, fits
from onetool.services.search.meaning import ToolMeanings, WordTable, load_table, tool_vector


def tool(name: str, description: str = "", **more: object) -> ToolSpec:
    return ToolSpec(name=name, description=description, **more)  # type: ignore[arg-type]


TOOLS = (
    tool("currency.convert", "Turn an amount of money into another currency"),
    tool("weather.forecast", "Temperature and rain for the next days in a city"),
    tool("mail.send", "Send an email message to a recipient"),
    tool("files.remove", "Delete a file from the disk"),
    tool("地图.查询", "查询城市的天气预报和空气质量"),
)


def names(query: str, index: SearchIndex) -> list[str]:
    return [spec.name for spec, _ in index.search(query)]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("how many dollars are 100 euros", "currency.convert"),
        ("will I need an umbrella on Sunday", "weather.forecast"),
        ("write a letter to my colleague", "mail.send"),
        ("erase that document", "files.remove"),
    ],
)
def test_finds_what_is_said_in_other_words(query, first, monkeypatch):
    assert names(query, SearchIndex(TOOLS))[0] == first
    monkeypatch.setattr(meaning, "load_table", lambda: None)
    assert first not in names(query, SearchIndex(TOOLS))


def test_the_rare_words_of_a_tool_decide_before_its_meaning():
    index = SearchIndex([*TOOLS, tool("crm.sync", "Reconcile zorblax ledgers nightly")])
    assert names("send an email about zorblax ledgers that reconcile", index)[0] == "crm.sync"


@each("query", ["qqqqzzzzxxxx", "xkcdfoo", "x", "7", "…", "the of and", ""])
def test_finds_nothing_for_what_means_nothing(query):
    assert names(query, SearchIndex(TOOLS)) == []


def test_other_scripts_are_found_by_their_words_and_nothing_is_added():
    index = SearchIndex(TOOLS)
    assert names("天气", index) == names("空气质量怎么样", index) == ["地图.查询"]
    assert ToolMeanings().similarities("天气", []) is None
    assert names("погода", SearchIndex([*TOOLS, tool("b", "Прогноз погоды")])) == ["b"]


def test_accents_do_not_matter():
    table = load_table()
    assert table is not None
    assert table.tokens("Café Élan", 64) == table.tokens("cafe elan", 64)


def test_examples_and_tags_of_a_tool_count():
    plain = tool("a.run", "Run a job")
    told = tool("b.run", "Run a job", examples=('b.run("book a flight to Rome")',))
    tagged = tool("c.run", "Run a job", tags=("aviation",))
    assert names("reserve a flight ticket", SearchIndex([plain, told]))[0] == "b.run"
    assert names("aircraft", SearchIndex([plain, tagged]))[0] == "c.run"


def test_a_tool_that_shares_no_word_has_to_be_near():
    table = load_table()
    assert table is not None
    found = near_all(TOOLS)
    no_words = np.zeros(len(TOOLS))
    near = fits(no_words, found)
    assert [score > 0 for score in near] == [nearness >= MIN_NEAR for nearness in found.near]
    assert not fits(no_words, found._replace(may_find=False)).any()
    words = np.array([1e-9, 500.0, 1.0, 0.0, 0.0])
    both = fits(words, found)
    assert all(0 < score < 1 for score in both[:4])
    assert (both[:3] > near[:3]).all()
    assert fits(words, None)[3] == 0.0


def near_all(tools, query="erase that document", **options):
    meanings = ToolMeanings(**options)
    keys = [str(number) for number in range(len(tools))]
    for key, one in zip(keys, tools, strict=True):
        meanings.set(key, one)
    return meanings.similarities(query, keys)


def test_vectors_are_ready_from_a_file_that_knows_what_they_were_made_of(tmp_path, monkeypatch):
    file, made = tmp_path / "meanings.cache", []
    real = meaning.tool_vector
    monkeypatch.setattr(meaning, "MIN_CACHED", 1)

    def counted(table, spec):
        made.extend([spec.name] if spec is not meaning._SAMPLE else [])
        return real(table, spec)

    monkeypatch.setattr(meaning, "tool_vector", counted)

    def near(specs):
        made.clear()
        return near_all(specs, cache=file).near.tolist()

    first = near(TOOLS)
    assert len(made) == len(TOOLS)
    assert near(TOOLS) == first
    assert made == []
    assert near(TOOLS[::-1]) == first[::-1]
    changed = (*TOOLS[1:], tool("mail.read", "Read a message"))
    assert near(changed)[:-1] == first[1:]
    assert made == ["mail.read"]
    assert near(TOOLS) == first
    assert made == [], "what the file had is there, though it was written anew"
    assert file.stat().st_size < 3 * 528 * len(TOOLS) + 1000
    whole = file.read_bytes()
    other = whole.replace(b"meanings 4", b"meanings 0")
    for harm in (b"", whole[:-7], whole[:-1] + bytes([whole[-1] ^ 1]), b"something else", other):
        file.write_bytes(harm)
        assert near(TOOLS) == first
        assert len(made) == len(TOOLS)
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")
    assert near(TOOLS) == first


class Kept:
    """A lazy tool, whose digest is that of its name."""

    def __init__(self, spec):
        self._spec, self.name, self.digest = spec, spec.name, sha256(spec.name.encode()).digest()

    def spec(self):
        seen.append(self.name)
        return self._spec


seen = []


def test_no_tool_is_made_only_to_find_its_vector(tmp_path, monkeypatch):
    monkeypatch.setattr(meaning, "MIN_CACHED", 1)

    def near(tools):
        seen.clear()
        return near_all(tools, cache=tmp_path / "meanings.cache").near.tolist()

    lazy = [Kept(spec) for spec in TOOLS]
    first = near(lazy)
    assert seen == [spec.name for spec in TOOLS]
    assert near(lazy) == first
    assert seen == []
    assert near(TOOLS) == first


def test_pieces_of_words_tell_tools_apart_but_find_none():
    assert names("qzxtemp", SearchIndex(TOOLS)) == []
    table = load_table()
    assert table is not None
    assert not table.tokens("tempreature", 64).has_word
    assert not table.tokens("please give me", 64).has_word
    assert table.tokens("temperature", 64).has_word


# --- how it loads


def test_a_library_waits_for_meanings_and_a_server_answers_by_words_until_they_are_there(monkeypatch):
    may_load, real = Event(), meaning.load_table

    def slow() -> WordTable | None:
        assert may_load.wait(30)
        return real()

    monkeypatch.setattr(meaning, "load_table", slow)
    index = SearchIndex(TOOLS, background=True)
    assert names("erase that document", index) == []
    assert names("delete a file", index)[0] == "files.remove"
    may_load.set()
    index._current().meanings._thread.join(30)
    assert names("erase that document", index)[0] == "files.remove"


def test_a_tool_that_changes_gets_another_meaning_and_a_forgotten_one_has_none():
    meanings, keys = ToolMeanings(background=True), [*"abcde"]
    for key, spec in zip(keys, TOOLS, strict=True):
        meanings.set(key, spec)
    meanings.load()
    meanings._thread.join(30)
    before = meanings.similarities("erase that document", keys).near
    meanings.set("d", None)
    meanings.set("a", TOOLS[3])
    meanings.set("x", TOOLS[1])
    after = meanings.similarities("erase that document", [*keys, "x"]).near  # few changes: whoever asks makes them
    assert (after[0], after[3]) == (before[3], 0.0)
    assert list(after[1:3]) == list(before[1:3])
    assert after[5] == before[1]


def test_equal_tools_are_equally_near():
    twins = [tool(f"{letter}.same", "Delete a file from the disk") for letter in "zamkb"] * 9
    found = SearchIndex(twins)
    by_pack = sorted(twins, key=lambda spec: "zamkb".index(spec.pack))  # each pack stands together
    assert [spec for spec, _ in found.search("erase that document", 45)] == by_pack
    assert len({score for _, score in found.search("erase that document", 45)}) == 1


def test_a_library_that_gives_equal_vectors_different_digits_is_not_used(monkeypatch):
    usual, tools = WordTable(), [ToolSpec(name=f"weather.read{number}", description="Rain") for number in range(50)]
    before = near_all(tools, "is it going to rain").near
    matmul, last = np.matmul, np.arange(meaning.BLOCK) == meaning.BLOCK - 1

    def another_last_digit(one, other):
        found = matmul(one, other)
        return np.where(last & (np.abs(found) < 0.9), np.nextafter(found, np.float32(2)), found)

    monkeypatch.setattr(np, "matmul", another_last_digit)
    careful = WordTable()
    monkeypatch.setattr(meaning, "load_table", lambda: careful)
    assert (usual._has_equal_blocks, careful._has_equal_blocks) == (True, False)
    assert near_all(tools, "is it going to rain").near == pytest.approx(before, abs=1e-5)


def test_a_table_that_cannot_be_read_is_told_once_and_words_answer(monkeypatch, tmp_path, caplog):
    copytree(meaning.TABLE, tmp_path / "table")
    (tmp_path / "table" / "vectors.i8").write_bytes(b"short")
    monkeypatch.setattr(meaning, "WordTable", lambda: WordTable(tmp_path / "table"))
    meaning._load_once.cache_clear()
    try:
        with caplog.at_level(logging.WARNING, "onetool"):
            index = SearchIndex(TOOLS)
            assert names("delete a file", index)[0] == names("delete the file", SearchIndex(TOOLS))[0] == "files.remove"
        assert len(caplog.records) == 1
        assert "words only" in caplog.text
    finally:
        meaning._load_once.cache_clear()


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


SEARCHED = """
from onetool import SearchIndex, ToolSpec
tools = [ToolSpec(name="files.remove", description="Delete a file"), ToolSpec(name="m.send", description="Send mail")]
print([spec.name for spec, _ in SearchIndex(tools).search("delete a file")])
print([spec.name for spec, _ in SearchIndex(tools).search("erase that document")])
"""


def test_words_answer_where_numpy_cannot_be_imported():
    without = run("import sys; sys.modules['numpy'] = None\n" + SEARCHED)
    assert without.splitlines() == ["['files.remove']", "[]"]


def test_numpy_is_loaded_by_a_search_and_by_nothing_before():
    seen = run(
        "import sys, onetool; from onetool.services.search import SearchIndex; index = SearchIndex([]);"
        "print('numpy' in sys.modules);" + SEARCHED + "\nprint('numpy' in sys.modules)"
    ).splitlines()
    assert (seen[0], seen[-1]) == ("False", "True")


def test_the_table_has_a_row_and_a_weight_for_each_word():
    words = (meaning.TABLE / "vocabulary.txt").read_text("ascii").split()
    assert len(words) == len(set(words))
    assert (meaning.TABLE / "vectors.i8").stat().st_size == len(words) * meaning.DIMENSIONS
    assert (meaning.TABLE / "weights.f32").stat().st_size == len(words) * 4
    notice = (Path(__file__).parents[2] / "NOTICE").read_text("utf-8")
    assert f"{len(words):,} words" in notice


def test_long_texts_cost_what_their_beginning_does():
    table = load_table()
    assert table is not None
    assert len(table.tokens("weather " * 100_000, 128).rows) == 128
    assert table.tokens("x" * 1_000_000, 64).rows == []
    assert tool_vector(table, tool("a.b", "Delete. " * 100_000)).shape == (meaning.DIMENSIONS,)
