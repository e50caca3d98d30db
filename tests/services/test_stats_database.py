"""Stats in the database that replicas share: sums of all, and what waits while it is away."""

import time

import msgspec
import pytest
from helpers import until
from services.journals import Audited, Counted
from stats_database import asked

from onetool.core.call import ToolCall
from onetool.core.context import CallEvent
from onetool.core.errors import ToolFailure
from onetool.database.postgres import Postgres
from onetool.services.journal.recorder import Recorder
from onetool.services.journal.usage import StatsFilter

COUNTED = "SELECT count(*) FROM events WHERE tool IS NOT NULL"


def call(stats, tool="a.b", times=1, **more):
    for _ in range(times):
        stats.record(CallEvent.of(call=ToolCall("1", tool, {}, "test"), duration_ms=1.0, **more))


def test_the_oldest_rows_beyond_a_number_are_removed(database):
    clock = [time.time() - 1000]
    stats = Counted(database, max_rows=3, now=lambda: clock[0])
    for number in range(5):
        clock[0] += 10
        call(stats, f"a.t{number}")
    clock[0] += 3600  # the next look for what is too old
    stats.record_gap("c", 1.0)
    stats.flush()
    assert asked(database, "SELECT tool, kind FROM events ORDER BY at") == [
        ("a.t3", "call"),
        ("a.t4", "call"),
        (None, "wait"),
    ]


def test_the_figures_are_those_of_all_replicas(database, database_url):
    other = Postgres(database_url)
    one, two = Counted(database), Counted(other)
    call(one, times=3, run="r")
    call(two, times=2)
    two.record_menu("c", "mcp", 4000, 400)
    two.flush()
    summary = one.summary()
    assert (summary["total_calls"], summary["calls_in_runs"], summary["context_saved"]) == (5, 3, 900)
    assert two.facts("a.b")["calls"] == 5
    assert two.usage(["a.b"], 1).calls == 5
    assert two.overview(StatsFilter(days=1, allowed=["a.b", "c.d"])).calls == 5
    assert two.overview(StatsFilter(days=1, allowed=["c.d"])).calls == 0
    assert isinstance(summary["bytes_in"], int)
    other.close()


@pytest.mark.long
def test_while_the_database_is_away_rows_wait_and_the_newest_are_lost(postgres, database, monkeypatch, caplog):
    monkeypatch.setattr("onetool.services.journal.MAX_WAITING", 50)
    recorder = Recorder()
    stats = Counted(database, recorder=recorder)
    call(stats)
    stats.flush()
    postgres.stop()
    try:
        for number in range(80):
            recorder.put(call, stats, f"t{number:02}")
        stats.flush()
        stats.flush()
        health = stats.health()
        assert (health["status"], health["waiting"], health["lost"]) == ("degraded", 50, 30)
        assert "can't be reached" in health["problem"]
        assert stats.facts("a.b")["calls"] == 0
        with pytest.raises(ToolFailure, match="stats can't be read: the database can't be reached") as refused:
            stats.summary()
        assert refused.value.reason == "database_away"
    finally:
        assert postgres.start_again()
    until(lambda: stats.health() == {"status": "degraded", "waiting": 0, "lost": 30}, 20)  # by itself
    tools = [tool for (tool,) in asked(database, "SELECT tool FROM events ORDER BY at")]
    assert tools == ["a.b", *(f"t{number:02}" for number in range(50))]
    assert caplog.text.count("the journal can't be written") == 1


def test_old_rows_are_forgotten_by_one_replica_at_a_time(database, database_url):
    clock = [0.0]
    stats = Counted(database, retention_days=1, now=lambda: clock[0])
    call(stats)
    stats.flush()
    clock[0] = 86_500.0
    with Postgres(database_url).connect() as other:  # which is at it
        other.execute("SELECT pg_advisory_xact_lock(7307199513280506)")
        call(stats)
        stats.flush()
        assert asked(database, COUNTED) == [(2,)]
    clock[0] += 3601
    call(stats)
    stats.flush()
    assert asked(database, COUNTED) == [(2,)]


def test_audit_and_stats_have_the_time_of_the_database(database_url, database, monkeypatch):
    now = time.time()
    for module in ("connection", "postgres"):  # the clock of this machine
        monkeypatch.setattr(f"onetool.database.{module}.time", lambda: now - 3600)
    other = Postgres(database_url)
    stats, log = Counted(other), Audited(other)
    event = CallEvent.of(call=ToolCall("1", "a.b"), duration_ms=1.0)
    stats.record(msgspec.structs.replace(event, ended_at=now - 3600))
    log.note("admin", "tokens add")
    stats.flush()
    log.flush()
    last = "SELECT min(at), max(at) FROM events"
    found = database.read(lambda work: work.execute(last))[0]
    log.close()
    other.close()
    assert all(abs(at - now) < 600 for at in found)
