"""Moves stored results between a folder and a database: their texts, when they were stored, and which have ended.

Neither a file nor a row tells whose it is: what was imported is found by its key, and in a list by trying.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from onetool.core.os_files import private
from onetool.database import Database, Transaction
from onetool.database.moving import LeftBehind, Moved, MoveOptions
from onetool.services.results import StoredText, seal_of, write
from onetool.services.results.database import ResultRow, lines_in
from onetool.services.results.kept import DAY, bytes_of, read_note, sealed_note

_FILE = re.compile(r"[0-9a-f]{32}\.txt")
_LIST = re.compile(r"ended-[0-9]+")


FOLDER = "results"  # of a home


def count(database: Database) -> int:
    """All, with those that have ended and are still known."""
    return database.read(lambda work: work.execute("SELECT count(*) FROM results")[0][0])


def import_folder(home: Path, database: Database, options: MoveOptions) -> Moved:
    """Those that are there already stay: a key is random, so that it is the same result."""
    moved, same, left = 0, 0, list[LeftBehind]()
    paths = _paths(home / FOLDER)
    for number, path in enumerate(paths, 1):
        try:
            for row, text in _read_list(path) if _LIST.fullmatch(path.name) else [_read_file(path)]:
                is_new = database.write(lambda work: row.write(work, text, database.clock))  # noqa: B023 - run at once
                moved, same = moved + is_new, same + (not is_new)
        except (OSError, UnicodeDecodeError) as error:
            left.append(LeftBehind(str(path), f"it can't be read: {error}"))
        options.progress(number, len(paths))
    return Moved(moved, same, tuple(left))


def export_folder(database: Database, home: Path, options: MoveOptions) -> Moved:
    names = "key, owner, note, size, lines, at, ended_at, removed"
    rows = database.read(lambda work: work.execute(f"SELECT {names} FROM results ORDER BY at"))  # noqa: S608 - ours
    if not rows:
        return Moved()
    folder, moved = home / FOLDER, 0
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number, values in enumerate(rows, 1):
        row = ResultRow(*values)
        moved += _list_ended(folder, row) if row.ended_at is not None else _write_file(folder, row, database)
        options.progress(number, len(rows))
    return Moved(moved, len(rows) - moved)


def _paths(folder: Path) -> list[Path]:
    return [
        path
        for path in (sorted(folder.iterdir()) if folder.is_dir() else ())
        if (_FILE.fullmatch(path.name) and path.is_file() and not path.is_symlink()) or _LIST.fullmatch(path.name)
    ]


def _read_file(path: Path) -> tuple[ResultRow, str]:
    with open(path, "rb") as stream:
        _, note = read_note(stream, seal_of(path))
        text = StoredText(stream, seal_of(path)).read()
        at = os.fstat(stream.fileno()).st_mtime
    return ResultRow(path.stem, "", note, bytes_of(text), lines_in(text), at), text


def _read_list(path: Path) -> Iterator[tuple[ResultRow, str]]:
    for line in path.read_text("utf-8", "replace").splitlines():
        with suppress(ValueError):  # a full disk has cut it off
            name, at, why = line.split()
            if _FILE.fullmatch(name):
                yield ResultRow(name[:32], "", b"", 0, 0, float(at), float(at), why == "removed"), ""


def _list_ended(folder: Path, row: ResultRow) -> bool:
    at = row.ended_at or 0.0
    line = f"{row.key}.txt {at:.3f} {'removed' if row.removed else 'expired'}\n".encode()
    with open(folder / f"ended-{int(at // DAY)}", "a+b", opener=private) as stream:
        stream.seek(0)
        if line in stream.read():
            return False
        stream.write(line)
    return True


def _write_file(folder: Path, row: ResultRow, database: Database) -> bool:
    file = folder / f"{row.key}.txt"
    if file.exists():
        return False
    draft = file.with_name(f".{file.name}")
    with open(draft, "wb", opener=private) as stream:
        write(stream, database.read(lambda work: _text(work, row)), seal_of(file))
        if row.note:
            stream.write(sealed_note(bytes(row.note), seal_of(file)))
    os.utime(draft, (row.at or 0.0, row.at or 0.0))
    draft.replace(file)
    return True


def _text(work: Transaction, row: ResultRow) -> str:
    rows = work.execute("SELECT text FROM result_pieces WHERE key = %s ORDER BY number", (row.key,))
    return b"".join(bytes(data) for (data,) in rows).decode("utf-8", "surrogatepass")
