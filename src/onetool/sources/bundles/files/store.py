"""`FileStore`, which stores bundles in a folder. The rules for changes are in `sources.bundles.rules`.

Nothing is created before the first write: a folder that does not exist is an empty store. A bundle keeps its folder's
name when its slug changes. A tool whose file can't be read can be deleted if the file has the name that the store would
give it.

All bundles and tools are in memory. They are loaded from a cache file, and from files with new stamps. Later, `sync`
scans the folder, and other processes record their changes in a log. `FileTransaction` changes files and contents
together, under the lock. The files are authoritative: if a file is not as expected, `OutOfDate` requests a sync and
another attempt.
"""

import logging
import os
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Lock, RLock
from typing import Any, TypeVar

import msgspec

from onetool.core.errors import Mistake
from onetool.core.os_files import OpenFolder
from onetool.database import Database
from onetool.database.sqlite import SqliteDatabase
from onetool.sources.bundles.contents import Contents, ContentsChange, PathTakenError
from onetool.sources.bundles.derived import DerivedBundles
from onetool.sources.bundles.errors import ConflictError, InvalidError, NotFoundError, UnavailableError
from onetool.sources.bundles.files import disk, writing
from onetool.sources.bundles.files.disk import (
    BUNDLE,
    OVERLAY,
    STATE,
    TOOLS,
    USAGE,
    Foreign,
    Stamp,
    anybody,
    bundle_file,
    bundle_folders,
    folder_of,
    tool_file,
    tool_name,
    tools_of,
)
from onetool.sources.bundles.files.form import bundle_text, not_empty, read_bundle_file, read_tool_file, tool_text
from onetool.sources.bundles.files.overlay import BuiltIn, Overlay, overlay_text, read_overlay
from onetool.sources.bundles.files.state_folder import ChangeLog, key_of, make_state, read_key
from onetool.sources.bundles.files.sync import NO_BUNDLE, FolderChanges, apply_changes, find_changes
from onetool.sources.bundles.files.writing import FolderLock, ensure_folders
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.rules import CONTENTS, MAX_TOOLS, BundleStore
from onetool.sources.bundles.transaction import BrokenFileError, StoreTransaction

log = logging.getLogger("onetool.bundles")
T = TypeVar("T")


class OutOfDate(Exception):  # noqa: N818 - not an error: a scan resolves it
    """A signal that a known file is missing or has changed."""


