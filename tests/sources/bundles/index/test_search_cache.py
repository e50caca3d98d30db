"""The file that the search is ready from. Whatever lies there: answers are those of the index."""

import os
from contextlib import suppress
from threading import Thread

import pytest
from sources.bundles.index.made import STAMP, bundle, path_of, put, slugs, tool

from onetool.services.search import files
from onetool.sources.bundles.index import Index, feed
from onetool.sources.bundles.searching import _head

QUERY = "alpha"


@pytest.fixture(autouse=True)
def few_are_worth_a_file(monkeypatch):
    monkeypatch.setattr(feed, "LEAST_SAVED", 1)


@pytest.fixture
def reads(monkeypatch):
    """How often everything was read."""
    times = []
    really = feed._read_all

    def read_all(*args):
        times.append(1)
        return really(*args)

    monkeypatch.setattr(feed, "_read_all", read_all)
    return times


@pytest.fixture
def cache(file):
    return file.with_name("search.cache")


def filled(opened):
    index = opened()
    put(index, bundle(), tool(1, "alpha-one"), tool(2, "alpha-two", description="beta"), tool(3, "gamma"))
    assert slugs(index.search(QUERY)) == ["alpha-two", "alpha-one"]
    return index


def test_the_next_process_reads_nothing_again(opened, cache, reads):
    filled(opened)
    assert cache.stat().st_mode & 0o777 == 0o600
    again = opened()
    assert slugs(again.search(QUERY)) == ["alpha-two", "alpha-one"]
    assert slugs(again.search("bteaa")) == []
    assert slugs(again.search("btea")) == ["alpha-two"]
    assert len(reads) == 1


def test_it_knows_nothing_that_a_power_failure_takes_away(opened, file, cache, monkeypatch):
    done, sync, replace = [], os.fsync, files.replace_file
    log = file.with_name(f"{file.name}-wal")
    opened_log = feed.sync_file
    monkeypatch.setattr(os, "fsync", lambda handle: done.append(os.fstat(handle).st_ino) or sync(handle))
    monkeypatch.setattr(files, "replace_file", lambda *args, **how: done.append("cache") or replace(*args, **how))
    filled(opened)
    assert done[done.index("cache") - 1] == log.stat().st_ino
    cache.unlink()
    monkeypatch.setattr(feed, "sync_file", lambda path: opened_log(f"{path}/"))  # that can't be opened
    index = opened()
    assert slugs(index.search(QUERY)) == ["alpha-two", "alpha-one"]
    assert not cache.exists()


def test_what_has_changed_since_is_read(opened, reads):
    index = filled(opened)
    put(index, tool(4, "alpha-four"), bundle(1, "other-box"))
    with index.changing() as changes:
        changes.drop(path_of(tool(1, "alpha-one")))
    again = opened()
    assert slugs(again.search(QUERY)) == ["alpha-two", "alpha-four"]
    assert slugs(again.search("other box")) == slugs(again.search("other")) == ["alpha-four", "gamma", "alpha-two"]
    assert len(reads) == 1


def test_who_was_away_for_too_long_reads_everything(opened, reads, monkeypatch):
    index = filled(opened)
    monkeypatch.setattr(feed, "KEPT_REVISIONS", 2)
    for number in range(4, 9):
        put(index, tool(number, f"alpha-{number}"))
    assert len(opened().search(QUERY)) == 7
    assert len(reads) == 2


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data[:200] + b"?" + data[201:],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: b"something else",
        lambda data: data.replace(b"search 5", b"search 4"),
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
    assert len(reads) == 2
    assert cache.read_bytes() == whole, "and it is written again"


def test_a_file_of_another_index_is_ignored(opened, file, cache, reads, tmp_path):
    filled(opened)
    other = Index(tmp_path / "elsewhere" / "index.db")
    put(other, bundle(), tool(9, "alpha-elsewhere"))
    assert slugs(other.search(QUERY)) == ["alpha-elsewhere"]
    cache.write_bytes((tmp_path / "elsewhere" / "search.cache").read_bytes())
    other.close()
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


def test_a_change_that_is_undone_was_never_found(opened):
    index = filled(opened)
    with suppress(ZeroDivisionError), index.changing() as changes:
        changes.put_tool(tool(5, "alpha-five"), "five", STAMP)
        assert slugs(index.search(QUERY)) == ["alpha-two", "alpha-one"]
        raise ZeroDivisionError  # it is rolled back
    assert slugs(index.search(QUERY)) == ["alpha-two", "alpha-one"]


def test_a_pipe_in_its_place_is_ignored(opened, cache, reads):
    filled(opened)
    cache.unlink()
    os.mkfifo(cache)
    found = []
    search = Thread(target=lambda: found.extend(slugs(opened().search(QUERY))), daemon=True)
    search.start()
    search.join(20)
    assert found == ["alpha-two", "alpha-one"]
