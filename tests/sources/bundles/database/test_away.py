"""The database is away: what is known goes on, changes are refused at once, and it comes back by itself."""

import pytest
from sources.bundles.files.things import an_id, built_in, bundle, tool, with_tool

from onetool.sources.bundles.errors import UnavailableError


@pytest.mark.long
def test_reads_go_on_and_changes_are_refused_at_once(postgres, replica, wait_until):
    mine = built_in()
    store, other = replica(mine), replica(mine)
    id, kept = with_tool(store)
    store.patch_tool(mine[0].id, "read-file", "1", False)
    other.sync()
    other.watch(other.sync)
    key = store.key()
    postgres.stop()
    try:
        for number in range(200):  # a time-out each would be 600 s
            for one in (store, other):
                one.catch_up()
                assert one.tool(id, "forecast", "1") == kept
                assert [hit.tool for hit in one.search("forecast")] == [kept]
                assert {tool.slug for tool in one.tools()} == {"forecast", "list-dir"}
            with pytest.raises(UnavailableError, match="nothing has changed") as refused:
                store.put_tool(id, f"t{number}", "1", tool())
            assert refused.value.code == "database_away"
            store.counter.record(kept.id)
        assert store.counter.of([kept.id])[kept.id][0] == 200
        assert store.key() == key
        assert store.reap() == []
        store.sync()
    finally:
        assert postgres.start_again()
    wait_until(lambda: not store._storage._database.is_away)
    more = store.put_tool(id, "more", "1", tool())
    wait_until(lambda: other.tool(id, "more", "1") == more)
    store.close()
    assert other.counter.of([kept.id])[kept.id][0] == 200


@pytest.mark.long
def test_a_process_that_starts_meanwhile_says_so(postgres, replica, wait_until):
    postgres.stop()
    try:
        store = replica()
        with pytest.raises(UnavailableError) as refused:
            store.bundles()
        assert refused.value.code == "database_away"
        assert store.key() == store.key()  # else no page has a next one
    finally:
        assert postgres.start_again()
    wait_until(lambda: not store._storage._database.is_away)
    assert store.bundles() == []


def test_a_change_whose_end_nobody_knows_is_told_so_and_can_be_repeated(replica):
    store, id = replica(), an_id()
    store.bundles()
    notify = "onetool.database.postgres.PostgresTransaction.notify"

    def lose(self, topic, detail=""):
        (pid,) = self.execute("SELECT pg_backend_pid()")[0]
        with store._storage._database.connect(autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 1000)", (pid,))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(notify, lose)
        with pytest.raises(UnavailableError, match="Send it again") as refused:
            store.put_bundle(id, bundle())
    assert refused.value.code == "change_unknown"
    again, _ = store.put_bundle(id, bundle())
    assert store.bundle(id) == again
