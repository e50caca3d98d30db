"""Errors of PostgreSQL: what they mean, and their first line."""

import re

import psycopg

from onetool.database.connection import DatabaseAwayError, Row

FULL = "the database has no free connection"


def is_lost(connection: "psycopg.Connection[Row]", error: psycopg.Error) -> bool:
    """Return whether the connection failed, not the statement."""
    # 57P01 to 57P03: the server is being stopped, has crashed, or starts.
    return connection.broken or connection.closed or (error.sqlstate or "").startswith("57P0")


def is_full(error: Exception) -> bool:
    """Return whether the server has no connection left. This error has no code."""
    return re.search("too many clients|too many connections|connection slots", str(error)) is not None


def away_error(error: Exception) -> DatabaseAwayError:
    return DatabaseAwayError(first_line(error), **({"message": FULL} if is_full(error) else {}))


def first_line(error: Exception) -> str:
    """Return the first line of an error of PostgreSQL. An address in it has no password."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
