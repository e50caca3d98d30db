"""Rows of sessions and tasks of MCP clients: any replica can continue a session, and report on a task.

All methods block.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from onetool.core.call import Level
from onetool.core.mcp_protocol import decode
from onetool.database import ChangeUnknownError, Database, DatabaseError, Transaction
from onetool.database.encryption import Seal
from onetool.http.asgi import encode

TRIES = 10  # to change a row in spite of concurrent changes
BATCH_ROWS = 500  # sessions deleted or renewed per transaction


class SessionState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a session, without its ID and owner."""

    revision: str
    capabilities: dict[str, Any] = {}
    log_level: Level | None = "info"
    name: str = ""
    menu: str | None = None
    wants_whole: bool = False
    watched: tuple[str, ...] = ()  # URIs of resources


class UnreadableRowError(DatabaseError):
    """A row that this version can't read, perhaps written by a newer one."""

    def __init__(self) -> None:
        super().__init__("this version can't read its row in the database")


class SessionRow(NamedTuple):
    owner: str
    state: SessionState
    version: int


class McpSessionRows:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, id: str, owner: str, state: SessionState) -> None:
        clock = self._database.clock
        sql = (
            "INSERT INTO mcp_sessions (id, owner, body, version, created_at, used_at) "  # noqa: S608 - ours
            f"VALUES (%s, %s, %s, 1, {clock}, {clock}) ON CONFLICT (id) DO NOTHING"
        )
        self._database.write(lambda work: work.execute(sql, (id, owner, _encoded(state))))

    def get(self, id: str) -> SessionRow | None:
        """Return the row of a session. Raises UnreadableRowError."""
        sql = "SELECT owner, body, version FROM mcp_sessions WHERE id = %s"
        for owner, body, version in self._database.read(lambda work: work.execute(sql, (id,))):
            try:
                return SessionRow(owner, msgspec.json.decode(body, type=SessionState), int(version))
            except (msgspec.MsgspecError, ValueError, RecursionError):
                raise UnreadableRowError from None
        return None

    def change(self, id: str, change: Callable[[SessionState], SessionState]) -> SessionRow | None:
        """Change a session and return its row; None if the session is gone. `change` may be called more than once."""
        update = "UPDATE mcp_sessions SET body = %s, version = %s WHERE id = %s AND version = %s RETURNING id"
        for _ in range(TRIES):
            row = self.get(id)
            if row is None:
                return None
            state = change(row.state)
            if state == row.state:
                return row
            params = (_encoded(state), row.version + 1, id, row.version)
            if self._database.write(lambda work, params=params: work.execute(update, params)):
                return SessionRow(row.owner, state, row.version + 1)
        raise ChangeUnknownError

    def delete(self, id: str) -> None:
        self._database.write(lambda work: work.execute("DELETE FROM mcp_sessions WHERE id = %s", (id,)))

    def touch(self, ids: Iterable[str]) -> dict[str, int]:
        """Mark sessions as used, and return the versions of those that still exist."""
        used, found = sorted(set(ids)), dict[str, int]()  # sorted, so that replicas rarely wait for each other's rows
        for start in range(0, len(used), BATCH_ROWS):  # several transactions, so that no row is locked for long
            some = used[start : start + BATCH_ROWS]
            sql = (
                f"UPDATE mcp_sessions SET used_at = {self._database.clock} "  # noqa: S608 - ours
                f"WHERE id IN ({', '.join(['%s'] * len(some))}) RETURNING id, version"
            )
            rows = self._database.write(lambda work, sql=sql, some=some: work.execute(sql, tuple(some)))
            found.update((id, int(version)) for id, version in rows)
        return found

    def sweep(self, idle_s: float, max_count: int) -> None:
        """Delete idle sessions, expired tasks and messages that nobody needs any more.

        While there are too many sessions, also delete the oldest ones of the owner that has the most.
        """
        clock = self._database.clock
        useless = f"until < {clock} OR (outcome IS NULL AND receiver NOT IN (SELECT id FROM replicas))"  # noqa: S608 - ours
        counts = (
            f"SELECT count(*), count(CASE WHEN used_at < {clock} - %s THEN 1 END), "  # noqa: S608 - ours
            f"(SELECT count(*) FROM mcp_tasks WHERE until < {clock}), "
            f"(SELECT count(*) FROM messages WHERE {useless}) FROM mcp_sessions"
        )

        def job(work: Transaction) -> bool:
            """Return whether there are still too many. Usually one statement finds nothing to delete."""
            ((sessions, idle, tasks, messages),) = work.execute(counts, (idle_s,))
            if idle:
                work.execute(f"DELETE FROM mcp_sessions WHERE used_at < {clock} - %s", (idle_s,))  # noqa: S608
            if tasks:
                work.execute(f"DELETE FROM mcp_tasks WHERE until < {clock}")  # noqa: S608
            if messages:
                work.execute(f"DELETE FROM messages WHERE {useless}")  # noqa: S608
            if (over := sessions - idle - max_count) <= 0:
                return False
            most_of = "SELECT owner FROM mcp_sessions GROUP BY owner ORDER BY count(*) DESC, owner LIMIT 1"
            (owner,) = work.execute(most_of)[0]
            work.execute(
                "DELETE FROM mcp_sessions WHERE id IN "
                "(SELECT id FROM mcp_sessions WHERE owner = %s ORDER BY used_at LIMIT %s)",
                (owner, min(over, BATCH_ROWS)),
            )
            return work.row_count < over

        while self._database.write(job, apart=True):  # several transactions, so that others can write in between
            pass


def _encoded(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # lone surrogates, which can't be encoded
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# Tasks


class TaskRow(NamedTuple):
    """A task: its caller, its process, and what clients see of it."""

    owner: str
    replica: str
    body: Mapping[str, Any]


class McpTaskRows:
    """The bodies are sealed: they have questions and results."""

    def __init__(self, database: Database, seal: Seal) -> None:
        self._database = database
        self._seal = seal

    def put(self, id: str, replica: str, owner: str, seconds: float, body: Mapping[str, Any]) -> None:
        sealed = self._seal.close(f"task {id}", encode(body))
        self._database.write(
            lambda work: work.execute(
                "INSERT INTO mcp_tasks (id, owner, replica, body, until) "  # noqa: S608 - ours
                f"VALUES (%s, %s, %s, %s, {self._database.clock} + %s) "
                "ON CONFLICT (id) DO UPDATE SET body = excluded.body, until = excluded.until",
                (id, owner, replica, sealed, seconds),
            )
        )

    def get(self, id: str) -> TaskRow | None:
        """Return a task. Raises DatabaseError, also for a body that another key has sealed."""
        sql = f"SELECT owner, replica, body FROM mcp_tasks WHERE id = %s AND until > {self._database.clock}"  # noqa: S608
        for owner, replica, sealed in self._database.read(lambda work: work.execute(sql, (id,))):
            return TaskRow(owner, replica, decode(self._seal.open(f"task {id}", bytes(sealed))))
        return None
