"""The file that the search is ready from. Whatever lies there: answers are those of the store."""

import os
from threading import Thread

import numpy as np
import pytest
from sources.bundles.contents.made import MemoryStore, bundle, drop, put, slugs, tool

from onetool.services.search.files import read_arrays, write_arrays
from onetool.services.search.part import ARRAY_NAMES, TEXT_NAMES
from onetool.sources.bundles import searching
from onetool.sources.bundles.searching import _head

QUERY = "alpha"


@pytest.fixture(autouse=True)
def few_are_worth_a_file(monkeypatch):
    monkeypatch.setattr(searching, "MIN_SAVED", 1)


@pytest.fixture
def reads(monkeypatch):
    """The slugs of tools that were read."""
    found, really = [], searching._document

    def document(bundle, tool):
        found.append(tool.slug)
        return really(bundle, tool)

    really(searching._NO_BUNDLE, tool())  # the head of a file is made of one
    _head()
    monkeypatch.setattr(searching, "_document", document)
    return found


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "search.cache"


@pytest.fixture
def opened(tmp_path):
    """Opens stores of the same contents, as processes that start one after the other."""
    stores = []

    def one_more():
        stores.append(MemoryStore(tmp_path))
        stores[-1].now = stores[0].now
        return stores[-1]

    return one_more


def filled(opened):
    store = opened()
    put(store, bundle(), tool(1, "alpha-one"), tool(2, "alpha-two", description="beta"), tool(3, "gamma"))
    assert slugs(store.search(QUERY)) == ["alpha-two", "alpha-one"]
    return store


def test_the_next_process_reads_nothing_again(opened, cache, reads):
    filled(opened)
    assert cache.stat().st_mode & 0o777 == 0o600
    again = opened()
    assert slugs(again.search(QUERY)) == ["alpha-two", "alpha-one"]
    assert slugs(again.search("bteaa")) == []
    assert slugs(again.search("btea")) == ["alpha-two"]
    assert len(reads) == 3


def test_what_has_changed_since_is_read(opened, reads):
    store = filled(opened)
    put(store, tool(4, "alpha-four"))
    drop(store, tool(1, "alpha-one"))
    del reads[:]
    assert slugs(opened().search(QUERY)) == ["alpha-two", "alpha-four"]
    assert reads == ["alpha-four"]
    put(store, bundle(1, "other-box"))
    again = opened()
    assert slugs(again.search(QUERY)) == ["alpha-two", "alpha-four"]
    assert slugs(again.search("other box")) == slugs(again.search("other")) == ["alpha-four", "gamma", "alpha-two"]


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data[:200] + b"?" + data[201:],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: b"something else",
        lambda data: data.replace(b"search 6", b"search 5"),
        lambda data: data.replace(_head().encode()[-8:], b"00000000"),
    ],
    ids=["empty", "half", "a byte", "the last bit", "foreign", "another layout", "words that are split otherwise"],
)
def test_a_damaged_or_foreign_file_is_ignored(opened, cache, reads, harm):
    filled(opened)
    whole = cache.read_bytes()
    cache.write_bytes(harm(whole))
    again = opened()
    assert slugs(again.search(QUERY)) == ["alpha-two", "alpha-one"]
    assert len(reads) == 6
    assert cache.read_bytes() == whole, "and it is written again"


def test_a_file_of_another_store_counts_where_tools_are_the_same(opened, cache, reads, tmp_path):
    filled(opened)
    other = MemoryStore(tmp_path)
    put(other, bundle(), tool(1, "alpha-one"), tool(2, "alpha-two", description="another one"))
    del reads[:]
    assert slugs(other.search(QUERY)) == ["alpha-two", "alpha-one"]
    assert slugs(other.search("gamma")) == slugs(other.search("beta")) == []
    assert reads == ["alpha-two"]


def test_a_file_with_another_state_is_ignored(opened, cache):
    filled(opened)
    arrays = dict(read_arrays(cache, _head(), (*TEXT_NAMES, *ARRAY_NAMES, "state")))
    write_arrays(cache, _head(), {**arrays, "state": np.frombuffer(b'[{}, {"a": "b"}]', np.uint8)})
    assert slugs(opened().search(QUERY)) == ["alpha-two", "alpha-one"]


def test_a_link_is_not_followed(opened, cache, tmp_path):
    filled(opened)
    whole = cache.read_bytes()
    (tmp_path / "elsewhere.cache").write_bytes(whole)
    cache.unlink()
    cache.symlink_to(tmp_path / "elsewhere.cache")
    assert slugs(opened().search(QUERY)) == ["alpha-two", "alpha-one"]
    assert (tmp_path / "elsewhere.cache").read_bytes() == whole
    assert not cache.is_symlink()


def test_where_it_cannot_be_written_the_search_answers_all_the_same(opened, cache):
    cache.mkdir(parents=True)
    filled(opened)
    assert slugs(opened().search(QUERY)) == ["alpha-two", "alpha-one"]


def test_a_pipe_in_its_place_is_ignored(opened, cache, reads):
    filled(opened)
    cache.unlink()
    os.mkfifo(cache)
    found = []
    search = Thread(target=lambda: found.extend(slugs(opened().search(QUERY))), daemon=True)
    search.start()
    search.join(20)
    assert found == ["alpha-two", "alpha-one"]
