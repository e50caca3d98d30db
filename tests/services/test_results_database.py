"""Results in a database: whichever replica keeps one, all read it; what a page costs; what happens when it is away."""

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import pytest
from helpers import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from services.pages import query
from services.result_stores import DatabaseStage

from onetool.core.errors import ToolFailure
from onetool.database import ChangeUnknownError, DatabaseAwayError
from onetool.database.moving import Moved, MoveOptions
from onetool.database.postgres import Postgres
from onetool.services.results import (
    SMALL,
    HandleNotFoundError,
    NotStoredError,
    ResultExpiredError,
    ResultStore,
)
from onetool.services.results.database import DatabaseResults, ResultMover
from onetool.services.results.paging import PIECE

MB = 1024 * 1024


@pytest.fixture
def results(database):
    return DatabaseResults(database, 3600, 100)


@pytest.fixture
def other(database_url, database):
    """Another replica."""
    found = Postgres(database_url)
    yield DatabaseResults(found, 3600, 100)
    found.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(40))
@given(
    text=st.text(st.sampled_from("ab\n\r\ud800\udc00é€🦊"), max_size=60),
    offset=st.integers(1, 20),
    limit=st.integers(1, 20),
    column=st.just(1) | st.integers(1, 20),
    search=st.none() | st.sampled_from(["a", "^a", "b$", "."]),
)
def test_a_page_is_what_it_would_be_of_the_text_in_memory(results, text, offset, limit, column, search):
    with patch("onetool.services.results.paging.PIECE", 6):
        stored = results.put(text, "me")
        page = results.page(stored.handle, "me", offset, limit, search, column=column)
        assert page == query(text, offset, limit, search, column=column)
        assert stored.lines == page["total_lines"]
        assert results.read(stored.handle, "me") == text


def test_what_one_replica_keeps_all_of_them_read_list_and_remove(results, other):
    text = "line\n" * PIECE
    handle = results.put(text, "ada", "files.read").handle
    assert other.read(handle, "ada") == text
    assert other.page(handle, "ada", offset=PIECE)["lines"] == ["line"]
    assert [(one.handle, one.name) for one in other.kept("ada")] == [(handle, "files.read")]
    other.remove(handle, "ada")
    with pytest.raises(HandleNotFoundError):
        results.read(handle, "ada")
    assert list(results.kept("ada")) == []


def test_no_row_tells_a_handle_or_an_owner(results, database):
    handle = results.put("some text", "ada").handle
    [row] = database.read(lambda work: work.execute("SELECT * FROM results"))
    for told in (handle, "ada"):
        assert told not in str(row)
        assert told.encode() not in row[2]
    assert list(results.kept("bob")) == list(results.kept("")) == []


def test_a_long_list_comes_whole_and_in_order(results):
    with patch("onetool.services.results.database.LISTED", 3):
        put = [results.put(str(number), "ada").handle for number in range(8)]
        results.put("mine", "bob")
        assert [one.handle for one in results.kept("ada")] == put[::-1]


@pytest.fixture
def large(results):
    many = "".join(f"line {number} of a rather long result é\n" for number in range(1, 10_001))
    return results.put(many * (20 * MB // len(many)))


@patch("onetool.services.results.paging.MOST_SECONDS", 600)  # tracing is slow
def test_a_page_of_a_large_text_loads_no_more_than_it_shows(results, large):
    for offset in (1, large.lines // 2, large.lines - 99):
        tracemalloc.start()
        page = results.page(large.handle, offset=offset)
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (page["returned"], page["total_lines"]) == (100, large.lines)
        assert memory < 2 * MB
    tracemalloc.start()
    assert results.page(large.handle, search="line 10000 of", limit=10**6)["returned"] == large.lines // 10_000
    memory = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert memory < 8 * MB


@pytest.mark.parametrize(("how", "error"), [("removed", HandleNotFoundError), ("expired", ResultExpiredError)])
def test_one_that_goes_while_it_is_read_is_told(database, how, error):
    results = DatabaseResults(database, 3600, 100)
    handle = results.put("line\n" * SMALL).handle

    def read():
        with results._opened(handle, "") as text:
            if how == "removed":
                results.remove(handle)
            else:
                DatabaseStage(database).clock.now += 3601
                results.sweep()
            text.read()

    with pytest.raises(error):
        read()


def test_the_bound_holds_over_replicas_that_put_at_once(database):
    stores = [DatabaseResults(database, 3600, 1) for _ in range(4)]

    def put(store):
        return [store.put("x" * 60_000).handle for _ in range(10)]

    with ThreadPoolExecutor(4) as pool:
        handles = [handle for some in pool.map(put, stores) for handle in some]
    harness = DatabaseStage(database)
    assert 0 < harness.total() <= MB
    states = {"kept": 0, "room": 0}
    for handle in handles:
        try:
            states["kept"] += len(stores[0].read(handle)) == 60_000
        except ResultExpiredError as error:
            states["room"] += "make room" in str(error)
    assert states == {"kept": harness.count(), "room": 40 - harness.count()}


# Away


class Lost:
    """A database that is lost."""

    clock = "0"

    def __init__(self, error):
        self.error = error

    def read(self, job):
        raise self.error

    write = read


def test_away_is_told_in_words():
    results = DatabaseResults(Lost(DatabaseAwayError("no route")), 3600, 1)
    with pytest.raises(NotStoredError, match=r"could not be kept: the database can't be reached"):
        results.put("x")
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


def test_a_put_whose_end_is_unknown_is_not_taken_for_one_that_is_kept():
    with pytest.raises(NotStoredError, match="nobody knows whether it happened"):
        DatabaseResults(Lost(ChangeUnknownError()), 3600, 1).put("x")


# From a folder into a database and back


def test_nothing_is_lost_on_the_way_there_and_back(database, tmp_path):
    folder, back = tmp_path / "results", tmp_path / "back" / "results"
    files = ResultStore(folder, 3600, 4)
    files.put("x" * (2 * MB), "ada")  # it goes, to make room
    texts = {files.put(text, "ada", "a.b").handle: text for text in ("a\r\nb\ud800", "", "é\n" * SMALL)}
    before = {path.name: (path.read_bytes(), path.stat().st_mtime) for path in folder.iterdir()}
    assert any(name.startswith("ended-") for name in before)

    (folder / f"{'ab' * 16}.txt").write_bytes(b"\xff\xfe")
    done = ResultMover().import_folder(tmp_path, database, MoveOptions())
    assert [one.what for one in done.left] == [str(folder / f"{'ab' * 16}.txt")]
    count = done.moved
    again = ResultMover().import_folder(tmp_path, database, MoveOptions())
    assert (again.moved, again.same) == (0, count)
    results = DatabaseResults(database, 3600, 3)
    for handle, text in texts.items():
        assert results.read(handle, "ada") == text
        with pytest.raises(HandleNotFoundError):
            results.read(handle, "bob")
    assert list(results.kept("ada")) == list(files.kept("ada"))
    assert list(results.kept("bob")) == []

    assert ResultMover().export_folder(database, back.parent, MoveOptions()) == Moved(count)
    assert ResultMover().export_folder(database, back.parent, MoveOptions()) == Moved(0, count)
    after = {path.name: (path.read_bytes(), path.stat().st_mtime) for path in back.iterdir()}
    assert {name: facts for name, facts in after.items() if name.endswith(".txt")} == {
        name: facts for name, facts in before.items() if name.endswith(".txt")
    }
    assert {name: sorted(data.splitlines()) for name, (data, _) in after.items() if "ended" in name} == {
        name: sorted(data.splitlines()) for name, (data, _) in before.items() if "ended" in name
    }
