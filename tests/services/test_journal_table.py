"""The audit log of several processes in one database: order, following, retention, lost connections."""

import threading
from pathlib import Path
from time import time

import pytest
from helpers import until
from services.journals import Audited, Flaky, audit_database, empty_database, lines

from onetool.config.model import AuditConfig
from onetool.core.call import ToolCall
from onetool.core.context import CallEvent
from onetool.core.spec import ToolSpec
from onetool.database import LockNumber
from onetool.database.postgres import Postgres
from onetool.database.sqlite import SqliteDatabase
from onetool.services import journal
from onetool.services.journal import AuditUnavailableError, table
from onetool.services.journal import audit as audit_view
from onetool.services.journal.audit import AuditFilter, AuditLog
from onetool.services.journal.row import ArgumentHasher, RowMaker
from onetool.services.journal.table import EventTable

__all__ = ["audit_database", "empty_database"]  # fixtures

SPEC = ToolSpec(name="web.get", description="")


def whats(place) -> list[str]:
    return [line["what"] for line in lines(place)]


@pytest.fixture
def database(tmp_path: Path):
    found = SqliteDatabase(tmp_path / "state.db")
    yield found
    found.close()


@pytest.fixture(params=["sqlite", "postgres"])
def replicas(request):
    """Two processes of one database, as they see it."""
    if request.param == "sqlite":
        first = request.getfixturevalue("database")
        second = SqliteDatabase(first.file)
    else:
        first = request.getfixturevalue("empty_database")
        second = Postgres(first._url)
    yield first, second
    second.close()


@pytest.fixture
def either(replicas):
    return replicas[0]


def test_who_follows_misses_no_line_of_any_replica(replicas) -> None:
    logs = [Audited(database, AuditConfig(mode="required")) for database in replicas]

    def work(log: Audited, name: str) -> None:
        for number in range(100):
            log.write("admin", f"{name}{number}")

    writers = [threading.Thread(target=work, args=one) for one in zip(logs, "ab", strict=True)]
    reader, seen, start = AuditLog(replicas[0]), [], 0
    for writer in writers:
        writer.start()
    while True:
        is_last = not any(writer.is_alive() for writer in writers)
        end = reader.end()
        seen += [record.what for record in reader.read_on(AuditFilter(), start, end)]
        start = end
        if is_last:
            break
    assert len(seen) == 200
    for name in "ab":
        assert [what for what in seen if what[0] == name] == [f"{name}{number}" for number in range(100)]
    for log in logs:
        log.close()


def test_portions_are_read_one_after_the_other(either, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_view, "MAX_READ", 7)
    monkeypatch.setattr(audit_view, "MIN_READ", 7)
    monkeypatch.setattr(journal, "MAX_APPENDED", 5)
    log = Audited(either, AuditConfig())
    for number in range(30):
        log.note("admin", str(number))
    log.flush()
    numbers = [str(number) for number in range(30)]
    assert whats(either) == numbers
    assert [record.what for record in log.log.page(AuditFilter(), 100).records] == numbers[::-1]
    log.close()


def test_replicas_share_the_key_of_the_hashes(replicas) -> None:
    for number, database in enumerate(replicas):
        log = Audited(database, AuditConfig())
        log.record(CallEvent.of(call=ToolCall(str(number), "web.get", {"pin": 1}, "mcp"), spec=SPEC, duration_ms=1.0))
        log.close()
    wanted = AuditFilter(args=AuditLog(replicas[0]).hash_of({"pin": 1}))
    assert [record.id for record in AuditLog(replicas[1]).page(wanted, 10).records] == ["1", "0"]


def test_lines_that_came_late_hide_none_that_are_wanted(either) -> None:
    """A replica that was away writes lines of an hour ago."""
    now = 1_794_830_400.0
    for at in (now, now - 3600):
        log = Audited(either, AuditConfig(), lambda: at)  # noqa: B023 - read while it is this one
        log.note("admin", f"{now - at:g}")
        log.close()
    reader = AuditLog(either)
    assert [record.what for record in reader.page(AuditFilter(since=now - 60), 10).records] == ["0"]
    assert [record.what for record in reader.page(AuditFilter(), 10).records] == ["0", "3600"]
    assert [record.what for record in reader.read_on(AuditFilter())] == ["0", "3600"]


def test_a_page_before_the_end_has_nothing_that_came_later(either) -> None:
    log = Audited(either, AuditConfig())
    for name in ("one", "two"):
        log.write("admin", name)
    end = log.log.end()
    log.write("admin", "three")
    assert [record.what for record in log.log.page(AuditFilter(), 10, end=end).records] == ["two", "one"]
    assert [record.what for record in log.log.read_on(AuditFilter(), end)] == ["three"]
    log.close()


# Retention


