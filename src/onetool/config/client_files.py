"""The config files of MCP clients: reads JSON with comments and trailing commas, and changes parts of the text.

The position of every member is kept, so that a change leaves the rest of the text alone. A file is replaced atomically
or not at all.
"""

import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from onetool.core.flock import give_back, take_path
from onetool.core.json_data import no_constant
from onetool.core.os_files import draft_of
from onetool.core.system import HAS_FLOCK, MAX_WAIT_S
from onetool.core.text import line_of

MAX_DEPTH = 200

_SPACE = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)


class JsoncError(Exception):
    """The text is not valid JSON; the message says where."""


class Value(msgspec.Struct, kw_only=True):
    """A value and its position. `members` is None unless the value is an object."""

    start: int
    end: int = 0
    data: Any = None
    members: "dict[str, Value] | None" = None
    filled: int = 0  # of an object: the end of its last member or comment
    comma: bool = False  # of an object: whether a comma follows its last member


class JsoncDocument(msgspec.Struct, kw_only=True):
    root: Value
    comments: list[tuple[int, str]]


def read_json(text: str) -> JsoncDocument:
    """Parse a document. Raises JsoncError, even for duplicate keys, because clients differ in which value they use."""
    reader = _Reader(text)
    reader.skip()
    root = reader.value(0)
    reader.skip()
    if reader.at < len(text):
        reader.fail("expected the end of the file")
    return JsoncDocument(root=root, comments=reader.comments)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.comments: list[tuple[int, str]] = []
        self.scalars = json.JSONDecoder(parse_constant=no_constant)

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        at = self.at if at is None else at
        line, column = self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at)
        raise JsoncError(f"line {line}, column {column}: {message}")

    def skip(self) -> int:
        """Skip space and comments. Returns the end of the last comment, or the current position."""
        seen = self.at
        while True:
            self.at = _SPACE.match(self.text, self.at).end()  # pyright: ignore[reportOptionalMemberAccess]
            comment = _COMMENT.match(self.text, self.at)
            if not comment:
                return seen
            self.comments.append((self.at, comment[0]))
            self.at = seen = comment.end()

    def take(self, char: str) -> bool:
        found = self.text.startswith(char, self.at)
        self.at += found
        return found

    def value(self, depth: int) -> Value:
        if depth > MAX_DEPTH:
            self.fail(f"nested more than {MAX_DEPTH} levels deep")
        value = Value(start=self.at)
        if self.take("{"):
            self._members(value, depth)
        elif self.take("["):
            self._items(value, depth)
        else:
            value.data = self._scalar()
        value.end = self.at
        return value

    def _scalar(self) -> Any:
        try:
            data, self.at = self.scalars.raw_decode(self.text, self.at)
        except json.JSONDecodeError as error:
            message = error.msg.lower().removesuffix(" at").removesuffix(" starting")
            self.fail("expected a value" if message == "expecting value" else message, error.pos)
        except (ValueError, RecursionError):  # NaN, or a number with more digits than Python accepts
            self.fail("this is not a JSON value")
        return data

    def _members(self, value: Value, depth: int) -> None:
        value.members = {}
        while True:
            value.filled = self.skip()
            if self.take("}"):
                break
            if value.members and not value.comma:
                self.fail("expected ',' or '}'")
            place = self.at
            key = self._scalar() if self.text.startswith('"', place) else self.fail("expected a name in double quotes")
            if key in value.members:
                self.fail(f"duplicate key {key!r}", place)
            self.skip()
            if not self.take(":"):
                self.fail("expected ':'")
            self.skip()
            value.members[key] = self.value(depth + 1)
            value.comma = self._comma()
        value.data = {key: member.data for key, member in value.members.items()}

    def _items(self, value: Value, depth: int) -> None:
        value.data = []
        more = True
        while True:
            self.skip()
            if self.take("]"):
                return
            if not more:
                self.fail("expected ',' or ']'")
            value.data.append(self.value(depth + 1).data)
            more = self._comma()

    def _comma(self) -> bool:
        """Consume a comma and return whether there was one. If not, comments before a bracket stay in its gap."""
        back, known = self.at, len(self.comments)
        self.skip()
        if self.take(","):
            return True
        self.at = back
        del self.comments[known:]
        return False


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
    """Lock an existing file, except on Windows, where no other process could replace an open file."""
    opened = None
    if HAS_FLOCK and file.is_file():
        opened = take_path(file, lambda path: os.open(path, os.O_RDONLY), MAX_WAIT_S)
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
