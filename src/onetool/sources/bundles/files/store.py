"""`FileStore` keeps bundles in a folder. What may be changed is in `sources.bundles.rules`.

Nothing is created before the first write: a folder that does not exist is an empty store. A bundle keeps its folder's
name when its slug changes. A tool whose file can't be read can be deleted, if the file is named as the store would name
it.

`FileTransaction` is one change of the store: files and index together, under the lock. What counts is what the files
say, not what the index knows of them. The index only knows where they are; where it is wrong about that,
`IndexOutOfDate` asks for a sync and another try.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_bytes
from typing import Any, TypeVar

from onetool.core.os_files import OpenFolder
from onetool.database import Database
from onetool.database.sqlite import SqliteDatabase
from onetool.sources.bundles.errors import ConflictError, InvalidError, NotFoundError, UnavailableError
from onetool.sources.bundles.files import disk, writing
from onetool.sources.bundles.files.disk import (
    BUNDLE,
    OVERLAY,
    TOOLS,
    USAGE,
    Foreign,
    anybody,
    bundle_file,
    bundle_folders,
    folder_of,
    tool_file,
    tool_name,
    tools_of,
)
from onetool.sources.bundles.files.form import bundle_text, not_empty, read_bundle_file, read_tool_file, tool_text
from onetool.sources.bundles.files.overlay import Overlay, overlay_text, read_overlay, switches_text
from onetool.sources.bundles.files.state_folder import KEY_BYTES, FolderIndex, key_of, read_key
from onetool.sources.bundles.files.writing import ensure_folders
from onetool.sources.bundles.index import IndexTransaction, PathTakenError, Stamp
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.rules import MOST_TOOLS, BrokenFileError, StoreRules, StoreTransaction
from onetool.sources.bundles.usage import UsageCounter

log = logging.getLogger("onetool.bundles")

T = TypeVar("T")


class IndexOutOfDate(Exception):  # noqa: N818 - nothing is wrong: a look puts it right
    """The index knows of a file that is not there, or is another one."""


class FileTransaction(StoreTransaction):
    """`is_done`: the files are written durably; `result` is returned even if the index fails then."""

    def __init__(self, root: OpenFolder, changes: IndexTransaction) -> None:
        super().__init__()
        self._root = root
        self._changes = changes
        self.is_done = False

    # What is there

    def bundle(self, id: str) -> tuple[Bundle, str] | None:
        """The bundle and the name of its folder."""
        path = self._changes.path_of_bundle(id)
        if path is None:
            return None
        bundle = self._bundle(folder_of(path))
        if bundle.id != id:
            raise IndexOutOfDate
        return bundle, folder_of(path)

    def tool(self, bundle: Bundle, folder: str, slug: str, version: str) -> tuple[Tool, str]:
        """The tool and its path."""
        known = self._changes.path_of_tool(bundle.id, slug, version)
        path = known or tool_file(folder, slug, version)
        if known is None and not writing.exists(self._root, path):
            raise NotFoundError(f"there is no tool {slug}@{version} in the bundle {bundle.slug}")
        tool = self._tool(bundle.id, path)
        if (tool.slug, tool.version) == (slug, version):
            return tool, path
        if known is not None:
            raise IndexOutOfDate
        raise NotFoundError(f"there is no tool {slug}@{version} in the bundle {bundle.slug}")

    def refuse_tool(self, bundle: Bundle, slug: str, version: str) -> None:
        """Raises ConflictError if the tool exists already."""
        known = self._changes.path_of_tool(bundle.id, slug, version)
        if known is not None and not writing.exists(self._root, known):
            raise IndexOutOfDate
        if known is not None:
            raise ConflictError(f"there is a tool {slug}@{version} in the bundle {bundle.slug} already", "exists")

    def count(self) -> int:
        return self._changes.count_tools()

    def refuse_ids(self, tools: Iterable[Tool]) -> None:
        for tool in tools:
            if self._changes.has_tool_id(tool.id):
                raise ConflictError(f"there is another tool with the id {tool.id} already", "exists")

    def refuse_full(self, bundle: Bundle, folder: str) -> None:
        """What could be tools counts, also what can't be read."""
        names = [name for name in writing.names_in(self._root, tools_of(folder)) if name.endswith(".json")]
        if names:
            raise ConflictError(not_empty(bundle, names, f"bundles/{folder}/tools"), "not_empty")

    def is_empty(self, folder: str) -> bool:
        """Whether the folder has no files."""
        names = set(writing.names_in(self._root, folder))
        return names <= {BUNDLE, TOOLS} and not writing.names_in(self._root, tools_of(folder))

    # What becomes of it

    def add_bundle(self, bundle: Bundle, tools: Sequence[Tool], texts: Sequence[bytes], result: Any) -> None:
        files = [(BUNDLE, bundle_text(bundle))]
        files += [(f"{TOOLS}/{tool_name(one.slug, one.version)}", text) for one, text in zip(tools, texts, strict=True)]
        folder = self._add_folder(bundle, files)
        self._done(result)
        self._changes.put_bundle(bundle, bundle_file(folder), self._stamp(bundle_file(folder)))
        for tool in tools:
            path = tool_file(folder, tool.slug, tool.version)
            self._changes.put_tool(tool, path, self._stamp(path))

    def replace_bundle(self, bundle: Bundle, folder: str, result: Any) -> None:
        path = bundle_file(folder)
        writing.replace(self._root, path, bundle_text(bundle))
        self._done(result)
        self._changes.put_bundle(bundle, path, self._stamp(path))

    def remove_bundle(self, folder: str, result: Any) -> None:
        writing.remove(self._root, folder)
        self._done(result)
        self._changes.drop(bundle_file(folder))

    def add_tools(
        self, tools: Sequence[Tool], texts: Sequence[bytes], folder: str, result: Any, bundle: Bundle | None = None
    ) -> None:
        """All of them, or none; and `bundle` in the place of that of the folder, if it is given."""
        paths = [tool_file(folder, tool.slug, tool.version) for tool in tools]
        made: list[str] = []
        if writing.ensure_folder(self._root, tools_of(folder)):
            made.append(tools_of(folder))
        try:
            writing.create_all(self._root, list(zip(paths, texts, strict=True)))
            made += paths
            if bundle is not None:
                writing.replace(self._root, bundle_file(folder), bundle_text(bundle))
        except BaseException as error:
            for path in reversed(made):
                writing.remove_quietly(self._root, path)
            if isinstance(error, FileExistsError) and error.filename in paths:
                self._refuse_file(tools[paths.index(error.filename)], error.filename)
            raise
        self._done(result)
        if bundle is not None:
            self._changes.put_bundle(bundle, bundle_file(folder), self._stamp(bundle_file(folder)))
        for tool, path in zip(tools, paths, strict=True):
            self._changes.put_tool(tool, path, self._stamp(path))

    def replace_tool(self, tool: Tool, path: str) -> None:
        writing.replace(self._root, path, tool_text(tool))
        self._done(tool)
        self._changes.put_tool(tool, path, self._stamp(path))

    def rename_tool(self, tool: Tool, path: str) -> None:
        """Write a tool with another slug or version in the place of its file, and name the file after it.

        The first step is the change. A file whose name is that of before is a tool like any other.
        """
        new = tool_file(folder_of(path), tool.slug, tool.version)
        if new != path and writing.exists(self._root, new):
            self._refuse_file(tool, new)
        writing.replace(self._root, path, tool_text(tool))
        self._done(tool)
        if new != path:
            with suppress(OSError):
                writing.rename(self._root, path, new)
                path, old = new, path
                self._changes.drop(old)
        self._changes.put_tool(tool, path, self._stamp(path))

    def remove_tool(self, path: str) -> None:
        try:
            writing.remove(self._root, path)
        except FileNotFoundError:
            raise IndexOutOfDate from None
        self._done(None)
        self._changes.drop(path)

    # What is built in

    def overlay(self) -> Overlay:
        if not writing.exists(self._root, OVERLAY):
            return Overlay()
        return self._read(OVERLAY, lambda data, stamp: read_overlay(data))

    def replace_overlay(self, overlay: Overlay, switched: Iterable[tuple[Bundle, Sequence[Tool]]], result: Any) -> None:
        (writing.replace if writing.exists(self._root, OVERLAY) else writing.create)(
            self._root, OVERLAY, overlay_text(overlay)
        )
        self._done(result)
        self._changes.built_in(switched, others=switches_text(overlay))

    # How it is done

    def _done(self, result: Any) -> None:
        self.is_done, self.result = True, result

    def _add_folder(self, bundle: Bundle, files: list[tuple[str, bytes]]) -> str:
        for folder in bundle_folders(bundle.slug, bundle.id):
            try:
                writing.create_folder(self._root, folder, files)
            except FileExistsError:
                if self._is_in_the_way(folder, bundle):
                    advice = "its bundle.json can't be used: mend it, or move it away"
                    raise ConflictError(f"bundles/{folder} is in the way: {advice}", "broken") from None
            else:
                return folder
        raise ConflictError(f"there are folders for a bundle {bundle.id} already: move them away", "exists")

    def _is_in_the_way(self, folder: str, bundle: Bundle) -> bool:
        """Whether that folder may be this bundle's own, and not that of another one with a similar id."""
        try:
            return self._bundle(folder).id == bundle.id
        except (IndexOutOfDate, BrokenFileError):
            return True

    def _refuse_file(self, tool: Tool, path: str) -> None:
        """Refuse to overwrite a file that the index does not know: a killed process may have left it, or a user has put
        it there.
        """
        found = self._tool(tool.bundle_id, path)
        if (found.slug, found.version) == (tool.slug, tool.version):
            raise ConflictError(f"there is a tool {tool.slug}@{tool.version} already", "exists")
        raise ConflictError(
            f"bundles/{path} is in the way: it says of itself that it is {found.slug}@{found.version}", "exists"
        )

    def _bundle(self, folder: str) -> Bundle:
        return self._read(bundle_file(folder), lambda data, stamp: read_bundle_file(data, folder, stamp.mtime_ns))

    def _tool(self, bundle_id: str, path: str) -> Tool:
        folder = folder_of(path)
        return self._read(path, lambda data, stamp: read_tool_file(data, bundle_id, folder, stamp.mtime_ns))

    def _read(self, path: str, understand: Callable[[bytes, Stamp], T]) -> T:
        try:
            return understand(*disk.read_bytes(path, self._root))
        except FileNotFoundError:
            raise IndexOutOfDate from None
        except InvalidError as error:
            raise BrokenFileError(path, error) from None

    def _stamp(self, path: str) -> Stamp:
        return disk.stamp_of(self._root.stat(path))


