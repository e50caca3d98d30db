"""The text of one file, or why it can't be had."""

import re
from pathlib import Path

MAX_BYTES = 4 * 1024 * 1024

# What YAML does not allow. Said the other way round, by what it allows, the class takes milliseconds to compile.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")


class Refused(Exception):  # noqa: N818 - it never leaves this room: it becomes a Mistake, placed by who knows where
    """A file that can't be used. Without a line it is the file itself, which whoever named it hears about."""

    def __init__(self, message: str, *, line: int | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.hint = hint


def read_text(path: Path) -> str:
    """The file as text: UTF-8, with or without a byte order mark, of a size that a person could have written."""
    text = _decoded(_bytes_of(path))
    found = _UNPRINTABLE.search(text)
    if found:
        where = f"column {found.start() - text.rfind(chr(10), 0, found.start())}"
        message = f"the character U+{ord(found[0]):04X} in {where} can't stand in YAML"
        raise Refused(message, line=_line_of(text, found.start()), hint="remove it, or write it as an escape in quotes")
    return text


def _bytes_of(path: Path) -> bytes:
    try:
        if not path.is_file():  # before opening it: a pipe or a device would keep us waiting
            path.stat()
            raise Refused(f"{path} is {'a folder' if path.is_dir() else 'no regular file'}, not a YAML file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise Refused(f"the file {path} does not exist") from None
    except PermissionError:
        raise Refused(f"no permission to read {path}", hint="check who owns it, and its mode: ls -l") from None
    except OSError as error:
        raise Refused(f"can't read {path}: {error.strerror or error}") from None
    if len(data) > MAX_BYTES:
        raise Refused(f"{path} is larger than {MAX_BYTES // 1024 // 1024} MiB")
    return data


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Refused("the file is not UTF-8 text", line=line, hint="save it as UTF-8") from None


def _line_of(text: str, index: int) -> int:
    return text.count("\n", 0, index) + 1
