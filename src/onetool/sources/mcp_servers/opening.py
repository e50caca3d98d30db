"""Open a connection to an MCP server with the official SDK's client, and answer the server's requests.

This module imports the SDK, which takes a second. The transport that worked last is tried first, then the current one,
then older ones. A server's requests and notifications during a call go to the caller, if the call can be identified.
Lines of standard output that aren't messages (a banner, a stray print) go to the server's log.
"""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from typing import Any, Self

import anyio
from anyio import EndOfStream
from mcp.client import Client
from mcp.client.extension import advertise
from mcp.shared.message import SessionMessage
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    INVALID_REQUEST,
    PARSE_ERROR,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    Implementation,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    LoggingMessageNotificationParams,
    TextContent,
    jsonrpc_message_adapter,
)

from onetool._version import __version__
from onetool.core.call import Declined
from onetool.core.errors import OneToolError, ToolFailure, cut
from onetool.core.json_data import MAX_PARTS, JsonTooCostlyError, check_json, size_of
from onetool.sdk.context import ask_model, ask_person, log_message
from onetool.sources.mcp_servers import apps
from onetool.sources.mcp_servers.connection import (
    HttpStatusError,
    ProcessEndedError,
    UpstreamConnection,
    as_data,
    root_cause,
    why,
)
from onetool.sources.mcp_servers.process import ProcessLines, ServerProcess
from onetool.sources.mcp_servers.server_log import ServerLog
from onetool.sources.mcp_servers.upstream import Upstream
from onetool.sources.mcp_servers.upstream_calls import (
    TransportFailure,
    UpstreamCall,
    UpstreamCalls,
    current_upstream_call,
)

ANSWERS = re.compile(rb'^\{(?:(?!"(?:result|error|method|params)").)*?"id"\s*:\s*(\d{1,18})\b', re.DOTALL)
MAX_UNANSWERED = 64  # pending requests of a server; further requests wait
WRITE_SECONDS = 5.0  # seconds
MAX_LOGGED = 64 * 1024  # bytes of one log message
NEAR = 200  # bytes at the start of a response that usually contain its id


def has_at_most(parts: int, data: Any) -> bool:
    """Return whether data has at most this number of parts.

    A small document can hold millions, which are slow to copy and check.
    """
    left, waiting = parts, [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            left -= len(value)
            if left < 0:
                return False
            waiting.extend(value.values() if isinstance(value, dict) else value)
    return True


class _ProcessStream:
    """The methods that the SDK requires of both streams of a process."""

    async def aclose(self) -> None:
        """Do nothing: the input of the process is closed when the process is ended."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _WrappedStream:
    """A stream around another one. `unanswered` limits the number of the server's pending requests."""

    def __init__(self, stream: Any, unanswered: asyncio.Semaphore) -> None:
        self._stream = stream
        self._unanswered = unanswered

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stream.__aexit__(*error)


class ProcessReadStream(_ProcessStream):
    """The SDK's ReadStream over the output of a process."""

    def __init__(self, lines: ProcessLines, log: ServerLog) -> None:
        self._lines = lines
        self._log = log

    async def receive(self) -> SessionMessage:
        while (line := await self._lines.next()) is not None:
            if (line := line.strip()) and (message := self._message(line)) is not None:
                return message
        raise EndOfStream

    def _message(self, line: bytes) -> SessionMessage | None:
        try:
            check_json(line)
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError as error:
            self._log.write_stray(line)
            why = f": it {error}" if isinstance(error, JsonTooCostlyError) else ""
        number = ANSWERS.search(line[:NEAR])
        if number is None:
            return None
        # Without an error, the caller would wait for the timeout.
        wrong = ErrorData(code=PARSE_ERROR, message=f"its response can't be read{why}")
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=int(number[1]), error=wrong))

    async def aclose(self) -> None:
        self._lines.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except EndOfStream:
            raise StopAsyncIteration from None


