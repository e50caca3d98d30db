"""`UpstreamConnection`, an open connection to an MCP server: its requests, its lists, and the meaning of its errors.

A tool that violates the protocol must not hide the other tools, so lists are validated tool by tool.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from math import isfinite
from typing import Any, TypeVar
from urllib.parse import urlsplit

import anyio
from mcp import MCPError
from mcp.client import Client
from mcp_types import (
    CONNECTION_CLOSED,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    CallToolResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    Prompt,
    PromptListChangedNotification,
    Resource,
    ResourceListChangedNotification,
    ResourceTemplate,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from onetool.core.errors import OneToolError, ToolFailure, cut, describe_error, message_of
from onetool.core.json_data import protocol_failure, size_of
from onetool.sources.mcp_servers.process import ServerProcess
from onetool.sources.mcp_servers.server_cache import Definition, Offers
from onetool.sources.mcp_servers.server_log import ServerLog
from onetool.sources.mcp_servers.settings import ServerSettings
from onetool.sources.mcp_servers.upstream_calls import (
    TransportFailure,
    UpstreamCall,
    auth_error_in,
    current_upstream_call,
    watching_auth,
)

T = TypeVar("T")
Work = Callable[["UpstreamConnection", UpstreamCall], Awaitable[T]]
"""A function that sends requests over a connection."""
MAX_MESSAGE = 600
MAX_TARGET = 200  # characters of a name in a span
JSON_RPC_CODES = range(-32768, -31999)
# Words in refusals that a login may solve.
_LOGIN_WORDS = re.compile(r"log.?in|sign.?in|auth|token|credential|api.?key", re.IGNORECASE)
# Servers use this code for other errors, too. This message marks the SDK's own error.
CLOSED = "Connection closed"
OF_STATUS = ("Not Found", "Session terminated", "Server returned an error response")  # for a bare status
CUT_SHORT = ("SSE stream ended", "SSE stream failed", "server answered a request with 202")


class ProcessEndedError(ToolFailure):
    """An error for a process that ended before the connection was open."""


class HttpStatusError(ToolFailure):
    """An error for a web server that refused the connection."""

    status: int | None = None


def is_closed(error: BaseException) -> bool:
    """Return whether an error says that the connection is closed."""
    if isinstance(error, anyio.ClosedResourceError | anyio.BrokenResourceError):
        return True
    return isinstance(error, MCPError) and error.code == CONNECTION_CLOSED and error.message == CLOSED


def why(error: BaseException) -> str:
    """Return why a connection could not be opened or was lost. An exception group counts as its first cause."""
    cause = auth_error_in(error) or root_cause(error)
    if isinstance(cause, OneToolError):
        return message_of(cause)
    if isinstance(cause, MCPError):
        return f"it rejects the request: {cause.message}"
    if isinstance(cause, ValidationError):
        return f"its response is not MCP: {_first_fault(cause)}"
    return describe_error(cause)


def root_cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error


def advice(failure: TransportFailure) -> str:
    """Return advice for the status of a web server's answer."""
    match failure.status:
        case 403 if failure.body_text and not _LOGIN_WORDS.search(failure.body_text):
            return ""
        case 401 | 403:
            return "; it requires a login: see auth and headers in its block of the config"
        case 404:
            return "; there is no MCP server at this url"
        case _:
            return ""


