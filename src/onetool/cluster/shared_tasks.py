"""Tasks as rows: their results can be read after the replica that ran them is gone."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from onetool.cluster.cluster import Cluster
from onetool.cluster.mcp_rows import McpTaskRows
from onetool.core.mcp_protocol import AWAY, INTERNAL_ERROR, INVALID_PARAMS, TASK_GONE, JsonRpcError
from onetool.database import DatabaseError
from onetool.http.asgi import encode

log = logging.getLogger("onetool.cluster")
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
