"""Messages of one client that belong together: those of a pipe, or of a session over HTTP.

It knows which requests are being answered, so that they can be cancelled by their id, and which questions of ours the
client has not answered yet. Ids of two conversations never meet.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any

from onetool.core.mcp_protocol import (
    BATCH_REVISION,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    Id,
    JsonRpcError,
    Message,
    check_message,
    error_response,
    id_of,
    is_id,
    notification,
    result_response,
)
from onetool.interfaces.mcp.client import RemoteClient, client_from_meta, is_stateless_message
from onetool.interfaces.mcp.methods import handle_request
from onetool.interfaces.mcp.pending_calls import PARKED_SECONDS
from onetool.interfaces.mcp.request import McpRequest
from onetool.interfaces.mcp.service import ChangeListener, Service

Send = Callable[[Message], None]
OnChange = Callable[[str, Mapping[str, Any]], Awaitable[None]]  # the method and the params of a request

MOST_IN_BATCH = 100
CHANGES = ("initialize", "logging/setLevel", "resources/subscribe", "resources/unsubscribe")
BEFORE_INITIALIZE = ("initialize", "ping")  # what a client may say before it has introduced itself


class ConversationChannel:
    """The channel of one request in a conversation: notifications, and requests of ours."""

    def __init__(self, conversation: "Conversation", send: Send) -> None:
        self._conversation = conversation
        self._send = send

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._send(notification(method, params))

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        return await self._conversation.ask(self._send, method, params)


class Conversation:
    """The messages of one client. `send` is for notifications that belong to no request."""

    def __init__(self, service: Service, client: RemoteClient, send: Send, on_change: OnChange | None = None) -> None:
        """`on_change` is told of each request that changes what is known of the client, before it is answered."""
        self._service = service
        self._on_change = on_change
        self._running: dict[Id, asyncio.Task[Any]] = {}
        self._cancelled_ids: set[Id] = set()  # cancelled by the client
        self._questions: dict[Id, asyncio.Future[Any]] = {}
        self._numbers = count(1)
        self._has_no_reader = False  # the client says nothing more
        self._is_initialized = self._is_closed = False
        self._news = ChangeListener(lambda method, params: send(notification(method, params or None)), client)
        self._forget: Callable[[], None] | None = None
        self.client = client
        self.watched = self._news.uris

    async def answer(self, message: Any, send: Send) -> Any:
        """The response to any decoded message, or None."""
        if isinstance(message, list) and len(message) > MOST_IN_BATCH:
            return error_response(None, JsonRpcError(INVALID_REQUEST, f"a batch may have {MOST_IN_BATCH} messages"))
        if isinstance(message, list) and message and self.client.revision == BATCH_REVISION:
            replies = await asyncio.gather(*(self._answer_one(one, send) for one in message))
            return [reply for reply in replies if reply is not None] or None
        return await self._answer_one(message, send)

    async def _answer_one(self, message: Any, send: Send) -> Message | None:
        try:
            return await self.respond(check_message(message), send)
        except JsonRpcError as error:
            return error_response(id_of(message), error)

    async def respond(self, message: Message, send: Send) -> Message | None:
        """The response to a checked message; None for notifications, responses and cancelled requests."""
        if "method" not in message:
            self._take(message)
            return None
        if "id" not in message:
            self._notified(message)
            return None
        id: Id = message["id"]
        try:
            return result_response(id, await self._result(message, send))
        except JsonRpcError as error:
            return error_response(id, error)
        except asyncio.CancelledError:
            if id not in self._cancelled_ids:
                raise
            _current().uncancel()
            return (
                error_response(id, JsonRpcError(INTERNAL_ERROR, "the session has ended")) if self._is_closed else None
            )
        finally:
            self._cancelled_ids.discard(id)

    async def _result(self, message: Message, send: Send) -> dict[str, Any]:
        params = message.get("params", {})
        meta, method = params.get("_meta"), message["method"]
        if is_stateless_message(meta) or method == "server/discover":
            client = client_from_meta(meta, self.client)
            client.gap_timer = self.client.gap_timer
        elif not self._is_initialized and method not in BEFORE_INITIALIZE:
            raise JsonRpcError(
                INVALID_REQUEST, f"{method:.100} came before initialize, and without a protocol version in _meta"
            )
        elif method == "initialize" and self._is_initialized:
            raise JsonRpcError(INVALID_REQUEST, "initialize came already")
        else:
            client = self.client
        request = McpRequest(
            id=message["id"],
            method=method,
            params=params,
            client=client,
            channel=ConversationChannel(self, send),
            watched=self.watched,
        )
        return await self._run_cancellable(request)

    async def _run_cancellable(self, request: McpRequest) -> dict[str, Any]:
        """Handle the request in the current task, which can be cancelled by the request's id."""
        if request.id in self._running:
            raise JsonRpcError(
                INVALID_REQUEST, f"id {request.id!r:.100} is that of a request that is still being answered"
            )
        self._running[request.id] = _current()
        try:
            result = await handle_request(self._service, request)
        finally:
            del self._running[request.id]
        if request.method == "initialize" and not self._is_initialized:
            self.take_up()
        if self._on_change is not None and request.client is self.client and request.method in CHANGES:
            await self._on_change(request.method, request.params)
        return result

    def take_up(self) -> None:
        """The client has introduced itself, here or to another replica."""
        self._is_initialized = True
        self._forget = self._service.changes.add(self._news)

    def is_running(self, id: Id | None) -> bool:
        """Whether a request of this id is being answered."""
        return id in self._running

    def _notified(self, message: Message) -> None:
        if message["method"] == "notifications/cancelled":
            id = message.get("params", {}).get("requestId")
            if is_id(id):
                self._cancel(id)

    def _cancel(self, id: Id) -> None:
        if task := self._running.get(id):
            self._cancelled_ids.add(id)
            task.cancel()

    # Questions of ours

    async def ask(self, send: Send, method: str, params: dict[str, Any]) -> Any:
        if self._has_no_reader:
            raise _closed_error()
        number: Id = next(self._numbers)
        if self._service.replica:
            number = f"{self._service.replica}-{number}"  # the answer may come to another one
        with self._service.pending_calls.asking():
            waiting = self._questions[number] = asyncio.get_running_loop().create_future()
            send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            return await self._answer_to(number, waiting, send)

    async def _answer_to(self, number: Id, waiting: "asyncio.Future[Any]", send: Send) -> Any:
        try:
            async with asyncio.timeout(PARKED_SECONDS):
                return await waiting
        except TimeoutError:
            raise JsonRpcError(INTERNAL_ERROR, f"no answer within {PARKED_SECONDS:g} s") from None
        except asyncio.CancelledError:
            send(notification("notifications/cancelled", {"requestId": number, "reason": "no longer wanted"}))
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
        """The client has closed its end: fail all questions that wait for an answer."""
        self._has_no_reader = True
        for waiting in self._questions.values():
            if not waiting.done():
                waiting.set_exception(_closed_error())

    def close(self) -> None:
        """The client is gone: cancel its requests and questions."""
        self._is_closed = True
        if self._forget is not None:
            self._forget()
        for id in list(self._running):
            self._cancel(id)
        for waiting in self._questions.values():
            waiting.cancel()


def _closed_error() -> JsonRpcError:
    return JsonRpcError(INTERNAL_ERROR, "it has closed its end")


def _current() -> "asyncio.Task[Any]":
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("messages are answered in a task")
    return task
