"""The database of the config: opened when first needed, and kept across reloads that don't change it."""

import logging
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Literal

from onetool.core.errors import ConfigError, Mistake
from onetool.core.state_folders import STATE_FILE
from onetool.database.connection import DatabaseError, NewerDatabaseError, OlderReplicasError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onetool.ask.sessions import SessionStore
    from onetool.config import Config
    from onetool.config.find import Found
    from onetool.database import Database
    from onetool.database.shared_rates import SharedWindows
    from onetool.database.sqlite import SqliteDatabase

FOLDER = "database"
SCHEMES = ("postgresql://", "postgres://")
Tables = Literal["made", "required", "any"]
"""The treatment of missing tables at the first use: created, or an error; "any" doesn't check them."""

log = logging.getLogger("onetool.database")


class AppDatabase:
    """The databases of an app. Missing PostgreSQL tables are an error, unless `makes_tables` is set."""

    def __init__(self, config: "Config", *, makes_tables: bool = False) -> None:
        self._config = config
        self._tables: Tables = "made" if makes_tables else "required"
        self._lock = Lock()
        self._opened: Database | None = None
        self._state: SqliteDatabase | None = None
        self._windows: dict[Database, SharedWindows] = {}
        self._replicas: Callable[[], int] = lambda: 1
        self._shares_rates = False

    def get(self) -> "Database | None":
        """Return the database of the config; None if it has none. It may be unreachable. Raises ConfigError."""
        if self._config.database is None:
            return None
        with self._lock:
            if self._opened is None:
                self._opened = open_database(self._config, self._tables)
            return self._opened

    def state(self) -> "Database":
        """Return the database of all stores: the config's database, else `state.db` in the state folder."""
        if (shared := self.get()) is not None:
            return shared
        return self._state_file()

    def _state_file(self) -> "SqliteDatabase":
        with self._lock:
            if self._state is None:
                self._state = open_state_file(self._config)
            return self._state

    def require_file(self) -> None:
        """Raise DatabaseError if `state.db` exists and can't be read.

        PostgreSQL may be unreachable at first. Raise DatabaseError if this version can't use its tables.
        """
        if (database := self.get()) is not None:
            try:
                database.read(lambda _work: None)
            except DatabaseError as error:
                if isinstance(error, NewerDatabaseError | OlderReplicasError):
                    raise
            return  # servers wait for a database that is away
        if not os.path.lexists(state_file(self._config)):
            return
        state = self._state_file()
        state.require()
        state.stamp()  # keeps a connection open, so that no other process can lock the file exclusively

    def rates(self) -> "SharedWindows | None":
        """Return the rate windows of requests and sign-ins; None if no other process shares them."""
        database = self.state() if self._shares_rates else self.get()
        return None if database is None else self._windows_in(database)

    def tool_rates(self) -> "SharedWindows":
        """Return the rate windows of limited tools, which commands share."""
        return self._windows_in(self.state())

    def _windows_in(self, database: "Database") -> "SharedWindows":
        from onetool.database.shared_rates import SharedWindows

        with self._lock:
            if database not in self._windows:
                self._windows[database] = SharedWindows(database, lambda: self._replicas())
            return self._windows[database]

    def share_rates(self, replicas: "Callable[[], int]") -> None:
        """Count requests in the database of all stores. Divide rates by `replicas` while it is unavailable."""
        self._replicas, self._shares_rates = replicas, True

    def set_config(self, config: "Config") -> None:
        before, self._config = self._config, config
        if (before.database, before.home) != (config.database, config.home):
            self.close()

    def close(self) -> None:
        with self._lock:
            opened = [one for one in (self._opened, self._state) if one is not None]
            self._opened = self._state = None
            self._windows.clear()
        for one in opened:
            one.close()


def cache_folder(config: "Config") -> Path:
    """Return this machine's cache folder for the database. It can be deleted at any time."""
    from hashlib import sha256
    from urllib.parse import urlsplit

    try:
        place = urlsplit(str(config.database))
        text = f"{place.netloc.rpartition('@')[2]}{place.path}?{place.query}"  # without the password, which may change
    except ValueError:  # opening it reports the error
        text = str(config.database)
    return config.home / FOLDER / sha256(text.encode()).hexdigest()[:16]


@contextmanager
def open_state(config: "Config") -> "Iterator[Database]":
    """Open the database of all stores for a command. Raises ConfigError if it can't be used."""
    opened = AppDatabase(config)
    try:
        yield opened.state()
    finally:
        opened.close()


def open_state_file(config: "Config") -> "SqliteDatabase":
    from onetool.database.sqlite import SqliteDatabase

    return SqliteDatabase(state_file(config), makes_folder=True)


def state_file(config: "Config") -> Path:
    return config.home / STATE_FILE


def open_database(config: "Config", tables: Tables = "any") -> "Database":
    """Open the database of a config that has one, without connecting.

    Raises ConfigError, whose message doesn't quote the address, because it may contain a password.
    """
    url = str(config.database)
    if not url.startswith(SCHEMES):
        raise _mistake(
            config, "database must be the address of a PostgreSQL database", "write postgresql://user@host/name"
        )
    try:
        from onetool.database.migrations import require_tables
        from onetool.database.postgres import MAX_CONNECTIONS, Postgres, is_url
    except ImportError:
        message = "a database needs the packages psycopg and psycopg_pool"
        raise _mistake(config, message, "pip install 'psycopg[binary,pool]'") from None
    if not is_url(url):
        hint = "write postgresql://user:password@host:5432/name, with %40 for @ and %2F for / in a password"
        raise _mistake(config, "PostgreSQL can't parse the address of the database", hint)
    prepare = {"made": _make_tables, "required": require_tables, "any": None}[tables]
    most = MAX_CONNECTIONS if config.cluster is None else config.cluster.connections
    return Postgres(url, prepare, most)


def _make_tables(database: "Database") -> None:
    from onetool.database.migrations import migrate

    if done := migrate(database):
        log.warning("created missing tables of the database: %s", ", ".join(done))


def _mistake(config: "Config", message: str, hint: str) -> ConfigError:
    file = str(config.path) if config.path else None
    return ConfigError([Mistake(message=message, file=file, key="database", hint=hint)])


DATABASE_WORDS = (b"database", b"include")  # a config without these has no database


def open_sessions(found: "Found") -> "tuple[SessionStore, Callable[[], None]]":
    """Open the conversations for a command, and return how to close them. Reads the config only if it may name a
    database: otherwise, only the place of the state is needed. Raises ConfigError.
    """
    from onetool.ask.sessions import SessionStore
    from onetool.config import load_config
    from onetool.config.find import state_home
    from onetool.core.principal import lasting_owners
    from onetool.database.sqlite import SqliteDatabase

    has_database = found.config is not None
    with suppress(OSError):  # `load_config` reports why
        text = found.config.read_bytes() if found.config else b""
        has_database = any(word in text for word in DATABASE_WORDS)
    if has_database:
        database = AppDatabase(load_config(found)).state()
    else:
        database = SqliteDatabase(state_home(found.config, os.environ) / STATE_FILE, makes_folder=True)
    return SessionStore(database, owners=lasting_owners()), database.close
