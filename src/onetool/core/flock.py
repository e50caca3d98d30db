"""A lock (flock) on a file or folder that is open: taken without waiting, or not at all.

The system gives it back when its holder ends, however that ends. Who has taken it looks whether the path still leads
there: what is locked may have been deleted, or moved away, in the moment before.
"""

import errno
import os
from contextlib import suppress
from pathlib import Path

UNKNOWN = "another process"


class NoFlockError(OSError):
    """This system has none."""


def take(file: int) -> bool:
    """Take the lock without waiting; whether it is held now. Raises OSError, or NoFlockError without flock."""
    try:
        import fcntl
    except ImportError:
        raise NoFlockError(errno.ENOSYS, "this system has no flock") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def give_back(file: int) -> None:
    """Release the lock and close the file. Never raises."""
    with suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)  # closing alone is not enough where the process was forked meanwhile
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
