"""The query parameters of the REST API, their types, and the parser of query strings."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from time import time
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec

from onetool.core.text import did_you_mean
from onetool.http.definition import below
from onetool.interfaces.rest.problem import RestError
from onetool.services.audit import KINDS
from onetool.services.audit.record import read_moment
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.names import ID_SCHEMA, SLUG_SCHEMA, check_id, check_slug
from onetool.sources.bundles.validation import SHOWN

MAX_PER_PAGE = 1000
PER_PAGE = 100
MAX_DAYS = 366
USUAL_DAYS = 30
MAX_SEARCH = 1000  # characters
MAX_IN_LIST = 1000
MAX_URL = 4000  # characters
MAX_DIGITS = 15  # digits

_BROKEN = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_SIZE = re.compile(r"[1-9][0-9]{0,3}")
_NUMBER = re.compile(r"[1-9][0-9]*")
_TRUTH = {"true": True, "1": True, "false": False, "0": False}


class QueryType(NamedTuple):
    """A parser of parameter values and its JSON schema. `read` raises ValueError with the expected form."""

    read: Callable[[str], Any]
    schema: Mapping[str, Any]
    many: bool = False  # the parameter may be repeated, and `read` returns a list


class QueryParameter(NamedTuple):
    """A query parameter."""

    name: str
    type: QueryType
    description: str
    default: Any = None
    example: Any = None


def percent_decoded(raw: bytes) -> str:
    """Decode percent-encoded UTF-8. Raises ValueError."""
    if b"%" in raw:
        if _BROKEN.search(raw):
            raise ValueError("a % must be followed by two hexadecimal digits")
        raw = unquote_to_bytes(raw)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None


def read_query(raw: bytes, parameters: Iterable[QueryParameter]) -> dict[str, Any]:
    """Parse a query string into values of all known parameters. Raises RestError."""
    known = {one.name: one for one in parameters}
    given: dict[str, list[str]] = {}
    for piece in raw.split(b"&") if raw else ():
        if piece:
            name, _, value = piece.replace(b"+", b" ").partition(b"=")
            given.setdefault(_decoded(name, "?"), []).append(_decoded(value, name.decode("latin-1")))
    for name in given:
        if name not in known:
            default = f"use one of {', '.join(known)}" if known else "this route has no parameters"
            message = f"Unknown query parameter {name[:100]!r}; {did_you_mean(name, known) or default}"
            raise RestError(400, "unknown_parameter", message, part="query", pointer=below("", name[:100]))
    return {one.name: _value(one, given.get(one.name)) for one in known.values()}


def _value(parameter: QueryParameter, texts: list[str] | None) -> Any:
    if texts is None:
        return parameter.default
    read, _, many = parameter.type
    if not many and len(texts) > 1:
        raise _bad_parameter(parameter.name, "must not be repeated")
    try:
        if not many:
            return read(texts[0])
        found = tuple(dict.fromkeys(part for text in texts for part in read(text)))
        if len(found) > MAX_IN_LIST:
            raise ValueError(f"has more than {MAX_IN_LIST} entries")
    except ValueError as error:
        raise _bad_parameter(parameter.name, str(error)) from None
    return found


def _decoded(raw: bytes, name: str) -> str:
    try:
        return percent_decoded(raw)
    except ValueError as error:
        raise _bad_parameter(name[:100], f"can't be read: {error}") from None


def _bad_parameter(name: str, what: str) -> RestError:
    message = f"The query parameter {name} {what}{'' if what.endswith('?') else '.'}"
    return RestError(400, "bad_parameter", message, part="query", pointer=below("", name))


# Types of query parameters


def one_of(choices: Iterable[str], message: str) -> QueryType:
    """Make the type of a string that must be one of `choices`; `message` says so."""
    known = list(choices)

    def read(text: str) -> str:
        if text not in known:
            raise ValueError(message)
        return text

    return QueryType(read, {"enum": known})


def _whole(limit: int) -> QueryType:
    """Make the type of a whole number from 1 to `limit`."""

    def read(text: str) -> int:
        if not _SIZE.fullmatch(text) or int(text) > limit:
            raise ValueError(f"must be a whole number from 1 to {limit}")
        return int(text)

    return QueryType(read, {"type": "integer", "minimum": 1, "maximum": limit})


def _boolean(text: str) -> bool:
    if text not in _TRUTH:
        raise ValueError("must be true or false")
    return _TRUTH[text]


def _recommended(text: str) -> int:
    """Read a number. Values above the maximum count as the maximum."""
    if not _NUMBER.fullmatch(text):
        raise ValueError("must be a whole number from 1 on")
    return min(int(text[:9]), MAX_PER_PAGE)


def _position(text: str) -> int:
    if not _NUMBER.fullmatch(text) or len(text) > MAX_DIGITS:
        raise ValueError("must be a whole number from 1 on")
    return int(text)


def _moment(text: str) -> float:
    found = read_moment(text, time())
    if found is None:
        raise ValueError("must be a time (2026-11-16T12:00:00Z) or a duration before now (30m, 2h, 7d)")
    return found


def _words(text: str) -> str:
    if len(text) > MAX_SEARCH:
        raise ValueError(f"must have at most {MAX_SEARCH} characters")
    return text


def _texts(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _one_text(text: str) -> list[str]:
    """Read one string, which may contain commas. The parameter can be repeated."""
    if not text or len(text) > MAX_SEARCH:
        raise ValueError(f"must have 1 to {MAX_SEARCH:,} characters")
    return [text]


def _ids(text: str) -> list[str]:
    try:
        return [check_id(part) for part in text.split(",")]
    except InvalidError as error:
        raise ValueError(f"must be ids: {error}") from None


def _slug(text: str) -> str:
    try:
        return check_slug(text)
    except InvalidError as error:
        raise ValueError(f"must be a slug: {error}") from None


def _url(text: str) -> str:
    if not text.lower().startswith(("http://", "https://")) or len(text) > MAX_URL:
        raise ValueError(f"must be a URL of http or https, of at most {MAX_URL:,} characters")
    return text


# `fields` picks keys of each row


def _keys(shape: type) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(shape)]


BUNDLE_FIELDS = tuple(key for key in _keys(Bundle) if key != "schemaVersion")
TOOL_FIELDS = (*_keys(Tool), *sorted(SHOWN - {"warnings", "signature"}))


def read_fields(known: Collection[str]) -> Callable[[str], list[str]]:
    def read(text: str) -> list[str]:
        names = [name for name in text.split(",") if name]
        if not names:
            raise ValueError(f"must name a field: {', '.join(known)}")
        for name in names:
            if name not in known:
                near = did_you_mean(name, known) or f"use {', '.join(known)}"
                raise ValueError(f"names {name[:100]!r}, which is not a field; {near}")
        return names

    return read


def picked(rows: list[dict[str, Any]], fields: Collection[str] | None) -> list[dict[str, Any]]:
    """Keep only these keys of the rows; None keeps all. Missing keys are left out."""
    if fields is None:
        return rows
    return [{key: row[key] for key in fields if key in row} for row in rows]


# All parameters


def _array(**items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _fields(*known: str) -> QueryParameter:
    kind = QueryType(read_fields(known), {**_array(enum=list(known)), "minItems": 1}, many=True)
    words = "Return only these keys of each row: `fields=slug,version`. Missing keys are left out."
    return QueryParameter("fields", kind, words, example=["id", "slug"])


_BOOLEAN = QueryType(_boolean, {"enum": [True, False, 1, 0]})
_COUNT = _whole(MAX_PER_PAGE)
_POSITION = QueryType(_position, {"type": "integer", "minimum": 1, "maximum": 10**MAX_DIGITS - 1})
_WORDS = QueryType(_words, {"type": "string", "maxLength": MAX_SEARCH})
_TEXTS = QueryType(_one_text, _array(type="string", minLength=1, maxLength=MAX_SEARCH), many=True)
_IDS = QueryType(_ids, _array(type="string", pattern="^{0}(,{0})*$".format(ID_SCHEMA["pattern"][1:-1])), many=True)
_URL = QueryType(_url, {"type": "string", "pattern": "^[hH][tT][tT][pP][sS]?://", "maxLength": MAX_URL})
_MOMENT = QueryType(
    _moment, {"type": "string", "pattern": "^([0-9]{1,6}[smhdw]|20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8]))$"}
)
_TOKEN = QueryType(str, {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"})

TAGS = QueryParameter(
    "tags",
    QueryType(_texts, _array(type="string"), many=True),
    "Tools with any of these tags: `tags=a&tags=b` or `tags=a,b`.",
    default=(),
)
BUNDLE_IDS = QueryParameter("bundleIDs", _IDS, "Only these bundles: `bundleIDs=…&bundleIDs=…` or `bundleIDs=…,…`.", ())
INCLUDE_DISABLED = QueryParameter("includeDisabled", _BOOLEAN, "Include disabled items.", False)
PAGE_SIZE = QueryParameter("pageSize", _COUNT, "Maximum number of items.", PER_PAGE)
RECOMMENDED_PAGE_SIZE = QueryParameter(
    "recommendedPageSize",
    QueryType(_recommended, {"type": "integer", "minimum": 1}),
    f"Maximum number of items. More than {MAX_PER_PAGE} means {MAX_PER_PAGE}.",
    PER_PAGE,
)
PAGE_TOKEN = QueryParameter("pageToken", _TOKEN, "`nextPageToken` of the previous page with the same query.")
Q = QueryParameter(
    "q",
    _WORDS,
    "The text to find: prefixes of names, whole words, or similar words. Empty: everything, newest first.",
    default="",
    example="forecast",
)
OF_BUNDLES = _fields(*BUNDLE_FIELDS)
OF_TOOLS = _fields(*TOOL_FIELDS)
DRY_RUN = QueryParameter("dryRun", _BOOLEAN, "Change nothing; the response is that of the real request.", False)
REPLACE = QueryParameter("replace", _BOOLEAN, "Replace servers of the same name instead of keeping them.", False)
REPLACE_SECRET = QueryParameter("replace", _BOOLEAN, "Replace the value of a stored secret.", False)
AS = QueryParameter("as", QueryType(_slug, SLUG_SCHEMA), "The slug of the bundle, instead of its own.")
BASE_URL = QueryParameter("baseUrl", _URL, "The address of the API, if the document has none.")
URL = QueryParameter("url", _URL, "The address of the document, on an allowed host; then the body is `{}`.")
SERVER_URL = QueryParameter("url", _URL, "The address of this server for clients; default: as in the config.")
TOKEN = QueryParameter("token", _BOOLEAN, "Send a bearer token if the document doesn't mention authentication.", False)
ONLY = QueryParameter("only", _TEXTS, "Only operations whose path (`/users/*`) or tool name (`list-*`) matches.", ())
TAG = QueryParameter("tag", _TEXTS, "Only operations with one of these tags.", ())
OPERATION = QueryParameter(
    "operation",
    _TEXTS,
    "Only these operations: an operationId, or a method and a path.",
    default=(),
    example=["GET /users/{id}"],
)
DAYS = QueryParameter("days", _whole(MAX_DAYS), "The number of days until now.", USUAL_DAYS)
AFTER = QueryParameter("after", _WORDS, "`next` of the previous page.", "")
FROM = QueryParameter("from", _POSITION, "The first line, counted from 1.", 1)
LIMIT = QueryParameter("limit", _COUNT, "Maximum number of lines.", PER_PAGE)
COLUMN = QueryParameter("column", _POSITION, "The first column of the first line, counted from 1.", 1)
TOOL_NAME = QueryParameter("tool", _WORDS, "Only calls of this tool.", example="time.now")
SOURCE = QueryParameter("source", _WORDS, "Only calls through this interface.")
CLIENT = QueryParameter("client", _WORDS, "Only calls of this client.")
CALLER = QueryParameter("caller", _WORDS, "Only for admins: calls of this token or `iss|sub`; empty: of `http.token`.")
SINCE = QueryParameter("since", _MOMENT, "A date, or a duration before now.", example="2h")
UNTIL = QueryParameter("until", _MOMENT, "A date, or a duration before now.", example="1h")
WHO = QueryParameter("who", _WORDS, "Only records of this token or user.")
KIND = QueryParameter("kind", one_of(KINDS, f"must be one of {', '.join(KINDS)}"), "Only lines of this kind.")
OUTCOME = QueryParameter("outcome", _WORDS, "ok, error, the code or reason of an error, or a status.", example="error")
REQUEST = QueryParameter("request", _WORDS, "A request id, from X-Request-Id or a log line, or a trace id.")
