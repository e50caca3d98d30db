"""Opens a path below a root where the system has no descriptors of folders, as on Windows.

The path is resolved with all its links, and must then be below the root. It is opened from the folder that it lies in,
which `OpenFolder` compares before and after. Names that Windows takes for something else are refused: devices (`NUL`),
streams of a file (`a:b`), and those whose end it drops (`a.`).
"""

import errno
import os
import re
import stat

from onetool.core.os_files import OpenFolder, is_link
from onetool.services.file_access.opening import READ, Parts, PathRefusedError

_OTHER = re.compile(rb'[\x00-\x1f\\:*?"<>|]|[. ]\Z')
_DEVICE = re.compile(rb"(con|prn|aux|nul|com[0-9]|lpt[0-9]|conin\$|conout\$) *(\.|\Z)", re.IGNORECASE)
_DOTS = (b".", b"..")


def file_below(root: str, parts: Parts) -> int:
    """A regular file, to be read. Raises PathRefusedError and OSError."""
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
