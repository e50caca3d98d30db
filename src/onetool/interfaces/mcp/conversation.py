"""The messages of one client, over a pipe or in an HTTP session.

A conversation keeps the running requests, which can be cancelled by their id, and the questions that the client has
not answered yet. Ids are unique only within a conversation.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any

import msgspec

from onetool.core.mcp_protocol import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    Id,
    JsonRpcError,
    Message,
    error_response,
    is_id,
    notification,
)
from onetool.core.trace import RecordSpan, RequestTrace, begin_trace, current_trace
from onetool.interfaces.mcp.client import CallGapTimer, McpRequest, RemoteClient, client_from_meta, is_stateless_message
from onetool.interfaces.mcp.methods import handle_request
from onetool.interfaces.mcp.pending_calls import PARKED_SECONDS
from onetool.interfaces.mcp.service import ChangeListener, Service

Send = Callable[[Message], None]
OnChange = Callable[[str, Mapping[str, Any]], Awaitable[None]]  # the method and the params of a request

CHANGES = ("initialize", "logging/setLevel", "resources/subscribe", "resources/unsubscribe")
BEFORE_INITIALIZE = ("initialize", "ping")  # allowed before initialize


class ConversationChannel(msgspec.Struct, eq=False):
    """The channel of one request in a conversation: notifications, and requests to the client."""

    conversation: "Conversation"
    send: Send

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self.send(notification(method, params))

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        return await self.conversation.ask(self.send, method, params)


class Conversation:
    """The messages of one client. `send` is for notifications that belong to no request."""

    def __init__(self, service: Service, client: RemoteClient, send: Send, on_change: OnChange | None = None) -> None:
        """Start a conversation. `on_change` is called for requests that change facts about the client."""
        self._service = service
        self._on_change = on_change
        self._running: dict[Id, asyncio.Task[Any]] = {}
        self._cancelled_ids: set[Id] = set()  # cancelled by the client
        self._questions: dict[Id, asyncio.Future[Any]] = {}
        self._numbers = count(1)
        self._has_no_reader = False  # the client sends nothing more
        self._is_initialized = self._is_closed = False
        self._news = ChangeListener(lambda method, params: send(notification(method, params or None)), client)
        self._forget: Callable[[], None] | None = None
        self.client = client
        client.gap_timer = CallGapTimer()
        self.watched = self._news.uris

    async def respond(self, message: Message, send: Send) -> Message | None:
        """Return the response to a checked message; None for notifications, responses and cancelled requests.

        A request is handled in the current task, which can be cancelled by the request's id.
        """
        if "method" not in message:
            self._take(message)
            return None
        if "id" not in message:
            if message["method"] == "notifications/cancelled" and is_id(
                id := message.get("params", {}).get("requestId")
            ):
                self._cancel(id)
            return None
        id, method, params = message["id"], message["method"], message.get("params", {})
        if id in self._running:  # keep the other request
            text = f"id {id!r:.100} is already used by a request in progress"
            return error_response(id, JsonRpcError(INVALID_REQUEST, text))
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this always runs in a task
        if current_trace.get() is None:  # only over stdio: over HTTP the trace is in the headers
            current_trace.set(_trace_of(params.get("_meta"), self._service.app.runtime.recorder.record_span))
        try:
            request = McpRequest(
                id=id,
                method=method,
                params=params,
                client=self._client_of(method, params),
                channel=ConversationChannel(self, send),
                watched=self.watched,
            )
            self._running[id] = task
            try:
                result = await handle_request(self._service, request)
            finally:
                del self._running[id]
            if method in CHANGES and request.client is self.client:
                await self._changed(request)
            return {"jsonrpc": "2.0", "id": id, "result": result}
        except JsonRpcError as error:
            return error_response(id, error)
        except asyncio.CancelledError:
            if id not in self._cancelled_ids:
                raise
            task.uncancel()
            ended = JsonRpcError(INTERNAL_ERROR, "the session has ended")
            return error_response(id, ended) if self._is_closed else None
        finally:
            self._cancelled_ids.discard(id)

    def _client_of(self, method: str, params: Mapping[str, Any]) -> RemoteClient:
        """Return the client of a request: the client of this conversation, or one described in `_meta`.

        Raises JsonRpcError for a request before initialize, or a second initialize.
        """
        if method == "server/discover" or ("_meta" in params and is_stateless_message(params["_meta"])):
            known = self.client
            client = client_from_meta(params.get("_meta"), known.principal)
            client.menu, client.wants_whole, client.gap_timer = known.menu, known.wants_whole, known.gap_timer
            return client
        if not self._is_initialized and method not in BEFORE_INITIALIZE:
            text = f"{method:.100} was sent before initialize, and without a protocol version in _meta"
            raise JsonRpcError(INVALID_REQUEST, text)
        if method == "initialize" and self._is_initialized:
            raise JsonRpcError(INVALID_REQUEST, "initialize was already sent")
        return self.client

    async def _changed(self, request: McpRequest) -> None:
        if request.method == "initialize" and not self._is_initialized:
            self.take_up()
        if self._on_change is not None:
            await self._on_change(request.method, request.params)

    def take_up(self) -> None:
        """Start notifying the client of changes, after it was initialized here or by another replica."""
        self._is_initialized = True
        self._forget = self._service.changes.add(self._news)

    def is_running(self, id: Id | None) -> bool:
        return id in self._running

    def _cancel(self, id: Id) -> None:
        if task := self._running.get(id):
            self._cancelled_ids.add(id)
            task.cancel()

    # Questions to the client

    async def ask(self, send: Send, method: str, params: dict[str, Any]) -> Any:
        if self._has_no_reader:
            raise _closed_error()
        number: Id = next(self._numbers)
        if self._service.replica:
            number = f"{self._service.replica}-{number}"  # another replica may receive the answer
        with self._service.pending_calls.asking(self.client.principal):
            waiting = self._questions[number] = asyncio.get_running_loop().create_future()
            send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            try:
                async with asyncio.timeout(PARKED_SECONDS):
                    return await waiting
            except TimeoutError:
                raise JsonRpcError(INTERNAL_ERROR, f"no answer within {PARKED_SECONDS:g} s") from None
            except asyncio.CancelledError:
                send(notification("notifications/cancelled", {"requestId": number, "reason": "no longer needed"}))
                raise
            finally:
                self._questions.pop(number, None)

    def _take(self, message: Message) -> None:
        waiting = self._questions.get(message["id"]) if message["id"] is not None else None
        if waiting is None or waiting.done():
            return
        if "result" in message:
            waiting.set_result(message["result"])
        else:
            error = message["error"] if isinstance(message["error"], dict) else {}
            waiting.set_exception(JsonRpcError(INTERNAL_ERROR, str(error.get("message", "an error"))[:500]))

    def expect_no_answers(self) -> None:
        """Fail all unanswered questions, because the client has closed its end."""
        self._has_no_reader = True
        for waiting in self._questions.values():
            if not waiting.done():
                waiting.set_exception(_closed_error())

    def close(self) -> None:
        """Cancel the requests and questions of a disconnected client."""
        self._is_closed = True
        if self._forget is not None:
            self._forget()
        for id in list(self._running):
            self._cancel(id)
        for waiting in self._questions.values():
            waiting.cancel()


def _closed_error() -> JsonRpcError:
    return JsonRpcError(INTERNAL_ERROR, "the client has closed the connection")


def _trace_of(meta: Any, record_span: RecordSpan | None) -> RequestTrace:
    """Return the trace of a request without headers. According to MCP, `_meta` may have a trace context."""
    found = [meta.get(name) if isinstance(meta, dict) else None for name in ("traceparent", "tracestate")]
    parent, state = (one.encode("utf-8", "replace") if isinstance(one, str) else None for one in found)
    return begin_trace(None, parent, state, record_span)
