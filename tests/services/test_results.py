"""Kept results: read back as they were, for a while, in a bounded space, by whom they belong to."""

import errno
import os
import re
import stat
import subprocess
import sys

import pytest
from helpers import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from services.pages import query
from services.result_stores import Clock, harness

from onetool.core.errors import BadArguments, ToolFailure
from onetool.core.state_folders import MARKER
from onetool.services.results import HandleNotFoundError, NotStoredError, ResultExpiredError, ResultStore
from onetool.services.results.paging import PIECE, lines_of, written

DAY = 86_400
LINES = "\n".join(f"line {number}" for number in range(1, 251)) + "\n"


__all__ = ["harness"]


@pytest.fixture
def clock(harness):
    return harness.clock


@pytest.fixture
def results(harness):
    """Of a folder, then of a database."""
    return harness.open(ttl_s=3600, max_total_mb=1)


@pytest.fixture
def file_clock():
    return Clock()


@pytest.fixture
def file_results(tmp_path, file_clock):
    """For what is about files alone."""
    return ResultStore(tmp_path / "results", ttl_s=3600, max_total_mb=1, now=file_clock)


def files(folder):
    return [path for path in folder.iterdir() if path.suffix == ".txt" and not path.name.startswith(".")]


def total(folder):
    return sum(path.stat().st_size for path in files(folder))


# What is kept


def test_a_text_comes_back_as_it_was(results):
    stored = results.put("héllo\nworld\r\n")
    assert len(stored.handle) == 32
    assert stored.handle.isalnum()
    assert (stored.size, stored.lines) == (14, 2)
    assert results.read(stored.handle) == "héllo\nworld\r\n"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(50))
@given(st.text(st.characters(blacklist_categories=())))
def test_any_text_comes_back_as_it_was(results, text):
    assert results.read(results.put(text).handle) == text


def test_handles_are_all_different(results):
    assert len({results.put("x").handle for _ in range(50)}) == 50


