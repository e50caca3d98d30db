"""What several processes share: PostgreSQL for replicas (`database:` in the config), SQLite for workers of one machine.

connection          Database: read and write in transactions, whatever is behind it; what can go wrong
postgres            PostgreSQL by psycopg, with a pool, a breaker, and news of changes by other replicas
sqlite              a SQLite file with the same interface
migrations          the tables, as numbered SQL files
documents           Documents: small things by their key; in a folder
database_documents  the same in a database, encrypted where they are secrets
shared_rates        counts in windows of time, together with the others
moving              what moves a store between a folder and a database
"""

from onetool.database.connection import (
    ChangeUnknownError,
    Database,
    DatabaseAwayError,
    DatabaseError,
    LockNumber,
    ReplicaDatabase,
    Transaction,
)

__all__ = [
    "ChangeUnknownError",
    "Database",
    "DatabaseAwayError",
    "DatabaseError",
    "LockNumber",
    "ReplicaDatabase",
    "Transaction",
]
