"""The allowed folders, and what can be done below them."""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from onetool.services.confined.listing import Entry, list_into, sorted_entries
from onetool.services.confined.opening import ENTER, LIST, READ, open_beneath
from onetool.services.confined.paths import Parts, encoded, meant, names_of, shown, split, stays_inside
from onetool.services.confined.private import Private, is_below, place_of, resolved
from onetool.services.confined.refusals import Refused, refusals
from onetool.services.confined.writing import append, is_there, make_folder, replace

CHUNK = 1 << 20


class Content(NamedTuple):
    """The beginning of a file, and the size it claimed when it was opened."""

    data: bytes
    size: int


class Place(NamedTuple):
    """Where a path ends to exist: a folder that is there, the name that is not, and names that are."""

    folder: str
    missing: str
    names: list[str]


class Root:
    """One allowed folder. What is private in it is refused whenever something is opened."""

    def __init__(self, folder: str, private: Private, within: Sequence[str] | None) -> None:
        with refusals("root_missing", about=folder):
            self.path = os.path.abspath(folder)
            real = os.path.realpath(self.path)
        self._private, self._within = private, within
        self._spellings = [names_of(os.fsencode(self.path)), names_of(os.fsencode(real))]

    def rest(self, absolute: bytes) -> Parts | None:
        """What is left of an absolute path below this root; None when it does not begin with it."""
        parts = split(absolute)
        for spelling in self._spellings:
            if parts[: len(spelling)] == spelling:
                return parts[len(spelling) :] or [b"."]
        return None

    def open(self, parts: Parts, flags: int) -> int:
        path = self.text(parts)
        self._private.refuse_text(path)
        with refusals("root_missing", about=self.path):
            top = os.open(self.path, ENTER)
        try:
            with refusals():
                self._refuse_outside(top)
                file = open_beneath(self.rest, top, parts, flags)
        finally:
            os.close(top)
        try:
            with refusals():
                self._private.refuse_open(file, path)
        except BaseException:
            os.close(file)
            raise
        return file

    def reach(self, parts: Parts) -> int:
        """How many of the names, short of the last, may be folders that are there: of thousands not each is tried."""
        if b".." in parts:  # which leads back to where something is
            return len(parts) - 1
        for end in range(1, len(parts)):
            try:
                os.close(self.open(parts[:end], ENTER))
            except Refused:
                return end - 1
        return len(parts) - 1

    def text(self, parts: Parts) -> str:
        return os.path.join(self.path, os.fsdecode(b"/".join(parts)))

    def _refuse_outside(self, top: int) -> None:
        """A folder that is a link may lead elsewhere tomorrow, so it is looked at whenever it is opened."""
        if self._within is None:
            return
        here = place_of(top) or os.path.realpath(self.path)
        if not any(is_below(here, os.path.realpath(folder)) for folder in self._within):
            raise Refused("root_outside", self.path)

    @contextmanager
    def folder(self, parts: Parts) -> Iterator[int]:
        folder = self.open(parts or [b"."], ENTER)
        try:
            yield folder
        finally:
            os.close(folder)

    def names(self, parts: Parts, most: int) -> list[str]:
        """The first names in a folder."""
        folder = self.open(parts, LIST)
        try:
            with refusals():
                return [shown(os.fsencode(entry.name)) for entry in sorted_entries(folder, most)]
        finally:
            os.close(folder)


