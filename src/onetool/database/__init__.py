"""What several processes share: PostgreSQL for replicas (`database:` in the config), SQLite for workers of one machine.

connection          Database: read and write in transactions, whatever is behind it
postgres            PostgreSQL by psycopg, with a pool and a breaker
sqlite              a SQLite file with the same interface
listener            tells of changes by other replicas
migrations          the tables, as numbered SQL files
lock_numbers        the numbers of advisory locks
documents           Documents: small things by their key, in files or in a database
file_documents      documents in a folder
database_documents  documents in a database
following           knows documents of a database without asking each time
sealing             encrypts documents that are secrets
shared_rates        counts in windows of time, together with the others
moving              what moves a store between a folder and a database
errors              what can go wrong
"""

from onetool.database.connection import Database, ReplicaDatabase, Transaction
from onetool.database.errors import ChangeUnknownError, DatabaseAwayError, DatabaseError

__all__ = ["ChangeUnknownError", "Database", "DatabaseAwayError", "DatabaseError", "ReplicaDatabase", "Transaction"]
