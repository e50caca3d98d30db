"""`.state`: what this machine knows of the folder, and git does not: the index, usage, the key of page tokens."""

import os
from contextlib import suppress
from pathlib import Path
from secrets import token_bytes

from onetool.sources.bundles.files.layout import INDEX, KEY, STATE
from onetool.sources.bundles.files.opening import LARGEST, READ
from onetool.sources.bundles.files.writing import create, ensure_folder, exists, replace

KEY_BYTES = 32
_IGNORE = f"{STATE}/.gitignore"


def make_state(folder: Path) -> Path | None:
    """Where the index is; None where nothing can be written, or the folder is not there."""
    file = folder / INDEX
    if os.path.islink(folder / STATE):
        return None  # what we keep would lie somewhere else
    try:
        if not (folder / _IGNORE).exists():
            root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                _make(root)
            finally:
                os.close(root)
        return file if os.access(file.parent, os.W_OK | os.X_OK) else None
    except OSError:
        return None


def key_of(folder: Path, root: int) -> bytes:
    """The same one for all; made by the first who asks. Under the lock."""
    _make(root)
    found = read_key(folder)
    if found is not None:
        return found
    key = token_bytes(KEY_BYTES)
    (replace if exists(root, KEY) else create)(root, KEY, key)
    return key


def read_key(folder: Path) -> bytes | None:
    try:
        file = os.open(folder / KEY, READ)
    except OSError:
        return None
    try:
        key = os.read(file, LARGEST)
    except OSError:
        return None
    finally:
        os.close(file)
    return key if len(key) == KEY_BYTES else None


def _make(root: int) -> None:
    ensure_folder(root, STATE)
    with suppress(FileExistsError):
        create(root, _IGNORE, b"*\n")