def _first_fault(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    return cut(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}", 200)


# Listing tools, prompts and resources

MAX_PAGES, MAX_LISTED = 200, 5_000
MAX_LISTED_BYTES = 32 * 1024 * 1024  # after which no further page is requested

_KINDS = {"tools": "tool", "prompts": "prompt", "resources": "resource", "resourceTemplates": "resource template"}
_PAGES: Mapping[str, type[BaseModel]] = {
    "tools": ListToolsResult,
    "prompts": ListPromptsResult,
    "resources": ListResourcesResult,
    "resourceTemplates": ListResourceTemplatesResult,
}

Note = Callable[[str], None]


async def tools_of(client: Client, note: Note) -> list[Definition]:
    if client.server_capabilities.tools is None:
        return []
    return await _pages(client.session, "tools/list", "tools", Tool, note)


async def offers_of(client: Client, note: Note) -> Offers:
    """Return the prompts, resources and templates. A list that fails is empty, so that the others still work."""
    has = client.server_capabilities

    async def listed(method: str, kind: str, model: type[BaseModel]) -> tuple[Definition, ...]:
        try:
            return tuple(await _pages(client.session, method, kind, model, note))
        except (MCPError, ValidationError) as error:
            if not (isinstance(error, MCPError) and error.code == METHOD_NOT_FOUND):  # many servers have no templates
                note(f"its {_KINDS[kind]}s can't be listed: {why(error)}")
            return ()

    return Offers(
        prompts=await listed("prompts/list", "prompts", Prompt) if has.prompts else (),
        resources=await listed("resources/list", "resources", Resource) if has.resources else (),
        templates=await listed("resources/templates/list", "resourceTemplates", ResourceTemplate)
        if has.resources
        else (),
    )


def as_data(model: Any) -> dict[str, Any]:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


async def _pages(session: Any, method: str, kind: str, model: type[BaseModel], note: Note) -> list[Definition]:
    """Return the valid entries of all pages of a list. Stop at a repeated cursor."""
    listed: list[Definition] = []
    cursors: set[str] = set()
    cursor: str | None = None
    size = 0
    while len(cursors) < MAX_PAGES and len(listed) < MAX_LISTED and size < MAX_LISTED_BYTES:
        raw = await _page(session, method, cursor)
        if not isinstance(raw.get(kind), list):
            _PAGES[kind].model_validate(raw, by_name=False)  # raises a ValidationError
        entries = _valid_entries(raw[kind], kind, model, note)
        following = raw.get("nextCursor")
        if model is Tool:  # the SDK keeps what it needs for calls, and refuses some tools
            page = ListToolsResult(tools=[tool for tool, _ in entries], next_cursor=None)
            accepted = session._absorb_tool_listing(page, complete=cursor is None and not following).tools
            entries = [entry for entry in entries if any(entry[0] is tool for tool in accepted)]
        found = [with_unknown_members(as_data(known), entry) for known, entry in entries]
        listed += found
        size += sum(map(size_of, found))
        if not isinstance(following, str) or not following or following in cursors:
            break
        cursors.add(cursor := following)
    return listed[:MAX_LISTED]


async def _page(session: Any, method: str, cursor: str | None) -> dict[str, Any]:
    """Return a page of a list as its server sent it.

    The SDK rejects a page with any invalid entry, and drops members that it doesn't know. It has no option for this, so
    its private methods are used.
    """
    data: dict[str, Any] = {"method": method, "params": {} if cursor is None else {"cursor": cursor}}
    options: dict[str, Any] = {}
    session._stamp(data, options)
    return await session._dispatcher.send_raw_request(method, data["params"], options)


def _valid_entries(listed: list[Any], kind: str, model: type[BaseModel], note: Note) -> list[tuple[Any, Any]]:
    """Return the valid entries as the SDK reads them, each with the entry as sent."""
    entries: list[tuple[Any, Any]] = []
    for entry in listed:
        try:
            entries.append((model.model_validate(entry, by_name=False), entry))
        except ValidationError as error:
            name = entry.get("name") if isinstance(entry, dict) else entry
            note(f"invalid {_KINDS[kind]} ignored: {name!r:.100}: {_first_fault(error)}")
    return entries


def with_unknown_members(known: Any, sent: Any) -> Any:
    """Return data as the SDK reads it, with the members of its objects that the SDK doesn't know."""
    if known == sent:
        return known
    if isinstance(known, dict) and isinstance(sent, dict):
        unknown = {key: value for key, value in sent.items() if key not in known and value is not None}
        return {key: with_unknown_members(value, sent.get(key)) for key, value in known.items()} | unknown
    if isinstance(known, list) and isinstance(sent, list) and len(known) == len(sent):
        return [with_unknown_members(*pair) for pair in zip(known, sent, strict=True)]
    return known


def _members(result: Any, *names: str) -> dict[str, Any]:
    data = as_data(result)
    return {name: data[name] for name in names if name in data}


# The connection


def _span_address(settings: ServerSettings) -> dict[str, str | int]:
    """Return a server's address for a span: at most host and port, and only without secrets."""
    if settings.url is None:
        return {"network.transport": "pipe"}
    url = urlsplit(settings.target)
    if not url.hostname or "$" in url.netloc:  # the placeholder of a secret
        return {"network.transport": "tcp"}
    port = url.port or (443 if url.scheme == "https" else 80)
    return {"network.transport": "tcp", "server.address": url.hostname, "server.port": port}


CHANGED = (ToolListChangedNotification, PromptListChangedNotification, ResourceListChangedNotification)
LAST_WORDS = 0.5  # seconds: a process exits shortly after its output ends


class UpstreamConnection:
    """An open connection to a server. `way` is the transport or mode that it was opened with."""

    client: Client

    def __init__(self, settings: ServerSettings, log: ServerLog, way: str) -> None:
        self.way = way
        self.tools: list[Definition] = []
        self.offers = Offers()
        self.changed = asyncio.Event()  # set when the server's lists have changed
        self.failure_seen: TransportFailure | None = None  # of a server over HTTP
        self._settings = settings
        self._log = log
        self._child: ServerProcess | None = None
        self._ended = asyncio.Event()

    def bind_process(self, child: ServerProcess) -> None:
        """Bind to the process: the connection ends when the process's output ends."""
        self._child = child
        child.lines.at_end = self._ended.set

    @property
    def version(self) -> str | None:
        info = self.client.server_info
        return None if info is None else cut(f"{info.name} {info.version or ''}".strip(), 100)

    # Requests

    async def list_all(self) -> None:
        note = self._log.note
        self.tools = await tools_of(self.client, note)
        self.offers = await offers_of(self.client, note)

    async def count_tools(self) -> int:
        """List the server's tools, to test that it answers, and return their number."""
        return len(await tools_of(self.client, self._log.note))

    async def call(self, tool: str, args: Mapping[str, Any], call: UpstreamCall) -> CallToolResult:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            if call.progress is not None and isfinite(progress):  # NaN would always count as progress
                total = total if total is not None and isfinite(total) else None
                call.progress(progress, total, message and cut(message, MAX_MESSAGE))

        async def send(meta: Any) -> CallToolResult:
            follow = call.progress and on_progress
            return await self.client.call_tool(tool, dict(args), progress_callback=follow, meta=meta)

        with watching_auth() as login:
            try:
                return await self._send(call, "tools/call", send, tool)
            except Exception:
                if login.error is not None:
                    raise ToolFailure(str(login.error), reason="denied") from None
                raise

    async def prompt(self, name: str, args: Mapping[str, str], call: UpstreamCall) -> dict[str, Any]:
        """Return a prompt's messages as plain data, with its description and `_meta`."""
        found = await self._send(
            call, "prompts/get", lambda meta: self.client.get_prompt(name, dict(args), meta=meta), name
        )
        return _members(found, "description", "messages", "_meta")

    async def resource(self, uri: str, call: UpstreamCall) -> dict[str, Any]:
        """Read a resource and return {"contents": […]} with its parts as plain data, and `_meta`."""
        found = await self._send(call, "resources/read", lambda meta: self.client.read_resource(uri, meta=meta))
        return _members(found, "contents", "_meta")

    async def _send(self, call: UpstreamCall, method: str, send: Callable[[Any], Awaitable[T]], target: str = "") -> T:
        """Send a request for the caller. If spans are exported, `send` receives a trace context for `_meta`."""
        current_upstream_call.set(call)
        target = cut(target, MAX_TARGET)
        if (span := call.begin_span(f"{method} {target}".rstrip())) is None:
            return await send(None)
        span.attributes |= {"mcp.method.name": method, "mcp.protocol.version": self.client.protocol_version}
        span.attributes |= {"onetool.server": self._log.name, **_span_address(self._settings)}
        if method == "tools/call":
            span.attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": target}
        elif target:
            span.attributes["gen_ai.prompt.name"] = target
        with span:
            try:
                result = await send(dict(span.headers()))
            except MCPError as error:
                # Servers choose their own codes, so only those of JSON-RPC are recorded.
                span.attributes["error.type"] = str(error.code) if error.code in JSON_RPC_CODES else "MCPError"
                raise
            if isinstance(result, CallToolResult) and result.is_error:
                span.attributes["error.type"] = "tool_error"
            return result

    async def on_notification(self, message: Any) -> None:
        if isinstance(message, CHANGED):
            self.changed.set()

    async def listen(self) -> None:
        """Listen for changes: servers with current protocol versions notify only clients that listen."""
        has = self.client.server_capabilities
        tells = [part is not None and bool(part.list_changed) for part in (has.tools, has.prompts, has.resources)]
        if not self.is_stateless or not any(tells):
            return
        tools, prompts, resources = tells
        while not self.has_ended:
            try:
                async with self.client.listen(
                    tools_list_changed=tools, prompts_list_changed=prompts, resources_list_changed=resources
                ) as events:
                    async for _ in events:
                        self.changed.set()
            except Exception as error:  # noqa: BLE001 - calls still work, and listening is tried again
                self._log.note(f"can't listen for changes: {describe_error(error)}")
            await asyncio.sleep(self._settings.connect_timeout)

    @property
    def is_stateless(self) -> bool:
        """Whether a modern protocol version was negotiated. False until the connection is open."""
        return hasattr(self, "client") and self.client.protocol_version in MODERN_PROTOCOL_VERSIONS

    # The end of the connection

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    async def wait_ended(self) -> None:
        """Wait until the connection has ended and the exit code is known."""
        await self._ended.wait()
        if self._child is not None:
            await self._child.wait_exited(LAST_WORDS)

    def mark_unusable(self) -> None:
        """Mark as unusable: the next call opens another connection."""
        self._ended.set()

    def ends_connection(self, error: BaseException, call: UpstreamCall) -> bool:
        """Return whether an error means that the connection has ended."""
        return self.has_ended or is_closed(error) or self._is_session_lost(error, call)

    def was_dropped(self, error: BaseException, call: UpstreamCall) -> bool:
        """Return whether this call gets no answer. Other calls may still get theirs."""
        is_cut_short = (  # though the connection may still work
            isinstance(error, MCPError) and error.code == CONNECTION_CLOSED and error.message.startswith(CUT_SHORT)
        )
        return self.ends_connection(error, call) or is_cut_short or call.failure.was_not_received

    def was_not_received(self, error: BaseException, call: UpstreamCall) -> bool:
        """Return whether the server can't have run the call: it was not reached, or has lost our session."""
        return call.failure.was_not_received or self._is_session_lost(error, call)

    def _is_session_lost(self, error: BaseException, call: UpstreamCall) -> bool:
        # Modern servers have no sessions: their 404 means something else.
        return isinstance(error, MCPError) and call.failure.status == 404 and not self.is_stateless

    def why_ended(self, call: UpstreamCall | None = None) -> str:
        if self._child is not None:
            return self._child.why_ended()
        of_call = None if call is None else call.failure.words
        return of_call or (self.failure_seen and self.failure_seen.words) or "the connection was closed"

    def reason_text(self, error: BaseException) -> BaseException:
        """Return the error with the best explanation of why the connection failed, and what to do."""
        if isinstance(error, ToolFailure) or auth_error_in(error) is not None:
            return error
        if self.failure_seen is not None and self.failure_seen.words:
            refused = HttpStatusError(self.failure_seen.words + advice(self.failure_seen))
            refused.status = self.failure_seen.status
            return refused
        if self._child is not None and self._child.lines.broke_off:
            return ProcessEndedError(self._child.why_ended())
        return error

    def failure(self, error: BaseException, call: UpstreamCall) -> ToolFailure:
        """Return the failure of a call whose answer was an error or invalid."""
        if isinstance(error, ToolFailure):
            return error
        while_calling = call.failure.words
        if isinstance(error, MCPError):
            message = error.message or f"error {error.code}"
            # The SDK and our own reader raise such errors for answers that are not MCP.
            is_of_transport = error.code == PARSE_ERROR or error.message.startswith("Unexpected content type")
            if not is_of_transport and (while_calling is None or error.message not in OF_STATUS):
                data = {} if error.data is None else {"data": error.data}
                return protocol_failure(message, {"code": error.code, "message": message, **data})
            return ToolFailure(cut(f"{message} ({while_calling})" if while_calling else message, MAX_MESSAGE))
        if isinstance(error, ValidationError):
            return ToolFailure(f"its response violates MCP: {_first_fault(error)}", reason="output_invalid")
        return ToolFailure(cut(why(error), MAX_MESSAGE))
