"""The folder `.state` of a folder of bundles, which is local to the machine and not in git.

It contains the log of changes, the key of page tokens, and caches: the contents of the folder in one file, and the
search index.
"""

import os
import re
from collections.abc import Hashable, Iterable
from pathlib import Path
from secrets import token_bytes

import msgspec

from onetool.core.flock import KEY_BYTES
from onetool.core.os_files import NO_WAIT, OpenFolder, open_no_link, read_at, replace_file
from onetool.core.state_folders import is_marked, make_home, mark_folder
from onetool.sources.bundles.files.disk import BUNDLE, CHANGES, KEY, MAX_FILE_BYTES, OVERLAY, READ, STATE, TOOLS
from onetool.sources.bundles.files.writing import create, ensure_folder, exists, replace


def make_state(folder: Path) -> Path | None:
    """Return the state folder, or None if the folder is missing or read-only."""
    state = folder / STATE
    if os.path.islink(state):
        return None  # a link would store our files elsewhere
    try:
        if not is_marked(state):
            with OpenFolder.at(folder) as root:
                if folder.name == "bundles":
                    make_home(folder.parent)
                _make(root)
        return state if os.access(state, os.W_OK | os.X_OK) else None
    except OSError:
        return None


def key_of(folder: Path, root: OpenFolder) -> bytes:
    """Return the shared key, which is created on first use, under the lock."""
    _make(root)
    found = read_key(folder)
    if found is not None:
        return found
    key = token_bytes(KEY_BYTES)
    (replace if exists(root, KEY) else create)(root, KEY, key)
    return key


def read_key(folder: Path) -> bytes | None:
    try:
        file = open_no_link(folder / KEY, READ)
    except OSError:
        return None
    try:
        key = os.read(file, MAX_FILE_BYTES)
    except OSError:
        return None
    finally:
        os.close(file)
    return key if len(key) == KEY_BYTES else None


def _make(root: OpenFolder) -> None:
    ensure_folder(root, STATE)
    with root.folder(STATE) as state:
        mark_folder(state)


# The log of changes

MAX_LOG_BYTES = 1 << 20
APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | NO_WAIT


class ChangeLog:
    """A log of the paths that processes have changed, one line per change, written under the lock of the folder.

    Its readers need not scan all files. It is an optimization: without it, a scan of the folder finds changes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._file = folder, folder / CHANGES
        self.seen: Hashable = None  # the stamp up to which all changes were loaded

    def stamp(self) -> Hashable:
        """Return a value that changes with every line, and if there is no log, with the existence of the folder."""
        try:
            status = os.stat(self._file)
        except OSError:
            return self._folder.is_dir()
        return status.st_ino, status.st_size

    def has_changed(self) -> bool:
        return self.seen != self.stamp()

    def changes_until(self, now: Hashable) -> set[str] | None:
        """Return the paths changed between `seen` and `now`, or None if a scan of the folder is needed."""
        before = self.seen
        if before == now:
            return set()
        if not isinstance(before, tuple) or not isinstance(now, tuple) or before[0] != now[0]:
            return None
        try:
            file = open_no_link(self._file, READ)
            try:
                lines = read_at(file, now[1] - before[1], before[1]) if now[1] > before[1] else b""
            finally:
                os.close(file)
            paths = {path for line in lines.splitlines() for path in _decode_paths(line)}
            return paths if paths and all(map(_PATH.fullmatch, paths)) else None
        except (OSError, msgspec.DecodeError):  # a process was killed while it wrote a line
            return None

    def add(self, paths: Iterable[str]) -> None:
        """Add our own change for other processes. Raises OSError."""
        try:
            line = msgspec.json.encode([*paths]) + b"\n"
        except UnicodeEncodeError:  # a name that isn't UTF-8
            line = b"null\n"
        stamp = self.stamp()
        if isinstance(stamp, tuple) and stamp[1] > MAX_LOG_BYTES:
            replace_file(self._file, line, sync=False)
        else:
            file = open_no_link(self._file, APPEND)
            try:
                os.write(file, line)
            finally:
                os.close(file)
        if self.seen == stamp:
            self.seen = self.stamp()


_PATH = re.compile(rf"{re.escape(OVERLAY)}|[^./\0][^/\0]*/({re.escape(BUNDLE)}|{TOOLS}/[^./\0][^/\0]*\.json)")
_decode_paths = msgspec.json.Decoder(list[str]).decode
