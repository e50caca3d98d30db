"""Where the files of a store are kept: in a folder, or in the table of a database that replicas share.

Both have the `Contents` in memory, run a `Job` on the newest ones while nobody else can write, and store the files that
it returns. A job is a pure function: it raises a BundleError, or returns the changed files, and may run twice.
"""

import logging
import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Lock, RLock
from typing import Any, NamedTuple, TypeVar

import msgspec

from onetool.core.state_folders import make_state_folder
from onetool.database import ChangeUnknownError, Database, DatabaseAwayError, DatabaseError, Transaction
from onetool.sources.bundles.errors import BundleError, InvalidError, NotFoundError, UnavailableError
from onetool.sources.bundles.store.contents import Contents, FileRow, read_row, written_row
from onetool.sources.bundles.store.folder import (
    FolderLock,
    Foreign,
    anybody,
    ensure_folders,
    find_changes,
    make_state,
    remove_quietly,
    write_files,
)
from onetool.sources.bundles.store.paths import STATE, folder_of
from onetool.sources.bundles.store.rows import (
    TOPIC,
    Mirror,
    Position,
    RowChanges,
    read_changes,
    read_position,
    write_rows,
)

log = logging.getLogger("onetool.bundles")
T = TypeVar("T")


class Change(NamedTuple):
    """The files that a job changes, by path: their new texts, or None to remove them; and the result of the job."""

    files: Mapping[str, bytes | None]
    result: Any = None


Job = Callable[[Contents], Change]


class Storage(ABC):
    """The methods block and are thread-safe."""

    must_ask = False
    """Whether changes by other processes are only seen by `catch_up`."""

    @abstractmethod
    def contents(self) -> Contents:
        """Return the current contents as far as this process knows. Raises UnavailableError if it knows nothing."""

    @abstractmethod
    def change(self, job: Job, *, makes: bool = False) -> Any:
        """Run the job, store its files, and return its result. All errors are BundleErrors.

        Only a job that `makes` something new may create the store.
        """

    @abstractmethod
    def sync(self) -> None:
        """Read external changes."""

    def catch_up(self) -> None:  # noqa: B027 - a folder needs none: every read looks at the mirror
        """Read changes by other processes. This is cheap. Without a connection, the last known state remains."""

    def require_current(self) -> None:  # noqa: B027 - files can't be away
        """Raise UnavailableError if `catch_up` failed, because a missing bundle or tool may exist."""

    def watch(self, call: Callable[[], None]) -> None:  # noqa: B027 - files don't notify of changes
        """Call the function, in any thread, when other processes may have changed something, if that is known."""

    @abstractmethod
    def stamp(self) -> Hashable:
        """Return a value that differs after each change that is known without waiting, or None if there is none."""

    def file(self, path: str) -> str | None:
        """Return the whole path of a file, if it is one."""
        return None

    @abstractmethod
    def key(self) -> bytes | None:
        """Return the key for page tokens that all processes of this store share, or None while it can't be read."""

    @abstractmethod
    def state_folder(self) -> Path | None:
        """Return the folder for caches, or None if nothing can be written."""

    @abstractmethod
    def close(self) -> None: ...


# In a folder

MIRROR = f"{STATE}/files.db"
MIN_MIRRORED = 50  # tools; fewer are read as quickly without the mirror
LOCK_S = 2.0  # for readers; then changes are read without the lock, and the next scan corrects mistakes
FIRST_S = 60.0  # for callers that wait for the first scan


