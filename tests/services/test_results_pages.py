"""Pages of kept results: the same as of the text in memory, for the price of what is on them."""

import re
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz import fuzz
from services.pages import query
from services.result_stores import harness, open_state

from onetool.core.errors import ToolFailure
from onetool.services.results import HandleNotFoundError, ResultExpiredError, ResultTooLargeError
from onetool.services.results.paging import MAX_BYTES, written
from onetool.services.results.store import ResultStore

PAGING = "onetool.services.results.paging"
MB = 1024 * 1024

__all__ = ["harness"]


@pytest.fixture
def results(harness):
    return harness.open(max_total_mb=100)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A store for the texts of many examples."""
    database = open_state(tmp_path_factory.mktemp("many"))
    yield ResultStore(database, 3600, 100)
    database.close()


@contextmanager
def everything_small():
    """Groups of 6 characters: then short texts have all that long ones have."""
    with patch(f"{PAGING}.AT_ONCE", 6), patch(f"{PAGING}.LONG", 24), patch(f"{PAGING}._WINDOW", 8):
        yield


# The same as a plain definition says


def plain_lines(text):
    lines = text.replace("\r\n", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def plain_page(lines, found, offset, limit, max_bytes, column=1):
    asked = found[offset - 1 : offset - 1 + limit]
    asked[:1] = [line[column - 1 :] for line in asked[:1]]
    page = {"total_lines": len(lines), "offset": offset, **({"column": column} if column > 1 else {})}
    too_long = (at for at in range(len(asked)) if sum(map(written, asked[: at + 1])) > max_bytes)
    fit = next((at for at in too_long if at or len(asked[0]) > 1), len(asked))
    if fit == len(asked):
        return {**page, "lines": asked, "returned": len(asked), "has_more": offset - 1 + len(asked) < len(found)}
    sent, next_ = asked[:fit], {"offset": offset + fit, "column": 1}
    if not fit:
        [first, *_] = asked
        part = max([1, *(at for at in range(len(first)) if written(first[:at]) <= max_bytes)])
        sent, next_ = [first[:part]], {"offset": offset, "column": column + part}
    return {**page, "lines": sent, "returned": len(sent), "has_more": True, "cut": True, "next": next_}


TEXTS = st.text(st.sampled_from("ab\n\r\ud800\udc00é€🦊"), max_size=60) | st.text("ab\n\r", max_size=80)
PAGES = {
    "offset": st.integers(1, 30) | st.just(10**30),
    "limit": st.integers(1, 30) | st.just(10**30),
    "max_bytes": st.just(MAX_BYTES) | st.integers(0, 80),
    "column": st.just(1) | st.integers(1, 20) | st.just(10**30),
}


@given(text=TEXTS, **PAGES)
def test_a_page_is_what_it_would_be_of_the_text_in_memory(many, text, offset, limit, max_bytes, column):
    with everything_small():
        stored = many.put(text)
        page = many.page(stored.handle, "", offset, limit, max_bytes=max_bytes, column=column)
        lines = plain_lines(text)
        assert page == plain_page(lines, lines, offset, limit, max_bytes, column)
        assert page == query(text, offset, limit, max_bytes=max_bytes, column=column)
        assert (stored.lines, stored.size) == (len(lines), len(text.encode("utf-8", "surrogatepass")))
        assert many.read(stored.handle) == text


SEARCHES = ["a", "ab", "^a", "b$", "^$", "a.b", "a[^a]b", r"a\s*b", r"\bab\b", r"\Aa", "é|🦊", r"\r", "(?i)A", "."]


@given(text=TEXTS, search=st.sampled_from(SEARCHES), **PAGES)
def test_a_search_finds_the_lines_that_match_and_no_others(many, text, search, offset, limit, max_bytes, column):
    with everything_small():
        page = many.page(many.put(text).handle, "", offset, limit, search, max_bytes=max_bytes, column=column)
        lines = plain_lines(text)
        pattern = re.compile(search.replace(".", r"[^\n]"))
        order = [at for at, line in enumerate(lines) if pattern.search(re.sub("[\ud800-\udfff]", "?", line))]
        assert [at + 1 for at in order[offset - 1 :][: page["returned"]]] == page.pop("numbers")
        assert page == plain_page(lines, [lines[at] for at in order], offset, limit, max_bytes, column)


@given(text=st.text("abc\n", max_size=80), search=st.text("abC", min_size=1, max_size=3), **PAGES)
def test_a_fuzzy_search_gives_the_best_first(many, text, search, offset, limit, max_bytes, column):
    with everything_small():
        page = many.page(many.put(text).handle, "", offset, limit, search, True, max_bytes, column)
        lines = plain_lines(text)
        wanted = search.lower()
        scores = [(fuzz.partial_ratio if len(line) >= len(wanted) else fuzz.ratio)(wanted, line) for line in lines]
        order = sorted((-score, at) for at, score in enumerate(scores) if score >= 70)
        assert [at + 1 for _, at in order[offset - 1 :][: page["returned"]]] == page.pop("numbers")
        assert page == plain_page(lines, [lines[at] for _, at in order], offset, limit, max_bytes, column)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A store with a single line of 20 MB."""
    database = open_state(tmp_path_factory.mktemp("large"))
    results = ResultStore(database, ttl_s=3600, max_total_mb=200)
    yield results, results.put("0123456789" * (2 * MB))
    database.close()


