"""A file's bytes, if it is one that we read: regular, not a link, and not larger than any of ours."""

import os
import stat

from onetool.sources.bundles.errors import Invalid
from onetool.sources.bundles.index import Stamp

LARGEST = 8 * 1024 * 1024
MOST_TRIES = 5  # for a file that is written to while we read

# Not to wait for a pipe's writer, not to become a terminal's session: whatever it is, it is refused only once open.
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC


def read(path: str | os.PathLike[str], root: int | None = None) -> tuple[bytes, Stamp]:
    """Its bytes and its stamp, of one moment. Raises Invalid for what can't be one of ours, and OSError."""
    file = os.open(path, READ, dir_fd=root)
    try:
        for _ in range(MOST_TRIES):
            before = os.fstat(file)
            refuse(before)
            data = _bytes(file)
            if (stamp := stamp_of(before)) == stamp_of(os.fstat(file)):
                return data, stamp
            os.lseek(file, 0, os.SEEK_SET)
    finally:
        os.close(file)
    raise Invalid("it is being written to")


def refuse(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise Invalid("it is a link, and links are not followed: put the file itself here")
    if not stat.S_ISREG(status.st_mode):
        raise Invalid("it is no regular file")
    if status.st_size > LARGEST:
        raise Invalid(f"it has {status.st_size:,} bytes; {LARGEST:,} is the most")


def stamp_of(status: os.stat_result) -> Stamp:
    return Stamp(status.st_mtime_ns, status.st_size, status.st_ino)


def _bytes(file: int) -> bytes:
    """Whatever its size is said to be."""
    parts: list[bytes] = []
    size = 0
    while part := os.read(file, 256 * 1024):
        size += len(part)
        if size > LARGEST:
            raise Invalid(f"it has more than {LARGEST:,} bytes")
        parts.append(part)
    return b"".join(parts)
