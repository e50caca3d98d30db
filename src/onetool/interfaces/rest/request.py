"""REST requests and responses: JSON bodies, ETags and conditions, and the context of handlers.

Bodies must be strict JSON, which all parsers read the same way: no duplicate keys, no NaN, no byte order mark and no
lone surrogates.
"""

import asyncio
import gzip
import json
import re
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote_to_bytes

import msgspec
from msgspec import UNSET

from onetool.app.allow_lists import Offered, allow_lists
from onetool.app.grants import GrantRefusedError
from onetool.app.operations import At
from onetool.config.server_import import ConfigTarget, ConfigUnchangedError
from onetool.core.call import ToolCall, ToolResult
from onetool.core.errors import ConfigError
from onetool.core.fair_shares import FairShares
from onetool.core.json_data import JsonTooCostlyError, StrictJsonError, check_json, finite, strict_decoder
from onetool.core.principal import current_principal
from onetool.http.asgi import (
    HEAD,
    JSON,
    HttpError,
    Receive,
    Scope,
    Send,
    check_content_type,
    encode,  # also encodes data that JSON has no type for
    read_body,
    takes_gzip,
)
from onetool.http.definition import TOOL_HEADER
from onetool.http.response_stream import DisconnectWatch
from onetool.interfaces.rest.problem import RestError, database_problem, error_from_store
from onetool.script.slots import Slots
from onetool.sources.bundles.errors import BundleError, NotFoundError, OutdatedError
from onetool.sources.bundles.queries import EVERYTHING, Visibility
from onetool.sources.bundles.rate_limits import refuse_limited

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.cluster.members import Members
    from onetool.core.context import Progress
    from onetool.sources.bundles.service import BundleService

T = TypeVar("T")
SOURCE = "rest"
SENT_BODY = "onetool.sent_body"  # in the scope: the body after it was read
EXACT_FLOAT = 2**53  # from here on a float may stand for several integers
LARGE_BODY = 64 * 1024  # bytes; larger bodies are parsed in a thread, so that they don't delay other requests
SMALL = 1024  # bytes; smaller lists are not compressed
MAX_WORK = 2  # imports, drafts and checks at the same time: more would take no less time, and delay other requests
MAX_WAITING = 16  # imports, drafts and checks, with those in progress
RETRY_SECONDS = 2
TOO_MUCH_WORK = f"{MAX_WAITING} imports and checks are in progress: try again in a moment."
PACKING_LEVEL = 6  # of gzip


def sent_texts(scope: Scope) -> list[str]:
    """Return the strings that the client sent.

    Secrets in them are not masked in the response: the client knows them.
    """
    address = scope["raw_path"] + b"?" + scope["query_string"]
    return [part.decode(errors="replace") for part in (unquote_to_bytes(address), scope.get(SENT_BODY) or b"")]


async def json_body(request: "RestRequest", empty: Any = ..., whole: bool = False) -> Any:
    """Read the body as JSON. `empty` is the value of an empty body, if allowed.

    With `whole`, a number such as 60.0 is read as an integer, as in JSON Schema.
    """
    content_type = request.headers.get(b"content-type")
    if content_type != JSON:
        check_content_type(content_type)
    data = request.scope[SENT_BODY] = await read_body(request.receive)
    if data is None:
        raise RestError(400, "incomplete", "The client disconnected in the middle of its request.")
    if not data and empty is not ...:
        return empty
    return parse_json(data, whole) if len(data) < LARGE_BODY else await asyncio.to_thread(parse_json, data, whole)


