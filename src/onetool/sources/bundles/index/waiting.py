"""How long a caller waits for the index, and the errors when it can't be used.

On a thread that runs an event loop everybody waits with the caller: there it is a moment only. All of these errors are
over when their cause is gone.
"""

import asyncio
import errno
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Lock, Thread
from time import monotonic

from onetool.sources.bundles.errors import UnavailableError
from onetool.sources.bundles.store import in_a_hurry

log = logging.getLogger("onetool.bundles")

# A disk that is full or for reading only. Reading goes on, in an index that is kept elsewhere.
_UNWRITABLE = frozenset((sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY))
_UNWRITABLE_FILES = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO))


class IndexDamagedError(UnavailableError):
    """The index was damaged in the middle of a change, and is made anew with the next question. No file has changed."""

    def __init__(self, why: object) -> None:
        super().__init__(f"the index of the bundles was damaged ({why}) and is made anew: try again", "index_damaged")


class IndexBusyError(UnavailableError):
    """Another process has the index locked, for longer than the caller could wait."""


class IndexUnwritableError(UnavailableError):
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


def unavailable(error: sqlite3.Error) -> UnavailableError:
    if "locked" in str(error):
        return IndexBusyError(
            "the index of the bundles is busy: another process has been writing for too long; try again"
        )
    return _error_class(error)(f"the index of the bundles can't be used: {error}")


def cannot_open(file: Path | None, error: OSError | sqlite3.Error) -> UnavailableError:
    if isinstance(error, sqlite3.Error) and "locked" in str(error):
        return unavailable(error)
    why = getattr(error, "strerror", None) or error
    log.warning("%s: the index of the bundles can't be opened: %s", file, why)  # callers don't read where it is
    return _error_class(error)(f"the index of the bundles can't be opened: {why}")


def _error_class(error: OSError | sqlite3.Error) -> type[UnavailableError]:
    if isinstance(error, OSError):
        return IndexUnwritableError if error.errno in _UNWRITABLE_FILES else UnavailableError
    code = getattr(error, "sqlite_errorcode", None)
    return IndexUnwritableError if code is not None and code & 0xFF in _UNWRITABLE else UnavailableError


# How long callers wait


LONG_SECONDS = 10.0  # seconds
SHORT_SECONDS = 0.2
LEAST = 0.02
PAUSE = 1.0  # after a wait in vain, in which callers wait only LEAST: many short waits are long together


def on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class WaitLimit:
    """The time that a caller may wait: long until the first answer, then short for an event loop."""

    def __init__(self) -> None:
        self._has_answered = False
        self._spent = float("-inf")

    def answered(self) -> None:
        self._has_answered = True

    def spent(self) -> None:
        self._spent = monotonic()

    @property
    def is_short(self) -> bool:
        return self._has_answered and (in_a_hurry.get() or on_loop())

    @property
    def seconds(self) -> float:
        if not self.is_short:
            return LONG_SECONDS
        return LEAST if monotonic() - self._spent < PAUSE else SHORT_SECONDS


class SingleRunner:
    """Runs slow work in a thread, one at a time; callers wait only as long as they may."""

    def __init__(self, name: str, wait_limit: WaitLimit) -> None:
        self._name = name
        self._wait_limit = wait_limit
        self._lock = Lock()
        self._running: Future[None] | None = None

    def do(self, work: Callable[[], object]) -> None:
        """Raises what the work raises; IndexBusyError, if that goes on."""
        try:
            self._started(work).result(self._wait_limit.seconds)
        except TimeoutError:
            self._wait_limit.spent()
            raise IndexBusyError(f"{self._name}: try again in some seconds") from None

    def _started(self, work: Callable[[], object]) -> "Future[None]":
        with self._lock:
            if self._running is not None and not self._running.done():
                return self._running
            running: Future[None] = Future()
            try:
                Thread(target=_run, args=(running, work), name="onetool-index", daemon=True).start()
            except RuntimeError:  # there are too many, or the process is about to end
                raise IndexBusyError(f"{self._name}, and no thread can be started for it now: try again") from None
            self._running = running
            return running


def _run(running: "Future[None]", work: Callable[[], object]) -> None:
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits for it
        running.set_exception(error)
    else:
        running.set_result(None)
