"""Path, query, form pairs and headers of a request template: each escapes the values that are put into it.

A value is one segment of a path or a part of one, one value of a pair, or a part of one header line, whatever
characters it has. A pair or a header is left out when one of its values is absent.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, unquote_plus

import msgspec

from onetool.core.errors import BadArguments
from onetool.core.redaction import sounds_secret
from onetool.http.definition import DEFAULT_ENCODING, MAX_REQUEST_BYTES, Encoding, below
from onetool.http.placeholders import Placeholder, TemplateError, TemplateText, Values, as_text, parse_text, unmarked
from onetool.http.url import escape_unsafe

_UNRESERVED = re.compile(r"[A-Za-z0-9_.~-]*")


def escaped(placeholder: Placeholder, value: str) -> str:
    """A value for a path or a query. All but letters, digits, `-`, `.`, `_` and `~` becomes %XX."""
    return value if _UNRESERVED.fullmatch(value) else quote(value, safe="")


class FilledBody(NamedTuple):
    """The body of one call. A Content-Type header of the template overrides `content_type`."""

    content_type: str
    data: bytes


class PathTemplate:
    """What stands before the `?`: fixed texts, and segments with placeholders."""

    __slots__ = ("fixed", "parts")

    def __init__(self, segments: list[TemplateText]) -> None:
        parts: list[str | TemplateText] = []
        for number, segment in enumerate(segments):
            slash = "/" if number else ""
            cleaned = segment.changed(escape_unsafe)
            if cleaned.placeholders:
                parts += [slash, cleaned]
            else:
                parts.append(slash + cleaned.literal)
        self.parts = tuple(parts)
        self.fixed = None if any(isinstance(part, TemplateText) for part in parts) else "".join(map(str, parts))

    def fill(self, values: Values) -> str:
        if self.fixed is not None:
            return self.fixed
        return "".join([part if isinstance(part, str) else _segment(part, values) for part in self.parts])


def _segment(segment: TemplateText, values: Values) -> str:
    filled = segment.fill_whole(values, _not_empty, "the URL's path")
    # There is no way to write a segment of dots that is not taken for a step up or none; `..;x` is one to some servers.
    if filled[0] in ".%" and unquote(filled.partition(";")[0]) in (".", ".."):
        raise segment.placeholders[0].bad("can't make a segment of the URL's path that is only `.` or `..`")
    return filled


def _not_empty(placeholder: Placeholder, value: str) -> str:
    if not value:
        raise placeholder.bad("is empty: the URL would be that of something else")
    return escaped(placeholder, value)


# Pairs of names and values with placeholders, `a=${x}&b=1`: the query of a URL, or a form as the body.


def field_values(
    name: str, value: Any, encoding: Encoding, placeholder: Placeholder, escape: Callable[[str], str] = str
) -> list[tuple[str, str]]:
    """Write a value as fields of a form, each with its name. `escape` is applied to the names of members."""
    if "json" in (encoding.content_type or ""):
        return [(name, json_bytes(value).decode())]
    if not isinstance(value, list | tuple | dict):
        return [] if value is None else [(name, as_text(placeholder, value))]
    found = _leaves(value, placeholder, len(name))
    is_object = isinstance(value, dict)
    if (separator := encoding.separator) is not None:
        if any(len(path) > 1 for path, _ in found):
            raise placeholder.bad(f"is nested, which the style {encoding.style or 'form'} can't write")
        texts = [part for path, text in found for part in ((*path, text) if is_object else (text,))]
        return [(name, separator.join(texts))] if texts else []
    if is_object and encoding.style == "form":
        return [(escape(path[0] + _in_brackets(path[1:])), text) for path, text in found]
    if not is_object and encoding.style != "deepObject" and all(len(path) == 1 for path, _ in found):
        return [(name, text) for _, text in found]
    return [(name + escape(_in_brackets(path)), text) for path, text in found]


def _leaves(value: Any, placeholder: Placeholder, size: int) -> list[tuple[tuple[str, ...], str]]:
    """Return the plain values inside, each with its path. Null can't be written, and is left out.

    A name is repeated for all that is below it, so that a small value can be very large when it is written.
    """
    found: list[tuple[tuple[str, ...], str]] = []
    waiting: list[tuple[tuple[str, ...], int, Any]] = [((), size, value)]
    total = 0
    while waiting:
        path, size, one = waiting.pop()
        if isinstance(one, dict | list | tuple):
            members = one.items() if isinstance(one, dict) else enumerate(one)
            named = [(as_text(placeholder, key), member) for key, member in members]
            waiting += [((*path, name), size + len(name) + 2, member) for name, member in reversed(named)]
        elif one is not None:
            found.append((path, as_text(placeholder, one)))
            total += size + len(found[-1][1])
            if total > MAX_REQUEST_BYTES:
                raise placeholder.bad(f"is more than {MAX_REQUEST_BYTES:,} bytes when it is written as a form")
    return found


def _in_brackets(path: tuple[str, ...]) -> str:
    return "".join(f"[{part}]" for part in path)


def json_bytes(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, RecursionError, TypeError, ValueError, OverflowError):
        why = "half a character in it, too many digits, nested too deep, or no data at all"
        raise BadArguments(f"an argument can't be sent as JSON: {why}") from None


class PairTemplate:
    __slots__ = ("encoding", "key", "value")

    def __init__(self, key: TemplateText, value: TemplateText | None, encoding: Encoding = DEFAULT_ENCODING) -> None:
        self.key = key
        self.value = value  # None: a name alone, without `=`
        self.encoding = encoding

    @property
    def placeholders(self) -> tuple[Placeholder, ...]:
        return self.key.placeholders + (() if self.value is None else self.value.placeholders)

    def fill(self, values: Values) -> list[str]:
        key = self.key.fill(values, escaped)
        if key is None:
            return []
        if self.value is None:
            return [key]
        alone = self.value.alone
        if alone is not None and not isinstance(found := values.get(alone.name), str | None):
            pairs = field_values(key, found, self.encoding, alone, _literal)
            return [f"{name}={escaped(alone, text)}" for name, text in pairs]
        value = self.value.fill(values, escaped)
        return [] if value is None else [f"{key}={value}"]


class PairTemplates:
    """The pairs, in order. Those without placeholders are written once."""

    __slots__ = ("fixed", "parts")

    def __init__(self, pairs: Iterable[PairTemplate]) -> None:
        self.parts: tuple[str | PairTemplate, ...] = tuple(
            pair if pair.placeholders else "&".join(pair.fill({})) for pair in pairs
        )
        self.fixed = (
            None if any(isinstance(part, PairTemplate) for part in self.parts) else "&".join(map(str, self.parts))
        )

    def fill(self, values: Values) -> str:
        if self.fixed is not None:
            return self.fixed
        filled: list[str] = []
        chosen: list[str] = []  # pairs whose names come from the caller
        for part in self.parts:
            pairs = [part] if isinstance(part, str) else part.fill(values)
            filled += pairs
            if not isinstance(part, str) and part.value is not None and part.value.is_object(values):
                chosen += pairs
        if chosen:
            refuse_duplicates(map(_name, chosen), map(_name, filled))
        return "&".join(filled)


def refuse_duplicates(chosen: Iterable[str], names: Iterable[str]) -> None:
    """Raise BadArguments if a name that the caller chose is there twice, so that it replaces no field."""
    counted = Counter(names)
    if twice := next((name for name in chosen if counted[name] > 1), None):
        raise BadArguments(f"The request would have the field {twice[:100]!r} twice; leave it out of the object")


def _name(pair: str) -> str:
    return unquote_plus(pair.partition("=")[0])


def written_pairs(marked: str, placeholders: Iterator[Placeholder]) -> list[PairTemplate]:
    """Pairs that stand in a URL, or in the text of a form: their escapes are kept."""
    pairs: list[PairTemplate] = []
    for member in filter(None, marked.split("&")):
        name, equals, value = member.partition("=")
        key = unmarked(name, placeholders).changed(escape_unsafe)
        pairs.append(PairTemplate(key, unmarked(value, placeholders).changed(escape_unsafe) if equals else None))
    return pairs


def named_pairs(
    given: Mapping[str, Any], arguments: Collection[str], pointer: str, encodings: Mapping[str, Encoding]
) -> list[PairTemplate]:
    """Pairs given as a mapping: their texts are data, and escaped."""
    check_encodings(given, encodings, pointer)
    pairs: list[PairTemplate] = []
    for name, value in given.items():
        place = below(pointer, name)
        key = parse_text(name, arguments, place).changed(_literal)
        items = value if isinstance(value, list | tuple) else [value]
        encoding = encodings.get(name, DEFAULT_ENCODING)
        pairs += [
            PairTemplate(key, pair_value(item, arguments, place, _literal), encoding)
            for item in items
            if item is not None
        ]
    return pairs


def check_encodings(given: Any, encodings: Mapping[str, Encoding], pointer: str) -> None:
    """Raise TemplateError if a field with an encoding does not exist."""
    for name in encodings:
        if not isinstance(given, Mapping) or name not in given:
            raise TemplateError(f"An encoding for {name!r}, which is not a field", below(f"{pointer}Encoding", name))


def pair_value(value: Any, arguments: Collection[str], pointer: str, escape: Callable[[str], str]) -> TemplateText:
    """Read the value of a field. `escape` is applied to what the template itself says."""
    if isinstance(value, str):
        return parse_text(value, arguments, pointer).changed(escape)
    if isinstance(value, dict | list | tuple):
        raise TemplateError("has to be a text, a number, true, false, or a list of them", pointer)
    return TemplateText([escape(as_text(Placeholder("", is_secret=False), value))])


def _literal(text: str) -> str:
    return quote(text, safe="")


# The headers of a template: fixed names, and values with placeholders.


HEADERS_POINTER = "/request/headers"

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# They say where a request goes, where it ends, or what becomes of the connection: the client's to say.
_OURS = {
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}


class HeaderTemplates:
    """All headers of a template, in order. One with an absent value is left out."""

    __slots__ = ("content_type", "parts")

    def __init__(self, headers: Mapping[str, str], arguments: Collection[str]) -> None:
        self.parts: list[tuple[str, str | TemplateText]] = []
        known: set[str] = set()
        for name, value in headers.items():
            place = below(HEADERS_POINTER, name)
            check_name(name, place)
            if name.lower() in known:
                raise TemplateError(f"the header {name} is there twice", place)
            known.add(name.lower())
            self.parts.append((name, _header_value(name, value, arguments, place)))
        self.content_type = next((str(value) for name, value in self.parts if name.lower() == "content-type"), None)

    @property
    def placeholders(self) -> list[Placeholder]:
        return [
            placeholder
            for _, value in self.parts
            if isinstance(value, TemplateText)
            for placeholder in value.placeholders
        ]

    @property
    def credentials(self) -> list[Placeholder]:
        """Those in headers that carry secrets, by their names."""
        parts = [value for name, value in self.parts if isinstance(value, TemplateText) and sounds_secret(name)]
        return [placeholder for value in parts for placeholder in value.placeholders]

    def fill(self, values: Values) -> list[tuple[str, str]]:
        filled: list[tuple[str, str]] = []
        for name, value in self.parts:
            text = value if isinstance(value, str) else value.fill(values, _rule(name, value))
            if text is not None:
                filled.append((name, text))
        return filled


def check_name(name: str, pointer: str) -> None:
    """TemplateError for what is no header's name, or none that a tool may set."""
    if not _HEADER_NAME.fullmatch(name):
        raise TemplateError(f"{name!r} is no name of a header: that is letters, digits and dashes", pointer)
    if name.lower() in _OURS:
        raise TemplateError(f"the header {name} is set by the client, never by a tool", pointer)


