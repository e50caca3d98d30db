"""ResultStore: stored results in the database. Any process that uses the database can read them.

A result is a row. Its key is a hash of handle and owner, so another owner's result isn't found, and rows don't reveal
handles. The text is stored in pieces, each a row with the line and column at which it begins, so a page reads only the
pieces that it shows. No transaction stays open during a read or search. All times are from the database's clock.

Other stores write to the same database, so texts are written and deleted in small transactions. A row is valid once
`ended_at` is null, which the last transaction of a `put` sets: until then, or if the process is killed, the row expires
soon. The row of an expired result stays for a day, to distinguish "expired" from "not found".
"""

import json
import logging
import os
import sys
from collections import Counter, deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from itertools import islice
from time import monotonic
from typing import Any, NamedTuple

import msgspec

from onetool.core.errors import ToolFailure
from onetool.core.limits import DAY, MIB
from onetool.core.text import replace_surrogates
from onetool.database import Database, DatabaseError, Transaction
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
from onetool.services.results.paging import MAX_BYTES, Piece, TextLines, check_query, page_of, pieces, placed_pieces

log = logging.getLogger("onetool.results")
SWEEP_S = 60.0  # between two sweeps by a process that stores results
UNFINISHED_S = 600  # maximum time to write a text
MARGIN_S = 60  # less than UNFINISHED_S, so that no sweep deletes a text that is being finished
WRITTEN_AT_ONCE = 16  # pieces, about 1 MB
READ_AT_ONCE = 16  # pieces, in later queries of one read
LISTED_AT_ONCE = 200  # rows
MAX_SPARE = 8 * MIB  # free pages and log that may remain for reuse
MAX_HEAD = MAX_NAME = 200  # characters


