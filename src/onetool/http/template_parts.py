"""Path, query, form pairs and headers of a request template: each escapes the values that are put into it.

A value becomes (part of) one path segment, one value of a pair, or part of one header line, whatever
characters it contains. A pair or a header is left out if one of its values is absent.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, unquote_plus

import msgspec

from onetool.core.errors import BadArguments
from onetool.core.redaction import sounds_secret
from onetool.http.definition import DEFAULT_ENCODING, Encoding, below
from onetool.http.placeholders import (
    Placeholder,
    TemplateError,
    TemplateErrors,
    TemplateText,
    Values,
    as_text,
    parse_text,
    unmarked,
)
from onetool.http.url import escape_unsafe

MAX_FIELDS = 10_000  # of one call: they are written on the event loop, and most servers accept at most 1,000

_STRUCTURES = (list, tuple, dict)
_DEEP = Encoding(style="deepObject")
_UNRESERVED = re.compile(r"[A-Za-z0-9_.~-]*")


def escaped(placeholder: Placeholder, value: str) -> str:
    """Percent-encode a value for a path or a query: everything but letters, digits, `-`, `.`, `_` and `~`."""
    return value if _UNRESERVED.fullmatch(value) else quote(value, safe="")


class FilledBody(NamedTuple):
    """The body of one call. A Content-Type header of the template overrides `content_type`."""

    content_type: str
    data: bytes


class PathTemplate:
    """The part of the URL before `?`: literal text, and segments with placeholders."""

    __slots__ = ("parts",)

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

    def fill(self, values: Values) -> str:
        filled: list[str] = []
        for part in self.parts:
            if isinstance(part, str):
                filled.append(part)
                continue
            segment = part.fill_whole(values, _not_empty, "the URL's path")
            # A segment `.` or `..` would change the path however it is written, and to some servers so would `..;x`.
            if segment[0] in ".%" and unquote(segment.partition(";")[0]) in (".", ".."):
                raise part.placeholders[0].bad("can't make a segment of the URL's path that is only `.` or `..`")
            filled.append(segment)
        return "".join(filled)


def _not_empty(placeholder: Placeholder, value: str) -> str:
    if not value:
        raise placeholder.bad("is empty, which would change the path of the URL")
    return escaped(placeholder, value)


# Pairs of names and values with placeholders, `a=${x}&b=1`: the query of a URL, or a form as the body.


class FieldChecks:
    """Checks on the fields of one request while they are written: their number, and names chosen by callers.

    `taken` are the names that callers can't choose: those of the template, whether a call fills them or not.
    """

    __slots__ = ("_fields_left", "_taken", "_template", "_values")

    def __init__(self, taken: Collection[str], values: Values) -> None:
        self._template = taken
        self._taken = set(taken)
        self._values = values
        self._fields_left = MAX_FIELDS

    def choose(self, name: str, placeholder: Placeholder, prefixes: tuple[str, ...] | None = None) -> None:
        """Raise BadArguments if the request already has this field, or the field is a member of one (`prefixes`)."""
        if name in self._taken or name.startswith(self._prefixes_of_others() if prefixes is None else prefixes):
            raise placeholder.bad(f"adds the field {name[:100]!r}, which the request already has; leave it out")
        self._taken.add(name)

    def fields(self, name: str, value: Any, encoding: Encoding, placeholder: Placeholder) -> Iterator[tuple[str, str]]:
        """Yield the pairs of `field_values`. Values can't add another field, or a member of another field."""
        prefixes = self._prefixes_of_others(name)
        for field, text in field_values(name, value, encoding, placeholder):
            if field != name:
                self.choose(field, placeholder, prefixes)
            yield field, text

    def _prefixes_of_others(self, name: str | None = None) -> tuple[str, ...]:
        return tuple(f"{other}[" for other in self._template if other != name)

    def count(self, size: int, placeholder: Placeholder) -> None:
        """Count one field. Raise BadArguments if there are too many, or the request gets too large."""
        self._fields_left -= 1
        if self._fields_left < 0:
            raise placeholder.bad(f"has more than {MAX_FIELDS:,} values, which is too many for a form")
        self._values.count(size, placeholder)


def field_values(name: str, value: Any, encoding: Encoding, placeholder: Placeholder) -> Iterator[tuple[str, str]]:
    """Yield the names and values, both unescaped, of the form fields for a value. Null is left out."""
    is_object = isinstance(value, dict)
    if "json" in (encoding.content_type or ""):
        yield name, json_bytes(value).decode()
    elif not isinstance(value, _STRUCTURES):
        if value is not None:
            yield name, as_text(placeholder, value)
    elif (separator := encoding.separator) is not None:
        if is_nested(value):
            raise placeholder.bad(f"is nested, which the style {encoding.style or 'form'} can't write")
        members = [(key, item) for key, item in _members(value) if item is not None]
        parts = [part for member in members for part in (member if is_object else member[1:])]
        if parts:
            yield name, separator.join(as_text(placeholder, part) for part in parts)
    elif is_object and encoding.style == "form":
        for key, member in value.items():
            yield from field_values(as_text(placeholder, key), member, _DEEP, placeholder)
    elif not is_object and encoding.style != "deepObject" and not is_nested(value):
        for member in value:
            if member is not None:
                yield name, as_text(placeholder, member)
    else:
        yield from _leaves(name, value, placeholder)


