"""`OpenFolder` is a folder that is open, and what is done in it, by names relative to it.

Where the system can, the folder's descriptor counts (dir_fd): nothing that is swapped on the way to it leads elsewhere.
Windows can't open a folder. There it is a path with all links resolved, and each step checks that it still leads to the
same folder, through no link: before the step, and once more after a file was opened.
"""

import errno
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Self

from onetool.core.os_files import DIRECTORY, NO_LINK, PLAIN, StrOrBytesPath, is_link, open_no_link

HAS_DIR_FD = bool(DIRECTORY and NO_LINK and os.open in os.supports_dir_fd)
LIST = os.O_RDONLY | DIRECTORY | PLAIN
# O_PATH passes through folders that may be entered but not listed, as the kernel's own lookup does.
ENTER = getattr(os, "O_PATH", os.O_RDONLY) | DIRECTORY | PLAIN

Name = str | bytes


class OpenFolder:
    """Raises OSError, as the functions of `os` with these names do. Nothing follows a link."""

    def __init__(self, fd: int | None, path: str = "") -> None:
        """With a descriptor the path is not used."""
        self._fd = fd
        self.path = path
        self._at_first = None if fd is not None else os.stat(path, follow_symlinks=False)

    @classmethod
    def at(cls, path: StrOrBytesPath, flags: int = LIST, *, follow: bool = True) -> Self:
        """Open the folder at a path; with `follow` it may be a link."""
        if HAS_DIR_FD:
            return cls(os.open(path, flags if follow else flags | NO_LINK))
        status = os.stat(path, follow_symlinks=follow)
        if is_link(status):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return cls(None, os.path.realpath(os.fsdecode(path)))

    def fileno(self) -> int:
        if self._fd is None:
            raise OSError(errno.EBADF, "this system has no descriptors for folders")
        return self._fd

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What it is, and what is in it

    def status(self) -> os.stat_result:
        return os.fstat(self._fd) if self._fd is not None else os.stat(self._whole(b"."))

    def stat(self, name: Name) -> os.stat_result:
        return self._do(os.stat, name, follow_symlinks=False)

    def names(self) -> list[str]:
        return os.listdir(self._fd if self._fd is not None else self._whole(b"."))

    @contextmanager
    def scan(self) -> Generator[Iterator["os.DirEntry[str]"]]:
        with os.scandir(self._fd if self._fd is not None else self._whole(b".")) as entries:
            yield entries

    def folder(self, name: Name, flags: int = LIST) -> "OpenFolder":
        if self._fd is not None:
            return OpenFolder(os.open(name, flags | NO_LINK, dir_fd=self._fd))
        return OpenFolder.at(self._whole(name), follow=False)

    def open(self, name: Name, flags: int, mode: int = 0o600) -> int:
        file = self._do(open_no_link, name, flags, mode)
        try:
            self._check()
        except BaseException:
            os.close(file)
            raise
        return file

    # Changes

    def mkdir(self, name: Name, mode: int = 0o700) -> None:
        self._do(os.mkdir, name, mode)

    def unlink(self, name: Name) -> None:
        self._do(os.unlink, name)

    def rmdir(self, name: Name) -> None:
        self._do(os.rmdir, name)

    def rename(self, name: Name, other: Name) -> None:
        """What has the other name is replaced."""
        if self._fd is not None:
            os.rename(name, other, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        else:
            os.replace(self._whole(name), self._whole(other))

    def link(self, name: Name, other: Name) -> None:
        """A second name for a file."""
        if self._fd is not None:
            os.link(name, other, src_dir_fd=self._fd, dst_dir_fd=self._fd, follow_symlinks=False)
        else:
            os.link(self._whole(name), self._whole(other))

    def sync(self) -> None:
        """Make new names in it safe. Windows needs no such step."""
        if self._fd is not None:
            os.fsync(self._fd)

    def _do(self, function: Any, name: Name, *args: Any, **options: Any) -> Any:
        if self._fd is not None:
            return function(name, *args, dir_fd=self._fd, **options)
        return function(self._whole(name), *args, **options)

    def _whole(self, name: Name) -> str:
        self._check()
        return os.path.join(self.path, os.fsdecode(name))

    def _check(self) -> None:
        """Whether the path still leads to the folder that was opened, and through no link."""
        if self._at_first is None:
            return
        if os.path.realpath(self.path) != self.path or not os.path.samestat(os.lstat(self.path), self._at_first):
            raise OSError(errno.ELOOP, "another folder lies there now")
