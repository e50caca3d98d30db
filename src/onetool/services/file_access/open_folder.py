"""Lists an open folder, and replaces or appends to the files in it.

The folder was opened below a root. Files are opened by name in the open folder, so swapping a parent folder can't lead
outside. Links are refused: the target may be anywhere, and replacing would lose the link.
"""

import heapq
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Literal, NamedTuple

from onetool.core import flock
from onetool.core.os_files import NO_WAIT, OpenFolder
from onetool.core.system import unlock
from onetool.services.file_access.opening import PathRefusedError, path_errors, path_shown, reason_for
from onetool.services.file_access.private import Private

MAX_SCANNED = 1_000_000  # names read in one folder
Kind = Literal["directory", "file", "symlink", "other"]


class FolderEntry(NamedTuple):
    """An entry of a folder. `path` is relative to the listed folder; `error` is a reason as in `PathRefusedError`."""

    path: str
    kind: Kind
    size: int | None = None
    error: str | None = None


def list_into(
    entries: list[FolderEntry], folder: OpenFolder, prefix: str, depth: int, limit: int, private: Private
) -> None:
    for dir_entry in sorted_entries(folder, limit - len(entries)):
        if len(entries) >= limit:
            return
        entry = _described(dir_entry, prefix, private)
        if entry is not None and entry.kind == "directory" and entry.error is None:
            _list_folder_into(entries, entry, dir_entry.name, folder, depth - 1, limit, private)
        elif entry is not None:
            entries.append(entry)


def _list_folder_into(
    entries: list[FolderEntry],
    entry: FolderEntry,
    name: str,
    parent: OpenFolder,
    depth: int,
    limit: int,
    private: Private,
) -> None:
    """Add a folder, and its entries if `depth` allows. It is opened in any case, to report errors."""
    at = len(entries)
    try:
        folder = parent.folder(name)
    except FileNotFoundError:
        return
    except OSError as error:
        entries.append(entry._replace(error=reason_for(error)))
        return
    try:
        entries.append(entry)
        private.refuse_entry(name, folder.status())  # the folder may have been replaced since it was described
        private.refuse_marked(folder)
        if depth > 0:
            list_into(entries, folder, f"{entry.path}/", depth, limit, private)
    except PathRefusedError as refused:
        entries[at] = entry._replace(error=refused.reason)
    except OSError as error:
        entries[at] = entry._replace(error=reason_for(error))
    finally:
        folder.close()


def sorted_entries(folder: OpenFolder, limit: int) -> "list[os.DirEntry[str]]":
    """Return the first `limit` entries by name, without holding more in memory."""
    with folder.scan() as scan:
        return heapq.nsmallest(limit, islice(scan, MAX_SCANNED), key=lambda entry: entry.name)


def _described(entry: "os.DirEntry[str]", prefix: str, private: Private) -> FolderEntry | None:
    """Describe an entry; None if it no longer exists. Private entries get only name, kind and error."""
    path = prefix + path_shown(os.fsencode(entry.name))
    kind: Kind = "other"
    try:
        kind = _kind(entry)
        status = entry.stat(follow_symlinks=False)
        private.refuse_entry(entry.name, status)
        size = status.st_size if kind == "file" else None
    except PathRefusedError as refused:
        return FolderEntry(path, kind, error=refused.reason)
    except FileNotFoundError:
        return None
    except OSError as error:
        return FolderEntry(path, "other", error=reason_for(error))
    return FolderEntry(path, kind, size)


def _kind(entry: "os.DirEntry[str]") -> Kind:
    if entry.is_symlink():
        return "symlink"
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


# Writing in an open folder

LOCK_TIMEOUT = 5.0  # seconds for other writers of a file; each holds it for well under a millisecond
MAX_TRIES = 20  # for a file that is replaced each time before it is locked

