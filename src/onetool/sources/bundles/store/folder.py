"""The folder of bundles on disk: scanning, reading and writing its files.

Only regular files of limited size are read; links and other files are reported. There is one writer at a time among all
threads and processes: the lock is a flock on the folder itself, which the system releases when its holder ends. Changes
are durable when they return, and undone when they raise. `root` is the open folder, and paths are relative to it, so
that moving the folder doesn't matter. A new file is written under a name with a leading dot, synced, and then renamed:
readers see either the old or the new file. The next scan removes what killed processes have left.
"""

import errno
import os
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from onetool.core import flock, os_files
from onetool.core.errors import Mistake
from onetool.core.os_files import NO_WAIT, OpenFolder, open_no_link
from onetool.core.state_folders import is_marked, make_home, mark_folder
from onetool.sources.bundles.errors import ConflictError, InvalidError, UnavailableError
from onetool.sources.bundles.store.contents import Contents, FileRow, folder_in_the_way, read_row
from onetool.sources.bundles.store.paths import (
    BUNDLE,
    MAX_FILE_BYTES,
    OVERLAY,
    STATE,
    TOOLS,
    bundle_file,
    folder_of,
    is_tool,
    parent,
    tools_of,
)

DRAFT = ".onetool-"  # the prefix of unfinished files
READ = os.O_RDONLY | NO_WAIT
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
RACY_S = 2.0  # a file that was written just now may be written again with the same time
LOCK_TIMEOUT = 10.0  # seconds; a write holds the lock for some milliseconds
MAX_SYNCS = 16  # files that are written concurrently
# After one of these errors, missing files don't count as removed.
TEMPORARY_ERRORS = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EINTR)
)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)

WRITABLE = 0o022  # by users other than the owner
_EUID = os.geteuid()

Foreign = Callable[[Path], Mistake | None]
"""Return why the owner or the permissions of a path are untrusted, or None."""


def anybody(_: Path) -> None:
    """Accept files of any owner."""


def stamp_of(status: os.stat_result) -> int:
    return hash((status.st_mtime_ns, status.st_size, status.st_ino))


# Finding changes


class FolderChanges(NamedTuple):
    changed: dict[str, int]  # stamps by path
    gone: list[str]
    drafts: list[str]  # left by killed processes

    def __bool__(self) -> bool:
        return bool(self.changed or self.gone or self.drafts)

    def read(self, folder: Path) -> list[FileRow]:
        """Read the changed files."""
        rows = [_read(f"{folder}/{path}", path, stamp) for path, stamp in self.changed.items()]
        return [row for row in rows if row is not None]


def find_changes(
    folder: Path, known: Contents, foreign: Foreign = anybody, only: Collection[str] | None = None
) -> FolderChanges:
    """Compare the stamps of all files, or of those in `only` these folders, with the known contents.

    Raises UnavailableError for `foreign` files.
    """
    scan = _Scan(folder, foreign)
    scan.run(only)
    changed: dict[str, int] = {}
    for path, stamp in scan.files.items():
        old = known.file(path)
        if old is None or not stamp or old.stamp != stamp:
            changed[path] = stamp
    gone: list[str] = []
    if scan.is_whole:
        names = known.files if only is None else only
        unseen = [path for name in names for path in known.files.get(name, ()) if path not in scan.files]
        if unseen:  # look again, for a file that is just being replaced; a forged mirror may name what no scan finds
            again = _Scan(folder, foreign)
            again.run(only)
            gone = [path for path in unseen if path not in again.files] if again.is_whole else []
    return FolderChanges(changed, gone, scan.drafts)


