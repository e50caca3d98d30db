"""Moves the audit log between the folder of a home and a database, with the key of its hashes.

A line has no name. So one that is there counts as moved: of equal lines, as many as there are. Lines that are imported
get numbers below all others: they are older than what replicas have written meanwhile.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from onetool.core.errors import ToolFailure
from onetool.core.os_files import OpenFolder
from onetool.database import Database, Transaction
from onetool.database.moving import LeftBehind, Moved, MoveOptions
from onetool.services.audit.files import KEY, AuditFiles, AuditFolder, read_key
from onetool.services.audit.record import AuditSettings, read_line
from onetool.services.audit.table import AuditTableWriter, take_lock, time_of

FOLDER = "audit"  # of a home
AT_ONCE = 2_000  # lines
_OTHER_KEY = "{} has hashes with another key, which stays: `onetool audit --args` does not find the calls copied now"


class _UsualSettings(msgspec.Struct, frozen=True):
    mode: str = "usual"
    retention_days: int = 90
    max_mb: int = 64


def count(database: Database) -> int:
    return database.read(lambda work: work.execute("SELECT count(*) FROM audit")[0][0])


# Into the database


def import_folder(home: Path, database: Database, options: MoveOptions) -> Moved:
    folder = home / FOLDER
    if not folder.is_dir():
        return Moved()
    moved, same, left = 0, 0, list[LeftBehind]()
    try:
        left += _import_key(folder, database)
        total = sum(1 for _ in _lines(folder))
        number = _first_number(database) - total
        for lines in _batches(_lines(folder)):
            good = [line for line in lines if read_line(line) is not None]
            new = database.write(lambda work: _add_missing(work, good, number))  # noqa: B023 - run at once
            moved, same, number = moved + new, same + len(good) - new, number + len(lines)
            bad = Counter(lines) - Counter(good)
            left += [LeftBehind(f"{FOLDER}: {line[:40]!r}", "it is no line of the log") for line in bad.elements()]
            options.progress(moved + same + len(left), total)
    except OSError as error:
        left.append(LeftBehind(str(folder), f"it can't be read: {error.strerror or error}"))
    return Moved(moved, same, tuple(left))


def _lines(folder: Path) -> Iterator[bytes]:
    return (line for line, _ in AuditFolder(folder).lines() if line)


def _import_key(folder: Path, database: Database) -> list[LeftBehind]:
    """The folder's key becomes that of the database, unless that has been used."""
    try:
        with OpenFolder.at(folder, follow=False) as files:
            key = read_key(files, folder / KEY)
    except FileNotFoundError:
        return []

    def job(work: Transaction) -> bool:
        take_lock(work)
        if [bytes(one) for (one,) in work.execute("SELECT key FROM audit_key")] == [key]:
            return True
        if work.execute("""SELECT 1 FROM audit WHERE line LIKE '%"args":"%' LIMIT 1"""):
            return False
        work.execute("UPDATE audit_key SET key = %s", (key,))
        return True

    return [] if database.write(job) else [LeftBehind(f"{FOLDER}/{KEY}", _OTHER_KEY.format("the database"))]


def _first_number(database: Database) -> int:
    return database.read(lambda work: work.execute("SELECT least(min(number), 1) FROM audit"))[0][0]


def _batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Lines of one moment stay together: a part of equal ones could not be told from another part."""
    batch: list[bytes] = []
    for line in lines:
        if len(batch) >= AT_ONCE and line[:_TIME] != batch[-1][:_TIME]:
            yield batch
            batch = []
        batch.append(line)
    if batch:
        yield batch


_TIME = len('{"time":"2026-11-16T17:03:18.123Z"')


def _add_missing(work: Transaction, lines: Sequence[bytes], number: int) -> int:
    """Insert those that are not there, with numbers from this one on; gives how many."""
    if not lines:
        return 0
    take_lock(work)
    times, texts = [*map(time_of, lines)], [line.decode() for line in lines]
    found = "SELECT line FROM audit WHERE at BETWEEN %s AND %s AND line = ANY(%s)"
    there = Counter(line for (line,) in work.execute(found, (min(times), max(times), texts)))
    new: list[tuple[int, float, float, str]] = []
    for place, (at, text) in enumerate(zip(times, texts, strict=True)):
        if there[text]:
            there[text] -= 1
        else:
            new.append((number + place, at, at, text))
    work.execute_many("INSERT INTO audit (number, at, written_at, line) VALUES (%s, %s, %s, %s)", new)
    return len(new)


# From the database


def export_folder(database: Database, home: Path, options: MoveOptions) -> Moved:
    """In the order of their times, which is what readers of files expect."""
    total, folder = count(database), home / FOLDER
    if not total:
        return Moved()
    there, moved, same = Counter(_lines(folder)), 0, 0
    files = DatedFiles(folder, getattr(options.config, "audit", None) or _UsualSettings())
    try:
        left = _export_key(files.files, database)
        for lines in _days(database):
            new = list[bytes]()
            for line in lines:
                if there[line]:
                    there[line] -= 1
                    same += 1
                else:
                    new.append(line)
            files.append(new)
            moved += len(new)
            options.progress(moved + same, total)
    except OSError as error:
        raise ToolFailure(f"{folder} can't be written: {error.strerror or error}") from None
    return Moved(moved, same, tuple(left))


class DatedFiles:
    """Appends lines to the files of their days."""

    def __init__(self, folder: Path, settings: AuditSettings) -> None:
        self._now = 0.0
        self.files = AuditFiles(folder, settings, lambda: self._now)

    def append(self, lines: Sequence[bytes]) -> None:
        """Lines of one day. Raises OSError."""
        if lines:
            self._now = time_of(lines[0])
            _, error = self.files.append([line + b"\n" for line in lines])
            if error is not None:
                raise error


def _export_key(files: AuditFiles, database: Database) -> list[LeftBehind]:
    key = AuditTableWriter(database, files.settings).key()
    return [] if files.key(key) == key else [LeftBehind(str(files.path / KEY), _OTHER_KEY.format("the folder"))]


def _days(database: Database) -> Iterator[list[bytes]]:
    """All lines by their times; no portion has lines of two days."""
    sql = (
        "SELECT at, number, line FROM audit WHERE (at, number) > (%s, %s) "  # noqa: S608 - ours
        f"ORDER BY at, number LIMIT {AT_ONCE}"
    )
    after = float("-inf"), 0
    while rows := database.read(lambda work: work.execute(sql, after)):  # noqa: B023 - run at once
        day = [row for row in rows if row[0] // 86_400 == rows[0][0] // 86_400]
        yield [line.encode() for _, _, line in day]
        after = day[-1][0], day[-1][1]
