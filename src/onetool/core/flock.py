"""Locks (flock) on files and folders, acquired immediately or with a timeout. The system releases a lock when its
holder ends, even after a crash.

After taking a lock, the holder checks that the path still leads to the locked file, which may have been deleted or
moved just before.
"""

import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from onetool.core.os_files import OpenFolder, UnsafeFileError, private, read_private, replace_file
from onetool.core.system import lock, unlock

PAUSE = 0.001  # seconds between the first two attempts; later pauses are longer
MAX_PAUSE = 0.005
UNKNOWN = "another process"

Opened = int | OpenFolder
T = TypeVar("T", int, OpenFolder)


def take(file: Opened) -> bool:
    """Take the lock without waiting. Return whether it is held now. Raises OSError."""
    return lock(file)


def pauses(seconds: float, pause: float = PAUSE, longest: float = MAX_PAUSE) -> Iterator[float]:
    """Yield the pause after each failed attempt, until `seconds` have passed."""
    from random import uniform

    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield uniform(pause / 2, pause)  # noqa: S311 - jitter, so that waiting processes do not retry in step
        pause = min(pause * 1.1, longest)


def wait(file: Opened, seconds: float) -> bool:
    """Take the lock, waiting at most `seconds`. Return whether it is held now. Raises OSError."""
    between = pauses(seconds)
    while not (taken := take(file)) and (pause := next(between, None)):
        time.sleep(pause)
    return taken


def take_path(path: Path, opener: Callable[[Path], T], seconds: float) -> T | None:
    """Open and lock the file or folder at a path. Return None if it stays locked for `seconds`. Raises OSError.

    If another process held the file and moved it away, this function also waits for a new file at the path.
    """
    between, was_there = pauses(seconds), False
    while True:
        try:
            file, mine = opener(path), False
        except FileNotFoundError:
            if not was_there or not (pause := next(between, None)):
                raise
        else:
            was_there = True
            try:
                mine = take(file) and leads_to(path, file)
            finally:
                if not mine:
                    give_back(file)
            if mine:
                return file
            if not (pause := next(between, None)):
                return None
        time.sleep(pause)


def give_back(file: Opened) -> None:
    """Release the lock and close the file. Never raises."""
    unlock(file)
    with suppress(OSError):
        os.close(file) if isinstance(file, int) else file.close()


def remove(path: Path, file: int) -> None:
    """Delete a file that this process has locked, and release the lock. Raises OSError."""
    try:
        path.unlink()
    finally:
        give_back(file)


def lock_beside(file: Path) -> AbstractContextManager[None]:
    """Hold a lock that allows one writer at a time to change the file, across processes."""
    return held(file.with_name(f".{file.name}.lock"))


@contextmanager
def held(file: Path) -> Generator[None]:
    """Hold a lock on a dedicated lock file, which is created and never deleted. Waits for the lock."""
    with open(file, "a", opener=private) as opened:
        lock(opened.fileno(), wait=True)
        try:
            yield
        finally:
            unlock(opened.fileno())


def leads_to(path: Path, file: Opened) -> bool:
    """Return whether the path still leads to the open file. Raises OSError."""
    try:
        status = os.fstat(file) if isinstance(file, int) else file.status()
        return os.path.samestat(status, os.stat(path))
    except FileNotFoundError:
        return False


def holder(path: Path) -> str | None:
    """Describe the process that holds the lock. Return None if there is none, or the system can't tell."""
    with suppress(OSError, IndexError):
        status = os.stat(path)
        place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()  # 1: FLOCK ADVISORY WRITE 4711 fe:01:1234 0 EOF; `->` before FLOCK: waiting
            if words[1] == "FLOCK" and words[5] == place:
                return "another thread of this process" if words[4] == str(os.getpid()) else _process(words[4])
    return None


def _process(pid: str) -> str:
    if not pid.isdigit() or pid == "0":  # a process that is not visible from here
        return UNKNOWN
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return f"process {pid}"
    return f"process {pid} ({name}{', which is stopped' if state in 'Tt' else ''})"


# A random key in a file, created on first use and shared by all processes of the user

KEY_BYTES = 32  # length of a key


def key_in(file: Path, make: bool = False) -> bytes:
    """Return the key; empty if there is none and `make` is False. Raises UnsafeFileError for a file that other users
    could have written or that is damaged, and OSError.
    """
    key = read_private(file, KEY_BYTES + 1)
    if key is None and make:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with lock_beside(file):  # two processes may create it at once
            key = read_private(file, KEY_BYTES + 1)
            if key is None:
                key = os.urandom(KEY_BYTES)
                replace_file(file, key)
    if key is not None and len(key) != KEY_BYTES:
        raise UnsafeFileError("it is damaged")
    return key or b""