class FileTransaction(StoreTransaction):
    """A change to files and contents.

    `is_done` means that the files are durable; later errors don't prevent returning `result`. `is_known` means that the
    contents contain the change, too.
    """

    def __init__(self, root: OpenFolder, changes: ContentsChange) -> None:
        super().__init__()
        self._root = root
        self._changes = changes
        self.is_done, self.is_known = False, True
        self.paths: list[str] = []  # changed files

    # Reading

    def bundle(self, id: str) -> tuple[Bundle, str] | None:
        """Return the bundle and the name of its folder."""
        path = self._changes.path_of_bundle(id)
        if path is None:
            return None
        bundle = self._bundle(folder_of(path))
        if bundle.id != id:
            raise OutOfDate
        return bundle, folder_of(path)

    def tool(self, bundle: Bundle, folder: str, slug: str, version: str) -> tuple[Tool, str]:
        """Return the tool and its path."""
        row = self._changes.tool(bundle.id, slug, version)
        known = None if row is None else row.path
        path = known or tool_file(folder, slug, version)
        if known is None and not writing.exists(self._root, path):
            raise NotFoundError(f"there is no tool {slug}@{version} in the bundle {bundle.slug}")
        tool = self._tool(bundle.id, path)
        if (tool.slug, tool.version) == (slug, version):
            return tool, path
        if known is not None:
            raise OutOfDate
        raise NotFoundError(f"there is no tool {slug}@{version} in the bundle {bundle.slug}")

    def refuse_tool(self, bundle: Bundle, slug: str, version: str) -> None:
        """Raise ConflictError if the tool exists already."""
        known = self._changes.tool(bundle.id, slug, version)
        if known is not None and not writing.exists(self._root, known.path):
            raise OutOfDate
        if known is not None:
            raise ConflictError(f"the bundle {bundle.slug} already has a tool {slug}@{version}", "exists")

    def count(self) -> int:
        return self._changes.count_tools()

    def refuse_ids(self, tools: Iterable[Tool]) -> None:
        for tool in tools:
            if self._changes.has_tool_id(tool.id):
                raise ConflictError(f"another tool already has the id {tool.id}", "exists")

    def refuse_full(self, bundle: Bundle, folder: str) -> None:
        """Raise ConflictError if the bundle has tools. Unreadable files that could be tools count as well."""
        names = [name for name in writing.names_in(self._root, tools_of(folder)) if name.endswith(".json")]
        if names:
            raise ConflictError(not_empty(bundle, names, f"bundles/{folder}/tools"), "not_empty")

    # Writing

    def add_bundle(self, bundle: Bundle, tools: Sequence[Tool] = (), texts: Sequence[bytes] = ()) -> None:
        files = [(BUNDLE, bundle_text(bundle))]
        files += [
            (f"{TOOLS}/{tool_name(tool.slug, tool.version)}", text) for tool, text in zip(tools, texts, strict=True)
        ]
        folder, stamps = self._add_folder(bundle, files)
        self.is_done = True
        self._put_bundle(bundle, bundle_file(folder), stamps[0])
        for tool, stamp in zip(tools, stamps[1:], strict=True):
            self._put_tool(tool, tool_file(folder, tool.slug, tool.version), stamp)

    def remove_empty_bundle(self, folder: str) -> bool:
        names = set(writing.names_in(self._root, folder))
        if not names <= {BUNDLE, TOOLS} or writing.names_in(self._root, tools_of(folder)):
            return False
        writing.remove(self._root, folder)
        self.is_done = True
        self._drop(bundle_file(folder))
        return True

    def change_bundle(
        self, folder: str, bundle: Bundle | None, tools: Sequence[Tool] = (), texts: Sequence[bytes] = ()
    ) -> None:
        paths = [tool_file(folder, tool.slug, tool.version) for tool in tools]
        created, bundle_stamp = list[str](), None
        if tools and writing.ensure_folder(self._root, tools_of(folder)):
            created.append(tools_of(folder))
        try:
            stamps = writing.create_all(self._root, list(zip(paths, texts, strict=True)))
            created += paths
            if bundle is not None:
                bundle_stamp = writing.replace(self._root, bundle_file(folder), bundle_text(bundle))
        except BaseException as error:
            for path in reversed(created):
                writing.remove_quietly(self._root, path)
            if isinstance(error, FileExistsError) and error.filename in paths:
                self._refuse_file(tools[paths.index(error.filename)], error.filename)
            raise
        self.is_done = True
        if bundle is not None and bundle_stamp is not None:
            self._put_bundle(bundle, bundle_file(folder), bundle_stamp)
        for tool, path, stamp in zip(tools, paths, stamps, strict=True):
            self._put_tool(tool, path, stamp)

    def replace_tool(self, tool: Tool, path: str, *, is_renamed: bool = False) -> None:
        """Write the tool to its file, and rename the file if the tool `is_renamed`.

        The write is the change. If renaming fails, the file with the old name is still valid.
        """
        new = tool_file(folder_of(path), tool.slug, tool.version) if is_renamed else path
        if new != path and writing.exists(self._root, new):
            self._refuse_file(tool, new)
        stamp = writing.replace(self._root, path, tool_text(tool))
        self.is_done = True
        if new != path:
            with suppress(OSError):
                writing.rename(self._root, path, new)
                path, old = new, path
                self._drop(old)
        self._put_tool(tool, path, stamp)

    def remove_tool(self, path: str) -> None:
        try:
            writing.remove(self._root, path)
        except FileNotFoundError:
            raise OutOfDate from None
        self.is_done = True
        self._drop(path)

    # Built-in and derived bundles

    def overlay(self) -> Overlay:
        if not writing.exists(self._root, OVERLAY):
            return Overlay()
        return self._read(OVERLAY, lambda data, stamp: read_overlay(data))

    def replace_overlay(self, overlay: Overlay) -> None:
        write = writing.replace if writing.exists(self._root, OVERLAY) else writing.create
        stamp = write(self._root, OVERLAY, overlay_text(overlay))
        self.is_done = True
        self.paths.append(OVERLAY)
        self._changes.keep_overlay(OVERLAY, stamp)
        self._changes.put_overlay(overlay)

    # Helpers

    def _put_bundle(self, bundle: Bundle, path: str, stamp: Stamp) -> None:
        self.paths.append(path)
        self._changes.put_bundle(bundle, path, stamp)

    def _put_tool(self, tool: Tool, path: str, stamp: Stamp) -> None:
        self.paths.append(path)
        self._changes.put_tool(tool, path, stamp)

    def _drop(self, path: str) -> None:
        self.paths.append(path)
        self._changes.drop(path)

    def _add_folder(self, bundle: Bundle, files: list[tuple[str, bytes]]) -> tuple[str, list[Stamp]]:
        for folder in bundle_folders(bundle.slug, bundle.id):
            try:
                return folder, writing.create_folder(self._root, folder, files)
            except FileExistsError:
                try:
                    is_used = self._bundle(folder).id != bundle.id
                except (OutOfDate, BrokenFileError):
                    is_used = False
                if not is_used:  # the folder may belong to this bundle instead of a bundle with a similar id
                    advice = "its bundle.json can't be used: repair it, or move it away"
                    raise ConflictError(f"bundles/{folder} is in the way: {advice}", "broken") from None
        raise ConflictError(f"the folders for the bundle {bundle.id} contain other bundles: move these away", "exists")

    def _refuse_file(self, tool: Tool, path: str) -> None:
        """Refuse to overwrite an unknown file, which a killed process or a user may have created."""
        found = self._tool(tool.bundle_id, path)
        if (found.slug, found.version) == (tool.slug, tool.version):
            raise ConflictError(f"a tool {tool.slug}@{tool.version} already exists", "exists")
        raise ConflictError(f"bundles/{path} is in the way: it contains {found.slug}@{found.version}", "exists")

    def _bundle(self, folder: str) -> Bundle:
        return self._read(bundle_file(folder), lambda data, stamp: read_bundle_file(data, folder, stamp.mtime_ns))

    def _tool(self, bundle_id: str, path: str) -> Tool:
        folder = folder_of(path)
        return self._read(path, lambda data, stamp: read_tool_file(data, bundle_id, folder, stamp.mtime_ns))

    def _read(self, path: str, decode: Callable[[bytes, Stamp], T]) -> T:
        try:
            return decode(*disk.read_bytes(path, self._root))
        except FileNotFoundError:
            raise OutOfDate from None
        except InvalidError as error:
            raise BrokenFileError(path, error) from None


