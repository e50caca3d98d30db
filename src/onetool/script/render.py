"""Renders the results of runs: a value as text for a model or a user, and the reply with all printed output.

Text is unchanged, data becomes YAML:

    - {name: time.now, calls: 3}
    - {name: fs.read_file, calls: 12}

Flow style is at most two levels deep and stays on one line, which is short except in lists of objects of `ot`;
everything else is in block style. Parsers of YAML 1.1 and
1.2 read the same data back: a string is unquoted only if no parser reads it as another type (in YAML 1.1 `no` is false,
`010` is eight and `1:30` is ninety).

A reply also has the value as structured data, for clients that accept it. Text that is too long to send is stored; the
reply then has its handle, its size, its beginning and the call that reads more.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import islice
from json.encoder import encode_basestring
from math import isfinite
from types import NoneType
from typing import Any

import msgspec

from onetool.core.call import ToolError
from onetool.core.errors import OneToolError, ToolFailure
from onetool.core.inferred_schema import is_name, schema_of
from onetool.core.json_data import plain
from onetool.core.type_names import type_name, type_with_fields
from onetool.script.run_result import RunResult
from onetool.services.results import Page, StoredResult, is_page, sendable_page

# Base class methods: those of a subclass could return anything.
_BASES = {str: str.__str__, int: int.__int__, float: float.__float__, bytes: bytes.__bytes__, list: list, tuple: list}
_AS_THEY_ARE = frozenset((str, int, float, bool, bytes, list, dict, NoneType))


def yaml_type(value: Any) -> Any:
    """Return one level of the value as a plain YAML type. Its parts are converted later."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if isinstance(value, Enum):
        return yaml_type(value.value)
    for base, plainly in _BASES.items():
        if isinstance(value, base):
            return plainly(value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        try:
            return sorted(value)  # deterministic
        except TypeError:  # members that can't be compared
            return list(value)
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    try:
        return plain(value)
    except ToolFailure:
        return f"<{kind.__name__}>"


# Scalars

# Letters first, then also punctuation without meaning inside. A colon needs a letter after it, `#` no space before it.
_INSIDE = r"[A-Za-z0-9_ ./()+@$%^*!;<>=~&'\"|\\`\w-]*+"
_PLAIN = re.compile(rf"[^\W\d]{_INSIDE}(?:(?<! )(?::(?=[\w/:\\])|#){_INSIDE})*+(?<! )")
_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
_MAX_WORD = 5
# Characters that YAML does not allow unescaped, or reads as line breaks.
_UNPRINTABLE = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_HALF = re.compile(r"[\ud800-\udfff]")
_NOT_LITERAL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def yaml_text(text: str) -> str:
    """Return a string, quoted if necessary."""
    if _PLAIN.fullmatch(text) and (len(text) > _MAX_WORD or text.lower() not in _WORDS):
        return text
    return yaml_quoted(text)


def yaml_quoted(text: str) -> str:
    """Return a string in double quotes: a JSON string is a YAML string, except for a few characters.

    YAML can't represent lone surrogates; they are replaced by U+FFFD.
    """
    line = encode_basestring(text)
    if line.isascii() and "\x7f" not in line:
        return line
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", _HALF.sub("\ufffd", line))


def literal_block_mark(text: str) -> str | None:
    """Return the block indicator of a string (`|`, or `|-` without a final break), or None if it can't be a block.

    A string that begins with a space, or ends with several breaks, would need indicators that are hard to read.
    """
    if "\n" not in text or text[0] in " \t\n" or text.endswith("\n\n") or _NOT_LITERAL.search(text):
        return None
    return "|" if text.endswith("\n") else "|-"


def _int(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # thousands of digits: Python writes them only in hexadecimal
        return hex(value)


def _float(value: float) -> str:
    """Return a float, always with a decimal point: in YAML 1.1 `1e+16` is text."""
    text = repr(value)
    if "." in text:
        return text
    return text.replace("e", ".0e") if isfinite(value) else text.replace("nan", ".nan").replace("inf", ".inf")


SCALARS: dict[type, Callable[[Any], str]] = {
    int: _int,
    float: _float,
    bool: lambda value: "true" if value else "false",
    NoneType: lambda _: "null",
    bytes: lambda value: f'!!binary "{b64encode(value).decode()}"',
}
"""The writers of values other than text."""


# Rendering: text unchanged, data as YAML

MAX_BYTES = 16 * 1024 * 1024  # of data, if no limit is given: a few seconds for malicious data
MAX_DEPTH = 64
LEVELS = 2  # of flow style
LIST_WIDTH = 120
OBJECT_WIDTH = 400
MAX_KEY = 1_000  # YAML allows at most 1024 characters before the colon
SHORT = 40  # characters of a string with line breaks that may be inline
_CACHED_LENGTH = 64  # strings up to this length are likely to recur
_MAX_CACHED = 4_096


class RenderTooLargeError(OneToolError, ValueError):
    """The text would be too long, or the value is nested too deep (or contains itself)."""


def render(value: Any, max_bytes: int | None = None, flow: bool = False) -> str:
    """Return the value as text of at most `max_bytes` in UTF-8. Raise RenderTooLargeError if it doesn't fit.

    With `flow`, objects in lists are on one line each, also long ones.
    """
    value = yaml_type(value)
    is_text, scalar = type(value) is str, SCALARS.get(type(value))
    limit = max_bytes if max_bytes is not None else len(value) * 4 if is_text else MAX_BYTES
    text = value if is_text else scalar(value) if scalar else _Writer(limit, flow).write(value)
    if len(text) > limit or (not text.isascii() and len(text.encode("utf-8", "surrogatepass")) > limit):
        raise _too_large_error(limit)
    return text


class _Writer:
    """A writer for one value, line by line. Stops when there is no room: a small value may expand endlessly."""

    def __init__(self, room: int, flow: bool) -> None:
        self._limit = self._room = room
        self._flow = flow
        self._is_wide = False  # in an object that is written on one line, also if that is long
        self._lines: list[str] = []
        self._known: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        self._open = -1  # the line whose line break belongs to a string

    def write(self, value: Any) -> str:
        text = self._inline(value, LEVELS)
        if text is not None:
            return text
        self._block(value, "", "", 1)
        end = "\n" if self._open == len(self._lines) else ""
        return "\n".join(self._lines) + end

    def _block(self, value: Any, lead: str, pad: str, depth: int) -> None:
        """Write an object or a list in block style; `lead` begins its first line, `pad` the others."""
        if depth > MAX_DEPTH:
            raise RenderTooLargeError(f"the value is nested more than {MAX_DEPTH} levels deep, or contains itself")
        inner = f"{pad}  "
        if type(value) is list:
            for part in value:
                self._part(f"{lead}-", part, inner, depth, compact=True)
                lead = pad
            return
        for key, part in value.items():
            name = self._key(key)
            if len(name) > MAX_KEY:
                self._line(f"{lead}? {name}")
                lead, name = pad, ""
            self._part(f"{lead}{name}:", part, inner, depth, compact=False)
            lead = pad

    def _part(self, head: str, part: Any, inner: str, depth: int, compact: bool) -> None:
        """Write the value after a dash or a colon: on the same line, or below."""
        part = yaml_type(part)
        self._is_wide = self._flow and compact and type(part) is dict
        text = self._inline(part, LEVELS)
        self._is_wide = False
        if text is not None:
            self._line(f"{head} {text}")
        elif type(part) is str:
            self._text(head, part, inner)
        elif compact:
            self._block(part, f"{head} ", inner, depth + 1)
        else:
            self._line(head)
            self._block(part, inner, inner, depth + 1)

    def _text(self, head: str, text: str, inner: str) -> None:
        """Write a string that is long or has several lines."""
        if len(text) > self._room:
            raise _too_large_error(self._limit)
        mark = literal_block_mark(text)
        if mark is None:
            self._line(f"{head} {yaml_text(text)}")
            return
        self._line(f"{head} {mark}")
        for line in text.removesuffix("\n").split("\n"):
            self._line(f"{inner}{line}" if line else "")
        if mark == "|":
            self._open = len(self._lines)

    def _line(self, line: str) -> None:
        self._room -= len(line) + 1
        if self._room < -1:  # the last line has no break
            raise _too_large_error(self._limit)
        self._lines.append(line)

    def _inline(self, value: Any, levels: int) -> str | None:
        """Return the value on one line with this many levels of flow style; None if that is impossible or
        unreadable.
        """
        kind = type(value)
        if kind is str:
            if known := self._known.get(value):
                return known
            if not self._is_wide and (len(value) > OBJECT_WIDTH or ("\n" in value and len(value) > SHORT)):
                return None
            text = yaml_text(value)
            if len(value) <= _CACHED_LENGTH and len(self._known) < _MAX_CACHED:
                self._known[value] = text
            return text
        if scalar := SCALARS.get(kind):
            return scalar(value)
        if kind is dict:
            return self._object(value, levels - 1) if levels else None
        if kind is list:
            return self._list(value, levels - 1) if levels else None
        return self._inline(yaml_type(value), levels)

    def _object(self, value: dict[Any, Any], levels: int) -> str | None:
        if len(value) > OBJECT_WIDTH // 4 and not self._is_wide:
            return None
        parts: list[str] = []
        for key, part in value.items():
            scalar = SCALARS.get(type(part))
            text = scalar(part) if scalar else self._inline(part, levels)
            if text is None:
                return None
            name = self._keys.get(key) or self._key(key)
            if len(name) > MAX_KEY:
                return None
            parts.append(f"{name}: {text}")
        line = ", ".join(parts)
        return f"{{{line}}}" if len(line) <= OBJECT_WIDTH or self._is_wide else None

    def _list(self, value: list[Any], levels: int) -> str | None:
        if len(value) > LIST_WIDTH // 2 and not self._is_wide:
            return None
        parts: list[str] = []
        for part in value:
            part = yaml_type(part)
            text = None if type(part) is dict else self._inline(part, levels)  # each object has its own line
            if text is None:
                return None
            parts.append(text)
        line = ", ".join(parts)
        return f"[{line}]" if len(line) <= LIST_WIDTH or self._is_wide else None

    def _key(self, key: Any) -> str:
        """Return a key. A key with a colon is quoted, because it would be hard to see where the key ends."""
        if type(key) is not str:
            return self._inline(key, LEVELS) or yaml_quoted(f"<{type(key).__name__}>")
        text = yaml_quoted(key) if ":" in key else yaml_text(key)
        if len(text) <= _CACHED_LENGTH and len(self._keys) < _MAX_CACHED:
            self._keys[key] = text
        return text


def _too_large_error(limit: int) -> RenderTooLargeError:
    return RenderTooLargeError(f"the text has more than {limit:,} bytes")


# The reply to a run

ReadOn = Callable[[str, int], str]
"""Returns the call that continues to read a stored text from a line."""

StoreText = Callable[..., StoredResult]
"""Stores text, and the value it represents if that is different. Raises ToolFailure."""


class RunReply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply: `text` for reading, `structured` for clients that accept data (the value, or where it is stored)."""

    text: str
    structured: Any = None
    preview: str = ""  # the beginning of a stored text
    is_error: bool = False
    stored: StoredResult | None = None  # the handle of the stored text, if any


def in_code(handle: str, offset: int) -> str:
    """Return the code that reads more."""
    return f'ot.result(handle="{handle}", offset={offset})'


def run_reply(
    result: RunResult,
    inline_bytes: int,
    store: StoreText | None,
    read_on: ReadOn,
    preview_bytes: int,
) -> RunReply:
    """Return the reply to a run. `store` keeps a long text; without it nothing is cut."""
    failed = "" if result.error_with_calls is None else error_text(result.error_with_calls)
    shown = "" if result.data is None else render(result.data, flow=result.flow)
    text = _joined(result.printed, failed or shown)
    size = 0 if store is None else len(text.encode(errors="replace"))
    if store is None or size <= inline_bytes:
        return RunReply(text=text, structured=result.data, is_error=bool(failed))
    if page := sendable(result.data, size, inline_bytes):
        return run_reply(msgspec.structs.replace(result, data=page), inline_bytes, store, read_on, preview_bytes)
    try:
        whole = stored_reply(text, store(text, result.data), result.data, read_on, preview_bytes)
    except ToolFailure as failure:
        beginning = f"{_beginning(text, preview_bytes)[0]}\n{not_stored_text(failure)}"
        return RunReply(text=_joined(beginning, failed), is_error=True)
    return msgspec.structs.replace(whole, text=_joined(whole.text, failed), is_error=True) if failed else whole


def sendable(value: Any, size: int, inline_bytes: int) -> Page | None:
    """Return the part of a stored result's page to send, if the page has too many bytes.

    None if the page fits, or the value is not a page.
    """
    if size <= inline_bytes or not is_page(value):
        return None
    shorter = sendable_page(value, inline_bytes, size)
    return None if shorter is value else shorter


def error_text(error: ToolError) -> str:
    """Return an error in a few lines: what, where, and how to fix it."""
    has_prefix = error.message.lower().startswith(("error:", "error "))  # servers may write this themselves
    return "\n".join(
        (error.message if has_prefix else f"Error: {error.message}", *(f"  {hint}" for hint in error.hints))
    )


def not_stored_text(failure: ToolFailure) -> str:
    """Return why a large result is lost."""
    return "\n".join((f"Error ({failure.reason}): {failure}", *(f"  {hint}" for hint in failure.hints)))


def _joined(printed: str, value: str) -> str:
    if not printed:
        return value
    return f"{printed.removesuffix(chr(10))}\n{value}" if value else printed.removesuffix("\n")


def stored_reply(text: str, stored: StoredResult, value: Any, read_on: ReadOn, preview_bytes: int) -> RunReply:
    """Return the reply for a stored text: its handle, its beginning, and how to read more.

    `value` is the data in the text; the preview begins with its shape.
    """
    shape = f"Shape: {shape_text(value)}\n" if isinstance(value, dict | list) else ""
    beginning, whole_lines = _beginning(text, preview_bytes - len(shape.encode()))
    call = read_on(stored.handle, whole_lines + 1)
    facts = {"handle": stored.handle, "size": stored.size, "lines": stored.lines}
    preview = f"{shape}{beginning}"
    load = f'\nCompute with all of it in code: ot.load("{stored.handle}")' if read_on is in_code else ""
    return RunReply(
        text=f"The result is large and was stored. {render(facts)}\nIt begins:\n{preview}\nRead on with: {call}{load}",
        structured={**facts, "next": call},
        preview=preview,
        stored=stored,
    )


def _beginning(text: str, max_bytes: int) -> tuple[str, int]:
    """Return the first lines that fit, and how many of them are complete."""
    data = text[: max_bytes + 1].encode("utf-8", "replace")
    cut = data[:max_bytes].decode(errors="ignore")
    if len(data) <= max_bytes:
        return text, text.count("\n") + 1
    lines = cut.split("\n")[:-1]
    return ("\n".join(lines), len(lines)) if lines else (f"{cut}…", 0)


MAX_COUNTED = 8  # lists in an object whose lengths are shown


def shape_text(value: dict[str, Any] | list[Any]) -> str:
    """Return the type of data and the lengths of its lists: `list[{id: int, name: str}], 2,000 items`."""
    schema = schema_of(value)
    counts = [f"{len(value):,} items"]
    if isinstance(value, dict):
        lists = ((key, part) for key, part in value.items() if isinstance(part, list) and is_name(key))
        counts = [f"{key}: {len(part):,} items" for key, part in islice(lists, MAX_COUNTED)]
        counts = counts or [f"{len(value):,} keys"]
    return ", ".join([type_with_fields(schema, schema) or type_name(schema), *counts])