class CompletedReadStream(_WrappedStream):
    """Messages from any transport, with fields added that modern servers may omit and the SDK requires."""

    def __init__(self, stream: Any, connection: UpstreamConnection, unanswered: asyncio.Semaphore) -> None:
        super().__init__(stream, unanswered)
        self._connection = connection

    @property
    def last_context(self) -> Any:
        """The context in which the last message was sent, if the transport knows it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        return await self._completed(await self._stream.receive())

    async def _completed(self, item: Any) -> Any:
        message = getattr(item, "message", None)
        if isinstance(message, JSONRPCRequest):
            with suppress(TimeoutError):  # the server may have dropped a request silently
                await asyncio.wait_for(self._unanswered.acquire(), WRITE_SECONDS)
        if not isinstance(message, JSONRPCResponse):
            return item
        if not has_at_most(MAX_PARTS, message.result):
            wrong = ErrorData(code=PARSE_ERROR, message=f"its response has more than {MAX_PARTS:,} parts")
            return SessionMessage(JSONRPCError(jsonrpc="2.0", id=message.id, error=wrong))
        if "resultType" not in message.result and self._connection.is_stateless:
            message.result["resultType"] = "complete"
        return item

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return await self._completed(await self._stream.__anext__())


class ProcessWriteStream(_ProcessStream):
    """The SDK's WriteStream over the input of a process."""

    def __init__(self, child: ServerProcess) -> None:
        self._child = child

    async def send(self, item: SessionMessage, /) -> None:
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        await self._child.write(text.encode() + b"\n")


class AnsweringWriteStream(_WrappedStream):
    """Messages to any transport. Sending the response to a request releases its place in `unanswered`."""

    async def send(self, item: SessionMessage, /) -> None:
        if isinstance(item.message, JSONRPCRequest):
            _declare_forms_only(item.message.params or {})
        try:
            await self._stream.send(item)
        finally:
            if isinstance(item.message, JSONRPCResponse | JSONRPCError):
                self._unanswered.release()


def _declare_forms_only(params: dict[str, Any]) -> None:
    """Remove a capability that the SDK declares for every client that answers questions: to open pages."""
    meta = params.get("_meta") or {}
    for capabilities in (params.get("capabilities"), meta.get(CLIENT_CAPABILITIES_META_KEY)):
        if capabilities and "elicitation" in capabilities:
            capabilities["elicitation"].pop("url", None)


# Requests and notifications of the server during a call


class ClientCallbacks:
    """The SDK's callbacks for one connection."""

    def __init__(self, server: str, calls: UpstreamCalls, log: ServerLog) -> None:
        self._server = server
        self._calls = calls
        self._log = log

    async def elicit(self, context: Any, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        """Have the caller's client ask the user to fill in a form."""
        if not isinstance(params, ElicitRequestFormParams):
            return _declined(f"{self._server} asks to open a page ({params.url}), which OneTool does not support")
        call = self._current_call()
        if call is None:
            return self._cannot_ask("a person")
        schema = dict(params.requested_schema)
        try:
            answer = await call.on_caller_loop(lambda: ask_person(f"{self._server} asks: {params.message}", schema))
        except Declined as declined:
            return ElicitResult(action="decline" if declined.action == "decline" else "cancel")
        except OneToolError as error:
            return _declined(str(error))
        return ElicitResult(action="accept", content=answer)

    async def sample(self, context: Any, params: CreateMessageRequestParams) -> CreateMessageResult | ErrorData:
        """Prompt the model of the caller's client."""
        if params.tools:
            return _declined("OneTool does not support sampling with tools")
        call = self._current_call()
        if call is None:
            return self._cannot_ask("a model")
        messages = [as_data(message) for message in params.messages]
        try:
            text = await call.on_caller_loop(
                lambda: ask_model(messages, max_tokens=params.max_tokens, system=params.system_prompt)
            )
        except OneToolError as error:
            return _declined(str(error))
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text=text), model="unknown")

    async def log(self, params: LoggingMessageNotificationParams) -> None:
        call = self._current_call()
        data = params.data if size_of(params.data) <= MAX_LOGGED else cut(str(params.data), MAX_LOGGED)
        self._log.note(f"it logs ({params.level}): {data}")
        if call is not None:
            call.run_in_context(log_message, data, params.level, params.logger or self._server)

    def _current_call(self) -> UpstreamCall | None:
        return current_upstream_call.get() or self._calls.only()

    def _cannot_ask(self, recipient: str) -> ErrorData:
        return _declined(f"{self._server} wants to ask {recipient}, but OneTool can't tell during which call")


def _declined(why: str) -> ErrorData:
    return ErrorData(code=INVALID_REQUEST, message=why)


# Opening a connection with the official SDK

# The SDK's log messages are for its authors. The server log has what users need.
for noisy in ("mcp", "client", "httpx2", "httpcore2"):
    logging.getLogger(noisy).addHandler(logging.NullHandler())

CLIENT_INFO = Implementation(name="onetool", title="OneTool", version=__version__)
OLD_WAYS = (400, 404, 405, 406, 415)  # statuses from servers that don't support Streamable HTTP


