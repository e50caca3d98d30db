"""Members: who serves now. Each process has a row, which a thread renews every second by the database's clock.

A row that was not renewed for GONE_S seconds counts as gone. While the database is away everybody stays who was there
last: a replica that is gone then is found out by whoever tries to reach it.

A row counts only with a signature of the cluster's key. Others are told of once, and nothing is sent there.
"""

import logging
import math
import re
import time
from collections.abc import Callable
from secrets import token_hex
from threading import Event, Lock, Thread
from typing import Any

import msgspec

from onetool._version import __version__
from onetool.cluster import (
    OWN_ADDRESS,
    ROWS,
    SAME_KEY,
    UNIX,
    ClusterSettings,
    Replica,
    derived_key,
    is_signed,
    other_key,
    row_signature,
    same_addresses,
)
from onetool.database import Database, DatabaseError, Transaction

log = logging.getLogger("onetool.cluster")

BEAT_S = 1.0
GONE_S = 5.0
FORGOTTEN_S = 3600.0  # after which the row of a process that was killed is deleted
MOST_UNKNOWN = 1000  # ids that nobody has, until the next beat
MOST_TOLD = 100  # replicas with another key that the log names
CLOSE_S = 2.0

_ADDRESS = re.compile(r"(?:(?:[\w-]{1,63}\.)*[\w-]{1,63}\.?|\[[\w:.%]+\]):([0-9]{1,5})", re.ASCII)
_COLUMNS, _ORDER = "id, address, version, since, is_draining, seen_at, signature", "ORDER BY since, id"


