"""Reading the audit log: backwards in pages, with filters, and on and on."""

from pathlib import Path

import pytest
from helpers import each
from services.journals import Audited, audit_database

from onetool.config.model import AuditConfig
from onetool.core.principal import Principal
from onetool.database.sqlite import SqliteDatabase
from onetool.services.journal.audit import AuditFilter, AuditLog

__all__ = ["audit_database"]  # a fixture

NOON = 1_794_830_400.0  # 2026-11-16T12:00:00Z
CI = Principal(name="ci", owner="ci")
ANN = Principal(name="ann", owner="https://id|7", role="edit")


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def kept(request, tmp_path_factory):
    """Ten days with three lines each, which are only read."""
    if request.param == "sqlite":
        return filled(SqliteDatabase(tmp_path_factory.mktemp("kept") / "state.db"))
    return filled(request.getfixturevalue("audit_database"))


@pytest.fixture
def place(tmp_path: Path):
    """The same, to add to."""
    return filled(SqliteDatabase(tmp_path / "state.db"))


def filled(place):
    now = NOON
    for day in range(10):
        log = Audited(place, AuditConfig(retention_days=9000), lambda: now)  # noqa: B023 - read while this day lasts
        log.note("call", "web.get", principal=CI, id=f"{day}a")
        log.note("call", "time.now", principal=ANN, outcome="execution_error", reason="timeout", id=f"{day}b")
        log.note("change", "PUT /tools/bundles/w", principal=ANN, outcome="conflict", status=409, id=f"{day}c")
        log.close()
        now += 86_400
    return place


def ids(place, most: int = 1000, **wanted) -> list[str]:
    return [record.id for record in AuditLog(place).page(AuditFilter(**wanted), most).records]


def test_the_newest_come_first(kept) -> None:
    assert ids(kept) == [f"{day}{part}" for day in range(9, -1, -1) for part in "cba"]
    assert ids(kept, 4) == ["9c", "9b", "9a", "8c"]


@each(
    ("wanted", "found"),
    [
        ({"who": "ci"}, ["9a", "8a"]),
        ({"who": "https://id|7"}, ["9c", "9b", "8c", "8b"]),
        ({"who": ""}, []),
        ({"kind": "change"}, ["9c", "8c"]),
        ({"tool": "time.*"}, ["9b", "8b"]),
        ({"tool": "*bundles*"}, ["9c", "8c"]),
        ({"tool": "time.[n]ow"}, ["9b", "8b"]),
        ({"tool": "TIME.*"}, []),
        ({"tool": "time_*"}, []),
        ({"outcome": "ok"}, ["9a", "8a"]),
        ({"outcome": "error"}, ["9c", "9b", "8c", "8b"]),
        ({"outcome": "timeout"}, ["9b", "8b"]),
        ({"outcome": "conflict"}, ["9c", "8c"]),
        ({"outcome": "409"}, ["9c", "8c"]),
        ({"who": "ci", "kind": "change"}, []),
    ],
)
def test_filters(kept, wanted: dict, found: list[str]) -> None:
    assert ids(kept, since=NOON + 8 * 86_400, **wanted) == found


def test_times(kept) -> None:
    assert ids(kept, since=NOON + 86_400, until=NOON + 2 * 86_400) == ["1c", "1b", "1a"]
    assert ids(kept, since=NOON + 20 * 86_400) == []
    assert ids(kept, until=NOON) == []
    assert len(ids(kept, since=-1e300, until=1e300)) == 30


def test_pages_follow_each_other_while_lines_are_added(place) -> None:
    seen, before = [], None
    for _ in range(100):
        page = AuditLog(place).page(AuditFilter(), 7, before)
        seen += [record.id for record in page.records]
        log = Audited(place, AuditConfig(), lambda: NOON + 20 * 86_400)
        log.note("admin", "later", id="later")
        log.close()
        if (before := page.before) is None:
            break
    assert seen == [f"{day}{part}" for day in range(9, -1, -1) for part in "cba"]


def test_no_log_is_an_empty_one_and_none_is_made(tmp_path: Path) -> None:
    none = AuditLog(SqliteDatabase(tmp_path / "none" / "state.db", makes_folder=True))
    assert none.page(AuditFilter(), 10) == ([], None)
    assert list(none.read_on(AuditFilter())) == []
    assert not (tmp_path / "none").exists()


def test_what_comes_later_is_read_once(place) -> None:
    at = AuditLog(place).end()
    assert list(AuditLog(place).read_on(AuditFilter(), at)) == []
    for day in (9, 10):
        log = Audited(place, AuditConfig(), lambda: NOON + day * 86_400)  # noqa: B023
        log.note("admin", f"later {day}")
        log.close()
    found = AuditLog(place).read_on(AuditFilter(), at)
    assert [record.what for record in found] == ["later 9", "later 10"]
    assert list(AuditLog(place).read_on(AuditFilter(), AuditLog(place).end())) == []
