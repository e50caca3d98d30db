"""What may stand behind the `?`: each parameter is known by its name and kind, and everything else is a mistake."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from onetool.core.nearest import did_you_mean
from onetool.handlers.http.pointers import below
from onetool.interfaces.rest.problem import Wrong
from onetool.sources.bundles.errors import Invalid
from onetool.sources.bundles.names import check_id

MOST_PER_PAGE = 1000
PER_PAGE = 100
LONGEST_SEARCH = 1000  # characters
MOST_IN_LIST = 1000

_BROKEN = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_SIZE = re.compile(r"[1-9][0-9]{0,3}")
_NUMBER = re.compile(r"[1-9][0-9]*")
_TRUTH = {"true": True, "1": True, "false": False, "0": False}


class Parameter(NamedTuple):
    """One that a route takes. `read` gives what it means; ValueError says what it should be."""

    name: str
    read: Callable[[str], Any]
    default: Any = None
    many: bool = False
    required: bool = False


def decoded(raw: bytes) -> str:
    """Percent-encoded UTF-8 as text; ValueError where it is none."""
    if b"%" in raw:
        if _BROKEN.search(raw):
            raise ValueError("a % must be followed by two hexadecimal digits")
        raw = unquote_to_bytes(raw)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None


def read_query(raw: bytes, known: Mapping[str, Parameter]) -> dict[str, Any]:
    """The value of every known parameter. Wrong names the one that can't be used."""
    given: dict[str, list[str]] = {}
    for piece in raw.split(b"&") if raw else ():
        if piece:
            name, _, value = piece.replace(b"+", b" ").partition(b"=")
            given.setdefault(_decoded(name, "?"), []).append(_decoded(value, name.decode("latin-1")))
    for name in given:
        if name not in known:
            raise _unknown(name, known)
    return {one.name: _value(one, given.get(one.name)) for one in known.values()}


def _value(parameter: Parameter, texts: list[str] | None) -> Any:
    if texts is None:
        if parameter.required:
            raise _wrong(parameter.name, "is missing")
        return parameter.default
    if not parameter.many and len(texts) > 1:
        raise _wrong(parameter.name, "is given twice")
    try:
        if not parameter.many:
            return parameter.read(texts[0])
        found = tuple(dict.fromkeys(part for text in texts for part in parameter.read(text)))
        if len(found) > MOST_IN_LIST:
            raise ValueError(f"has more than {MOST_IN_LIST} entries")
    except ValueError as error:
        raise _wrong(parameter.name, str(error)) from None
    return found


def _decoded(raw: bytes, name: str) -> str:
    try:
        return decoded(raw)
    except ValueError as error:
        raise _wrong(name[:100], f"can't be read: {error}") from None


def _unknown(name: str, known: Mapping[str, Parameter]) -> Wrong:
    near = did_you_mean(name, known) or (f"there are {', '.join(known)}" if known else "there are none here")
    return Wrong(
        400,
        "unknown_parameter",
        f"There is no query parameter {name[:100]!r}; {near}",
        part="query",
        pointer=below("", name[:100]),
    )


def _wrong(name: str, what: str) -> Wrong:
    message = f"The query parameter {name} {what}."
    return Wrong(400, "bad_parameter", message, part="query", pointer=below("", name))


# What a text may mean


def _truth(text: str) -> bool:
    if text not in _TRUTH:
        raise ValueError("must be true or false")
    return _TRUTH[text]


def _size(text: str) -> int:
    if not _SIZE.fullmatch(text) or int(text) > MOST_PER_PAGE:
        raise ValueError(f"must be a whole number from 1 to {MOST_PER_PAGE}")
    return int(text)


def _recommended(text: str) -> int:
    """A recommendation: more than the most is the most."""
    if not _NUMBER.fullmatch(text):
        raise ValueError("must be a whole number from 1 on")
    return min(int(text[:9]), MOST_PER_PAGE)


def _words(text: str) -> str:
    if len(text) > LONGEST_SEARCH:
        raise ValueError(f"must have at most {LONGEST_SEARCH} characters")
    return text


def _texts(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _ids(text: str) -> list[str]:
    try:
        return [check_id(part) for part in text.split(",")]
    except Invalid as error:
        raise ValueError(f"must be ids: {error}") from None


TAGS = Parameter("tags", _texts, (), many=True)
BUNDLE_IDS = Parameter("bundleIDs", _ids, (), many=True)
INCLUDE_DISABLED = Parameter("includeDisabled", _truth, False)
PAGE_SIZE = Parameter("pageSize", _size, PER_PAGE)
RECOMMENDED_PAGE_SIZE = Parameter("recommendedPageSize", _recommended, PER_PAGE)
PAGE_TOKEN = Parameter("pageToken", str)
Q = Parameter("q", _words, "")