class Members:
    """`start` adds this process. All methods may be called from any thread."""

    def __init__(self, settings: ClusterSettings, id: str | None = None) -> None:
        self.id = id or token_hex(4)
        self._database = settings.database
        self._address = settings.address
        self._key = derived_key(settings.key, ROWS)
        self._is_draining = False
        self._alive: dict[str, Replica] = {}
        self._strangers: dict[str, Replica] = {}
        self._told: set[tuple[str, str]] = set()
        self._unknown: set[str] = set()
        self._ahead = 0.0  # seconds that the database's clock is ahead of ours
        self._calls: list[Callable[[], None]] = []
        self._ended = Event()
        self._lock = Lock()  # one beat at a time
        self._thread: Thread | None = None
        self._is_away = False

    def start(self) -> None:
        """The first beat is done when this returns. A database that is away is no error: the next beat may reach it."""
        self._beat()
        self._thread = Thread(target=self._run, name="onetool-members", daemon=True)
        self._thread.start()

    def drain(self) -> None:
        """From now on the others know that this process ends soon."""
        self._is_draining = True
        self._beat()

    def close(self) -> None:
        """Remove the row: the others know at their next beat."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        with self._lock:
            try:
                self._database.write(lambda work: work.execute("DELETE FROM replicas WHERE id = %s", (self.id,)))
            except DatabaseError as error:
                log.warning("the row of this replica stays until it is forgotten: %s", error)

    def alive(self) -> list[Replica]:
        """From memory, as of the last beat. It includes this process."""
        return list(self._alive.values())

    def find(self, id: str) -> Replica | None:
        """Who has this id. The database is asked once where memory does not know it: so it may block."""
        if (known := self._alive.get(id)) is not None or id in self._unknown:
            return known
        try:
            rows = self._database.read(lambda work: work.execute(*_select(self._database, "AND id = %s", id)))
        except DatabaseError:
            return None
        if rows and (found := self._replica(rows[0])) is not None and found.is_known:
            return self._alive.setdefault(id, found)
        if len(self._unknown) < MOST_UNKNOWN:
            self._unknown.add(id)
        return None

    def is_alive(self, id: str) -> bool:
        """From memory. It never blocks."""
        return id in self._alive

    def stranger(self, id: str) -> Replica | None:
        """A replica of this id whose row has no signature of our key, as of the last beat. It never blocks."""
        return self._strangers.get(id)

    def now(self) -> float:
        """Seconds since 1970 by the database's clock, which all replicas agree on."""
        return time.time() + self._ahead

    def on_beat(self, call: Callable[[], None]) -> None:
        """Call it after each beat, in the thread of the heartbeat. It must be quick: the next beat waits for it."""
        self._calls.append(call)

    def _run(self) -> None:
        while not self._ended.wait(BEAT_S):
            self._beat()
            for call in list(self._calls):
                try:
                    call()
                except Exception as error:  # noqa: BLE001 - one that fails must not end the heartbeat
                    log.error("after a heartbeat: %s: %s", type(error).__name__, error)

    def _beat(self) -> None:
        with self._lock:
            if self._ended.is_set():
                return
            began = time.time()
            try:
                now, rows = self._database.write(self._renew)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next beat may go well
                if not self._is_away:
                    why = error if isinstance(error, DatabaseError) else f"{type(error).__name__}: {error}"
                    log.warning("no heartbeat, the other replicas are those of the last one: %s", why)
                self._is_away = True
                return
            self._is_away = False
            self._ahead = now - (began + time.time()) / 2
            found = [one for row in rows if (one := self._replica(row)) is not None]
            self._alive = {one.id: one for one in found if one.is_known}
            self._strangers = {one.id: one for one in found if not one.is_known}
            self._unknown.clear()
            self._tell_strangers()
            self._tell_same_addresses()

    def _tell_strangers(self) -> None:
        """Once of each, and not of all that somebody may write."""
        for one in self._strangers.values():
            if (one.id, one.address) not in self._told and len(self._told) < MOST_TOLD:
                self._told.add((one.id, one.address))
                log.error("%s: %s. Nothing is sent to it", other_key(one.id, one.address), SAME_KEY)

    def _tell_same_addresses(self) -> None:
        """Of those that have ours, once of each."""
        for pair in same_addresses(one for one in self._alive.values() if one.address == self._address):
            other = next((one for one in pair if one.id != self.id), None) if self._alive.get(self.id) in pair else None
            if other is not None and (other.id, other.address) not in self._told and len(self._told) < MOST_TOLD:
                self._told.add((other.id, other.address))
                told = "replica %s has the same address as this one, %s: %s. Calls that are for it do not reach it"
                log.error(told, other.id, other.address, OWN_ADDRESS)

    def _renew(self, work: Transaction) -> tuple[float, list[tuple[Any, ...]]]:
        clock = self._database.clock
        now = float(work.execute(f"SELECT {clock}")[0][0])
        signature = row_signature(self._key, self.id, self._address, __version__, self._is_draining, now)
        work.execute(
            "INSERT INTO replicas (id, address, version, since, seen_at, is_draining, signature) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s) "
            "ON CONFLICT (id) DO UPDATE SET address = excluded.address, version = excluded.version, "
            "since = CASE WHEN replicas.since <= excluded.since THEN replicas.since ELSE excluded.since END, "
            "seen_at = excluded.seen_at, is_draining = excluded.is_draining, signature = excluded.signature",
            (self.id, self._address, __version__, now, now, self._is_draining, signature),
        )
        forgotten = f"DELETE FROM replicas WHERE seen_at < {clock} - %s OR seen_at > {clock} + %s"  # noqa: S608
        work.execute(forgotten, (FORGOTTEN_S, FORGOTTEN_S))
        return now, work.execute(*_select(self._database, _ORDER))

    def _replica(self, row: tuple[Any, ...]) -> Replica | None:
        """None for a row that no replica has written: who stands there counts as gone."""
        found = _replica(row, self._key)
        if found is None or not found.is_known or found.id == self.id or self._is_address(found.address):
            return found
        return None

    def _is_address(self, address: str) -> bool:
        """Only who is reached by a Unix socket, as workers of one machine are, reaches others by one."""
        if address.startswith(UNIX):
            return self._address.startswith(UNIX) and address.removeprefix(UNIX).isprintable()
        found = _ADDRESS.fullmatch(address)
        return found is not None and 0 < int(found[1]) < 65536


def read_members(database: Database, key: bytes | None) -> list[Replica]:
    """Who serves now, for those who are no members. `key` is the cluster's; without it all are believed.

    Raises DatabaseError.
    """
    rows_key = None if key is None else derived_key(key, ROWS)
    rows = database.read(lambda work: work.execute(*_select(database, _ORDER)))
    return [found for row in rows if (found := _replica(row, rows_key)) is not None]


def _select(database: Database, more: str, *params: Any) -> tuple[str, tuple[Any, ...]]:
    clock = database.clock
    text = f"SELECT {_COLUMNS} FROM replicas WHERE seen_at > {clock} - %s AND seen_at < {clock} + %s {more}"  # noqa: S608
    return text, (GONE_S, GONE_S, *params)


def _replica(row: tuple[Any, ...], key: bytes | None) -> Replica | None:
    """None for a row that can't be one."""
    id, address, version, since, is_draining, seen_at, signature = row
    try:
        seen_at = float(seen_at)
        found = Replica(str(id), str(address), str(version), float(since), bool(is_draining), seen_at=seen_at)
    except (TypeError, ValueError):
        return None
    if not math.isfinite(found.since):
        return None
    is_known = key is None or is_signed(key, found, seen_at, str(signature))
    return found if is_known else msgspec.structs.replace(found, is_known=False)
