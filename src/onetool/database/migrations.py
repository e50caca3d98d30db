"""Creates and updates the tables in PostgreSQL and SQLite: numbered SQL files, each run once, under a lock. Words in
braces come from the driver (`Database.dialect`).

SQLite skips statements that begin with `-- postgresql`. A database with unknown migrations is refused. Migrations only
add, so that processes of two versions can run at the same time during an update, after `onetool db migrate`; but not
beside ALONE.
"""

import re
import sqlite3
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from onetool.database.connection import (
    NEWEST,
    Database,
    LockNumber,
    NewerDatabaseError,
    OlderReplicasError,
    TablesMissingError,
    Transaction,
)

MAX_SECONDS = 600
ALONE = {"mailbox", "bundle_files"}  # migrations that replace tables which older replicas use
SEEN_S = 5.0  # since the last heartbeat of a replica that runs
POSTGRESQL = "-- postgresql\n"
_TABLE = (
    "CREATE TABLE IF NOT EXISTS onetool_migrations "
    "(number integer PRIMARY KEY, name text NOT NULL, at double precision NOT NULL)"
)

_CHANGED = re.compile(r"^(CREATE|DROP) TABLE (?:IF (?:NOT )?EXISTS )?(\w+)", re.MULTILINE)


class Migration(NamedTuple):
    number: int
    name: str
    sql: str

    def statements(self, dialect: Mapping[str, str], is_postgres: bool) -> Iterator[str]:
        sql = self.sql
        for word, text in dialect.items():
            sql = sql.replace(f"{{{word}}}", text)
        for statement in filter(None, map(str.strip, sql.split(";\n"))):
            if is_postgres or not statement.startswith(POSTGRESQL):
                yield statement


@cache
def migrations() -> tuple[Migration, ...]:
    files = sorted(Path(__file__).with_name("migrations").glob("*.sql"))
    names = [file.stem.partition("_") for file in files]
    return tuple(
        Migration(int(n), name, file.read_text("utf-8")) for (n, _, name), file in zip(names, files, strict=True)
    )


def tables() -> list[str]:
    """Return the names of the tables that all migrations together leave, parents first."""
    names = {"onetool_migrations": None}
    for migration in migrations():
        for change, name in _CHANGED.findall(migration.sql):
            names.pop(name, None)
            if change == "CREATE":
                names[name] = None
    return [*names]


# PostgreSQL


def migrate(database: Database) -> list[str]:
    """Run the missing migrations, all or none, and return their names. Several replicas may do this at once.

    If none is missing, nothing is written, so that a role without the right to create tables can use existing ones.
    """
    if not (names := missing(database)):
        return []

    def job(work: Transaction) -> list[str]:
        work.allow(MAX_SECONDS)  # another replica may hold the lock, and large tables take time
        work.lock(LockNumber.MIGRATIONS)
        if ALONE.intersection(names) and len(names) < NEWEST:
            _refuse_beside_older(work, database)
        return _run(work, database, is_postgres=True)

    return database.write(job)


def _refuse_beside_older(work: Transaction, database: Database) -> None:
    """Raise OlderReplicasError if replicas of an older version run, which could not go on with the new tables."""
    if not work.execute("SELECT to_regclass('replicas') IS NOT NULL")[0][0]:
        return
    sql = f"SELECT id, version FROM replicas WHERE seen_at > {database.clock} - %s ORDER BY id"  # noqa: S608 - ours
    if running := work.execute(sql, (SEEN_S,)):
        raise OlderReplicasError([f"{id} ({version})" for id, version in running])


def require_tables(database: Database) -> None:
    """Raise TablesMissingError if migrations are missing. Changes nothing."""
    if names := missing(database):
        raise TablesMissingError(names, has_none=len(names) == NEWEST)


def missing(database: Database) -> list[str]:
    """Return the names of missing migrations. Raises NewerDatabaseError."""
    exists = database.read(lambda work: work.execute("SELECT to_regclass('onetool_migrations') IS NOT NULL"))
    done = database.read(lambda work: work.execute("SELECT number FROM onetool_migrations")) if exists[0][0] else []
    numbers = {number for (number,) in done}
    if (newest := max(numbers, default=0)) > NEWEST:
        raise NewerDatabaseError(database.describe(), newest, NEWEST)
    return (
        [migration.name for migration in migrations() if migration.number not in numbers]
        if len(numbers) < NEWEST
        else []
    )


# SQLite


def migrate_connection(connection: sqlite3.Connection, work: Transaction, database: Database) -> None:
    """Bring the tables of a file up to date. `user_version` is the number of its last migration."""
    if _version(connection, database) == NEWEST:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _version(connection, database) < NEWEST:  # not yet done by another process
            _run(work, database, is_postgres=False)
            connection.execute(f"PRAGMA user_version = {NEWEST}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection, database: Database) -> int:
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if found > NEWEST:
        raise NewerDatabaseError(database.describe(), found, NEWEST)
    return found


def _run(work: Transaction, database: Database, *, is_postgres: bool) -> list[str]:
    work.execute(_TABLE)
    done = {number for (number,) in work.execute("SELECT number FROM onetool_migrations")}
    insert = f"INSERT INTO onetool_migrations (number, name, at) VALUES (%s, %s, {database.clock})"  # noqa: S608 - ours
    names: list[str] = []
    for migration in migrations():
        if migration.number not in done:
            for statement in migration.statements(database.dialect, is_postgres):
                work.execute(statement)
            work.execute(insert, (migration.number, migration.name))
            names.append(migration.name)
    return names
