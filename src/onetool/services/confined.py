"""Reads files and lists folders, but only below allowed roots.

Whether a path stays below its root is never decided by comparing text and then opening the text: between the two
somebody could swap a folder for a link. Text is compared first only to refuse early, before anything is touched; what
counts is how the path is opened. Linux resolves it in one step (openat2 with RESOLVE_BENEATH). Where that is missing,
or refuses a link that may be harmless, a walk takes the path name by name, each relative to the open folder before it
and without following links; it reads a link's text itself and walks on from there.

The rules for a path:
- relative: taken from the first root in which it exists;
- absolute: must begin with a root, as it is configured or with its links resolved, and is then opened from that root;
- `..` may go back inside the root, never above it, neither as written nor after following links;
- a link may lead anywhere inside its own root, by a relative or an absolute text;
- nothing is expanded or decoded (`~`, `$HOME`, `%2e`, `file:`), but for the escapes of names that are not UTF-8.

Such names are shown with `\\xff` for each byte that is not UTF-8. It can be turned back: a name that holds the same
text literally is shown with its backslash as `\\x5c`. Only backslashes and bytes from 0x80 are ever escaped, so that
no escape can stand for a separator, a dot or a NUL.
"""

import errno
import heapq
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from typing import Literal, NamedTuple

LONGEST_PATH = 4095  # bytes; what Linux takes, held everywhere
MOST_LINKS = 40  # as in Linux: more is a loop
MOST_FOLDERS = 100  # that the walk holds open at once; a process may be allowed no more than 256 files
MOST_SCANNED = 1_000_000  # names looked at in one folder
CHUNK = 1 << 20

# O_PATH passes through folders that may be entered but not listed, as the kernel's own lookup does.
ENTER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Not to wait for a pipe's writer, not to become a terminal's session: whatever it is, it is refused only once open.
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

Parts = list[bytes]
Open = Callable[[int, bytes, int], int]
Kind = Literal["directory", "file", "symlink", "other"]


class Refused(Exception):  # noqa: N818  it is an answer more than an error
    """Why a path was not opened. `reason` is one of REASONS, or denied, is_a_directory, bad_path, root_missing."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


REASONS = {
    errno.ENOENT: "not_found",
    errno.EILSEQ: "not_found",  # file systems that know only UTF-8 names
    errno.ENOTDIR: "not_a_directory",
    errno.ELOOP: "link_loop",
    errno.ENAMETOOLONG: "name_too_long",
    errno.EACCES: "no_permission",
    errno.EPERM: "no_permission",
    errno.ENXIO: "not_a_file",  # a socket, or a device that isn't there
    errno.ENODEV: "not_a_file",
}


class Content(NamedTuple):
    """The beginning of a file, and the size it claimed when it was opened."""

    data: bytes
    size: int


class Entry(NamedTuple):
    """One thing in a folder. `path` is relative to the folder that was listed; `error` a reason, as in Refused."""

    path: str
    kind: Kind
    size: int | None = None
    error: str | None = None


class Place(NamedTuple):
    """Where a path ends to exist: a folder that is there, the name that is not, and names that are."""

    folder: str
    missing: str
    names: list[str]


class Root:
    """One allowed folder."""

    def __init__(self, folder: str) -> None:
        with _refusals("root_missing", about=folder):
            self.path = os.path.abspath(folder)
            real = os.path.realpath(self.path)
        self._spellings = [_names(os.fsencode(self.path)), _names(os.fsencode(real))]

    def rest(self, absolute: bytes) -> Parts | None:
        """What is left of an absolute path below this root; None when it does not begin with it."""
        parts = _split(absolute)
        for spelling in self._spellings:
            if parts[: len(spelling)] == spelling:
                return parts[len(spelling) :] or [b"."]
        return None

    def open(self, parts: Parts, flags: int) -> int:
        with _refusals("root_missing", about=self.path):
            top = os.open(self.path, ENTER)
        try:
            with _refusals():
                return _open_beneath(self, top, parts, flags)
        finally:
            os.close(top)

    def names(self, parts: Parts, most: int) -> list[str]:
        """The first names in a folder."""
        folder = self.open(parts, LIST)
        try:
            with _refusals():
                return [shown(os.fsencode(entry.name)) for entry in _sorted_entries(folder, most)]
        finally:
            os.close(folder)


class Roots:
    """The allowed folders, and all that can be done below them."""

    def __init__(self, folders: Iterable[str]) -> None:
        self._roots = [Root(folder) for folder in folders]

    @property
    def paths(self) -> list[str]:
        return [shown(os.fsencode(root.path)) for root in self._roots]

    def read_file(self, path: str, most: int) -> Content:
        """The first `most` bytes of a regular file."""
        file = self._open(path, READ)
        try:
            with _refusals():
                status = os.fstat(file)
                if not stat.S_ISREG(status.st_mode):
                    raise Refused("is_a_directory" if stat.S_ISDIR(status.st_mode) else "not_a_file")
                return Content(_read_at_most(file, most), status.st_size)
        finally:
            os.close(file)

    def list_folder(self, path: str, depth: int, most: int) -> list[Entry]:
        """At most `most` of what is in a folder, `depth` levels deep, each folder's names sorted."""
        entries: list[Entry] = []
        folder = self._open(path, LIST)
        try:
            with _refusals():
                _list_into(entries, folder, "", depth, most)
        finally:
            os.close(folder)
        return entries

    def place(self, path: str, most: int) -> Place | None:
        """Where a path that was not found ends to exist, as seen from the first root it could be in."""
        root, parts = next(self._candidates(path))
        start = [os.fsencode(root.path)] if path.startswith("/") else []
        for end in range(len(parts) - 1, -1, -1):
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
                if refused.reason not in ("not_found", "root_missing"):
                    raise
                missing = missing or refused
        raise missing or Refused("denied")

    def _candidates(self, path: str) -> Iterator[tuple[Root, Parts]]:
        """Each root that the path could be in, with what is to open from there. The escapes' meaning goes first."""
        raw = _encoded(path)
        for spelling in dict.fromkeys((_meant(raw), raw)):
            for root in self._roots:
                parts = root.rest(spelling) if spelling.startswith(b"/") else _split(spelling)
                if parts is not None and _stays_inside(parts):
                    yield root, parts


