"""Converts errors from SQLite and the system to DatabaseErrors, with a fix, and without the file's folder."""

import errno
import logging
import sqlite3
from pathlib import Path
from time import monotonic

from onetool.database.connection import DamagedDatabaseError, DatabaseAwayError, DatabaseError, StorageError

log = logging.getLogger("onetool.database.storage")  # commands report these errors themselves
LOG_AGAIN_S = 60.0  # before the same error is logged again
BUSY_CODES = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
READ_ONLY_FIX = "make the file and its folder writable for this user, or set ONETOOL_HOME to another folder"
FULL_FIX = "free some space on the disk"
RESTORE_FIX = "`onetool db restore` saves what can be read"
SOURCE_FIX = "use another copy"
FIXES = {  # by SQLite's code
    sqlite3.SQLITE_READONLY: READ_ONLY_FIX,
    sqlite3.SQLITE_CANTOPEN: READ_ONLY_FIX,
    sqlite3.SQLITE_FULL: FULL_FIX,
    sqlite3.SQLITE_IOERR: "check the disk",
}
SYSTEM_FIXES = {
    errno.EACCES: READ_ONLY_FIX,
    errno.EPERM: READ_ONLY_FIX,
    errno.EROFS: READ_ONLY_FIX,
    errno.ENOSPC: FULL_FIX,
    errno.EDQUOT: FULL_FIX,
}
_logged: dict[Path, tuple[str, float]] = {}  # by file: the last error, and when it was logged


def as_database_error(error: sqlite3.Error | OSError, file: Path, restore_fix: str) -> DatabaseError:
    """Convert an error to a DatabaseError. `restore_fix` is the fix for damage."""
    if isinstance(error, OSError):
        return StorageError(f"{file} can't be used: {error.strerror or error}{system_fix(error)}")
    code = primary_code(error)
    if code in DAMAGE_CODES:
        return DamagedDatabaseError(f"{file} is damaged: {error} (fix: {restore_fix})")
    if code in BUSY_CODES:
        return DatabaseAwayError(str(error), f"{file} is locked by another process")
    if code in FIXES:
        return StorageError(f"{file} can't be used: {error} (fix: {FIXES[code]})")
    return DatabaseError(f"{file} can't be used: {error}")


def primary_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def system_fix(error: OSError) -> str:
    """Return the fix for an error, as a suffix of its message."""
    fix = SYSTEM_FIXES.get(error.errno or 0)
    return f" (fix: {fix})" if fix else ""


def hide_folder(error: DatabaseError, file: Path) -> None:
    """Remove the file's folder from a message that is shown to callers. The log has the folder."""
    text = str(error)
    error.args = (text.replace(str(file), file.name),)
    error.path = file
    last, at = _logged.get(file, ("", 0.0))
    if isinstance(error, StorageError | DamagedDatabaseError) and (text != last or monotonic() > at + LOG_AGAIN_S):
        _logged[file] = text, monotonic()
        log.error("%s", text)
