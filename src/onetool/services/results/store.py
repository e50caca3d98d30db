"""ResultStore: stored results in the database. Any process that uses the database can read them.

A result is a row. Its key is a hash of handle and owner: another owner's result is simply not found, and no row tells a
handle. The text is in pieces, each a row with the line and the column at which it begins, so that a page reads the
pieces that it shows. No transaction is open while somebody reads or searches. All times are by the database's clock.

Other stores write to the same database. So a text is written, and deleted, in small transactions. A row counts once
`ended_at` is null, which the last transaction of a `put` sees to: until then, and if its process is killed meanwhile,
the row is one that ends soon. The row of a result that has ended stays for a day, to tell "expired" from "not found".
"""

import json
import logging
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from itertools import islice
from time import monotonic
from typing import Any, NamedTuple

import msgspec

from onetool.core.errors import ToolFailure
from onetool.core.limits import DAY, MIB
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

SWEEP_S = 60.0  # between two sweeps by a process that puts
UNFINISHED_S = 600  # that a process may take to write a text
MARGIN_S = 60  # before that time is up, so that no sweep deletes a text that is being finished
WRITTEN_AT_ONCE = 16  # pieces, about 1 MB
READ_AT_ONCE = 16  # pieces, by callers that read on
LISTED_AT_ONCE = 200  # rows
MAX_SPARE = 8 * MIB  # free pages and log that may stay: they are used again
MAX_HEAD = MAX_NAME = 200  # characters


