"""One database for all state: SQLite (`state.db` in the state folder), or PostgreSQL (`database:` in the config).

connection      Database: read and write in transactions, whatever is behind it; what can go wrong
sqlite          a SQLite file, which the processes of one machine share
sqlite_errors   what SQLite and the system say about the file, as errors of ours
sqlite_processes  what other processes do to that file: replace, damage, lock and change it
percentiles     the aggregate function of SQLite that stats use
postgres        PostgreSQL by psycopg, with a pool, a breaker, and news of changes by other replicas
postgres_errors  what errors of PostgreSQL mean
listeners       functions to call after changes
migrations      the tables, as numbered SQL files for both
documents       Documents: small things by their key
copying         copies tables from one database to another
moving          what became of things that were copied
encryption      what is encrypted where replicas share the database
shared_rates    counts in windows of time, together with the others
"""

from onetool.database.connection import (
    ChangeUnknownError,
    Database,
    DatabaseAwayError,
    DatabaseError,
    LockNumber,
    Row,
    Transaction,
)

__all__ = ["ChangeUnknownError", "Database", "DatabaseAwayError", "DatabaseError", "LockNumber", "Row", "Transaction"]
