"""Files that are ours alone: made readable by their owner, and never opened through a link."""

from contextlib import suppress
from pathlib import Path

from onetool.core.os_files import open_no_link


def private(path: str | Path, flags: int) -> int:
    """An `opener` for `open`. A link would make us write where somebody else says: OSError."""
    return open_no_link(path, flags, 0o600)


def write_new(file: Path, text: str) -> None:
    """Unless something is there already, be it a link that leads nowhere."""
    with suppress(FileExistsError), open(file, "x", encoding="utf-8") as stream:
        stream.write(text)
