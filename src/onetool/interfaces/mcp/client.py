"""Clients and their requests, and how running calls reach the client (progress, log messages, questions).

Facts about a client come from `initialize`, or from the `_meta` of the request itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from threading import get_ident
from time import monotonic
from typing import Any, Protocol

import msgspec

from onetool.core.call import CannotAsk, Declined, ForModel, ForPerson, Level, Question
from onetool.core.context import paused_for_caller
from onetool.core.errors import ToolFailure
from onetool.core.mcp_protocol import (
    CLIENT_CAPABILITIES,
    INVALID_PARAMS,
    LEVELS,
    LOG_LEVEL,
    META,
    PROTOCOL_VERSION,
    SESSION_REVISIONS,
    STATELESS_REVISIONS,
    TASKS,
    Id,
    JsonRpcError,
    is_id,
    unsupported_version,
)
from onetool.core.mismatch import PYTHON_TYPES, TYPES, described
from onetool.core.principal import LOCAL, Principal
from onetool.http.asgi import Head
from onetool.script.run_result import CallLog

CLIENT_INFO = f"{META}clientInfo"
MAX_NAME = 100


class CallGapTimer:
    """A timer of how long a client waits between a result and its next call, for one conversation."""

    __slots__ = ("_answered", "_running")

    def __init__(self) -> None:
        self._answered: float | None = None
        self._running = 0

    def call_started(self) -> float | None:
        """Count the start of a call. Return the seconds since the last result, if no other call ran in between."""
        silent_since = None if self._running else self._answered
        self._running += 1
        self._answered = None
        return None if silent_since is None else monotonic() - silent_since

    def call_ended(self, has_result: bool) -> None:
        """Count the end of a call. Without a final result, the time until the next call is not measured."""
        self._running -= 1
        self._answered = monotonic() if has_result else None


class RemoteClient(msgspec.Struct, kw_only=True):
    """A connected client. `principal` is its identity; `name` is the name that it reports."""

    revision: str = SESSION_REVISIONS[0]
    capabilities: Mapping[str, Any] = {}
    log_level: Level | None = "info"
    principal: Principal = LOCAL
    name: str = ""
    menu: str | None = None  # the menu that it chose; None: the default
    wants_whole: bool = False  # large results in full instead of handles
    is_stateless: bool = False  # it sends stateless requests (2026-07-28)
    gap_timer: CallGapTimer | None = None  # of its conversation, if it has one

    @property
    def owner(self) -> str:
        return self.principal.owner

    def can(self, what: str) -> bool:
        """Return whether the client has declared a capability, or an extension by its id."""
        if not self.capabilities:
            return False
        if "/" in what:
            extensions = self.capabilities.get("extensions")
            return isinstance(extensions, Mapping) and what in extensions
        found = self.capabilities.get(what)
        if what == "elicitation" and isinstance(found, Mapping) and found:
            return "form" in found  # some clients can only open a web page, not show a form
        return isinstance(found, Mapping)

    def wants(self, level: Level) -> bool:
        return self.log_level is not None and LEVELS.index(level) >= LEVELS.index(self.log_level)


def known_capabilities(capabilities: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keep only the capabilities that we use: clients may send megabytes, and sessions last long."""
    if not capabilities:
        return capabilities
    known: dict[str, Any] = {name: {} for name in ("sampling", "roots") if isinstance(capabilities.get(name), dict)}
    if isinstance(asking := capabilities.get("elicitation"), dict):
        known["elicitation"] = {way: {} for way in ("form", "url") if way in asking}
    if isinstance(extensions := capabilities.get("extensions"), dict):
        known["extensions"] = {TASKS: {}} if TASKS in extensions else {}
    return known


def client_name(info: Any) -> str:
    """Return the name in a `clientInfo`, made safe to show, because clients choose it."""
    name = info.get("name") if isinstance(info, dict) else None
    if not isinstance(name, str):
        return ""
    name = name[: 2 * MAX_NAME]
    shown = name if name.isprintable() else "".join(filter(str.isprintable, name))
    return shown.strip()[:MAX_NAME]


def is_stateless_message(meta: Any) -> bool:
    """Return whether a message is stateless: its `_meta` has the protocol version or the capabilities."""
    return isinstance(meta, dict) and (PROTOCOL_VERSION in meta or CLIENT_CAPABILITIES in meta)


