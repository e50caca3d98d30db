"""Roots: reads, writes and lists files, but only below allowed folders.

Comparing the text of a path with its root and then opening that text would be unsafe: a folder could be swapped for a
link in between. Text comparison only serves to refuse early; opening the path enforces the root. Linux resolves a path
in one step (openat2 with RESOLVE_BENEATH). Where that call is missing, or refuses a link that may be harmless, the path
is walked name by name, each opened relative to its parent without following links.

The rules for a path:
- a relative path is opened in the first root in which it exists;
- an absolute path must begin with a root, as configured or with its links resolved, and is opened from that root;
- `..` never leads above the root, whether as written or after following links;
- a link may lead anywhere inside its own root, and its target may be relative or absolute;
- nothing is expanded or decoded (`~`, `$HOME`, `%2e`, `file:`), except the escapes of names that are not UTF-8.

For writing, the parent folder is opened that way, and the file by its name in the open folder. The target must be a
regular file: a link is neither followed nor replaced. A new file goes to the first root in which its folder exists.

Bytes of names that are not UTF-8 are shown as `\\xff`; in a name with that literal text, the
backslash is shown as `\\x5c`. Only backslashes and bytes from 0x80 are escaped, so no escape can stand for a separator,
a dot or a NUL.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from onetool.core.os_files import ENTER, LIST, OpenFolder
from onetool.services.file_access.open_folder import (
    Check,
    FolderEntry,
    append,
    is_there,
    list_into,
    make_folder,
    replace,
    sorted_entries,
)
from onetool.services.file_access.opening import (
    READ,
    Parts,
    PathRefusedError,
    encoded,
    names_of,
    open_beneath,
    path_errors,
    path_meant,
    path_shown,
    split,
    stays_inside,
)
from onetool.services.file_access.private import Private, is_below, path_of, resolved

CHUNK = 1 << 20
T = TypeVar("T")


class Content(NamedTuple):
    """The beginning of a file, and the file's size when it was opened."""

    data: bytes
    size: int


class MissingPath(NamedTuple):
    """The point where a path stops existing: the last existing folder, the missing name, and the existing names."""

    folder: str
    missing: str
    names: list[str]


class Root:
    """One allowed folder. Private files in it are refused when they are opened."""

    def __init__(self, folder: str, private: Private, within: Sequence[str] | None, enters_hidden: bool) -> None:
        with path_errors("root_missing", about=folder):
            self.path = os.path.abspath(folder)
            self._real = os.path.realpath(self.path)
        self._private, self._within, self._enters_hidden = private, within, enters_hidden
        self._spellings = [names_of(os.fsencode(self.path)), names_of(os.fsencode(self._real))]

    def relative_parts(self, absolute: bytes) -> Parts | None:
        """Return the part of an absolute path below this root; None if the path does not begin with the root."""
        parts = split(absolute)
        for spelling in self._spellings:
            if parts[: len(spelling)] == spelling:
                return parts[len(spelling) :] or [b"."]
        return None

    def open(self, parts: Parts) -> int:
        with self._top(parts) as top:
            file = open_beneath(self.relative_parts, top.fileno(), parts, READ)
        try:
            with path_errors():
                self._private.refuse_open(file, self.text(parts))
        except BaseException:
            os.close(file)
            raise
        return file

    def open_folder(self, parts: Parts, flags: int = ENTER) -> OpenFolder:
        parts = parts or [b"."]
        self._refuse_hidden(self.text(parts), self.path)
        with self._top(parts) as top:
            folder = OpenFolder(open_beneath(self.relative_parts, top.fileno(), parts, flags))
        try:
            with path_errors():
                self._private.refuse_open(folder, self.text(parts))
                self._refuse_hidden(path_of(folder) or resolved(self.text(parts)), self._real)
        except BaseException:
            folder.close()
            raise
        return folder

    @contextmanager
    def _top(self, parts: Parts) -> Iterator[OpenFolder]:
        """Yield the open root. Refuse private paths by their text first."""
        self._private.refuse_text(self.text(parts))
        with path_errors("root_missing", about=self.path):
            top = OpenFolder.at(self.path, ENTER)
        with top, path_errors():
            # The root may be a link whose target changes, so it is checked on every open.
            if self._within is not None:
                path = path_of(top) or os.path.realpath(self.path)
                if not any(is_below(path, os.path.realpath(folder)) for folder in self._within):
                    raise PathRefusedError("root_outside", self.path)
            yield top

    def reach(self, parts: Parts) -> int:
        """Return the number of names before the last that may be existing folders. Stop at the first missing one."""
        if b".." in parts:  # `..` may lead back to an existing folder
            return len(parts) - 1
        for end in range(1, len(parts)):
            try:
                self.open_folder(parts[:end]).close()
            except PathRefusedError:
                return end - 1
        return len(parts) - 1

    def text(self, parts: Parts) -> str:
        return os.path.join(self.path, os.fsdecode(b"/".join(parts)))

    def _refuse_hidden(self, folder: str, root: str) -> None:
        """Refuse a folder if its name, or a name on the way from the root, begins with a dot."""
        if self._enters_hidden:
            return
        names = os.path.relpath(folder, os.path.dirname(root)).split(os.sep)
        if any(name != "." and name.startswith(".") for name in names):
            raise PathRefusedError("hidden")


