"""Parses JSON with comments and trailing commas, and keeps the position of every member."""

import json
import re
from typing import Any, NoReturn

import msgspec

from onetool.core.json_data import no_constant

MAX_DEPTH = 200

_SPACE = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)


class JsoncError(Exception):
    """The text is not JSON; the message says where."""


class Value(msgspec.Struct, kw_only=True):
    """A value and where it stands. `members` is None for what is no object."""

    start: int
    end: int = 0
    data: Any = None
    members: "dict[str, Value] | None" = None
    filled: int = 0  # of an object: where what stands in it ends, with comments, before the space and the bracket
    comma: bool = False  # of an object: whether a comma follows its last member


class JsoncDocument(msgspec.Struct, kw_only=True):
    root: Value
    comments: list[tuple[int, str]]


def read_json(text: str) -> JsoncDocument:
    """The text's one value. Raises JsoncError, also for a duplicate key: clients differ in which one counts."""
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
        """Skip space and comments; returns the end of the last comment, or the current place."""
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
            said = error.msg.lower().removesuffix(" at").removesuffix(" starting")
            self.fail("expected a value" if said == "expecting value" else said, error.pos)
        except (ValueError, RecursionError):  # NaN, or a number of more digits than Python takes
            self.fail("this is no value that JSON has")
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
                self.fail(f"{key!r} stands here for the second time", place)
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
        """Whether a comma comes next. If not, we stay where we are: comments before a bracket belong to its gap."""
        back, known = self.at, len(self.comments)
        self.skip()
        if self.take(","):
            return True
        self.at = back
        del self.comments[known:]
        return False
