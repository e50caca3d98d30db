"""How the database of a config is: whether it can be reached, its tables, what is in it, and who uses it now.

It changes nothing: no table is made for it.
"""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import msgspec

from onetool.core.errors import ConfigError, Mistake
from onetool.core.text import utc_text
from onetool.database.connection import DatabaseAwayError, DatabaseError

if TYPE_CHECKING:
    from onetool.config import Config
    from onetool.database import Database, Transaction

MOST_TOLD = 20  # replicas with another key: anybody who writes the database can add rows
T = TypeVar("T")

_ADVICE = {  # a pattern in what PostgreSQL says -> what to do
    "password authentication failed": "check the user and the password in the address",
    "no password supplied": "the address has no password: postgresql://user:password@host/name",
    "no pg_hba.conf entry": "the server lets nobody in from here: allow this machine, user and database in its "
    "pg_hba.conf; if it wants TLS, add ?sslmode=require to the address",
    'role "[^"]*" does not exist': "check the user in the address, or create it: CREATE ROLE name LOGIN PASSWORD '…'",
    'database "[^"]*" does not exist': "check the name in the address, or create it: createdb name",
    "resolve host|translate host name": "check the host in the address: no machine is known by this name",
    "connection refused": "check the host and the port in the address, and whether PostgreSQL runs there",
    "timeout": "nobody answers: check the host and the port in the address, and firewalls on the way",
    "slots are reserved|too many": "it has too many connections: raise max_connections, or put a pooler before it",
    "ssl": "check sslmode in the address",
    "permission denied for database": "the role may not connect. As the owner: GRANT CONNECT ON DATABASE name TO role",
    "permission denied for schema": "the role may not make tables here. As their owner: GRANT USAGE, CREATE ON SCHEMA "
    "public TO role; or run `onetool db init` once as a role that may",
    "permission denied": "the role lacks rights. As the owner of the tables: GRANT SELECT, INSERT, UPDATE, DELETE ON "
    "ALL TABLES IN SCHEMA public TO role; GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO role",
    "no schema has been selected": "the search_path of the role names no schema that is there: create it, or change it",
    "read-only transaction": "this server takes no changes: name the primary one in the address",
}


class ReplicaRow(msgspec.Struct, frozen=True):
    """A replica that gives signs of life. `has_other_key`: its row is not signed with our `cluster.key`.
    `same_address` is the id of another one that says that it is reached at this address.
    """

    id: str
    address: str
    version: str
    since: str
    is_draining: bool
    has_other_key: bool = False
    same_address: str | None = None


class DatabaseState(msgspec.Struct, frozen=True):
    """`server` is the version of PostgreSQL; `tables` how many of ours there are; `missing` are migrations."""

    server: str
    tables: int
    missing: tuple[str, ...]
    replicas: tuple[ReplicaRow, ...]


class FileState(msgspec.Struct, frozen=True):
    """The state of `state.db`. `bytes` includes its log; `schema` is the number of the last migration."""

    file: str
    exists: bool
    bytes: int
    schema: int
    is_read_only: bool
    was_damaged: bool


def file_state(database: "Database") -> FileState:
    """Return the state of a SQLite file. Raises DatabaseError."""
    from onetool.database.sqlite import SqliteDatabase

    assert isinstance(database, SqliteDatabase)  # noqa: S101 - of a config without a database
    was_damaged = database.has_lost  # opens it
    schema = database.read(lambda work: work.execute("SELECT max(number) FROM onetool_migrations")[0][0])
    exists = database.file.exists()
    return FileState(str(database.file), exists, database.size, schema, database.is_read_only, was_damaged)


def database_state(database: "Database", config: "Config") -> DatabaseState:
    """Raises DatabaseError."""
    from onetool.database.migrations import missing, tables

    def job(work: "Transaction") -> tuple[str, int]:
        version = work.execute("SHOW server_version")[0][0]
        found = [name for name in tables() if work.execute("SELECT to_regclass(%s)", (name,))[0][0] is not None]
        return str(version).partition(" ")[0], len(found)

    server, count = database.read(job)
    lacks = tuple(missing(database))
    return DatabaseState(server, count, lacks, () if lacks else alive_replicas(database, config))


def alive_replicas(database: "Database", config: "Config") -> tuple[ReplicaRow, ...]:
    from onetool.cluster import same_addresses
    from onetool.cluster.members import read_members

    key = None if config.cluster is None or not config.cluster.has_key else config.cluster.key.encode()
    found = read_members(database, key)
    same = {newer.id: older.id for older, newer in same_addresses(found)}
    return tuple(
        ReplicaRow(
            *(one.id, one.address, one.version, utc_text(one.since), one.is_draining, not one.is_known),
            same_address=same.get(one.id),
        )
        for one in found
    )


def server_holders(config: "Config") -> dict[str, ReplicaRow]:
    """Which replica runs which of the MCP servers that they share. Raises ConfigError and DatabaseError."""
    from onetool.sources.mcp_servers.shared import is_shared, lease_name

    holders = dict(_read(config, lambda database: _lease_holders(database, config)))
    leases = {name: lease_name(name, one) for name, one in config.servers.items() if is_shared(one)}
    return {name: holders[lease] for name, lease in leases.items() if lease in holders}