class _Scan:
    """The stamps of files, without reading them; 0 for files that have to be read.

    `is_whole` is false after a temporary error; then no file counts as removed.
    """

    def __init__(self, folder: Path, foreign: Foreign) -> None:
        self.files: dict[str, int] = {}
        self.drafts: list[str] = []
        self.is_whole = True
        self._root = str(folder)
        self._foreign = foreign
        self._fine: set[tuple[str, int, int, int]] = set()

    def run(self, only: Collection[str] | None) -> None:
        if only is not None:
            for name in only:
                if name:
                    self._scan_bundle(name)
                else:
                    self._add(OVERLAY, lambda: os.lstat(f"{self._root}/{OVERLAY}"))
            return
        self._check_state()
        for entry in self._entries(""):
            if entry.name == OVERLAY or (entry.is_symlink() and os.path.isdir(entry.path)):
                self._add(entry.name, partial(entry.stat, follow_symlinks=False))  # links are refused when read
            elif entry.is_dir(follow_symlinks=False):
                self._check_folder("", entry)
                self._scan_bundle(entry.name)

    def _scan_bundle(self, folder: str) -> None:
        for entry in self._entries(folder):
            if entry.name == BUNDLE or (entry.name == TOOLS and entry.is_symlink()):
                self._add(f"{folder}/{entry.name}", partial(entry.stat, follow_symlinks=False))
            elif entry.name == TOOLS:
                self._check_folder(folder, entry)
                for tool in self._entries(tools_of(folder)):
                    if tool.name.endswith(".json"):
                        self._add(f"{folder}/{TOOLS}/{tool.name}", partial(tool.stat, follow_symlinks=False))

    def _add(self, path: str, lstat: Callable[[], os.stat_result]) -> None:
        try:
            status = lstat()
        except OSError as error:
            self._skip(path, error)
            return
        if status.st_uid != _EUID or status.st_mode & WRITABLE:
            self._check(*os.path.split(path), status)
        self.files[path] = stamp_of(status)

    def _check_state(self) -> None:
        try:
            with os.scandir(f"{self._root}/{STATE}") as entries:
                children = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
            self._check("", STATE, os.stat(f"{self._root}/{STATE}"))
        except OSError:
            return
        for name, status in children:
            self._check(STATE, name, status)

    def _check_folder(self, above: str, entry: "os.DirEntry[str]") -> None:
        with suppress(OSError):  # removed concurrently
            self._check(above, entry.name, entry.stat(follow_symlinks=False))

    def _check(self, folder: str, name: str, status: os.stat_result) -> None:
        """Raise UnavailableError for a foreign file: a user who can write a file can change its tools.

        A file is checked only if its owner or mode differs from the other files in its folder.
        """
        group = (folder, status.st_uid, status.st_gid, status.st_mode & WRITABLE)
        if (status.st_uid != _EUID or status.st_mode & WRITABLE) and group not in self._fine:
            mistake = self._foreign(Path(self._root, folder, name))
            if mistake is not None:
                raise UnavailableError(str(mistake))
            self._fine.add(group)

    def _entries(self, folder: str) -> "list[os.DirEntry[str]]":
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
        if error.errno in TEMPORARY_ERRORS or (not path and not isinstance(error, FileNotFoundError)):
            self.is_whole = False
        elif path and not isinstance(error, FileNotFoundError):
            self.files[path] = 0


# Reading one file


def _read(file: str, path: str, seen: int) -> FileRow | None:
    """Read a file. Return None if it vanished or is temporarily unreadable: the next scan handles it."""
    try:
        data, status = read_bytes(file)
    except InvalidError as error:
        return FileRow(path, b"", seen, str(error))
    except OSError as error:
        if error.errno in TEMPORARY_ERRORS or isinstance(error, FileNotFoundError):
            return None
        if error.errno == errno.ELOOP:
            return FileRow(path, b"", seen, "it is a symbolic link, which is not followed: put the file itself here")
        return FileRow(path, b"", seen, f"it can't be read: {os.strerror(error.errno or 0)}")
    is_racy = abs(time.time() - status.st_mtime) < RACY_S
    return read_row(path, data, status.st_mtime_ns, 0 if is_racy else stamp_of(status))


def read_bytes(file: str) -> tuple[bytes, os.stat_result]:
    """Read a file and its status before. Raises InvalidError for files that can't belong to a bundle, and OSError."""
    handle = open_no_link(file, READ)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidError("it is not a regular file")
        if status.st_size > MAX_FILE_BYTES:
            raise InvalidError(f"it has {status.st_size:,} bytes; the limit is {MAX_FILE_BYTES:,}")
        data = os.read(handle, status.st_size + 1)
        while len(data) != status.st_size:  # it is being written to, or the system reads less at once
            part = os.read(handle, MAX_FILE_BYTES + 1 - len(data))
            if not part:
                break
            data += part
            if len(data) > MAX_FILE_BYTES:
                raise InvalidError(f"it has more than {MAX_FILE_BYTES:,} bytes")
        return data, status
    finally:
        os.close(handle)


