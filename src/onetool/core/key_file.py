"""A random key in a private file: made when it is first needed, then shared by all processes of this person."""

from pathlib import Path
from secrets import token_bytes

from onetool.core import flock
from onetool.core.private_file import UnsafeFileError, read_private, replace_file

KEY_BYTES = 32


def key_in(file: Path, make: bool = False) -> bytes:
    """The key. With `make` there is one afterwards, else it may be empty. Raises OSError: UnsafeFileError for a file
    that others could have written, or that is damaged.
    """
    key = read_private(file, KEY_BYTES + 1)
    if key is None and make:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with flock.lock_beside(file):  # two processes may want it at once
            key = read_private(file, KEY_BYTES + 1)
            if key is None:
                key = token_bytes(KEY_BYTES)
                replace_file(file, key)
    if key is not None and len(key) != KEY_BYTES:
        raise UnsafeFileError("it is damaged")
    return key or b""
