"""The folder of bundles on disk: naming, scanning and reading files.

Paths are strings relative to the folder, with slashes. Names begin with the slug. A name that is too long, or that some
file system could confuse with another (case, Unicode normalization), is cut and gets a hash after a `~`, which slugs
and versions can't contain. Only regular files of limited size are read; links and other files are ignored.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path

import msgspec

from onetool.core.errors import Mistake
from onetool.core.os_files import NO_WAIT, OpenFolder, open_no_link
from onetool.sources.bundles.errors import InvalidError, UnavailableError

BUNDLE = "bundle.json"
TOOLS = "tools"
OVERLAY = "builtin.json"
STATE = ".state"
CHANGES = f"{STATE}/changes.log"
USAGE = f"{STATE}/state.db"
KEY = f"{STATE}/page.key"
DRAFT = ".onetool-"  # the prefix of unfinished files

MAX_FILE_NAME = 120  # bytes of a name, without hash and suffix; file systems allow 255 in all
_PLAIN = re.compile(r"[a-z0-9.@-]+")


def bundle_folders(slug: str, id: str) -> tuple[str, str]:
    """Return the usual folder name for a new bundle, and an alternative if that is taken."""
    readable = cut(slug, MAX_FILE_NAME)
    return f"{readable}-{id[-12:]}", f"{readable}-{id}"


def bundle_file(folder: str) -> str:
    return f"{folder}/{BUNDLE}"


def tools_of(folder: str) -> str:
    return f"{folder}/{TOOLS}"


def tool_file(folder: str, slug: str, version: str) -> str:
    return f"{folder}/{TOOLS}/{tool_name(slug, version)}"


def tool_name(slug: str, version: str) -> str:
    name = f"{slug}@{version}"
    if len(name) > MAX_FILE_NAME or not _PLAIN.fullmatch(name):
        name = f"{cut(name, MAX_FILE_NAME)}~{sha256(name.encode()).hexdigest()[:16]}"
    return f"{name}.json"


def is_tool(path: str) -> bool:
    return path.count("/") == 2


def folder_of(path: str) -> str:
    """Return the first folder of a path; empty for a file at the top."""
    folder, slash, _ = path.partition("/")
    return folder if slash else ""


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "."


def cut(text: str, limit: int) -> str:
    """Return at most `limit` bytes of a string, without splitting a character."""
    return text.encode()[:limit].decode(errors="ignore")


class Stamp(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The mtime, size and inode of a file when it was read."""

    mtime_ns: int
    size: int
    inode: int


# Reading one file

MAX_FILE_BYTES = 8 * 1024 * 1024
MAX_TRIES = 5  # for a file that is written while we read

READ = os.O_RDONLY | NO_WAIT


def read_bytes(path: str | os.PathLike[str], root: OpenFolder | None = None) -> tuple[bytes, Stamp]:
    """Read the bytes of a file and a stamp that matches them. Raises InvalidError for files that can't belong to a
    bundle, and OSError.
    """
    file = open_no_link(path, READ) if root is None else root.open(os.fspath(path), READ)
    try:
        for _ in range(MAX_TRIES):
            before = os.fstat(file)
            check_regular(before)
            data = _read_all(file, before.st_size)
            if (stamp := stamp_of(before)) == stamp_of(os.fstat(file)):
                return data, stamp
            os.lseek(file, 0, os.SEEK_SET)
    finally:
        os.close(file)
    raise InvalidError("it is being written to")


def check_regular(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise InvalidError("it is a symbolic link, which is not followed: put the file itself here")
    if not stat.S_ISREG(status.st_mode):
        raise InvalidError("it is not a regular file")
    if status.st_size > MAX_FILE_BYTES:
        raise InvalidError(f"it has {status.st_size:,} bytes; the limit is {MAX_FILE_BYTES:,}")


def stamp_of(status: os.stat_result) -> Stamp:
    return Stamp(status.st_mtime_ns, status.st_size, status.st_ino)


def _read_all(file: int, expected: int) -> bytes:
    """Read all bytes, in one step if the size is correct, as it nearly always is."""
    part = os.read(file, expected + 1)
    if len(part) == expected:
        return part
    parts: list[bytes] = []
    size = 0
    while part:
        size += len(part)
        if size > MAX_FILE_BYTES:
            raise InvalidError(f"it has more than {MAX_FILE_BYTES:,} bytes")
        parts.append(part)
        part = os.read(file, 256 * 1024)
    return b"".join(parts)


# Scanning the folder, without reading files

NO_STAMP = Stamp(0, 0, 0)  # of a missing or unreadable file
# After one of these errors, missing files don't count as removed.
TEMPORARY_ERRORS = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EINTR)
)

