"""Paging while others write: what was there and matched all the time comes exactly once, in its order."""

import random
from itertools import cycle
from threading import Event, Thread

import pytest
from helpers import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sources.bundles.contents.made import bundle, tool

from onetool.sources.bundles.model import ToolContent
from onetool.sources.bundles.queries import ListQuery
from onetool.sources.bundles.store.store import folder_store

pytestmark = pytest.mark.long

SIZES = st.lists(st.integers(1, 60), min_size=1, max_size=5)  # of pages, again and again
NAMES = ("alpha", "alphabet soup", "beta alpha", "gamma", "alpah", "x alphabets", "delta")


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    """A store in whose folder another one is writing, as another process would."""
    folder = tmp_path_factory.mktemp("busy") / "bundles"
    store, other, ended = folder_store(folder), folder_store(folder), Event()
    steady = [
        tool(number, display_name=NAMES[number % 7], description=NAMES[number % 5], tags=(f"t{number % 3}",))
        for number in range(1, 150)
    ]
    store.put_all(bundle(), steady)
    before = store.state()
    thread = Thread(target=churn, args=(other, ended))
    thread.start()
    yield store, steady, thread
    ended.set()
    thread.join()
    assert store.state() > before
    every = ListQuery(include_disabled=True, limit=1000)
    assert store.tools(every) == other.tools(every)
    store.close()
    other.close()


def churn(store, ended):
    """Tools come, go, and are switched on and off; none of those that the test watches."""
    rnd, there = random.Random("seed"), set()
    while not ended.is_set():
        slug = f"other-{rnd.randint(0, 20)}"
        if slug in there and rnd.random() < 0.5:
            store.delete_tool(bundle().id, slug, "1")
            there.discard(slug)
        elif slug in there:
            store.patch_tool(bundle().id, slug, "1", rnd.random() < 0.5)
        else:
            words = {"display_name": rnd.choice(NAMES), "description": rnd.choice(NAMES)}
            store.put_tool(bundle().id, slug, "1", ToolContent(type="script", script_impl={"code": "1"}, **words))
            there.add(slug)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.sampled_from(["", "alpha", "alp", "alpah", "soup alpha", "gama", "1"]), sizes=SIZES)
def test_a_search_neither_skips_nor_repeats(busy, query, sizes):
    store, steady, thread = busy
    expected = {one.tool.id for one in _all_at_once(store, query)} & {one.id for one in steady}
    found, after, sizes = [], None, cycle(sizes)
    while page := store.search(query, after=after, limit=next(sizes)):
        found += page
        after = page[-1].rank
    assert thread.is_alive()
    ranks = [one.rank for one in found]
    assert ranks == sorted(ranks)
    ids = [one.tool.id for one in found]
    mine = [id for id in ids if id < tool(10_000).id]
    assert len(mine) == len(set(mine))
    assert set(mine) == expected


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tags=st.sampled_from([(), ("t1",), ("t0", "t2")]), sizes=SIZES)
def test_a_list_neither_skips_nor_repeats(busy, tags, sizes):
    store, steady, _ = busy
    expected = [one for one in steady if not tags or set(tags) & set(one.tags)]
    found, after, sizes = [], None, cycle(sizes)
    while page := store.tools(ListQuery(tags, after=after, limit=next(sizes))):
        found += page
        after = page[-1].id
    assert [one for one in found if one.id < tool(10_000).id] == expected


def _all_at_once(store, query):
    return store.search(query, limit=1000)
