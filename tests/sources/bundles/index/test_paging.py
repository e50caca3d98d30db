"""Paging while other processes write: what was there and matched all the time comes exactly once, in its order."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path

import pytest
from helpers import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sources.bundles.index.made import bundle, in_step, put, tool

from onetool.sources.bundles.index import Index
from onetool.sources.bundles.index.feed import IndexedSearch

pytestmark = pytest.mark.long

SIZES = st.lists(st.integers(1, 60), min_size=1, max_size=5)  # of pages, again and again
NAMES = ("alpha", "alphabet soup", "beta alpha", "gamma", "alpah", "x alphabets", "delta")


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    """An index at which another process is writing."""
    file = tmp_path_factory.mktemp("busy") / "index.db"
    index = Index(file)
    steady = [
        tool(number, display_name=NAMES[number % 7], description=NAMES[number % 5], tags=(f"t{number % 3}",))
        for number in range(1, 150)
    ]
    put(index, bundle(), *steady)
    before = index.state()
    with other("churn", file, "seed", ",".join(NAMES)) as process:
        yield index, steady, process
        assert index.state() > before
        process.stdin.write(b"stop\n")
        process.stdin.close()
        assert process.wait(20) == 0
    in_step(index)
    index.close()


def other(part: str, file: Path, *more: str) -> subprocess.Popen:
    tests = Path(__file__).parents[3]
    command = [sys.executable, str(Path(__file__).with_name("other_process.py")), str(file), part, *more]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PYTHONPATH": str(tests), "PATH": ""}
    )
    assert process.stdout.readline() == b"ready\n"
    return process


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.sampled_from(["", "alpha", "alp", "alpah", "soup alpha", "gama", "1"]), sizes=SIZES)
def test_a_search_neither_skips_nor_repeats(busy, query, sizes):
    index, steady, process = busy
    expected = {one.tool.id for one in _all_at_once(index, query)} & {one.id for one in steady}
    found, after, sizes = [], None, cycle(sizes)
    while page := index.search(query, after=after, limit=next(sizes)):
        found += page
        after = page[-1].rank
        time.sleep(0.002)
    assert process.poll() is None
    ranks = [one.rank for one in found]
    assert ranks == sorted(ranks)
    ids = [one.tool.id for one in found]
    mine = [id for id in ids if id < tool(10_000).id]
    assert len(mine) == len(set(mine))
    assert set(mine) == expected


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tags=st.sampled_from([(), ("t1",), ("t0", "t2")]), sizes=SIZES)
def test_a_list_neither_skips_nor_repeats(busy, tags, sizes):
    index, steady, _ = busy
    expected = [one for one in steady if not tags or set(tags) & set(one.tags)]
    found, after, sizes = [], None, cycle(sizes)
    while page := index.tools(tags, after=after, limit=next(sizes)):
        found += page
        after = page[-1].id
    assert [one for one in found if one.id < tool(10_000).id] == expected


def _all_at_once(index, query):
    return index.search(query, limit=1000)


def test_a_page_is_full_though_another_thread_knows_tools_of_a_later_moment(tmp_path, monkeypatch):
    index = Index(tmp_path / "index.db")
    put(index, bundle(), *(tool(number, f"alpha-{number}") for number in range(101, 121)))
    slugs_of_all = [one.tool.slug for one in index.search("alpha")]
    really, later = IndexedSearch.current, [tool(number, f"alpha-{number}") for number in range(121, 141)]

    def other():
        put(index, *later)
        assert [one.tool for one in index.search("alpha", limit=20)] == later[::-1], "they come first"

    def current(self, *args):
        found = really(self, *args)
        monkeypatch.setattr(IndexedSearch, "current", really)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(other).result()
        return found

    monkeypatch.setattr(IndexedSearch, "current", current)
    page = index.search("alpha", limit=6)
    assert [one.tool.slug for one in page] == slugs_of_all[:6], "those of its own moment"
    index.close()
