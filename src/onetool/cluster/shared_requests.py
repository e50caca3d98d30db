"""Forwards requests about the state of another replica: a waiting call, a task or a stream.

The results of tasks are rows, which can be read after the replica that ran them is gone.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from onetool.cluster import derived_key
from onetool.cluster.cluster import ID_DIGITS, Cluster
from onetool.cluster.forwarding import ReplicaGoneError
from onetool.cluster.mcp_rows import McpTaskRows
from onetool.cluster.shared_sessions import MemorySession, SharedSessions
from onetool.core.mcp_protocol import (
    AWAY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    TASK_GONE,
    JsonRpcError,
    error_response,
    id_of,
)
from onetool.core.principal import LOCAL
from onetool.core.signed import verify
from onetool.database import DatabaseError
from onetool.http.asgi import FORWARDED, Message, Receive, Scope, Send, encode

log = logging.getLogger("onetool.cluster")
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
        params = message.get("params")
        if params is None or FORWARDED in scope:
            return False
        is_task = message.get("method", "").startswith("tasks/") and isinstance(params.get("taskId"), str)
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


# Tasks

MAX_TASK_BYTES = 4 * 1024 * 1024
UNKNOWN = "taskId: unknown or expired task"


class SharedTasks:
    """The rows of tasks: written by the replica that runs a task, read by the others when that replica is gone."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rows = McpTaskRows(cluster.settings.database)
        self._writing: set[asyncio.Future[None]] = set()

    async def begin(self, id: str, owner: str, seconds: float) -> None:
        """Record that a task runs. If this fails, the task continues, and is only lost if its replica dies."""
        await self._write(lambda: self._rows.begin(id, owner, self._cluster.id, seconds))

    def end(self, id: str, owner: str, seconds: float, task: Mapping[str, Any]) -> None:
        """Record the end of a task. Doesn't block."""
        work = asyncio.ensure_future(self._end(id, owner, seconds, task))
        self._writing.add(work)
        work.add_done_callback(self._writing.discard)

    async def flush(self) -> None:
        """Wait until the ends of tasks are written."""
        await asyncio.gather(*self._writing)

    async def _end(self, id: str, owner: str, seconds: float, task: Mapping[str, Any]) -> None:
        body = dict(task)
        if len(encode(body)) > MAX_TASK_BYTES:
            body.pop("result", None)
            message = f"its result was larger than {MAX_TASK_BYTES // 1024**2} MiB and was lost with the replica"
            body |= {"status": "failed", "error": {"code": INTERNAL_ERROR, "message": message}}
        await self._write(lambda: self._rows.end(id, owner, self._cluster.id, seconds, body))

    async def _write(self, job: Callable[[], None]) -> None:
        try:
            await asyncio.to_thread(job)
        except DatabaseError as error:
            log.warning("a task was not written: %s", error)

    async def why_failed(self, id: str, owner: str) -> str | None:
        """Return how far a call got, if its replica stopped before the call was done."""
        with suppress(DatabaseError):
            row = await asyncio.to_thread(self._rows.get, id)
            if row is not None and row.owner == owner and row.body is not None:
                return row.body.get("error", {}).get("message")
        return None

    def is_lost(self, id: str) -> bool:
        """Return whether the task's replica, known by its ID, is gone. Requests for live replicas were
        forwarded before.
        """
        return self._cluster.owner_of(id) not in (None, self._cluster.id)

    async def lost(self, id: str, owner: str, ttl_ms: int) -> dict[str, Any]:
        """Return a task of a replica that is gone. Raises JsonRpcError."""
        try:
            row = await asyncio.to_thread(self._rows.get, id)
        except DatabaseError as error:
            message = f"the replica that runs this task is not known here: {error}"
            raise JsonRpcError(INTERNAL_ERROR, message, AWAY) from None
        if row is None or row.owner != owner:
            raise JsonRpcError(INVALID_PARAMS, UNKNOWN)
        if row.body is not None:
            return {**row.body, "ttlMs": ttl_ms}
        error = {"code": INTERNAL_ERROR, "message": TASK_GONE}
        return {"taskId": id, "status": "failed", "ttlMs": ttl_ms, "pollIntervalMs": 0, "error": error}