def test_old_lines_are_removed(either, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_SWEPT", 2)
    now = either.now()
    for age, names in ((2 * 86_400 + 60, ["old"] * 5), (0, ["new"])):
        log = Audited(either, AuditConfig(), lambda: now - age)  # noqa: B023 - read while it is this one
        for name in names:
            log.write("admin", name)
        log.close()
    limits = {"max_rows": 100, "max_mb": 1}
    assert EventTable(either).sweep(now, retention_days=3, **limits) == 0
    assert len(lines(either)) == 6
    assert EventTable(either).sweep(now, retention_days=2, **limits) == 0
    assert whats(either) == ["new"]


def test_the_oldest_lines_beyond_the_limit_are_removed_and_a_line_tells(either) -> None:
    log = Audited(either, AuditConfig(max_mb=1))
    rows = RowMaker(hasher=ArgumentHasher(None))
    for some in range(0, 6000, 500):
        entries = [log.entry("admin", f"{some + number} " + "x" * 200) for number in range(500)]
        log.table.append([rows.of_entry(entry) for entry in entries])
    log.note("admin", "last")  # starts the thread, which sweeps
    until(lambda: lines(either)[-1]["kind"] == "gap")
    log.close()
    *kept, gap = lines(either)
    first = int(kept[0]["what"].split()[0])
    assert gap["what"] == f"{first} lines removed: the log is limited to 1 MB"
    assert [line["what"].split()[0] for line in kept] == [*map(str, range(first, 6000)), "last"]
    assert 2000 < len(kept) < 4000  # of 270 to 500 bytes


def test_what_was_removed_is_told_though_the_database_goes_away(database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_SWEPT", 100)
    flaky, write = Flaky(database), database.write

    def write_twice(job, **options):
        done = write(job, **options)
        flaky.is_away = len(lines(database)) == 5800
        return done

    log = Audited(database, AuditConfig())
    rows = RowMaker(hasher=ArgumentHasher(None))
    for _ in range(12):
        log.table.append([rows.of_entry(log.entry("admin", "x" * 200)) for _ in range(500)])
    monkeypatch.setattr(database, "write", write_twice)
    assert EventTable(flaky).sweep(database.now(), retention_days=9, max_rows=10_000, max_mb=1) == 200
    monkeypatch.undo()
    log.close()


def test_a_follower_misses_no_line_after_all_were_removed(either) -> None:
    log = Audited(either, AuditConfig())
    log.write("admin", "one")
    end = log.log.end()
    log.table.sweep(time(), retention_days=-1, max_rows=1, max_mb=1)
    assert whats(either) == []
    log.write("admin", "two")
    assert [record.what for record in log.log.read_on(AuditFilter(), end)] == ["two"]
    log.close()


def test_one_replica_at_a_time_removes_old_lines(empty_database) -> None:
    other = Postgres(empty_database._url)
    log = Audited(empty_database, AuditConfig(mode="required"))
    log.write("admin", "x")

    def while_it_sweeps(work) -> None:
        work.lock(LockNumber.JOURNAL_SWEEP)
        log.table.sweep(time(), retention_days=-1, max_rows=1, max_mb=1)

    other.write(while_it_sweeps)
    assert whats(empty_database) == ["x"]
    log.table.sweep(time(), retention_days=-1, max_rows=1, max_mb=1)
    assert whats(empty_database) == []
    log.close()
    other.close()


# What can go wrong


@pytest.mark.parametrize("is_written", [True, False])
def test_no_line_is_lost_whose_writing_nobody_confirmed(either, is_written: bool) -> None:
    flaky = Flaky(either)
    log = Audited(flaky, AuditConfig())
    log.write("admin", "before")
    for name in ("one", "two"):
        log.note("admin", name)
    flaky.loses_commits = True
    log.flush()
    assert "the connection to the database was lost" in str(log.problem)
    if not is_written:
        either.write(lambda work: work.execute("DELETE FROM events WHERE what <> 'before'"))
    flaky.loses_commits = False
    log.note("admin", "three")
    log.flush()
    again = ["one", "two"] if is_written else []  # a line may be there twice, but never missing
    assert whats(either) == ["before", *again, "one", "two", "three"]
    log.close()


def test_a_process_that_hangs_while_it_writes_is_waited_for_only_so_long(
    replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table.EventTable.append, "__defaults__", (0.05,))
    database, other = replicas
    log = Audited(database, AuditConfig(mode="required"))

    def hang(work) -> None:
        work.lock(LockNumber.JOURNAL_APPEND)
        with pytest.raises(AuditUnavailableError, match=r"lock timeout|locked by another process"):
            log.write("call", "web.get")

    other.write(hang)
    log.write("call", "web.get")
    assert whats(database) == ["web.get"]
    log.close()


@pytest.mark.long
def test_a_server_that_was_stopped_gets_what_has_waited(
    postgres, empty_database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "RETRY_S", 0.05)
    usual, required = (Audited(empty_database, AuditConfig(mode=mode)) for mode in ("usual", "required"))
    required.write("call", "before")
    postgres.stop()
    try:
        usual.note("call", "meanwhile")
        with pytest.raises(AuditUnavailableError, match="the database can't be reached"):
            required.write("call", "refused")
        until(lambda: "the database can't be reached" in str(usual.problem))
    finally:
        postgres.start_again()
    until(lambda: usual.problem is None, within=20)
    required.write("call", "after")
    assert whats(empty_database) == ["before", "meanwhile", "after"]
    usual.close()
    required.close()