WRITABLE = 0o022  # by users other than the owner
_EUID = os.geteuid() if hasattr(os, "geteuid") else 0

Entry = os.DirEntry[str]
Foreign = Callable[[Path], Mistake | None]
"""Return why the owner or the permissions of a path are untrusted, or None."""


def anybody(_: Path) -> None:
    """Accept files of any owner."""


class FolderScan:
    """The stamps of all files in the folder, or of `paths` only.

    `is_whole` is false after a temporary error; then no file counts as removed. Raises UnavailableError for `foreign`
    files, because a user who can write a file can change its tools.
    """

    def __init__(self, folder: Path, foreign: Foreign = anybody, paths: Collection[str] | None = None) -> None:
        self.files: dict[str, dict[str, Stamp]] = {}  # by folder and path
        self.drafts: list[str] = []
        self.is_whole = True
        self._root = str(folder)
        self._foreign = foreign
        self._fine: set[tuple[str, int, int, int]] = set()
        if paths is not None:
            for path in paths:
                self._add(path, partial(os.stat, f"{self._root}/{path}"))
            return
        self._check_state()
        for entry in self._entries(""):
            if entry.name == OVERLAY or (entry.is_symlink() and os.path.isdir(entry.path)):
                self._add(entry.name, entry.stat)  # links are refused when read
            elif entry.is_dir(follow_symlinks=False):
                self._check_folder("", entry)
                self._scan_bundle(entry.name)

    def _scan_bundle(self, folder: str) -> None:
        file = f"{folder}/{BUNDLE}"
        for entry in self._entries(folder):
            if entry.name == BUNDLE or (entry.name == TOOLS and entry.is_symlink()):
                self._add(f"{folder}/{entry.name}", entry.stat)  # links are refused when read
            elif entry.name == TOOLS:
                self._check_folder(folder, entry)
                for tool in self._entries(f"{folder}/{TOOLS}"):
                    if tool.name.endswith(".json"):
                        self._add(f"{folder}/{TOOLS}/{tool.name}", tool.stat)
        files = self.files.get(folder, {})
        if file not in files and any(map(is_tool, files)):
            files[file] = NO_STAMP  # tools without a bundle file, which is reported

    def _add(self, path: str, stat: Callable[..., os.stat_result]) -> None:
        try:
            status = stat(follow_symlinks=False)
        except OSError as error:
            self._skip(path, error)
            return
        if status.st_uid != _EUID or status.st_mode & WRITABLE:
            self._check(*os.path.split(path), status)
        self.files.setdefault(folder_of(path), {})[path] = stamp_of(status)

    def _check_state(self) -> None:
        try:
            with os.scandir(f"{self._root}/{STATE}") as entries:
                children = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
            self._check("", STATE, os.stat(f"{self._root}/{STATE}"))
        except OSError:
            return
        for name, status in children:
            self._check(STATE, name, status)

    def _check_folder(self, above: str, entry: Entry) -> None:
        with suppress(OSError):  # removed concurrently
            self._check(above, entry.name, entry.stat(follow_symlinks=False))

    def _check(self, folder: str, name: str, status: os.stat_result) -> None:
        """Check a file only if its owner or mode differs from the other files in its folder."""
        group = (folder, status.st_uid, status.st_gid, status.st_mode & WRITABLE)
        if (status.st_uid != _EUID or status.st_mode & WRITABLE) and group not in self._fine:
            mistake = self._foreign(Path(self._root, folder, name))
            if mistake is not None:
                raise UnavailableError(str(mistake))
            self._fine.add(group)

    def _entries(self, folder: str) -> list[Entry]:
        try:
            with os.scandir(f"{self._root}/{folder}" if folder else self._root) as entries:
                children = list(entries)
        except OSError as error:
            self._skip(folder, error)
            return []
        ours = [entry for entry in children if not entry.name.startswith(".")]
        if len(ours) != len(children):
            prefix = f"{folder}/" if folder else ""
            self.drafts += [f"{prefix}{entry.name}" for entry in children if entry.name.startswith(DRAFT)]
        return ours

    def _skip(self, path: str, error: OSError) -> None:
        """Ignore a vanished file. Other errors are reported when the file is read."""
        if error.errno in TEMPORARY_ERRORS or not path:
            self.is_whole = False
        elif not isinstance(error, FileNotFoundError):
            self.files.setdefault(folder_of(path), {})[path] = NO_STAMP