def is_nested(value: Any) -> bool:
    """Return whether a list or an object contains lists or objects."""
    kinds = set(map(type, value.values() if isinstance(value, dict) else value))
    return any(issubclass(kind, _STRUCTURES) for kind in kinds)


def _members(value: Any) -> Iterator[tuple[Any, Any]]:
    return iter(value.items() if isinstance(value, dict) else enumerate(value))


def _leaves(name: str, value: Any, placeholder: Placeholder) -> Iterator[tuple[str, str]]:
    """Yield the plain values inside, each with its name: `items[0][price]`.

    A name is repeated for every value below it, so it is built only for values that are sent.
    """
    path = [name]
    levels = [_members(value)]
    while levels:
        for key, member in levels[-1]:
            if not isinstance(member, _STRUCTURES):
                if member is not None:
                    yield "".join([*path, f"[{as_text(placeholder, key)}]"]), as_text(placeholder, member)
            elif member:
                path.append(f"[{as_text(placeholder, key)}]")
                levels.append(_members(member))
                break
        else:
            path.pop()
            levels.pop()


def json_bytes(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, RecursionError, TypeError, ValueError, OverflowError):
        why = "a lone surrogate, too many digits, nested too deep, or not data"
        raise BadArguments(f"an argument can't be sent as JSON: {why}") from None


class PairTemplate:
    __slots__ = ("encoding", "key", "placeholders", "value")

    def __init__(self, key: TemplateText, value: TemplateText | None, encoding: Encoding = DEFAULT_ENCODING) -> None:
        self.key = key
        self.value = value  # None: a name alone, without `=`
        self.encoding = encoding
        self.placeholders = key.placeholders + (() if value is None else value.placeholders)

    def fill(self, values: Values, checks: FieldChecks) -> Iterator[str]:
        key = self.key.fill(values, escaped)
        if key is None:
            return
        name = unquote_plus(key)
        if self.key.placeholders:
            checks.choose(name, self.key.placeholders[0])
        alone = None if self.value is None else self.value.alone
        if alone is not None and not isinstance(data := values.get(alone.name), str | None):
            for field, text in checks.fields(name, data, self.encoding, alone):
                pair = f"{key if field == name else _literal(field)}={escaped(alone, text)}"
                checks.count(len(pair) + 1, alone)
                yield pair
        elif self.value is None:
            yield key
        elif (value := self.value.fill(values, escaped)) is not None:
            yield f"{key}={value}"


class PairTemplates:
    """Pairs in order. Pairs without placeholders are written once. Callers can't choose the names in `taken`."""

    __slots__ = ("_names", "parts")

    def __init__(self, pairs: Collection[PairTemplate], taken: Collection[str] = ()) -> None:
        self._names = {unquote_plus(pair.key.literal) for pair in pairs if not pair.key.placeholders} | {*taken}
        values = Values()
        checks = FieldChecks((), values)
        self.parts: tuple[str | PairTemplate, ...] = tuple(
            pair if pair.placeholders else "&".join(pair.fill(values, checks)) for pair in pairs
        )

    def fill(self, values: Values) -> str:
        checks = FieldChecks(self._names, values)
        filled: list[str] = []
        for part in self.parts:
            filled += [part] if isinstance(part, str) else part.fill(values, checks)
        return "&".join(filled)


def written_pairs(marked: str, placeholders: Iterator[Placeholder]) -> list[PairTemplate]:
    """Parse pairs in a URL or in the text of a form. Their escapes are kept."""
    pairs: list[PairTemplate] = []
    for member in filter(None, marked.split("&")):
        name, equals, value = member.partition("=")
        key = unmarked(name, placeholders).changed(escape_unsafe)
        pairs.append(PairTemplate(key, unmarked(value, placeholders).changed(escape_unsafe) if equals else None))
    return pairs


def named_pairs(
    fields: Mapping[str, Any], arguments: Collection[str], pointer: str, encodings: Mapping[str, Encoding]
) -> list[PairTemplate]:
    """Return the templates of the pairs in a mapping. Their strings are unescaped data."""
    check_encodings(fields, encodings, pointer)
    pairs: list[PairTemplate] = []
    errors = TemplateErrors()
    for name, value in fields.items():
        place = below(pointer, name)
        with errors.part():
            key = parse_text(name, arguments, place).changed(_literal)
            items = value if isinstance(value, list | tuple) else [value]
            encoding = encodings.get(name, DEFAULT_ENCODING)
            pairs += [
                PairTemplate(key, pair_value(item, arguments, place, _literal), encoding)
                for item in items
                if item is not None
            ]
    errors.raise_all()
    return pairs


