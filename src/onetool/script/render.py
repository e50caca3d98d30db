"""A value as text, for a model or a person: text as it is, data as YAML that is flow inside and block outside.

    - {name: time.now, calls: 3}
    - {name: fs.read_file, calls: 12}

Flow style is never more than two levels deep and stays on one line of a readable length; whatever is more becomes
block style. What is written here is read back as the same data, by readers of YAML 1.1 and of 1.2.
"""

from typing import Any

from onetool.core.errors import OneToolError
from onetool.script.simple import simple
from onetool.script.yaml_scalars import SCALARS, literal, quoted, text_of

MOST_BYTES = 16 * 1024 * 1024  # of data, where nobody says: a few seconds, if it was made to be endless
DEEPEST = 64
LEVELS = 2  # of flow style
LIST_WIDTH = 120
OBJECT_WIDTH = 400
LONGEST_KEY = 1_000  # YAML takes no more than 1024 characters before the colon
SHORT = 40  # characters of a text with line breaks that may stand between others
_KEPT = 64  # a text no longer than this is likely to come again …
_MOST_KEPT = 4_096  # … and this many are worth remembering


class TooLarge(OneToolError, ValueError):  # noqa: N818 - nothing is wrong with the value
    """The text would be longer than asked for, or the value is nested too deep (or holds itself)."""


def render(value: Any, most_bytes: int | None = None) -> str:
    """The value as text of at most so many bytes of UTF-8; TooLarge if that is not enough."""
    value = simple(value)
    is_text = type(value) is str
    most = most_bytes if most_bytes is not None else len(value) * 4 if is_text else MOST_BYTES
    text = value if is_text else _Writer(most).write(value)
    if len(text) > most or (not text.isascii() and len(text.encode("utf-8", "surrogatepass")) > most):
        raise _too_large(most)
    return text


class _Writer:
    """Writes one value, line by line, and stops when there is no room: a small value may have no end of parts."""

    def __init__(self, room: int) -> None:
        self._most = self._room = room
        self._lines: list[str] = []
        self._known: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        self._open = -1  # the line whose line break belongs to a text

    def write(self, value: Any) -> str:
        text = self._inline(value, LEVELS)
        if text is not None:
            return text
        self._block(value, "", "", 1)
        end = "\n" if self._open == len(self._lines) else ""
        return "\n".join(self._lines) + end

    def _block(self, value: Any, lead: str, pad: str, depth: int) -> None:
        """An object or a list in block style; `lead` is what its first line begins with, `pad` the others."""
        if depth > DEEPEST:
            raise TooLarge(f"the value is nested more than {DEEPEST} levels deep, or holds itself")
        inner = f"{pad}  "
        if type(value) is list:
            for part in value:
                self._part(f"{lead}-", part, inner, depth, compact=True)
                lead = pad
            return
        for key, part in value.items():
            name = self._key(key)
            if len(name) > LONGEST_KEY:
                self._line(f"{lead}? {name}")
                lead, name = pad, ""
            self._part(f"{lead}{name}:", part, inner, depth, compact=False)
            lead = pad

    def _part(self, head: str, part: Any, inner: str, depth: int, compact: bool) -> None:
        """What stands after a dash or a colon: on the same line, or below."""
        part = simple(part)
        text = self._inline(part, LEVELS)
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
        """A text that is long or has several lines."""
        if len(text) > self._room:
            raise _too_large(self._most)
        mark = literal(text)
        if mark is None:
            self._line(f"{head} {text_of(text)}")
            return
        self._line(f"{head} {mark}")
        for line in text.removesuffix("\n").split("\n"):
            self._line(f"{inner}{line}" if line else "")
        if mark == "|":
            self._open = len(self._lines)

    def _line(self, line: str) -> None:
        self._room -= len(line) + 1
        if self._room < -1:  # the last line has no break after it
            raise _too_large(self._most)
        self._lines.append(line)

    def _inline(self, value: Any, levels: int) -> str | None:
        """The value on one line, with so many levels of flow style; None where that can't be, or can't be read."""
        kind = type(value)
        if kind is str:
            return self._known.get(value) or self._short(value)
        if scalar := SCALARS.get(kind):
            return scalar(value)
        if kind is dict:
            return self._object(value, levels - 1) if levels else None
        if kind is list:
            return self._list(value, levels - 1) if levels else None
        return self._inline(simple(value), levels)

    def _short(self, text: str) -> str | None:
        if len(text) > OBJECT_WIDTH or ("\n" in text and len(text) > SHORT):
            return None
        written = text_of(text)
        if len(text) <= _KEPT and len(self._known) < _MOST_KEPT:
            self._known[text] = written
        return written

    def _object(self, value: dict[Any, Any], levels: int) -> str | None:
        if len(value) > OBJECT_WIDTH // 4:
            return None
        parts: list[str] = []
        for key, part in value.items():
            scalar = SCALARS.get(type(part))
            text = scalar(part) if scalar else self._inline(part, levels)
            if text is None:
                return None
            parts.append(f"{self._keys.get(key) or self._key(key)}: {text}")
        line = ", ".join(parts)
        return f"{{{line}}}" if len(line) <= OBJECT_WIDTH else None

    def _list(self, value: list[Any], levels: int) -> str | None:
        if len(value) > LIST_WIDTH // 2:
            return None
        parts: list[str] = []
        for part in value:
            part = simple(part)
            text = None if type(part) is dict else self._inline(part, levels)  # objects have a line each
            if text is None:
                return None
            parts.append(text)
        line = ", ".join(parts)
        return f"[{line}]" if len(line) <= LIST_WIDTH else None

    def _key(self, key: Any) -> str:
        """A key. A text with a colon is quoted: it would be hard to see where the key ends."""
        if type(key) is not str:
            return self._inline(key, LEVELS) or quoted(f"<{type(key).__name__}>")
        text = quoted(key) if ":" in key else text_of(key)
        if len(text) <= _KEPT and len(self._keys) < _MOST_KEPT:
            self._keys[key] = text
        return text


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"the text has more than {most:,} bytes")
