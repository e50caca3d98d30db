"""The index's file: opened, or made anew where it is missing, damaged, somebody else's or of another layout.

A new one takes the place of the old one under a lock that whoever opens it holds, too: nobody opens half of either. Who
has the old one open goes on with it until the next look at its identity.
"""

import fcntl
import os
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from time import monotonic, sleep

from onetool.sources.bundles.errors import Unavailable
from onetool.sources.bundles.index.faults import Busy, is_damage, is_gone
from onetool.sources.bundles.index.patience import LONG
from onetool.sources.bundles.index.schema import create, is_ours

_POLL_SECONDS = 0.005

Identity = tuple[int, int]

# No commit waits for the disk. A power failure may take the last ones, and their stamps: those files are read again.
# The order is kept, so nothing is ever half there.
_SETTINGS = """
PRAGMA synchronous = NORMAL; PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY;
PRAGMA journal_size_limit = 16777216;
"""


def opened(file: Path, patience: float = LONG) -> tuple[sqlite3.Connection, Identity]:
    """A connection to it, and which file it is; it waits for others so long, and so does every question to it.

    Raises OSError, sqlite3.Error, Unavailable.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(file, fcntl.LOCK_SH, patience):
        found = _usable(file, patience)
    if found is None:
        with _locked(file, fcntl.LOCK_EX, patience):
            found = _usable(file, patience)  # somebody else may have been first
            if found is None:
                _make(file)
                found = _usable(file, patience)
    if found is None:
        raise Unavailable(f"{file}: the index can't be made: it is gone, or not what was written, right after that")
    return found


def in_memory() -> sqlite3.Connection:
    """One that is nowhere, for a folder that can't be written."""
    database = _connect(":memory:")
    create(database)
    return database


def identity(file: Path) -> Identity | None:
    """Another one for every other file; None where there is none. Stays taken as long as somebody has it open."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def throw_away(file: Path, which: Identity, patience: float = LONG) -> None:
    """Remove it, unless another one lies there by now."""
    with _locked(file, fcntl.LOCK_EX, patience):
        if identity(file) == which:
            _remove(file)


def _usable(file: Path, patience: float) -> tuple[sqlite3.Connection, Identity] | None:
    """None for what is not ours. It has read its first page, so that its log is open, too."""
    which = identity(file)
    if which is None or not S_ISREG(os.lstat(file).st_mode):
        return None
    database = None
    try:
        database = _connect(f"{file.absolute().as_uri()}?mode=rw", patience)
        if is_ours(database):
            database.execute("SELECT value FROM meta WHERE key = 'revision'").fetchone()
            if identity(file) == which:
                return database, which
    except sqlite3.DatabaseError as error:
        if not is_damage(error) and not is_gone(error):
            _close(database)
            raise
    _close(database)
    return None


def _close(database: sqlite3.Connection | None) -> None:
    if database is not None:
        database.close()


def _make(file: Path) -> None:
    """Made beside it, and put in its place when it is whole. An old log must be gone by then: it would count."""
    new = file.with_name(f"{file.name}.new")
    _remove(new)
    os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(_connect(f"{new.absolute().as_uri()}?mode=rw")) as database:
        database.execute("PRAGMA synchronous = OFF")  # nobody else has it; it goes to the disk once, when it is whole
        create(database)
        database.execute("PRAGMA journal_mode = WAL")
    handle = os.open(new, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    _remove(file)
    os.rename(new, file)


def _remove(file: Path) -> None:
    with suppress(FileNotFoundError):
        if S_ISDIR(os.lstat(file).st_mode):
            raise Unavailable(f"{file} is a folder, and the index should lie there: move it away")
    for end in ("", "-wal", "-shm", "-journal"):
        file.with_name(file.name + end).unlink(missing_ok=True)


def _connect(where: str, patience: float = LONG) -> sqlite3.Connection:
    """Any thread may close it; connections sees to it that one at a time uses it."""
    database = sqlite3.connect(
        where, timeout=patience, isolation_level=None, check_same_thread=False, cached_statements=200, uri=True
    )
    try:
        database.executescript(_SETTINGS)
    except BaseException:
        database.close()
        raise
    return database


@contextmanager
def _locked(file: Path, how: int, patience: float) -> Generator[None]:
    """Many who open, or one who makes. The lock's file can be deleted like the index: then there is a new lock."""
    lock = file.with_name(f"{file.name}.lock")
    deadline = monotonic() + patience
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _wait(handle, how, deadline, lock)
            held = os.fstat(handle)
            if (held.st_dev, held.st_ino) == identity(lock):
                yield
                return
        finally:
            os.close(handle)


def _wait(handle: int, how: int, deadline: float, lock: Path) -> None:
    while True:
        try:
            return fcntl.flock(handle, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic() > deadline:
                raise Busy(f"{lock}: another process has held it for too long; try again") from None
            sleep(_POLL_SECONDS)