def test_another_process_reads_it(file_results, tmp_path):
    handle = ResultStore(tmp_path / "results", 3600, 1).put("from here").handle
    code = f"""
from pathlib import Path
from onetool.services.results import ResultStore as Results
print(Results(Path({str(tmp_path / "results")!r}), 3600, 1).read({handle!r}))
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert output.stdout == "from here\n"


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_only_its_owner_may_look_at_the_folder(file_results, tmp_path):
    file_results.put("secret")
    assert stat.S_IMODE((tmp_path / "results").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "results").iterdir()} == {0o600}


def test_the_folder_tells_no_handle(file_results, tmp_path):
    handle = file_results.put("x").handle
    assert not any(handle in path.name for path in (tmp_path / "results").iterdir())


def test_nothing_is_written_before_there_is_something_to_keep(file_results, tmp_path):
    with pytest.raises(HandleNotFoundError):
        file_results.read("0" * 32)
    file_results.sweep()
    assert not (tmp_path / "results").exists()


# Whom it belongs to


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
    "x" * 100_000, "0" * 31, "0" * 33, "0" * 32 + "\n", "0" * 32 + ".txt", "A" * 32, "g" * 32, "ended-19000",
    "\ud800" * 32, "٠" * 32, "*", "~", None, 7, b"0" * 32, ["0" * 32],
]
# fmt: on


@pytest.mark.parametrize("handle", HOSTILE, ids=lambda handle: ascii(handle)[:20])
def test_a_hostile_handle_is_not_found_and_touches_no_file(file_results, monkeypatch, handle):
    file_results.put("x")
    monkeypatch.setattr("builtins.open", lambda *_, **__: pytest.fail("touched a file"))
    with pytest.raises(HandleNotFoundError) as caught:
        file_results.read(handle)
    assert str(caught.value).startswith("Handle not found: ")
    assert len(str(caught.value)) < 500
    assert str(caught.value).isprintable()


def test_files_outside_are_out_of_reach(file_results, tmp_path):
    (tmp_path / "outside.txt").write_text("secret")
    file_results.put("x")
    for handle in ("../outside.txt", "../outside", str(tmp_path / "outside")):
        with pytest.raises(HandleNotFoundError):
            file_results.read(handle)


# How long it is kept


def test_what_has_expired_is_told_from_what_was_never_there(results, clock, harness):
    handle = results.put("x").handle
    clock.now += 3599
    assert results.read(handle) == "x"
    clock.now += 1
    with pytest.raises(ResultExpiredError, match="expired") as caught:  # still there
        results.read(handle)
    assert caught.value.reason == "expired"
    assert "time is up" in str(caught.value)
    clock.now += 61
    results.put("another")
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


def test_lists_of_what_has_ended_are_removed(file_results, file_clock, tmp_path):
    for _ in range(10):
        file_results.put("x")
        file_clock.now += DAY / 2
    assert len(list((tmp_path / "results").glob("ended-*"))) <= 3


def test_what_a_process_left_half_written_is_removed(file_results, file_clock, tmp_path):
    file_results.put("x")
    draft = tmp_path / "results" / f".{'0' * 32}.txt"
    draft.write_text("half")
    os.utime(draft, (file_clock.now, file_clock.now))
    file_results.sweep()
    assert draft.exists()
    file_clock.now += 3601
    file_results.sweep()
    assert not draft.exists()


def test_files_of_others_are_left_alone(file_results, file_clock, tmp_path):
    file_results.put("x")
    for name in ("README", "notes.txt", ".hidden", "ended-soon"):
        (tmp_path / "results" / name).write_text("mine")
        os.utime(tmp_path / "results" / name, (0, 0))
    file_clock.now += 3 * DAY
    file_results.sweep()
    names = {path.name for path in (tmp_path / "results").iterdir()}
    assert names - {".gitignore", MARKER} == {"README", "notes.txt", ".hidden", "ended-soon"}


# How much is kept


def test_the_oldest_go_first_when_there_is_no_room(results, harness):
    handles = [results.put("x" * 300_000).handle for _ in range(5)]
    assert harness.total() <= 1024 * 1024
    for handle in handles[:2]:
        with pytest.raises(ResultExpiredError, match="make room"):
            results.read(handle)
    for handle in handles[2:]:
        assert len(results.read(handle)) == 300_000


@pytest.mark.parametrize("size", [100, 10_000, 70_000, 600_000, 1024 * 1024])
def test_the_bound_holds_after_every_put_and_the_newest_is_there(results, harness, size):
    for number in range(max(4, min(150, 3 * 1024 * 1024 // size))):
        text = str(number % 10) * size
        assert results.read(results.put(text).handle) == text
        assert harness.total() <= 1024 * 1024


def test_what_is_larger_than_all_may_be_is_refused_and_nothing_goes_for_it(results):
    handle = results.put("small").handle
    with pytest.raises(NotStoredError, match="1,048,577 bytes"):
        results.put("x" * (1024 * 1024 + 1))
    assert results.read(handle) == "small"


def test_the_folder_is_not_looked_through_at_every_put(tmp_path, file_clock, monkeypatch):
    results, clock = ResultStore(tmp_path, 3600, 100, now=file_clock), file_clock
    looked = []
    monkeypatch.setattr(results, "sweep", lambda real=results.sweep: (looked.append(1), real()))
    for _ in range(200):
        results.put("x" * 20_000)
    assert len(looked) == 1
    clock.now += 61
    results.put("x")
    assert len(looked) == 2


def test_many_processes_share_one_folder(tmp_path):
    code = """
import sys
from pathlib import Path
from onetool.services.results import ResultExpiredError, ResultStore as Results
results, mine = Results(Path(sys.argv[1]), 3600, 1), {}
for number in range(40):
    text = f"{sys.argv[2]} {number} " * 3_000
    mine[results.put(text).handle] = text
    for handle, text in mine.items():
        try:
            assert results.read(handle) == text
        except ResultExpiredError as error:
            assert "make room" in str(error), error
