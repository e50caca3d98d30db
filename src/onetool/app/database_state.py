"""The state of a config's database: whether it can be reached, and its tables. Creates no tables."""

import re
from collections.abc import Iterable, Iterator
from contextlib import closing

import msgspec

from onetool.app.database import open_database, open_state_file
from onetool.config import Config
from onetool.core.errors import ConfigError, Mistake
from onetool.database import Database, Transaction
from onetool.database.connection import DatabaseAwayError, DatabaseError
from onetool.database.migrations import missing, tables
from onetool.database.sqlite import SqliteDatabase

_ADVICE = {  # how to fix an error, by a pattern in its message
    "password authentication failed": "check the user and the password in the address",
    "no password supplied": "the address has no password: postgresql://user:password@host/name",
    "no pg_hba.conf entry": "the server refuses connections from here: allow this machine, user and database "
    "in its pg_hba.conf; if it requires TLS, add ?sslmode=require to the address",
    'role "[^"]*" does not exist': "check the user in the address, or create it: CREATE ROLE name LOGIN PASSWORD '…'",
    'database "[^"]*" does not exist': "check the name in the address, or create it: createdb name",
    "resolve host|translate host name": "check the host in the address: the name can't be resolved",
    "connection refused": "check the host and the port in the address, and whether PostgreSQL runs there",
    "timeout": "no answer: check the host and the port in the address, and firewalls on the way",
    "slots are reserved|too many": "the server has too many connections: raise max_connections, or use a pooler",
    "ssl": "check sslmode in the address",
    "permission denied for database": "the role may not connect. As the owner: GRANT CONNECT ON DATABASE name TO role",
    "permission denied for schema": "the role may not create tables here. As the owner: GRANT USAGE, CREATE ON SCHEMA "
    "public TO role; or run `onetool db init` once as a role that may",
    "permission denied": "the role lacks rights. As the owner of the tables: GRANT SELECT, INSERT, UPDATE, DELETE ON "
    "ALL TABLES IN SCHEMA public TO role; GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO role",
    "no schema has been selected": "no schema in the search_path of the role exists: create one, or change the path",
    "read-only transaction": "this server is read-only: use the address of the primary",
}


class DatabaseState(msgspec.Struct, frozen=True):
    """The version of the PostgreSQL server, the number of our tables, and the missing migrations."""

    server: str
    tables: int
    missing: tuple[str, ...]


class FileState(msgspec.Struct, frozen=True):
    """The state of `state.db`. `bytes` includes its log; `schema` is the number of the last migration."""

    file: str
    exists: bool
    bytes: int
    schema: int


def file_state(database: Database) -> FileState:
    """Return the state of a SQLite database. Raises DatabaseError."""
    assert isinstance(database, SqliteDatabase)  # noqa: S101 - configs without `database` use SQLite
    schema = database.read(lambda work: work.execute("SELECT max(number) FROM onetool_migrations")[0][0])
    exists = database.file.exists()
    return FileState(str(database.file), exists, database.size, schema)


def database_state(database: Database) -> DatabaseState:
    """Return the state of a PostgreSQL database. Raises DatabaseError."""

    def job(work: Transaction) -> tuple[str, int]:
        version = work.execute("SHOW server_version")[0][0]
        found = [name for name in tables() if work.execute("SELECT to_regclass(%s)", (name,))[0][0] is not None]
        return str(version).partition(" ")[0], len(found)

    server, count = database.read(job)
    return DatabaseState(server, count, tuple(missing(database)))


def explain(error: DatabaseError) -> tuple[str, str | None]:
    """Return a description of the error, quoting PostgreSQL but not the password, and how to fix it.

    Messages about a SQLite file include the fix.
    """
    cause = error.__cause__
    if type(cause).__module__.startswith("psycopg"):
        text = str(cause)
    elif isinstance(error, DatabaseAwayError) and cause is None:
        text = error.why
    else:
        return error.full_text, None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    tries = [line.removeprefix("- ") for line in lines if line.startswith("- ")]  # a name may have several addresses
    why = next(iter([*tries, *lines]), type(error).__name__)
    advice = next((hint for part, hint in _ADVICE.items() if re.search(part, why, re.IGNORECASE)), None)
    if isinstance(error, DatabaseAwayError):
        return f"the database can't be reached: {why[:300]}", advice or "check the address in `database` of the config"
    return f"the database refused this: {why[:300]}", advice


def database_mistakes(config: Config) -> list[Mistake]:
    """Return the problems with the database, or with `state.db`, for `onetool check`."""
    if config.database is None:
        return list(_file_mistakes(config))
    try:
        state = read_state(config)
    except ConfigError as error:
        return list(error.mistakes)
    except DatabaseError as error:
        message, hint = explain(error)
        return [config_mistake(config, message, hint, "error")]
    if state.tables == 0:
        return [config_mistake(config, "the database has no tables: run `onetool db init`", None, "warning")]
    if state.missing:
        message = f"tables are missing in the database: {', '.join(state.missing)}"
        return [config_mistake(config, message, "onetool db migrate", "warning")]
    return []


def is_reached(config: Config, mistakes: Iterable[Mistake]) -> bool:
    """Return whether the config has a database that was reached, judged by the result of `database_mistakes`."""
    return config.database is not None and not any(
        one.key == "database" and one.severity == "error" for one in mistakes
    )


def read_state(config: Config) -> DatabaseState:
    """Return the database's state, over a new connection. Raises ConfigError and DatabaseError."""
    with closing(open_database(config)) as database:
        return database_state(database)


def _file_mistakes(config: Config) -> Iterator[Mistake]:
    state = open_state_file(config)
    try:
        state.require()
    except DatabaseError as error:
        yield Mistake(message=error.full_text, key="database")
    finally:
        state.close()


def config_mistake(config: Config, message: str, hint: str | None, severity: str, key: str = "database") -> Mistake:
    file = str(config.path) if config.path else None
    return Mistake(message=message, file=file, key=key, hint=hint, severity=severity)
