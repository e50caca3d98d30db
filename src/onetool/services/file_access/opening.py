"""Opens a path below a root: with openat2 where the kernel has it, else by walking it name by name."""

import errno
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from onetool.core.os_files import ENTER, NO_LINK, NO_WAIT, PLAIN


class PathRefusedError(Exception):
    """A path that was refused.

    `reason` is a value of REASON_BY_ERRNO, or denied, private, state, closed, is_a_directory, bad_path, unreadable,
    root_missing, root_outside; for writing also is_a_link, busy, hidden, not_writable, other_content.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


REASON_BY_ERRNO = {
    errno.ENOENT: "not_found",
    errno.EILSEQ: "not_found",  # file systems that allow only UTF-8 names
    errno.ENOTDIR: "not_a_directory",
    errno.ELOOP: "link_loop",
    errno.ENAMETOOLONG: "name_too_long",
    errno.EACCES: "no_permission",
    errno.EPERM: "no_permission",
    errno.ENXIO: "not_a_file",  # a socket, or a device that isn't there
    errno.ENODEV: "not_a_file",
}


@contextmanager
def path_errors(reason: str | None = None, about: str | None = None, otherwise: str = "unreadable") -> Iterator[None]:
    """Turn an OSError into a PathRefusedError. By default, the error gives the reason and the details."""
    try:
        yield
    except OSError as error:
        raise PathRefusedError(reason or reason_for(error, otherwise), about or os.strerror(error.errno or 0)) from None


def reason_for(error: OSError, otherwise: str = "unreadable") -> str:
    return REASON_BY_ERRNO.get(error.errno or 0, otherwise)


# Paths as text

MAX_PATH = 4095  # bytes; the limit of Linux, used on all systems
Parts = list[bytes]


def path_shown(name: bytes) -> str:
    """Return a file name as valid text. `path_meant` reverses this."""
    return _ESCAPE.sub(rb"\\x5cx\1", name).decode("utf-8", "backslashreplace")


def path_meant(path: bytes) -> bytes:
    return _ESCAPE.sub(lambda escape: bytes.fromhex(escape[1].decode()), path)


_ESCAPE = re.compile(rb"\\x(5c|[89a-f][0-9a-f])")


def encoded(path: str) -> bytes:
    try:
        raw = path.encode()
    except UnicodeEncodeError:
        raise PathRefusedError("bad_path", "it contains half of a surrogate pair, which is not a character") from None
    if not raw:
        raise PathRefusedError("bad_path", "it is empty; '.' is the first allowed folder")
    if b"\0" in raw:
        raise PathRefusedError("bad_path", "it contains a NUL character")
    if len(raw) > MAX_PATH:
        raise PathRefusedError("name_too_long")
    return raw


def names_of(path: bytes) -> Parts:
    return [part for part in path.split(b"/") if part not in (b"", b".")]


def split(path: bytes) -> Parts:
    """Return the names to open in turn. For `a/`, the last name is `.`, so that `a` must be a folder."""
    parts = names_of(path)
    return parts if parts and not path.endswith((b"/", b"/.")) else [*parts, b"."]


def stays_inside(parts: Parts) -> bool:
    """Return whether `..` stays inside the root, by text alone, to reveal nothing about existing folders."""
    depth = 0
    for part in parts:
        depth += -1 if part == b".." else 1
        if depth < 0:
            return False
    return True


# Opening a path: in one system call if the kernel can, else step by step

MAX_LINKS = 40  # as in Linux
MAX_FOLDERS = 100  # open at once in a walk; a process may be limited to 256 files

READ = os.O_RDONLY | NO_WAIT | PLAIN

Open = Callable[[int, bytes, int], int]
Rest = Callable[[bytes], Parts | None]  # `Root.relative_parts`


def open_beneath(rest: Rest, top: int, parts: Parts, flags: int) -> int:
    in_one_step = openat2()
    if in_one_step:
        try:
            return in_one_step(top, b"/".join(parts), flags)
        except OSError as error:
            # EXDEV is raised for every absolute link, even inside the root; the other two are temporary.
            if error.errno not in (errno.EXDEV, errno.EAGAIN, errno.EINTR):
                raise
    walk = _Walk(rest, top)
    try:
        return walk.open(parts, flags)
    finally:
        walk.close()


@cache
def openat2() -> Open | None:
    """Return the system call if the kernel has it and allows it."""
    if sys.platform != "linux":
        return None
    import ctypes  # takes some milliseconds to import; only calls that read files need it

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
    """Try the call. An old kernel raises ENOSYS, a container's filter ENOSYS or EPERM."""
    here = os.open("/", ENTER)
    try:
        os.close(call(here, b".", ENTER))
    except OSError:
        return False
    finally:
        os.close(here)
    return True


class _Walk:
    """A walk from a root down a path, link by link, which keeps the folders on the way open.

    `..` returns to the previous folder of the walk, not to the current parent: moving a folder can't divert the walk.
    Links are followed by their text, so the magic links of procfs have no effect.
    """

    def __init__(self, rest: Rest, top: int) -> None:
        self._rest = rest
        self._folders = [top]
        self._links = 0

    def open(self, parts: Parts, flags: int) -> int:
        to_go = parts[::-1]
        while True:
            name = to_go.pop()
            if name == b"..":
                if len(self._folders) == 1:
                    raise PathRefusedError("denied")
                os.close(self._folders.pop())
                to_go = to_go or [b"."]
            elif (text := self._link(name)) is not None:
                to_go += self._follow(text)[::-1]
            elif not to_go:
                return os.open(name, flags | NO_LINK, dir_fd=self._folders[-1])
            elif name != b".":
                if len(self._folders) > MAX_FOLDERS:
                    raise PathRefusedError("name_too_long")
                self._folders.append(os.open(name, ENTER | NO_LINK, dir_fd=self._folders[-1]))

    def close(self) -> None:
        """Close the folders opened by the walk. The caller closes the top."""
        while len(self._folders) > 1:
            os.close(self._folders.pop())

    def _link(self, name: bytes) -> bytes | None:
        try:
            return os.readlink(name, dir_fd=self._folders[-1])
        except OSError as error:
            if error.errno == errno.EINVAL:  # exists, but not a link
                return None
            raise

    def _follow(self, text: bytes) -> Parts:
        self._links += 1
        if self._links > MAX_LINKS:
            raise PathRefusedError("link_loop")
        if not text.startswith(b"/"):
            return split(text)
        parts = self._rest(text)
        if parts is None:
            raise PathRefusedError("denied")
        self.close()
        return parts