# The store


MOST_TRIES = 3  # where the index turns out to be out of step


class FileStore(FolderIndex, StoreRules):
    def __init__(
        self,
        folder: Path,
        built_in: Sequence[tuple[Bundle, Sequence[Tool]]] = (),
        now: Callable[[], float] = time.time,
        max_tools: int = MOST_TOOLS,
        foreign: Foreign = anybody,
        database: Database | None = None,
    ) -> None:
        """`database` has the counts of calls; None: a file of the folder."""
        StoreRules.__init__(self, built_in, now, max_tools)
        FolderIndex.__init__(self, folder, built_in, foreign)
        self._own_database = own = SqliteDatabase(folder / USAGE)
        self.counter = UsageCounter(database or own, now)
        self._key: bytes | None = None

    # Beside

    def catch_up(self) -> None:
        """What other processes have written is in the index, which they share."""

    def watch(self, call: Callable[[], None]) -> None:
        """Nothing tells of changes of files."""

    def key(self) -> bytes:
        """Where none can be kept, it is this process's own."""
        if self._key is None:
            self._key = read_key(self._folder) or self._new_key()
        return self._key

    def _new_key(self) -> bytes:
        try:
            with self._lock.held() as root:
                return key_of(self._folder, root)
        except (OSError, UnavailableError):
            return token_bytes(KEY_BYTES)

    def close(self) -> None:
        self.counter.close()
        self._own_database.close()
        for index in (*self._retired, *((self._made[0],) if self._made else ())):
            index.close()

    # How it is done

    def change(self, job: Callable[[StoreTransaction], None], makes: bool = False) -> Any:
        """Under the lock. What the job leaves as its `result`; all errors are BundleErrors.

        Only one that `makes` something new has to do with a folder that is not there.
        """
        if not makes and not self._folder.exists():
            raise NotFoundError("there is no such bundle: there are none yet")
        try:
            ensure_folders(self._folder)
            with self._lock.held() as root:
                self._move_to_file()
                if not self._is_kept:
                    self.sync()  # what other processes do reaches an index in memory in no other way
                for _ in range(MOST_TRIES):
                    try:
                        return self._try(job, root)
                    except IndexOutOfDate:
                        self.sync()
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise UnavailableError(f"{self._folder} can't be written: {why}; nothing has changed") from error
        raise ConflictError(f"files in {self._folder} are being changed all the time; try again", "unsteady")

    def _try(self, job: Callable[[StoreTransaction], None], root: OpenFolder) -> Any:
        work: FileTransaction | None = None
        try:
            with self._index().changing() as changes:
                work = FileTransaction(root, changes)
                job(work)
        except (UnavailableError, OSError, PathTakenError) as error:
            if work is None or not work.is_done:
                raise
            self._is_outdated = True
            log.warning("the index of the bundles could not be updated; the next sync repairs it: %s", error)
            with suppress(UnavailableError):
                self.sync()  # the caller may read its change at once
        assert work is not None  # noqa: S101 - else an error has been raised
        return work.result
