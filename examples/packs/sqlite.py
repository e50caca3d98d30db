"""Reading SQLite databases. Nothing can be changed: the file is opened read-only, and so is every statement.

Settings: `sqlite: {folder: path}`, where databases may be; the working folder by default.
"""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from onetool.sdk import ToolFailure, get_config, tool

pack = "sqlite"

MOST_STEPS = 5_000_000  # of SQLite's machine: a query that runs away is stopped after about a second

Database = Annotated[str, "The database file, relative to the configured folder."]


@dataclass
class Table:
    name: str
    columns: list[str]
    rows: int


@tool(read_only=True)
def tables(database: Database) -> list[Table]:
    """List the tables of a database, with their columns and how many rows they have."""
    with closing(_open(database)) as connection:
        names = [
            row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        ]
        return [_describe(connection, name) for name in names]


@tool(read_only=True)
def query(
    database: Database,
    sql: Annotated[str, "One SELECT; values as :name."],
    values: dict[str, str | int | float | None] | None = None,
    limit: Annotated[int, "How many rows at the most."] = 100,
) -> list[dict[str, Any]]:
    """Run a query and give its rows."""
    with closing(_open(database)) as connection:
        try:
            cursor = connection.execute(sql, values or {})
            names = [column[0] for column in cursor.description or []]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchmany(limit)]
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise ToolFailure(f"SQLite: {error}") from None


def _open(database: str) -> sqlite3.Connection:
    folder = Path(get_config().get("folder", ".")).resolve()
    file = (folder / database).resolve()
    if not file.is_relative_to(folder):
        raise ToolFailure(f"{database!r} is outside of the allowed folder", reason="denied")
    if not file.is_file():
        raise ToolFailure(f"there is no database {database!r}", reason="not_found")
    connection = sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)
    connection.execute("PRAGMA query_only = ON")
    connection.set_authorizer(_only_reading)
    connection.set_progress_handler(lambda: 1, MOST_STEPS)
    return connection


def _only_reading(action: int, *_: Any) -> int:
    """No ATTACH, no PRAGMA, no extension: a query could otherwise reach other files."""
    reading = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
    return sqlite3.SQLITE_OK if action in reading else sqlite3.SQLITE_DENY


def _describe(connection: sqlite3.Connection, name: str) -> Table:
    quoted = '"' + name.replace('"', '""') + '"'
    cursor = connection.execute(f"SELECT * FROM {quoted} LIMIT 0")  # noqa: S608 - quoted
    (rows,) = connection.execute(f"SELECT count(*) FROM {quoted}").fetchone()  # noqa: S608
    return Table(name, [column[0] for column in cursor.description], rows)
