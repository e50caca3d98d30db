"""The audit log goes from a folder into a database and back: each line once, in order, with the key of its hashes."""

from pathlib import Path

import msgspec
import pytest
from services.audit_places import audit_database, empty_database, lines

from onetool.config.model import AuditConfig
from onetool.core.call import ToolCall
from onetool.core.context import CallEvent
from onetool.core.spec import ToolSpec
from onetool.database.moving import Moved, MoveOptions
from onetool.services.audit import AuditLog, reader_of, table
from onetool.services.audit.record import AuditFilter
from onetool.services.audit.table import AuditMover

__all__ = ["audit_database", "empty_database"]  # fixtures

NOON = 1_794_830_400.0  # 2026-11-16T12:00:00Z
SPEC = ToolSpec(name="web.get", description="")


class Settings(msgspec.Struct):
    audit: AuditConfig = AuditConfig()


@pytest.fixture
def database(empty_database):
    key = bytes(range(32))
    empty_database.write(lambda work: work.execute("UPDATE audit_key SET key = %s", (key,)))
    return empty_database


def fill(place, *names: str, days: int = 1) -> None:
    for day in range(days):
        log = AuditLog(place, AuditConfig(), lambda: NOON + day * 86_400)  # noqa: B023 - read while this day lasts
        for name in names:
            log.record("admin", f"{name}{day}")
        log.close()


def whats(place) -> list[str]:
    return [line["what"] for line in lines(place)]


def call(place, id: str) -> None:
    log = AuditLog(place, AuditConfig())
    log.record_call(CallEvent(call=ToolCall(id, "web.get", {"pin": 1}, "mcp"), spec=SPEC, duration_ms=1.0))
    log.close()


def test_each_line_is_imported_once_before_those_that_are_there(tmp_path: Path, database, monkeypatch) -> None:
    monkeypatch.setattr(table, "MOVED_AT_ONCE", 2)
    fill(tmp_path / "audit", "a", "twice", "twice", "b", days=3)
    fill(database, "by a replica")
    told = []
    options = MoveOptions(progress=lambda done, total: told.append((done, total)))
    assert AuditMover().import_folder(tmp_path, database, options) == Moved(moved=12)
    assert told[-1] == (12, 12)
    imported = [f"{name}{day}" for day in range(3) for name in ("a", "twice", "twice", "b")]
    assert whats(database) == [*imported, "by a replica0"]
    assert AuditMover().import_folder(tmp_path, database, options) == Moved(same=12)
    fill(database, "later")
    assert whats(database)[-2:] == ["by a replica0", "later0"]
    assert AuditMover().count(database) == 14


def test_a_home_without_a_log_has_nothing(tmp_path: Path, database) -> None:
    assert AuditMover().import_folder(tmp_path, database, MoveOptions()) == Moved()
    assert AuditMover().export_folder(database, tmp_path, MoveOptions()) == Moved()
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_line_is_left_behind(tmp_path: Path, database) -> None:
    fill(tmp_path / "audit", "a")
    (file,) = (tmp_path / "audit").glob("*.jsonl")
    file.write_bytes(b'{"time":\n\n' + file.read_bytes())
    found = AuditMover().import_folder(tmp_path, database, MoveOptions())
    assert (found.moved, [one.why for one in found.left]) == (1, ["it is no line of the log"])
    assert whats(database) == ["a0"]


def test_calls_are_found_by_their_arguments_after_an_import(tmp_path: Path, database) -> None:
    call(tmp_path / "audit", "one")
    fill(database, "no hash")
    assert AuditMover().import_folder(tmp_path, database, MoveOptions()).left == ()
    call(database, "two")
    log = reader_of(database)
    found = log.page(AuditFilter(args=log.hash_of({"pin": 1})), 10).records
    assert [record.id for record in found] == ["two", "one"]


def test_a_key_that_has_been_used_stays(tmp_path: Path, database) -> None:
    call(tmp_path / "audit", "one")
    call(database, "two")
    found = AuditMover().import_folder(tmp_path, database, MoveOptions())
    assert (found.moved, [one.what for one in found.left]) == (1, ["audit/key"])
    assert reader_of(database).hash_of({"pin": 1}) == lines(database)[-1]["args"] != lines(database)[0]["args"]


def test_a_log_goes_into_a_folder_by_its_days_with_its_key(tmp_path: Path, database, monkeypatch) -> None:
    monkeypatch.setattr(table, "MOVED_AT_ONCE", 2)
    fill(database, "a", "b", "b", days=3)
    call(database, "one")
    options = MoveOptions(config=Settings())
    assert AuditMover().export_folder(database, tmp_path, options) == Moved(moved=10)
    folder = tmp_path / "audit"
    assert len({file.name[:10] for file in folder.glob("*.jsonl")}) >= 3
    assert sorted(map(str, lines(folder))) == sorted(map(str, lines(database)))
    assert reader_of(folder).hash_of({"pin": 1}) == reader_of(database).hash_of({"pin": 1})
    assert AuditMover().export_folder(database, tmp_path, options) == Moved(same=10)
    assert AuditMover().import_folder(tmp_path, database, options) == Moved(same=10)
    assert {file.stat().st_mode & 0o777 for file in folder.glob("*.jsonl")} == {0o600}
