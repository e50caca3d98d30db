"""Values put into code, each said as its place needs it, so that no value can become code.

In a literal the text of the value is escaped for the literal's quotes; in a comment it stays on its line; anywhere
else the value stands as a literal of its own. What can't be said at a place is refused.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from onetool.script.snippets.spots import Spot, UnclosedError, spots

BINDS_TIGHTER = re.compile(r"[ \t]*(?:\*\*|[.\[(])")  # … than a sign does: -2 ** 2, and 5.real is no number
FORMAT = re.compile(r"[\w .,%+#<>=^:/-]*\Z")


class UnsayableError(ValueError):
    """The value can't be said where it stands. `value` is that value."""

    def __init__(self, value: Any, why: str) -> None:
        super().__init__(why)
        self.value = value


def put(code: str, values: Sequence[Any], mark: str) -> str:
    """The code with its marks, `mark number mark`, replaced by the values of those numbers."""
    places = spots(code, mark)
    if code.count(mark) != 2 * len(places):
        raise UnclosedError("an escape is not closed")
    parts: list[str] = []
    at = 0
    for place in places:
        parts.append(code[at : place.start])
        before = next((part[-1] for part in reversed(parts) if part), "")
        parts.append(_said(values[place.number], place, before, code))
        at = place.end
    return "".join([*parts, code[at:]])


def _said(value: Any, place: Spot, before: str, code: str) -> str:
    if place.kind == "code":
        return _alone(value, place, before, code)
    text = as_text(value)
    if place.kind == "comment":
        return "".join(char if char.isprintable() else " " for char in text)
    if place.kind == "format":
        if not FORMAT.match(text):
            raise UnsayableError(value, "it is no format")
        return text
    if place.raw:
        return _raw(value, text, place)
    return _escaped(value, text, place)


def as_text(value: Any) -> str:
    """What a value is inside of a text: nothing for None, where Python would write the word."""
    if isinstance(value, str):
        return value
    return "" if value is None else literal(value)


def literal(value: Any, quote: str = "", outer: str = "") -> str:
    """Plain data in Python. Texts get this quote where one is given, and none of the outer ones inside."""
    if isinstance(value, str):
        if not quote:
            return repr(value)
        return quote + "".join(_char(char, quote, outer) for char in value) + quote
    if value is None or isinstance(value, bool | int):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"float({literal(str(value), quote)})"
    if isinstance(value, Mapping):
        pairs = (f"{literal(key, quote, outer)}: {literal(one, quote, outer)}" for key, one in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple | range):
        return f"[{', '.join(literal(one, quote, outer) for one in value)}]"
    raise UnsayableError(value, "it is not data")


def _alone(value: Any, place: Spot, before: str, code: str) -> str:
    if not place.outer:
        said = literal(value)
    else:  # in the braces of an f-string, where a brace right behind the first one would not begin a dict
        said = literal(value, "'" if place.outer[-1] == '"' else '"', place.outer)
        said = f"({said})" if isinstance(value, Mapping) else said
    beside = before + code[place.end : place.end + 1]
    if isinstance(value, str) and any(char.isalnum() or char in "_'\"" for char in beside):
        # f'…' would be another literal than '…', and ''' the start of a longer one
        raise UnsayableError(value, "it touches a word or a quote: leave a space, or put it into quotes")
    if isinstance(value, int | float) and BINDS_TIGHTER.match(code, place.end):
        return f"({said})"
    return said


def _escaped(value: Any, text: str, place: Spot) -> str:
    if place.escape and not place.escape[1:].isdigit():
        raise UnsayableError(value, f"{place.escape} stands right before it: a backslash is written as two")
    if "b" in place.prefix:
        text = text.encode().decode("latin-1")
    said = [_char(char, place.quote[0], place.outer, bytes="b" in place.prefix) for char in text]
    if place.fields:
        said = [char * 2 if char in ("{", "}") else char for char in said]
    if place.escape and text and text[0] in "01234567":  # \0 and 1 would make \01
        said[0] = f"\\x{ord(text[0]):02x}"
    return "".join(said)


def _char(char: str, quote: str, outer: str = "", bytes: bool = False) -> str:
    if char == "\\" or char == quote:
        return f"\\{char}"
    if char in outer or (bytes and char > "\x7f"):
        return f"\\x{ord(char):02x}"
    return char if char.isprintable() else char.encode("unicode_escape").decode()


def _raw(value: Any, text: str, place: Spot) -> str:
    """As it is, or not at all: there are no escapes. A line break is one where the quotes are triple."""
    refused = {"\r", "\0", place.quote[0], *place.outer} | ({"\n"} if len(place.quote) == 1 else set())
    last = text[-1:] or place.escape  # a backslash would take away the meaning of the quote behind it
    if refused.intersection(text) or last == "\\" or ("b" in place.prefix and not text.isascii()):
        raise UnsayableError(value, f"{place.prefix}{place.quote}…{place.quote} knows no escapes and can't say it")
    return text.replace("{", "{{").replace("}", "}}") if place.fields else text
