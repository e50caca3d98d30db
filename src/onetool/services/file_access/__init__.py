"""Roots: reads, writes and lists files, but only below allowed folders.

Whether a path stays below its root is never decided by comparing text and then opening the text: between the two
somebody could swap a folder for a link. Text is compared first only to refuse early; what counts is how the path is
opened. Linux resolves it in one step (openat2 with RESOLVE_BENEATH). Where that is missing, or refuses a link that may
be harmless, the path is walked name by name, each relative to the open folder before it and without following links.
Windows has neither: see `file_below`.

The rules for a path:
- relative: taken from the first root in which it exists;
- absolute: must begin with a root, as it is configured or with its links resolved, and is then opened from that root;
- `..` may go back inside the root, never above it, neither as written nor after following links;
- a link may lead anywhere inside its own root, by a relative or an absolute text;
- nothing is expanded or decoded (`~`, `$HOME`, `%2e`, `file:`), but for the escapes of names that are not UTF-8.

To write, only the folder is opened that way; from there on a name in that open folder counts, never a path. The target
must be a regular file: a link is neither written through nor replaced. A new file goes to the first root in which its
folder exists.

Bytes of names that are not UTF-8 are shown as `\\xff`; a name that holds that text literally is shown with its
backslash as `\\x5c`. Only backslashes and bytes from 0x80 are escaped, so that no escape stands for a separator, a
dot or a NUL.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from onetool.core.os_files import ENTER, HAS_DIR_FD, LIST, OpenFolder
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
    file_below,
    folder_below,
    is_absolute,
    names_of,
    open_beneath,
    path_errors,
    path_meant,
    path_shown,
    same_case,
    slashed,
    split,
    stays_inside,
)
from onetool.services.file_access.private import Private, is_below, path_of, resolved

CHUNK = 1 << 20
T = TypeVar("T")


class Content(NamedTuple):
    """The beginning of a file, and the size it claimed when it was opened."""

    data: bytes
    size: int


class MissingPath(NamedTuple):
    """Where a path stops existing: the last existing folder, the missing name, and the names that are there."""

    folder: str
    missing: str
    names: list[str]


class Root:
    """One allowed folder. What is private in it is refused whenever something is opened."""

    def __init__(self, folder: str, private: Private, within: Sequence[str] | None, enters_hidden: bool) -> None:
        with path_errors("root_missing", about=folder):
            self.path = os.path.abspath(folder)
            self._real = os.path.realpath(self.path)
        self._private, self._within, self._enters_hidden = private, within, enters_hidden
        self._spellings = [names_of(slashed(self.path)), names_of(slashed(self._real))]

    def relative_parts(self, absolute: bytes) -> Parts | None:
        """Return what is left of an absolute path below this root; None when it does not begin with it."""
        parts = split(absolute)
        for spelling in self._spellings:
            if same_case(parts[: len(spelling)]) == same_case(spelling):
                return parts[len(spelling) :] or [b"."]
        return None

    def open(self, parts: Parts) -> int:
        with self._top(parts) as top:
            file = (
                open_beneath(self.relative_parts, top.fileno(), parts, READ)
                if HAS_DIR_FD
                else file_below(self.path, parts)
            )
        try:
            with path_errors():
                self._private.refuse_open(file, self.text(parts))
        except BaseException:
            os.close(file)
            raise
        return file

    def open_folder(self, parts: Parts, flags: int = ENTER) -> OpenFolder:
        self._refuse_hidden(self.text(parts), self.path)
        with self._top(parts) as top:
            if HAS_DIR_FD:
                folder = OpenFolder(open_beneath(self.relative_parts, top.fileno(), parts, flags))
            else:
                folder = folder_below(self.path, parts)
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
        """Yield the root itself, open, for a path that may be opened as far as its text tells."""
        self._private.refuse_text(self.text(parts))
        with path_errors("root_missing", about=self.path):
            top = OpenFolder.at(self.path, ENTER)
        with top, path_errors():
            # A folder that is a link may lead elsewhere tomorrow, so it is looked at whenever it is opened.
            if self._within is not None:
                here = path_of(top) or os.path.realpath(self.path)
                if not any(is_below(here, os.path.realpath(folder)) for folder in self._within):
                    raise PathRefusedError("root_outside", self.path)
            yield top

    def reach(self, parts: Parts) -> int:
        """Return how many of the names, short of the last, may be existing folders. Not each of thousands is tried."""
        if b".." in parts:  # which leads back to where something is
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
        """Refuse a folder whose name begins with a dot, and what is in one, from the root on."""
        if self._enters_hidden:
            return
        names = os.path.relpath(folder, os.path.dirname(root)).split(os.sep)
        if any(name != "." and name.startswith(".") for name in names):
            raise PathRefusedError("hidden")

    def folder(self, parts: Parts) -> OpenFolder:
        return self.open_folder(parts or [b"."])

    def names(self, parts: Parts, most: int) -> list[str]:
        """Return the first names in a folder."""
        with self.open_folder(parts, LIST) as folder, path_errors():
            return [path_shown(os.fsencode(entry.name)) for entry in sorted_entries(folder, most)]


class Roots:
    """The allowed folders, and all that can be done below them."""

    def __init__(
        self,
        folders: Iterable[str],
        private: Iterable[str] = (),
        *,
        within: Sequence[str] | None = None,
        own: str | None = None,
        enters_hidden: bool = True,
    ) -> None:
        """`within` is where the folders may lie, if not anywhere; `own` a folder of ours that may be written to.

        Without `enters_hidden`, folders whose names begin with a dot are refused.
        """
        self._private = Private(private, own)
        self._roots = [Root(folder, self._private, within, enters_hidden) for folder in folders]

    @property
    def paths(self) -> list[str]:
        return [path_shown(os.fsencode(root.path)) for root in self._roots]

    def read_file(self, path: str, most: int) -> Content:
        """Return the first `most` bytes of a regular file."""
        file = self._open(path, Root.open)
        try:
            with path_errors():
                status = os.fstat(file)
                if not stat.S_ISREG(status.st_mode):
                    raise PathRefusedError("is_a_directory" if stat.S_ISDIR(status.st_mode) else "not_a_file")
                chunks: list[bytes] = []
                while most > 0 and (chunk := os.read(file, min(most, CHUNK))):
                    chunks.append(chunk)
                    most -= len(chunk)
                return Content(b"".join(chunks), status.st_size)
        finally:
            os.close(file)

    def write_file(self, path: str, data: bytes) -> None:
        """Make a file of these bytes, or put them in the place of what a file held: all at once, or not at all."""
        with self._folder_of(path) as (folder, name):
            replace(folder, name, data, self._private)

    def append(self, path: str, data: bytes, on_new_line: bool = False, check: Check | None = None) -> None:
        """Add to the end of a file, all or nothing, and in one piece whoever else is adding. Makes the file if need be.

        With `on_new_line` a line break goes before it, where the file ends in the middle of a line. `check` may refuse
        the open file by what it holds.
        """
        with self._folder_of(path) as (folder, name):
            append(folder, name, data, self._private, on_new_line, check)

    def make_folders(self, path: str) -> None:
        """Make what is missing of the folders on the way to a file, in the first root that it could be in."""
        root, parts = next(self._candidates(path), (None, []))
        if root is None:
            raise PathRefusedError("denied")
        for end in range(1, len(parts)):
            try:
                root.open_folder(parts[:end]).close()
            except PathRefusedError as refused:
                if refused.reason != "not_found":
                    raise
                with root.folder(parts[: end - 1]) as folder:
                    make_folder(folder, parts[end - 1], self._private)

    def list_folder(self, path: str, depth: int, most: int) -> list[FolderEntry]:
        """Return at most `most` of what is in a folder, `depth` levels deep, each folder's names sorted."""
        entries: list[FolderEntry] = []
        with self._open(path, lambda root, parts: root.open_folder(parts, LIST)) as folder, path_errors():
            list_into(entries, folder, "", depth, most, self._private)
        return entries

    def locate_missing(self, path: str, most: int) -> MissingPath | None:
        """Return where a path that was not found ends to exist, as seen from the first root it could be in."""
        root, parts = next(self._candidates(path))
        start = [slashed(root.path)] if is_absolute(encoded(path)) else []
        for end in range(root.reach(parts), -1, -1):
            try:
                names = root.names(parts[:end] or [b"."], most)
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
        if missing:  # a path that leads through a closed folder must not tell what exists there
            for root, parts in self._candidates(path):
                self._private.refuse_text(resolved(root.text(parts)))
        raise missing or PathRefusedError("denied")

    @contextmanager
    def _folder_of(self, path: str) -> Iterator[tuple[OpenFolder, bytes]]:
        """Yield the open folder of a file to write, and its name. Where the file exists goes first."""
        root, parts = self._folder_to_write(path)
        with root.folder(parts[:-1]) as folder:
            yield folder, parts[-1]

    def _folder_to_write(self, path: str) -> tuple[Root, Parts]:
        missing: PathRefusedError | None = None
        places: list[tuple[Root, Parts]] = []
        for root, parts in self._candidates(path):
            if parts[-1] in (b".", b".."):
                raise PathRefusedError("is_a_directory")
            try:
                with root.folder(parts[:-1]) as folder:
                    if is_there(folder, parts[-1]):
                        return root, parts
                places.append((root, parts))
            except PathRefusedError as refused:
                _raise_unless_missing(refused)
                missing = missing or refused
        if places:
            return places[0]
        raise missing or PathRefusedError("denied")

    def _candidates(self, path: str) -> Iterator[tuple[Root, Parts]]:
        """Each root that the path could be in, with what is to open from there. The escapes' meaning goes first."""
        raw = encoded(path)
        for spelling in dict.fromkeys((path_meant(raw), raw)):
            for root in self._roots:
                parts = root.relative_parts(spelling) if is_absolute(spelling) else split(spelling)
                if parts is not None and stays_inside(parts):
                    yield root, parts