"""
    folder = tmp_path / "results"
    processes = [subprocess.Popen([sys.executable, "-c", code, str(folder), str(number)]) for number in range(4)]
    assert [process.wait(60) for process in processes] == [0] * 4
    assert 0 < total(folder) <= 1024 * 1024 * 5 // 4  # the others may have written after the last one that looked
    assert not list(folder.glob(".*.txt"))
    ResultStore(folder, 3600, 1).sweep()
    assert 0 < total(folder) <= 1024 * 1024


# When it can't be kept


def test_a_folder_that_can_not_be_written_is_told(tmp_path):
    (tmp_path / "results").write_text("a file is in its place")
    with pytest.raises(NotStoredError, match="could not be kept") as caught:
        ResultStore(tmp_path / "results", 3600, 1).put("x")
    assert isinstance(caught.value, ToolFailure)
    assert str(tmp_path) in str(caught.value)


def test_a_full_disk_is_told_and_leaves_nothing_behind(file_results, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    file_results.put("x")
    monkeypatch.setattr(os, "utime", full)
    with pytest.raises(NotStoredError, match="No space left on device"):
        file_results.put("y")
    assert len(list((tmp_path / "results").glob("*.txt"))) == 1


def test_a_folder_that_vanished_is_made_again(file_results, tmp_path):
    old = file_results.put("old").handle
    for path in (tmp_path / "results").iterdir():
        path.unlink()
    (tmp_path / "results").rmdir()
    assert file_results.read(file_results.put("new").handle) == "new"
    with pytest.raises(HandleNotFoundError):
        file_results.read(old)


@pytest.mark.parametrize("line", ["", " 17", " soon expired", " 1 2 3"])
def test_a_list_that_is_broken_is_no_reason_to_fail(file_results, file_clock, tmp_path, line):
    handle = file_results.put("x").handle
    name = files(tmp_path / "results")[0]
    name.unlink()
    (tmp_path / "results" / f"ended-{int(file_clock.now // DAY)}").write_text(f"{name.name}{line}\n")
    with pytest.raises(HandleNotFoundError):
        file_results.read(handle)


# Pages


def test_the_first_page():
    page = query(LINES)
    assert list(page) == ["lines", "total_lines", "returned", "offset", "has_more"]
    assert page["lines"] == [f"line {number}" for number in range(1, 101)]
    assert (page["total_lines"], page["returned"], page["offset"], page["has_more"]) == (250, 100, 1, True)


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    ("text", "lines"),
    [("", []), ("\n", [""]), ("a", ["a"]), ("a\n", ["a"]), ("a\n\n", ["a", ""]), ("a\r\nb", ["a", "b"]),
     ("a\rb", ["a\rb"]), ("a\u2028b\x0cc\x85d", ["a\u2028b\x0cc\x85d"])],
)  # fmt: skip
def test_lines_are_what_an_editor_counts(text, lines):
    assert lines_of(text) == lines


def test_a_line_is_one_line_however_long_it_is():
    long = "x" * (2 * PIECE + 5)
    page = query(f"first\n{long}\n\nlast", limit=3)
    assert (page["lines"], page["total_lines"], page["has_more"]) == (["first", long, ""], 4, True)


def test_an_empty_search_is_none():
    assert query(LINES, search="") == query(LINES, search="", fuzzy=True) == query(LINES)


@pytest.mark.parametrize("search", ["line 1", "^line 1$", r"\b25\b", "(?i)LINE 2$", "LINE", r"[13]0$", "1|2", r"\d{3}"])
def test_a_search_is_a_regular_expression(search):
    page = query(LINES, search=search, limit=1000)
    assert page["lines"] == [line for line in LINES.splitlines() if re.search(search, line)]
    assert (page["total_lines"], page["has_more"]) == (250, False)


@pytest.mark.parametrize("search", ["(a+)+$", "(a|a)*$", "(a|aa)+$", "(.*)*x", r"(\w+\s?)*$", "(x+x+)+y"])
def test_no_pattern_takes_for_ever(search):
    text = "\n".join(["a" * 5_000 + "!", "x" * 5_000] * 20)
    query(text, search=search)


@pytest.mark.parametrize(
    "search", ["(", "[", "*", "a(?=b)", r"(a)\1", r"\h", "a{1000}{1000}{1000}", "\ud800", "x" * 1001]
)
def test_a_pattern_that_can_not_be_used_is_told(search):
    with pytest.raises(ValueError, match=r"^search ") as caught:
        query(LINES, search=search)
    assert isinstance(caught.value, BadArguments)
    assert len(str(caught.value)) < 400


def test_a_search_that_takes_too_long_is_ended(monkeypatch):
    monkeypatch.setattr(sys.modules["onetool.services.results.paging"], "MOST_SECONDS", -1.0)
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
    page = query("\n".join(["x" * 100] * 50), most_bytes=1000)
    fit = 1000 // written("x" * 100)
    assert (page["returned"], page["has_more"], page["cut"]) == (fit, True, True)
    assert page["next"] == {"offset": fit + 1, "column": 1}
    page = query("x" * 100, most_bytes=1)
    assert (page["lines"], page["next"]) == (["x"], {"offset": 1, "column": 2})
