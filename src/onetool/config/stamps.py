"""Whether files are as they were: by what the system says of them, which takes no reading; or by their content."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

LARGEST = 4 * 1024 * 1024  # bytes that a person could have written
NONE = "none"


def is_unchanged(files: Mapping[str, str]) -> bool:
    """Whether these are still as they were, by their stamps."""
    return all(stamp_of(Path(file)) == stamp for file, stamp in files.items())


def stamp_of(file: Path) -> str:
    """Another one after every change. The time of the last change of its entry can't be set by who writes a file.

    Windows has no such time, so that the content has to tell there.
    """
    if os.name == "nt":
        return digest_of(file)
    try:
        found = os.stat(file)
    except OSError:
        return NONE
    return f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"


def digest_of(file: Path) -> str:
    """Of a file's content. What is no file, or too large for one of ours, is known by what the system says of it."""
    from hashlib import sha256  # most only look at stamps

    try:
        found = file.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
            return f"{found.st_mode} {found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
        return sha256(file.read_bytes()).hexdigest()
    except OSError:
        return NONE
