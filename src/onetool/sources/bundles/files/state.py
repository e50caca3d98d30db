"""`.state` is what this machine stores about the folder, and git does not: index, usage counts, key of page tokens.

Usage counts are in a small SQLite database.
"""

import logging
import os
import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from secrets import token_bytes

from onetool.core.os_files import OpenFolder, open_no_link
from onetool.sources.bundles.files.disk import INDEX, KEY, LARGEST, READ, STATE
from onetool.sources.bundles.files.writing import create, ensure_folder, exists, replace
from onetool.sources.bundles.usage import Counts, UsageCounter

KEY_BYTES = 32
_IGNORE = f"{STATE}/.gitignore"


def make_state(folder: Path) -> Path | None:
    """Where the index is; None where nothing can be written, or the folder is not there."""
    file = folder / INDEX
    if os.path.islink(folder / STATE):
        return None  # what we keep would lie somewhere else
    try:
        if not (folder / _IGNORE).exists():
            with OpenFolder.at(folder) as root:
                _make(root)
        return file if os.access(file.parent, os.W_OK | os.X_OK) else None
    except OSError:
        return None


def key_of(folder: Path, root: OpenFolder) -> bytes:
    """The shared key; created on first use, under the lock."""
    _make(root)
    found = read_key(folder)
    if found is not None:
        return found
    key = token_bytes(KEY_BYTES)
    (replace if exists(root, KEY) else create)(root, KEY, key)
    return key


def read_key(folder: Path) -> bytes | None:
    try:
        file = open_no_link(folder / KEY, READ)
    except OSError:
        return None
    try:
        key = os.read(file, LARGEST)
    except OSError:
        return None
    finally:
        os.close(file)
    return key if len(key) == KEY_BYTES else None


def _make(root: OpenFolder) -> None:
    ensure_folder(root, STATE)
    with suppress(FileExistsError):
        create(root, _IGNORE, b"*\n")


# Usage


log = logging.getLogger("onetool.bundles")

BUSY_SECONDS = 1.0
_AT_ONCE = 500
_TABLE = (
    "CREATE TABLE IF NOT EXISTS usage (id TEXT PRIMARY KEY, calls INTEGER NOT NULL, last TEXT NOT NULL) WITHOUT ROWID"
)
_ADD = (
    "INSERT INTO usage VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
    "calls = calls + excluded.calls, last = max(last, excluded.last)"
)


class FileUsage(UsageCounter):
    """A small SQLite database. If the folder of the file does not exist, all stays in memory."""

    def __init__(self, file: Path, now: Callable[[], float]) -> None:
        super().__init__(now)
        self._file = file
        self._has_logged = False

    def all(self) -> Counts:
        self.flush()
        if not self._file.exists():
            return {}
        with _open_database(self._file) as database:
            return {id: (calls, last) for id, calls, last in database.execute("SELECT id, calls, last FROM usage")}

    def _written(self, counts: Counts) -> bool:
        if not self._file.parent.is_dir():
            return False
        try:
            with _open_database(self._file) as database, database:
                database.executemany(_ADD, [(id, calls, last) for id, (calls, last) in counts.items()])
        except (OSError, sqlite3.Error) as error:
            self._log_error(error)
            return False
        return True

    def _read(self, ids: list[str]) -> Counts:
        found: Counts = {}
        if not self._file.exists():
            return found
        try:
            with _open_database(self._file) as database:
                for start in range(0, len(ids), _AT_ONCE):
                    some = ids[start : start + _AT_ONCE]
                    marks = ", ".join("?" * len(some))
                    rows = database.execute(f"SELECT id, calls, last FROM usage WHERE id IN ({marks})", some)  # noqa: S608
                    found.update({id: (calls, last) for id, calls, last in rows})
        except (OSError, sqlite3.Error) as error:
            self._log_error(error)
        return found

    def _log_error(self, error: Exception) -> None:
        if not self._has_logged:
            self._has_logged = True
            log.warning("usage of tools is not kept: %s: %s; if the file is broken, delete it", self._file, error)


@contextmanager
def _open_database(file: Path) -> Generator[sqlite3.Connection]:
    with closing(sqlite3.connect(file, timeout=BUSY_SECONDS)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(_TABLE)
        yield database
