"""`Members`: the serving processes. Each has a row, which a thread renews every second by the database's clock.

A replica counts as gone if its row was not renewed for GONE_S seconds. While the database is unavailable, the members
stay those of the last heartbeat, and requests to dead members fail. The members are kept for another GRACE_S, because
the replicas reconnect to the database one after the other.

A row is valid only with a signature of the cluster's key. Other rows are logged once, and nothing is sent to them.
"""

import logging
import math
import re
import time
from collections.abc import Callable, Sequence
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
MAX_BEAT_S = 2.0  # for the database to answer a statement of a heartbeat
LATE_S = 4.0  # without a heartbeat, after which the database counts as unavailable
GONE_S = 5.0
GRACE_S = 3.0  # after the database is back, for the others to reach it, too
FORGOTTEN_S = 3600.0  # after which the row of a killed process is deleted
FORGET_S = 600.0  # between two searches for such rows
MAX_CLOCK_OFFSET_S = 0.5  # between the database's time and this process's estimate of it
MAX_UNKNOWN = 1000  # unknown IDs to remember until the next heartbeat
MAX_LOGGED = 100  # replicas with problems: anyone with write access to the database can add rows
CLOSE_S = 2.0

_ADDRESS = re.compile(r"(?:(?:[\w-]{1,63}\.)*[\w-]{1,63}\.?|\[[\w:.%]+\]):([0-9]{1,5})", re.ASCII)
_COLUMNS, _ORDER = "id, address, version, since, is_draining, seen_at, signature, catalogue", "ORDER BY since, id"


