"""Differences between Linux, macOS and Windows: locks, descriptors, and how programs are started.

Only here is asked which system this is. Flags of `os.open` that a system lacks are in `os_files`.
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
# What programs can't start without.
_WINDOWS_STARTS_WITH = "SYSTEMROOT SYSTEMDRIVE COMSPEC PATHEXT TEMP TMP USERPROFILE APPDATA LOCALAPPDATA"
START_VARIABLES = tuple(_WINDOWS_STARTS_WITH.split()) if IS_WINDOWS else ()
MAX_WAIT_S = 60.0  # for a lock of SQLite; flock waits as long as it takes

# Locks. Without flock, SQLite locks another file for us: one in the folder for temporary files, whose name is made of
# the numbers that the system has given the file.

stand_ins: "dict[int | OpenFolder, Connection]" = {}


def lock(file: "int | OpenFolder", *, shared: bool = False, wait: bool = False) -> bool:
    """Lock an open file or folder. Returns False if others hold the lock. Raises OSError. SQLite shares none."""
    if fcntl is None:
        return file in stand_ins or _lock_by_sqlite(file, MAX_WAIT_S if wait else 0.0)
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def unlock(file: "int | OpenFolder") -> None:
    """Release the lock. Closing alone is not enough where the process was forked meanwhile. Never raises."""
    with suppress(OSError):
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_UN)
    if stand_in := stand_ins.pop(file, None):
        stand_in.close()


def _lock_by_sqlite(file: "int | OpenFolder", seconds: float) -> bool:
    """Hold a transaction that writes nothing: a lock, which ends with its process."""
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
    """Return where an open file lies, as the system says; None where it does not."""
    with suppress(OSError):
        return os.readlink(f"/proc/self/fd/{file}")
    with suppress(AttributeError, OSError):  # macOS
        name: bytes = fcntl.fcntl(file, fcntl.F_GETPATH, bytes(1024))  # pyright: ignore
        return os.fsdecode(name.rstrip(b"\0")) or None
    return None


def enlarge_pipes(*pipes: int, size: int) -> None:
    """Give large messages room, where the system has some: it is shared by all that a person runs."""
    with suppress(AttributeError, OSError):
        for pipe in pipes:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, size)  # pyright: ignore


def has_unread(socket: int) -> bool:
    """Return whether bytes wait in a socket; False where the system does not say."""
    with suppress(ImportError, AttributeError, OSError):
        from termios import FIONREAD

        return any(fcntl.ioctl(socket, FIONREAD, bytes(4)))  # pyright: ignore
    return False


# Programs


def own_group() -> dict[str, Any]:
    """Return arguments of Popen: Ctrl-C at a terminal, which reaches a whole group, does not reach the program."""
    return {"creationflags": 0x200} if IS_WINDOWS else {"process_group": 0}  # CREATE_NEW_PROCESS_GROUP


def empty_environment() -> dict[str, str]:
    """Return an environment with nothing but what Windows needs to start a program."""
    return {"SystemRoot": os.environ["SYSTEMROOT"]} if IS_WINDOWS else {}


def has_window() -> bool:
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))


def settings_folder(home: Path, env: Mapping[str, str], system: str = sys.platform) -> Path:
    """Return where this system's programs keep their settings."""
    if system == "win32":
        return Path(env["APPDATA"]) if env.get("APPDATA") else home / "AppData" / "Roaming"
    if system == "darwin":
        return home / "Library" / "Application Support"
    return Path(env["XDG_CONFIG_HOME"]) if env.get("XDG_CONFIG_HOME") else home / ".config"
