"""Searches hold up nobody: they are short, and one at a time."""

import threading
import time

import pytest
from services.result_stores import harness

from onetool.core.errors import BadArguments, ToolFailure
from onetool.services.results import paging

__all__ = ["harness"]

DULL = "\n".join(["a" * 1_999] * 60)
WORST = "a" * (paging.MAX_FUZZY - 1) + "b"


@pytest.fixture
def stored(harness):
    results = harness.open()
    return results, results.put(DULL).handle


def test_what_is_compared_with_every_line_is_short(stored):
    results, handle = stored
    results.page(handle, search=WORST, fuzzy=True)
    with pytest.raises(BadArguments, match="at most 100 characters"):
        results.page(handle, search=f"{WORST}b", fuzzy=True)


def test_one_at_a_time(stored, monkeypatch):
    results, handle = stored
    under_way, most = [], []

    def slow(lines, search, most_lines, look):
        under_way.append(1)
        most.append(len(under_way))
        time.sleep(0.02)
        under_way.pop()
        return iter(())

    monkeypatch.setattr(paging, "similar", slow)
    threads = [
        threading.Thread(target=results.page, args=(handle,), kwargs={"search": "x", "fuzzy": True}) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert most == [1] * 8


def test_who_waits_too_long_for_others_is_told(stored, monkeypatch):
    results, handle = stored
    monkeypatch.setattr(paging, "MAX_SEARCH_S", 0.05)
    with paging._searching, pytest.raises(ToolFailure, match="other searches are running") as caught:
        results.page(handle, search="a")
    assert caught.value.reason == "busy"
    monkeypatch.setattr(paging, "MAX_SEARCH_S", 5.0)
    assert results.page(handle, search="a")["returned"] > 0


def test_a_search_that_fails_or_is_left_lets_the_next_one_go(stored):
    results, handle = stored
    for search in ("(", "a", "b", "a"):
        try:
            results.page(handle, search=search, limit=1)
        except BadArguments:
            assert search == "("
    assert paging._searching.acquire(blocking=False)
    paging._searching.release()
