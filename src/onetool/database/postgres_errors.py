"""Errors of PostgreSQL: classification and first line."""

import re

import psycopg

from onetool.database.connection import DatabaseAwayError, Row

FULL = "the database has no free connection"


def is_lost(connection: "psycopg.Connection[Row]", error: psycopg.Error) -> bool:
    """Return whether the connection, not the statement, failed."""
    # 57P01 to 57P03: the server is shutting down, has crashed, or is starting.
    return connection.broken or connection.closed or (error.sqlstate or "").startswith("57P0")


def is_full(error: Exception) -> bool:
    """Return whether the server has no free connections. This error has no code."""
    return re.search("too many clients|too many connections|connection slots", str(error)) is not None


def away_error(error: Exception) -> DatabaseAwayError:
    return DatabaseAwayError(first_line(error), **({"message": FULL} if is_full(error) else {}))


def first_line(error: Exception) -> str:
    """Return the first line of a PostgreSQL error, without passwords in addresses."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
