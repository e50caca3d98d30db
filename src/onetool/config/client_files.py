"""The config files of MCP clients: reads JSON with comments and trailing commas, and replaces a file atomically."""

import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onetool.core.flock import give_back, take_path
from onetool.core.json_data import finite, no_constant, unique
from onetool.core.os_files import draft_of
from onetool.core.text import line_of

_TEXT_OR_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\r\n]*|/\*.*?\*/', re.DOTALL)
_TEXT_OR_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])', re.DOTALL)
MAX_LOCK_S = 60.0  # for another process that changes the file


class JsoncError(Exception):
    """The text can't be read; the message says why, with the line."""


def read_json(text: str) -> Any:
    """Return the data of JSON with comments and trailing commas. Raises JsoncError, even for duplicate keys, because
    clients differ in which value they use.
    """
    try:
        return read_plain_json(text)
    except JsoncError:
        without = _TEXT_OR_COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else _blank(found[0]), text)
        return read_plain_json(_TEXT_OR_COMMA.sub(lambda found: found[0] if found[0][0] == '"' else " ", without))


def read_plain_json(text: str) -> Any:
    """Return the data of JSON. Raises JsoncError."""
    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=no_constant, parse_float=finite)
    except json.JSONDecodeError as error:
        message = error.msg[:1].lower() + error.msg[1:]
        raise JsoncError(f"line {error.lineno}, column {error.colno}: {message}") from None
    except RecursionError:
        raise JsoncError("it is nested too deeply") from None
    except ValueError as error:  # a duplicate key, or NaN
        raise JsoncError(f"it {error}") from None


def _blank(text: str) -> str:
    """Return spaces in place of a comment, so that lines and columns of errors stay right."""
    return re.sub(r"[^\r\n]", " ", text)


# Changing the text of a file


class EditError(Exception):
    """The file was left unchanged; the message completes a sentence about it."""


BOM = "\ufeff"


def put_file(file: Path, change: Callable[[str], str], *, private: bool) -> bool:
    """Replace the file's text with the result of `change`. Returns whether anything changed.

    A new file is readable by its owner only if it is `private`. EditError and OSError leave the file unchanged.
    """
    file = Path(os.path.realpath(file))  # a link stays a link
    with _locked(file):
        before = _bytes_of(file)
        try:
            text = (before or b"").decode()
        except UnicodeDecodeError as error:
            raise EditError(f"it is not UTF-8 text: line {line_of(error)}") from None
        mark = BOM if text.startswith(BOM) else ""
        new = mark + change(text.removeprefix(BOM))
        if new == text:
            return False
        try:
            data = new.encode()
        except UnicodeEncodeError:
            raise EditError("a path in the entry is not UTF-8 text, but the file must be") from None
        file.parent.mkdir(parents=True, exist_ok=True)
        with draft_of(file, data, 0o600 if private else 0o666) as draft:
            if before is not None:
                draft.chmod(stat.S_IMODE(file.stat().st_mode))
            if _bytes_of(file) != before:  # clients write their files too
                raise EditError("another program has just changed it; try again")
            draft.replace(file)
        return True


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Lock an existing file."""
    opened = None
    if file.is_file():
        opened = take_path(file, lambda path: os.open(path, os.O_RDONLY), MAX_LOCK_S)
        if opened is None:
            raise EditError("another process is changing it; try again")
    try:
        yield
    finally:
        if opened is not None:
            give_back(opened)


def _bytes_of(file: Path) -> bytes | None:
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):  # checked first, because opening a pipe would block
        raise EditError("it is not a regular file")
    return file.read_bytes()