def client_from_meta(meta: Any, principal: Principal) -> RemoteClient:
    """Return the client of a stateless message (2026-07-28), from its `_meta`."""
    if not isinstance(meta, dict):
        raise JsonRpcError(
            INVALID_PARAMS, f"params._meta is missing: it must have {PROTOCOL_VERSION} and {CLIENT_CAPABILITIES}"
        )
    version, capabilities = meta.get(PROTOCOL_VERSION), meta.get(CLIENT_CAPABILITIES)
    for key, value, kind in ((PROTOCOL_VERSION, version, str), (CLIENT_CAPABILITIES, capabilities, dict)):
        if not isinstance(value, kind):
            what = "is missing" if value is None else f"must be {'a string' if kind is str else 'an object'}"
            raise JsonRpcError(INVALID_PARAMS, f"params._meta[{key!r}] {what}")
    if version not in STATELESS_REVISIONS:
        raise unsupported_version(str(version), STATELESS_REVISIONS)
    level = meta.get(LOG_LEVEL)
    if level is not None and level not in LEVELS:
        raise JsonRpcError(INVALID_PARAMS, f"params._meta[{LOG_LEVEL!r}] must be one of {', '.join(LEVELS)}")
    return RemoteClient(
        revision=version,
        capabilities=known_capabilities(capabilities) if capabilities else {},
        log_level=level,
        principal=principal,
        name=client_name(meta[CLIENT_INFO]) if CLIENT_INFO in meta else "",
        is_stateless=True,
    )


# Questions of tools as MCP requests, and their answers


class BadAnswerError(Exception):
    """Raised when the client's answer doesn't match the protocol or the question."""


def request_for(question: Question) -> dict[str, Any]:
    """Return the request to the client: its method and params."""
    if isinstance(question, ForPerson):
        params = {"message": question.message, "requestedSchema": question.schema}
        return {"method": "elicitation/create", "params": params}
    if isinstance(question, ForModel):
        params = {"messages": list(question.messages), "maxTokens": question.max_tokens}
        if question.system is not None:
            params["systemPrompt"] = question.system
        return {"method": "sampling/createMessage", "params": params}
    return {"method": "roots/list", "params": {}}


def read_answer(question: Question, result: Any) -> Any:
    """Return the answer for the tool. Raises BadAnswerError, or Declined."""
    if not isinstance(result, Mapping):
        raise BadAnswerError("expected an object")
    if isinstance(question, ForPerson):
        action, content = result.get("action"), result.get("content")
        if action in ("decline", "cancel"):
            raise Declined(action)
        if action != "accept":
            raise BadAnswerError("expected action: accept, decline or cancel")
        if not isinstance(content, dict):
            raise BadAnswerError("expected content: an object")
        from onetool.core.schema import CompiledSchema  # the validator is loaded only for answers

        if problems := CompiledSchema(question.schema, closed=False).check(content):
            raise BadAnswerError("; ".join(map(str, problems)))
        return content
    if isinstance(question, ForModel):
        content = result.get("content")
        blocks: list[Any] = content if isinstance(content, list) else [content]
        if not blocks or not all(isinstance(block, dict) for block in blocks):
            raise BadAnswerError("expected content: what the model said")
        texts = [one["text"] for one in blocks if one.get("type") == "text" and isinstance(one.get("text"), str)]
        if not texts:
            raise ToolFailure(f"the model answered with {blocks[0].get('type')}; expected text")
        return "\n".join(texts)
    roots = result.get("roots")
    if not isinstance(roots, list) or not all(isinstance(root, dict) and "uri" in root for root in roots):
        raise BadAnswerError("expected roots: a list of objects with a uri")
    return roots


# The client of a running call

AskClient = Callable[[Question], Awaitable[Any]]


class ReplyChannel(Protocol):
    """A channel for notifications and requests to the client during one of its requests.

    Use it only on the event loop.
    """

    def notify(self, method: str, params: dict[str, Any]) -> None: ...

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        """Return the client's result. Raises JsonRpcError with its error."""
        ...


