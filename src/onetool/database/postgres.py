"""PostgreSQL by psycopg: a pool of connections for threads, a breaker, and a listener.

When the database can't be reached, the breaker opens: calls fail at once instead of each waiting for a time-out. A
thread tries to connect meanwhile, and closes the breaker when it succeeds. psycopg is imported here alone, and this
module only where the config has a `database`.

`Listener` waits for NOTIFY on a connection of its own, in a thread, and calls those who want to know. Behind a pooler
notifications may get lost. So each is called every second, too, and looks for itself.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from os import dup
from socket import SHUT_RDWR, socket
from time import monotonic
from typing import Any, TypeVar

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict

from onetool.database.connection import (
    ChangeUnknownError,
    DatabaseAwayError,
    DatabaseError,
    Forget,
    Params,
    Row,
    Transaction,
)

log = logging.getLogger("onetool.database")

T = TypeVar("T")

MOST_CONNECTIONS = 16
CONNECT_S = 3  # seconds
STATEMENT_MS = 10_000
HANG_S = 2.0  # after the time that a statement may take, a server that says nothing is taken for dead
LOOK_S = 0.5  # between two looks for those
PROBE_S = 0.5  # between two tries to reach a database that is away
HOLDER_S = 60  # that a process may hold a lock without saying anything
IDLE_KEPT = 8  # connections that stay open while nobody uses them
CHANNEL = "onetool"  # of NOTIFY
EVERY_S = 1.0  # between two calls of those who listen, notified or not

_OPTIONS: dict[str, Any] = {
    "connect_timeout": CONNECT_S,
    "application_name": "onetool",
    # A pooler that gives each transaction another connection does not know statements that were prepared on one.
    "prepare_threshold": None,
    # A host that vanishes without a word is noticed within some seconds.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 8_000,
}


class Postgres:
    """`url` is a connection string. Nothing is connected before the first use.

    `prepare` is called with this before anything else, once, as soon as the database can be reached: it makes tables.
    """

    # With its schema, so that no function of that name in another schema, by search_path, tells the time.
    clock = "pg_catalog.date_part('epoch', pg_catalog.clock_timestamp())"

    def __init__(self, url: str, prepare: "Callable[[Postgres], object] | None" = None) -> None:
        self._url = url
        self._prepare = prepare
        self._preparing = threading.RLock()
        self._is_preparing = False
        self._idle: list[psycopg.Connection[Row]] = []
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._lock = threading.Lock()
        self._running: dict[psycopg.Connection[Row], float] = {}  # until when an answer is waited for
        self._is_watched = False
        self._is_away = False
        self._away_why = ""
        self._closed = threading.Event()
        self._listener: Listener | None = None

    def connect(self, **options: Any) -> "psycopg.Connection[Row]":
        """A connection of its own. Raises psycopg.Error."""
        return psycopg.connect(self._url, **{**_OPTIONS, **options})

    def read(self, job: Callable[[Transaction], T]) -> T:
        try:
            return self._run(job)
        except ChangeUnknownError:  # nothing was changed
            return self._run(job)

    def write(self, job: Callable[[Transaction], T]) -> T:
        return self._run(job)

    def on_change(self, topic: str, call: Callable[[str], None]) -> Forget:
        with self._lock:
            if self._listener is None:
                self._listener = Listener(self.connect)
            return self._listener.add(topic, call)

    def lock(self, name: str) -> "PostgresLock":
        return PostgresLock(self, name)

    @property
    def is_away(self) -> bool:
        return self._is_away

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            listener, self._listener = self._listener, None
            idle, self._idle = self._idle, []
        if listener is not None:
            listener.close()
        for connection in idle:
            connection.close()

    # How it is done

    def _run(self, job: Callable[[Transaction], T]) -> T:
        if self._is_away:
            raise DatabaseAwayError(self._away_why)
        if self._prepare is not None:
            self._prepare_once()
        if not self._places.acquire(timeout=CONNECT_S):
            raise DatabaseAwayError("all of its connections are in use")
        try:
            return self._try(job)
        except psycopg.Error as error:
            raise DatabaseError(f"the database refused this: {_short(error)}") from error
        finally:
            self._places.release()

    def _prepare_once(self) -> None:
        """Others wait meanwhile. What it does itself comes by here, too, and goes on."""
        with self._preparing:
            if self._prepare is None or self._is_preparing:
                return
            self._is_preparing = True
            try:
                self._prepare(self)
                self._prepare = None
            finally:
                self._is_preparing = False

    def _try(self, job: Callable[[Transaction], T]) -> T:
        """An idle connection may have been lost since it was used last: then once more, with a new one."""
        connection = self._take()
        is_new = connection is None
        if connection is None:
            connection = self._new()
        try:
            return self._once(connection, job)
        except _LostConnection as lost:
            if lost.is_committing:
                raise ChangeUnknownError from lost.__cause__
            if is_new:
                self._open_breaker(lost)
                raise DatabaseAwayError(self._away_why) from lost.__cause__
        self._drop_idle()  # the others are as old
        try:
            return self._once(self._new(), job)
        except _LostConnection as lost:
            if lost.is_committing:
                raise ChangeUnknownError from lost.__cause__
            self._open_breaker(lost)
            raise DatabaseAwayError(self._away_why) from lost.__cause__

    def _once(self, connection: "psycopg.Connection[Row]", job: Callable[[Transaction], T]) -> T:
        def waits(seconds: float) -> None:
            self._running[connection] = monotonic() + seconds + HANG_S

        waits(STATEMENT_MS / 1000)
        try:
            return self._run_job(connection, PostgresTransaction(connection, waits), job)
        finally:
            self._running.pop(connection, None)

    def _run_job(
        self, connection: "psycopg.Connection[Row]", work: "PostgresTransaction", job: Callable[[Transaction], T]
    ) -> T:
        is_committing = False
        try:
            result = job(work)
            is_committing = connection.info.transaction_status != pq.TransactionStatus.IDLE
            connection.commit()
        except BaseException as error:
            if isinstance(error, psycopg.Error) and _is_lost(connection, error):
                connection.close()
                raise _LostConnection(error, is_committing) from error
            with suppress(psycopg.Error):
                connection.rollback()
            self._give_back(connection)
            raise
        self._give_back(connection)
        return result

    def _new(self) -> "psycopg.Connection[Row]":
        with self._lock:
            if not self._is_watched and not self._closed.is_set():
                self._is_watched = True
                threading.Thread(target=self._end_hanging, name="onetool-database", daemon=True).start()
        connection: psycopg.Connection[Row] | None = None
        try:
            connection = self.connect()
            with connection.transaction():
                for limit in ("statement_timeout", "idle_in_transaction_session_timeout"):
                    connection.execute("SELECT set_config(%s, %s, false)", (limit, str(STATEMENT_MS)))
        except psycopg.OperationalError as error:
            if connection is not None:
                connection.close()
            if _is_full(error):  # the connections that are there are good
                raise DatabaseAwayError(_short(error)) from error
            self._open_breaker(error)
            raise DatabaseAwayError(self._away_why) from error
        return connection

    def _take(self) -> "psycopg.Connection[Row] | None":
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _give_back(self, connection: "psycopg.Connection[Row]") -> None:
        with self._lock:
            if not (connection.closed or self._closed.is_set()) and len(self._idle) < IDLE_KEPT:
                self._idle.append(connection)
                return
        connection.close()

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _end_hanging(self) -> None:
        """In a thread: break connections whose server is there and says nothing. Who waits for one finds it lost."""
        while not self._closed.wait(LOOK_S):
            now = monotonic()
            for connection, until in tuple(self._running.items()):
                if now > until:
                    with suppress(OSError, psycopg.Error), socket(fileno=dup(connection.fileno())) as wire:
                        wire.shutdown(SHUT_RDWR)

    # The breaker

    def _open_breaker(self, error: Exception) -> None:
        with self._lock:
            if self._is_away or self._closed.is_set():
                return
            self._is_away, self._away_why = True, _short(error)
        log.error("the database can't be reached: %s; it is tried again all the time", self._away_why)
        self._drop_idle()
        threading.Thread(target=self._probe, name="onetool-database", daemon=True).start()

    def _probe(self) -> None:
        while not self._closed.wait(PROBE_S):
            try:
                with self.connect() as connection:
                    connection.execute("SELECT 1")
            except psycopg.Error as error:
                self._away_why = _short(error)
            else:
                self._is_away = False
                log.warning("the database is back")
                return


def is_url(url: str) -> bool:
    """Whether it can be understood. What is wrong with it is not told: the message would quote it."""
    try:
        found = conninfo_to_dict(url)
    except psycopg.Error:
        return False
    return "@" not in str(found.get("host") or "")  # else a part of a password is taken for the host, and told


class PostgresTransaction:
    def __init__(self, connection: "psycopg.Connection[Row]", waits: Callable[[float], None]) -> None:
        """`waits` is called before each statement, with the seconds that it may take."""
        self._cursor = connection.cursor()
        self._waits = waits
        self._allowed = STATEMENT_MS / 1000

    def allow(self, seconds: int) -> None:
        self._allowed = float(seconds)
        self.execute("SELECT set_config('statement_timeout', %s, true)", (f"{seconds}s",))

    def execute(self, sql: str, params: Params = ()) -> list[Row]:
        self._waits(self._allowed)
        self._cursor.execute(sql.encode(), params or None)
        return self._cursor.fetchall() if self._cursor.description is not None else []

    def execute_many(self, sql: str, rows: Sequence[Params]) -> None:
        self._waits(self._allowed)
        self._cursor.executemany(sql.encode(), rows)

    @property
    def row_count(self) -> int:
        return self._cursor.rowcount

    def notify(self, topic: str, detail: str = "") -> None:
        self._cursor.execute("SELECT pg_notify(%s, %s)", (CHANNEL, f"{topic} {detail}"))


class PostgresLock:
    """An advisory lock in a transaction of its own, so that it works behind a pooler, too.

    A process that does not answer for `HOLDER_S` loses it, and `check` tells.
    """

    def __init__(self, database: "Postgres", name: str) -> None:
        self._database, self._name = database, name
        self._connection: psycopg.Connection[Row] | None = None
        self._is_held = self._is_over = False

    def take(self) -> bool:
        if not self._is_held:
            # Of two schemas of one database each has locks of its own.
            sql = "SELECT pg_try_advisory_xact_lock(hashtextextended(current_schema() || %s, 0))"
            self._is_held = bool(self._ask(sql, (self._name,))[0][0])
        return self._is_held

    def check(self) -> None:
        self._ask("SELECT 1")

    def release(self) -> None:
        self._is_over = True  # a thread may be about to take it
        self._disconnect()

    def _ask(self, sql: str, params: Params = ()) -> list[Row]:
        try:
            if self._connection is None:
                if self._is_held or self._database.is_away:
                    raise DatabaseAwayError
                self._connection = self._database.connect()
                limits = ("idle_in_transaction_session_timeout", "statement_timeout")
                for limit, seconds in zip(limits, (HOLDER_S, CONNECT_S), strict=True):
                    self._connection.execute("SELECT set_config(%s, %s, true)", (limit, f"{seconds}s"))
            return self._connection.execute(sql.encode(), params or None).fetchall()
        except psycopg.Error as error:
            self._disconnect()
            raise DatabaseAwayError(_short(error)) from error
        finally:
            if self._is_over:
                self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class Listener:
    def __init__(self, connect: Callable[..., psycopg.Connection[Any]]) -> None:
        self._connect = connect
        self._calls: dict[object, tuple[str, Callable[[str], None]]] = {}
        self._connection: psycopg.Connection[Any] | None = None
        self._changing = threading.Lock()
        self._closed = threading.Event()
        self._is_lost = False
        self._thread = threading.Thread(target=self._keep, name="onetool-listen", daemon=True)
        self._thread.start()

    def add(self, topic: str, call: Callable[[str], None]) -> Callable[[], None]:
        """Returns a function that removes it."""
        key = object()
        with self._changing:
            self._calls = {**self._calls, key: (topic, call)}
        return lambda: self._remove(key)

    def close(self) -> None:
        self._closed.set()
        if (connection := self._connection) is not None:
            # It waits for what comes: the end of what it reads from wakes it up.
            with suppress(Exception), socket(fileno=dup(connection.fileno())) as reading:
                reading.shutdown(SHUT_RDWR)
        self._thread.join(2 * EVERY_S)

    def _remove(self, key: object) -> None:
        with self._changing:
            self._calls = {one: call for one, call in self._calls.items() if one is not key}

    def _keep(self) -> None:
        while not self._closed.is_set():
            try:
                with self._connect(autocommit=True) as connection:
                    self._connection = connection
                    connection.execute(f"LISTEN {CHANNEL}")
                    self._is_lost = False
                    self._tell(None, "")
                    self._wait(connection)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next try may succeed
                if not (self._is_lost or self._closed.is_set()):
                    log.warning("changes in the database are looked for each second: %s", error)
                self._is_lost = True
                self._tell(None, "")
                self._closed.wait(EVERY_S)

    def _wait(self, connection: psycopg.Connection[Any]) -> None:
        look_at = monotonic() + EVERY_S
        while not self._closed.is_set():
            # All that has come: what is not taken of a packet is lost.
            for found in connection.notifies(timeout=max(0.0, look_at - monotonic()), stop_after=1):
                topic, _, detail = found.payload.partition(" ")
                self._tell(topic, detail)
            if monotonic() >= look_at:
                look_at = monotonic() + EVERY_S
                self._tell(None, "")

    def _tell(self, topic: str | None, detail: str) -> None:
        for wanted, call in self._calls.values():
            if topic is None or wanted == topic:
                try:
                    call(detail)
                except Exception as error:  # noqa: BLE001 - one who fails must not keep the others from knowing
                    log.warning("a change in the database could not be followed: %s: %s", type(error).__name__, error)


class _LostConnection(Exception):  # noqa: N818 - control flow: the caller decides what it means
    def __init__(self, error: Exception, is_committing: bool) -> None:
        super().__init__(str(error))
        self.is_committing = is_committing


def _is_lost(connection: "psycopg.Connection[Row]", error: psycopg.Error) -> bool:
    """Whether it is the connection that failed, and not the statement."""
    # 57P01 to 57P03: the server is being stopped, has crashed, or starts.
    return connection.broken or connection.closed or (error.sqlstate or "").startswith("57P0")


def _is_full(error: psycopg.Error) -> bool:
    """Whether the server takes no more connections. It says so before there is a connection that has a code."""
    return "too many clients" in str(error) or "too many connections" in str(error) or "connection slots" in str(error)


def _short(error: Exception) -> str:
    """The first line of what PostgreSQL says; the address that stands in some of its messages has no password."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
