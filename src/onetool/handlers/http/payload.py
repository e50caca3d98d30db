"""The body of a template: JSON, a form, or a text. A value in it stays a value, whatever characters it has.

What it is: a form where Content-Type says so, else JSON where it is data, or a text that reads as a JSON object or
array, with `${name}` inside of strings or bare. With a type like application/x-ndjson it can be several, one a line.
Any other text has its values put in as they are; in XML, escaped.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from html import escape
from math import isfinite
from typing import Any, NamedTuple

import msgspec

from onetool.core.errors import BadArguments
from onetool.handlers.http.placeholders import Hole, TemplateError, Text, Values, read, refused_at
from onetool.handlers.http.pointers import below
from onetool.handlers.http.query import Pairs, named_pairs, written_pairs

POINTER = "/request/body"
FORM = "application/x-www-form-urlencoded"
JSON = "application/json"
LINES = "application/x-ndjson"
PLAIN = "text/plain; charset=utf-8"
RECORD = "\x1e"  # begins each text of application/json-seq

_ABSENT: Any = object()
_STRING_OR_HOLE = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|(?<!\$)\$+\{[^{}]{0,200}\}', re.DOTALL)

Make = Callable[[Values], Any]


class Payload(NamedTuple):
    """How a body is made; None is no body. `content_type` is for those who have not said it themselves."""

    content_type: str
    fill: Callable[[Values], bytes | None]
    holes: tuple[Hole, ...]


def payload(body: Any, content_type: str | None, arguments: Mapping[str, Any]) -> Payload | None:
    """Read a body. `arguments` are the argSchema's properties."""
    if body is None:
        return None
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind.startswith("multipart/"):
        raise TemplateError("multipart bodies can't be made of a template; send JSON or a form", POINTER)
    if kind == FORM:
        return _form(body, arguments)
    is_json = kind == JSON or kind.endswith("+json")
    if not isinstance(body, str):
        return _json(body, arguments)
    found = _json_in(body)
    if found is not _ABSENT and (is_json or isinstance(found, dict | list)) and not kind.endswith("xml"):
        return _json(found, arguments)
    if is_json:
        raise TemplateError("is no JSON, and Content-Type says it is", POINTER)
    if "json" in kind:
        return _lines(body, arguments)
    if not kind and _goes_on_after_json(body):
        how = "application/x-ndjson for one JSON text a line, or text/plain for a text with values put in as they are"
        raise TemplateError(f"is JSON with more after it: say what it is by a Content-Type, {how}", POINTER)
    return _text(body, kind, arguments)


def _form(body: Any, arguments: Collection[str]) -> Payload:
    if isinstance(body, str):
        text = read(body, arguments, POINTER)
        with refused_at(POINTER):
            pairs = written_pairs(text.marked, iter(text.holes))
    elif isinstance(body, dict):
        pairs = named_pairs(body, arguments, POINTER)
    else:
        raise TemplateError("a form is a text, a=1&b=2, or an object", POINTER)
    form = Pairs(pairs)
    return Payload(FORM, lambda values: form.fill(values).encode("ascii"), _holes(pair.holes for pair in pairs))


def _text(body: str, kind: str, arguments: Mapping[str, Any]) -> Payload:
    text = read(body, arguments, POINTER)
    if not kind and text.alone is not None and not _is_text(text.alone, arguments):
        return _json(body, arguments)
    put = _in_xml if kind.endswith("xml") else _as_it_is

    def fill(values: Values) -> bytes | None:
        if text.alone is not None and values.get(text.alone.name) is None:
            return None
        return text.fill_whole(values, put, "the body").encode()

    return Payload(PLAIN, fill, text.holes)


def _json(body: Any, arguments: Collection[str]) -> Payload:
    holes: list[Hole] = []
    make = _maker(body, arguments, POINTER, holes)
    if not holes:
        fixed = _encoded(make({}))
        return Payload(JSON, lambda values: fixed, ())

    def fill(values: Values) -> bytes | None:
        value = make(values)
        return None if value is _ABSENT else _encoded(value)

    return Payload(JSON, fill, tuple(holes))