class Roots:
    """The allowed folders, and all that can be done below them."""

    def __init__(
        self,
        folders: Iterable[str],
        private: Iterable[str] = (),
        *,
        within: Sequence[str] | None = None,
        own: str | None = None,
    ) -> None:
        """`within` is where the folders may lie, if not anywhere; `own` a folder of ours that may be written to."""
        self._private = Private(private, own)
        self._roots = [Root(folder, self._private, within) for folder in folders]

    @property
    def paths(self) -> list[str]:
        return [shown(os.fsencode(root.path)) for root in self._roots]

    def read_file(self, path: str, most: int) -> Content:
        """The first `most` bytes of a regular file."""
        file = self._open(path, READ)
        try:
            with refusals():
                status = os.fstat(file)
                if not stat.S_ISREG(status.st_mode):
                    raise Refused("is_a_directory" if stat.S_ISDIR(status.st_mode) else "not_a_file")
                return Content(_read_at_most(file, most), status.st_size)
        finally:
            os.close(file)

    def write_file(self, path: str, data: bytes) -> None:
        """Make a file of these bytes, or put them in the place of what a file held: all at once, or not at all."""
        with self._folder_of(path) as (folder, name):
            replace(folder, name, data, self._private)

    def append(self, path: str, data: bytes, on_new_line: bool = False) -> None:
        """Add to the end of a file, all or nothing, and in one piece whoever else is adding. Makes the file if need be.

        With `on_new_line` a line break goes before it, where the file ends in the middle of a line.
        """
        with self._folder_of(path) as (folder, name):
            append(folder, name, data, self._private, on_new_line)

    def make_folders(self, path: str) -> None:
        """Make what is missing of the folders on the way to a file, in the first root that it could be in."""
        root, parts = next(self._candidates(path), (None, []))
        if root is None:
            raise Refused("denied")
        for end in range(1, len(parts)):
            try:
                os.close(root.open(parts[:end], ENTER))
            except Refused as refused:
                if refused.reason != "not_found":
                    raise
                with root.folder(parts[: end - 1]) as folder:
                    make_folder(folder, parts[end - 1], self._private)

    def list_folder(self, path: str, depth: int, most: int) -> list[Entry]:
        """At most `most` of what is in a folder, `depth` levels deep, each folder's names sorted."""
        entries: list[Entry] = []
        folder = self._open(path, LIST)
        try:
            with refusals():
                list_into(entries, folder, "", depth, most, self._private)
        finally:
            os.close(folder)
        return entries

    def place(self, path: str, most: int) -> Place | None:
        """Where a path that was not found ends to exist, as seen from the first root it could be in."""
        root, parts = next(self._candidates(path))
        start = [os.fsencode(root.path)] if path.startswith("/") else []
        for end in range(root.reach(parts), -1, -1):
            try:
                names = root.names(parts[:end] or [b"."], most)
            except Refused:
                continue
            return Place(shown(b"/".join(start + parts[:end])) or ".", shown(parts[end]), names)
        return None

    def _open(self, path: str, flags: int) -> int:
        missing: Refused | None = None
        for root, parts in self._candidates(path):
            try:
                return root.open(parts, flags)
            except Refused as refused:
                _raise_unless_missing(refused)
                missing = missing or refused
        if missing:
            self._refuse_on_the_way(path)
        raise missing or Refused("denied")

    def _refuse_on_the_way(self, path: str) -> None:
        """Of what is closed nobody learns whether it is there: also not by a link that leads into it."""
        for root, parts in self._candidates(path):
            self._private.refuse_text(resolved(root.text(parts)))

    @contextmanager
    def _folder_of(self, path: str) -> Iterator[tuple[int, bytes]]:
        """The folder of a file to write, open, and its name there. Where the file exists goes before where it could."""
        root, parts = self._place_to_write(path)
        with root.folder(parts[:-1]) as folder:
            yield folder, parts[-1]

    def _place_to_write(self, path: str) -> tuple[Root, Parts]:
        missing: Refused | None = None
        places: list[tuple[Root, Parts]] = []
        for root, parts in self._candidates(path):
            if parts[-1] in (b".", b".."):
                raise Refused("is_a_directory")
            try:
                with root.folder(parts[:-1]) as folder:
                    if is_there(folder, parts[-1]):
                        return root, parts
                places.append((root, parts))
            except Refused as refused:
                _raise_unless_missing(refused)
                missing = missing or refused
        if places:
            return places[0]
        raise missing or Refused("denied")

    def _candidates(self, path: str) -> Iterator[tuple[Root, Parts]]:
        """Each root that the path could be in, with what is to open from there. The escapes' meaning goes first."""
        raw = encoded(path)
        for spelling in dict.fromkeys((meant(raw), raw)):
            for root in self._roots:
                parts = root.rest(spelling) if spelling.startswith(b"/") else split(spelling)
                if parts is not None and stays_inside(parts):
                    yield root, parts


def _raise_unless_missing(refused: Refused) -> None:
    """Another root may have what this one has not. Whatever else was refused stays refused."""
    if refused.reason not in ("not_found", "root_missing", "root_outside"):
        raise refused


def _read_at_most(file: int, most: int) -> bytes:
    chunks: list[bytes] = []
    while most > 0 and (chunk := os.read(file, min(most, CHUNK))):
        chunks.append(chunk)
        most -= len(chunk)
    return b"".join(chunks)
