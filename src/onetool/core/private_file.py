"""Files that are ours alone: made readable by their owner, and never opened through a link."""

import os
from contextlib import suppress
from pathlib import Path

NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # not on every system
MODE = 0o600


def private(path: str | Path, flags: int) -> int:
    """An `opener` for `open` that refuses links: a link would make us write to another place. Raises OSError."""
    return os.open(path, flags | NO_LINK, MODE)


def write_new(file: Path, text: str) -> None:
    """Write a new file. An existing file or link stays as it is."""
    with suppress(FileExistsError), open(file, "x", encoding="utf-8") as stream:
        stream.write(text)