def in_header(placeholder: Placeholder, value: str) -> str:
    """A value as a part of a header: characters of ASCII that can be seen, and spaces."""
    one_line(placeholder, value)
    if not value.isascii():
        raise placeholder.bad("has characters beyond ASCII, which headers don't carry")
    return value


def _rule(name: str, value: TemplateText) -> Callable[[Placeholder, str], str]:
    if name.lower() != "cookie" or (value.alone is not None and value.alone.is_secret):
        return in_header  # a secret may hold all cookies: callers do not choose it
    return _in_cookie


def _in_cookie(placeholder: Placeholder, value: str) -> str:
    """A cookie's value must not begin another one."""
    if ";" in value or "," in value:
        raise placeholder.bad("has a `;` or a `,` in it, which would end its cookie")
    return in_header(placeholder, value)


def one_line(placeholder: Placeholder, value: str) -> str:
    """The value, when there is no control character in it."""
    if _CONTROL.search(value):
        raise placeholder.bad("has a line end or another control character in it, which can't be sent here")
    return value


def _header_value(name: str, value: str, arguments: Collection[str], pointer: str) -> str | TemplateText:
    text = parse_text(value.strip(" \t"), arguments, pointer)
    if _CONTROL.search(text.literal) or not text.literal.isascii():
        raise TemplateError("a header has to be one line of ASCII characters", pointer)
    if not text.placeholders:
        return text.literal
    if name.lower() == "content-type":
        raise TemplateError("Content-Type can't have placeholders: it says how values in the body are escaped", pointer)
    return text