def _lines(body: str, arguments: Collection[str]) -> Payload:
    """One JSON text a line. No value can end its line: JSON escapes that."""
    holes: list[Hole] = []
    makers: list[tuple[str, Make]] = []
    for number, line in enumerate(body.split("\n"), 1):
        mark = RECORD if line.startswith(RECORD) else ""
        text = line.removeprefix(mark).strip()
        found = _json_in(text) if text else _ABSENT
        if text and found is _ABSENT:
            raise TemplateError(f"is no JSON in line {number}, and Content-Type says that every line is", POINTER)
        makers.append((mark, _maker(found, arguments, POINTER, holes)))

    def fill(values: Values) -> bytes:
        made = [(mark, make(values)) for mark, make in makers]
        lines = [mark.encode() + _encoded(value) for mark, value in made if value is not _ABSENT]
        return b"\n".join(lines) + (b"\n" if body.endswith("\n") and lines else b"")

    return Payload(LINES, fill, tuple(holes))


def _maker(value: Any, arguments: Collection[str], pointer: str, holes: list[Hole]) -> Make:
    """How a value of the template is made in a call. Holes that are met on the way are added to the list."""
    if isinstance(value, str):
        return _text_maker(read(value, arguments, pointer), holes)
    before = len(holes)
    if isinstance(value, Mapping):
        made = _object_maker(value, arguments, pointer, holes)
    elif isinstance(value, list | tuple):
        made = _list_maker([_maker(item, arguments, below(pointer, at), holes) for at, item in enumerate(value)])
    else:
        return lambda values: value
    if len(holes) > before:
        return made
    fixed = made({})
    return lambda values: fixed


def _text_maker(text: Text, holes: list[Hole]) -> Make:
    holes += text.holes
    if not text.holes:
        literal = text.literal
        return lambda values: literal
    if (alone := text.alone) is not None:
        return lambda values: _whole(alone, values.get(alone.name, _ABSENT))

    def fill(values: Values) -> Any:
        filled = text.fill(values, _as_it_is)
        return _ABSENT if filled is None else filled

    return fill


def _object_maker(value: Mapping[str, Any], arguments: Collection[str], pointer: str, holes: list[Hole]) -> Make:
    members: list[tuple[Make, Make]] = []
    for name, item in value.items():
        place = below(pointer, name)
        key = read(name, arguments, place)
        holes += key.holes
        members.append((_key_maker(key), _maker(item, arguments, place, holes)))

    def fill(values: Values) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for make_key, make_item in members:
            key, item = make_key(values), make_item(values)
            if key is None or item is _ABSENT:
                continue
            if key in made:  # a value must not take the place of what the template says
                raise BadArguments(f"the body would have the member {key!r} twice")
            made[key] = item
        return made

    return fill


def _key_maker(key: Text) -> Make:
    if key.holes:
        return lambda values: key.fill(values, _as_it_is)
    literal = key.literal
    return lambda values: literal


def _list_maker(items: list[Make]) -> Make:
    return lambda values: [made for item in items if (made := item(values)) is not _ABSENT]


def _whole(hole: Hole, value: Any) -> Any:
    """A value in its own type."""
    if isinstance(value, float) and not isfinite(value):
        raise hole.bad("is no number that JSON has")
    return value


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, RecursionError, TypeError, ValueError, OverflowError):
        why = "half a character in it, too many digits, nested too deep, or no data at all"
        raise BadArguments(f"an argument can't be sent as JSON: {why}") from None


def _json_in(text: str) -> Any:
    """The JSON that a text is, once its bare placeholders are in quotes; _ABSENT when it is none."""
    try:
        return msgspec.json.decode(_quoted(text))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return _ABSENT


def _quoted(text: str) -> str:
    return _STRING_OR_HOLE.sub(lambda found: found[0] if found[0][0] == '"' else f'"{found[0]}"', text)


def _goes_on_after_json(text: str) -> bool:
    """Whether it begins with a JSON object or array that has a placeholder in it."""
    quoted = _quoted(text.lstrip())
    try:
        end = json.JSONDecoder().raw_decode(quoted)[1] if quoted[:1] in ("{", "[") else 0
    except (ValueError, RecursionError):
        return False
    return "${" in quoted[:end]


def _is_text(hole: Hole, arguments: Mapping[str, Any]) -> bool:
    schema = arguments.get(hole.name)
    return hole.is_secret or (isinstance(schema, Mapping) and schema.get("type") == "string")


def _as_it_is(hole: Hole, value: str) -> str:
    return value


def _in_xml(hole: Hole, value: str) -> str:
    return escape(value, quote=True)


def _holes(groups: Any) -> tuple[Hole, ...]:
    return tuple(hole for group in groups for hole in group)