def check_encodings(fields: Any, encodings: Mapping[str, Encoding], pointer: str) -> None:
    """Raise TemplateError if a field with an encoding does not exist."""
    for name in encodings:
        if not isinstance(fields, Mapping) or name not in fields:
            raise TemplateError(f"An encoding for {name!r}, which is not a field", below(f"{pointer}Encoding", name))


def pair_value(value: Any, arguments: Collection[str], pointer: str, escape: Callable[[str], str]) -> TemplateText:
    """Parse the value of a field. `escape` is applied to the literal parts of the template."""
    if isinstance(value, str):
        return parse_text(value, arguments, pointer).changed(escape)
    if isinstance(value, dict | list | tuple):
        raise TemplateError("must be a string, a number, true, false, or a list of these", pointer)
    return TemplateText([escape(as_text(Placeholder("", is_secret=False), value))])


def _literal(text: str) -> str:
    return quote(text, safe="")


# The headers of a template: fixed names, and values with placeholders.

HEADERS_POINTER = "/request/headers"

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# These decide where a request goes, where it ends, or how the connection is used, so only the client sets them.
_RESERVED_HEADERS = {
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
    """All headers of a template, in order. A header with an absent value is left out."""

    __slots__ = ("content_type", "credentials", "parts", "placeholders")

    def __init__(self, headers: Mapping[str, str], arguments: Collection[str]) -> None:
        self.parts: list[tuple[str, str | TemplateText]] = []
        self.placeholders: list[Placeholder] = []
        self.credentials: list[Placeholder] = []  # placeholders in headers whose names mark them as secret
        known: set[str] = set()
        errors = TemplateErrors()
        for name, value in headers.items():
            with errors.part():
                text = self._read(name, value, arguments, known)
                self.parts.append((name, text if text.placeholders else text.literal))
                self.placeholders += text.placeholders
                if sounds_secret(name):
                    self.credentials += text.placeholders
        errors.raise_all()
        self.content_type = next((str(value) for name, value in self.parts if name.lower() == "content-type"), None)

    @staticmethod
    def _read(name: str, value: str, arguments: Collection[str], known: set[str]) -> TemplateText:
        place = below(HEADERS_POINTER, name)
        check_name(name, place)
        if name.lower() in known:
            raise TemplateError(f"the header {name} is given twice", place)
        known.add(name.lower())
        text = parse_text(value.strip(" \t"), arguments, place)
        if _CONTROL.search(text.literal) or not text.literal.isascii():
            raise TemplateError("a header has to be one line of ASCII characters", place)
        if text.placeholders and name.lower() == "content-type":
            raise TemplateError(
                "Content-Type can't have placeholders: it says how values in the body are escaped", place
            )
        return text

    def fill(self, values: Values) -> list[tuple[str, str]]:
        filled: list[tuple[str, str]] = []
        for name, value in self.parts:
            text = value
            if isinstance(value, TemplateText):
                # A secret may contain several cookies, because callers do not choose it.
                is_cookie = name.lower() == "cookie" and not (value.alone is not None and value.alone.is_secret)
                text = value.fill(values, _in_cookie if is_cookie else in_header)
            if isinstance(text, str):
                filled.append((name, text))
        return filled


def check_name(name: str, pointer: str) -> None:
    """Raise TemplateError for an invalid header name, or one that a tool may not set."""
    if not _HEADER_NAME.fullmatch(name):
        raise TemplateError(f"{name!r} is not a name of a header: that is letters, digits and dashes", pointer)
    if name.lower() in _RESERVED_HEADERS:
        raise TemplateError(f"the header {name} is set by the client, never by a tool", pointer)


def in_header(placeholder: Placeholder, value: str) -> str:
    """Check a value for a header: only visible ASCII characters and spaces."""
    one_line(placeholder, value)
    if not value.isascii():
        raise placeholder.bad("contains non-ASCII characters, which headers can't contain")
    return value


def _in_cookie(placeholder: Placeholder, value: str) -> str:
    """Check a value for a cookie: it must not begin another cookie."""
    if ";" in value or "," in value:
        raise placeholder.bad("contains a `;` or a `,`, which would end its cookie")
    return in_header(placeholder, value)


def one_line(placeholder: Placeholder, value: str) -> str:
    """Check that a value contains no control character."""
    if _CONTROL.search(value):
        raise placeholder.bad("contains a line end or another control character, which can't be sent here")
    return value