# Paths as text


def shown(name: bytes) -> str:
    """A file name as text that is valid everywhere, and that can be handed back."""
    return _ESCAPE.sub(rb"\\x5cx\1", name).decode("utf-8", "backslashreplace")


def _meant(path: bytes) -> bytes:
    return _ESCAPE.sub(lambda escape: bytes.fromhex(escape[1].decode()), path)


_ESCAPE = re.compile(rb"\\x(5c|[89a-f][0-9a-f])")


def _encoded(path: str) -> bytes:
    try:
        raw = path.encode()
    except UnicodeEncodeError:
        raise Refused("bad_path", "it holds half of a surrogate pair, which is no character") from None
    if not raw:
        raise Refused("bad_path", "it is empty; '.' is the first allowed folder")
    if b"\0" in raw:
        raise Refused("bad_path", "it holds a NUL character")
    if len(raw) > LONGEST_PATH:
        raise Refused("name_too_long")
    return raw


def _names(path: bytes) -> Parts:
    return [part for part in path.split(b"/") if part not in (b"", b".")]


def _split(path: bytes) -> Parts:
    """The names to take one after the other. At the end of `a/` stands a `.`: then `a` must be a folder."""
    parts = _names(path)
    return parts if parts and not path.endswith((b"/", b"/.")) else [*parts, b"."]


def _stays_inside(parts: Parts) -> bool:
    """Whether the path stays inside as it is written. Tells nobody whether the folders on the way exist."""
    depth = 0
    for part in parts:
        depth += -1 if part == b".." else 1
        if depth < 0:
            return False
    return True


# Opening


def _open_beneath(root: Root, top: int, parts: Parts, flags: int) -> int:
    in_one_step = openat2()
    if in_one_step:
        try:
            return in_one_step(top, b"/".join(parts), flags)
        except OSError as error:
            # EXDEV is said of every absolute link, also of one that leads inside; the others of bad luck.
            if error.errno not in (errno.EXDEV, errno.EAGAIN, errno.EINTR):
                raise
    walk = _Walk(root, top)
    try:
        return walk.open(parts, flags)
    finally:
        walk.close()


@cache
def openat2() -> Open | None:
    """The system call, where this kernel has it and lets us use it."""
    if sys.platform != "linux":
        return None
    import ctypes  # costs some milliseconds, and only calls that read files need it

    class How(ctypes.Structure):
        _fields_ = [(name, ctypes.c_uint64) for name in ("flags", "mode", "resolve")]

    number, beneath, no_magic_links = 437, 0x08, 0x02  # the same on every architecture
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(How), ctypes.c_size_t]
    syscall.restype = ctypes.c_long

    def call(folder: int, path: bytes, flags: int) -> int:
        how = How(flags, 0, beneath | no_magic_links)
        opened = syscall(number, folder, path, ctypes.byref(how), ctypes.sizeof(how))
        if opened < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return opened

    return call if _works(call) else None


def _works(call: Open) -> bool:
    """An old kernel says ENOSYS, a container's filter ENOSYS or EPERM."""
    here = os.open("/", ENTER)
    try:
        os.close(call(here, b".", ENTER))
    except OSError:
        return False
    finally:
        os.close(here)
    return True