class ClientCaller(msgspec.Struct, eq=False, weakref=True):
    """The client of one call. Thread-safe, because tools in threads use it, too."""

    client: RemoteClient
    channel: ReplyChannel | None  # None while no client waits for the call
    progress_token: Any
    ask_client: AskClient | None = None  # None: send a request, which clients with a session accept
    wants_whole: bool = False
    can_run: bool = True  # its menu has `run`
    made: str = ""  # a summary of the calls of a cancelled run
    lacking: CannotAsk | None = None
    calls: CallLog | None = None  # the calls made by code
    _loop: asyncio.AbstractEventLoop = msgspec.field(default_factory=asyncio.get_running_loop)
    _thread: int = msgspec.field(default_factory=get_ident)
    _last: float | None = None

    @property
    def owner(self) -> str:
        return self.client.owner

    @property
    def client_name(self) -> str:
        return self.client.name

    @property
    def peer(self) -> object:
        """An object that stands for the client: the same one for all calls of a conversation."""
        return self.client.gap_timer or self.client

    def can(self, what: str) -> bool:
        return self.client.can(what)

    def lacks(self, error: CannotAsk) -> None:
        self.lacking = error

    def log(self, level: Level, data: Any, logger: str | None) -> None:
        if self.client.wants(level):
            self._notify(
                "notifications/message", {"level": level, "data": data} | ({"logger": logger} if logger else {})
            )

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        if self.progress_token is None or (self._last is not None and done <= self._last):  # it must only grow
            return
        self._last = done
        params = {"progressToken": self.progress_token, "progress": done, "total": total, "message": message}
        self._notify("notifications/progress", {key: value for key, value in params.items() if value is not None})

    async def ask(self, question: Question) -> Any:
        with paused_for_caller():
            if self.ask_client is not None:
                return await self.ask_client(question)
            if self.channel is None:
                raise ToolFailure("the call has ended, so the client can't be asked")
            try:
                return read_answer(question, await self.channel.request(**request_for(question)))
            except JsonRpcError as error:
                raise ToolFailure(f"the client could not answer: {error}") from None
            except BadAnswerError as bad:
                raise ToolFailure(f"the client's answer can't be used: {bad}") from None

    def _notify(self, method: str, params: dict[str, Any]) -> None:
        if get_ident() == self._thread:
            self._send_notification(method, params)
        else:
            self._loop.call_soon_threadsafe(self._send_notification, method, params)

    def _send_notification(self, method: str, params: dict[str, Any]) -> None:
        if self.channel is not None:  # otherwise the handler continues after its timeout
            self.channel.notify(method, params)


# Requests, and lists in pages

ASKING_CAPABILITIES = ("elicitation", "sampling", "roots")
MAX_TOKEN = 256
PAGE_SIZE = 1000  # usually all items, except for catalogues too large for a client


class McpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request: its method and params, its client, and the channel to it."""

    id: Id
    method: str
    params: Mapping[str, Any]
    client: RemoteClient
    channel: ReplyChannel
    watched: set[str] | None = None  # resources that its session subscribed to, if there is a session
    head: Head | None = None  # the headers of a stateless request over HTTP, which repeat some arguments

    def param(self, name: str, kind: type = str, default: Any = ...) -> Any:
        """Return a member of params, checked for its type. Raises JsonRpcError."""
        value = self.params.get(name, default)
        if value is ...:
            raise JsonRpcError(INVALID_PARAMS, f"params.{name} is missing: {self.method} needs it")
        if value is not default and not isinstance(value, kind):
            raise JsonRpcError(
                INVALID_PARAMS, f"params.{name}: expected {TYPES[PYTHON_TYPES[kind]]}, got {described(value)}"
            )
        return value

    @property
    def progress_token(self) -> str | int | None:
        """The progress token; None if it is not an id or is too long."""
        meta = self.params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        return token if token is not None and is_id(token) and len(str(token)) <= MAX_TOKEN else None

    def can_pause(self, task_after: float | None = None) -> bool:
        """Return whether a stateless call may ask a question, continue after an answer, or become a task."""
        client = self.client
        if not client.is_stateless:
            return False
        can_ask = bool(client.capabilities) and any(map(client.can, ASKING_CAPABILITIES))
        return can_ask or "requestState" in self.params or (task_after is not None and client.can(TASKS))


def page(name: str, items: Sequence[Any], request: McpRequest) -> dict[str, Any]:
    cursor = request.param("cursor", str, None)
    start = 0
    if cursor is not None:
        if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10 and 0 < int(cursor) < len(items)):
            raise JsonRpcError(INVALID_PARAMS, "Invalid params.cursor: begin again without it")
        start = int(cursor)
    end = start + PAGE_SIZE
    if start == 0 and end >= len(items):
        return {name: items}
    return {name: items[start:end]} | ({"nextCursor": str(end)} if end < len(items) else {})