class Members:
    """The replicas of a cluster. `start` adds this process. All methods may be called from any thread."""

    def __init__(self, settings: ClusterSettings, id: str | None = None) -> None:
        self.id = id or token_hex(4)
        self._database = settings.database
        self._address = settings.address
        self._keys = [derived_key(key, ROWS) for key in settings.keys]
        self.catalogue = ""  # signed digests of what all replicas should have in common
        self._is_draining = False
        self._alive: dict[str, Replica] = {}
        self._logged: set[str] = set()
        self._unknown: set[str] = set()
        self._calls: list[Callable[[], None]] = []
        self._ended = Event()
        self._lock = Lock()  # one heartbeat at a time
        self._thread: Thread | None = None
        self._is_away = False
        self._beat_at = time.monotonic()
        self._settled_at = 0.0
        self._offset: float | None = None  # of the database's clock from time.monotonic; None: unknown
        self._forget_at = 0.0

    @property
    def is_settling(self) -> bool:
        """Whether an outage has just ended, so that other members may not have sent a heartbeat yet. Never blocks."""
        return time.monotonic() < self._settled_at

    @property
    def has_database(self) -> bool:
        """Whether this process has reached the database in the last few seconds. Never blocks."""
        return not self._database.is_away and time.monotonic() - self._beat_at < LATE_S

    def start(self) -> None:
        """Send the first heartbeat, then others in a thread, even if the database is unavailable now."""
        self._beat()
        self._thread = Thread(target=self._run, name="onetool-members", daemon=True)
        self._thread.start()

    def drain(self) -> None:
        """Tell the other members that this process will stop soon."""
        self._is_draining = True
        self._beat()

    def close(self) -> None:
        """Remove the row. The other members notice at their next heartbeat."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        with self._lock:
            try:
                self._database.write(lambda work: work.execute("DELETE FROM replicas WHERE id = %s", (self.id,)))
            except DatabaseError as error:
                log.warning("the row of this replica stays until it expires: %s", error)

    def alive(self) -> list[Replica]:
        """Return the members as of the last heartbeat, including this process. Never blocks."""
        return list(self._alive.values())

    def find(self, id: str) -> Replica | None:
        """Return the replica with this ID.

        Asks the database once about an unknown ID, so it may block. Raises DatabaseError.
        """
        if (known := self._alive.get(id)) is not None or id in self._unknown:
            return known
        rows = self._database.read(lambda work: work.execute(*_select(self._database, "AND id = %s", id)))
        if rows and (found := self._replica(rows[0][:-1])) is not None and found.is_known:
            return self._alive.setdefault(id, found)
        if len(self._unknown) < MAX_UNKNOWN:
            self._unknown.add(id)
        return None

    def known(self, id: str) -> Replica | None:
        """Return the replica with this ID if it was a member at the last heartbeat. Never blocks."""
        return self._alive.get(id)

    def is_alive(self, id: str) -> bool:
        """Return whether the replica was a member at the last heartbeat. Never blocks."""
        return id in self._alive

    def is_oldest(self) -> bool:
        """Return whether this member has served longest: it does the work that only one member may do. Never blocks."""
        oldest = min(self._alive.values(), key=lambda replica: (replica.since, replica.id), default=None)
        return oldest is None or oldest.id == self.id

    def now(self) -> float:
        """Return the seconds since 1970 by the database's clock, which all replicas share.

        Changes to this machine's clock have no effect, unless the database runs on the same machine.
        """
        if (offset := self._offset) is None or not self._database.is_shared:
            return self._database.now()
        return time.monotonic() + offset

    def on_beat(self, call: Callable[[], None]) -> None:
        """Call a function after each heartbeat, in its thread. The next heartbeat waits for the function."""
        self._calls.append(call)

    def _run(self) -> None:
        while not self._ended.wait(BEAT_S):
            self._beat()
            for call in list(self._calls):
                try:
                    call()
                except Exception as error:  # noqa: BLE001 - a failing callback must not end the heartbeat
                    log.error("an action after a heartbeat failed: %s: %s", type(error).__name__, error)

    def _beat(self) -> None:
        with self._lock:
            if self._ended.is_set():
                return
            began = time.time()
            try:
                now, rows = self._database.write(self._renew, max_wait=MAX_BEAT_S, apart=True)
            except Exception as error:  # noqa: BLE001 - the next heartbeat may succeed
                if not self._is_away:
                    why = error if isinstance(error, DatabaseError) else f"{type(error).__name__}: {error}"
                    log.warning("no heartbeat; using the replicas of the last one: %s", why)
                self._is_away = True
                return
            self._beat_at = time.monotonic()
            if self._is_away:
                self._is_away, self._settled_at = False, self._beat_at + GRACE_S
            self._database.ahead = now - (began + time.time()) / 2
            replicas = [replica for row in rows if (replica := self._replica(row)) is not None]
            before = self._alive if self.is_settling else {}
            self._alive = before | {replica.id: replica for replica in replicas if replica.is_known}
            self._unknown.clear()
            for replica in replicas:
                if not replica.is_known:
                    self._log_once(f"{other_key(replica.id, replica.address)}: {SAME_KEY}. Nothing is sent to it")
            for replica in self._alive.values():
                if replica.version != __version__:
                    problem = f"replica {replica.id} at {replica.address} has version {replica.version} of OneTool"
                    self._log_once(f"{problem}, and this one has {__version__}", logging.WARNING)
            for pair in same_addresses(replica for replica in self._alive.values() if replica.address == self._address):
                for other in pair if self._alive.get(self.id) in pair else ():
                    if other.id != self.id:
                        problem = f"replica {other.id} has the same address as this one, {other.address}: {OWN_ADDRESS}"
                        self._log_once(f"{problem}. Calls for it do not reach it")

    def _log_once(self, message: str, level: int = logging.ERROR) -> None:
        if message not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add(message)
            log.log(level, "%s", message)

    def _renew(self, work: Transaction) -> tuple[float, list[tuple[Any, ...]]]:
        clock = self._database.clock
        expected = None if self._offset is None else time.monotonic() + self._offset
        now = float(work.execute(f"SELECT {clock}")[0][0]) if expected is None else expected
        signature = row_signature(self._keys[0], self.id, self._address, __version__, self._is_draining, now)
        work.execute(
            "INSERT INTO replicas (id, address, version, since, seen_at, is_draining, signature, catalogue) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, %s) "
            "ON CONFLICT (id) DO UPDATE SET address = excluded.address, version = excluded.version, "
            "since = CASE WHEN replicas.since <= excluded.since THEN replicas.since ELSE excluded.since END, "
            "seen_at = excluded.seen_at, is_draining = excluded.is_draining, signature = excluded.signature, "
            "catalogue = excluded.catalogue",
            (self.id, self._address, __version__, now, now, self._is_draining, signature, self.catalogue),
        )
        if self.is_oldest() and time.monotonic() >= self._forget_at:
            self._forget_at = time.monotonic() + FORGET_S
            forgotten = f"DELETE FROM replicas WHERE seen_at < {clock} - %s OR seen_at > {clock} + %s"  # noqa: S608
            work.execute(forgotten, (FORGOTTEN_S, FORGOTTEN_S))
        rows = work.execute(*_select(self._database, _ORDER))
        actual = float(rows[0][-1]) if rows else now
        self._offset = actual - time.monotonic() if rows and abs(actual - now) < MAX_CLOCK_OFFSET_S else None
        if expected is not None and self._offset is None:  # the machine may have slept: the row has a wrong time
            return self._renew(work)
        return actual, [row[:-1] for row in rows]

    def _replica(self, row: tuple[Any, ...]) -> Replica | None:
        """Return the replica of a row; None if the row is invalid, or its address is unreachable from this machine."""
        found = _replica(row, self._keys)
        if found is None or not found.is_known or found.id == self.id:
            return found
        if found.address.startswith(UNIX):  # Unix sockets connect only workers of the same machine
            is_valid = self._address.startswith(UNIX) and found.address.removeprefix(UNIX).isprintable()
        else:
            match = _ADDRESS.fullmatch(found.address)
            is_valid = match is not None and 0 < int(match[1]) < 65536
        return found if is_valid else None


def read_members(database: Database, *keys: bytes) -> list[Replica]:
    """Return the serving replicas. Signatures are not checked without a cluster key.

    Raise DatabaseError if the database can't be read.
    """
    rows_keys = [derived_key(key, ROWS) for key in keys]
    rows = database.read(lambda work: work.execute(*_select(database, _ORDER)))
    return [found for row in rows if (found := _replica(row[:-1], rows_keys)) is not None]


def _select(database: Database, more: str, *params: Any) -> tuple[str, tuple[Any, ...]]:
    clock = database.clock
    text = f"SELECT {_COLUMNS}, {clock} FROM replicas WHERE seen_at > {clock} - %s AND seen_at < {clock} + %s {more}"  # noqa: S608
    return text, (GONE_S, GONE_S, *params)


def _replica(row: tuple[Any, ...], keys: Sequence[bytes]) -> Replica | None:
    """Return the replica of a row; None if the row is invalid."""
    id, address, version, since, is_draining, seen_at, signature, catalogue = row
    try:
        found = Replica(
            *(str(id), str(address), str(version), float(since), bool(is_draining)),
            seen_at=float(seen_at),
            catalogue=str(catalogue),
        )
    except (TypeError, ValueError):
        return None
    if not math.isfinite(found.since):
        return None
    is_known = not keys or any(is_signed(key, found, str(signature)) for key in keys)
    return found if is_known else msgspec.structs.replace(found, is_known=False)