@asynccontextmanager
async def connected(upstream: Upstream) -> AsyncGenerator[UpstreamConnection]:
    """Open a connection within the server's time limit, and list what the server offers."""
    seconds = upstream.settings.connect_timeout
    with anyio.move_on_after(seconds) as limit:
        async with AsyncExitStack() as stack:
            connection = await _open_first(upstream, stack)
            limit.deadline = float("inf")
            yield connection
    if limit.cancelled_caught:
        raise ToolFailure(
            f"it did not respond within {seconds:g} s (to wait longer: connect_timeout in its block of the config)"
        )


async def _open_first(upstream: Upstream, stack: AsyncExitStack) -> UpstreamConnection:
    """Return a connection over the first transport that works, starting with the transport that worked last."""
    # Some old stdio servers exit unless the first message is `initialize`.
    ways = {"stdio": ["auto", "legacy"], "http": ["auto", "sse"], "sse": ["sse"]}[upstream.settings.transport]
    first: Exception | None = None
    for way in sorted(ways, key=lambda way: way != upstream.way):
        try:
            async with AsyncExitStack() as attempt:
                connection = await attempt.enter_async_context(_open(upstream, way))
                stack.push_async_exit(attempt.pop_all())
                return connection
        except Exception as error:
            ways.remove(way)
            cause = root_cause(error)
            is_old = isinstance(cause, HttpStatusError) and cause.status in OLD_WAYS
            if first is not None and way == "sse":
                hint = "is the path of its URL right? It is often /mcp"
                raise ToolFailure(f"{why(first)}, and it isn't an older server (SSE) either; {hint}") from first
            if not ways or not (isinstance(cause, ProcessEndedError) or way == "sse" or is_old):
                raise
            first = error
            upstream.server_log.note(f"{why(error)}; trying the older transport")
            upstream.server_log.words.clear()
    raise AssertionError("there is always a transport")


@asynccontextmanager
async def _open(upstream: Upstream, way: str) -> AsyncGenerator[UpstreamConnection]:
    connection = UpstreamConnection(upstream.settings, upstream.server_log, way)
    callbacks = ClientCallbacks(upstream.name, upstream.pending_calls, upstream.server_log)
    try:
        async with AsyncExitStack() as stack:
            incoming, outgoing = await stack.enter_async_context(_streams(upstream, connection))
            unanswered = asyncio.Semaphore(MAX_UNANSWERED)
            streams: Any = (
                CompletedReadStream(incoming, connection, unanswered),
                AnsweringWriteStream(outgoing, unanswered),
            )
            client = Client(
                nullcontext(streams),  # already open, because the streams must outlast the client
                mode="legacy" if way == "sse" else way,
                client_info=CLIENT_INFO,
                cache=None,
                elicitation_callback=callbacks.elicit,
                sampling_callback=callbacks.sample,
                logging_callback=callbacks.log,
                log_level="info",
                message_handler=connection.on_notification,
                extensions=[advertise(apps.EXTENSION, apps.SETTINGS)],
            )
            connection.client = await stack.enter_async_context(client)
            # The results of all tools are validated elsewhere, faster.
            connection.client.session.validate_tool_result = _skip_validation
            await connection.list_all()
            listening = asyncio.create_task(connection.listen())
            stack.callback(listening.cancel)
            yield connection
    except (Exception, BaseExceptionGroup) as error:  # in one of the SDK's tasks, or in the code that awaits them
        raise connection.reason_text(error) from error


@asynccontextmanager
async def _streams(upstream: Upstream, connection: UpstreamConnection) -> AsyncGenerator[tuple[Any, Any]]:
    """Open the transport, and return its streams of messages."""
    settings = upstream.settings
    if settings.transport == "stdio":
        child = await upstream.process()
        connection.bind_process(child)
        try:
            yield ProcessReadStream(child.lines, upstream.server_log), ProcessWriteStream(child)
        finally:
            await child.end()
        return
    from onetool.sources.mcp_servers.http_transport import reached
    from onetool.sources.mcp_servers.oauth import http_auth

    connection.failure_seen = TransportFailure()
    auth = http_auth(upstream.name, str(settings.url), settings.auth, upstream.logins, mask_also=upstream.mask_also)
    async with reached(settings, connection.way, auth, connection.failure_seen) as streams:
        yield streams


async def _skip_validation(name: str, result: Any) -> None: ...
