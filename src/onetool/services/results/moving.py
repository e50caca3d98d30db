"""Moves stored results between a folder and a database: their texts, when they were stored, and which have ended.

Neither a file nor a row tells whose it is: what was imported is found by its key, and in a list by trying.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from onetool.core.private_file import private
from onetool.database import Database, Transaction
from onetool.services.results import StoredText, seal_of, write
from onetool.services.results.database import ResultRow, lines_in
from onetool.services.results.kept import DAY, bytes_of, read_note, sealed_note

_FILE = re.compile(r"[0-9a-f]{32}\.txt")
_LIST = re.compile(r"ended-[0-9]+")


def import_results(folder: Path, database: Database) -> int:
    """Copy what is in the folder of a ResultStore into the database; gives how many. Those there already stay."""
    count = 0
    for row, text in _read_folder(folder):
        count += database.write(lambda work: row.write(work, text, database.clock))  # noqa: B023 - run at once
    return count


def export_results(database: Database, folder: Path) -> int:
    """Copy what is in the database into the folder of a ResultStore; gives how many. Those there already stay."""
    names = "key, owner, note, size, lines, at, ended_at, removed"
    rows = database.read(lambda work: work.execute(f"SELECT {names} FROM results ORDER BY at"))  # noqa: S608 - ours
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    count = 0
    for values in rows:
        row = ResultRow(*values)
        count += _list_ended(folder, row) if row.ended_at is not None else _write_file(folder, row, database)
    return count


def _read_folder(folder: Path) -> Iterator[tuple[ResultRow, str]]:
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if _FILE.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            yield _read_file(path)
        elif _LIST.fullmatch(path.name):
            yield from ((row, "") for row in _read_list(path))


def _read_file(path: Path) -> tuple[ResultRow, str]:
    with open(path, "rb") as stream:
        _, note = read_note(stream, seal_of(path))
        text = StoredText(stream, seal_of(path)).read()
        at = os.fstat(stream.fileno()).st_mtime
    return ResultRow(path.stem, "", note, bytes_of(text), lines_in(text), at), text


def _read_list(path: Path) -> Iterator[ResultRow]:
    for line in path.read_text("utf-8", "replace").splitlines():
        with suppress(ValueError):  # a full disk has cut it off
            name, at, why = line.split()
            if _FILE.fullmatch(name):
                yield ResultRow(name[:32], "", b"", 0, 0, float(at), float(at), why == "removed")


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
