"""Stored results: read back as they were, for a while, in a bounded space, by whom they belong to."""

import os
import re
import shutil
import sqlite3
import stat
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers import each, examples, until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from services.pages import query
from services.result_stores import BOTH, disk_bytes, harness, open_state

from onetool.core.errors import BadArguments, ToolFailure
from onetool.database import ChangeUnknownError, DatabaseAwayError, sqlite
from onetool.database.postgres import Postgres
from onetool.database.sqlite import SqliteDatabase
from onetool.services.results import HandleNotFoundError, NotStoredError, ResultExpiredError
from onetool.services.results.paging import lines_of, written
from onetool.services.results.store import ResultStore

DAY = 86_400
MB = 1024 * 1024
LINES = "\n".join(f"line {number}" for number in range(1, 251)) + "\n"


__all__ = ["harness"]


@pytest.fixture
def clock(harness):
    return harness.clock


@pytest.fixture
def results(harness):
    return harness.open(ttl_s=3600, max_total_mb=1)


@pytest.fixture
def home(harness, tmp_path):
    return tmp_path / "home"


# What is kept


def test_a_text_comes_back_as_it_was(results):
    stored = results.put("héllo\nworld\r\n")
    assert len(stored.handle) == 32
    assert stored.handle.isalnum()
    assert (stored.size, stored.lines) == (14, 2)
    assert results.read(stored.handle) == "héllo\nworld\r\n"


@BOTH
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(30))
@given(st.text(st.characters(blacklist_categories=())))
def test_any_text_comes_back_as_it_was(results, text):
    assert results.read(results.put(text).handle) == text


def test_handles_are_all_different(results):
    assert len({results.put("x").handle for _ in range(50)}) == 50


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_only_its_owner_may_look_at_the_files(results, home):
    results.put("secret")
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()} == {0o600}


def test_nothing_is_written_before_there_is_something_to_keep(results, home):
    for read in (results.read, results.page, results.remove):
        with pytest.raises(HandleNotFoundError):
            read("0" * 32)
    assert list(results.kept()) == []
    assert not home.exists()


# Whom it belongs to


@BOTH
def test_the_handle_of_another_owner_is_not_found(results, clock):
    handle = results.put("mine", owner="alice").handle
    assert results.read(handle, owner="alice") == "mine"
    for other in ("bob", "", "alice ", "\udcff"):
        with pytest.raises(HandleNotFoundError):
            results.read(handle, owner=other)
    clock.now += 3600
    results.put("something else")
    results.sweep()
    with pytest.raises(ResultExpiredError):
        results.read(handle, owner="alice")
    with pytest.raises(HandleNotFoundError):
        results.read(handle, owner="bob")


# fmt: off
HOSTILE = [
    "", ".", "..", "../outside", "../" * 5 + "etc/passwd", "/etc/passwd", "a/b", "a\\b", "C:\\x", "nul\0",
    "x" * 100_000, "0" * 31, "0" * 33, "0" * 32 + "\n", "A" * 32, "g" * 32, "' OR 1=1 --", "%s",
    "\ud800" * 32, "٠" * 32, "*", "~", None, 7, b"0" * 32, ["0" * 32],
]
# fmt: on


@pytest.mark.parametrize("handle", HOSTILE, ids=lambda handle: ascii(handle)[:20])
def test_a_hostile_handle_is_not_found_and_asks_no_database(results, monkeypatch, harness, handle):
    results.put("x")
    monkeypatch.setattr(harness.database, "read", lambda _: pytest.fail("asked the database"))
    with pytest.raises(HandleNotFoundError) as caught:
        results.read(handle)
    assert str(caught.value).startswith("Handle not found: ")
    assert len(str(caught.value)) < 500
    assert str(caught.value).isprintable()


# How long it is kept


@BOTH
def test_what_has_expired_is_told_from_what_was_never_there(results, clock, harness):
    handle = results.put("x").handle
    clock.now += 3599
    assert results.read(handle) == "x"
    clock.now += 1
    with pytest.raises(ResultExpiredError, match="expired") as caught:  # still there
        results.read(handle)
    assert caught.value.reason == "expired"
    assert "retention time has passed" in str(caught.value)
    harness.open(max_total_mb=1).put("another")  # the first put of a process sweeps
    assert harness.count() == 1
    with pytest.raises(ResultExpiredError, match="expired"):  # remembered
        results.read(handle)
    with pytest.raises(HandleNotFoundError, match="not found"):
        results.read("0" * 32)


