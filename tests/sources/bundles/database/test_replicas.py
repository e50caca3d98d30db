"""Several stores on one database: what one writes the others find, and of many writers one wins."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sources.bundles.files.things import an_id, built_in, bundle, tool, with_tool

from onetool.database.listeners import Listeners
from onetool.sources.bundles.errors import ConflictError, OutdatedError
from onetool.sources.bundles.queries import tag_of
from onetool.sources.bundles.store.text import time_text


def found(store, query="forecast"):
    return [hit.tool for hit in store.search(query)]


def test_who_catches_up_reads_what_another_has_just_written(replica):
    first, second = replica(), replica()
    assert second.bundles() == []
    id, kept = with_tool(first)
    second.catch_up()
    assert second.tool(id, "forecast", "1") == kept
    assert found(second) == [kept]
    first.delete_tool(id, "forecast", "1")
    second.catch_up()
    assert second.tool(id, "forecast", "1") is None
    assert found(second) == second.tools() == []


def test_what_is_told_is_taken_in(replica, wait_until):
    first, second = replica(), replica()
    told = []
    second.watch(lambda: (told.append(1), second.sync()))
    wait_until(lambda: told)  # it listens
    state, stamp = second.state(), second.stamp()
    _, kept = with_tool(first)
    wait_until(lambda: found(second) == [kept])
    assert second.state() != state
    assert second.stamp() != stamp
    assert [*second.contents().by_id] == [kept.id]


def test_what_is_not_told_is_found_each_second(replica, monkeypatch, wait_until):
    tell = Listeners.tell
    monkeypatch.setattr(Listeners, "tell", lambda self, topic, detail="": topic or tell(self, topic, detail))
    first, second = replica(), replica()
    second.watch(second.sync)
    _, kept = with_tool(first)
    wait_until(lambda: found(second) == [kept])


def test_of_writers_on_one_key_one_wins(replica):
    stores = [replica() for _ in range(4)]
    id = an_id()

    def create(number):
        try:
            stores[number % 4].put_bundle(id, bundle(f"by-{number}"), create_only=True)
        except ConflictError:
            return None
        return number

    def change(number):
        try:
            stores[number % 4].put_bundle(id, bundle(f"then-{number}"), match=seen)
        except OutdatedError:
            return None
        return number

    def add(number):
        try:
            return stores[number % 4].put_tool(id, "one", "1", tool(description=str(number)))
        except ConflictError:
            return None

    with ThreadPoolExecutor(8) as threads:
        (winner,) = [one for one in threads.map(create, range(8)) if one is not None]
        assert stores[winner % 4].bundle(id).slug == f"by-{winner}"
        seen = tag_of(stores[winner % 4].bundle(id))
        (winner,) = [one for one in threads.map(change, range(8)) if one is not None]
        (made,) = [one for one in threads.map(add, range(8)) if one is not None]
    for store in stores:
        store.catch_up()
        assert store.bundle(id).slug == f"then-{winner}"
        assert store.tools() == [made]


def test_revisions_are_never_seen_out_of_order(replica, database):
    stores = [replica() for _ in range(4)]
    id = an_id()
    stores[0].put_bundle(id, bundle())
    watcher = replica()

    def write(number):
        for key in range(8):
            stores[number].put_tool(id, f"t{number}-{key}", "1", tool())

    with ThreadPoolExecutor(4) as threads:
        writing = [threads.submit(write, number) for number in range(4)]
        seen = []
        while not all(one.done() for one in writing):
            watcher.catch_up()
            seen.append((watcher._storage._known[1].revision, len(watcher.tools())))
    for one in writing:
        one.result()
    watcher.catch_up()
    assert len(watcher.tools()) == 32
    assert all(revision == count + 1 for revision, count in seen)  # each change is one tool
    for store in stores:
        store.catch_up()
        assert store.tools() == watcher.tools()


def test_who_was_away_for_long_reads_what_has_changed(replica):
    first, second = replica(), replica()
    id, kept = with_tool(first)
    gone = first.put_tool(id, "gone", "1", tool())
    second.catch_up()
    assert {one.id for one in second.tools()} == {kept.id, gone.id}
    first.delete_tool(id, "gone", "1")
    for number in range(6):
        first.delete_tool(id, "x", "1") if number % 2 else first.put_tool(id, "x", "1", tool())
    second.catch_up()
    assert second.tools() == first.tools() == [kept]
    assert found(second, "gone") == []


def test_what_is_known_of_another_database_is_forgotten(replica, database):
    store = replica()
    with_tool(store)
    database.write(lambda work: work.execute("DELETE FROM bundle_files"))
    database.write(lambda work: work.execute("UPDATE bundle_store SET born = 'another one'"))
    store.catch_up()
    assert store.tools() == store.bundles() == []


def test_two_processes_can_share_a_state_folder(replica, tmp_path):
    first, second = replica(state=tmp_path / "one"), replica(state=tmp_path / "one")
    assert second.bundles() == []
    id, kept = with_tool(first)
    second.catch_up()
    assert second.tool(id, "forecast", "1") == kept
    more = second.put_tool(id, "more", "1", tool())
    first.catch_up()
    assert first.tool(id, "more", "1") == more
    first.close()
    second.close()
    assert len(replica(state=tmp_path / "one").tools()) == 2


def test_without_a_folder_it_is_in_memory(replica, tmp_path):
    (tmp_path / "file").write_text("")
    store = replica(state=tmp_path / "file" / "state")
    _, kept = with_tool(store)
    assert found(store) == [kept]


def test_switches_count_everywhere(replica):
    mine = built_in()
    first, second = replica(mine), replica(mine)
    assert len(second.tools()) == 2
    first.patch_tool(mine[0].id, "read-file", "1", False)
    second.catch_up()
    assert [one.slug for one in second.tools()] == ["list-dir"]
    third = replica(built_in(tools=("read-file", "write-file")))  # of another version of the program
    assert [one.slug for one in third.tools()] == ["write-file"]


@pytest.mark.parametrize("body", [b'{"soul": true}', b'{"argSchema": ' + b'{"a":' * 100_000], ids=["unknown", "deep"])
def test_rows_that_only_a_newer_version_can_read_are_told_and_left_alone(replica, database, body):
    store, other = replica(), replica()
    id, kept = with_tool(store)
    newer = store.put_tool(id, "newer", "1", tool())
    sql = "UPDATE bundle_files SET body = %s, revision = 99 WHERE path LIKE %s"
    database.write(lambda work: work.execute(sql, (body, f"%/{newer.slug}@%")))
    database.write(lambda work: work.execute("UPDATE bundle_store SET revision = 99"))
    for one in (store, other):
        one.catch_up()
        assert one.tools() == [kept]
        (mistake,) = one.mistakes()
        assert "newer OneTool" in mistake.message
    with pytest.raises(ConflictError, match="newer OneTool"):
        store.patch_tool(id, "newer", "1", False)
    store.put_tool(id, "after", "1", tool())
    other.catch_up()
    assert len(other.tools()) == 2


def test_times_are_those_of_the_database(replica, monkeypatch):
    import time

    store = replica()
    real = time.time
    for module in ("connection", "postgres"):
        monkeypatch.setattr(f"onetool.database.{module}.time", lambda: real() - 3600)
    before = time_text(real() - 60)
    id, kept = with_tool(store)
    assert before < kept.modified_at < time_text(real() + 60)
    assert store.bundle(id).created_at > before


def test_what_counts_a_call_never_asks_the_database(replica, monkeypatch):
    """It does so on the event loop."""
    store = replica()
    asked = []
    monkeypatch.setattr(store._storage._database, "read", asked.append)
    store.counter.record("a")
    assert asked == []


def test_usage_of_all_is_added_up(replica):
    first, second = replica(), replica()
    _, kept = with_tool(first)
    for store in (first, first, second):
        store.counter.record(kept.id)
    assert first.counter.of([kept.id])[kept.id][0] == 2
    first.close()
    second.close()
    assert replica().counter.of([kept.id])[kept.id][0] == 3