def parse_json(data: bytes, whole: bool = False) -> Any:
    """Parse strict JSON. Raises RestError."""
    if data.startswith(BOM_UTF8):
        raise _not_json("it begins with a byte order mark")
    try:
        check_json(data)
        value = (_whole_decoder if whole else _decoder).decode(data.decode("utf-8"))
        if b"\\ud" in data or b"\\uD" in data:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise _not_json(f"byte {error.start} is not UTF-8") from None
    except UnicodeEncodeError:
        raise _not_json("a string has half of a surrogate pair") from None
    except RecursionError:
        raise _not_json("it is nested too deep") from None
    except JsonTooCostlyError as error:
        raise _not_json(f"it {error}") from None
    except StrictJsonError as error:
        raise _not_json(_not_strict(error)) from None
    except ValueError as error:
        raise _not_json(str(error)) from None
    return value


def _not_json(what: str) -> RestError:
    return RestError(400, "bad_json", f"Invalid JSON body: {what}.", part="body", pointer="")


def _not_strict(error: StrictJsonError) -> str:
    if error.kind == "duplicate":
        return f"the key {error.text[:100]!r} is duplicated"
    if error.kind == "range":
        return f"the number {error.text[:40]} is out of range"
    return f"{error.text} is not a JSON number"


def _whole(text: str) -> float:
    value = finite(text)
    return int(value) if value.is_integer() and abs(value) < EXACT_FLOAT else value


_decoder = strict_decoder()
_whole_decoder = strict_decoder(_whole)


def refusal_of(error: Exception) -> HttpError | None:
    """Return the response to an error that a handler raised; None for a failure of the server."""
    if isinstance(error, HttpError):
        return error
    if isinstance(error, BundleError):
        return error_from_store(error)
    if isinstance(error, GrantRefusedError):
        return RestError(409, error.code, f"{error}.")
    refused = database_problem(error)
    if refused is None and isinstance(error, ConfigUnchangedError | ConfigError):
        return RestError(409, "config_unchanged", str(error))
    return refused


# ETag, If-Match and If-None-Match (RFC 9110, 13.1)

ANY = "*"
USED = "-used-"  # in the ETag of a tool, before the number of its calls, which is shown but is not content

_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_LIST = re.compile(rf"{_TAG}(?:[ \t]*,[ \t]*{_TAG})*")
_BARE = re.compile(r"[!#-+\x2d-~]+")  # an ETag without its quotes: common and unambiguous
_ONE = re.compile(r'(W/)?"([^"]*)"')


class Conditions(NamedTuple):
    """The conditions of a request: If-Match and If-None-Match."""

    seen: tuple[str, ...]  # If-Match: one of these must be the tag. A weak tag never matches
    known: tuple[str, ...]  # If-None-Match: none of these may be the tag

    def expected_tag(self, tag_now: Callable[[], str], may_be_new: bool = False) -> str | None:
        """Return the ETag that the store checks under its lock, if any.

        Raises OutdatedError if the conditions already fail.
        """
        if not self.seen and not self.known:
            return None
        try:
            now = tag_now()
        except NotFoundError:
            if not may_be_new:
                raise
            now = None
        if self.seen and (now is None or not _is_among(now, self.seen)):
            raise OutdatedError("The item no longer has the ETag of If-Match. Get it again, and repeat your change.")
        if now is not None and _is_among(now, self.known):
            raise OutdatedError("The item exists, and its ETag matches If-None-Match.")
        return (ANY if ANY in self.seen else now) if self.seen else None


def etag(tag: str) -> tuple[bytes, bytes]:
    return b"etag", f'"{tag}"'.encode("latin-1")


def conditions(headers: Mapping[bytes, bytes]) -> Conditions:
    """Read the conditions of a change. They compare content only: the number of calls in an ETag is ignored."""
    seen, known = _read_tags(headers, b"if-match"), _read_tags(headers, b"if-none-match")
    return Conditions(
        seen=tuple("" if weak else tag.partition(USED)[0] for weak, tag in seen),  # no tag is empty
        known=tuple(tag.partition(USED)[0] for _, tag in known),
    )