class Roots:
    """The allowed folders, and the file operations below them."""

    def __init__(
        self,
        folders: Iterable[str],
        private: Iterable[str] = (),
        *,
        within: Sequence[str] | None = None,
        own: str | None = None,
        enters_hidden: bool = True,
    ) -> None:
        """Allow `folders`, except the `private` paths in them.

        If given, `within` are the folders that must contain them. `own` is a folder of OneTool that may be written to.
        Without `enters_hidden`, folders whose names begin with a dot are refused.
        """
        self._private = Private(private, own)
        self._roots = [Root(folder, self._private, within, enters_hidden) for folder in folders]

    @property
    def paths(self) -> list[str]:
        return [path_shown(os.fsencode(root.path)) for root in self._roots]

    def read_file(self, path: str, max_bytes: int) -> Content:
        """Return the first `max_bytes` bytes of a regular file."""
        file = self._open(path, Root.open)
        try:
            with path_errors():
                status = os.fstat(file)
                if not stat.S_ISREG(status.st_mode):
                    raise PathRefusedError("is_a_directory" if stat.S_ISDIR(status.st_mode) else "not_a_file")
                chunks: list[bytes] = []
                while max_bytes > 0 and (chunk := os.read(file, min(max_bytes, CHUNK))):
                    chunks.append(chunk)
                    max_bytes -= len(chunk)
                return Content(b"".join(chunks), status.st_size)
        finally:
            os.close(file)

    def write_file(self, path: str, data: bytes) -> None:
        """Create or overwrite a file atomically."""
        with self._folder_of(path) as (folder, name):
            replace(folder, name, data, self._private)

    def append(self, path: str, data: bytes, on_new_line: bool = False, check: Check | None = None) -> None:
        """Append to a file atomically, even among concurrent writers. Create a missing file.

        With `on_new_line`, a line break is added first if the file doesn't end with one. `check` may refuse the open
        file because of its content.
        """
        with self._folder_of(path) as (folder, name):
            append(folder, name, data, self._private, on_new_line, check)

    def make_folders(self, path: str) -> None:
        """Create the missing parent folders of a file, in the first root that may contain it."""
        root, parts = next(self._candidates(path), (None, []))
        if root is None:
            raise PathRefusedError("denied")
        for end in range(1, len(parts)):
            try:
                root.open_folder(parts[:end]).close()
            except PathRefusedError as refused:
                if refused.reason != "not_found":
                    raise
                with root.open_folder(parts[: end - 1]) as folder:
                    make_folder(folder, parts[end - 1], self._private)

    def list_folder(self, path: str, depth: int, limit: int) -> list[FolderEntry]:
        """Return at most `limit` entries of a folder, `depth` levels deep, sorted by name within each folder."""
        entries: list[FolderEntry] = []
        with self._open(path, lambda root, parts: root.open_folder(parts, LIST)) as folder, path_errors():
            list_into(entries, folder, "", depth, limit, self._private)
        return entries

    def locate_missing(self, path: str, max_names: int) -> MissingPath | None:
        """Return where a path that was not found stops existing, in the first root that may contain it."""
        root, parts = next(self._candidates(path))
        start = [os.fsencode(root.path)] if encoded(path).startswith(b"/") else []
        for end in range(root.reach(parts), -1, -1):
            try:
                with root.open_folder(parts[:end], LIST) as folder, path_errors():
                    names = [path_shown(os.fsencode(entry.name)) for entry in sorted_entries(folder, max_names)]
            except PathRefusedError:
                continue
            return MissingPath(path_shown(b"/".join(start + parts[:end])) or ".", path_shown(parts[end]), names)
        return None

    def _open(self, path: str, open_in: Callable[[Root, Parts], T]) -> T:
        missing: PathRefusedError | None = None
        for root, parts in self._candidates(path):
            try:
                return open_in(root, parts)
            except PathRefusedError as refused:
                _raise_unless_missing(refused)
                missing = missing or refused
        if missing:  # don't reveal which files exist in a closed folder
            for root, parts in self._candidates(path):
                self._private.refuse_text(resolved(root.text(parts)))
        raise missing or PathRefusedError("denied")

    @contextmanager
    def _folder_of(self, path: str) -> Iterator[tuple[OpenFolder, bytes]]:
        """Yield the open folder of a file to write, and its name. Prefer a root that already has the file."""
        missing: PathRefusedError | None = None
        target: tuple[Root, Parts] | None = None
        for root, parts in self._candidates(path):
            if parts[-1] in (b".", b".."):
                raise PathRefusedError("is_a_directory")
            try:
                with root.open_folder(parts[:-1]) as folder:
                    if is_there(folder, parts[-1]):
                        target = root, parts
                        break
                target = target or (root, parts)
            except PathRefusedError as refused:
                _raise_unless_missing(refused)
                missing = missing or refused
        if target is None:
            raise missing or PathRefusedError("denied")
        root, parts = target
        with root.open_folder(parts[:-1]) as folder:
            yield folder, parts[-1]

    def _candidates(self, path: str) -> Iterator[tuple[Root, Parts]]:
        """Yield each root that may contain the path, and the names to open from there. Unescaped names come first."""
        raw = encoded(path)
        for spelling in dict.fromkeys((path_meant(raw), raw)):
            for root in self._roots:
                parts = root.relative_parts(spelling) if spelling.startswith(b"/") else split(spelling)
                if parts is not None and stays_inside(parts):
                    yield root, parts


