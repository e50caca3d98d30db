"""ResultStore: stored results in the database. Any process that uses the database can read them.

A result is a row with its text, which is compressed. A result that has expired, or was removed to make room, leaves its
row for a day without the text, to distinguish "expired" from "not found". All times are from the database's clock.

While the database is away, results wait in memory, where only this process can read them.
"""

import json
import logging
import os
import time
import zlib
from collections import Counter, deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from threading import Lock, Thread
from time import monotonic
from typing import Any

from onetool.core.errors import ToolFailure
from onetool.core.limits import DAY, MIB
from onetool.core.text import distinct_name, replace_surrogates
from onetool.database import ChangeUnknownError, Database, DatabaseAwayError, DatabaseError, Transaction
from onetool.database.connection import CALL_WAIT_S, Params, Row
from onetool.services.results import (
    HandleNotFoundError,
    KeptResult,
    NotStoredError,
    Page,
    ResultExpiredError,
    ResultTooLargeError,
    StoredResult,
    is_handle,
)
from onetool.services.results.paging import MAX_BYTES, check_query, page_of

log = logging.getLogger("onetool.results")
SWEEP_S = 60.0  # between two sweeps by a process that stores results
LISTED_AT_ONCE = 200  # rows
MAX_SPARE = 8 * MIB  # free pages and log that may remain for reuse
MAX_HEAD = MAX_NAME = 200  # characters
MAX_SIZE = 2**62  # bytes: any size
FAST = 1  # of zlib
MAX_WAITING = 32 * MIB  # of compressed results that wait for the database
RETRY_S = 1.0  # between two attempts to store them