class FolderStorage(Storage):
    """A folder of files, which are the truth, and its mirror.

    Nothing is created before the first write: a folder that does not exist is an empty store.
    """

    def __init__(self, folder: Path, reserved: Collection[str] = (), foreign: Foreign = anybody) -> None:
        self._folder, self._reserved, self._foreign = folder, reserved, foreign
        self._contents: Contents | None = None
        self._mirror = Mirror(folder / MIRROR)
        self._position: Position | None = None  # of the mirror
        self._seen: Hashable = None  # the stamp of the mirror at this position
        # Lock order: one scan at a time, one writer in all processes, one change of the contents.
        self._scanning, self._lock, self._following = Lock(), FolderLock(folder), RLock()

    # Reading

    def contents(self) -> Contents:
        if self._contents is None or (self._seen != self._mirror_stamp() and not self._follow()):
            self._scan(is_first=self._contents is None)
        assert self._contents is not None  # noqa: S101 - a failed first scan raises
        return self._contents

    def stamp(self) -> Hashable:
        return None if self._contents is None else (self._contents.revision, self._mirror_stamp())

    def sync(self) -> None:
        self._scan()

    def file(self, path: str) -> str | None:
        return str(self._folder / path)

    def key(self) -> bytes | None:
        if make_state(self._folder) is None:
            return None
        found = self._in_mirror(lambda work: work.execute("SELECT key FROM bundle_store"), makes=True)
        return found[0][0] if found else None

    def state_folder(self) -> Path | None:
        return make_state(self._folder)

    def close(self) -> None:
        self._mirror.close()

    # Following

    def _mirror_stamp(self) -> Hashable:
        return self._mirror.stamp() or self._folder.is_dir()

    def _in_mirror(self, job: Callable[[Transaction], T], *, makes: bool = False) -> T | None:
        if os.path.islink(self._folder / STATE):
            return None
        try:
            return self._mirror.run(job, makes=makes)
        except (OSError, sqlite3.Error) as error:
            log.debug("%s can't be used: %s", self._mirror.file, error)
            return None

    def _read_mirror(self, seen: Position | None) -> RowChanges | None:
        return self._in_mirror(lambda work: read_changes(work, seen, read_position(work)))

    def _follow(self) -> bool:
        """Read what others have written to the mirror. Return False if a scan of the folder is needed instead."""
        with self._following:
            assert self._contents is not None  # noqa: S101 - the store is open
            stamp = self._mirror_stamp()
            changes = self._read_mirror(self._position)
            if changes is None or changes.is_whole:
                self._position, self._seen = None if changes is None else changes.to, stamp
                return False
            self._contents = self._contents.following(changes.rows, changes.gone)
            self._position, self._seen = changes.to, stamp
            return True

    def _scan(self, *, is_first: bool = False) -> None:
        """Compare the whole folder with what is known, and read what differs. Raises UnavailableError."""
        if not self._scanning.acquire(timeout=FIRST_S):
            raise UnavailableError(f"{self._folder} is being read by another thread; try again later")
        try:
            if is_first and self._contents is not None:
                return  # another thread has opened it
            known = self._contents or self._from_mirror()
            found = find_changes(self._folder, known, self._foreign) if known.files else None
            with ExitStack() as stack:
                root = None
                if found is None or found:
                    with suppress(UnavailableError, OSError):
                        root = stack.enter_context(self._lock.held(LOCK_S))
                if root is not None:  # nobody writes now
                    if self._contents is not None:
                        self._follow()
                    known, found = self._contents or self._from_mirror(), None
                if found is None:
                    found = find_changes(self._folder, known, self._foreign)
                if root is not None:
                    for draft in found.drafts:
                        remove_quietly(root, draft)
                rows = found.read(self._folder)
                with self._following:
                    self._contents = self._contents or known
                    self._take(rows, found.gone, is_mirrored=root is not None)
        finally:
            self._scanning.release()

    def _from_mirror(self) -> Contents:
        """Return the contents of the mirror."""
        self._seen, changes = self._mirror_stamp(), self._read_mirror(None)
        self._position = None if changes is None else changes.to
        return Contents(self._reserved).following(changes.rows if changes else (), is_complete=False)

    def _take(self, rows: list[FileRow], gone: list[str], *, is_mirrored: bool) -> bool:
        """Take changes of the folder into the contents, and into the mirror if this process holds the lock.

        Return whether anything has changed but stamps.
        """
        assert self._contents is not None  # noqa: S101 - the callers have opened it
        before = self._contents
        self._contents = before.following(rows, gone)
        is_small = self._position is None and len(self._contents.by_id) < MIN_MIRRORED
        if is_mirrored and (rows or gone) and not is_small and make_state(self._folder) is not None:
            self._write_mirror(rows, gone)
        return before.revision != self._contents.revision

    def _write_mirror(self, rows: Collection[FileRow], gone: Collection[str]) -> None:
        """Write a change to the mirror, under the lock. If that fails, others find the change by a scan."""
        assert self._contents is not None  # noqa: S101 - the callers have opened it
        contents = self._contents

        def job(work: Transaction) -> Position:
            at = read_position(work)
            kept = rows if at == self._position else contents.rows()  # of a new mirror
            return write_rows(work, at, filter(_can_mirror, kept), gone)

        with self._following:
            if all(map(_is_text, [*gone, *(row.path for row in rows)])):
                self._position = self._in_mirror(job, makes=True)
            else:  # others find the change by a scan
                self._mirror.remove()
                self._position = None
            self._seen = self._mirror_stamp()

    # Changing

    def change(self, job: Job, *, makes: bool = False) -> Any:
        if not makes and not self._folder.exists():
            raise NotFoundError("there is no such bundle: the store is empty")
        try:
            ensure_folders(self._folder)
            self.contents()
            with self._lock.held() as root:
                is_known = make_state(self._folder) is not None and self._follow()
                change = self._decide(job, is_known)
                if change.files:
                    stamps = write_files(root, change.files)
                    self._keep(change.files, stamps)
            return change.result
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise UnavailableError(f"{self._folder} can't be written: {why}; nothing has changed") from error

    def _decide(self, job: Job, is_known: bool) -> Change:
        """Run the job, again if people have changed files that matter for it. `is_known`: what others wrote is read."""
        assert self._contents is not None  # noqa: S101 - `change` has opened it
        change = refused = None
        only: Collection[str] | None = None  # all folders
        try:
            change = job(self._contents)
            if is_known and change.files:
                only = {folder_of(path) for path in change.files}
        except BundleError as error:
            refused = error
        found = find_changes(self._folder, self._contents, self._foreign, only)
        rows = found.read(self._folder)
        with self._following:
            if self._take(rows, found.gone, is_mirrored=True):
                return job(self._contents)
        if change is None:
            assert refused is not None  # noqa: S101 - or there is a change
            raise refused
        return change

    def _keep(self, files: Mapping[str, bytes | None], stamps: Mapping[str, int]) -> None:
        assert self._contents is not None  # noqa: S101 - `change` has opened it
        rows, gone = _rows_of(files, stamps)
        with self._following:
            self._contents = self._contents.following(rows, gone)
            self._write_mirror(rows, gone)


