"""Requests about a call or a task that another process has: answers to its questions, updates and cancellations.

They are messages (`mailbox`). A task is also a row, written by its process whenever its status changes: any process can
report on it, also when its own is gone.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from onetool.cluster import derived_key
from onetool.cluster.cluster import ID_DIGITS, Cluster
from onetool.cluster.mailbox import LOOK_S, Handler, ProcessGoneError
from onetool.cluster.mcp_rows import McpTaskRows
from onetool.cluster.shared_sessions import SharedSessions
from onetool.core.mcp_protocol import AWAY, INTERNAL_ERROR, INVALID_PARAMS, TASK_GONE, JsonRpcError
from onetool.core.principal import Principal
from onetool.core.signed import verify
from onetool.database import DatabaseError
from onetool.database.encryption import Seal
from onetool.http.asgi import encode

log = logging.getLogger("onetool.cluster")
KIND = "request"
CALL_DIGITS = ID_DIGITS + 32


class SharedRequests(SharedSessions):
    """What `McpHttpApp` shares with other processes. `key` signs the client's state of a waiting call."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.id = cluster.id
        self._state_keys = [derived_key(key, "requestState") for key in cluster.settings.keys]
        self.key = self._state_keys[0]
        self.tasks = SharedTasks(cluster)

    def on_request(self, handler: Handler) -> None:
        """Have a function answer the requests that other processes have received."""
        self._cluster.mailbox.handlers[KIND] = handler

    def elsewhere(self, method: str, params: Mapping[str, Any]) -> str | None:
        """Return the other process that has the call or the task of a request."""
        if method == "tasks/get":  # every process reads its row
            return None
        id = params.get("taskId") if method.startswith("tasks/") else self._waiting_call(params)
        return self._cluster.elsewhere(id) if isinstance(id, str) else None

    async def answer(
        self, holder: str, request: Mapping[str, Any], principal: Principal, id: str | None
    ) -> dict[str, Any]:
        """Have the other process answer a request. `id` is the same for the same answer to a question.

        Raise JsonRpcError, and HttpError if the process can't answer.
        """
        try:
            outcome = await self._cluster.mailbox.ask(holder, KIND, request, principal, id)
        except ProcessGoneError:
            call = self._waiting_call(request["params"])
            if call is not None and (why := await self.tasks.why_failed(call, principal.owner)) is not None:
                raise JsonRpcError(INTERNAL_ERROR, why) from None
            raise
        if "error" in outcome:
            raise JsonRpcError(*outcome["error"])
        return outcome["result"]

    def _waiting_call(self, params: Mapping[str, Any]) -> str | None:
        """Return the ID of the waiting call that a request continues. It begins with the ID of its process."""
        state = params.get("requestState")
        contents = [verify(key, state) for key in self._state_keys] if isinstance(state, str) else []
        return next((data.hex()[:CALL_DIGITS] for data in contents if data is not None), None)


# Tasks

MAX_TASK_BYTES = 4 * 1024 * 1024
UNKNOWN = "taskId: unknown or expired task"


class SharedTasks:
    """The rows of tasks."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rows = McpTaskRows(cluster.settings.database, Seal(lambda: cluster.settings.keys))
        self._unstored: dict[str, tuple[str, float, Mapping[str, Any]]] = {}  # the newest state of each task
        self._writing: dict[str, asyncio.Task[None]] = {}

    def keep(self, id: str, owner: str, seconds: float, task: Mapping[str, Any]) -> None:
        """Store the state of a task. Doesn't wait for the database."""
        body = dict(task)
        if len(encode(body)) > MAX_TASK_BYTES:
            body.pop("result", None)
            message = f"its result was larger than {MAX_TASK_BYTES // 1024**2} MiB and was lost with the replica"
            body |= {"status": "failed", "error": {"code": INTERNAL_ERROR, "message": message}}
        self._unstored[id] = owner, seconds, body
        if id not in self._writing:
            self._writing[id] = asyncio.ensure_future(self._write(id))

    async def stored(self, id: str) -> None:
        """Wait until the state of a task is stored, but not for a database that is away."""
        if (writing := self._writing.get(id)) is not None:
            await asyncio.wait([writing], timeout=LOOK_S)

    async def flush(self) -> None:
        """Wait until the states of all tasks are stored, if the database is there."""
        if self._writing:
            await asyncio.wait([*self._writing.values()], timeout=2 * LOOK_S)

    async def _write(self, id: str) -> None:
        """Store the newest state, again and again while the database is away."""
        try:
            while (newest := self._unstored.pop(id, None)) is not None:
                try:
                    await asyncio.to_thread(self._rows.put, id, self._cluster.id, *newest)
                except DatabaseError as error:
                    log.debug("the state of a task waits for the database: %s", error)
                    self._unstored.setdefault(id, newest)
                    await asyncio.sleep(LOOK_S)
        finally:
            del self._writing[id]

    async def why_failed(self, id: str, owner: str) -> str | None:
        """Return how far a call got, if its process stopped before the call was done."""
        with suppress(DatabaseError):
            row = await asyncio.to_thread(self._rows.get, id)
            if row is not None and row.owner == owner:
                return row.body.get("error", {}).get("message")
        return None

    def is_elsewhere(self, id: str) -> bool:
        """Return whether another process has the task, by its ID."""
        return self._cluster.elsewhere(id) is not None

    async def read(self, id: str, owner: str, ttl_ms: int) -> dict[str, Any]:
        """Return a task of another process. Raises JsonRpcError."""
        try:
            row = await asyncio.to_thread(self._rows.get, id)
            is_gone = row is not None and not self._cluster.members.is_alive(row.replica)
            is_gone = is_gone and await asyncio.to_thread(self._cluster.members.fate, id[:ID_DIGITS]) == "gone"
        except DatabaseError as error:
            message = f"the replica that runs this task is not known here: {error}"
            raise JsonRpcError(INTERNAL_ERROR, message, AWAY) from None
        if row is None or row.owner != owner:
            raise JsonRpcError(INVALID_PARAMS, UNKNOWN)
        if is_gone and row.body["status"] in ("working", "input_required"):
            error = {"code": INTERNAL_ERROR, "message": TASK_GONE}
            return {"taskId": id, "status": "failed", "ttlMs": ttl_ms, "pollIntervalMs": 0, "error": error}
        return {**row.body, "ttlMs": ttl_ms}
