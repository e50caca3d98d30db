"""Digests of files, to see whether they are as they were."""

import hashlib
import stat
from collections.abc import Mapping
from pathlib import Path

LARGEST = 4 * 1024 * 1024  # bytes that a person could have written


def is_unchanged(files: Mapping[str, str]) -> bool:
    """Whether these are still as they were."""
    return all(digest_of(Path(file)) == digest for file, digest in files.items())


def digest_of(file: Path) -> str:
    """Of a file's content. What is no file, or too large for one of ours, is known by its size and time."""
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            return f"{status.st_mode} {status.st_size} {status.st_mtime_ns}"
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return "none"
