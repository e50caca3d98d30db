"""Pages of kept results: the same as of the text in memory, for the price of what is on them."""

import io
import os
import re
import tracemalloc
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz import fuzz
from services.pages import query

from onetool.core.errors import ToolFailure
from onetool.services.results import (
    SMALL,
    HandleNotFoundError,
    NotStoredError,
    ResultExpiredError,
    ResultStore,
    ResultTooLargeError,
)
from onetool.services.results.paging import MOST_BYTES, PIECE, lines_of, pieces, written

ROOM = "onetool.services.results"
MB = 1024 * 1024


@pytest.fixture
def results(tmp_path):
    return ResultStore(tmp_path / "results", ttl_s=3600, max_total_mb=100)


def only_file(folder):
    [file] = (folder / "results").glob("*.txt")
    return file


@contextmanager
def everything_small():
    """Pieces of 6 characters, all of them in an index: then short texts have all that long ones have."""
    with ExitStack() as stack:
        for name, value in {"paging.PIECE": 6, "paging._WINDOW": 8, "SMALL": 0}.items():
            stack.enter_context(patch(f"{ROOM}.{name}", value))
        yield


# The same as a plain definition says


def plain_lines(text):
    lines = text.replace("\r\n", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def plain_page(lines, found, offset, limit, most_bytes, column=1):
    asked = found[offset - 1 : offset - 1 + limit]
    asked[:1] = [line[column - 1 :] for line in asked[:1]]
    page = {"total_lines": len(lines), "offset": offset, **({"column": column} if column > 1 else {})}
    too_long = (at for at in range(len(asked)) if sum(map(written, asked[: at + 1])) > most_bytes)
    fit = next((at for at in too_long if at or len(asked[0]) > 1), len(asked))
    if fit == len(asked):
        return {**page, "lines": asked, "returned": len(asked), "has_more": offset - 1 + len(asked) < len(found)}
    sent, next_ = asked[:fit], {"offset": offset + fit, "column": 1}
    if not fit:
        [first, *_] = asked
        part = max([1, *(at for at in range(len(first)) if written(first[:at]) <= most_bytes)])
        sent, next_ = [first[:part]], {"offset": offset, "column": column + part}
    return {**page, "lines": sent, "returned": len(sent), "has_more": True, "cut": True, "next": next_}


TEXTS = st.text(st.sampled_from("ab\n\r\ud800\udc00é€🦊"), max_size=60) | st.text("ab\n\r", max_size=80)
PAGES = {
    "offset": st.integers(1, 30) | st.just(10**30),
    "limit": st.integers(1, 30) | st.just(10**30),
    "most_bytes": st.just(MOST_BYTES) | st.integers(0, 80),
    "column": st.just(1) | st.integers(1, 20) | st.just(10**30),
}


@given(TEXTS)
def test_the_lines_of_its_pieces_are_the_lines_of_a_text(text):
    with everything_small():
        assert lines_of("".join(pieces(text))) == plain_lines(text)
        assert "".join(pieces(text)) == text
        assert all(pieces(text))


@given(text=TEXTS, **PAGES)
def test_a_page_is_what_it_would_be_of_the_text_in_memory(tmp_path_factory, text, offset, limit, most_bytes, column):
    folder = tmp_path_factory.mktemp("results")
    with everything_small():
        results = ResultStore(folder, 3600, 1)
        stored = results.put(text)
        page = results.page(stored.handle, "", offset, limit, most_bytes=most_bytes, column=column)
        lines = plain_lines(text)
        assert page == plain_page(lines, lines, offset, limit, most_bytes, column)
        assert page == query(text, offset, limit, most_bytes=most_bytes, column=column)
        assert (stored.lines, stored.size) == (len(lines), len(text.encode("utf-8", "surrogatepass")))
        assert results.read(stored.handle) == text


SEARCHES = ["a", "ab", "^a", "b$", "^$", "a.b", "a[^a]b", r"a\s*b", r"\bab\b", r"\Aa", "é|🦊", r"\r", "(?i)A", "."]


@given(text=TEXTS, search=st.sampled_from(SEARCHES), **PAGES)
def test_a_search_finds_the_lines_that_match_and_no_others(
    tmp_path_factory, text, search, offset, limit, most_bytes, column
):
    folder = tmp_path_factory.mktemp("results")
    with everything_small():
        results = ResultStore(folder, 3600, 1)
        page = results.page(results.put(text).handle, "", offset, limit, search, most_bytes=most_bytes, column=column)
        lines = plain_lines(text)
        pattern = re.compile(search.replace(".", r"[^\n]"))
        order = [at for at, line in enumerate(lines) if pattern.search(re.sub("[\ud800-\udfff]", "?", line))]
        assert [at + 1 for at in order[offset - 1 :][: page["returned"]]] == page.pop("numbers")
        assert page == plain_page(lines, [lines[at] for at in order], offset, limit, most_bytes, column)


@given(text=st.text("abc\n", max_size=80), search=st.text("abC", min_size=1, max_size=3), **PAGES)
def test_a_fuzzy_search_gives_the_best_first(tmp_path_factory, text, search, offset, limit, most_bytes, column):
    folder = tmp_path_factory.mktemp("results")
    with everything_small(), patch(f"{ROOM}.paging.LONG", 12):
        results = ResultStore(folder, 3600, 1)
        page = results.page(results.put(text).handle, "", offset, limit, search, True, most_bytes, column)
        lines = plain_lines(text)
        wanted = search.lower()
        scores = [(fuzz.partial_ratio if len(line) >= len(wanted) else fuzz.ratio)(wanted, line) for line in lines]
        order = sorted((-score, at) for at, score in enumerate(scores) if score >= 70)
        assert [at + 1 for _, at in order[offset - 1 :][: page["returned"]]] == page.pop("numbers")
        assert page == plain_page(lines, [lines[at] for _, at in order], offset, limit, most_bytes, column)


@pytest.mark.parametrize("end", ["", "\n", "\r", "\r\n", "\r\r\n", "x", "é", "\ud800", "\nx"])
@pytest.mark.parametrize("length", [PIECE - 2, PIECE - 1, PIECE, PIECE + 1, PIECE + 2])
def test_what_is_at_the_end_of_a_piece_is_neither_lost_nor_counted_twice(results, length, end, monkeypatch):
    monkeypatch.setattr("onetool.services.results.SMALL", PIECE)  # what is larger is read in pieces
    for character in ("x", "é"):
        text = "first\n" + character * length + end
        text += "\nlast" if len(text) % 2 else "more"
        text = text * 3
        stored = results.put(text)
        lines = plain_lines(text)
        assert results.page(stored.handle, limit=10**9)["lines"] == lines
        assert stored.lines == len(lines)


# What it costs


class Counted(io.FileIO):
    """A file that counts the bytes that are really read of it."""

    read_bytes = 0

    def readinto(self, buffer):
        count = super().readinto(buffer)
        Counted.read_bytes += count
        return count

    def read(self, size=-1):
        data = super().read(size)
        Counted.read_bytes += len(data)
        return data

    def readall(self):
        raise AssertionError("read as a whole")


@contextmanager
def counting():
    """Tells the bytes read, and the most memory that was taken meanwhile. However long it takes: tracing is slow."""
    Counted.read_bytes = 0
    cost = {}
    counted = patch(f"{ROOM}.open", lambda file, mode: io.BufferedReader(Counted(file, "r")), create=True)
    with counted, patch(f"{ROOM}.paging.MOST_SECONDS", 600):
        tracemalloc.start()
        try:
            yield cost
            cost.update(read=Counted.read_bytes, memory=tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A result of 60 MB, and one that is a single line."""
    results = ResultStore(tmp_path_factory.mktemp("large"), ttl_s=3600, max_total_mb=200)
    many = "".join(f"line {number} of a rather long result é\n" for number in range(1, 10_001))
    text = many * (60 * MB // len(many))
    yield results, results.put(text), results.put("0123456789" * (6 * MB))
    for file in results._folder.iterdir():
        file.unlink()


@pytest.mark.parametrize("single", [False, True])
def test_a_page_costs_the_same_wherever_it_is(large, single):
    results, *both = large
    stored = both[single]
    assert stored.size > 60_000_000
    costs = []
    for at in (1, 30_000_000, 60_000_000) if single else (1, stored.lines // 2, stored.lines - 99):
        with counting() as cost:
            page = results.page(stored.handle, most_bytes=16384, **{"column" if single else "offset": at})
        costs.append(cost)
        assert page["returned"] == (1 if single else 100)
        assert page["total_lines"] == stored.lines
    assert page["has_more"] is page.get("cut", False) is single
    assert max(cost["read"] for cost in costs) < 512 * 1024
    assert max(cost["memory"] for cost in costs) < 4 * MB


def test_a_page_after_the_end_costs_next_to_nothing(large):
    results, stored, _ = large
    with counting() as cost:
        assert results.page(stored.handle, offset=stored.lines + 1)["returned"] == 0
    assert cost["read"] < 256 * 1024


@pytest.mark.parametrize(("single", "search"), [(False, "line 10000 .* of"), (False, "é"), (True, "not in it$")])
def test_a_search_takes_little_memory(large, single, search):
    results, *both = large
    stored = both[single]
    with counting() as cost:
        assert results.page(stored.handle, search=search, most_bytes=8192)["total_lines"] == stored.lines
    assert cost["memory"] < 8 * MB


def test_a_line_of_many_megabytes_is_found_once_and_cut(large):
    results, _, stored = large
    for search, fuzzy in (("90123", False), ("9O12345678", True)):
        with patch(f"{ROOM}.paging.MOST_SECONDS", 600):
            page = results.page(stored.handle, search=search, fuzzy=fuzzy, most_bytes=8192)
        assert (page["numbers"], page["returned"], page["has_more"], page["cut"]) == ([1], 1, True, True)
        assert page["next"] == {"offset": 1, "column": len(page["lines"][0]) + 1}
    assert results.page(stored.handle, search="9O123")["returned"] == 0


def test_a_search_reads_no_further_than_it_must(large):
    results, stored, _ = large
    with counting() as cost:
        assert results.page(stored.handle, search="line 7 ", limit=1)["has_more"]
    assert cost["read"] < 2 * MB


def test_putting_takes_no_second_copy(results):
    text = "some lines of é\n" * (20 * MB // 16)
    tracemalloc.start()
    try:
        results.put(text)
        assert tracemalloc.get_traced_memory()[1] < 2 * MB
    finally:
        tracemalloc.stop()


# The index


def test_a_small_result_has_no_index(results, tmp_path):
    results.put("x" * SMALL)
    file = only_file(tmp_path)
    assert file.stat().st_size < SMALL + 1000
    assert bytes.fromhex(file.stem) not in file.read_bytes()


def test_the_index_is_in_no_text(results, tmp_path):
    text = "line\n" * (SMALL // 2)
    stored = results.put(text)
    assert (stored.size, stored.lines) == (len(text), SMALL // 2)
    assert 0 < only_file(tmp_path).stat().st_size - len(text) < len(text) // 1000
    assert results.read(stored.handle) == text
    assert results.page(stored.handle, offset=SMALL // 2)["lines"] == ["line"]
    assert results.page(stored.handle, search="[^line]")["lines"] == []


@pytest.mark.parametrize("line", ["short\n", "long " * 1000 + "\n"])
def test_a_file_of_an_older_version_is_read_as_well(results, tmp_path, line):
    handle = results.put("").handle
    text = line * (2 * SMALL // len(line))
    only_file(tmp_path).write_text(text)
    for offset in (1, len(lines_of(text)) - 3):
        assert results.page(handle, offset=offset) == query(text, offset)
    assert results.read(handle) == text


def test_a_text_that_ends_like_an_index_is_a_text(results, tmp_path):
    results.put("x" * (2 * SMALL))
    ending = only_file(tmp_path).read_bytes()[2 * SMALL :].decode("latin-1")
    text = "y\n" * SMALL + ending
    handle = results.put(text).handle
    assert results.read(handle) == text
    assert results.page(handle)["total_lines"] == len(lines_of(text))


@pytest.mark.parametrize("at", [-24, -8])
def test_a_broken_index_is_told(results, tmp_path, at):
    handle = results.put("line\n" * SMALL).handle
    file = only_file(tmp_path)
    data = bytearray(file.read_bytes())
    at += data.rindex(bytes.fromhex(file.stem))  # the seal of the index
    data[at : at + 8] = b"\xff" * 8
    file.write_bytes(data)
    with pytest.raises(ToolFailure, match="can't be read") as caught:
        results.page(handle)
    assert caught.value.reason == "source_unavailable"


def test_the_bound_on_all_results_counts_the_index(tmp_path):
    results = ResultStore(tmp_path, 3600, 2)
    with pytest.raises(NotStoredError, match="are more than all kept results"):
        results.put("x" * (2 * MB))
    assert not list(tmp_path.glob("*.txt"))
    for _ in range(5):
        results.put("x\n" * (MB - 1000))
        assert sum(file.stat().st_size for file in tmp_path.iterdir() if file.suffix == ".txt") <= 2 * MB


# Whose it is, and how long


def test_a_page_has_its_owner_and_its_time(tmp_path):
    now = [1_700_000_000.0]
    results = ResultStore(tmp_path, 3600, 3, now=lambda: now[0])
    handle = results.put("x\n" * SMALL, "alice").handle
    assert results.page(handle, "alice")["returned"] == 100
    for other in ("", "bob"):
        with pytest.raises(HandleNotFoundError):
            results.page(handle, other)
    with pytest.raises(HandleNotFoundError):
        results.page("../x", "alice")
    now[0] += 3600
    with pytest.raises(ResultExpiredError, match="time is up"):
        results.page(handle, "alice")
    now[0] -= 3000
    results.put("x" * 2 * SMALL, "bob")
    with pytest.raises(ResultExpiredError, match="make room"):
        results.page(handle, "alice")


@pytest.mark.skipif(os.name != "posix", reason="elsewhere a file that is open can't be removed")
def test_a_page_is_read_to_its_end_whoever_removes_the_result_meanwhile(results, tmp_path):
    text = "line é\n" * SMALL
    handle = results.put(text).handle

    def opened(file, mode):
        stream = open(file, mode)  # noqa: SIM115 - the one who asked closes it
        os.unlink(file)
        return stream

    with patch(f"{ROOM}.open", opened, create=True):
        assert results.page(handle, offset=SMALL - 50, limit=20_000)["returned"] == 51


def test_the_whole_only_up_to_a_size(results):
    for text in ("é" * 50, "é\n" * SMALL):
        stored = results.put(text)
        assert results.read(stored.handle, most_bytes=stored.size) == text
        with pytest.raises(ResultTooLargeError, match=f'ot.result.handle="{stored.handle}"') as caught:
            results.read(stored.handle, most_bytes=stored.size - 1)
        assert caught.value.reason == "too_large"


# A search that takes too long


@contextmanager
def time_for(looks):
    """A clock that lets a search look at so many pieces."""
    times = iter([0.0] * (looks + 1))
    with patch(f"{ROOM}.paging.monotonic", lambda: next(times, 100.0)), patch(f"{ROOM}.paging.PIECE", 6):
        yield


TEN = "".join(f"no {number}\nyes{number}\n" for number in range(5))


def test_time_is_up_after_some_lines_were_found(results):
    handle = results.put(TEN).handle
    with time_for(6):
        page = results.page(handle, search="yes")
    everything = results.page(handle, search="yes")
    assert (page["lines"], page["has_more"]) == (everything["lines"][: page["returned"]], True)
    assert 0 < page["returned"] < 5
    assert page["total_lines"] == 10


def test_time_is_up_before_more_is_known(results):
    handle = results.put(TEN).handle
    for looks, hints in ((0, 1), (2, 2)):
        with time_for(looks), pytest.raises(ToolFailure, match=r"took more than 5 s: it came to line \d of 10") as told:
            results.page(handle, search="yes")
        assert told.value.reason == "timeout"
        assert len(told.value.hints) == hints
    assert told.value.hints[1] == "one line was found by then: yes0"


def test_a_fuzzy_search_without_time_gives_nothing_for_the_best_may_come_last(results):
    handle = results.put(TEN * 10).handle
    with time_for(8), pytest.raises(ToolFailure, match="it came to line 65 of 100") as caught:
        results.page(handle, search="yes", fuzzy=True)
    assert "without fuzzy" in caught.value.hints[0]


def test_a_page_without_a_search_has_no_clock(results):
    handle = results.put(TEN).handle
    with time_for(-1):
        assert results.page(handle)["returned"] == 10


@patch(f"{ROOM}.paging.BEST", 3)
def test_only_so_many_of_the_best_are_kept(results):
    handle = results.put("config\nconfg\nconfig\nconfi\nconfig\nconfig\n").handle
    page = results.page(handle, search="config", fuzzy=True)
    assert (page["lines"], page["has_more"]) == (["config"] * 3, False)
    assert results.page(handle, offset=2, limit=1, search="config", fuzzy=True)["has_more"] is True
    assert results.page(handle, offset=4, search="config", fuzzy=True)["returned"] == 0
    assert results.page(handle, offset=10**30, limit=10**30, search="config", fuzzy=True)["returned"] == 0
    assert results.page(handle, offset=10**30, limit=10**30, search="config")["returned"] == 0
