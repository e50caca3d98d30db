"""Differences between Linux, macOS and Windows: locks, descriptors, and starting programs. Other modules don't test for
the system.

Flags that some systems lack in `os.open` are in `os_files`.
"""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlite3 import Connection

    from onetool.core.os_files import OpenFolder

try:
    import fcntl
except ImportError:
    fcntl = None

IS_WINDOWS = os.name == "nt"
HAS_FLOCK = fcntl is not None
PROGRAM_SUFFIX = ".exe" if IS_WINDOWS else ""
# Needed for starting programs.
_WINDOWS_STARTS_WITH = "SYSTEMROOT SYSTEMDRIVE COMSPEC PATHEXT TEMP TMP USERPROFILE APPDATA LOCALAPPDATA"
START_VARIABLES = tuple(_WINDOWS_STARTS_WITH.split()) if IS_WINDOWS else ()
MAX_WAIT_S = 60.0  # for SQLite locks; flock waits without limit

# Locks. Without flock, use a SQLite lock on another file: in the temporary folder, named by device and inode numbers.

stand_ins: "dict[int | OpenFolder, Connection]" = {}


def lock(file: "int | OpenFolder", *, shared: bool = False, wait: bool = False) -> bool:
    """Lock an open file or folder. Return False if the lock is taken. Raises OSError. SQLite locks are always
    exclusive.
    """
    if fcntl is None:
        return file in stand_ins or _lock_by_sqlite(file, MAX_WAIT_S if wait else 0.0)
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def unlock(file: "int | OpenFolder") -> None:
    """Release the lock. Closing the file is not enough if the process was forked. Never raises."""
    with suppress(OSError):
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_UN)
    if stand_in := stand_ins.pop(file, None):
        stand_in.close()


def _lock_by_sqlite(file: "int | OpenFolder", seconds: float) -> bool:
    """Hold an empty transaction as a lock, which ends with the process."""
    import sqlite3
    from tempfile import gettempdir

    status = os.fstat(file) if isinstance(file, int) else file.status()
    folder = Path(gettempdir(), "onetool-locks")
    folder.mkdir(mode=0o700, exist_ok=True)
    name = folder / f"{status.st_dev:x}-{status.st_ino:x}"
    stand_in = sqlite3.connect(name, timeout=seconds, isolation_level=None, check_same_thread=False)
    try:
        stand_in.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        stand_in.close()
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            return False
        raise OSError(f"no lock can be made in {folder}: {error}") from None
    stand_ins[file] = stand_in
    return True


# Descriptors


def path_of_descriptor(file: int) -> str | None:
    """Return the path of an open file; None if the system can't tell."""
    with suppress(OSError):
        return os.readlink(f"/proc/self/fd/{file}")
    with suppress(AttributeError, OSError):  # macOS
        name: bytes = fcntl.fcntl(file, fcntl.F_GETPATH, bytes(1024))  # pyright: ignore
        return os.fsdecode(name.rstrip(b"\0")) or None
    return None


def enlarge_pipes(*pipes: int, size: int) -> None:
    """Enlarge the buffers of pipes for large messages, if possible: the system limits a user's total."""
    with suppress(AttributeError, OSError):
        for pipe in pipes:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, size)  # pyright: ignore


def has_unread(socket: int) -> bool:
    """Return whether a socket has unread bytes; False if the system can't tell."""
    with suppress(ImportError, AttributeError, OSError):
        from termios import FIONREAD

        return any(fcntl.ioctl(socket, FIONREAD, bytes(4)))  # pyright: ignore
    return False


# Programs


def own_group() -> dict[str, Any]:
    """Return Popen arguments for a new process group, so that Ctrl-C in the terminal does not reach the program."""
    return {"creationflags": 0x200} if IS_WINDOWS else {"process_group": 0}  # CREATE_NEW_PROCESS_GROUP


def empty_environment() -> dict[str, str]:
    """Return an environment that is empty except for a variable that Windows needs."""
    return {"SystemRoot": os.environ["SYSTEMROOT"]} if IS_WINDOWS else {}


def has_window() -> bool:
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))


def settings_folder(home: Path, env: Mapping[str, str], system: str = sys.platform) -> Path:
    """Return the system's folder for the settings of programs."""
    if system == "win32":
        return Path(env["APPDATA"]) if env.get("APPDATA") else home / "AppData" / "Roaming"
    if system == "darwin":
        return home / "Library" / "Application Support"
    return Path(env["XDG_CONFIG_HOME"]) if env.get("XDG_CONFIG_HOME") else home / ".config"