# The lock


class FolderLock:
    """The lock of a folder. `held()` gives the open folder. Raises UnavailableError and OSError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mine = Lock()  # among the threads of this process

    @contextmanager
    def held(self, seconds: float = LOCK_TIMEOUT) -> Iterator[OpenFolder]:
        deadline = time.monotonic() + seconds
        if not self._mine.acquire(timeout=seconds):
            raise UnavailableError(self._busy(seconds))
        try:
            root = flock.take_path(self._folder, OpenFolder.at, deadline - time.monotonic())
            if root is None:
                raise UnavailableError(self._busy(seconds))
            try:
                yield root
            finally:
                flock.give_back(root)
        finally:
            self._mine.release()

    def _busy(self, seconds: float) -> str:
        holder = flock.holder(self._folder) or flock.UNKNOWN
        return f"{self._folder} has been locked by {holder} for more than {seconds:g} s; try again later"


def make_state(folder: Path) -> Path | None:
    """Return the state folder, or None if the folder is missing or read-only."""
    state = folder / STATE
    if os.path.islink(state):
        return None  # a link would store our files elsewhere
    try:
        if not is_marked(state):
            with OpenFolder.at(folder) as root:
                if folder.name == "bundles":
                    make_home(folder.parent)
                _ensure_folder(root, STATE)
                with root.folder(STATE) as opened:
                    mark_folder(opened)
        return state if os.access(state, os.W_OK | os.X_OK) else None
    except OSError:
        return None


# Writing


def write_files(root: OpenFolder, files: Mapping[str, bytes | None]) -> dict[str, int]:
    """Create, replace and remove (None) files, and return the stamps of the written ones.

    A new bundle appears with all of its files at once. Raises ConflictError and OSError; then nothing has changed.
    """
    texts = {path: text for path, text in files.items() if text is not None}
    removed = [path for path, text in files.items() if text is None]
    for path in files:
        if path == bundle_file(folder_of(path)):
            if path in removed:
                _remove_folder(root, folder_of(path))
                return {}
            if not _exists(root, path):
                return _create_folder(root, folder_of(path), texts)
    moved = (removed[0], *texts) if len(texts) == len(removed) == 1 else None
    if moved and _exists(root, moved[1]):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), moved[1])
    drafts = {path: _beside(path) for path in texts}
    with ExitStack() as leftovers, ExitStack() as undo:
        for draft in drafts.values():
            leftovers.callback(remove_quietly, root, draft)
        tools = next((parent(path) for path in texts if is_tool(path)), None)
        if tools is not None and _ensure_folder(root, tools):
            undo.callback(remove_quietly, root, tools)
        stamps = _write_all(root, [(drafts[path], text) for path, text in texts.items()])
        for path, draft in drafts.items():
            place, before = moved[0] if moved else path, _beside(path)
            if _exists(root, place):
                leftovers.callback(remove_quietly, root, before)
                if _link(root, place, before):
                    undo.callback(_rename_quietly, root, before, place)
                root.rename(draft, place)
            else:
                if not _link(root, draft, place):
                    root.rename(draft, place)
                undo.callback(remove_quietly, root, place)
        for path in removed:
            new = moved[1] if moved else _beside(path)
            root.rename(path, new)
            undo.callback(_rename_quietly, root, new, path)
            if not moved:
                leftovers.callback(remove_quietly, root, new)
        for folder in {parent(path) for path in files}:
            _sync_folder(root, folder)
        undo.pop_all()
    return dict(zip(texts, stamps, strict=True))


def _create_folder(root: OpenFolder, folder: str, texts: Mapping[str, bytes]) -> dict[str, int]:
    """Create a bundle's folder with its files, all or nothing."""
    if _exists(root, folder):
        raise folder_in_the_way(folder)
    draft = _beside(folder)
    folders = [draft, tools_of(draft)] if any(map(is_tool, texts)) else [draft]
    with ExitStack() as undo:
        undo.callback(remove_quietly, root, draft)
        for made in folders:
            root.mkdir(made)
        stamps = _write_all(root, [(f"{draft}{path.removeprefix(folder)}", text) for path, text in texts.items()])
        for made in reversed(folders):
            _sync_folder(root, made)
        root.rename(draft, folder)
        undo.callback(_rename_quietly, root, folder, draft)
        _sync_folder(root, ".")
        undo.pop_all()
    return dict(zip(texts, stamps, strict=True))