def is_known(headers: Mapping[bytes, bytes], tag: str) -> bool:
    """Return whether If-None-Match contains this ETag."""
    return b"if-none-match" in headers and _is_among(tag, [one for _, one in _read_tags(headers, b"if-none-match")])


def _is_among(tag: str, tags: tuple[str, ...] | list[str]) -> bool:
    return tag in tags or ANY in tags


def _read_tags(headers: Mapping[bytes, bytes], name: bytes) -> list[tuple[str, str]]:
    if name not in headers:
        return []
    text = headers[name].decode("latin-1").strip(" \t")
    if text == ANY:
        return [("", ANY)]
    if _BARE.fullmatch(text):
        return [("", text)]
    if not _LIST.fullmatch(text):
        shown = name.decode().title()
        message = f'{shown} must be * or ETags in their quotes, such as "abc", not {text[:60]!r}.'
        raise RestError(400, "bad_header", message, part="header", pointer=f"/{shown}")
    return [(weak, "" if tag == ANY else tag) for weak, tag in _ONE.findall(text)]  # "*" in quotes: a tag


# Request and response


class RestContext(At):
    """The parts of the app that handlers use, on behalf of the current request's caller."""

    def __init__(self, app: "App", allowed: Offered, members: "Members | None" = None) -> None:
        """Use the app. `allowed` lists the tools that the server offers.

        `members` are the replicas, if there are any.
        """
        self.app = app
        self.members = members
        self.allow_lists = allow_lists(app, allowed)
        self._under_way: dict[str, FairShares[None]] = {}  # by refusal
        self._work = Slots(MAX_WORK)
        # By allow-list: the names for code, and what they were built from.
        self.names: dict[tuple[tuple[str, ...] | None, str], tuple[tuple[object, object], bytes]] = {}
        self.names_lock = Lock()
        self.removals = {}
        self.port: int | None = None  # that the server listens on; --port may differ from the config

    @contextmanager
    def admitted(self, limit: int, refusal: str, retry_s: int) -> Iterator[None]:
        """Count a long request while it runs. Raises RestError if there is no place for the caller.

        Requests with different refusals are counted separately.
        """
        shares, caller = self._under_way.setdefault(refusal, FairShares(limit)), self.principal.caller
        if not shares.take(caller):
            raise RestError(503, "too_many", refusal, headers=[(b"retry-after", b"%d" % retry_s)])
        try:
            yield
        finally:
            shares.give_back(caller)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the caller's turn to do work that takes much processor time. Callers take turns, as with runs."""
        with self.admitted(MAX_WAITING, TOO_MUCH_WORK, RETRY_SECONDS):
            async with self._work.slot():
                yield

    @property
    def bundles(self) -> "BundleService":
        return self.app.bundles

    @property
    def allowed(self) -> Collection[str] | None:
        """The tools that the caller may call; None means all."""
        return self.allow_lists.of(current_principal.get())

    async def call(self, call: ToolCall, progress: "Progress | None" = None) -> ToolResult:
        """Call a tool by name, alias or version. Raises BundleError if it is disabled or over its limit."""
        is_by_name, catalog = call.version is UNSET, self.app.catalog
        if is_by_name:
            await catalog.refresh(at_once=True)  # tools that were just disabled must not be called
        allowed = self.allow_lists.of(current_principal.get())
        result = await self.app.call(call, allowed, progress)
        if result.error is not None:
            catalog.refuse_switched_off(call.name, result, allowed) if is_by_name else refuse_limited(result)
        return result

    async def visibility(self) -> Visibility:
        """Return the visibility rule for the caller: everything with the role edit, else only the tools it may call."""
        allowed = self.allowed
        return EVERYTHING if allowed is None or self.may_change else await self.bundles.visibility(allowed)

    def config_target(self) -> ConfigTarget:
        target = super().config_target()
        if self.port is not None:
            target.own_ports.add(self.port)
        return target

    def clean(self, value: Any, sent: Any = None) -> Any:
        """Mask secrets in a string, except those that the client sent."""
        return self.app.runtime.redact(value, sent)

    def response(self, found: Any) -> "RestResponse":
        """Return a response with status 200 and the data, with secrets masked."""
        return RestResponse(200, encode(self.clean(msgspec.to_builtins(found), None)))

    def clean_examples(self, tool: dict[str, Any]) -> dict[str, Any]:
        """Mask the config's secrets in the tool's examples, like help."""
        return {**tool, "examples": self.clean(tool["examples"], None)} if "examples" in tool else tool


