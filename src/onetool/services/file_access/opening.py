"""Opens a path below a root: with openat2 where the kernel has it, else by walking it name by name.

Windows has no descriptors of folders. There the path is resolved with all its links, and must then be below the root.
It is opened from the folder that it lies in, which `OpenFolder` compares before and after. Names that Windows takes for
something else are refused: devices (`NUL`), streams of a file (`a:b`), and those whose end it drops (`a.`).
"""

import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from onetool.core.os_files import ENTER, NO_LINK, NO_WAIT, PLAIN, OpenFolder, is_link


class PathRefusedError(Exception):
    """Why a path was refused. `reason` is one of REASON_BY_ERRNO, or denied, private, state, closed, is_a_directory,
    bad_path, unreadable, root_missing, root_outside; of a path to be written also is_a_link, busy, hidden,
    not_writable, other_content.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


REASON_BY_ERRNO = {
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


@contextmanager
def path_errors(reason: str | None = None, about: str | None = None, otherwise: str = "unreadable") -> Iterator[None]:
    """Turn whatever the system refuses into a Refused, with its own reason and words where none are given."""
    try:
        yield
    except OSError as error:
        raise PathRefusedError(reason or reason_for(error, otherwise), about or os.strerror(error.errno or 0)) from None


def reason_for(error: OSError, otherwise: str = "unreadable") -> str:
    return REASON_BY_ERRNO.get(error.errno or 0, otherwise)


# Paths as text

MAX_PATH = 4095  # bytes; what Linux takes, held everywhere

Parts = list[bytes]


def path_shown(name: bytes) -> str:
    """Return a file name as text that is valid everywhere, and that can be handed back."""
    return _ESCAPE.sub(rb"\\x5cx\1", name).decode("utf-8", "backslashreplace")


def path_meant(path: bytes) -> bytes:
    return _ESCAPE.sub(lambda escape: bytes.fromhex(escape[1].decode()), path)


_ESCAPE = re.compile(rb"\\x(5c|[89a-f][0-9a-f])")


def encoded(path: str) -> bytes:
    try:
        raw = path.encode()
    except UnicodeEncodeError:
        raise PathRefusedError("bad_path", "it holds half of a surrogate pair, which is not a character") from None
    if not raw:
        raise PathRefusedError("bad_path", "it is empty; '.' is the first allowed folder")
    if b"\0" in raw:
        raise PathRefusedError("bad_path", "it holds a NUL character")
    if len(raw) > MAX_PATH:
        raise PathRefusedError("name_too_long")
    return _with_slashes(raw)


def slashed(path: str) -> bytes:
    """Return a path of the system with slashes, also where it writes them the other way round."""
    return _with_slashes(os.fsencode(path))


def _with_slashes(path: bytes) -> bytes:
    return path if os.sep == "/" else path.replace(os.sep.encode(), b"/")


def is_absolute(path: bytes) -> bool:
    """Return whether the path is absolute, also with a drive before it, on Windows."""
    return path.startswith(b"/") or (os.sep != "/" and path[1:3] == b":/")


def same_case(parts: Parts) -> Parts:
    """Return the parts for comparing: on Windows upper and lower case are one."""
    return [os.path.normcase(part) for part in parts]


def names_of(path: bytes) -> Parts:
    return [part for part in path.split(b"/") if part not in (b"", b".")]


def split(path: bytes) -> Parts:
    """Return the names to take one after the other. At the end of `a/` stands a `.`: then `a` must be a folder."""
    parts = names_of(path)
    return parts if parts and not path.endswith((b"/", b"/.")) else [*parts, b"."]


def stays_inside(parts: Parts) -> bool:
    """Return whether the path stays inside, by its text alone: nothing is revealed about existing folders."""
    depth = 0
    for part in parts:
        depth += -1 if part == b".." else 1
        if depth < 0:
            return False
    return True


# Opening a path: in one system call if the kernel can, else step by step

MAX_LINKS = 40  # as in Linux: more is a loop
MAX_FOLDERS = 100  # that the walk holds open at once; a process may be allowed no more than 256 files

READ = os.O_RDONLY | NO_WAIT | PLAIN

Open = Callable[[int, bytes, int], int]
Rest = Callable[[bytes], Parts | None]  # what is left of an absolute path below the root, as Root.relative_parts tells


def open_beneath(rest: Rest, top: int, parts: Parts, flags: int) -> int:
    in_one_step = openat2()
    if in_one_step:
        try:
            return in_one_step(top, b"/".join(parts), flags)
        except OSError as error:
            # EXDEV is said of every absolute link, also of one that leads inside; the others of bad luck.
            if error.errno not in (errno.EXDEV, errno.EAGAIN, errno.EINTR):
                raise
    walk = _Walk(rest, top)
    try:
        return walk.open(parts, flags)
    finally:
        walk.close()


@cache
def openat2() -> Open | None:
    """Return the system call, where this kernel has it and lets us use it."""
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
    """Try the call. An old kernel says ENOSYS, a container's filter ENOSYS or EPERM."""
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
        """Close what the walk opened; the top is its giver's."""
        while len(self._folders) > 1:
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
        if self._links > MAX_LINKS:
            raise PathRefusedError("link_loop")
        if not text.startswith(b"/"):
            return split(text)
        parts = self._rest(text)
        if parts is None:
            raise PathRefusedError("denied")
        self.close()
        return parts


# Where folders have no descriptors

_OTHER = re.compile(rb'[\x00-\x1f\\:*?"<>|]|[. ]\Z')
_DEVICE = re.compile(rb"(con|prn|aux|nul|com[0-9]|lpt[0-9]|conin\$|conout\$) *(\.|\Z)", re.IGNORECASE)
_DOTS = (b".", b"..")


def file_below(root: str, parts: Parts) -> int:
    """Open a regular file to read it. Raises PathRefusedError and OSError."""
    path, status = _found(root, parts)
    if not stat.S_ISREG(status.st_mode):
        raise PathRefusedError("is_a_directory" if stat.S_ISDIR(status.st_mode) else "not_a_file")
    with OpenFolder.at(os.path.dirname(path), follow=False) as folder:
        return folder.open(os.path.basename(path), READ)


def folder_below(root: str, parts: Parts) -> OpenFolder:
    path, _ = _found(root, parts)
    return OpenFolder.at(path, follow=False)


def _found(root: str, parts: Parts) -> tuple[str, os.stat_result]:
    for name in parts:
        if name not in _DOTS and (_OTHER.search(name) or _DEVICE.match(name)):
            raise PathRefusedError("bad_path", "it has a name that Windows takes for something else")
    top = os.path.realpath(root)
    path = os.path.realpath(os.path.join(top, *map(os.fsdecode, parts)))
    if os.path.commonpath([top, path]) != top:
        raise PathRefusedError("denied")
    status = os.lstat(path)
    if is_link(status):  # one that can't be resolved
        raise PathRefusedError("link_loop")
    if parts[-1] in _DOTS and not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return path, status