def _remove_folder(root: OpenFolder, folder: str) -> None:
    """Remove an empty bundle's folder. Raises ConflictError if it contains anything else."""
    if not set(_names_in(root, folder)) <= {BUNDLE, TOOLS} or _names_in(root, tools_of(folder)):
        raise ConflictError(f"bundles/{folder} is not empty", "not_empty")
    trash = _beside(folder)
    with ExitStack() as undo:
        root.rename(folder, trash)
        undo.callback(_rename_quietly, root, trash, folder)
        _sync_folder(root, ".")
        undo.pop_all()
    remove_quietly(root, trash)


def ensure_folders(path: Path) -> None:
    """Create a folder and the folders above it, private and durable."""
    missing = [path, *path.parents]
    missing = missing[: next((number for number, folder in enumerate(missing) if folder.exists()), len(missing))]
    for folder in reversed(missing):
        with suppress(FileExistsError):  # created concurrently
            folder.mkdir(mode=0o700)
        os_files.sync_folder(folder.parent)


def _rename_quietly(root: OpenFolder, path: str, new: str) -> None:
    with suppress(OSError):
        root.rename(path, new)


def remove_quietly(root: OpenFolder, path: str) -> None:
    """Remove a file or folder, in two attempts. The next scan removes leftovers."""
    for _ in range(2):
        try:
            root.unlink(path)
        except (IsADirectoryError, PermissionError):
            shutil.rmtree(path, ignore_errors=True, dir_fd=root.fileno())
        except FileNotFoundError:
            return
        except OSError:
            continue


def _ensure_folder(root: OpenFolder, path: str) -> bool:
    """Create the folder if it is missing, and return whether it was."""
    try:
        root.mkdir(path)
    except FileExistsError:
        if stat.S_ISDIR(root.stat(path).st_mode):
            return False
        raise NotADirectoryError(errno.ENOTDIR, "a link or a file is where a folder should be", path) from None
    _sync_folder(root, parent(path))
    return True


def _exists(root: OpenFolder, path: str) -> bool:
    try:
        root.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _names_in(root: OpenFolder, path: str) -> list[str]:
    """Return the names in a folder, without unfinished files; empty if the folder is missing."""
    with suppress(FileNotFoundError), root.folder(path) as folder:
        return [name for name in folder.names() if not name.startswith(DRAFT)]
    return []


def _sync_folder(root: OpenFolder, path: str) -> None:
    with root.folder(path) as folder:
        folder.sync()


def _beside(path: str) -> str:
    """Return a name for an unfinished file in the same folder."""
    folder, slash, _ = path.rpartition("/")
    return f"{folder}{slash}{DRAFT}{os.urandom(8).hex()}"


def _write_all(root: OpenFolder, files: Sequence[tuple[str, bytes]]) -> list[int]:
    """Write and sync new files, several concurrently, because file systems commit concurrent syncs together.

    On a disk with 30 ms per sync, the thousand tools of a large API would take half a minute one by one.
    """
    if len(files) <= 1:
        return [_write_file(root, *file) for file in files]
    with ThreadPoolExecutor(MAX_SYNCS) as pool:
        return [*pool.map(lambda file: _write_file(root, *file), files)]


def _write_file(root: OpenFolder, path: str, data: bytes) -> int:
    file = root.open(path, NEW)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
        return stamp_of(os.fstat(file))
    finally:
        os.close(file)


def _link(root: OpenFolder, path: str, other: str) -> bool:
    """Give a file a second name. Return False on a file system without hard links."""
    try:
        root.link(path, other)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return False
    return True