WRITE = os.O_RDWR | os.O_APPEND | NO_WAIT  # never truncates
DRAFT = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def replace(folder: OpenFolder, name: bytes, data: bytes, private: Private) -> None:
    """Replace a file atomically: readers see the old or the new content, and a failure leaves the old."""
    with path_errors(otherwise="not_writable"):
        mode = None
        # A read-only file is not replaced either.
        with suppress(FileNotFoundError), _opened(folder, name, private) as old:
            mode = stat.S_IMODE(os.fstat(old).st_mode) & 0o777
        draft = f".onetool-{os.urandom(8).hex()}".encode()  # the name itself may have the maximum length
        file = folder.open(draft, DRAFT, 0o666)
        try:
            with os.fdopen(file, "wb") as stream:
                if mode is not None:
                    os.fchmod(file, mode)
                stream.write(data)
                stream.flush()
                os.fsync(file)
            folder.rename(draft, name)
        except BaseException:
            with suppress(OSError):
                folder.unlink(draft)
            raise


Check = Callable[[int, os.stat_result], None]  # of an open file; raises PathRefusedError


def append(
    folder: OpenFolder, name: bytes, data: bytes, private: Private, on_new_line: bool, check: Check | None = None
) -> None:
    """Append everything or nothing, without fsync: a line isn't worth the cost."""
    with path_errors(otherwise="not_writable"):
        for _ in range(MAX_TRIES):
            with _opened(folder, name, private, os.O_CREAT) as file, _locked(file):
                status = os.fstat(file)
                if status.st_nlink == 0:
                    continue  # deleted or replaced before it was opened: the data would be lost
                if check is not None:
                    check(file, status)
                _write_all(file, status.st_size, data, on_new_line)
                return
    raise PathRefusedError("busy")


def make_folder(folder: OpenFolder, name: bytes, private: Private) -> None:
    private.refuse_name(folder, name)
    with path_errors(otherwise="not_writable"), suppress(FileExistsError):
        folder.mkdir(name, 0o777)


def is_there(folder: OpenFolder, name: bytes) -> bool:
    with path_errors():
        return _status(folder, name) is not None


@contextmanager
def _opened(folder: OpenFolder, name: bytes, private: Private, flags: int = 0) -> Iterator[int]:
    """Yield a regular file opened for appending. It is checked before (opening may affect a device) and after."""
    private.refuse_name(folder, name)
    status = _status(folder, name)
    if status is not None:
        _refuse_all_but_files(status, private)
    file = folder.open(name, WRITE | flags, 0o666)
    try:
        _refuse_all_but_files(os.fstat(file), private)
        yield file
    finally:
        os.close(file)


def _status(folder: OpenFolder, name: bytes) -> os.stat_result | None:
    try:
        return folder.stat(name)
    except FileNotFoundError:
        return None


def _refuse_all_but_files(status: os.stat_result, private: Private) -> None:
    private.refuse(status)
    if stat.S_ISLNK(status.st_mode):
        raise PathRefusedError("is_a_link")
    if not stat.S_ISREG(status.st_mode):
        raise PathRefusedError("is_a_directory" if stat.S_ISDIR(status.st_mode) else "not_a_file")


@contextmanager
def _locked(file: int) -> Iterator[None]:
    """Lock the file for one writer among all processes. Raises PathRefusedError after LOCK_TIMEOUT."""
    if not flock.wait(file, LOCK_TIMEOUT):
        raise PathRefusedError("busy")
    try:
        yield
    finally:
        unlock(file)


def _write_all(file: int, size: int, data: bytes, on_new_line: bool) -> None:
    if on_new_line and size and os.pread(file, 1, size - 1) != b"\n":
        data = b"\n" + data
    written = 0
    try:
        while written < len(data):  # once, unless the disk is nearly full
            written += os.write(file, data[written:])
    except BaseException:
        if os.fstat(file).st_size == size + written:  # else another program has appended without our lock
            os.ftruncate(file, size)
        raise
