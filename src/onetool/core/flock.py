"""A lock (flock) on a file or folder: taken at once, or waited for as long as its caller says.

The system gives it back when its holder ends, however that ends. Who has taken it looks whether the path still leads
there: what is locked may have been deleted, or moved away, in the moment before.
"""

import errno
import os
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from onetool.core.private_file import MODE, private

PAUSE = 0.001  # seconds between two attempts; each is a little longer than the one before
LONGEST_PAUSE = 0.005
UNKNOWN = "another process"


class NoFlockError(OSError):
    """This system has none."""


def take(file: int, *, shared: bool = False) -> bool:
    """Take the lock without waiting; whether it is held now. Raises OSError, or NoFlockError without flock."""
    try:
        import fcntl
    except ImportError:
        raise NoFlockError(errno.ENOSYS, "this system has no flock") from None
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def pauses(patience: float, pause: float = PAUSE, longest: float = LONGEST_PAUSE) -> Iterator[float]:
    """How long to sleep after each attempt that failed, until so many seconds have passed."""
    from random import uniform

    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        yield uniform(pause / 2, pause)  # noqa: S311 - so that those who wait do not march in step
        pause = min(pause * 1.1, longest)


def wait(file: int, patience: float) -> bool:
    """Whether the lock is held now. Others may hold it for so many seconds. Raises as `take` does."""
    between = pauses(patience)
    while not (taken := take(file)) and (pause := next(between, None)):
        time.sleep(pause)
    return taken


def take_path(path: Path, flags: int, patience: float, *, shared: bool = False) -> int | None:
    """Open what the path leads to, and lock it. None if others hold it for so many seconds. Raises as `take` does."""
    between = pauses(patience)
    while (file := _try_path(path, flags, shared)) is None and (pause := next(between, None)):
        time.sleep(pause)
    return file


def _try_path(path: Path, flags: int, shared: bool) -> int | None:
    file = os.open(path, flags, MODE)
    mine = False
    try:
        mine = take(file, shared=shared) and leads_to(path, file)
    finally:
        if not mine:
            give_back(file)
    return file if mine else None


@contextmanager
def lock_beside(file: Path) -> Generator[None]:
    """One writer of the file at a time, also among processes. Without flock, whoever writes last wins."""
    lock = private(file.with_name(f".{file.name}.lock"), os.O_RDWR | os.O_CREAT)  # never deleted: it would be another
    try:
        with suppress(ImportError):
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        give_back(lock)


def release(file: int) -> None:
    """Closing the file is not enough where the process was forked meanwhile. Never raises."""
    with suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)


def give_back(file: int) -> None:
    """Release the lock and close the file. Never raises."""
    release(file)
    with suppress(OSError):
        os.close(file)


def leads_to(path: Path, file: int, *, follow_symlinks: bool = True) -> bool:
    """Whether the path still leads to the open file. Raises OSError."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path, follow_symlinks=follow_symlinks))
    except FileNotFoundError:
        return False


def holder(path: Path, us: str = "another thread of this process") -> str | None:
    """The process that holds the lock, in words; None if there is none, or the system does not tell."""
    with suppress(OSError, IndexError):
        status = os.stat(path)
        place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()  # 1: FLOCK ADVISORY WRITE 4711 fe:01:1234 0 EOF; who waits has `->` before FLOCK
            if words[1] == "FLOCK" and words[5] == place:
                return us if words[4] == str(os.getpid()) else _process(words[4])
    return None


def _process(pid: str) -> str:
    if not pid.isdigit() or pid == "0":  # one that can't be seen from here
        return UNKNOWN
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return f"process {pid}"
    return f"process {pid} ({name}{', which is stopped' if state in 'Tt' else ''})"