def _lease_holders(database: "Database", config: "Config") -> list[tuple[str, ReplicaRow]]:
    """The leases of MCP servers, and which replica holds each."""
    from onetool.cluster.leases import SERVERS

    sql = f"SELECT name, replica FROM leases WHERE name LIKE %s AND until > {database.clock}"  # noqa: S608 - ours
    rows = database.read(lambda work: work.execute(sql, (f"{SERVERS}%",)))
    alive = {one.id: one for one in alive_replicas(database, config)} if rows else {}
    return [(name.removeprefix(SERVERS), alive[id]) for name, id in rows if id in alive]


def explain(error: DatabaseError) -> tuple[str, str | None]:
    """Return what is wrong, in PostgreSQL's words, and what to do about it. Neither has the address with its password.

    Messages about a SQLite file say what to do themselves.
    """
    cause = error.__cause__
    if type(cause).__module__.startswith("psycopg"):
        text = str(cause)
    elif isinstance(error, DatabaseAwayError) and cause is None:
        text = error.why
    else:
        return str(error), None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    tries = [line.removeprefix("- ") for line in lines if line.startswith("- ")]  # a name may have several addresses
    why = next(iter([*tries, *lines]), type(error).__name__)
    advice = next((hint for part, hint in _ADVICE.items() if re.search(part, why, re.IGNORECASE)), None)
    if isinstance(error, DatabaseAwayError):
        return f"the database can't be reached: {why[:300]}", advice or "check the address in `database` of the config"
    return f"the database refused this: {why[:300]}", advice


def database_mistakes(config: "Config") -> list[Mistake]:
    """Return what `onetool check` says of the database of the config, or of `state.db`."""
    if config.database is None:
        return list(_file_mistakes(config))
    try:
        return _read(config, lambda database: list(_mistakes(config, database)))
    except ConfigError as error:
        return list(error.mistakes)
    except DatabaseError as error:
        message, hint = explain(error)
        return [_mistake(config, message, hint, "error")]


def read_state(config: "Config") -> DatabaseState:
    """The state, over a connection of its own. Raises ConfigError and DatabaseError."""
    return _read(config, lambda database: database_state(database, config))


def _read(config: "Config", read: "Callable[[Database], T]") -> T:
    from onetool.app.database import open_database

    database = open_database(config)
    try:
        return read(database)
    finally:
        database.close()


def _mistakes(config: "Config", database: "Database") -> Iterator[Mistake]:
    state = database_state(database, config)
    yield from _other_keys(config, state)
    yield from _same_addresses(config, state)
    if state.replicas:
        yield from _differing(config, _lease_holders(database, config))
    if state.tables == 0:
        yield _mistake(config, "the database has no tables: run `onetool db init`", None, "warning")
    elif state.missing:
        message = f"tables are missing in the database: {', '.join(state.missing)}"
        yield _mistake(config, message, "onetool db migrate", "warning")


def _file_mistakes(config: "Config") -> Iterator[Mistake]:
    from onetool.app.database import open_state_file
    from onetool.database.sqlite_processes import READ_ONLY_FIX

    state = open_state_file(config)
    file = str(state.file)
    try:
        if state.has_lost:
            hint = "copy a backup with `onetool db import FOLDER`, or add tokens and approve servers again"
            message = "the file replaces a damaged one, which lies beside it"
            yield Mistake(message=message, file=file, hint=hint, severity="warning")
        if state.is_read_only:
            message = "the file is read-only: nothing is stored"
            yield Mistake(message=message, file=file, hint=READ_ONLY_FIX, severity="warning")
    except DatabaseError as error:
        yield Mistake(message=str(error), key="database")
    finally:
        state.close()


def _other_keys(config: "Config", state: DatabaseState) -> Iterator[Mistake]:
    from onetool.cluster import SAME_KEY, other_key

    for one in [one for one in state.replicas if one.has_other_key][:MOST_TOLD]:
        yield _mistake(config, other_key(one.id, one.address), SAME_KEY, "error", "cluster.key")


def _same_addresses(config: "Config", state: DatabaseState) -> Iterator[Mistake]:
    from onetool.cluster import OWN_ADDRESS

    for one in [one for one in state.replicas if one.same_address is not None][:MOST_TOLD]:
        message = f"the replicas {one.same_address} and {one.id} have the same address {one.address}"
        yield _mistake(config, message, OWN_ADDRESS, "error", "cluster.address")


def _differing(config: "Config", leases: list[tuple[str, ReplicaRow]]) -> Iterator[Mistake]:
    """Servers with a command that replicas would share, if their configs said the same of them."""
    from onetool.sources.mcp_servers.shared import block_digest, is_shared, parts_of_lease

    for lease, replica in leases:
        name, digest = parts_of_lease(lease)
        settings = config.servers.get(name)
        if settings is not None and is_shared(settings) and block_digest(settings) != digest:
            message = f"the server {name} is configured differently on the replica {replica.id} at {replica.address}"
            hint = "give all replicas the same command, args, cwd and names of env: only then they share the server"
            yield _mistake(config, message, hint, "warning", f"servers.{name}")


def _mistake(config: "Config", message: str, hint: str | None, severity: str, key: str = "database") -> Mistake:
    file = str(config.path) if config.path else None
    return Mistake(message=message, file=file, key=key, hint=hint, severity=severity)
