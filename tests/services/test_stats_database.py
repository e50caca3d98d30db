"""Stats in the database that replicas share: sums of all, batches that count once, and what waits while it is away."""

import time

import pytest
from helpers import until
from stats_database import asked

from onetool.config.model import AuditConfig
from onetool.core.call import ToolCall
from onetool.core.context import CallEvent
from onetool.core.errors import ToolFailure
from onetool.database import ChangeUnknownError
from onetool.database.postgres import Postgres
from onetool.services.audit import AuditLog
from onetool.services.event_queue import Recorder
from onetool.services.stats import UsageStats
from onetool.services.stats.usage import StatsFilter

COUNTED = "SELECT count(*) FROM {calls}"


def call(stats, tool="a.b", times=1, **more):
    for _ in range(times):
        stats.record(CallEvent.of(call=ToolCall("1", tool, {}, "test"), duration_ms=1.0, **more))


class Unsure:
    """A database that loses the connection while a change is confirmed: after it was written, or before."""

    def __init__(self, database, is_written):
        self._database, self._is_written, self.times = database, is_written, 2
        self.clock, self.dialect, self.now = database.clock, database.dialect, database.now
        self.read = database.read

    def write(self, job, max_wait):
        if self.times:
            self.times -= 1
            if self._is_written:
                self._database.write(job)
            raise ChangeUnknownError
        return self._database.write(job)


def test_the_oldest_rows_beyond_a_number_are_removed(database):
    clock = [time.time() - 1000]
    stats = UsageStats(database, max_rows=3, now=lambda: clock[0])
    for number in range(5):
        clock[0] += 10
        call(stats, f"a.t{number}")
        stats.record_menu("c", "mcp", 4000, 400)
    clock[0] += 3600  # the next look for what is too old
    stats.record_gap("c", 1.0)
    stats.flush()
    assert asked(database, COUNTED) == [(3,)]
    assert asked(database, "SELECT count(*) FROM {menus}") == [(3,)]
    assert asked(database, "SELECT min(tool) FROM {calls}") == [("a.t2",)]


def test_the_figures_are_those_of_all_replicas(database, database_url):
    other = Postgres(database_url)
    one, two = UsageStats(database), UsageStats(other)
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


@pytest.mark.parametrize("is_written", [True, False])
def test_a_batch_whose_end_nobody_saw_is_sent_again_and_counts_once(database, is_written):
    stats = UsageStats(Unsure(database, is_written))
    call(stats, times=3)
    stats.flush()
    assert stats.health()["waiting"] == 3
    call(stats, "c.d")
    stats.flush()
    assert stats.health()["waiting"] == 4
    stats.flush()
    assert stats.health() is None
    assert asked(database, "SELECT tool, count(*) FROM {calls} GROUP BY 1 ORDER BY 1") == [("a.b", 3), ("c.d", 1)]


@pytest.mark.long
def test_while_the_database_is_away_rows_wait_and_the_oldest_are_dropped(postgres, database, monkeypatch, caplog):
    monkeypatch.setattr("onetool.services.stats.writer.MAX_WAITING", 50)
    recorder = Recorder()
    stats = UsageStats(database, recorder=recorder)
    call(stats)
    stats.flush()
    postgres.stop()
    try:
        for number in range(80):
            recorder.put((call, (stats, f"t{number:02}")))
        stats.flush()
        stats.flush()
        health = stats.health()
        assert (health["status"], health["waiting"], health["dropped"]) == ("degraded", 50, 30)
        assert "can't be reached" in health["problem"]
        assert stats.facts("a.b")["calls"] == 0
        with pytest.raises(ToolFailure, match="stats can't be read: the database can't be reached") as refused:
            stats.summary()
        assert refused.value.reason == "database_away"
    finally:
        assert postgres.start_again()
    until(lambda: stats.health() == {"status": "degraded", "waiting": 0, "dropped": 30}, 20)  # by itself
    tools = [tool for (tool,) in asked(database, "SELECT tool FROM {calls} ORDER BY at")]
    assert tools == ["a.b", *(f"t{number}" for number in range(30, 80))]
    assert caplog.text.count("rows were dropped") == 1


def test_rows_that_the_database_refuses_are_dropped_and_others_go_on(database):
    stats = UsageStats(database)
    call(stats, run="a\0b")  # PostgreSQL has no texts with NUL
    stats.flush()
    assert (stats.health()["waiting"], stats.health()["dropped"]) == (0, 1)
    call(stats)
    stats.flush()
    assert asked(database, COUNTED) == [(1,)]


def test_old_rows_are_forgotten_by_one_replica_at_a_time(database, database_url):
    clock = [0.0]
    stats = UsageStats(database, retention_days=1, now=lambda: clock[0])
    call(stats)
    stats.flush()
    clock[0] = 86_500.0
    with Postgres(database_url).connect() as other:  # which is at it
        other.execute("SELECT pg_advisory_xact_lock(7307199513280412)")
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
    stats, log = UsageStats(other), AuditLog(other, AuditConfig())
    call(stats)
    log.record("admin", "tokens add")
    stats.flush()
    log.flush()
    last = "SELECT (SELECT max(at) FROM stats_calls), (SELECT max(at) FROM audit)"
    found = database.read(lambda work: work.execute(last))[0]
    log.close()
    other.close()
    assert all(abs(at - now) < 600 for at in found)