class ResultStore:
    """A store that keeps texts for `ttl_s` seconds and at most `max_total_mb` in total.

    When that is full, the owner that stores most loses its oldest results, so nobody can displace another's.
    """

    def __init__(self, database: Database, ttl_s: float, max_total_mb: int) -> None:
        self._database = database
        self._clock = database.clock
        self._ttl = ttl_s
        self._max = max_total_mb * MIB
        self._next_sweep = 0.0

    def put(
        self, text: str, owner: str = "", name: str | None = None, value: str | None = None, is_json: bool = False
    ) -> StoredResult:
        """Store a text, which came from the tool `name`. Raises NotStoredError.

        `load` returns a value: the text itself; with `is_json`, the text parsed as JSON; or the JSON in `value`.
        """
        size, lines = _size(text), text.count("\n") + (not text.endswith("\n") and text != "")
        if size + (0 if value is None else _size(value)) > self._max:
            raise NotStoredError(f"has {size:,} bytes, and results.max_total_mb allows {self._max:,}")
        handle = os.urandom(16).hex()
        masked = _masked(handle, _key(handle, owner), owner)
        note = ResultNote(
            masked, name and replace_surrogates(name[:MAX_NAME]), replace_surrogates(text[:MAX_HEAD]), is_json
        )
        try:
            if value is not None:  # a separate row, hidden from lists because it has no note
                self._write((_key(_value_handle(handle), owner), _owner_key(owner), b"", _size(value), 1, False), value)
            facts = (_key(handle, owner), _owner_key(owner), msgspec.json.encode(note), size, lines, False)
            self._write(facts, text)
        except DatabaseError as error:
            raise NotStoredError(f"of {size:,} bytes could not be stored: {error.what}") from error
        if facts[0] in self._make_room():
            raise NotStoredError(f"has {size:,} bytes, and results of others take the rest of results.max_total_mb")
        return StoredResult(handle, size, lines)

    def kept(self, owner: str = "") -> Iterator[KeptResult]:
        """Yield an owner's stored results, newest first. Raises ToolFailure."""
        sql = (
            "SELECT key, note, size, lines, at FROM results WHERE owner = %s AND ended_at IS NULL "  # noqa: S608 - ours
            f"AND note <> %s AND at > {self._clock} - %s AND (at, key) < (%s, %s) "
            f"ORDER BY at DESC, key DESC LIMIT {LISTED_AT_ONCE}"
        )
        before = (float("inf"), "")
        while rows := self._read(sql, (_owner_key(owner), b"", self._ttl, *before)):
            for key, data, size, lines, at in rows:
                try:
                    note = msgspec.json.decode(data, type=ResultNote)
                    handle = _masked(note.masked, key, owner)
                except (msgspec.DecodeError, ValueError):  # skip a damaged row
                    continue
                yield KeptResult(handle=handle, name=note.name, at=at, size=size, lines=lines, head=note.head)
            before = rows[-1][4], rows[-1][0]

    def owner_of(self, handle: str, owners: tuple[str, ...]) -> str:
        """Return which of the owners has a result; the first if none has it. Raises ToolFailure."""
        keys = {_key(handle, owner): owner for owner in owners}
        if len(keys) == 1:
            return owners[0]
        sql = f"SELECT key FROM results WHERE key IN ({', '.join(['%s'] * len(keys))})"  # noqa: S608 - ours
        return next((keys[key] for (key,) in self._read(sql, tuple(keys))), owners[0])

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
        """Return some lines (see `page_of`). Without a search, only these are read.

        Raises HandleNotFoundError, ResultExpiredError, BadQueryError, ToolFailure.
        """
        check_query(offset, limit, column)  # first: valid handle or not
        found = self._find(handle, owner)
        lines = TextLines(found.lines, lambda line, column: self._pieces(found, line, column))
        return page_of(lines, offset, limit, search, fuzzy, max_bytes, column)

    def read(self, handle: str, owner: str = "", max_bytes: int | None = None) -> str:
        """Return the whole text. Raises ResultTooLargeError if it exceeds `max_bytes`, and the errors of `page`."""
        found = self._find(handle, owner)
        if max_bytes is not None and found.size > max_bytes:
            raise ResultTooLargeError(handle, found.size, max_bytes)
        return "".join(piece.text for piece in self._pieces(found))

    def load(self, handle: str, owner: str = "", max_bytes: int = MAX_BYTES) -> Any:
        """Return the stored value. Raises the errors of `read`."""
        found, is_json = self._find(handle, owner), True
        try:
            found = self._find(_value_handle(handle), owner)
        except ResultExpiredError:
            raise ResultExpiredError(handle, removed=True) from None
        except HandleNotFoundError:  # the value is in the text
            notes = self._read("SELECT note FROM results WHERE key = %s AND ended_at IS NULL", (_key(handle, owner),))
            with _translated():
                is_json = any(msgspec.json.decode(note, type=ResultNote).is_json for (note,) in notes)
        if found.size > max_bytes:
            raise ResultTooLargeError(handle, found.size, max_bytes)
        text = "".join(piece.text for piece in self._pieces(found))
        return json.loads(text) if is_json else text

    def remove(self, handle: str, owner: str = "") -> None:
        """Forget a result. Raises HandleNotFoundError, ResultExpiredError, ToolFailure."""
        self._find(handle, owner)
        forget = "UPDATE results SET ended_at = 0, note = %s WHERE key IN (%s, %s)"
        keys = _key(handle, owner), _key(_value_handle(handle), owner)
        with _translated():
            self._database.write(lambda work: work.execute(forget, (b"", *keys)))
        self.sweep()

    def sweep(self) -> set[str]:
        """Remove expired results, then more until the rest fits. Return their keys. `put` calls this when needed."""
        end = "UPDATE results SET ended_at = %s, removed = %s, note = %s WHERE key = %s AND ended_at IS NULL"
        over: list[Row] = []
        try:
            spare = self._database.spare_bytes()
            # Concurrent sweeps agree on which results are the oldest.
            if over := self._database.read(lambda work: self._over(work, spare)):
                self._database.write(lambda work: work.execute_many(end, over), max_wait=CALL_WAIT_S)
            self._delete_ended()
        except DatabaseError as error:
            log.warning("Old results can't be removed: %s", error)
        return {key for *_, key in over}

    # Implementation

    def _read(self, sql: str, params: Params) -> list[Row]:
        with _translated():
            return self._database.read(lambda work: work.execute(sql, params))

    def _find(self, handle: str, owner: str) -> "FoundResult":
        """Look up a result. Raises HandleNotFoundError, ResultExpiredError, ToolFailure."""
        if not is_handle(handle):
            raise HandleNotFoundError(handle)
        end = "coalesce(ended_at, at + %s)"  # callers don't have the handle of an unfinished result
        last = "coalesce((SELECT max(number) FROM result_pieces WHERE result_pieces.key = results.key), -1)"
        sql = f"SELECT size, lines, {last}, {end}, removed, {self._clock} FROM results WHERE key = %s"  # noqa: S608 - ours
        for size, lines, last_piece, ended_at, removed, now in self._read(sql, (self._ttl, _key(handle, owner))):
            if now < ended_at:
                return FoundResult(handle, owner, size, lines, last_piece)
            if now < ended_at + DAY:
                raise ResultExpiredError(handle, bool(removed))
        raise HandleNotFoundError(handle)

    def _pieces(self, found: "FoundResult", line: int = 0, column: int = 0) -> Iterator[Piece]:
        """Yield the pieces of a text, starting with the piece at this line and column. Raises the errors of `_find`."""
        select = "SELECT number, first_line, first_column, text FROM result_pieces WHERE key = %s AND "
        where = "(first_line, first_column) <= (%s, %s) ORDER BY first_line DESC, first_column DESC LIMIT %s"
        key, count, number = _key(found.handle, found.owner), 1, -1
        params: Params = (line, min(column, sys.maxsize))
        while number < found.last_piece:
            rows = self._read(select + where, (key, *params, count))
            if not rows or (number >= 0 and rows[0][0] != number + 1):
                self._find(found.handle, found.owner)  # usually raises that the result was removed
                raise ToolFailure("the result can't be read: part of it is missing", reason="source_unavailable")
            for _, first_line, first_column, data in rows:
                with _translated():
                    text = str(data, "utf-8", "surrogatepass")
                yield Piece(first_line, first_column, text)
            number, count = rows[-1][0], min(4 * count, READ_AT_ONCE)
            where, params = "number > %s ORDER BY number LIMIT %s", (number,)

    def _write(self, facts: Params, text: str) -> None:
        key, clock = facts[0], self._clock
        begin = (
            "INSERT INTO results (key, owner, note, size, lines, removed, at, ended_at) "  # noqa: S608 - ours
            f"VALUES (%s, %s, %s, %s, %s, %s, {clock}, {clock} + {UNFINISHED_S})"
        )
        add = "INSERT INTO result_pieces (key, number, first_line, first_column, text) VALUES (%s, %s, %s, %s, %s)"
        finish = f"UPDATE results SET at = {clock}, ended_at = NULL WHERE key = %s AND ended_at > {clock} + {MARGIN_S}"  # noqa: S608
        rows = (
            (key, number, piece.line, piece.column, _encoded(piece.text))
            for number, piece in enumerate(placed_pieces(text))
        )
        some: list[Row] = []
        is_first, is_last = True, False

        def write_some(work: Transaction) -> None:
            if is_first:
                work.execute(begin, facts)
            work.execute_many(add, some)
            if is_last:
                work.execute(finish, (key,))
                if work.row_count != 1:
                    raise NotStoredError(f"could not be stored: writing took over {UNFINISHED_S} s")

        while not is_last:
            some = list(islice(rows, WRITTEN_AT_ONCE))
            is_last = len(some) < WRITTEN_AT_ONCE
            self._database.write(write_some, max_wait=CALL_WAIT_S)
            some, is_first = [], False

    def _make_room(self) -> set[str]:
        """Sweep if needed, and return the keys of removed results.

        Called after a `put`, not within it: the last of several processes sees all results.
        """
        sizes = "SELECT coalesce(sum(size), 0) FROM results WHERE ended_at IS NULL"
        try:
            [(total,)] = self._database.read(lambda work: work.execute(sizes))
            is_full = _on_disk(int(total)) + self._database.spare_bytes() > self._max
        except DatabaseError as error:
            log.warning("The total size of results can't be determined: %s", error)
            return set()
        if not is_full and monotonic() < self._next_sweep:
            return set()
        self._next_sweep = monotonic() + SWEEP_S
        return self.sweep()

    def _over(self, work: Transaction, spare: int) -> list[Row]:
        """Return the parameters of the update that ends expired and excess results: end, reason, note, key."""
        [(now,)] = work.execute(f"SELECT {self._clock}")
        rows = work.execute("SELECT key, at, size, owner FROM results WHERE ended_at IS NULL ORDER BY at, key")
        over: list[Row] = [(row[1] + self._ttl, False, b"", row[0]) for row in rows if row[1] + self._ttl <= now]
        kept = rows[len(over) :]
        total = sum(size for _, _, size, _ in kept)
        if _on_disk(total) + spare > self._max:
            enough = self._max - self._max // 16  # some headroom, or every put would have to sweep
            owned: dict[str, deque[Row]] = {}
            sizes = Counter[str]()
            for row in kept:
                owned.setdefault(row[3], deque()).append(row)
                sizes[row[3]] += row[2]
            for _ in kept[:-1]:
                if _on_disk(total) <= enough:
                    break
                most = max(sizes, key=sizes.__getitem__)
                key, _, size, _ = owned[most].popleft()
                over.append((now, True, b"", key))
                sizes[most] -= size
                total -= size
        return over

    def _delete_ended(self) -> None:
        """Delete the texts of ended results, and rows that ended a day ago. Raises DatabaseError."""
        database, clock = self._database, self._clock
        texts = (
            "SELECT p.key, p.number FROM results r JOIN result_pieces p ON p.key = r.key "  # noqa: S608 - ours
            f"WHERE r.ended_at <= {clock} ORDER BY r.ended_at DESC, p.key, p.number LIMIT {WRITTEN_AT_ONCE}"
        )
        delete = "DELETE FROM result_pieces WHERE key = %s AND number = %s"
        while rows := database.read(lambda work: work.execute(texts)):
            database.write(lambda work, rows=rows: work.execute_many(delete, rows), max_wait=CALL_WAIT_S)
        forgotten = f"FROM results WHERE ended_at <= {clock} - {DAY}"
        if database.read(lambda work: work.execute(f"SELECT 1 {forgotten} LIMIT 1")):
            database.write(lambda work: work.execute(f"DELETE {forgotten}"), max_wait=CALL_WAIT_S)
        if database.spare_bytes() > min(MAX_SPARE, self._max // 16):
            database.shrink()


class FoundResult(NamedTuple):
    handle: str
    owner: str
    size: int
    lines: int
    last_piece: int  # number; -1: the text is empty


class ResultNote(msgspec.Struct, frozen=True):
    """The details of a result for lists. `masked` is its masked handle."""

    masked: str
    name: str | None
    head: str
    is_json: bool = False


def _key(handle: str, owner: str) -> str:
    """Return the key of a result, which doesn't reveal the handle and depends on the owner."""
    return blake2b(_encoded(f"{handle} {owner}"), digest_size=16).hexdigest()


def _value_handle(handle: str) -> str:
    """Return the handle of the row that holds the value of a result."""
    return blake2b(bytes.fromhex(handle), digest_size=16, person=b"value").hexdigest()


def _owner_key(owner: str) -> str:
    return blake2b(_encoded(owner), digest_size=16, person=b"owner").hexdigest()


def _masked(handle: str, key: str, owner: str) -> str:
    """Mask or unmask a handle. Without the owner, handles can't be read from the database."""
    pad = blake2b(_encoded(f"{key} {owner}"), digest_size=16, person=b"handle").digest()
    return bytes(left ^ right for left, right in zip(bytes.fromhex(handle), pad, strict=True)).hex()


def _size(text: str) -> int:
    """Return the size in UTF-8, without copying the text."""
    return len(text) if text.isascii() else sum(len(_encoded(piece)) for piece in pieces(text))


def _on_disk(size: int) -> int:
    """Return the size including rows and indexes, which add a fortieth."""
    return size + size // 32


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@contextmanager
def _translated() -> Generator[None]:
    """Turn database errors and damaged rows into a ToolFailure."""
    try:
        yield
    except (UnicodeDecodeError, msgspec.DecodeError):
        raise ToolFailure("the result can't be read: it is damaged", reason="source_unavailable") from None
    except DatabaseError as error:
        raise ToolFailure(f"the result can't be read: {error}", reason="source_unavailable") from error
