"""FileWatcher: polls files about every second, and reports changes once the files are stable.

The watcher compares each file's time, size and inode. System notifications would be faster, but differ between systems
and do not work on network drives. Editors write in several steps, so a change is reported only after two polls in a row
have seen the same state.
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
MAX_FILES = 10_000  # in total; more are not watched
MAX_DEPTH = 16  # of nested folders
MAX_UNSETTLED = 10  # polls that see a change each time; then changes are reported anyway
PAUSE_FACTOR = 20  # times the duration of a poll: polling takes at most a twentieth of the time
LAST_WAIT = 2.0  # seconds that closing waits for a running callback

# Errors that don't mean that a file is missing: a poll with one of these is discarded.
_TEMPORARY_ERRORS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE, errno.ETIMEDOUT}

FileStamp = tuple[int, int, int, int]
FolderSnapshot = dict[Path, dict[str, FileStamp]]  # watched path -> file -> stamp


class FileWatcher:
    """A poller of files. The first poll happens in the constructor: every later change is reported.

    `paths` is called at each poll and returns files (of any name) and folders. A path that is new in this list is not a
    change, since its reader has just read it. `on_change` is called in the watcher's own thread.
    """

    def __init__(
        self,
        paths: Callable[[], Iterable[Path]],
        on_change: Callable[[], None],
        every: float = 1.0,
        since: float | None = None,
    ) -> None:
        """Start watching. Changes after `since`, the time when the files were read, are reported too."""
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
            elif not quiet and changing < MAX_UNSETTLED:
                changing += 1
            elif not self._closed.is_set():
                changing = 0
                self._reported = seen  # changes during the callback are reported next time
                try:
                    self._on_change()
                except Exception as error:  # later changes must still be reported
                    more = log.isEnabledFor(logging.DEBUG)
                    log.error(
                        "the callback for changed files failed: %s: %s", type(error).__name__, error, exc_info=more
                    )
                after = self._poll()
                if after is not None:
                    self._has_changed(after)

    def _has_changed(self, seen: FolderSnapshot) -> bool:
        """Return whether a known path differs from its last reported state. Add new paths to the known ones."""
        self._reported = {path: self._reported.get(path, files) for path, files in seen.items()}
        return self._reported != seen

    def _poll(self) -> FolderSnapshot | None:
        """Return a snapshot of all files; None if it can't be taken."""
        poll = _Poll()
        try:
            snapshot = {path: poll.at(path) for path in self._paths()}
        except Exception as error:  # noqa: BLE001  `paths` may raise anything
            self._log_once(f"files can't be watched for now: {type(error).__name__}: {error}")
            return None
        self._log_once(f"more than {MAX_FILES:,} files to watch; the rest are ignored" if poll.is_full else "")
        return snapshot

    def _log_once(self, problem: str) -> None:
        """Log the problem once, not at every poll."""
        if problem and problem != self._problem:
            log.warning(problem)
        self._problem = problem


def snapshot(paths: Iterable[Path], since: float | None = None) -> FolderSnapshot:
    """Return the stamps of all files except those that have changed since the given time."""
    poll = _Poll()
    return _older({path: poll.at(path) for path in paths}, since)


def changed_files(before: FolderSnapshot, now: FolderSnapshot) -> dict[str, str]:
    """Return the files that differ, sorted, each with `new`, `removed` or `changed`."""
    old, new = (
        {name: stamp for files in snapshot.values() for name, stamp in files.items()} for snapshot in (before, now)
    )
    differ = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return {name: "new" if name not in old else "removed" if name not in new else "changed" for name in differ}


class _Poll:
    def __init__(self) -> None:
        self._left = MAX_FILES
        self._folders: set[tuple[int, int]] = set()  # visited below the current path; links may form a loop

    @property
    def is_full(self) -> bool:
        return self._left < 0

    def at(self, path: Path) -> dict[str, FileStamp]:
        files: dict[str, FileStamp] = {}
        self._folders.clear()
        try:
            status = os.stat(path)
        except OSError as error:
            _raise_unless_missing(error)
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
                        _raise_unless_missing(error)
        except OSError as error:
            _raise_unless_missing(error)


def _older(snapshot: FolderSnapshot, since: float | None) -> FolderSnapshot:
    """Remove files changed since that time, so that the next poll reports them. Ignore times in the future."""
    if since is None:
        return snapshot
    now = time_ns()
    return {
        path: {name: stamp for name, stamp in files.items() if not since * 1e9 <= stamp[0] <= now}
        for path, files in snapshot.items()
    }


def _stamp(status: os.stat_result) -> FileStamp:
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode


def _raise_unless_missing(error: OSError) -> None:
    """Raise the error unless it means that the file is missing or not accessible."""
    if error.errno in _TEMPORARY_ERRORS:
        raise error