class _Walk:
    """The way from a root down to what a path means, link by link. It holds the folders of the way open.

    `..` goes back on that way and not to whatever is now the parent: a folder that is moved meanwhile leads nowhere
    else. A link of procfs is only its text here, so its magic does not work.
    """

    def __init__(self, root: Root, top: int) -> None:
        self._root = root
        self._folders = [top]
        self._links = 0

    def open(self, parts: Parts, flags: int) -> int:
        to_go = parts[::-1]
        while True:
            name = to_go.pop()
            if name == b"..":
                self._go_back()
                to_go = to_go or [b"."]
            elif (text := self._link(name)) is not None:
                to_go += self._follow(text)[::-1]
            elif to_go:
                self._enter(name)
            else:
                return os.open(name, flags | os.O_NOFOLLOW, dir_fd=self._folders[-1])

    def close(self) -> None:
        """Close what the walk opened; the top is its giver's."""
        while len(self._folders) > 1:
            os.close(self._folders.pop())

    def _enter(self, name: bytes) -> None:
        if name == b".":
            return
        if len(self._folders) > MOST_FOLDERS:
            raise Refused("name_too_long")
        self._folders.append(os.open(name, ENTER | os.O_NOFOLLOW, dir_fd=self._folders[-1]))

    def _go_back(self) -> None:
        if len(self._folders) == 1:
            raise Refused("denied")
        os.close(self._folders.pop())

    def _link(self, name: bytes) -> bytes | None:
        try:
            return os.readlink(name, dir_fd=self._folders[-1])
        except OSError as error:
            if error.errno == errno.EINVAL:  # there, but not a link
                return None
            raise

    def _follow(self, text: bytes) -> Parts:
        self._links += 1
        if self._links > MOST_LINKS:
            raise Refused("link_loop")
        if not text.startswith(b"/"):
            return _split(text)
        parts = self._root.rest(text)
        if parts is None:
            raise Refused("denied")
        self.close()
        return parts


@contextmanager
def _refusals(reason: str | None = None, about: str | None = None) -> Iterator[None]:
    """Turn whatever the system refuses into a Refused, with its own reason and words where none are given."""
    try:
        yield
    except OSError as error:
        raise Refused(reason or _reason(error), about or os.strerror(error.errno or 0)) from None


def _reason(error: OSError) -> str:
    return REASONS.get(error.errno or 0, "unreadable")


# Reading


def _read_at_most(file: int, most: int) -> bytes:
    chunks: list[bytes] = []
    while most > 0 and (chunk := os.read(file, min(most, CHUNK))):
        chunks.append(chunk)
        most -= len(chunk)
    return b"".join(chunks)


# Listing


def _list_into(entries: list[Entry], folder: int, prefix: str, depth: int, most: int) -> None:
    for found in _sorted_entries(folder, most - len(entries)):
        if len(entries) >= most:
            return
        entry = _described(found, prefix)
        if entry is not None and entry.kind == "directory":
            _list_folder_into(entries, entry, found.name, folder, depth - 1, most)
        elif entry is not None:
            entries.append(entry)


def _list_folder_into(entries: list[Entry], entry: Entry, name: str, parent: int, depth: int, most: int) -> None:
    """Add a folder, and what is in it if there is depth left. Opened in any case, to tell whether it can be."""
    at = len(entries)
    try:
        folder = os.open(name, LIST | os.O_NOFOLLOW, dir_fd=parent)
    except FileNotFoundError:
        return
    except OSError as error:
        entries.append(entry._replace(error=_reason(error)))
        return
    try:
        entries.append(entry)
        if depth > 0:
            _list_into(entries, folder, f"{entry.path}/", depth, most)
    except OSError as error:
        entries[at] = entry._replace(error=_reason(error))
    finally:
        os.close(folder)


def _sorted_entries(folder: int, most: int) -> "list[os.DirEntry[str]]":
    """The first `most` by name, without holding more than those."""
    with os.scandir(folder) as scan:
        return heapq.nsmallest(most, islice(scan, MOST_SCANNED), key=lambda entry: entry.name)


def _described(found: "os.DirEntry[str]", prefix: str) -> Entry | None:
    """What a folder's entry is; None when it has gone meanwhile."""
    path = prefix + shown(os.fsencode(found.name))
    try:
        kind = _kind(found)
        size = found.stat(follow_symlinks=False).st_size if kind == "file" else None
    except FileNotFoundError:
        return None
    except OSError as error:
        return Entry(path, "other", error=_reason(error))
    return Entry(path, kind, size)


def _kind(found: "os.DirEntry[str]") -> Kind:
    if found.is_symlink():
        return "symlink"
    if found.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if found.is_file(follow_symlinks=False) else "other"
