"""DatabaseResults: results in PostgreSQL. Whichever replica keeps one, each can read it.

A result is a row. Its key is a hash of handle and owner, as the name of a file is in a folder. The text is in pieces,
each a row with the line and the column at which it begins: a page reads the pieces that it shows, one by one, so that
no connection is held while somebody searches. All times are those of the database's clock.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

import msgspec

from onetool.database import Database, DatabaseError, LockNumber, Transaction
from onetool.services.results.base import (
    DAY,
    EndedResult,
    HandleNotFoundError,
    KeptResult,
    NotStoredError,
    ResultNote,
    Results,
    StoredResult,
    bytes_of,
    check_room,
    encoded,
    is_handle,
    key_of,
    missing_error,
    note_of,
    owner_key,
    unreadable_error,
)
from onetool.services.results.paging import Position, TextLines, pieces

log = logging.getLogger("onetool.results")

T = TypeVar("T")

SWEEP_S = 60.0  # that one may stay after its time
AHEAD = 4  # pieces that are read at once by whoever reads on
LISTED = 200  # rows of a list that are read at once


class DatabaseResults(Results):
    """Keeps texts for `ttl_s` seconds, and no more than `max_total_mb` of all replicas: the oldest go first."""

    def __init__(self, database: Database, ttl_s: float, max_total_mb: int) -> None:
        super().__init__(ttl_s, max_total_mb)
        self._database = database

    def put(self, text: str, owner: str = "", name: str | None = None) -> StoredResult:
        size = bytes_of(text)
        check_room(size, self._most)
        handle = os.urandom(16).hex()
        key = key_of(handle, owner)
        note = note_of(text, name, handle, key, owner)(size, lines_in(text))
        insert = ResultRow(key, owner_key(owner), msgspec.json.encode(note), size, note.lines)
        try:
            self._database.write(lambda work: insert.write(work, text, self._database.clock))
        except DatabaseError as error:
            raise NotStoredError(f"the result could not be kept: {error}") from error
        self._make_room()
        return StoredResult(handle, size, note.lines)

    def kept(self, owner: str = "") -> Iterator[KeptResult]:
        before = (float("inf"), "")
        while rows := self._reading(lambda work: self._rows(work, owner, before)):  # noqa: B023 - run at once
            for key, note, at in rows:
                kept = _kept(key, note, at, owner)
                if kept is not None:
                    yield kept
            before = rows[-1][2], rows[-1][0]

    def remove(self, handle: str, owner: str = "") -> None:
        with self._opened(handle, owner) as text, _told():
            self._database.write(lambda work: work.execute("DELETE FROM results WHERE key = %s", (text.key,)))

    def sweep(self) -> None:
        try:
            self._database.write(self._sweep)
        except DatabaseError as error:
            log.warning("old results are not removed: %s", error)

    # How it is done

    def _reading(self, job: Callable[[Transaction], T]) -> T:
        with _told():
            return self._database.read(job)

    def _rows(self, work: Transaction, owner: str, before: tuple[float, str]) -> list[tuple[str, bytes, float]]:
        """Some rows that may be the owner's, older than those before. The row of an imported one does not say whose."""
        where = f"owner IN (%s, '') AND ended_at IS NULL AND at > {self._database.clock} - %s AND (at, key) < (%s, %s)"
        sql = f"SELECT key, note, at FROM results WHERE {where} ORDER BY at DESC, key DESC LIMIT {LISTED}"  # noqa: S608
        return [(key, bytes(note), at) for key, note, at in work.execute(sql, (owner_key(owner), self._ttl, *before))]

    @contextmanager
    def _opened(self, handle: str, owner: str) -> "Iterator[StoredPieces]":
        """It may end while it is read: that is told like one that has ended before."""
        if not is_handle(handle):
            raise HandleNotFoundError(handle)
        key = key_of(handle, owner)
        text = self._find(handle, key)
        try:
            yield text
        except _GoneError:
            self._find(handle, key)  # which says why, as a rule
            raise unreadable_error(OSError("a part of it is missing")) from None

    def _find(self, handle: str, key: str) -> "StoredPieces":
        sql = f"SELECT size, lines, at, ended_at, removed, {self._database.clock} FROM results WHERE key = %s"  # noqa: S608
        places = "SELECT first_line, first_column FROM result_pieces WHERE key = %s ORDER BY number"

        def job(work: Transaction) -> "StoredPieces":
            rows = work.execute(sql, (key,))
            if not rows:
                raise HandleNotFoundError(handle)
            size, lines, at, ended_at, removed, now = rows[0]
            ended = EndedResult(key, at + self._ttl if ended_at is None else ended_at, removed)
            if now >= ended.at:
                raise missing_error(handle, ended, now)
            return StoredPieces(key, size, lines, work.execute(places, (key,)), self._reading)

        return self._reading(job)

    def _make_room(self) -> None:
        """After each put, and not within it: who is last sees what all the others have put."""
        asked = f"SELECT coalesce(sum(size), 0), min(at), {self._database.clock} FROM results WHERE ended_at IS NULL"  # noqa: S608
        try:
            [(total, oldest, now)] = self._database.read(lambda work: work.execute(asked))
        except DatabaseError as error:
            log.warning("whether results take too much room is not known: %s", error)
            return
        if total > self._most or (oldest is not None and oldest + self._ttl + SWEEP_S < now):
            self.sweep()

    def _sweep(self, work: Transaction) -> None:
        work.execute("SELECT pg_advisory_xact_lock(%s)", (LockNumber.RESULTS_SWEEP,))
        [(now,)] = work.execute(f"SELECT {self._database.clock}")
        expire = "UPDATE results SET ended_at = at + %s, note = '' WHERE ended_at IS NULL AND at <= %s RETURNING key"
        over = [key for (key,) in work.execute(expire, (self._ttl, now - self._ttl))]
        too_many = self._oldest(work.execute("SELECT key, size FROM results WHERE ended_at IS NULL ORDER BY at, key"))
        work.execute("UPDATE results SET ended_at = %s, removed = true, note = '' WHERE key = ANY(%s)", (now, too_many))
        work.execute("DELETE FROM result_pieces WHERE key = ANY(%s)", ([*over, *too_many],))
        work.execute("DELETE FROM results WHERE ended_at <= %s", (now - DAY,))

    def _oldest(self, kept: list[tuple[str, int]]) -> list[str]:
        """Those that have to go, so that the rest fits: somewhat more than needed, or every put would have to look."""
        total, over = sum(size for _, size in kept), list[str]()
        if total > self._most:
            for key, size in kept[:-1]:
                if total <= self._most - self._most // 16:
                    break
                over.append(key)
                total -= size
        return over