def _raise_unless_missing(refused: PathRefusedError) -> None:
    """Raise the error unless the path is only missing here: another root may have it."""
    if refused.reason not in ("not_found", "root_missing", "root_outside"):
        raise refused


# Messages

MESSAGE_BY_REASON = {
    "bad_path": "{path} is not a valid path: {detail}.",
    "busy": "{path} is locked by other writers. Try again.",
    "closed": "{path} is closed to tools, regardless of the allowed folders: it contains keys or system files.",
    "denied": "{path} is outside the folders that may be written to ({allowed}).",
    "hidden": "{path} is below a folder whose name begins with a dot; such folders can't be written to.",
    "is_a_directory": "{path} is a directory, not a file.",
    "is_a_link": "{path} is a symbolic link, which is not followed for writing. Use the path of the file itself.",
    "link_loop": "{path} has too many symbolic links, or a loop of them (ELOOP).",
    "name_too_long": "{path} is too long, or one of its names is (ENAMETOOLONG).",
    "no_permission": "{path} can't be written: permission denied.",
    "not_a_directory": "{path} leads through a file that is not a directory.",
    "not_a_file": "{path} is not a regular file: devices, pipes and sockets can't be written.",
    "not_found": "{path} can't be created: its folder does not exist.",
    "other_content": "{path} contains something other than topic messages. Use a file that does not exist yet.",
    "private": "{path} belongs to OneTool and can't be written by tools.",
    "root_missing": "The allowed folder {detail!r} can't be opened.",
    "root_outside": "The folder {detail!r} is outside the project whose config allows it.",
    "state": "{path} is closed to tools: it contains OneTool's state (see its file .onetool-state).",
}
OTHER_MESSAGE = "{path} could not be written: {detail}."


def why_not_written(refused: PathRefusedError, path: str, allowed: Sequence[str] = ()) -> str:
    """Return a message for a refused write. `allowed` (see `Roots.paths`) is named if the path is outside of it."""
    return MESSAGE_BY_REASON.get(refused.reason, OTHER_MESSAGE).format(
        path=repr(path if len(path) <= 300 else f"{path[:300]}…"),
        detail=refused.detail or "system error",
        allowed=", ".join(map(repr, allowed)) or "none",
    )


__all__ = ["Content", "FolderEntry", "MissingPath", "PathRefusedError", "Roots", "why_not_written"]
