"""Checks that decide whether a file may be used: its owner, who can write to it, and whether it has changed."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

ROOT = 0


def is_foreign_owner(status: os.stat_result) -> bool:
    return status.st_uid not in (os.geteuid(), ROOT)


def everybody_can_write(status: os.stat_result) -> bool:
    return bool(status.st_mode & stat.S_IWOTH)


def is_writable_by_others(status: os.stat_result) -> bool:
    if everybody_can_write(status):
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _is_private_group(status.st_uid, status.st_gid)


def _is_private_group(owner: int, group: int) -> bool:
    """Return whether the owner is the group's only member, or the group is root's."""
    if group == ROOT:
        return True
    try:
        import grp
        import pwd
    except ImportError:  # no user database: compare the numbers
        return owner == group
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:  # a user without a name, as in containers: compare the numbers
        name = None
    try:
        found = grp.getgrgid(group)
    except KeyError:
        return owner == group
    return found.gr_name == name and not {*found.gr_mem} - {name}


# Whether files have changed

MAX_DIGEST_BYTES = 4 * 1024 * 1024  # larger files are hardly written by hand
NO_FILE = "none"


def is_unchanged(files: Mapping[str, str]) -> bool:
    return all(stamp_of(Path(file)) == stamp for file, stamp in files.items())


def stamp_of(file: Path) -> str:
    """Return a string that changes whenever the file does. The string includes ctime, which a writer can't set."""
    try:
        found = os.stat(file)
    except OSError:
        return NO_FILE
    return f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"


def digest_of(file: Path) -> str:
    """Return a hash of the file's content, or size and times for very large and special files."""
    from hashlib import sha256  # most processes only compare stamps

    try:
        found = file.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_DIGEST_BYTES:
            return f"{found.st_mode} {found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
        return sha256(file.read_bytes()).hexdigest()
    except OSError:
        return NO_FILE
