"""The headers of a template: names that stay, and values with holes. No value ends its line, or begins another one."""

import re
from collections.abc import Callable, Collection, Mapping

from onetool.handlers.http.placeholders import Hole, TemplateError, Text, Values, read
from onetool.handlers.http.pointers import below

POINTER = "/request/headers"

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
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


class Fields:
    """All headers of a template, in order. One with an absent value is left out."""

    __slots__ = ("content_type", "parts")

    def __init__(self, headers: Mapping[str, str], arguments: Collection[str]) -> None:
        self.parts: list[tuple[str, str | Text]] = []
        known: set[str] = set()
        for name, value in headers.items():
            place = below(POINTER, name)
            check_name(name, place)
            if name.lower() in known:
                raise TemplateError(f"the header {name} is there twice", place)
            known.add(name.lower())
            self.parts.append((name, _value(name, value, arguments, place)))
        self.content_type = next((str(value) for name, value in self.parts if name.lower() == "content-type"), None)

    @property
    def holes(self) -> list[Hole]:
        return [hole for _, value in self.parts if isinstance(value, Text) for hole in value.holes]

    def fill(self, values: Values) -> list[tuple[str, str]]:
        filled: list[tuple[str, str]] = []
        for name, value in self.parts:
            text = value if isinstance(value, str) else value.fill(values, _rule(name, value))
            if text is not None:
                filled.append((name, text))
        return filled


def check_name(name: str, pointer: str) -> None:
    """TemplateError for what is no header's name, or none that a tool may set."""
    if not _NAME.fullmatch(name):
        raise TemplateError(f"{name!r} is no name of a header: that is letters, digits and dashes", pointer)
    if name.lower() in _OURS:
        raise TemplateError(f"the header {name} is set by the client, never by a tool", pointer)


def in_header(hole: Hole, value: str) -> str:
    """A value as a part of a header: characters of ASCII that can be seen, and spaces."""
    one_line(hole, value)
    if not value.isascii():
        raise hole.bad("has characters beyond ASCII, which headers don't carry")
    return value


def _rule(name: str, value: Text) -> Callable[[Hole, str], str]:
    if name.lower() != "cookie" or (value.alone is not None and value.alone.is_secret):
        return in_header  # a secret may be all the cookies there are: nobody who calls has a say in it
    return _in_cookie


def _in_cookie(hole: Hole, value: str) -> str:
    """A cookie's value must not begin another one."""
    if ";" in value or "," in value:
        raise hole.bad("has a `;` or a `,` in it, which would end its cookie")
    return in_header(hole, value)


def one_line(hole: Hole, value: str) -> str:
    """The value, when there is no control character in it."""
    if _CONTROL.search(value):
        raise hole.bad("has a line end or another control character in it, which can't be sent here")
    return value


def _value(name: str, value: str, arguments: Collection[str], pointer: str) -> str | Text:
    text = read(value.strip(" \t"), arguments, pointer)
    if _CONTROL.search(text.literal) or not text.literal.isascii():
        raise TemplateError("a header has to be one line of ASCII characters", pointer)
    if not text.holes:
        return text.literal
    if name.lower() == "content-type":
        raise TemplateError("Content-Type can't have placeholders: it says how values in the body are escaped", pointer)
    return text