@pytest.mark.long
def test_a_line_of_many_megabytes_is_found_once_and_cut(large):
    results, stored = large
    for search, fuzzy in (("90123", False), ("9O12345678", True)):
        with patch(f"{PAGING}.MAX_SEARCH_S", 600):
            page = results.page(stored.handle, search=search, fuzzy=fuzzy, max_bytes=8192)
        assert (page["numbers"], page["returned"], page["has_more"], page["cut"]) == ([1], 1, True, True)
        assert page["next"] == {"offset": 1, "column": len(page["lines"][0]) + 1}
    assert results.page(stored.handle, search="9O123")["returned"] == 0


# Whose it is, and how long


def test_a_page_has_its_owner_and_its_time(harness):
    results = harness.open(max_total_mb=3)
    handle = results.put("x\n" * MB, "alice").handle
    assert results.page(handle, "alice")["returned"] == 100
    for other in ("", "bob"):
        with pytest.raises(HandleNotFoundError):
            results.page(handle, other)
    with pytest.raises(HandleNotFoundError):
        results.page("../x", "alice")
    results.put("x" * 2 * MB, "bob")
    with pytest.raises(ResultExpiredError, match="make room"):
        results.page(handle, "alice")
    handle = results.put("x\n" * 1000, "alice").handle
    harness.clock.now += 3600
    with pytest.raises(ResultExpiredError, match="retention time has passed"):
        results.page(handle, "alice")


def test_the_whole_only_up_to_a_size(results):
    for text in ("é" * 50, "é\n" * MB):
        stored = results.put(text)
        assert results.read(stored.handle, max_bytes=stored.size) == text
        with pytest.raises(ResultTooLargeError, match=f'ot.result.handle="{stored.handle}"') as caught:
            results.read(stored.handle, max_bytes=stored.size - 1)
        assert caught.value.reason == "too_large"


# A search that takes too long


@contextmanager
def time_for(looks):
    """A clock that lets a search look at so many lines."""
    times = iter([0.0] * (looks + 1))
    with patch(f"{PAGING}.AT_ONCE", 1), patch(f"{PAGING}.monotonic", lambda: next(times, 100.0)):
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
        with time_for(looks), pytest.raises(ToolFailure, match=r"took more than 5 s: it stopped at line \d") as told:
            results.page(handle, search="yes")
        assert told.value.reason == "timeout"
        assert len(told.value.hints) == hints
    assert told.value.hints[1] == "one line was found before: yes0"


def test_a_fuzzy_search_without_time_gives_nothing_for_the_best_may_come_last(results):
    handle = results.put(TEN * 10).handle
    with time_for(8), pytest.raises(ToolFailure, match="it stopped at line 65 of 100") as caught:
        results.page(handle, search="yes", fuzzy=True)
    assert "without fuzzy" in caught.value.hints[0]


def test_a_page_without_a_search_has_no_clock(results):
    handle = results.put(TEN).handle
    with time_for(-1):
        assert results.page(handle)["returned"] == 10


@pytest.mark.long
@patch(f"{PAGING}.MAX_SIMILAR", 3)
def test_only_so_many_of_the_best_are_kept(results):
    handle = results.put("config\nconfg\nconfig\nconfi\nconfig\nconfig\n").handle
    page = results.page(handle, search="config", fuzzy=True)
    assert (page["lines"], page["has_more"]) == (["config"] * 3, False)
    assert results.page(handle, offset=2, limit=1, search="config", fuzzy=True)["has_more"] is True
    assert results.page(handle, offset=4, search="config", fuzzy=True)["returned"] == 0
    assert results.page(handle, offset=10**30, limit=10**30, search="config", fuzzy=True)["returned"] == 0
    assert results.page(handle, offset=10**30, limit=10**30, search="config")["returned"] == 0
