"""Makes and updates the tables: numbered SQL files, each run once, under a lock.

Files only add: an older version of OneTool goes on working beside a newer one. So a number is never changed or used
again, and a database that knows higher numbers than we do is no error. Files named `…_shared.sql` are for the SQLite
file of workers, too.
"""

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

from onetool.database.connection import Database, LockNumber, TablesMissingError, Transaction

MOST_SECONDS = 600
_TABLE = (
    "CREATE TABLE IF NOT EXISTS onetool_migrations "
    "(number integer PRIMARY KEY, name text NOT NULL, at double precision NOT NULL)"
)

_CREATED = re.compile(r"^CREATE TABLE (?:IF NOT EXISTS )?(\w+)", re.MULTILINE)


class Migration(NamedTuple):
    number: int
    name: str
    sql: str

    @property
    def is_shared(self) -> bool:
        return self.name.endswith("_shared")


def migrations() -> Iterator[Migration]:
    """All of them, in order."""
    for file in sorted(files("onetool.database").joinpath("migrations").iterdir(), key=lambda one: one.name):
        if file.name.endswith(".sql"):
            number, _, name = file.name.removesuffix(".sql").partition("_")
            yield Migration(int(number), name, file.read_text("utf-8"))


def migrate(database: Database) -> list[str]:
    """Run those that are missing, all or nothing; gives their names. Several replicas may do this at once.

    Where none is missing, nothing is written: so a role that may not make tables can use a database that has them.
    """
    if not missing(database):
        return []

    def job(work: Transaction) -> list[str]:
        work.allow(MOST_SECONDS)  # others may be at it, and large tables take a while
        work.execute("SELECT pg_advisory_xact_lock(%s)", (LockNumber.MIGRATIONS,))
        return _run(work, list(migrations()), database.clock)

    return database.write(job)


def require_tables(database: Database) -> None:
    """Raises TablesMissingError if migrations are missing. Nothing is made."""
    if names := missing(database):
        raise TablesMissingError(names, has_none=len(names) == len(list(migrations())))


def tables() -> list[str]:
    """The names of all tables that they make."""
    return ["onetool_migrations", *(name for one in migrations() for name in _CREATED.findall(one.sql))]


def missing(database: Database) -> list[str]:
    """Names of those that are missing."""
    exists = database.read(lambda work: work.execute("SELECT to_regclass('onetool_migrations') IS NOT NULL"))
    done = database.read(lambda work: work.execute("SELECT number FROM onetool_migrations")) if exists[0][0] else []
    numbers = {number for (number,) in done}
    return [one.name for one in migrations() if one.number not in numbers]


def migrate_shared(database: Database) -> None:
    """Make the tables that workers share, in SQLite."""
    shared = [one for one in migrations() if one.is_shared]
    database.write(lambda work: _run(work, shared, database.clock))


def _run(work: Transaction, wanted: list[Migration], clock: str) -> list[str]:
    work.execute(_TABLE)
    done = {number for (number,) in work.execute("SELECT number FROM onetool_migrations")}
    names: list[str] = []
    for one in wanted:
        if one.number not in done:
            for statement in filter(None, map(str.strip, one.sql.split(";\n"))):
                work.execute(statement)
            insert = f"INSERT INTO onetool_migrations (number, name, at) VALUES (%s, %s, {clock})"  # noqa: S608 - ours
            work.execute(insert, (one.number, one.name))
            names.append(one.name)
    return names
