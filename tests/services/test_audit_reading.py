"""Reading the audit log: backwards in pages, with filters, past broken lines, and on and on."""

from pathlib import Path

import pytest
from services.audit_places import audit_database

from onetool.config.model import AuditConfig
from onetool.core.principal import Principal
from onetool.services.audit import AuditLog, reader_of
from onetool.services.audit.files import BLOCK
from onetool.services.audit.record import AuditFilter, AuditPosition

__all__ = ["audit_database"]  # a fixture

NOON = 1_794_830_400.0  # 2026-11-16T12:00:00Z
CI = Principal(name="ci", owner="ci")
ANN = Principal(name="ann", owner="https://id|7", role="edit")


@pytest.fixture(scope="module", params=["files", "postgres"])
def kept(request, tmp_path_factory):
    """Ten days with three lines each, which are only read."""
    is_file = request.param == "files"
    return filled(tmp_path_factory.mktemp("kept") / "audit" if is_file else request.getfixturevalue("audit_database"))


@pytest.fixture(params=["files", "postgres"])
def place(request, tmp_path: Path):
    """The same, to add to."""
    return filled(tmp_path / "audit" if request.param == "files" else request.getfixturevalue("database"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return filled(tmp_path / "audit")


def filled(place):
    now = NOON
    for day in range(10):
        log = AuditLog(place, AuditConfig(), lambda: now)  # noqa: B023 - read while this day lasts
        log.record("call", "web.get", principal=CI, id=f"{day}a")
        log.record("call", "time.now", principal=ANN, outcome="execution_error", reason="timeout", id=f"{day}b")
        log.record("change", "PUT /tools/bundles/w", principal=ANN, outcome="conflict", status=409, id=f"{day}c")
        log.close()
        now += 86_400
    return place


def ids(place, most: int = 1000, **wanted) -> list[str]:
    return [record.id for record in reader_of(place).page(AuditFilter(**wanted), most).records]


def test_the_newest_come_first(kept) -> None:
    assert ids(kept) == [f"{day}{part}" for day in range(9, -1, -1) for part in "cba"]
    assert ids(kept, 4) == ["9c", "9b", "9a", "8c"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"who": "ci"}, ["9a", "8a"]),
        ({"who": "https://id|7"}, ["9c", "9b", "8c", "8b"]),
        ({"who": ""}, []),
        ({"kind": "change"}, ["9c", "8c"]),
        ({"tool": "time.*"}, ["9b", "8b"]),
        ({"tool": "*bundles*"}, ["9c", "8c"]),
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


def test_files_that_are_too_old_are_not_opened(folder: Path) -> None:
    for file in sorted(folder.glob("*.jsonl"))[:8]:
        file.write_text('{"time":"2026-11-25T13:00:00.000Z","kind":"call","what":"x","outcome":"ok","id":"opened"}\n')
    assert ids(folder, since=NOON + 8.5 * 86_400) == ["9c", "9b", "9a"]


def test_pages_follow_each_other_while_lines_are_added(place) -> None:
    seen, before = [], None
    for _ in range(100):
        page = reader_of(place).page(AuditFilter(), 7, before)
        seen += [record.id for record in page.records]
        log = AuditLog(place, AuditConfig(), lambda: NOON + 20 * 86_400)
        log.record("admin", "later", id="later")
        log.close()
        if (before := page.before) is None:
            break
    assert seen == [f"{day}{part}" for day in range(9, -1, -1) for part in "cba"]


def test_a_page_ends_when_so_much_was_read_and_the_next_one_goes_on(kept) -> None:
    found, before, pages = [], None, 0
    while True:
        page = reader_of(kept).page(AuditFilter(who="ci"), 100, before, most_scanned=300)
        found += [record.id for record in page.records]
        pages += 1
        if (before := page.before) is None:
            break
    assert found == [f"{day}a" for day in range(9, -1, -1)]
    assert pages > 5


def test_a_position_in_a_file_that_is_gone_goes_on_before_it(folder: Path) -> None:
    newest = sorted(folder.glob("*.jsonl"))[-1]
    before = AuditPosition(newest.name, 100)
    newest.unlink()
    assert reader_of(folder).page(AuditFilter(), 1, before).records[0].id == "8c"


def test_broken_lines_are_skipped_and_counted(folder: Path) -> None:
    newest = sorted(folder.glob("*.jsonl"))[-1]
    bad = [b'{"time":"2026-11-2', b"\xff\xfe\x00", b"[]", b"[" * 5000, b'{"kind":"call"}', b"x" * (3 * BLOCK), b""]
    good = newest.read_bytes()
    newest.write_bytes(b"\n".join([*bad, b""]) + good + b"\n".join([*bad, b""]) + good + b'{"time":"2026')
    page = reader_of(folder).page(AuditFilter(since=NOON + 8.5 * 86_400), 100)
    assert [record.id for record in page.records] == ["9c", "9b", "9a"] * 2
    assert page.skipped == 2 * (len(bad) - 1)


@pytest.mark.parametrize("size", [1, 100, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_lines_across_blocks(tmp_path: Path, size: int) -> None:
    log = AuditLog(tmp_path, AuditConfig(), lambda: NOON)
    written = 0
    numbers = []
    while written < size:
        numbers.append(str(len(numbers)))
        log.record("admin", "x" * (len(numbers) % 200), id=numbers[-1])
        written += 150
    log.close()
    assert ids(tmp_path, 10**6) == numbers[::-1]
    seen, before = [], None
    while True:
        page = reader_of(tmp_path).page(AuditFilter(), 13, before)
        seen += [record.id for record in page.records]
        if (before := page.before) is None:
            break
    assert seen == numbers[::-1]
    assert [record.id for record, _ in reader_of(tmp_path).read_on(None) if record] == numbers


def test_no_log_is_an_empty_one(tmp_path: Path) -> None:
    assert reader_of(tmp_path / "none").page(AuditFilter(), 10) == ([], None, 0)
    assert reader_of(tmp_path / "none").end() is None
    assert list(reader_of(tmp_path / "none").read_on(None)) == []


def test_what_comes_later_is_read_once(place) -> None:
    at = reader_of(place).end()
    assert list(reader_of(place).read_on(at)) == []
    for day in (9, 10):
        log = AuditLog(place, AuditConfig(), lambda: NOON + day * 86_400)  # noqa: B023
        log.record("admin", f"later {day}")
        log.close()
    found = list(reader_of(place).read_on(at))
    assert [record.what for record, _ in found] == ["later 9", "later 10"]
    assert list(reader_of(place).read_on(found[-1][1])) == []


def test_a_line_that_is_being_written_is_read_when_it_is_whole(folder: Path) -> None:
    at = reader_of(folder).end()
    newest = sorted(folder.glob("*.jsonl"))[-1]
    line = b'{"time":"2026-11-25T12:00:00.000Z","kind":"call","what":"x","outcome":"ok","id":"whole"}\n'
    with newest.open("ab", buffering=0) as stream:
        stream.write(line[:20])
        assert list(reader_of(folder).read_on(at)) == []
        assert ids(folder, 1) == ["9c"]
        stream.write(line[20:])
    assert [record.id for record, _ in reader_of(folder).read_on(at)] == ["whole"]
