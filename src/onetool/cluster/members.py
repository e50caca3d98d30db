"""`Members`: the serving processes. Each has a row, which a thread renews every second by the database's clock.

A replica counts as gone if its row was not renewed for GONE_S seconds. While the database is unavailable, the members
stay those of the last heartbeat. They are kept for another GRACE_S, because the replicas reconnect to the database one
after the other.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from secrets import token_hex
from threading import Event, Lock, Thread
from typing import Any, Literal

from onetool._version import __version__
from onetool.cluster import SAME_KEY, ClusterSettings, Replica, key_number, other_key
from onetool.database import Database, DatabaseError, Transaction

log = logging.getLogger("onetool.cluster")
BEAT_S = 1.0
MAX_BEAT_S = 2.0  # for the database to answer a statement of a heartbeat
LATE_S = 3.0  # without a heartbeat, after which the database counts as unavailable
GONE_S = 5.0
LOST_S = 30.0  # without a heartbeat, after which the calls of a process count as lost
GRACE_S = 3.0  # after the database is back, for the others to reach it, too
FORGOTTEN_S = 3600.0  # after which the row of a killed process is deleted
FORGET_S = 600.0  # between two searches for such rows
MAX_LOGGED = 100  # replicas with problems: anyone with write access to the database can add rows
CLOSE_S = 2.0

_COLUMNS = "id, place, version, since, is_draining, seen_at, key_number, catalogue"

Fate = Literal["alive", "silent", "gone"]
"""Whether a process has heartbeats. A silent one may come back; one that is gone has ended, or counts as ended."""


class Members:
    """The replicas of a cluster. `start` adds this process. All methods may be called from any thread."""

    def __init__(self, settings: ClusterSettings, id: str | None = None) -> None:
        self.id = id or token_hex(4)
        self._database = settings.database
        self._place = settings.place
        self._keys = [key_number(key) for key in settings.keys]
        self.catalogue = ""  # signed digests of what all replicas should have in common
        self.has_messages = False  # for this process, at the last heartbeat
        self._is_draining = False
        self._alive: dict[str, Replica] = {}
        self._logged: set[str] = set()
        self._calls: list[Callable[[], None]] = []
        self._ended = Event()
        self._lock = Lock()  # one heartbeat at a time
        self._thread: Thread | None = None
        self._is_away = False
        self._beat_at = time.monotonic()
        self._settled_at = 0.0
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

    def fate(self, id: str) -> Fate:
        """Ask the database about a process. So it may block, and raises DatabaseError."""
        sql = f"SELECT {self._database.clock} - seen_at FROM replicas WHERE id = %s"  # noqa: S608 - ours
        rows = self._database.read(lambda work: work.execute(sql, (id,)))
        age = float(rows[0][0]) if rows else LOST_S
        return "alive" if age < GONE_S else "silent" if age < LOST_S else "gone"

    def is_alive(self, id: str) -> bool:
        """Return whether the replica was a member at the last heartbeat. Never blocks."""
        return id in self._alive

    def is_oldest(self) -> bool:
        """Return whether this member has served longest: it does the work that only one member may do. Never blocks."""
        oldest = min(self._alive.values(), key=lambda replica: (replica.since, replica.id), default=None)
        return oldest is None or oldest.id == self.id

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
            replicas = [replica for row in rows if (replica := _replica(row, self._keys)) is not None]
            before = self._alive if self.is_settling else {}
            self._alive = before | {replica.id: replica for replica in replicas if replica.is_known}
            for replica in replicas:
                if not replica.is_known:
                    self._log_once(f"{other_key(replica.id, replica.place)}: {SAME_KEY}. Nothing is sent to it")
            for replica in self._alive.values():
                if replica.version != __version__:
                    problem = f"replica {replica.id} at {replica.place} has version {replica.version} of OneTool"
                    self._log_once(f"{problem}, and this one has {__version__}", logging.WARNING)

    def _log_once(self, message: str, level: int = logging.ERROR) -> None:
        if message not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add(message)
            log.log(level, "%s", message)

    def _renew(self, work: Transaction) -> tuple[float, list[tuple[Any, ...]]]:
        clock = self._database.clock
        work.execute(
            "INSERT INTO replicas (id, place, version, since, seen_at, is_draining, key_number, catalogue) "  # noqa: S608
            f"VALUES (%s, %s, %s, {clock}, {clock}, %s, %s, %s) ON CONFLICT (id) DO UPDATE SET "
            "seen_at = excluded.seen_at, is_draining = excluded.is_draining, catalogue = excluded.catalogue",
            (self.id, self._place, __version__, self._is_draining, self._keys[0], self.catalogue),
        )
        if self.is_oldest() and time.monotonic() >= self._forget_at:
            self._forget_at = time.monotonic() + FORGET_S
            forgotten = f"DELETE FROM replicas WHERE seen_at < {clock} - %s OR seen_at > {clock} + %s"  # noqa: S608
            work.execute(forgotten, (FORGOTTEN_S, FORGOTTEN_S))
        rows = work.execute(*_select(self._database, self.id))
        self.has_messages = bool(rows and rows[0][-2])
        return float(rows[0][-1]) if rows else self._database.now(), [row[:-2] for row in rows]


def read_members(database: Database, *keys: bytes) -> list[Replica]:
    """Return the serving replicas. Without a cluster key, all of them are known.

    Raise DatabaseError if the database can't be read.
    """
    numbers = [key_number(key) for key in keys]
    rows = database.read(lambda work: work.execute(*_select(database)))
    return [found for row in rows if (found := _replica(row[:-2], numbers)) is not None]


def _select(database: Database, receiver: str = "") -> tuple[str, tuple[Any, ...]]:
    """Return a statement for the members, each with whether there are messages for the receiver, and the time."""
    clock = database.clock
    text = (
        f"SELECT {_COLUMNS}, EXISTS (SELECT 1 FROM messages WHERE receiver = %s AND outcome IS NULL), {clock} "  # noqa: S608
        f"FROM replicas WHERE seen_at > {clock} - %s AND seen_at < {clock} + %s ORDER BY since, id"
    )
    return text, (receiver, GONE_S, GONE_S)


def _replica(row: tuple[Any, ...], keys: Sequence[str]) -> Replica | None:
    """Return the replica of a row; None if the row is invalid."""
    id, place, version, since, is_draining, seen_at, number, catalogue = row
    try:
        found = Replica(
            *(str(id), str(place), str(version), float(since), bool(is_draining)),
            is_known=not keys or str(number) in keys,
            seen_at=float(seen_at),
            catalogue=str(catalogue),
        )
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found.since) else None