class ResultStore:
    """Keeps texts for `ttl_s` seconds, and no more than `max_total_mb` in all: the oldest go first."""

    def __init__(self, database: Database, ttl_s: float, max_total_mb: int) -> None:
        self._database = database
        self._clock = database.clock
        self._ttl = ttl_s
        self._max = max_total_mb * MIB
        self._next_sweep = 0.0

    def put(
        self, text: str, owner: str = "", name: str | None = None, value: str | None = None, is_json: bool = False
    ) -> StoredResult:
        """Store a text. `name` is the tool that it came from. Raises NotStoredError.

        The text shows a value, which `load` returns: it is the text itself; what the text says, with `is_json`; or what
        the JSON in `value` says.
        """
        size, lines = _size(text), text.count("\n") + (not text.endswith("\n") and text != "")
        if size + (0 if value is None else _size(value)) > self._max:
            raise NotStoredError(f"The result has {size:,} bytes; results.max_total_mb allows {self._max:,}")
        handle = os.urandom(16).hex()
        masked = _masked(handle, _key(handle, owner), owner)
        note = ResultNote(masked, name and _whole(name[:MAX_NAME]), _whole(text[:MAX_HEAD]), is_json)
        try:
            if value is not None:  # a row of its own, without an owner: no list shows it
                self._write((_key(_value_handle(handle), owner), "", b"", _size(value), 1, False), value)
            facts = (_key(handle, owner), _owner_key(owner), msgspec.json.encode(note), size, lines, False)
            self._write(facts, text)
        except DatabaseError as error:
            raise NotStoredError(f"the result could not be kept: {error}") from error
        self._make_room()
        return StoredResult(handle, size, lines)

    def kept(self, owner: str = "") -> Iterator[KeptResult]:
        """Return what is stored for an owner, by whichever process, newest first. Raises ToolFailure."""
        sql = (
            "SELECT key, note, size, lines, at FROM results WHERE owner = %s AND ended_at IS NULL "  # noqa: S608 - ours
            f"AND at > {self._clock} - %s AND (at, key) < (%s, %s) ORDER BY at DESC, key DESC LIMIT {LISTED_AT_ONCE}"
        )
        before = (float("inf"), "")
        while rows := self._read(sql, (_owner_key(owner), self._ttl, *before)):
            for key, data, size, lines, at in rows:
                try:
                    note = msgspec.json.decode(data, type=ResultNote)
                    handle = _masked(note.masked, key, owner)
                except (msgspec.DecodeError, ValueError):  # a damaged row hides no other
                    continue
                yield KeptResult(handle=handle, name=note.name, at=at, size=size, lines=lines, head=note.head)
            before = rows[-1][4], rows[-1][0]

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
        """Return some lines (see `page_of`). What comes before and after them is not read, unless it is searched.

        Raises HandleNotFoundError, ResultExpiredError, BadQueryError, ToolFailure.
        """
        check_query(offset, limit, column)  # first: it is wrong whatever the handle is
        found = self._find(handle, owner)
        lines = TextLines(found.lines, lambda line, column: self._pieces(found, line, column))
        return page_of(lines, offset, limit, search, fuzzy, max_bytes, column)

    def read(self, handle: str, owner: str = "", max_bytes: int | None = None) -> str:
        """Return the whole text. Raises ResultTooLargeError if it has more bytes than that; else as `page` does."""
        found = self._find(handle, owner)
        if max_bytes is not None and found.size > max_bytes:
            raise ResultTooLargeError(handle, found.size, max_bytes)
        return "".join(piece.text for piece in self._pieces(found))

    def load(self, handle: str, owner: str = "", max_bytes: int = MAX_BYTES) -> Any:
        """Return the value that was stored. Raises as `read` does."""
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

    def sweep(self) -> None:
        """Remove what has expired, then the oldest until the rest fits. `put` does this when it may be needed."""
        end = "UPDATE results SET ended_at = %s, removed = %s, note = %s WHERE key = %s AND ended_at IS NULL"
        try:
            spare = self._database.spare_bytes()
            # Processes that do this at once agree on which results are the oldest.
            if over := self._database.read(lambda work: self._over(work, spare)):
                self._database.write(lambda work: work.execute_many(end, over), max_wait=CALL_WAIT_S)
            self._delete_ended()
        except DatabaseError as error:
            log.warning("Old results are not removed: %s", error)

    # How it is done

    def _read(self, sql: str, params: Params) -> list[Row]:
        with _translated():
            return self._database.read(lambda work: work.execute(sql, params))

    def _find(self, handle: str, owner: str) -> "FoundResult":
        """Raises HandleNotFoundError, ResultExpiredError, ToolFailure."""
        if not is_handle(handle):
            raise HandleNotFoundError(handle)
        end = "coalesce(ended_at, at + %s)"  # of an unfinished one nobody knows the handle
        last = "coalesce((SELECT max(number) FROM result_pieces WHERE result_pieces.key = results.key), -1)"
        sql = f"SELECT size, lines, {last}, {end}, removed, {self._clock} FROM results WHERE key = %s"  # noqa: S608 - ours
        for size, lines, last_piece, ended_at, removed, now in self._read(sql, (self._ttl, _key(handle, owner))):
            if now < ended_at:
                return FoundResult(handle, owner, size, lines, last_piece)
            if now < ended_at + DAY:
                raise ResultExpiredError(handle, bool(removed))
        raise HandleNotFoundError(handle)

    def _pieces(self, found: "FoundResult", line: int = 0, column: int = 0) -> Iterator[Piece]:
        """Yield the pieces of a text, from the one on that has this place. Raises what `_find` does."""
        select = "SELECT number, first_line, first_column, text FROM result_pieces WHERE key = %s AND "
        where = "(first_line, first_column) <= (%s, %s) ORDER BY first_line DESC, first_column DESC LIMIT %s"
        key, count, number = _key(found.handle, found.owner), 1, -1
        params: Params = (line, min(column, sys.maxsize))
        while number < found.last_piece:
            rows = self._read(select + where, (key, *params, count))
            if not rows or (number >= 0 and rows[0][0] != number + 1):
                self._find(found.handle, found.owner)  # as a rule this says that it was removed meanwhile
                raise ToolFailure("the result can't be read: a part of it is missing", reason="source_unavailable")
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
                    raise NotStoredError(f"the result could not be kept: writing it took over {UNFINISHED_S} s")

        while not is_last:
            some = list(islice(rows, WRITTEN_AT_ONCE))
            is_last = len(some) < WRITTEN_AT_ONCE
            self._database.write(write_some, max_wait=CALL_WAIT_S)
            some, is_first = [], False

    def _make_room(self) -> None:
        """Sweep if it may be needed. After a put, and not within it: the last process sees what the others have put."""
        sizes = "SELECT coalesce(sum(size), 0) FROM results WHERE ended_at IS NULL"
        try:
            [(total,)] = self._database.read(lambda work: work.execute(sizes))
            is_full = _on_disk(int(total)) + self._database.spare_bytes() > self._max
        except DatabaseError as error:
            log.warning("Whether results take too much room is not known: %s", error)
            return
        if is_full or monotonic() >= self._next_sweep:
            self._next_sweep = monotonic() + SWEEP_S
            self.sweep()

    def _over(self, work: Transaction, spare: int) -> list[Row]:
        """Return what is to be written of results that have to go: how each ended, and its key."""
        [(now,)] = work.execute(f"SELECT {self._clock}")
        rows = work.execute("SELECT key, at, size FROM results WHERE ended_at IS NULL ORDER BY at, key")
        over: list[Row] = [(at + self._ttl, False, b"", key) for key, at, _ in rows if at + self._ttl <= now]
        kept = rows[len(over) :]
        total = sum(size for *_, size in kept)
        if _on_disk(total) + spare > self._max:
            enough = self._max - self._max // 16  # somewhat less, or every put would have to sweep
            for key, _, size in kept[:-1]:
                if _on_disk(total) <= enough:
                    break
                over.append((now, True, b"", key))
                total -= size
        return over

    def _delete_ended(self) -> None:
        """Delete the texts of results that have ended, and rows that are a day old. Raises DatabaseError."""
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
    last_piece: int  # its number; -1: the text is empty


