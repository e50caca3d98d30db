"""What can be wrong with the index, as what is told of it. All of these are over when their cause is gone."""

import errno
import sqlite3
from pathlib import Path

from onetool.sources.bundles.errors import Unavailable

# A disk that is full or for reading only. Reading goes on, in an index that is kept elsewhere.
_UNWRITABLE = frozenset((sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY))
_UNWRITABLE_FILES = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO))


class Damaged(Unavailable):
    """The index was damaged in the middle of a change, and is made anew with the next question. No file has changed."""

    def __init__(self, why: object) -> None:
        super().__init__(f"the index of the bundles was damaged ({why}) and is made anew: try again", "index_damaged")


class Busy(Unavailable):
    """Somebody else has it, for longer than this one could wait."""


class Unwritable(Unavailable):
    """It can be read, at the best."""


def is_damage(error: BaseException) -> bool:
    """Whether this says that the file is not what we wrote."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return False
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or str(error).startswith("no such ")


def is_gone(error: BaseException) -> bool:
    """Whether this says that the file was taken away from under a connection."""
    return getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_READONLY_DBMOVED, sqlite3.SQLITE_CANTOPEN)


def unavailable(error: sqlite3.Error) -> Unavailable:
    if "locked" in str(error):
        return Busy("the index of the bundles is busy: another process has been writing for too long; try again")
    return _kind(error)(f"the index of the bundles can't be used: {error}")


def cannot_open(file: Path | None, error: OSError | sqlite3.Error) -> Unavailable:
    if isinstance(error, sqlite3.Error) and "locked" in str(error):
        return unavailable(error)
    why = getattr(error, "strerror", None) or error
    return _kind(error)(f"{file}: the index of the bundles can't be opened: {why}")


def _kind(error: OSError | sqlite3.Error) -> type[Unavailable]:
    if isinstance(error, OSError):
        return Unwritable if error.errno in _UNWRITABLE_FILES else Unavailable
    code = getattr(error, "sqlite_errorcode", None)
    return Unwritable if code is not None and code & 0xFF in _UNWRITABLE else Unavailable