class RestRequest(NamedTuple):
    """A request. `path` has the values in the path, in order; `query` is a Struct of the route's type."""

    context: RestContext
    path: tuple[str, ...]
    query: Any
    headers: Mapping[bytes, bytes]
    scope: Scope
    receive: Receive
    send: Send

    async def work(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Do work that takes much processor time, in the caller's turn.

        Return None if the client has disconnected, which cancels the work.
        """
        try:
            with DisconnectWatch(self.receive):
                async with self.context.turn():
                    return await work
        finally:
            work.close()  # if its turn didn't come
        return None

    def expected_tag(self, may_be_new: bool = False) -> str | None:
        """Return the ETag that the path's bundle or tool must have, if any. Raises OutdatedError if it has another."""
        bundles = self.context.bundles
        get = bundles.get_bundle if len(self.path) == 1 else bundles.get_tool
        return conditions(self.headers).expected_tag(lambda: get(*self.path, visibility=EVERYTHING)[1], may_be_new)

    def tagged_response(self, thing: dict[str, Any], tag: str) -> "RestResponse":
        """Return the response with a bundle or a tool, or 304 if the client has it."""
        if is_known(self.headers, tag):
            return RestResponse(304, headers=(etag(tag),))
        return with_etag(self.context.clean_examples(thing), tag)


class RestResponse(NamedTuple):
    """A response with a body (JSON unless `kind` says otherwise) or without."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    kind: bytes = JSON


NO_CONTENT = RestResponse(204)


def with_etag(thing: Mapping[str, Any], tag: str) -> RestResponse:
    """Build the response with a bundle or tool, and its ETag."""
    return RestResponse(200, encode(thing), (etag(tag),))


# Lists: an unchanged list is not sent again, and others are compressed


def list_response(headers: Mapping[bytes, bytes], body: bytes) -> RestResponse:
    """Build a page of a list. Call this in a thread, because compression takes time.

    The ETag is weak, because the page may be compressed or not. Only lists are compressed: they never have an
    attacker's text next to a secret, so that their size reveals nothing (BREACH).
    """
    tag = blake2b(body, digest_size=12).hexdigest()  # takes half the time of SHA-256
    sent: list[tuple[bytes, bytes]] = [(b"etag", f'W/"{tag}"'.encode()), (b"vary", b"accept-encoding")]
    if is_known(headers, tag):
        return RestResponse(304, headers=tuple(sent))
    if len(body) > SMALL and takes_gzip(headers):
        body = gzip.compress(body, PACKING_LEVEL, mtime=0)
        sent.append((b"content-encoding", b"gzip"))
    return RestResponse(200, body, tuple(sent))


# Addresses of tools


def tool_address(bundle_id: str, slug: str, version: str) -> str:
    return f"/tools/bundles/{bundle_id}/tools/{quote(slug, safe='')}/version/{quote(version, safe='')}"


def created_at(thing: Mapping[str, Any], tag: str, at: str) -> RestResponse:
    return RestResponse(201, encode(thing), (etag(tag), (b"location", at.encode())))


# Requests made by tools


def refuse_tools(scope: Scope) -> None:
    """Raise RestError for a request made by an HTTP tool or by our client of an MCP server."""
    if TOOL_HEADER in scope[HEAD]:
        raise RestError(403, "not_for_tools", "Tools and MCP servers may not use this, only people.")