class ResultStore:
    """A store that keeps texts for `ttl_s` seconds and at most `max_total_mb` in total, before compression.

    When that is full, the owner that stores most loses its oldest results, so nobody can displace another's.
    """

    def __init__(self, database: Database, ttl_s: float, max_total_mb: int) -> None:
        self._database = database
        self._clock = database.clock
        self._ttl = ttl_s
        self._max = max_total_mb * MIB
        self._next_sweep = 0.0
        self._waiting: dict[str, Row] = {}  # by handle
        self._lock = Lock()  # for changes of these
        self._is_storing = False

    def put(
        self, text: str, owner: str = "", name: str | None = None, value: str | None = None, is_json: bool = False
    ) -> StoredResult:
        """Store a text, which came from the tool `name`. Raises NotStoredError.

        `load` returns a value: the text itself; with `is_json`, the text parsed as JSON; or the JSON in `value`.
        """
        body, value_body = _encoded(text), None if value is None else _encoded(value)
        size, lines = len(body), text.count("\n") + (not text.endswith("\n") and text != "")
        if (room := size + len(value_body or b"")) > self._max:
            raise NotStoredError(f"has {size:,} bytes, and results.max_total_mb allows {self._max:,}")
        handle = os.urandom(16).hex()
        shown = name and _shown(name[:MAX_NAME]), _shown(text[:MAX_HEAD])
        packed = zlib.compress(body, FAST), None if value_body is None else zlib.compress(value_body, FAST)
        row = (handle, distinct_name(owner), *shown, size, room, lines, is_json, *packed)
        try:
            self._store(row)
        except DatabaseError as error:
            if isinstance(error, DatabaseAwayError | ChangeUnknownError) and self._wait(row):
                return StoredResult(handle, size, lines)
            raise NotStoredError(f"of {size:,} bytes could not be stored: {error.what}") from error
        # A removed result is no failure if newer results of its owner have replaced it.
        if handle in self._make_room() and next(self.kept(owner), None) is None:
            raise NotStoredError(f"has {size:,} bytes, and results of others take the rest of results.max_total_mb")
        return StoredResult(handle, size, lines)

    def kept(self, owner: str = "") -> Iterator[KeptResult]:
        """Yield an owner's stored results, newest first. Raises ToolFailure."""
        sql = (
            "SELECT handle, name, at, size, lines, head FROM results "  # noqa: S608 - ours
            f"WHERE owner = %s AND text IS NOT NULL AND at > {self._clock} - %s AND (at, handle) < (%s, %s) "
            f"ORDER BY at DESC, handle DESC LIMIT {LISTED_AT_ONCE}"
        )
        before = (float("inf"), "")
        while rows := self._read(sql, (distinct_name(owner), self._ttl, *before)):
            for handle, name, at, size, lines, head in rows:
                yield KeptResult(handle=handle, name=name, at=at, size=size, lines=lines, head=head)
            before = rows[-1][2], rows[-1][0]

    def owner_of(self, handle: str, owners: tuple[str, ...]) -> str:
        """Return which of the owners has a result; the first if none has it. Raises ToolFailure."""
        if len(owners) == 1 or not is_handle(handle):
            return owners[0]
        found = {owner for (owner,) in self._read("SELECT owner FROM results WHERE handle = %s", (handle,))}
        return next((owner for owner in owners if distinct_name(owner) in found), owners[0])

    def expires_at(self, kept: KeptResult) -> float:
        return kept.at + self._ttl

    def page(
        self,
        handle: str,
        owner: str = "",
        offset: int = 1,
        limit: int = 100,
        search: str | None = None,
        fuzzy: bool = False,
        max_bytes: int = MAX_BYTES,
        column: int = 1,
    ) -> Page:
        """Return some lines (see `page_of`).

        Raises HandleNotFoundError, ResultExpiredError, BadQueryError, ToolFailure.
        """
        check_query(offset, limit, column)  # first: valid handle or not
        return page_of(self.read(handle, owner), offset, limit, search, fuzzy, max_bytes, column)

    def read(self, handle: str, owner: str = "", max_bytes: int | None = None) -> str:
        """Return the whole text. Raises ResultTooLargeError if it exceeds `max_bytes`, and the errors of `page`."""
        body, _ = self._find(handle, owner, "text", "size", max_bytes)
        return _text(body)

    def load(self, handle: str, owner: str = "", max_bytes: int = MAX_BYTES) -> Any:
        """Return the stored value. Raises the errors of `read`."""
        size = "CASE WHEN value IS NULL THEN size ELSE room - size END"
        body, is_json = self._find(handle, owner, "coalesce(value, text)", size, max_bytes)
        text = _text(body)
        return json.loads(text) if is_json else text

    def remove(self, handle: str, owner: str = "") -> None:
        """Forget a result. Raises HandleNotFoundError, ResultExpiredError, ToolFailure."""
        self._find(handle, owner, "''", "0")
        with self._lock:
            if self._waiting.pop(handle, None) is not None:
                return
        with _translated():
            self._database.write(lambda work: work.execute("DELETE FROM results WHERE handle = %s", (handle,)))
        self._shrink()

    def sweep(self) -> set[str]:
        """Remove expired results, then more until the rest fits. Return the handles of the latter. `put` calls this
        when needed.
        """
        clock = self._clock
        empty = "UPDATE results SET text = NULL, value = NULL"
        expire = f"{empty} WHERE at <= {clock} - %s AND text IS NOT NULL"
        forget = f"DELETE FROM results WHERE text IS NULL AND coalesce(ended_at, at + %s) <= {clock} - {DAY}"  # noqa: S608
        remove = f"{empty}, ended_at = {clock} WHERE handle = %s"

        def job(work: Transaction) -> list[Row]:
            work.execute(expire, (self._ttl,))
            work.execute(forget, (self._ttl,))
            over = self._over(work)
            work.execute_many(remove, over)
            return over

        try:
            over = self._database.write(job, max_wait=CALL_WAIT_S)
            self._shrink()
        except DatabaseError as error:
            log.warning("Old results can't be removed: %s", error)
            return set()
        return {handle for (handle,) in over}

    # Implementation

    def _store(self, row: Row) -> None:
        """Store a row, once, even after ChangeUnknownError."""
        sql = (
            "INSERT INTO results (handle, owner, name, head, size, room, lines, is_json, text, value, at) "  # noqa: S608
            f"VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, {self._clock}) ON CONFLICT (handle) DO NOTHING"
        )
        self._database.write(lambda work: work.execute(sql, row), max_wait=CALL_WAIT_S)

    def _wait(self, row: Row) -> bool:
        """Keep a row in memory until it can be stored. Return False if there is no room."""
        with self._lock:
            if sum(map(_packed_size, (row, *self._waiting.values()))) > MAX_WAITING:
                return False
            self._waiting[row[0]] = row
            if not self._is_storing:
                self._is_storing = True
                Thread(target=self._store_waiting, name="onetool-results", daemon=True).start()
        return True

    def _store_waiting(self) -> None:
        while True:
            with self._lock:
                row = next(iter(self._waiting.values()), None)
                self._is_storing = row is not None
            if row is None:
                return
            try:
                self._store(row)
            except (DatabaseAwayError, ChangeUnknownError):
                time.sleep(RETRY_S)
                continue
            except DatabaseError as error:
                log.error("A result that waited for the database is lost: %s", error)
            with self._lock:
                self._waiting.pop(row[0], None)

    def _read(self, sql: str, params: Params) -> list[Row]:
        with _translated():
            return self._database.read(lambda work: work.execute(sql, params))

    def _find(self, handle: str, owner: str, body: str, size: str, max_bytes: int | None = None) -> tuple[bytes, bool]:
        """Return a body, and whether it is JSON. `body` and `size` are SQL.

        Raises HandleNotFoundError, ResultExpiredError, ResultTooLargeError, ToolFailure.
        """
        if not is_handle(handle):
            raise HandleNotFoundError(handle)
        if (row := self._waiting.get(handle)) is not None and row[1] == distinct_name(owner):
            size_here, room, _, is_json, text, value = row[4:]
            found, found_size = (text, size_here) if body == "text" or value is None else (value, room - size_here)
            if max_bytes is not None and found_size > max_bytes:
                raise ResultTooLargeError(handle, found_size, max_bytes)
            return found, is_json or value is not None
        sql = (
            f"SELECT CASE WHEN {size} <= %s THEN {body} END, {size}, is_json OR value IS NOT NULL, text IS NOT NULL, "  # noqa: S608
            f"coalesce(ended_at, at + %s), ended_at IS NOT NULL, {self._clock} "
            "FROM results WHERE handle = %s AND owner = %s"
        )
        most = MAX_SIZE if max_bytes is None else max_bytes
        params = most, self._ttl, handle, distinct_name(owner)
        with _translated():
            for found, found_size, is_json, is_there, ended_at, was_removed, now in self._read(sql, params):
                if is_there and now < ended_at:
                    if found_size > most:
                        raise ResultTooLargeError(handle, found_size, most)
                    return found, bool(is_json)
                if now < ended_at + DAY:
                    raise ResultExpiredError(handle, bool(was_removed))
        raise HandleNotFoundError(handle)

    def _make_room(self) -> set[str]:
        """Sweep if needed, and return the handles of removed results.

        Called after a `put`, not within it: the last of several processes sees all results.
        """
        sizes = "SELECT coalesce(sum(room), 0) FROM results WHERE text IS NOT NULL"
        try:
            [(total,)] = self._database.read(lambda work: work.execute(sizes))
        except DatabaseError as error:
            log.warning("The total size of results can't be determined: %s", error)
            return set()
        if total <= self._max and monotonic() < self._next_sweep:
            return set()
        self._next_sweep = monotonic() + SWEEP_S
        return self.sweep()

    def _over(self, work: Transaction) -> list[Row]:
        """Return the handles of the results to remove, each in a row: the oldest of the owner that stores most."""
        rows = work.execute("SELECT handle, owner, room FROM results WHERE text IS NOT NULL ORDER BY at, handle")
        total = sum(room for *_, room in rows)
        if total <= self._max:
            return []
        enough = self._max - self._max // 16  # some headroom, or every put would have to sweep
        owned: dict[str, deque[Row]] = {}
        rooms = Counter[str]()
        for handle, owner, room in rows:
            owned.setdefault(owner, deque()).append((handle, room))
            rooms[owner] += room
        over: list[Row] = []
        while total > enough and len(over) < len(rows) - 1:
            most = max(rooms, key=rooms.__getitem__)
            handle, room = owned[most].popleft()
            over.append((handle,))
            rooms[most] -= room
            total -= room
        return over

    def _shrink(self) -> None:
        """Return the room of deleted texts to the system if there is much of it. Raises DatabaseError."""
        if self._database.spare_bytes() > min(MAX_SPARE, self._max // 16):
            self._database.shrink()


def _packed_size(row: Row) -> int:
    return len(row[-2]) + len(row[-1] or b"")


def _shown(text: str) -> str:
    """Return a text that PostgreSQL can store, too."""
    return replace_surrogates(text).replace("\0", "\N{REPLACEMENT CHARACTER}")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(body: bytes) -> str:
    with _translated():
        return zlib.decompress(body).decode("utf-8", "surrogatepass")


@contextmanager
def _translated() -> Generator[None]:
    """Turn database errors and damaged rows into a ToolFailure."""
    try:
        yield
    except (UnicodeDecodeError, zlib.error, TypeError):
        raise ToolFailure("the result can't be read: it is damaged", reason="source_unavailable") from None
    except DatabaseError as error:
        raise ToolFailure(f"the result can't be read: {error}", reason="source_unavailable") from error
