"""The audit log of several replicas in one PostgreSQL: order, following, retention, lost connections, moving."""

import threading

import pytest
from helpers import until
from services.audit_places import Flaky, audit_database, empty_database, lines

from onetool.config.model import AuditConfig
from onetool.core.call import ToolCall
from onetool.core.context import CallEvent
from onetool.core.spec import ToolSpec
from onetool.database import LockNumber
from onetool.database.postgres import Postgres
from onetool.services import audit
from onetool.services.audit import AuditLog, AuditUnavailableError, table
from onetool.services.audit.record import AuditFilter
from onetool.services.audit.table import AuditTable, AuditTableWriter

__all__ = ["audit_database", "empty_database"]  # fixtures

SPEC = ToolSpec(name="web.get", description="")


def whats(place) -> list[str]:
    return [line["what"] for line in lines(place)]


@pytest.fixture
def database(empty_database):
    return empty_database


@pytest.fixture(scope="module")
def other(audit_database):
    found = Postgres(audit_database._url)
    yield found
    found.close()


@pytest.fixture
def replicas(database, other):
    return database, other


def test_who_follows_misses_no_line_of_any_replica(replicas) -> None:
    logs = [AuditLog(database, AuditConfig(mode="required")) for database in replicas]

    def work(log: AuditLog, name: str) -> None:
        for number in range(100):
            log.write("admin", f"{name}{number}")

    writers = [threading.Thread(target=work, args=one) for one in zip(logs, "ab", strict=True)]
    reader, seen, after = AuditTable(replicas[0]), [], None
    for writer in writers:
        writer.start()
    while True:
        is_last = not any(writer.is_alive() for writer in writers)
        for record, behind in reader.read_on(after):
            assert record is not None
            seen.append(record.what)
            after = behind
        if is_last:
            break
    assert len(seen) == 200
    for name in "ab":
        assert [what for what in seen if what[0] == name] == [f"{name}{number}" for number in range(100)]
    for log in logs:
        log.close()


def test_portions_are_read_one_after_the_other(database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "READ_AT_ONCE", 7)
    monkeypatch.setattr(table, "FEWEST_AT_ONCE", 7)
    monkeypatch.setattr(table, "APPENDED_AT_ONCE", 5)
    log = AuditLog(database, AuditConfig())
    for number in range(30):
        log.record("admin", str(number))
    log.flush()
    numbers = [str(number) for number in range(30)]
    assert whats(database) == numbers
    assert [record.what for record in log.reader.page(AuditFilter(), 100).records] == numbers[::-1]
    log.close()


def test_replicas_share_the_key_of_the_hashes(replicas) -> None:
    for number, database in enumerate(replicas):
        log = AuditLog(database, AuditConfig())
        log.record_call(CallEvent(call=ToolCall(str(number), "web.get", {"pin": 1}, "mcp"), spec=SPEC, duration_ms=1.0))
        log.close()
    wanted = AuditFilter(args=AuditTable(replicas[0]).hash_of({"pin": 1}))
    assert [record.id for record in AuditTable(replicas[1]).page(wanted, 10).records] == ["1", "0"]


def test_lines_that_came_late_hide_none_that_are_wanted(database) -> None:
    """A replica that was away writes lines of an hour ago."""
    now = 1_794_830_400.0
    for at in (now, now - 3600):
        log = AuditLog(database, AuditConfig(), lambda: at)  # noqa: B023 - read while it is this one
        log.record("admin", f"{now - at:g}")
        log.close()
    reader = AuditTable(database)
    assert [record.what for record in reader.page(AuditFilter(since=now - 60), 10).records] == ["0"]
    assert [record.what for record in reader.page(AuditFilter(), 10).records] == ["0", "3600"]
    assert [record.what for record, _ in reader.read_on(None) if record] == ["0", "3600"]


def test_a_page_before_the_end_has_nothing_that_came_later(database) -> None:
    log = AuditLog(database, AuditConfig())
    for name in ("one", "two"):
        log.write("admin", name)
    end = log.reader.end()
    log.write("admin", "three")
    assert [record.what for record in log.reader.page(AuditFilter(), 10, end).records] == ["two", "one"]
    assert [record.what for record, _ in log.reader.read_on(end) if record] == ["three"]
    log.close()


