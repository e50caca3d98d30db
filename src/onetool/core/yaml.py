"""Reads YAML as plain data with the line of every value, within bounds.

Unquoted scalars follow the core schema of YAML 1.2: `no`, `010`, `1:30` and `2026-11-15` are strings. The parser's
events are processed without recursion. Aliases count with their whole content and depth each time, so that alias
bombs are refused before anything traverses them.
"""

import re
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any, NamedTuple, cast

import msgspec
import yaml

MAX_DIGITS = 1000  # nobody writes longer numbers, and they cost time everywhere
MAX_PATHS = 64 * 1024 * 1024  # characters of the paths of all values: long keys count for each value below them

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("null", "Null", "NULL", "~", ""), None),
}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z|0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?\Z")
_SPECIAL = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z")
_QUOTED_WORD = re.compile(r"'[^' ,]{2,}'")  # in messages of the parser: it may be a part of a password
_PLAIN_KEY = re.compile(r"[\w-]+\Z")
_TEXT_TAGS = (None, "!", "tag:yaml.org,2002:str")
_TYPE_TAGS: dict[str, tuple[type, ...]] = {
    "tag:yaml.org,2002:int": (int,),
    "tag:yaml.org,2002:float": (float, int),
    "tag:yaml.org,2002:bool": (bool,),
    "tag:yaml.org,2002:null": (type(None),),
}
_COLLECTION_TAGS = (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_MERGE = "<<"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Repair = Callable[[str, int], str | None]
"""Returns the text with the notation repaired at which the parser stopped; None if it can't be."""


class YamlError(Exception):
    """The text can't be read. The message never quotes more than one character, since the text may contain secrets."""

    def __init__(self, message: str, line: int = 1, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.hint = hint


class KeyProblem(msgspec.Struct, frozen=True):
    """A key that is set twice, or is not a string. The value is still read."""

    path: str
    line: int
    message: str
    hint: str


class YamlDocument(msgspec.Struct):
    """The data of a document. `lines` has the line of every value, by its path: `tools[2].name`."""

    data: Any = None
    lines: dict[str, int] = {}
    problems: list[KeyProblem] = []


def plain_value(text: str) -> str | int | float | bool | None:
    """Return the value of an unquoted scalar. Raises ValueError for a whole number with too many digits."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _INTEGER.match(text):
        if len(text) > MAX_DIGITS:
            raise ValueError("too many digits")
        return int(text, 0)
    if _FLOAT.match(text):
        return float(text)
    if _SPECIAL.match(text):
        return float(text.replace(".", ""))
    return text


@lru_cache(4096)
def step(key: str) -> str:
    """Return the step of a path to this key: `.name`, or `["odd name"]`."""
    if _PLAIN_KEY.match(key):
        return f".{key}"
    return '["' + key.replace("\\", "\\\\").replace('"', '\\"') + '"]'


def child(path: str, key: str) -> str:
    """Return the path of a key in the mapping at this path."""
    return path + step(key) if path else step(key).removeprefix(".")


def read(
    text: str,
    *,
    max_depth: int = 100,
    max_values: int = 100_000,
    with_lines: bool = True,
    text_keys: Collection[str] = (),
    repair: Repair | None = None,
    repairs: int = 0,
    parser: Any = None,
) -> YamlDocument:
    """Read one document. Raises YamlError.

    Unquoted values of `text_keys` near the root stay strings: version `1.10` is not the number 1.1. After a syntax
    error that `repair` mends, the text is read again, at most `repairs` times.
    """
    for chances in range(repairs, -1, -1):
        builder = _Builder(max_depth, max_values, with_lines, text_keys)
        loader: Any = None
        try:
            loader = (parser or _LOADER)(text)
            return builder.read(loader)
        except yaml.MarkedYAMLError as error:
            mark: Any = error.problem_mark
            better = repair(text, mark.index) if repair and chances and mark else None
            if better is None:
                raise _syntax_error(error, text) from None
            text = better
        except (yaml.YAMLError, ValueError, OverflowError):  # an invalid character, or an escape for none
            raise YamlError("an invalid character or number", builder.line) from None
        finally:
            if loader is not None:
                loader.dispose()
    raise AssertionError("unreachable")


class _Open:
    """An unfinished mapping or list. `line` is that of the current key."""

    __slots__ = ("anchor", "depth", "is_mapping", "key", "line", "merged", "path", "paths_before", "size", "value")

    def __init__(self, value: Any, anchor: str | None, path: str, paths_before: int) -> None:
        self.value = value
        self.is_mapping = type(value) is dict
        self.anchor = anchor
        self.path = path
        self.paths_before = paths_before
        self.key: str | None = None
        self.line = 0
        self.size = 1
        self.depth = 1
        self.merged: list[dict[str, Any]] = []


class _Anchor(NamedTuple):
    """A value that aliases repeat."""

    value: Any
    size: int = 1
    depth: int = 0
    paths: int = 0  # characters of the paths below it


class _Builder:
    def __init__(self, max_depth: int, max_values: int, with_lines: bool, text_keys: Collection[str]) -> None:
        self.max_depth = max_depth
        self.max_values = max_values
        self.with_lines = with_lines
        self.text_keys = text_keys
        self.line = 1
        self.document = YamlDocument(lines={}, problems=[])
        self.open: list[_Open] = []
        self.paths = 0  # characters
        self.anchors: dict[str, _Anchor] = {}

    def read(self, loader: Any) -> YamlDocument:
        documents = 0
        while True:
            event = loader.get_event()
            kind: Any = type(event)  # pyright: ignore[reportUnknownVariableType]
            self.line = event.start_mark.line + 1
            if kind is yaml.ScalarEvent:
                self._scalar(event)
            elif kind is yaml.MappingStartEvent:
                self._begin({}, event)
            elif kind is yaml.SequenceStartEvent:
                self._begin([], event)
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                self._end()
            elif kind is yaml.AliasEvent:
                self._alias(event.anchor)
            elif kind is yaml.DocumentStartEvent:
                documents += 1
                if documents > 1:
                    raise self._error("a second document begins here", "one file is one document: remove the ---")
            elif kind is yaml.StreamEndEvent:
                return self.document

    def _error(self, message: str, hint: str | None = None) -> YamlError:
        return YamlError(message, self.line, hint)

    def _scalar(self, event: Any) -> None:
        text: str = event.value
        if not text.isascii():
            text.encode()  # raises ValueError for a lone surrogate, which the parser in Python allows
        above = self.open[-1] if self.open else None
        if above is not None and above.key is None and above.is_mapping:
            self._key(above, text, event)
            return
        kept = above is not None and above.key in self.text_keys and len(self.open) <= 2
        value: Any = text
        if event.implicit[0] or event.tag in _TYPE_TAGS:
            try:
                value = text if kept else plain_value(text)
            except ValueError:
                raise self._error(
                    f"a number of {len(text)} digits is too long", "quote it to make it a string"
                ) from None
            if event.tag in _TYPE_TAGS and type(value) not in _TYPE_TAGS[event.tag]:
                raise self._error("the value does not match its tag", "remove the tag")
        elif event.tag not in _TEXT_TAGS:
            raise self._error("unknown tag after '!'", "remove the tag, or quote a string that begins with '!'")
        if event.anchor is not None:
            self.anchors[event.anchor] = _Anchor(value)
        if self.with_lines:
            self._place(above)
        self._put(value, 1, 0)

    def _key(self, above: _Open, text: str, event: Any) -> None:
        """Take a scalar as the key of the next value."""
        if event.anchor is not None:
            self.anchors[event.anchor] = _Anchor(text)
        if event.implicit[0]:
            if text == _MERGE:
                above.key, above.line = _MERGE, 0
                return
            if text in _WORDS or text[0] in "+-.0123456789":
                self._check_key(above.path, text)
        self._named(above, text)

    def _check_key(self, path: str, text: str) -> None:
        try:
            is_string = isinstance(plain_value(text), str)
        except ValueError:
            is_string = False
        if not is_string:
            message = f"a key must be a string, but {text[:40] or 'nothing'} is not"
            self.document.problems.append(KeyProblem(path, self.line, message, f'quote it: "{text[:40]}"'))

    def _named(self, above: _Open, key: str) -> None:
        above.key, above.line = key, self.line
        if key in above.value:
            path = child(above.path, key)
            first = self.document.lines.get(path, self.line)
            message = f"this key is set twice, in line {first} and in line {self.line}"
            self.document.problems.append(KeyProblem(path, self.line, message, "remove one of them"))

    def _begin(self, value: dict[str, Any] | list[Any], event: Any) -> None:
        self._check_depth(1)
        above = self.open[-1] if self.open else None
        if above is not None and above.key is None and above.is_mapping:
            raise self._error("a key must be a string, not a list or a mapping", "write a string before the ':'")
        if event.tag not in _COLLECTION_TAGS:
            raise self._error("unknown tag after '!'", "remove the tag, or quote a string that begins with '!'")
        path = self._place(above) if self.with_lines else ""
        self.open.append(_Open(value, event.anchor, path, self.paths))

    def _check_depth(self, depth: int) -> None:
        if len(self.open) + depth > self.max_depth:
            raise self._error(f"nested more than {self.max_depth} levels deep")

    def _place(self, above: _Open | None) -> str:
        """Return the path of the next value, and note its line."""
        if above is None:
            path, line = "", self.line
        elif above.key is not None:
            path, line = child(above.path, above.key), above.line or self.line
        else:
            path, line = f"{above.path}[{len(above.value)}]", self.line
        self.paths += len(path)
        if self.paths > MAX_PATHS:
            raise self._error("the keys above this value are too long", "write shorter keys")
        self.document.lines.setdefault(path, line)
        return path

    def _end(self) -> None:
        done = self.open.pop()
        for source in done.merged:  # the mapping's own keys win
            for key, value in source.items():
                done.value.setdefault(key, value)
        if done.anchor is not None:
            paths = self.paths - done.paths_before
            self.anchors[done.anchor] = _Anchor(done.value, done.size, done.depth, paths)
        self._put(done.value, done.size, done.depth)

    def _alias(self, anchor: str) -> None:
        if anchor not in self.anchors:
            hint = "quote a string that begins with '*'"
            raise self._error("'*' refers to an anchor that does not exist above it", hint)
        value, size, depth, paths = self.anchors[anchor]
        above = self.open[-1] if self.open else None
        if above is not None and above.key is None and above.is_mapping:
            if not isinstance(value, str):
                raise self._error("a key must be a string, not a list or a mapping", "write a string before the ':'")
            self._named(above, value)
            return
        self._check_depth(depth)
        if self.with_lines:
            self.paths += paths + (size - 1) * len(self._place(above))
        self._put(value, size, depth)

    def _put(self, value: Any, size: int, depth: int) -> None:
        if not self.open:
            self.document.data = value
            return
        above = self.open[-1]
        above.size += size
        above.depth = max(above.depth, depth + 1)
        if above.size > self.max_values:
            raise self._error(f"more than {self.max_values:,} values, counting what aliases repeat")
        if not above.is_mapping:
            above.value.append(value)
            return
        key, above.key = above.key or "", None
        if key == _MERGE and not above.line:
            sources = cast(list[Any], value if isinstance(value, list) else [value])
            if not all(isinstance(one, dict) for one in sources):
                raise self._error("'<<' can merge only mappings", 'quote the key: "<<"')
            above.merged += sources
        else:
            above.value.setdefault(key, value)


def _syntax_error(error: yaml.MarkedYAMLError, text: str) -> YamlError:
    """Return the parser's reason, without words of the text."""
    mark: Any = error.problem_mark
    begin: Any = error.context_mark
    line = min(mark.line, len(text.splitlines()) - 1) + 1 if mark else 1
    reason = error.problem or "not YAML"
    if error.context:
        since = f" of line {begin.line + 1}" if begin and begin.line + 1 < line else ""
        reason = f"{error.context}{since}: {reason}"
    hint = "check the indentation, and quote strings with special characters"
    if mark and "\t" in text[mark.index : mark.index + 1]:
        hint = "indent with spaces instead of a tab"
    reason = _QUOTED_WORD.sub("'…'", reason)
    return YamlError(f"{reason}, in column {mark.column + 1}" if mark else reason, max(line, 1), hint)