def _rows_of(files: Mapping[str, bytes | None], stamps: Mapping[str, int]) -> tuple[list[FileRow], list[str]]:
    """Return the rows of written files, and the removed paths."""
    rows = [written_row(path, text, stamps.get(path, 0)) for path, text in files.items() if text is not None]
    return rows, [path for path, text in files.items() if text is None]


def _can_mirror(row: FileRow) -> bool:
    return not row.reason and _is_text(row.path)  # files that can't be used are read again


def _is_text(path: str) -> bool:
    """Return whether a path is UTF-8."""
    try:
        return bool(path.encode())
    except UnicodeEncodeError:
        return False


# In a database

NEWER = "it may have been written by a newer OneTool: update this one"
AWAY, UNKNOWN_CHANGE, REFUSED = "database_away", "change_unknown", "database_refused"
REPEAT = (
    "the connection to the database was lost while the change was being written, so it may have happened. "
    "Send it again: the same PUT of a bundle, PATCH, or PUT of examples changes nothing more; a PUT of a tool that "
    "says then that it exists, and a DELETE that says then that nothing is there, have happened"
)


class TableStorage(Storage):
    """The table of a database, which is the truth. Each replica has a copy in memory.

    `catch_up` queries the revision of the table and reads changes: callers that must see the latest changes by other
    replicas call it first. Other callers read the last known state, which is updated after notifications (`watch`) and
    every second. While the database is unavailable, reading continues and changes are refused at once.
    """

    def __init__(
        self,
        database: Database,
        reserved: Collection[str] = (),
        state: Path | None = None,
    ) -> None:
        """Create the storage. `state` is the folder for caches of this database."""
        self._database, self._reserved, self._state = database, reserved, state
        self._known: tuple[Contents, Position] | None = None  # replaced as a whole, so that it is read without a lock
        self._following = RLock()
        self._outdated: DatabaseError | None = None  # why the last `catch_up` failed
        self._watching: list[Callable[[], None]] = []
        self.must_ask = True

    # Reading

    def contents(self) -> Contents:
        try:
            return (self._known or self._follow())[0]
        except DatabaseError as error:
            raise _unavailable(error) from error

    def stamp(self) -> Hashable:
        return None if self._known is None else self._known[0].revision

    def sync(self) -> None:
        self.catch_up()

    def catch_up(self) -> None:
        self.contents()
        try:
            if self._known is None or self._database.read(read_position) != self._known[1]:
                self._follow()
            self._outdated = None
        except DatabaseError as error:
            self._outdated = error

    def require_current(self) -> None:
        if self._outdated is not None:
            raise _unavailable(self._outdated)

    def watch(self, call: Callable[[], None]) -> None:
        def notified(detail: str) -> None:
            is_known = detail.isdecimal() and self._known is not None and int(detail) <= self._known[1].revision
            if not is_known:
                call()

        self._watching.append(self._database.on_change(TOPIC, notified))
        self.must_ask = False

    def key(self) -> bytes | None:
        try:
            return bytes(self._database.read(lambda work: work.execute("SELECT key FROM bundle_store"))[0][0])
        except DatabaseError:
            return None

    def state_folder(self) -> Path | None:
        if self._state is None:
            return None
        try:
            make_state_folder(self._state)
        except OSError as error:
            log.warning("%s can't be written (%s): the search has no cache", self._state, error.strerror)
            return None
        return self._state

    def close(self) -> None:
        for forget in self._watching:
            forget()

    def _follow(self) -> tuple[Contents, Position]:
        """Read all changes. Raises DatabaseError."""
        with self._following:
            seen = None if self._known is None else self._known[1]
            changes = self._database.read(lambda work: read_changes(work, seen, read_position(work)), snapshot=True)
            self._known = known = self._updated(self._known, changes), changes.to
            return known

    def _updated(self, before: tuple[Contents, Position] | None, changes: RowChanges) -> Contents:
        known = Contents(self._reserved) if before is None else before[0]
        rows, gone = [_checked(row) for row in changes.rows], changes.gone
        if changes.is_whole:
            gone = [*{row.path for row in known.rows()}.difference(row.path for row in rows)]
        return known.following(rows, gone)

    # Changing

    def change(self, job: Job, *, makes: bool = False) -> Any:
        def run(work: Transaction) -> tuple[Contents, Position, Any]:
            at = read_position(work, lock=True)  # so changes don't overlap
            before = self._known
            contents = self._updated(before, read_changes(work, None if before is None else before[1], at))
            change = job(contents)
            if change.files:
                rows, gone = _rows_of(change.files, {})
                at = write_rows(work, at, rows, gone)
                contents = contents.following(rows, gone)
            return contents, at, change.result

        try:
            contents, position, result = self._database.write(run)
        except DatabaseError as error:
            raise _unavailable(error) from error
        except UnicodeEncodeError as error:
            raise InvalidError("a name contains a lone surrogate") from error
        with self._following:
            known = self._known
            if known is None or known[1].born != position.born or known[1].revision < position.revision:
                self._known = contents, position
        return result


def _checked(row: FileRow) -> FileRow:
    """Read a row as strictly as a file."""
    read = read_row(row.path, row.body)
    return msgspec.structs.replace(read, reason=f"{read.reason}; {NEWER}") if read.reason else read


def _unavailable(error: DatabaseError) -> UnavailableError:
    if isinstance(error, ChangeUnknownError):
        return UnavailableError(REPEAT, UNKNOWN_CHANGE)
    return UnavailableError(str(error), AWAY if isinstance(error, DatabaseAwayError) else REFUSED)