@pytest.mark.parametrize("swept", [0, 1, DAY // 2, DAY - 2])
def test_a_handle_is_remembered_for_a_day_whenever_its_text_went(results, clock, harness, swept):
    handle = results.put("x").handle
    expired = clock.now + 3600
    clock.now = expired + swept
    results.sweep()
    assert harness.count() == 0
    clock.now = expired + DAY - 1
    with pytest.raises(ResultExpiredError):
        results.read(handle)
    clock.now = expired + DAY + 1
    with pytest.raises(HandleNotFoundError):
        results.read(handle)


def test_one_that_nobody_took_away_is_forgotten_in_time(results, clock, harness):
    handle = results.put("x").handle
    clock.now += 3600 + DAY
    with pytest.raises(HandleNotFoundError):
        results.read(handle)
    results.sweep()
    assert harness.is_empty()


# How much is kept


@BOTH
def test_the_oldest_go_first_when_there_is_no_room(results, harness):
    handles = [results.put("x" * 300_000).handle for _ in range(5)]
    assert harness.total() <= MB
    for handle in handles[:2]:
        with pytest.raises(ResultExpiredError, match="make room"):
            results.read(handle)
    for handle in handles[2:]:
        assert len(results.read(handle)) == 300_000


@BOTH
def test_who_stores_most_loses_its_own_oldest(results, harness):
    """What a flood of one caller never displaces, and what it is told when only other callers' results are left."""
    small = {owner: results.put(owner * 100_000, owner, value=f'"{owner}"').handle for owner in "abc"}
    flood = [results.put("x" * 200_000, "flood", value='"x"').handle for _ in range(8)]
    assert harness.total() <= MB
    for owner, handle in small.items():
        assert results.read(handle, owner) == owner * 100_000
        assert results.load(handle, owner) == owner
    with pytest.raises(ResultExpiredError, match="make room"):
        results.read(flood[0], "flood")
    assert results.load(flood[-1], "flood") == "x"
    assert [kept.handle for kept in results.kept("a")] == [small["a"]]
    with pytest.raises(NotStoredError, match=r"has 800,000 bytes, and results of others"):
        results.put("x" * 800_000, "flood")
    assert results.read(results.put("new", "d").handle, "d") == "new"
    assert all(results.load(handle, owner) == owner for owner, handle in small.items())


@pytest.mark.parametrize("size", [100, 10_000, 70_000, 600_000, MB])
def test_the_bound_holds_after_every_put_and_the_newest_is_there(results, harness, size):
    for number in range(max(4, min(150, 3 * MB // size))):
        text = str(number % 10) * size
        assert results.read(results.put(text).handle) == text
        assert harness.total() <= MB


def test_what_is_larger_than_all_may_be_is_refused_and_nothing_goes_for_it(results):
    handle = results.put("small").handle
    with pytest.raises(NotStoredError, match="1,048,577 bytes"):
        results.put("x" * (MB + 1))
    assert results.read(handle) == "small"


def test_a_put_that_has_room_does_not_sweep(harness, monkeypatch):
    results, swept = harness.open(max_total_mb=100), []
    monkeypatch.setattr(results, "sweep", lambda: swept.append(1) or set())
    for _ in range(100):
        results.put("x" * 20_000)
    assert len(swept) == 1
    monkeypatch.setattr(results, "_next_sweep", 0.0)  # a minute later
    results.put("x")
    assert len(swept) == 2


def test_the_files_stay_within_the_bound(harness, home):
    results = harness.open(max_total_mb=16)
    for _ in range(12):
        results.put(os.urandom(3 * MB // 2).hex())
        assert disk_bytes(home) <= 16 * MB


def test_deleted_texts_are_given_back_to_the_system(harness, home, clock):
    results = harness.open(max_total_mb=64)
    handles = [results.put(os.urandom(10 * MB).hex()).handle for _ in range(2)]
    assert disk_bytes(home) > 20 * MB
    results.remove(handles[0])
    assert disk_bytes(home) < 18 * MB
    clock.now += 3601
    results.sweep()
    assert disk_bytes(home) < 2 * MB


# What one process does to another


@pytest.fixture
def other(database_url, database):
    """Another replica."""
    found = Postgres(database_url)
    yield ResultStore(found, 3600, 100)
    found.close()


def test_what_one_replica_keeps_all_of_them_read_list_and_remove(database, other):
    results, text = ResultStore(database, 3600, 100), "line\n" * MB
    handle = results.put(text, "ada", "files.read").handle
    assert other.read(handle, "ada") == text
    assert other.page(handle, "ada", offset=MB)["lines"] == ["line"]
    assert [(one.handle, one.name) for one in other.kept("ada")] == [(handle, "files.read")]
    other.remove(handle, "ada")
    with pytest.raises(HandleNotFoundError):
        results.read(handle, "ada")
    assert list(results.kept("ada")) == []


def test_a_damaged_row_is_told(harness):
    results = harness.open()
    handle = results.put("a line").handle
    harness.database.write(lambda work: work.execute("UPDATE results SET text = %s", (b"\xff",)))
    with pytest.raises(ToolFailure, match="can't be read: it is damaged"):
        results.read(handle)


@BOTH
def test_the_bound_holds_over_stores_that_put_at_once(harness):
    stores = [harness.open(max_total_mb=1) for _ in range(4)]

    def put(store):
        return [store.put("x" * 60_000).handle for _ in range(10)]

    with ThreadPoolExecutor(4) as pool:
        handles = [handle for some in pool.map(put, stores) for handle in some]
    assert 0 < harness.total() <= MB
    states = {"kept": 0, "room": 0}
    for handle in handles:
        try:
            states["kept"] += len(stores[0].read(handle)) == 60_000
        except ResultExpiredError as error:
            states["room"] += "make room" in str(error)
    assert states == {"kept": harness.count(), "room": 40 - harness.count()}


# When it can't be kept


def test_a_folder_that_can_not_be_written_is_told(tmp_path, caplog):
    (tmp_path / "home").write_text("a file is in its place")
    with pytest.raises(NotStoredError, match="could not be stored") as caught:
        ResultStore(open_state(tmp_path / "home"), 3600, 1).put("x")
    assert "state.db can't be used: File exists" in str(caught.value)
    assert str(tmp_path) not in str(caught.value)  # callers read it
    assert f"{tmp_path}/home/state.db can't be used" in caplog.text


class FullDisk(SqliteDatabase):
    """A file that can't grow over some pages."""

    def _connect(self):
        connection = super()._connect()
        connection.execute("PRAGMA max_page_count = 600")
        return connection


def test_a_full_disk_is_told_and_loses_nothing_else(tmp_path):
    results = ResultStore(FullDisk(tmp_path / "state.db"), 3600, 64)
    handle = results.put("x" * MB).handle
    with pytest.raises(NotStoredError, match="disk is full"):
        results.put(os.urandom(3 * MB).hex())
    assert results.read(handle) == "x" * MB
    results.remove(handle)
    assert results.read(results.put("z" * (MB // 2)).handle) == "z" * (MB // 2)


def test_a_file_that_another_process_locks_is_told_and_still_read(harness, home, monkeypatch):
    results = harness.open()
    handle = results.put("kept").handle
    monkeypatch.setattr(sqlite, "BUSY_S", 0.01)
    waiting = ResultStore(open_state(home), 3600, 8)
    with sqlite3.connect(home / "state.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        later = waiting.put("x", value='["x"]').handle
        assert (waiting.read(handle), len(list(waiting.kept()))) == ("kept", 1)
        assert (waiting.read(later), waiting.load(later)) == ("x", ["x"])
        with pytest.raises(HandleNotFoundError):
            waiting.read(later, "another")
        waiting.remove(waiting.put("not wanted").handle)
    other.close()
    until(lambda: len(list(results.kept())) == 2)
    assert (results.read(later), results.load(later)) == ("x", ["x"])


def test_a_home_that_vanished_is_made_again(results, home):
    old = results.put("old").handle
    shutil.rmtree(home)
    assert results.read(results.put("new").handle) == "new"
    with pytest.raises(HandleNotFoundError):
        results.read(old)


class Lost:
    """A database that is lost."""

    clock = "0"

    def __init__(self, error):
        self.error = error

    def read(self, job, **_):
        raise self.error

    write = read

    def spare_bytes(self):
        return 0


def test_away_is_told_in_words():
    results = ResultStore(Lost(DatabaseAwayError("no route")), 3600, 1)
    assert results.read(results.put("x").handle) == "x"
    with pytest.raises(NotStoredError, match=r"could not be stored: the database can't be reached"):
        [results.put(os.urandom(MB // 2).hex()) for _ in range(100)]
    for read in (
        lambda: results.read("0" * 32),
        lambda: results.page("0" * 32),
        lambda: results.remove("0" * 32),
        lambda: list(results.kept()),
    ):
        with pytest.raises(ToolFailure, match="can't be read: the database can't be reached") as caught:
            read()
        assert caught.value.reason == "source_unavailable"
    results.sweep()


def test_a_put_whose_end_is_unknown_is_made_again():
    results = ResultStore(Lost(ChangeUnknownError()), 3600, 1)
    assert results.read(results.put("x").handle) == "x"


# Pages


def test_the_first_page():
    page = query(LINES)
    assert list(page) == ["lines", "total_lines", "returned", "offset", "has_more"]
    assert page["lines"] == [f"line {number}" for number in range(1, 101)]
    assert (page["total_lines"], page["returned"], page["offset"], page["has_more"]) == (250, 100, 1, True)


@each(
    ("offset", "limit", "returned", "has_more"),
    [(1, 250, 250, False), (1, 249, 249, True), (201, 50, 50, False), (201, 100, 50, False), (250, 1, 1, False),
     (251, 10, 0, False), (10**30, 10**30, 0, False)],
)  # fmt: skip
def test_pages_at_the_end(offset, limit, returned, has_more):
    page = query(LINES, offset, limit)
    assert (page["returned"], page["has_more"], page["total_lines"]) == (returned, has_more, 250)


@given(st.text("ab\n\r", max_size=60), st.integers(1, 9))
def test_pages_together_are_the_whole(text, limit):
    lines, offset = [], 1
    while True:
        page = query(text, offset, limit)
        lines += page["lines"]
        offset += page["returned"]
        if not page["has_more"]:
            break
    assert lines == lines_of(text)
    assert len(lines) == page["total_lines"]


@each(
    ("text", "lines"),
    [("", []), ("\n", [""]), ("a", ["a"]), ("a\n", ["a"]), ("a\n\n", ["a", ""]), ("a\r\nb", ["a", "b"]),
     ("a\rb", ["a\rb"]), ("a\u2028b\x0cc\x85d", ["a\u2028b\x0cc\x85d"])],
)  # fmt: skip
def test_lines_are_what_an_editor_counts(text, lines):
    assert lines_of(text) == lines


def test_a_line_is_one_line_however_long_it_is():
    long = "x" * (2 * MB + 5)
    page = query(f"first\n{long}\n\nlast", limit=3)
    assert (page["lines"], page["total_lines"], page["has_more"]) == (["first", long, ""], 4, True)


def test_an_empty_search_is_none():
    assert query(LINES, search="") == query(LINES, search="", fuzzy=True) == query(LINES)


@each("search", ["line 1", "^line 1$", r"\b25\b", "(?i)LINE 2$", "LINE", r"[13]0$", "1|2", r"\d{3}"])
def test_a_search_is_a_regular_expression(search):
    page = query(LINES, search=search, limit=1000)
    assert page["lines"] == [line for line in LINES.splitlines() if re.search(search, line)]
    assert (page["total_lines"], page["has_more"]) == (250, False)


@each("search", ["(a+)+$", "(a|a)*$", "(a|aa)+$", "(.*)*x", r"(\w+\s?)*$", "(x+x+)+y"])
def test_no_pattern_takes_for_ever(search):
    text = "\n".join(["a" * 5_000 + "!", "x" * 5_000] * 20)
    query(text, search=search)


@each("search", ["(", "[", "*", "a(?=b)", r"(a)\1", r"\h", "a{1000}{1000}{1000}", "\ud800", "x" * 1001])
def test_a_pattern_that_can_not_be_used_is_told(search):
    with pytest.raises(ValueError, match=r"^search ") as caught:
        query(LINES, search=search)
    assert isinstance(caught.value, BadArguments)
    assert len(str(caught.value)) < 400


def test_a_search_that_takes_too_long_is_ended(monkeypatch):
    monkeypatch.setattr(sys.modules["onetool.services.results.paging"], "MAX_SEARCH_S", -1.0)
    for fuzzy in (False, True):
        with pytest.raises(ToolFailure, match="took more than"):
            query(LINES, search="x", fuzzy=fuzzy)


def test_half_characters_are_searched_around():
    assert query("bad \ud800 line\ngood line", search="line")["lines"] == ["bad \ud800 line", "good line"]
    assert query("bad \ud800 line\ngood line", search="line", fuzzy=True)["returned"] == 2


def test_fuzzy_gives_the_best_first():
    text = "nothing here\nthe confguration\nCONFIGURATION of all\nconfgi\nc\n\nthe configuration"
    page = query(text, search="configuration", fuzzy=True)
    assert page["lines"] == ["CONFIGURATION of all", "the configuration", "the confguration"]
    assert query(text, 2, 1, search="configuration", fuzzy=True)["lines"] == ["the configuration"]


def test_fuzzy_takes_marks_as_they_are():
    assert query("a\n(x[\n", search="(x[", fuzzy=True)["lines"] == ["(x["]


def test_a_page_is_cut_where_it_would_be_too_large():
    page = query("\n".join(["x" * 100] * 50), max_bytes=1000)
    fit = 1000 // written("x" * 100)
    assert (page["returned"], page["has_more"], page["cut"]) == (fit, True, True)
    assert page["next"] == {"offset": fit + 1, "column": 1}
    page = query("x" * 100, max_bytes=1)
    assert (page["lines"], page["next"]) == (["x"], {"offset": 1, "column": 2})
