"""Journals of tests: in `state.db`, or in one PostgreSQL whose table is empty for each test."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from onetool.config.model import AuditConfig
from onetool.database import ChangeUnknownError, DatabaseAwayError
from onetool.database.sqlite import SqliteDatabase
from onetool.services.journal import Journal, JournalSettings
from onetool.services.journal.audit import AuditFilter, AuditLog
from onetool.services.journal.stats import Stats


@pytest.fixture(scope="module")
def audit_database(postgres):
    from onetool.database.migrations import migrate
    from onetool.database.postgres import Postgres

    found = Postgres(postgres.new_schema())
    migrate(found)
    yield found
    found.close()


@pytest.fixture
def empty_database(audit_database):
    audit_database.write(lambda work: work.execute("TRUNCATE events RESTART IDENTITY"))
    return audit_database


class Audited(Journal):
    """A journal with an audit log."""

    def __init__(self, database, config=None, clock=None) -> None:
        config = config or AuditConfig()
        limits = {"retention_days": config.retention_days, "max_mb": config.max_mb}
        required = config.mode == "required"
        super().__init__(database, None, JournalSettings(audits=True, is_required=required, **limits), clock)
        self.log = AuditLog(self.table)

    def note(self, kind, what, **more) -> None:
        self.record(self.entry(kind, what, **more))

    def write(self, kind, what, **more) -> None:
        self.require(self.entry(kind, what, **more))


class Counted(Journal):
    """A journal without an audit log, and the stats that are read from it."""

    def __init__(
        self, database, retention_days=90, now=None, inline_bytes=16_384, recorder=None, max_rows=5_000_000, **more
    ) -> None:
        settings = JournalSettings(retention_days=retention_days, max_rows=max_rows, **more)
        super().__init__(database, recorder, settings, now)
        self._stats = Stats(self, inline_bytes, now)
        self.record = self.record_run = self.add
        self.record_gap = self.record_wait

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stats, name)


def lines(database) -> list[dict]:
    """Return the lines of an audit log, in the order in which they were written."""
    return [msgspec.to_builtins(record) for record in AuditLog(database).read_on(AuditFilter())]


def lines_in(home: Path) -> list[dict]:
    """Return the lines of a state folder. Makes nothing."""
    if not (home / "state.db").exists():
        return []
    database = SqliteDatabase(home / "state.db")
    try:
        return lines(database)
    finally:
        database.close()


class Flaky:
    """A database that can be away, or lose its connection while a change is confirmed."""

    def __init__(self, database) -> None:
        self._database = database
        self.is_away = self.loses_commits = False

    def __getattr__(self, name: str):
        return getattr(self._database, name)

    def read(self, job, **options):
        if self.is_away:
            raise DatabaseAwayError("connection refused: 10.0.0.9")
        return self._database.read(job, **options)

    def write(self, job, **options):
        if self.is_away:
            raise DatabaseAwayError("connection refused: 10.0.0.9")
        done = self._database.write(job, **options)
        if self.loses_commits:
            raise ChangeUnknownError
        return done
