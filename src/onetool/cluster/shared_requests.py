"""Forwards requests about the state of another replica: a waiting call, a task or a stream."""

from collections.abc import Mapping
from typing import Any

from onetool.cluster import derived_key
from onetool.cluster.cluster import ID_DIGITS, Cluster
from onetool.cluster.forwarding import ReplicaGoneError
from onetool.cluster.shared_sessions import MemorySession, SharedSessions
from onetool.cluster.shared_tasks import SharedTasks
from onetool.core.mcp_protocol import INTERNAL_ERROR, JsonRpcError, error_response, id_of
from onetool.core.principal import LOCAL
from onetool.core.signed import verify
from onetool.http.asgi import FORWARDED, Message, Receive, Scope, Send, encode

LAST_EVENT = b"last-event-id"
CALL_DIGITS = ID_DIGITS + 32
_EVENTS = b"text/event-stream"


class SharedRequests(SharedSessions):
    """A filter for requests that `McpHttpApp` may have to forward. `key` signs the client's state of a waiting call."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.id = cluster.id
        self._state_keys = [derived_key(key, "requestState") for key in cluster.settings.keys]
        self.key = self._state_keys[0]
        self.tasks = SharedTasks(cluster)

    async def is_answered(self, message: Any, scope: Scope, receive: Receive, send: Send) -> bool:
        """Return whether another replica has answered this request, because it has its call or its task.

        Any replica can report on a task whose replica is gone. Raise ReplicaGoneError, and JsonRpcError for a call that
        its replica could not finish.
        """
        params = message.get("params") if isinstance(message, dict) else None
        if not isinstance(params, dict) or FORWARDED in scope:
            return False
        is_task = str(message.get("method")).startswith("tasks/") and isinstance(params.get("taskId"), str)
        call = None if is_task else self._waiting_call(params)
        holder = self._cluster.owner_of(params["taskId"]) if is_task else call and call[:ID_DIGITS]
        if holder in (None, self._cluster.id):
            return False
        try:
            await self._forward(holder, scope, receive, send, id_of(message))
        except ReplicaGoneError as gone:
            if gone.was_answering:
                raise
            if is_task:
                return False
            owner = scope.get("principal", LOCAL).owner
            if (why := await self.tasks.why_failed(call or "", owner)) is not None:
                raise JsonRpcError(INTERNAL_ERROR, why) from None
            raise
        return True

    async def is_streamed(
        self, session: MemorySession, headers: Mapping[bytes, bytes], scope: Scope, receive: Receive, send: Send
    ) -> Mapping[bytes, bytes] | None:
        """Return the headers of a GET to be answered here; None if another replica has served the stream.

        Notifications of a replica that is gone, or will be soon, continue here. It is unknown which ones the client has
        missed, so all lists are announced as changed.
        """
        owner, dot, event = headers.get(LAST_EVENT, b"").decode("latin-1").partition(".")
        if not dot or owner == self._cluster.id or FORWARDED in scope:
            return headers
        is_news = event.startswith("0-")  # the stream of notifications
        try:
            replica = await self._cluster.other(owner)
            if not (is_news and replica.is_draining):
                await self._forward(owner, scope, receive, send, None)
                return None
        except ReplicaGoneError as gone:
            if gone.was_answering or not is_news:
                raise
        session.announce_changes()
        return {name: value for name, value in headers.items() if name != LAST_EVENT}

    def _waiting_call(self, params: Mapping[str, Any]) -> str | None:
        """Return the ID of the waiting call that a request continues. It begins with the ID of its replica."""
        state = params.get("requestState")
        contents = [verify(key, state) for key in self._state_keys] if isinstance(state, str) else []
        return next((data.hex()[:CALL_DIGITS] for data in contents if data is not None), None)

    async def _forward(self, replica: str, scope: Scope, receive: Receive, send: Send, id: Any) -> None:
        """Forward a request. Raise ReplicaGoneError, unless a stream has begun, where the error is its last event."""
        is_stream = False

        async def pass_on(message: Message) -> None:
            nonlocal is_stream
            is_stream = is_stream or (b"content-type", _EVENTS) in message.get("headers", ())
            await send(message)

        try:
            await self._cluster.forwarder.forward(await self._cluster.other(replica), scope, receive, pass_on)
        except ReplicaGoneError as gone:
            if not is_stream:
                raise
            event = b""
            if id is not None:
                event = b"data: " + encode(error_response(id, JsonRpcError(INTERNAL_ERROR, str(gone)))) + b"\n\n"
            await send({"type": "http.response.body", "body": event})
