"""DatabaseSessions: sessions in PostgreSQL. One that was begun at one replica goes on at another.

A session is a row, and each record of it another one. A turn has a lease on the session (see `rows`). When a session
was used last is told by the database's clock.
"""

import builtins
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import urandom
from typing import Any, TypeVar

from onetool.ask.sessions.base import AskSessions, ListPlace, owner_folder
from onetool.ask.sessions.infos import SessionInfo, Transcript, session_info, transcript
from onetool.ask.sessions.records import SESSION_ID, Titled, record_line, short_title
from onetool.ask.sessions.rows import (
    LEASE_S,
    PROCESS,
    SUMMARY,
    WHERE,
    SessionKey,
    SessionRows,
    SessionSummary,
    add_records,
    database_error,
    read_records,
    read_summary,
)
from onetool.database import Database, DatabaseError, Transaction

T = TypeVar("T")

ALL = 1_000_000  # more than anybody has


class DatabaseSessions(AskSessions):
    """The sessions of one owner."""

    pause = 0.1  # each look at a session that somebody has asks the database

    def __init__(self, database: Database, now: Callable[[], float] = time.time, owner: str = "") -> None:
        super().__init__(now, owner)
        self._database = database
        self._row_owner = owner_folder(owner) if owner else ""
        clock = database.clock
        self._busy = f"(holder IS NOT NULL AND until >= {clock})"

    def read(self, id: str) -> Transcript:
        id = self._resolve(id)
        sql = f"SELECT modified, size, {self._busy} FROM ask_sessions WHERE {WHERE} AND size > 0"  # noqa: S608 - ours

        def job(work: Transaction) -> tuple[bytes, float, bool] | None:
            for modified, size, goes_on in work.execute(sql, self._key(id)):
                return read_records(work, self._key(id), size), modified, goes_on
            return None

        found = self._reading(job)
        if found is None:
            raise self._not_found(id)
        return transcript(id, *found)

    def delete(self, id: str) -> None:
        def job(work: Transaction, id: str) -> None:
            work.execute(f"DELETE FROM ask_sessions WHERE {WHERE}", self._key(id))  # noqa: S608 - ours

        self._change(id, "then delete it", job)

    def rename(self, id: str, title: str) -> None:
        line = record_line(Titled(title=short_title(title), at=round(self._now(), 3)))

        def job(work: Transaction, id: str) -> None:
            add_records(work, self._key(id), self._summary(work, id), [line])

        self._change(id, "then rename it", job)

    def has(self, id: str) -> bool:
        if not SESSION_ID.fullmatch(id):
            return False
        sql = f"SELECT 1 FROM ask_sessions WHERE {WHERE} AND size > 0"  # noqa: S608 - ours
        return bool(self._reading(lambda work: work.execute(sql, self._key(id))))

    def list(self) -> builtins.list[SessionInfo]:
        return self.page(None, ALL)[0]

    def info(self, id: str) -> SessionInfo:
        id = self._resolve(id)
        for found in self._infos("id = %s", (id,), 1):
            return found
        raise self._not_found(id)

    def page(self, before: ListPlace | None, most: int) -> tuple[builtins.list[SessionInfo], ListPlace | None]:
        where, params = ("true", ()) if before is None else ("(modified, id) < (%s, %s)", before)
        found = self._infos(where, params, most + 1)
        last = found[most - 1] if len(found) > most else None
        return found[:most], None if last is None else (last.modified, last.id)

    # How it is done

    def _key(self, id: str) -> SessionKey:
        return SessionKey(self._row_owner, id)

    def _reading(self, job: Callable[[Transaction], T]) -> T:
        with _told():
            return self._database.read(job)

    def _infos(self, where: str, params: tuple[Any, ...], most: int) -> builtins.list[SessionInfo]:
        sql = (
            f"SELECT id, modified, {SUMMARY} FROM ask_sessions WHERE owner = %s AND size > 0 AND {where} "  # noqa: S608
            f"ORDER BY modified DESC, id DESC LIMIT {most}"
        )
        rows = self._reading(lambda work: work.execute(sql, (self._row_owner, *params)))
        return [_info(id, modified, read_summary((*facts,))) for id, modified, *facts in rows]

    def _ids(self) -> builtins.list[str]:
        sql = "SELECT id FROM ask_sessions WHERE owner = %s AND size > 0 ORDER BY modified DESC, id DESC"
        return [id for (id,) in self._reading(lambda work: work.execute(sql, (self._row_owner,)))]

    def _check_place(self) -> None:
        """There is nothing to check."""

    def _make_place(self) -> None:
        """The tables are made when the database is opened."""

    def _change(self, id: str, then: str, change: Callable[[Transaction, str], None]) -> None:
        """Change a session in which no turn is under way."""
        id = self._resolve(id)
        sql = f"SELECT {self._busy} FROM ask_sessions WHERE {WHERE} AND size > 0 FOR UPDATE"  # noqa: S608 - ours

        def job(work: Transaction) -> bool | None:
            for (is_busy,) in work.execute(sql, self._key(id)):
                if not is_busy:
                    change(work, id)
                return is_busy
            return None

        with _told():
            is_busy = self._database.write(job)
        if is_busy is None:
            raise self._not_found(id)
        if is_busy:
            raise self._busy_error(id, then)

    def _summary(self, work: Transaction, id: str) -> SessionSummary:
        [row] = work.execute(f"SELECT {SUMMARY} FROM ask_sessions WHERE {WHERE}", self._key(id))  # noqa: S608 - ours
        return read_summary((*row,))

    def _lock_for_turn(self, id: str) -> SessionRows | None:
        key, holder, clock = self._key(id), f"{PROCESS}.{urandom(8).hex()}", self._database.clock
        insert = (
            f"INSERT INTO ask_sessions (owner, id, modified, {SUMMARY}) "  # noqa: S608 - ours
            f"VALUES (%s, %s, {clock}, 0, 0, '', '', '', 0) ON CONFLICT DO NOTHING"
        )
        take = (
            f"UPDATE ask_sessions SET holder = %s, until = {clock} + %s "  # noqa: S608 - ours
            f"WHERE {WHERE} AND (holder = %s OR NOT {self._busy})"
        )

        def job(work: Transaction) -> tuple[SessionSummary, bytes] | None:
            work.execute(insert, key)
            work.execute(take, (holder, LEASE_S, *key, holder))
            if not work.row_count:
                return None
            summary = self._summary(work, id)
            return summary, read_records(work, key, summary.size)

        with _told():
            found = self._database.write(job)
        return None if found is None else SessionRows(self._database, key, holder, *found)

    def _holder(self, id: str) -> str:
        sql = f"SELECT holder FROM ask_sessions WHERE {WHERE}"  # noqa: S608 - ours
        for (holder,) in self._reading(lambda work: work.execute(sql, self._key(id))):
            if holder is not None and holder.startswith(f"{PROCESS}."):
                return "another turn of this process"
        return "another process"


def _info(id: str, modified: float, summary: SessionSummary) -> SessionInfo:
    return session_info(id, summary.first, summary.ending, modified, summary.size)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except DatabaseError as error:
        raise database_error(error) from error