class ResultNote(msgspec.Struct, frozen=True):
    """What a list tells of a result. `masked` is its handle, masked."""

    masked: str
    name: str | None
    head: str
    is_json: bool = False


def _key(handle: str, owner: str) -> str:
    """Return what a result is stored by: nobody gets the handle from it, and another owner has another key."""
    return blake2b(_encoded(f"{handle} {owner}"), digest_size=16).hexdigest()


def _value_handle(handle: str) -> str:
    """Return the handle of the row with the value that the text of another row shows."""
    return blake2b(bytes.fromhex(handle), digest_size=16, person=b"value").hexdigest()


def _owner_key(owner: str) -> str:
    return blake2b(_encoded(owner), digest_size=16, person=b"owner").hexdigest()


def _masked(handle: str, key: str, owner: str) -> str:
    """Mask a handle, or unmask a masked one. A reader of the database who can't name the owner learns no handle."""
    pad = blake2b(_encoded(f"{key} {owner}"), digest_size=16, person=b"handle").digest()
    return bytes(one ^ other for one, other in zip(bytes.fromhex(handle), pad, strict=True)).hex()


def _size(text: str) -> int:
    """Return its bytes in UTF-8, without making a second copy of it."""
    return len(text) if text.isascii() else sum(len(_encoded(piece)) for piece in pieces(text))


def _on_disk(size: int) -> int:
    """Add what rows and indexes take besides the text, which is a fortieth."""
    return size + size // 32


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _whole(text: str) -> str:
    """Replace halves of characters, which JSON can't hold."""
    return text.encode("utf-8", "replace").decode()


@contextmanager
def _translated() -> Generator[None]:
    """Raise a DatabaseError, and what a damaged row leads to, as a failure that says what can't be done."""
    try:
        yield
    except (UnicodeDecodeError, msgspec.DecodeError):
        raise ToolFailure("the result can't be read: it is damaged", reason="source_unavailable") from None
    except DatabaseError as error:
        raise ToolFailure(f"the result can't be read: {error}", reason="source_unavailable") from error
