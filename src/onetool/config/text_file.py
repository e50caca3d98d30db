"""Changes the text of a file that somebody else may write, too: replaced atomically, or left as it was."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

from onetool.core.os_files import draft_of
from onetool.core.text import line_of


class EditError(Exception):
    """The file is left unchanged; the message completes a sentence about it."""


BOM = "\ufeff"


def put_file(file: Path, change: Callable[[str], str], *, private: bool) -> bool:
    """Write what `change` makes of the file's text; whether there was anything to write.

    A new file is for its owner alone if it is `private`. After EditError or OSError the file is as it was.
    """
    file = Path(os.path.realpath(file))  # a link stays a link
    before = _bytes_of(file)
    text = _decoded(before or b"")
    mark = BOM if text.startswith(BOM) else ""
    new = mark + change(text.removeprefix(BOM))
    if new == text:
        return False
    _write(file, before, _encoded(new), 0o600 if private else 0o666)
    return True


def _bytes_of(file: Path) -> bytes | None:
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):  # before opening it: a pipe would keep us waiting
        raise EditError("it is no regular file")
    return file.read_bytes()


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise EditError(f"it is not UTF-8 text: line {line_of(error)}") from None


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise EditError("a path in the entry is not UTF-8 text, which the file has to be") from None


def _write(file: Path, before: bytes | None, data: bytes, mode: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with draft_of(file, data, mode) as draft:
        if before is not None:
            draft.chmod(stat.S_IMODE(file.stat().st_mode))
        if _bytes_of(file) != before:  # clients write their files too
            raise EditError("somebody else changed it just now; please try again")
        draft.replace(file)
