"""`$name key=value …` read into values.

    $research topic=tea count=3
    $research topic="green \"tea\"" tags=["a", "b"]
    $research
    topic: green tea, and what people say about it: everything
    count=3

Pairs are separated by white space, on one line or on many. A bare value ends where its line ends or where the next
`key=` begins; `key: value` takes the rest of its line as it is. In quotes, one or three, the escapes of Python hold,
and three quotes may go over many lines. Arrays and objects are JSON.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from onetool.core.nearest import did_you_mean

NAME = r"[^\W\d][\w-]*"
PAIR = re.compile(rf"({NAME})[ \t]*(?:(=)(?!=)[ \t]*|:(?:[ \t]+|(?=\s|\Z)))")
NEXT = re.compile(rf"(?<=[ \t]){NAME}[ \t]*=(?!=)")
QUOTED = re.compile(r"(?P<quote>\"\"\"|'''|\"|')(?P<text>(?:[^\\]|\\.)*?)(?P=quote)", re.DOTALL)
SPACE = re.compile(r"\s*")
ALONE = re.compile(r"(?!\S)")
LAST = re.compile(r"[ \t\r]*(?:\n|\Z)")
ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
ESCAPES = dict(zip("ntr0abfv", "\n\t\r\0\a\b\f\v", strict=True)) | {"\n": "", "\\": "\\", "'": "'", '"': '"'}
EXPECTED = {
    "string": "text",
    "integer": "a whole number such as 3",
    "number": "a number such as 0.5",
    "boolean": "true or false",
    "array": 'JSON such as ["a", "b"]',
    "object": 'JSON such as {"a": 1}',
}
WHOLE = 2**127  # the largest number that the templates know as a whole one
DEEPEST = 32
SHOWN = 40


class WrongValueError(ValueError):
    """Something that is wrong with a value, in words that follow its name."""


def arguments(text: str, types: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The values behind the name by their keys, and what could not be read, also by key, or by "" without one."""
    values: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    at = 0
    while (at := _past_space(text, at)) < len(text):
        pair = PAIR.match(text, at)
        if not pair:
            hint = " (text of several lines goes in three quotes)" if "\n" in text.strip() else ""
            wrong[""] = f"{shown(text[at : _line_end(text, at)])} is not key=value{hint}"
            break
        key, at = pair[1], pair.end()
        if key in values:
            wrong[key] = "is given twice"
        try:
            values[key], at = _value(text, at, types.get(key, "string"), bool(pair[2]))
        except WrongValueError as error:
            values[key], at, wrong[key] = None, _line_end(text, at), str(error)
    return values, wrong


def unknown(key: str, known: Mapping[str, Any]) -> str:
    meant = did_you_mean(key, known)
    return f"there is no parameter {shown(key)}" + (f", {meant}" if meant else "")


def typed(value: Any, type: str) -> Any:
    """The value as its parameter's type. A text is read; what has a type already is looked at."""
    if isinstance(value, str) and type != "string":
        value = _read(value, type)
    if isinstance(value, float) and value.is_integer() and type == "integer":
        value = int(value)
    if not _is(value, type):
        raise WrongValueError(f"is to be {EXPECTED[type]}, not {shown(value)}")
    _check(value)
    return value


def shown(value: Any) -> str:
    """A value in a message: on one line, and not all of a long one."""
    text = repr(value[: SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _value(text: str, at: int, type: str, several: bool) -> tuple[Any, int]:
    """The value that begins here, and where it ends. `several`: more pairs may follow on the line."""
    end = _line_end(text, at)
    quoted = QUOTED.match(text, at)
    if quoted and len(quoted["quote"]) == 1 and quoted.end() > end:
        quoted = None
    if quoted and (ALONE if several else LAST).match(text, quoted.end()):
        return _unescaped(quoted["text"]), quoted.end()
    if type in ("array", "object") and text.startswith(("[", "{"), at):
        return _json(text, at, type)
    if several and text.startswith(("'", '"'), at):
        raise WrongValueError("has text right behind its closing quote" if quoted else "has a quote that is not closed")
    if several and (following := NEXT.search(text, at, end)):
        end = following.start()
    return text[at:end].strip(), end


def _json(text: str, at: int, type: str) -> tuple[Any, int]:
    try:
        value, end = json.JSONDecoder(parse_constant=_no_number).raw_decode(text, at)
    except (ValueError, RecursionError):
        end = -1
        value = None
    if end < 0 or not ALONE.match(text, end):
        raise WrongValueError(f"is to be {EXPECTED[type]}, not {shown(text[at : _line_end(text, at)])}")
    return value, end


def _no_number(word: str) -> Any:
    raise ValueError(word)


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    plain = ESCAPE.sub(lambda found: _char(found[1], found[0]), text)
    # JSON's way to write 🦊 is as two halves
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _char(escape: str, whole: str) -> str:
    if len(escape) == 1:
        return ESCAPES.get(escape, whole)  # one that Python does not know stays as it is
    number = int(escape[1:], 16)
    return chr(number) if number <= 0x10FFFF else whole


def _read(text: str, type: str) -> Any:
    """A text as this type, or the text again when it can't be."""
    try:
        if type == "boolean":
            return {"true": True, "false": False}[text.lower()]
        if type == "number" or type == "integer":
            return float(text) if any(char in text for char in ".eE") else int(text)
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, KeyError, RecursionError):
        return text


def _is(value: Any, type: str) -> bool:
    if isinstance(value, bool) or type == "boolean":
        return isinstance(value, bool) and type == "boolean"
    if isinstance(value, float) and not math.isfinite(value):
        return False
    kinds = {"string": str, "integer": int, "number": int | float, "array": list | tuple, "object": Mapping}
    return isinstance(value, kinds[type])


def _check(value: Any, depth: int = 0) -> None:
    """Refuses what the templates would not give back as it is."""
    if depth > DEEPEST:
        raise WrongValueError(f"is nested deeper than {DEEPEST} levels")
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            raise WrongValueError("has half of a surrogate pair in it, which is no character")
    elif isinstance(value, int):
        if abs(value) >= WHOLE:
            raise WrongValueError("is too large a number; give it as a text")
    elif isinstance(value, Mapping):
        for key, one in value.items():
            _check(key, depth + 1)
            _check(one, depth + 1)
    elif isinstance(value, list | tuple):
        for one in value:
            _check(one, depth + 1)
    elif value is not None and not isinstance(value, float):
        raise WrongValueError("is to be plain data")


def _past_space(text: str, at: int) -> int:
    found = SPACE.match(text, at)
    return found.end() if found else at


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end
