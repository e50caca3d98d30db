"""The figures of the journal are those that the audit log and the stats of earlier versions gave for the same calls.

They were recorded with such a version, which also made the `state.db` (`data/make_old_journal.py`).
"""

import gzip
import json
from pathlib import Path

import msgspec
import pytest
from services.journal_feed import KEY, NOW, feed, figures, namespace
from services.journals import audit_database, empty_database

from onetool.database.sqlite import SqliteDatabase
from onetool.services.journal import Journal, JournalSettings
from onetool.services.journal import takeover as takeovers
from onetool.services.journal.audit import AuditFilter, AuditLog
from onetool.services.journal.report import report
from onetool.services.journal.stats import Stats
from onetool.services.journal.takeover import Takeover
from onetool.services.journal.usage import StatsFilter
from onetool.services.metrics import Metrics, exposition

__all__ = ["audit_database", "empty_database"]  # fixtures

DATA = Path(__file__).parents[1] / "data"
OLD = ("audit", "stats_calls", "stats_runs", "stats_replies", "stats_menus", "stats_gaps")
SETTINGS = JournalSettings(audits=True, retention_days=3650)


@pytest.fixture
def recorded():
    return json.loads(gzip.decompress((DATA / "journal_figures.json.gz").read_bytes()))


@pytest.fixture
def old_file(tmp_path):
    """A `state.db` of an earlier version."""
    file = tmp_path / "state.db"
    file.write_bytes(gzip.decompress((DATA / "old_journal.db.gz").read_bytes()))
    file.chmod(0o600)
    database = SqliteDatabase(file)
    yield database
    database.close()


@pytest.fixture(params=["sqlite", "postgres"])
def new(request, tmp_path):
    if request.param == "postgres":
        yield request.getfixturevalue("empty_database")
        return
    database = SqliteDatabase(tmp_path / "new" / "state.db", makes_folder=True)
    yield database
    database.close()


@pytest.fixture(params=["sqlite", "postgres"])
def old(request, old_file):
    """The rows of the old file, in the tables of an earlier version."""
    if request.param == "sqlite":
        return old_file
    database = request.getfixturevalue("empty_database")
    for table in OLD:
        columns = [row[1] for row in old_file.read(lambda work: work.execute(f"PRAGMA table_info({table})"))]  # noqa: B023
        columns = [name for name in columns if name != "number"]
        rows = old_file.read(lambda work: work.execute(f"SELECT {', '.join(columns)} FROM {table}"))  # noqa: B023
        database.write(lambda work: work.insert(table, ", ".join(columns), rows))  # noqa: B023
    set_key(database)
    return database


def set_key(database):
    database.write(lambda work: work.execute("UPDATE audit_key SET key = %s", (KEY,)))


def found(journal, metrics):
    log, seen = AuditLog(journal.table), namespace(AuditFilter=AuditFilter, StatsFilter=StatsFilter, report=report)
    text = exposition({"": metrics.families()}).decode().splitlines()
    stats = Stats(journal, now=lambda: NOW)
    shown = figures(stats, lambda wanted: log.page(wanted, 1000).records, text, seen)
    return msgspec.json.decode(msgspec.json.encode(shown))


def left(database):
    return [database.read(lambda work: work.execute(f"SELECT count(*) FROM {table}"))[0][0] for table in OLD]  # noqa: B023


def assert_same(shown, recorded, where=""):
    """Compare all figures. The two databases compute a median in different ways, which may round differently."""
    if isinstance(recorded, float):
        assert shown == pytest.approx(recorded, abs=0.0011), where
    elif isinstance(recorded, dict):
        assert shown.keys() == recorded.keys(), where
        for name, value in recorded.items():
            assert_same(shown[name], value, f"{where}.{name}")
    elif isinstance(recorded, list):
        assert len(shown) == len(recorded), where
        for number, value in enumerate(recorded):
            assert_same(shown[number], value, f"{where}[{number}]")
    else:
        assert shown == recorded, where


def test_the_same_events_give_the_same_figures(new, recorded):
    set_key(new)
    now, metrics = [0.0], Metrics()
    journal = Journal(new, None, SETTINGS, lambda: now[0])
    journal.recorder.observers.append(metrics.observe)
    for now[0], what, args in feed():
        if what in ("call", "run"):
            journal.add(args[0])
            journal.recorder.observe(args[0])
        elif what == "entry":
            journal.add(journal.entry(args[0], args[1], **args[2]))
        else:
            {"reply": journal.record_reply, "menu": journal.record_menu, "wait": journal.record_wait}[what](*args)
    now[0] = NOW
    assert_same(found(journal, metrics), recorded)
    journal.close()


def test_a_reader_takes_over_what_an_earlier_version_wrote(old, recorded):
    assert all(left(old))
    shown = found(Journal(old, None, SETTINGS, lambda: NOW), Metrics())
    assert_same(shown | {"metrics": recorded["metrics"]}, recorded)
    assert left(old) == [0] * len(OLD)


def test_a_server_takes_it_over_in_the_background_newest_first(old, recorded):
    takeover = Takeover(old)
    assert takeover.step(7) == takeovers.BETWEEN_S
    times = old.read(lambda work: work.execute("SELECT at FROM events"))
    rest = [old.read(lambda work: work.execute(f"SELECT max(at) FROM {table}"))[0][0] for table in OLD]  # noqa: B023
    assert 7 * len(OLD) <= len(times) < 8 * len(OLD)
    assert min(at for (at,) in times) >= min(rest)
    steps = 1
    while takeover.step(7) is not None:
        steps += 1
    assert steps > 10
    assert left(old) == [0] * len(OLD)
    shown = found(Journal(old, None, SETTINGS, lambda: NOW), Metrics())
    assert_same(shown | {"metrics": recorded["metrics"]}, recorded)


def test_who_follows_the_log_is_not_told_old_lines_again(old):
    log = AuditLog(old)
    journal = Journal(old, None, SETTINGS, lambda: NOW)
    journal.require(journal.entry("admin", "new"))
    end = log.end()
    Takeover(old).finish()
    assert list(log.read_on(AuditFilter(), end)) == []
    assert [record.what for record in log.read_on(AuditFilter())][-1] == "new"
    journal.close()


def test_a_damaged_line_is_left_out(old_file, caplog):
    old_file.write(lambda work: work.execute("UPDATE audit SET line = '{' WHERE number = 3"))
    before = left(old_file)[0]
    Takeover(old_file).finish()
    assert len(list(AuditLog(old_file).read_on(AuditFilter()))) == before - 1
    assert "a damaged line of the audit log was left out" in caplog.text


def test_a_file_that_can_not_be_changed_stays_as_it_is(old_file, monkeypatch):
    def refuse(*_args, **_options):
        raise takeovers.DatabaseError("read-only")

    monkeypatch.setattr(old_file, "write", refuse)
    assert list(AuditLog(old_file).read_on(AuditFilter())) == []
    assert all(left(old_file))