def test_lines_that_cant_be_read_are_counted(database) -> None:
    log = AuditLog(database, AuditConfig())
    log.write("admin", "one")
    database.write(lambda work: work.execute("UPDATE audit SET line = replace(line, 'admin', 'of a newer version')"))
    log.write("admin", "two")
    page = log.reader.page(AuditFilter(), 10)
    assert ([record.what for record in page.records], page.skipped) == (["two"], 1)
    log.close()


# Retention


def test_old_lines_are_removed_by_the_clock_of_the_database(database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "SWEPT_AT_ONCE", 2)
    log = AuditLog(database, AuditConfig(retention_days=2), lambda: 0.0)  # a machine whose clock is wrong
    for number in range(5):
        log.write("admin", f"old {number}")
    age = f"UPDATE audit SET written_at = {database.clock} - %s"
    database.write(lambda work: work.execute(age, (2 * 86_400 + 60,)))
    log.write("admin", "new")
    AuditTableWriter(database, AuditConfig(retention_days=3)).sweep()
    assert len(lines(database)) == 6
    AuditTableWriter(database, AuditConfig(retention_days=2)).sweep()
    assert whats(database) == ["new"]
    log.close()


def test_one_replica_at_a_time_removes_old_lines(replicas) -> None:
    database, other = replicas
    writer = AuditTableWriter(database, AuditConfig(retention_days=1))
    writer.append([b'{"time":"2026-11-16T12:00:00.000Z","kind":"admin","what":"x","outcome":"ok"}\n'])
    database.write(lambda work: work.execute("UPDATE audit SET written_at = 0"))

    def while_it_sweeps(work) -> None:
        work.execute("SELECT pg_advisory_xact_lock(%s)", (LockNumber.AUDIT_SWEEP,))
        writer.sweep()

    other.write(while_it_sweeps)
    assert whats(database) == ["x"]
    writer.sweep()
    assert whats(database) == []


# What can go wrong


@pytest.mark.parametrize("is_written", [True, False])
def test_lines_whose_writing_nobody_confirmed_are_there_once(database, is_written: bool) -> None:
    flaky = Flaky(database)
    log = AuditLog(flaky, AuditConfig())
    log.write("admin", "before")
    for name in ("one", "two"):
        log.record("admin", name)
    flaky.loses_commits = True
    log.flush()
    assert log.problem == "the connection to the database was lost while it was written"
    if not is_written:
        database.write(lambda work: work.execute("DELETE FROM audit WHERE line NOT LIKE '%before%'"))
    flaky.loses_commits = False
    log.record("admin", "three")
    log.flush()
    assert whats(database) == ["before", "one", "two", "three"]
    log.close()


def test_a_replica_that_hangs_while_it_appends_is_waited_for_only_so_long(
    replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "PATIENCE_S", 0.05)
    database, other = replicas
    log = AuditLog(database, AuditConfig(mode="required"))

    def hang(work) -> None:
        table.take_lock(work)
        with pytest.raises(AuditUnavailableError, match="lock timeout"):
            log.write("call", "web.get")

    other.write(hang)
    log.write("call", "web.get")
    assert whats(database) == ["web.get"]
    log.close()


def test_a_server_that_was_stopped_gets_what_has_waited(postgres, database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "RETRY_S", 0.05)
    usual, required = (AuditLog(database, AuditConfig(mode=mode)) for mode in ("usual", "required"))
    required.write("call", "before")
    postgres.stop()
    try:
        usual.record("call", "meanwhile")
        with pytest.raises(AuditUnavailableError, match="the database can't be reached"):
            required.write("call", "refused")
        until(lambda: usual.problem == "the database can't be reached")
    finally:
        postgres.start_again()
    until(lambda: usual.problem is None, within=20)
    required.write("call", "after")
    assert whats(database) == ["before", "meanwhile", "after"]
    usual.close()
    required.close()
