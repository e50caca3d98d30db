"""`.state` is what this machine stores about the folder, and git does not: index, usage counts, key of page tokens.

Calls are counted in memory and written about once a second by a thread of its own into a small SQLite database: a call
of a tool waits for nothing, and does not fail because of it.
"""

import logging
import os
import sqlite3
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from secrets import token_bytes
from threading import Event, Lock, Thread

from onetool.sources.bundles.files.disk import INDEX, KEY, LARGEST, READ, STATE
from onetool.sources.bundles.files.form import time_text
from onetool.sources.bundles.files.writing import create, ensure_folder, exists, replace

KEY_BYTES = 32
_IGNORE = f"{STATE}/.gitignore"


def make_state(folder: Path) -> Path | None:
    """Where the index is; None where nothing can be written, or the folder is not there."""
    file = folder / INDEX
    if os.path.islink(folder / STATE):
        return None  # what we keep would lie somewhere else
    try:
        if not (folder / _IGNORE).exists():
            root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                _make(root)
            finally:
                os.close(root)
        return file if os.access(file.parent, os.W_OK | os.X_OK) else None
    except OSError:
        return None


def key_of(folder: Path, root: int) -> bytes:
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
        file = os.open(folder / KEY, READ)
    except OSError:
        return None
    try:
        key = os.read(file, LARGEST)
    except OSError:
        return None
    finally:
        os.close(file)
    return key if len(key) == KEY_BYTES else None


def _make(root: int) -> None:
    ensure_folder(root, STATE)
    with suppress(FileExistsError):
        create(root, _IGNORE, b"*\n")


# Usage


log = logging.getLogger("onetool.bundles")

GATHER_SECONDS = 1.0
BUSY_SECONDS = 1.0
MOST_PENDING = 100_000  # tools that are counted in memory while nothing can be written
_AT_ONCE = 500
_TABLE = (
    "CREATE TABLE IF NOT EXISTS usage (id TEXT PRIMARY KEY, calls INTEGER NOT NULL, last TEXT NOT NULL) WITHOUT ROWID"
)
_ADD = (
    "INSERT INTO usage VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
    "calls = calls + excluded.calls, last = max(last, excluded.last)"
)

Counts = dict[str, tuple[int, str]]


class UsageCounter:
    """Counts uses with `record`, from any thread. If the folder of the file does not exist, all stays in memory."""

    def __init__(self, file: Path, now: Callable[[], float]) -> None:
        self._file = file
        self._now = now
        self._waiting: Counts = {}
        self._lock = Lock()
        self._writing = Lock()
        self._thread: Thread | None = None
        self._closed = Event()
        self._has_logged = False

    def record(self, id: str) -> None:
        at = time_text(self._now())
        with self._lock:
            calls, last = self._waiting.get(id, (0, at))
            if calls or len(self._waiting) < MOST_PENDING:
                self._waiting[id] = (calls + 1, max(last, at))
            if self._thread is None and not self._closed.is_set():
                self._start()

    def of(self, ids: Iterable[str]) -> Counts:
        """callCount and lastCalledAt, also of calls that wait to be written."""
        wanted = list(dict.fromkeys(ids))
        with self._writing:  # else a call on its way from memory to the file would be missed, or counted twice
            with self._lock:
                waiting = {id: self._waiting[id] for id in wanted if id in self._waiting}
            return _sum_counts(self._read(wanted), waiting)

    def flush(self) -> None:
        with self._writing:
            with self._lock:
                taken, self._waiting = self._waiting, {}
            if taken and not self._written(taken):
                with self._lock:
                    self._waiting = _sum_counts(taken, self._waiting)

    def close(self) -> None:
        self._closed.set()
        self.flush()

    def _start(self) -> None:
        self._thread = Thread(target=self._gather, name="onetool-usage", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the process is about to end
            self._thread = None

    def _gather(self) -> None:
        """One batch; the next call starts the next."""
        self._closed.wait(GATHER_SECONDS)
        with self._lock:
            self._thread = None
        self.flush()

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


def _sum_counts(some: Counts, more: Counts) -> Counts:
    total = dict(some)
    for id, (calls, last) in more.items():
        before, at = total.get(id, (0, last))
        total[id] = (before + calls, max(at, last))
    return total
