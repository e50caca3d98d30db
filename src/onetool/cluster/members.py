"""`Members`: the processes that serve now. Each has a row, which a thread renews every second by the database's clock.

A replica counts as gone if its row was not renewed for GONE_S seconds. While the database is away, the members stay
those of the last heartbeat, and requests to one that is gone fail. They stay so for GRACE_S after it is back: replicas
that are alive reach it one after the other.

A row counts only with a signature of the cluster's key. Other rows are logged once, and nothing is sent there.
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
LATE_S = 4.0  # without a heartbeat, the database counts as away
GONE_S = 5.0
GRACE_S = 3.0  # after the database is back, for the others to reach it, too
FORGOTTEN_S = 3600.0  # after which the row of a process that was killed is deleted
FORGET_S = 60.0  # between two looks for such rows
MAX_APART_S = 0.5  # between the database's time and what this process takes for it
MAX_UNKNOWN = 1000  # ids without a replica that are remembered until the next beat
MAX_LOGGED = 100  # replicas with problems: anybody who writes the database can add rows
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
        self.catalogue = ""  # digests of what all replicas should have in common, signed
        self._is_draining = False
        self._alive: dict[str, Replica] = {}
        self._strangers: dict[str, Replica] = {}
        self._logged: set[str] = set()
        self._unknown: set[str] = set()
        self._calls: list[Callable[[], None]] = []
        self._ended = Event()
        self._lock = Lock()  # one beat at a time
        self._thread: Thread | None = None
        self._is_away = False
        self._beat_at = time.monotonic()
        self._settled_at = 0.0
        self._offset: float | None = None  # of the database's clock to time.monotonic; None: it has to be asked
        self._forget_at = 0.0

    @property
    def is_settling(self) -> bool:
        """True for some seconds after an outage: others may have had no heartbeat yet. Never blocks."""
        return time.monotonic() < self._settled_at

    @property
    def has_database(self) -> bool:
        """True if this process has reached the database in the last seconds. Never blocks."""
        return not self._database.is_away and time.monotonic() - self._beat_at < LATE_S

    def start(self) -> None:
        """Beat for the first time, then in a thread. If the database is away, the next beat may reach it."""
        self._beat()
        self._thread = Thread(target=self._run, name="onetool-members", daemon=True)
        self._thread.start()

    def drain(self) -> None:
        """Tell the others that this process ends soon."""
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
        """Return the members as of the last beat, with this process. Never blocks."""
        return list(self._alive.values())

    def find(self, id: str) -> Replica | None:
        """Return the replica with this id. Asks the database once about an unknown id, so it may block."""
        if (known := self._alive.get(id)) is not None or id in self._unknown:
            return known
        try:
            rows = self._database.read(lambda work: work.execute(*_select(self._database, "AND id = %s", id)))
        except DatabaseError:
            return None
        if rows and (found := self._replica(rows[0][:-1])) is not None and found.is_known:
            return self._alive.setdefault(id, found)
        if len(self._unknown) < MAX_UNKNOWN:
            self._unknown.add(id)
        return None

    def known(self, id: str) -> Replica | None:
        """Return the replica with this id if it was a member at the last beat. Never blocks."""
        return self._alive.get(id)

    def is_alive(self, id: str) -> bool:
        """Return whether it was a member at the last beat. Never blocks."""
        return id in self._alive

    def is_oldest(self) -> bool:
        """Return whether no other member has served for longer: that one does what needs doing once. Never blocks."""
        oldest = min(self._alive.values(), key=lambda one: (one.since, one.id), default=None)
        return oldest is None or oldest.id == self.id

    def stranger(self, id: str) -> Replica | None:
        """Return the replica with this id if its row was not signed with our key at the last beat. Never blocks."""
        return self._strangers.get(id)

    def now(self) -> float:
        """Return the seconds since 1970 by the database's clock, which all replicas share.

        A step of this machine's clock doesn't change it, unless the database's clock is the same one.
        """
        if (offset := self._offset) is None or not self._database.is_shared:
            return self._database.now()
        return time.monotonic() + offset

    def on_beat(self, call: Callable[[], None]) -> None:
        """Call a function after each beat, in the thread of the heartbeat. The next beat waits for it."""
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
                now, rows = self._database.write(self._renew, max_wait=MAX_BEAT_S, apart=True)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next beat may go well
                if not self._is_away:
                    why = error if isinstance(error, DatabaseError) else f"{type(error).__name__}: {error}"
                    log.warning("no heartbeat, the other replicas are those of the last one: %s", why)
                self._is_away = True
                return
            self._beat_at = time.monotonic()
            if self._is_away:
                self._is_away, self._settled_at = False, self._beat_at + GRACE_S
            self._database.ahead = now - (began + time.time()) / 2
            found = [one for row in rows if (one := self._replica(row)) is not None]
            before = self._alive if self.is_settling else {}
            self._alive = before | {one.id: one for one in found if one.is_known}
            self._strangers = {one.id: one for one in found if not one.is_known}
            self._unknown.clear()
            for one in self._strangers.values():
                self._log_once(f"{other_key(one.id, one.address)}: {SAME_KEY}. Nothing is sent to it")
            for one in self._alive.values():
                if one.version != __version__:
                    problem = f"replica {one.id} at {one.address} has version {one.version} of OneTool"
                    self._log_once(f"{problem}, and this one has {__version__}", logging.WARNING)
            for pair in same_addresses(one for one in self._alive.values() if one.address == self._address):
                for other in pair if self._alive.get(self.id) in pair else ():
                    if other.id != self.id:
                        problem = f"replica {other.id} has the same address as this one, {other.address}: {OWN_ADDRESS}"
                        self._log_once(f"{problem}. Calls that are for it do not reach it")

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
        told = float(rows[0][-1]) if rows else now
        self._offset = told - time.monotonic() if rows and abs(told - now) < MAX_APART_S else None
        if expected is not None and self._offset is None:  # a machine that slept, say: the row has a wrong time
            return self._renew(work)
        return told, [row[:-1] for row in rows]

    def _replica(self, row: tuple[Any, ...]) -> Replica | None:
        """Return the replica of a row; None if a row is invalid, or has an address that can't be reached from here."""
        found = _replica(row, self._keys)
        if found is None or not found.is_known or found.id == self.id:
            return found
        if found.address.startswith(UNIX):  # only workers of one machine reach each other by Unix sockets
            is_valid = self._address.startswith(UNIX) and found.address.removeprefix(UNIX).isprintable()
        else:
            match = _ADDRESS.fullmatch(found.address)
            is_valid = match is not None and 0 < int(match[1]) < 65536
        return found if is_valid else None


def read_members(database: Database, *keys: bytes) -> list[Replica]:
    """Return the replicas that serve now. Without a key of the cluster, signatures are not checked.

    Raises DatabaseError.
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
