"""Moves sessions between a folder and a database: all owners, all lines, and when each was used last."""

import os
import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Literal

from onetool.ask.sessions.database import SUMMARY, WHERE, SessionKey, SessionSummary, add_records
from onetool.ask.sessions.records import SESSION_ID
from onetool.ask.sessions.store import OWNERS, SUFFIX, make_private_folder
from onetool.core.os_files import draft_of
from onetool.database import Database, Transaction
from onetool.database.moving import LeftBehind, Moved, MoveOptions

_OWNER = re.compile(r"[0-9a-f]{32}")


FOLDER = "sessions"  # of a home
_DELETE = f"DELETE FROM ask_sessions WHERE {WHERE}"  # noqa: S608 - ours
_INSERT = (
    f"INSERT INTO ask_sessions (owner, id, modified, {SUMMARY}) "  # noqa: S608 - ours
    "VALUES (%s, %s, %s, 0, 0, '', '', '', 0)"
)
_BODIES = f"SELECT body FROM ask_records WHERE {WHERE} ORDER BY number"  # noqa: S608 - ours


class SessionMover:
    """Sessions, as a StoreMover."""

    def count(self, database: Database) -> int:
        return database.read(lambda work: work.execute("SELECT count(*) FROM ask_sessions WHERE size > 0")[0][0])

    def import_folder(self, home: Path, database: Database, options: MoveOptions) -> Moved:
        """A session that has gone on in the database since counts as moved."""
        moved, same, left = 0, 0, list[LeftBehind]()
        files = [(key, path) for key, path in _files(home / FOLDER) if path.stat().st_size]
        for number, (key, path) in enumerate(files, 1):
            try:
                data, modified = path.read_bytes(), path.stat().st_mtime
            except OSError as error:
                left.append(LeftBehind(str(path), f"it can't be read: {error.strerror}"))
                continue
            result = database.write(lambda work: _put(work, key, modified, data, options.force))  # noqa: B023 - run at once
            moved, same = moved + (result == "moved"), same + (result == "same")
            if result == "conflict":
                left.append(LeftBehind(str(path), "another session has this name in the database", is_conflict=True))
            options.progress(number, len(files))
        return Moved(moved, same, tuple(left))

    def export_folder(self, database: Database, home: Path, options: MoveOptions) -> Moved:
        sql = "SELECT owner, id, modified FROM ask_sessions WHERE size > 0 ORDER BY modified"
        rows = database.read(lambda work: work.execute(sql))
        moved = 0
        for number, (owner, id, modified) in enumerate(rows, 1):
            moved += _export(SessionKey(owner, id), modified, database, home / FOLDER)
            options.progress(number, len(rows))
        return Moved(moved, len(rows) - moved)


def _files(folder: Path) -> Iterator[tuple[SessionKey, Path]]:
    owners = folder / OWNERS
    names = sorted(one.name for one in owners.iterdir() if _OWNER.fullmatch(one.name)) if owners.is_dir() else []
    for owner, place in [("", folder), *((name, owners / name) for name in names)]:
        for path in sorted(place.glob(f"*{SUFFIX}")):
            if SESSION_ID.fullmatch(path.stem) and path.is_file() and not path.is_symlink():
                yield SessionKey(owner, path.stem), path


def _put(
    work: Transaction, key: SessionKey, modified: float, data: bytes, force: bool
) -> Literal["moved", "same", "conflict"]:
    data = data if data.endswith(b"\n") else data + b"\n"
    there = b"".join(bytes(body) for (body,) in work.execute(_BODIES, key))
    if there.startswith(data):
        return "same"
    if there and not force:
        return "conflict"
    work.execute(_DELETE, key)  # a row without bytes is no session
    work.execute(_INSERT, (*key, modified))
    add_records(work, key, SessionSummary(), list(BytesIO(data)))
    return "moved"


def _export(key: SessionKey, modified: float, database: Database, folder: Path) -> bool:
    place = folder / OWNERS / key.owner if key.owner else folder
    file = place / f"{key.id}{SUFFIX}"
    if file.exists():
        return False
    for one in (folder, place.parent, place) if key.owner else (folder,):
        make_private_folder(one)
    data = b"".join(bytes(body) for (body,) in database.read(lambda work: work.execute(_BODIES, key)))
    with draft_of(file, data) as draft:
        os.utime(draft, (modified, modified))
        draft.replace(file)
    return True
