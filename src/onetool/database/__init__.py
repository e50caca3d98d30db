"""One database for all state: SQLite (`state.db` in the state folder), or PostgreSQL (`database:` in the config).

connection        Database, the interface for transactions, and its errors
sqlite            a SQLite file, shared by the processes of one machine
sqlite_errors     converts errors of SQLite and the system
sqlite_processes  notices other processes that replace, damage, lock and change the file
restoring         copies what can be read of a damaged file into a new one
percentiles       an aggregate function in SQLite for stats
postgres          PostgreSQL with psycopg: a pool, a breaker, and notifications of changes by other replicas
listeners         the functions to call after changes
migrations        the tables, as numbered SQL files for both
documents         Documents: small values by key
copying           copies tables from one database to another
moving            the results of copying
encryption        encrypts secret documents if replicas share the database
shared_rates      counts in windows of time across replicas
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