# The store

MAX_TRIES = 3  # if the contents turn out to be outdated
MIN_SAVED = 50  # files; fewer are read as quickly without the cache
LOCK_SECONDS = 2.0  # for writers; then changes are loaded without the lock, and the next scan corrects mistakes
READ_SECONDS = 1.0  # for readers that wait for our own change
FIRST_SECONDS = 60.0  # for callers that wait for the first scan


class FileStore(BundleStore):
    def __init__(
        self,
        folder: Path,
        built_in: BuiltIn = (),
        now: Callable[[], float] = time.time,
        max_tools: int = MAX_TOOLS,
        foreign: Foreign = anybody,
        database: Database | None = None,
        derived: DerivedBundles | None = None,
    ) -> None:
        """Create the store. `database` stores the counts of calls; if it is None, a file in the folder does."""
        self._own_database = own = SqliteDatabase(folder / USAGE)
        super().__init__(built_in, now, max_tools, derived, database or own, MIN_SAVED)
        self._folder, self._foreign = folder, foreign
        self._settled: Contents | None = None  # after the last scan of the folder
        self._log = ChangeLog(folder)
        # Lock order: one scan at a time, one writer in all processes, one change of the contents.
        self._syncing, self._lock, self._changing = Lock(), FolderLock(folder), RLock()

    # Reading

    def contents(self) -> Contents:
        if self._contents is None or (self._log.has_changed() and not self._read_log()):
            self._scan()
        assert self._contents is not None  # noqa: S101 - a failed first scan raises
        return self._contents

    def stamp(self) -> Hashable:
        return None if self._contents is None else (self._contents.revision, self._log.stamp())

    def file_of(self, tool_id: str) -> str | None:
        row = self.contents().by_id.get(tool_id)
        return None if row is None else str(self._folder / row.path)

    def mistakes(self) -> list[Mistake]:
        """Return the broken files, without tools that are broken only because of their bundle."""
        return [
            msgspec.structs.replace(mistake, file=str(self._folder / (mistake.file or "")))
            for mistake in self.contents().mistakes()
            if mistake.message != NO_BUNDLE
        ]

    # Synchronization

    def catch_up(self) -> None:
        """Do nothing: every read also reads the log."""

    def watch(self, call: Callable[[], None]) -> None:
        """Do nothing: files don't notify of changes."""

    def sync(self) -> bool:
        before = self._synced
        self._scan(is_required=True)
        self._synced = self.contents().revision
        return before != self._synced

    def _scan(self, is_required: bool = False) -> None:
        """Scan the whole folder. Raises UnavailableError. If the store is open, it does so only if `is_required`."""
        was_open, log_stamp = self._contents is not None, self._log.stamp()
        if not self._syncing.acquire(timeout=FIRST_SECONDS):
            raise UnavailableError(f"{self._folder} is being read by another thread; try again later")
        try:
            if not was_open and self._contents is not None and not is_required:
                return  # another thread has opened it
            log_stamp = self._log.stamp()  # later entries are loaded after the scan
            saved = None if os.path.islink(self._folder / STATE) else self._folder / STATE / CONTENTS
            known = self._contents or self._snapshot.read(saved, self.reserved)
            changes = find_changes(self._folder, known, self._foreign, is_settled=known is self._settled)
            with ExitStack() as stack:
                if changes != FolderChanges([], [], []):
                    with suppress(UnavailableError, OSError):
                        root = stack.enter_context(self._lock.held(LOCK_SECONDS))
                        for draft in changes.drafts:
                            writing.remove_quietly(root, draft)  # we hold the lock: no writer owns it
                stack.enter_context(self._changing)
                self._settled = self._apply(self._contents or known, changes)
                self._log.seen = log_stamp
            if not was_open:
                self._synced = self._settled.revision
            self._save()
        except UnavailableError:
            if is_required or self._contents is None:
                raise
            self._log.seen = log_stamp  # otherwise every reader would scan again
        finally:
            self._syncing.release()

    def _read_log(self) -> bool:
        """Load changes from the log. Return False if a scan of the folder is needed."""
        if not self._changing.acquire(timeout=READ_SECONDS):
            return True  # our own large change is being written: use the known contents
        try:
            assert self._contents is not None  # noqa: S101 - the store is open
            now = self._log.stamp()
            paths = self._log.changes_until(now)
            if paths is None:
                return False
            if paths:
                with suppress(UnavailableError):
                    self._apply(self._contents, find_changes(self._folder, self._contents, self._foreign, paths))
            self._log.seen = now
            return True
        finally:
            self._changing.release()

    def _apply(self, base: Contents, changes: FolderChanges) -> Contents:
        change = ContentsChange(base, self.reserved)
        apply_changes(self._folder, change, changes)
        return self._keep(change)

    def _keep(self, change: ContentsChange) -> Contents:
        self._snapshot.count(change.files_changed)
        self._contents = contents = change.done()
        return contents

    def _state_folder(self) -> Path | None:
        return make_state(self._folder)

    # Other

    def _shared_key(self) -> bytes:
        if (key := read_key(self._folder)) is not None:
            return key
        try:
            with self._lock.held() as root:
                return key_of(self._folder, root)
        except (OSError, UnavailableError):  # no key can be stored
            return self._own_key

    def close(self) -> None:
        super().close()
        self._own_database.close()

    # Changing

    def change(self, job: Callable[[StoreTransaction], None], makes: bool = False) -> Any:
        """Run the job under the lock, and return its `result`. All errors are BundleErrors.

        Only a job that `makes` something new may create the folder.
        """
        if not makes and not self._folder.exists():
            raise NotFoundError("there is no such bundle: the store is empty")
        try:
            ensure_folders(self._folder)
            self.contents()
            for _ in range(MAX_TRIES):
                if self._state_folder() is None:
                    self._scan(is_required=True)  # without a log, only a scan finds other changes
                work = None
                with self._lock.held() as root, self._changing:
                    if self._read_log():
                        with suppress(OutOfDate):
                            work = self._try(job, root)
                if work is None or not work.is_known:
                    self._scan(is_required=work is None)
                if work is not None:
                    return work.result
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise UnavailableError(f"{self._folder} can't be written: {why}; nothing has changed") from error
        raise ConflictError(f"files in {self._folder} keep changing; try again", "unsteady")

    def _try(self, job: Callable[[StoreTransaction], None], root: OpenFolder) -> FileTransaction:
        assert self._contents is not None  # noqa: S101 - `change` has loaded the contents
        change = ContentsChange(self._contents, self.reserved)
        work = FileTransaction(root, change)
        try:
            job(work)
        except (OSError, PathTakenError) as error:
            if not work.is_done:
                raise
            log.warning("the bundles are read again after a change: %s", error)
            work.is_known = False
            return work
        self._keep(change)
        if work.paths:
            with suppress(OSError):  # other processes find the change by a scan
                self._log.add(work.paths)
        return work
