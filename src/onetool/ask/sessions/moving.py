"""Moves sessions between a folder and a database: all owners, all lines, and when each was used last."""

import os
import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from onetool.ask.sessions.files import SUFFIX, make_private
from onetool.ask.sessions.records import SESSION_ID
from onetool.ask.sessions.rows import SUMMARY, WHERE, SessionKey, SessionSummary, add_records
from onetool.ask.sessions.store import OWNERS
from onetool.core.private_file import draft_of
from onetool.database import Database, Transaction

_OWNER = re.compile(r"[0-9a-f]{32}")


def import_sessions(folder: Path, database: Database) -> int:
    """Copy the sessions of a folder into the database; gives how many. Those that are there already stay."""
    return sum(_import(key, path, database) for key, path in _files(folder))


def export_sessions(database: Database, folder: Path) -> int:
    """Copy the sessions of the database into a folder; gives how many. Those that are there already stay."""
    sql = "SELECT owner, id, modified FROM ask_sessions WHERE size > 0 ORDER BY modified"
    count = 0
    for owner, id, modified in database.read(lambda work: work.execute(sql)):
        count += _export(SessionKey(owner, id), modified, database, folder)
    return count


def _files(folder: Path) -> Iterator[tuple[SessionKey, Path]]:
    owners = folder / OWNERS
    names = sorted(one.name for one in owners.iterdir() if _OWNER.fullmatch(one.name)) if owners.is_dir() else []
    for owner, place in [("", folder), *((name, owners / name) for name in names)]:
        for path in sorted(place.glob(f"*{SUFFIX}")):
            if SESSION_ID.fullmatch(path.stem) and path.is_file() and not path.is_symlink():
                yield SessionKey(owner, path.stem), path


def _import(key: SessionKey, path: Path, database: Database) -> bool:
    data = path.read_bytes()
    if not data:
        return False
    lines = list(BytesIO(data if data.endswith(b"\n") else data + b"\n"))
    insert = (
        f"INSERT INTO ask_sessions (owner, id, modified, {SUMMARY}) "  # noqa: S608 - ours
        "VALUES (%s, %s, %s, 0, 0, '', '', '', 0) ON CONFLICT DO NOTHING"
    )

    def job(work: Transaction) -> bool:
        work.execute(insert, (*key, path.stat().st_mtime))
        is_new = work.row_count > 0
        if is_new:
            add_records(work, key, SessionSummary(), lines)
        return is_new

    return database.write(job)


def _export(key: SessionKey, modified: float, database: Database, folder: Path) -> bool:
    place = folder / OWNERS / key.owner if key.owner else folder
    file = place / f"{key.id}{SUFFIX}"
    if file.exists():
        return False
    for one in (folder, place.parent, place) if key.owner else (folder,):
        make_private(one)
    sql = f"SELECT body FROM ask_records WHERE {WHERE} ORDER BY number"  # noqa: S608 - ours
    data = b"".join(bytes(body) for (body,) in database.read(lambda work: work.execute(sql, key)))
    with draft_of(file, data) as draft:
        os.utime(draft, (modified, modified))
        draft.replace(file)
    return True