def _raise_unless_missing(refused: PathRefusedError) -> None:
    """Another root may have what this one has not. Whatever else was refused stays refused."""
    if refused.reason not in ("not_found", "root_missing", "root_outside"):
        raise refused


# Messages

MESSAGE_BY_REASON = {
    "bad_path": "{path} can't be a path: {detail}.",
    "busy": "{path} is being written by others, who did not let go of it in time. Try again.",
    "closed": "{path} is closed to tools, whatever the allowed folders are: keys and the system's own are kept there.",
    "denied": "{path} is outside of the folders that may be written to ({allowed}).",
    "hidden": "{path} is below a folder whose name begins with a dot, and nothing is written there.",
    "is_a_directory": "{path} is a directory, not a file.",
    "is_a_link": "{path} is a symbolic link, and those are not written through. Use the path of the file itself.",
    "link_loop": "{path} leads through too many symbolic links, or round in a circle (ELOOP).",
    "name_too_long": "{path} is too long for a path, or has a name that is (ENAMETOOLONG).",
    "no_permission": "{path} can't be written: the permissions don't let this process do it.",
    "not_a_directory": "{path} goes on below a file.",
    "not_a_file": "{path} is not a regular file: devices, pipes and sockets can't be written.",
    "not_found": "{path} can't be made, as its folder does not exist.",
    "other_content": "{path} holds other content than topic messages. Use a file that does not exist yet.",
    "private": "{path} is OneTool's own and can't be written by tools.",
    "root_missing": "The allowed folder {detail!r} can't be opened.",
    "root_outside": "The folder {detail!r} lies outside of the project whose config allows it.",
    "state": "{path} is closed to tools: OneTool's state lies there, as the marker .onetool-state says.",
}
OTHER_MESSAGE = "{path} could not be written: {detail}."


def why_not_written(refused: PathRefusedError, path: str, allowed: Sequence[str] = ()) -> str:
    """`allowed` are the folders to name when the path is outside of them, as Roots.paths tells."""
    return MESSAGE_BY_REASON.get(refused.reason, OTHER_MESSAGE).format(
        path=repr(path if len(path) <= 300 else f"{path[:300]}…"),
        detail=refused.detail or "the system gives an error",
        allowed=", ".join(map(repr, allowed)) or "none",
    )


__all__ = ["Content", "FolderEntry", "MissingPath", "PathRefusedError", "Roots", "why_not_written"]
