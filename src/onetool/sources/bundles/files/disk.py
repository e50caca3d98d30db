"""The folder of bundles on disk: how files are named, which ones are there, and how a file is read.

Paths are texts relative to the folder, with slashes. Names begin with the slug. One that is long, or that some file
system could take for another (case, Unicode normalization), is cut and gets a hash behind a `~`, which no slug and no
version can have. A file is read if it is regular, no link, and not too large; other files in the folder are left alone.
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
CONTENTS = f"{STATE}/bundles.cache"
CHANGES = f"{STATE}/changes.log"
USAGE = f"{STATE}/state.db"
KEY = f"{STATE}/page.key"
DRAFT = ".onetool-"  # how names of what is not finished begin

MAX_FILE_NAME = 120  # bytes of a name, without its hash and its end; file systems take 255 in all
_PLAIN = re.compile(r"[a-z0-9.@-]+")


def bundle_folders(slug: str, id: str) -> tuple[str, str]:
    """Names for a new bundle: the usual one, and one for when that is taken."""
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


def new_draft() -> str:
    return f"{DRAFT}{os.urandom(8).hex()}"


def is_tool(path: str) -> bool:
    return path.count("/") == 2


def folder_of(path: str) -> str:
    """Return the first folder of a path; empty for a file at the top."""
    folder, slash, _ = path.partition("/")
    return folder if slash else ""


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "."


def cut(text: str, most: int) -> str:
    """So many bytes of it at the most, between two characters."""
    return text.encode()[:most].decode(errors="ignore")


class Stamp(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a file looked like when it was read."""

    mtime_ns: int
    size: int
    inode: int


# Reading one file


MAX_FILE_BYTES = 8 * 1024 * 1024
MAX_TRIES = 5  # for a file that is written to while we read

READ = os.O_RDONLY | NO_WAIT


def read_bytes(path: str | os.PathLike[str], root: OpenFolder | None = None) -> tuple[bytes, Stamp]:
    """Read the bytes and the stamp of a file, consistent with each other. Raises InvalidError for what can't be one of
    ours, and OSError.
    """
    file = open_no_link(path, READ) if root is None else root.open(os.fspath(path), READ)
    try:
        for _ in range(MAX_TRIES):
            before = os.fstat(file)
            check_regular(before)
            data = _bytes(file, before.st_size)
            if (stamp := stamp_of(before)) == stamp_of(os.fstat(file)):
                return data, stamp
            os.lseek(file, 0, os.SEEK_SET)
    finally:
        os.close(file)
    raise InvalidError("it is being written to")


def check_regular(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise InvalidError("it is a link, and links are not followed: put the file itself here")
    if not stat.S_ISREG(status.st_mode):
        raise InvalidError("it is not a regular file")
    if status.st_size > MAX_FILE_BYTES:
        raise InvalidError(f"it has {status.st_size:,} bytes; {MAX_FILE_BYTES:,} is the most")


def stamp_of(status: os.stat_result) -> Stamp:
    return Stamp(status.st_mtime_ns, status.st_size, status.st_ino)


def _bytes(file: int, said: int) -> bytes:
    """Whatever its size is said to be. Where it is that, as of nearly all, one step reads it."""
    part = os.read(file, said + 1)
    if len(part) == said:
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


NO_STAMP = Stamp(0, 0, 0)  # of what should be there, or can't be looked at
# These say nothing of the files: a look that met one is not taken for "they are gone".
TEMPORARY_ERRORS = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EINTR)
)

WRITABLE = 0o022  # by others than its owner
_EUID = os.geteuid() if hasattr(os, "geteuid") else 0

Entry = os.DirEntry[str]
Foreign = Callable[[Path], Mistake | None]
"""What is wrong with the owner of something, or with who can write it; None if it counts."""


def anybody(_: Path) -> None:
    """Accepts files of any owner."""


class FolderScan:
    """The stamps of all files of the folder, or of these `paths` alone.

    `is_whole` is false when something could not be looked at for a while; then nothing is said to be gone. Raises
    UnavailableError for what is `foreign`: callers of a tool trust everybody who can write it.
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
                self._add(entry.name, entry.stat)  # a link is refused when it is read
            elif entry.is_dir(follow_symlinks=False):
                self._check_folder("", entry)
                self._bundle(entry.name)

    def _bundle(self, folder: str) -> None:
        file = f"{folder}/{BUNDLE}"
        for entry in self._entries(folder):
            if entry.name == BUNDLE or (entry.name == TOOLS and entry.is_symlink()):
                self._add(f"{folder}/{entry.name}", entry.stat)  # a link is refused when it is read
            elif entry.name == TOOLS:
                self._check_folder(folder, entry)
                for tool in self._entries(f"{folder}/{TOOLS}"):
                    if tool.name.endswith(".json"):
                        self._add(f"{folder}/{TOOLS}/{tool.name}", tool.stat)
        found = self.files.get(folder, {})
        if file not in found and any(map(is_tool, found)):
            found[file] = NO_STAMP  # tools without a bundle: that it is missing is told

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
                found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
            self._check("", STATE, os.stat(f"{self._root}/{STATE}"))
        except OSError:
            return
        for name, status in found:
            self._check(STATE, name, status)

    def _check_folder(self, above: str, entry: Entry) -> None:
        with suppress(OSError):  # it has gone meanwhile
            self._check(above, entry.name, entry.stat(follow_symlinks=False))

    def _check(self, folder: str, name: str, status: os.stat_result) -> None:
        """Ask only about files unlike the others of their folder: most are ours."""
        like = (folder, status.st_uid, status.st_gid, status.st_mode & WRITABLE)
        if (status.st_uid != _EUID or status.st_mode & WRITABLE) and like not in self._fine:
            mistake = self._foreign(Path(self._root, folder, name))
            if mistake is not None:
                raise UnavailableError(str(mistake))
            self._fine.add(like)

    def _entries(self, folder: str) -> list[Entry]:
        try:
            with os.scandir(f"{self._root}/{folder}" if folder else self._root) as entries:
                found = list(entries)
        except OSError as error:
            self._skip(folder, error)
            return []
        ours = [entry for entry in found if not entry.name.startswith(".")]
        if len(ours) != len(found):
            above = f"{folder}/" if folder else ""
            self.drafts += [f"{above}{entry.name}" for entry in found if entry.name.startswith(DRAFT)]
        return ours

    def _skip(self, path: str, error: OSError) -> None:
        """Ignore a vanished file; other errors are reported when it is read."""
        if error.errno in TEMPORARY_ERRORS or not path:
            self.is_whole = False
        elif not isinstance(error, FileNotFoundError):
            self.files.setdefault(folder_of(path), {})[path] = NO_STAMP
