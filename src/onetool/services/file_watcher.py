"""FileWatcher: polls files every second or so, and reports those that have changed and then stayed the same.

It compares each file's time, size and inode. Notifications of the system would be quicker, but differ between systems
and do not work on network drives. Editors write in several steps, so a change is reported only when two polls in a row
have seen the same.
"""

import errno
import logging
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Event, Thread, current_thread
from time import perf_counter, time_ns

log = logging.getLogger("onetool.watch")

SUFFIXES = (".py", ".yaml", ".yml", ".json")
MAX_FILES = 10_000  # in all; more are not looked at
MAX_DEPTH = 16  # of folders below one
MAX_UNSETTLED = 10  # looks at a file that changes all the time, until what else has changed is told all the same
PAUSE_FACTOR = 20  # times the duration of a poll: polling takes at most a twentieth of the time
LAST_WAIT = 2.0  # seconds that closing gives to whoever is being told

# These say nothing of the files: a look that met one is not taken for "they are gone".
_NO_LOOK = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE, errno.ETIMEDOUT}

FileStamp = tuple[int, int, int, int]
FolderSnapshot = dict[
    Path, dict[str, FileStamp]
]  # of each path that is looked at: the files there, and what they were like


class FileWatcher:
    """Polls files. The first poll happens in the constructor: every later change is reported.

    `paths` gives files (of any name) and folders; it is called at each poll. A path that it did not give before is no
    change: it gives others because they have been read. `on_change` is called in the watcher's own thread.
    """

    def __init__(
        self,
        paths: Callable[[], Iterable[Path]],
        on_change: Callable[[], None],
        every: float = 1.0,
        since: float | None = None,
    ) -> None:
        """`since` is when the files were read, if that was earlier: changes after it are reported, too."""
        self._paths = paths
        self._on_change = on_change
        self._every = every
        self._closed = Event()
        self._problem = ""
        self._reported: FolderSnapshot = {}
        self._reported = _older(self._poll() or {}, since)
        self._thread = Thread(target=self._watch, name="onetool-file-watcher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop polling. May be called from the callback."""
        self._closed.set()
        if current_thread() is not self._thread:
            self._thread.join(LAST_WAIT)

    def _watch(self) -> None:
        before, changing, pause = self._reported, 0, self._every
        while not self._closed.wait(pause):
            began = perf_counter()
            seen = self._poll()
            pause = max(self._every, (perf_counter() - began) * PAUSE_FACTOR)
            if seen is None:
                continue
            quiet, before = seen == before, seen
            if not self._has_changed(seen):
                changing = 0
            elif quiet or changing >= MAX_UNSETTLED:
                changing = 0
                self._notify(seen)
            else:
                changing += 1

    def _has_changed(self, seen: FolderSnapshot) -> bool:
        """Return whether a known path differs from what was last reported. New paths are known from now on."""
        self._reported = {path: self._reported.get(path, files) for path, files in seen.items()}
        return self._reported != seen

    def _notify(self, seen: FolderSnapshot) -> None:
        if self._closed.is_set():
            return
        self._reported = seen  # what changes during the callback is reported the next time
        try:
            self._on_change()
        except Exception as error:  # whatever it is, the next change must be reported as well
            more = log.isEnabledFor(logging.DEBUG)
            log.error(
                "files have changed, and the reaction to it failed: %s: %s", type(error).__name__, error, exc_info=more
            )
        after = self._poll()
        if after is not None:
            self._has_changed(after)

    def _poll(self) -> FolderSnapshot | None:
        """Return a snapshot of all files; None if it can't be taken."""
        poll = _Poll()
        try:
            snapshot = {path: poll.at(path) for path in self._paths()}
        except Exception as error:  # noqa: BLE001  `paths` is somebody else's
            self._log_once(f"files can't be watched for now: {type(error).__name__}: {error}")
            return None
        self._log_once(f"more than {MAX_FILES:,} files to watch; the others are not noticed" if poll.is_full else "")
        return snapshot

    def _log_once(self, problem: str) -> None:
        """Log the problem once, not at every poll."""
        if problem and problem != self._problem:
            log.warning(problem)
        self._problem = problem


def snapshot(paths: Iterable[Path], since: float | None = None) -> FolderSnapshot:
    """Return the stamps of all files, without files that have changed since the given time."""
    poll = _Poll()
    return _older({path: poll.at(path) for path in paths}, since)


def changed_files(before: FolderSnapshot, now: FolderSnapshot) -> dict[str, str]:
    """Return the files that differ, in order, each with a word: new, removed or changed."""
    old, new = ({name: stamp for files in one.values() for name, stamp in files.items()} for one in (before, now))
    differ = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return {name: "new" if name not in old else "removed" if name not in new else "changed" for name in differ}


class _Poll:
    def __init__(self) -> None:
        self._left = MAX_FILES
        self._folders: set[tuple[int, int]] = set()  # of the path at hand; links may lead back to one

    @property
    def is_full(self) -> bool:
        return self._left < 0

    def at(self, path: Path) -> dict[str, FileStamp]:
        files: dict[str, FileStamp] = {}
        self._folders.clear()
        try:
            status = os.stat(path)
        except OSError as error:
            _raise_unless_fact(error)
            return files
        if stat.S_ISDIR(status.st_mode):
            self._add_folder(files, str(path), status, MAX_DEPTH)
        else:
            files[str(path)] = _stamp(status)
        return files

    def _add_folder(self, files: dict[str, FileStamp], folder: str, status: os.stat_result, levels: int) -> None:
        number = (status.st_dev, status.st_ino)
        if levels == 0 or number in self._folders:
            return
        self._folders.add(number)
        self._left -= 1
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if self.is_full or entry.name.startswith(".") or entry.name == "__pycache__":
                        continue
                    try:
                        if entry.is_dir():
                            self._add_folder(files, entry.path, entry.stat(), levels - 1)
                        elif entry.name.endswith(SUFFIXES):
                            self._left -= 1
                            files[entry.path] = _stamp(entry.stat())
                    except OSError as error:
                        _raise_unless_fact(error)
        except OSError as error:
            _raise_unless_fact(error)


def _older(snapshot: FolderSnapshot, since: float | None) -> FolderSnapshot:
    """Remove files that have changed since, so that they count as changed. Times in the future are ignored."""
    if since is None:
        return snapshot
    now = time_ns()
    return {
        path: {name: stamp for name, stamp in files.items() if not since * 1e9 <= stamp[0] <= now}
        for path, files in snapshot.items()
    }


def _stamp(status: os.stat_result) -> FileStamp:
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode


def _raise_unless_fact(error: OSError) -> None:
    """Raise an error that says nothing of the files. That one is missing, or closed to us, is a fact."""
    if error.errno in _NO_LOOK:
        raise error