class ResultRow(msgspec.Struct, frozen=True):
    """What is written of a result besides its text."""

    key: str
    owner: str  # a hash; empty: unknown
    note: bytes
    size: int
    lines: int
    at: float | None = None  # None: now
    ended_at: float | None = None
    removed: bool = False

    def write(self, work: Transaction, text: str, clock: str) -> bool:
        """With its text, unless there is such a row."""
        at = clock if self.at is None else "%s"
        sql = (
            "INSERT INTO results (key, owner, note, size, lines, ended_at, removed, at) "  # noqa: S608 - ours
            f"VALUES (%s, %s, %s, %s, %s, %s, %s, {at}) ON CONFLICT DO NOTHING"
        )
        facts = (self.key, self.owner, self.note, self.size, self.lines, self.ended_at, self.removed)
        work.execute(sql, facts if self.at is None else (*facts, self.at))
        if not work.row_count:
            return False
        piece = "INSERT INTO result_pieces (key, number, first_line, first_column, text) VALUES (%s, %s, %s, %s, %s)"
        rows = _piece_rows(self.key, text)
        while some := list(islice(rows, AHEAD)):
            work.execute_many(piece, some)
        return True


class StoredPieces:
    """The text of a row, read piece by piece. Who reads one after the other gets several at once."""

    def __init__(
        self,
        key: str,
        size: int,
        total: int,
        places: list[tuple[int, int]],
        read: "Callable[[Callable[[Transaction], list[str]]], list[str]]",
    ) -> None:
        self.key = key
        self.size = size
        self._total = total
        self._places = places
        self._read = read
        self._loaded: dict[int, str] = {}
        self._next = -1

    def lines(self) -> TextLines:
        firsts, columns = [line for line, _ in self._places], [column for _, column in self._places]
        return TextLines(firsts, columns, self._total, self._load)

    def read(self) -> str:
        return "".join(map(self._load, range(len(self._places))))

    def _load(self, number: int) -> str:
        if number not in self._loaded:
            count = min(AHEAD if number == self._next else 1, len(self._places) - number)
            texts = self._read(lambda work: self._texts(work, number, count))
            if len(texts) != count:
                raise _GoneError
            self._loaded = dict(enumerate(texts, number))
        self._next = number + 1
        return self._loaded[number]

    def _texts(self, work: Transaction, number: int, count: int) -> list[str]:
        sql = "SELECT text FROM result_pieces WHERE key = %s AND number >= %s AND number < %s ORDER BY number"
        rows = work.execute(sql, (self.key, number, number + count))
        return [bytes(data).decode("utf-8", "surrogatepass") for (data,) in rows]


class _GoneError(Exception):
    """Somebody has removed the text while it was read."""


def lines_in(text: str) -> int:
    position = Position()
    for piece in pieces(text):
        position.go_past(piece)
    return position.total


def _piece_rows(key: str, text: str) -> Iterator[tuple[str, int, int, int, bytes]]:
    position = Position()
    for number, piece in enumerate(pieces(text)):
        yield key, number, position.line, position.column, encoded(piece)
        position.go_past(piece)


def _kept(key: str, note: bytes, at: float, owner: str) -> KeptResult | None:
    """As its owner knows it; None if it is not theirs, or if nothing is known of it."""
    try:
        kept = msgspec.json.decode(note, type=ResultNote).kept(key, owner, at)
    except (msgspec.DecodeError, ValueError):
        return None
    return kept if key_of(kept.handle, owner) == key else None


@contextmanager
def _told() -> Iterator[None]:
    """In words for whoever reads a result."""
    try:
        yield
    except DatabaseError as error:
        raise unreadable_error(error) from error
