"""Differences between Linux and macOS: locks, descriptors, and starting programs. Other modules don't test for the
system.

Flags that some systems lack in `os.open` are in `os_files`.
"""

import fcntl
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onetool.core.os_files import OpenFolder


def lock(file: "int | OpenFolder", *, wait: bool = False) -> bool:
    """Lock an open file or folder. Return False if the lock is taken. Raises OSError."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(file: "int | OpenFolder") -> None:
    """Release the lock. Closing the file is not enough if the process was forked. Never raises."""
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_UN)


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


def has_window() -> bool:
    return sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))


def settings_folder(home: Path, env: Mapping[str, str], system: str = sys.platform) -> Path:
    """Return the system's folder for the settings of programs."""
    if system == "darwin":
        return home / "Library" / "Application Support"
    return Path(env["XDG_CONFIG_HOME"]) if env.get("XDG_CONFIG_HOME") else home / ".config"
