"""`Documents`: small values by key, shared by several processes: logins, tokens, the tools of servers.

A document is a row of the database. Changes that depend on the current value hold the document's lock. Secret documents
are encrypted if replicas share the database.

Each request asks for the version of some documents. SQLite can cheaply tell whether anything was committed
(`Database.stamp`), so a request sees every change committed before it arrived. PostgreSQL notifies all replicas, and
each also polls every second: there, a known document is at most about a second old, and stays valid while the database
is unavailable. The listener starts with the second read of a document, or immediately with `follow`.
"""

import asyncio
import errno
import threading
import time
import weakref
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from random import getrandbits
from time import monotonic
from typing import Literal, NamedTuple

from onetool.core import flock
from onetool.database.connection import (
    Database,
    DatabaseError,
    DatabaseLock,
    ReplacedDatabaseError,
    Transaction,
    UnsafeDatabaseError,
)
from onetool.database.encryption import DamagedSealError, Seal, Signature

Version = Hashable
"""A value that differs after every change of a document; None if the document doesn't exist."""

Following = Literal["at once", "later", "never"]
"""When to start following the changes of a document: with the first read, with the second, or never."""

TOPIC = "documents"
FRESH_S = 1.0  # how long a document stays cached without a listener
MAX_WAIT_S = 10.0  # wait for other processes that change a document
LATE_S = 4.0  # when a listener, which polls every second, counts as disconnected
PAUSE = 0.05  # seconds between two attempts to take a lock

DocumentId = tuple[str, str]  # kind and key

# Use a random step, so that versions stay unique even after the file is replaced or restored from a backup.
_NEXT_VERSION = "UPDATE counters SET value = value + %s WHERE name = 'documents' RETURNING value"
_VERSION = "SELECT version FROM documents WHERE kind = ? AND key = ?"
_UPSERT = """INSERT INTO documents (kind, key, body, version, modified_at) VALUES (%s, %s, %s, %s, {clock})
ON CONFLICT (kind, key) DO UPDATE
SET body = excluded.body, version = excluded.version, modified_at = excluded.modified_at"""


class StoredDocument(NamedTuple):
    """A snapshot of a document."""

    version: Version
    body: bytes | None


class Unknown:
    """A version that differs from all others. Use a new instance each time: tuples compare identical items as equal."""

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0


class Documents:
    """The documents of one kind. With a `seal`, access to the database is not enough to read them.

    Methods raise DatabaseError, and TimeoutError if others hold a lock. Changes survive a power failure.
    """

    def __init__(
        self,
        database: Database,
        kind: str,
        seal: Seal | Signature | None = None,
        follow: Following = "later",
    ) -> None:
        self._database = database
        self._kind = kind
        self._seal = seal
        self._follow: Following = follow
        with _followers_lock:
            self._follower = _followers.get(database) or _followers.setdefault(database, DocumentFollower(database))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Documents) and (self._database, self._kind) == (other._database, other._kind)

    def __hash__(self) -> int:
        return hash((self._database, self._kind))

    @property
    def place(self) -> str:
        """The name of the database, for messages."""
        return self._database.describe()

    def describe(self, key: str) -> str:
        """Return the name of a document for messages to callers."""
        return f"{self._kind}/{key} in {Path(self.place).name}"

    @property
    def is_shared(self) -> bool:
        """Whether several machines share the documents."""
        return self._database.is_shared

    @property
    def is_away(self) -> bool:
        """Whether documents may have changed without notice. Never blocks."""
        return self._follower.is_away()

    def version(self, key: str) -> Version:
        """Return the version without waiting for PostgreSQL. The version of an unknown document differs from all
        others.
        """
        if self._follow == "never":
            return self._row(key).version
        cached = self._follower.current((self._kind, key))
        return Unknown() if cached is None or cached.error else cached.document.version

    def load(self, key: str) -> StoredDocument:
        """Return a document; if the database is unavailable, the cached one."""
        if self._follow == "never":
            return self.load_now(key)
        document = self._follower.load((self._kind, key), self._follow == "at once")
        return document._replace(body=self.unsealed(key, document.body))

    def read(self, key: str) -> bytes | None:
        return self.load(key).body

    def load_now(self, key: str) -> StoredDocument:
        """Read a document from the database, bypassing the cache."""
        document = self._row(key)
        if self._follow != "never" and document.version is not None:
            self._follower.set((self._kind, key), document)
        return document._replace(body=self.unsealed(key, document.body))

    def write(self, key: str, body: bytes) -> Version:
        """Replace a document unconditionally."""
        sealed = self.sealed(key, body)
        version = self._database.write(
            lambda work: write_row(work, self._kind, key, sealed, self._database.clock), durable=True
        )
        self._follower.set((self._kind, key), StoredDocument(version, sealed))
        return version

    def delete(self, key: str) -> bool:
        """Delete a document. Return whether there was one."""

        def job(work: Transaction) -> bool:
            work.execute("DELETE FROM documents WHERE kind = %s AND key = %s", (self._kind, key))
            is_deleted = work.row_count > 0
            work.notify(TOPIC, f"{self._kind} {key}")
            return is_deleted

        existed = self._database.write(job, durable=True)
        self._follower.set((self._kind, key), StoredDocument(None, None))
        return existed

    def keys(self) -> list[str]:
        sql = "SELECT key FROM documents WHERE kind = %s ORDER BY key"
        return [key for (key,) in self._database.read(lambda work: work.execute(sql, (self._kind,)))]

    def seal_anew(self, max_wait: float) -> int:
        """Re-encrypt documents that use older keys with the current key. Return their number."""
        if (seal := self._seal) is None:
            return 0
        count = 0
        for key in self.keys():
            if (body := self._row(key).body) is None or not seal.is_of_other_key(body):
                continue
            with self.locked(key, max_wait) as held:
                if (opened := held.load().body) is not None:
                    held.write(opened)
                    count += 1
        return count

    def require_readable(self) -> None:
        """Raise SealError if a document was encrypted with an unknown key. Damaged documents are ignored."""
        for key in self.keys() if self._seal is not None else ():
            with suppress(DamagedSealError):
                self.load_now(key)

    def _row(self, key: str) -> StoredDocument:
        return self._database.read(lambda work: read_row(work, (self._kind, key)))

    def sealed(self, key: str, body: bytes) -> bytes:
        return body if self._seal is None else self._seal.close(self._about(key), body)

    def unsealed(self, key: str, body: bytes | None) -> bytes | None:
        """Return the body in a row. Raises SealError."""
        return body if body is None or self._seal is None else self._seal.open(self._about(key), body)

    def _about(self, key: str) -> str:
        return f"{self._kind}/{key}"

    # Locks

    @contextmanager
    def locked(self, key: str, max_wait: float) -> Iterator["HeldDocument"]:
        """Hold the lock of a document, across processes and replicas. Raises TimeoutError if it stays locked."""
        lock = self._database.lock(self._about(key))
        try:
            between = flock.pauses(max_wait, PAUSE, PAUSE)
            while not lock.take():
                if (pause := next(between, None)) is None:
                    raise self._held(key)
                time.sleep(pause)
            yield HeldDocument(self, key, lock)
        finally:
            lock.release()

    @asynccontextmanager
    async def locked_async(self, key: str, max_wait: float) -> AsyncIterator["HeldDocument"]:
        """Hold the lock of a document without blocking the event loop."""
        lock = self._database.lock(self._about(key))
        try:
            between = flock.pauses(max_wait, PAUSE, PAUSE)
            while not await asyncio.to_thread(lock.take):
                if (pause := next(between, None)) is None:
                    raise self._held(key)
                await asyncio.sleep(pause)
            yield HeldDocument(self, key, lock)
        finally:
            lock.release()

    def _held(self, key: str) -> TimeoutError:
        return TimeoutError(errno.ETIMEDOUT, "another process holds its lock", self.describe(key))


class HeldDocument:
    """A document whose lock is held. All methods block."""

    def __init__(self, documents: Documents, key: str, lock: DatabaseLock) -> None:
        self._documents, self._key, self._lock = documents, key, lock

    def load(self) -> StoredDocument:
        return self._documents.load_now(self._key)

    def write(self, body: bytes) -> Version:
        """Write the document, even if the lock was lost: call `check` first where that matters."""
        return self._documents.write(self._key, body)

    def delete(self) -> bool:
        return self._documents.delete(self._key)

    def check(self) -> None:
        """Raise DatabaseAwayError if the lock was lost with its connection."""
        self._lock.check()


# The cache


class KnownDocument(NamedTuple):
    """A cached document. With an `error`, the document could not be read, and may or may not exist."""

    document: StoredDocument
    error: DatabaseError | None
    at: float
    stamp: Hashable  # of the database, before reading


class DocumentFollower:
    """The cached documents of a database. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = weakref.ref(database)
        self._known: dict[DocumentId, KnownDocument] = {}
        self._lock = threading.Lock()
        self._is_listening = False
        self._looked_at = monotonic()

    def is_away(self) -> bool:
        database = self._database()
        if database is None or not database.is_shared:
            return False
        return database.is_away or (self._is_listening and monotonic() - self._looked_at > LATE_S)

    def current(self, id: DocumentId) -> KnownDocument | None:
        """Return the current document if it was read before; None if PostgreSQL would have to be queried.

        The stamp often changes, because logs and statistics are in the same file. Then the version tells whether the
        document has changed, for a tenth of the cost of a transaction.
        """
        found, database = self._known.get(id), self._database()
        if found is None or database is None:
            return None
        try:
            stamp = database.stamp()
            if stamp is None:
                return found if self._is_listening or monotonic() - found.at < FRESH_S else None
            if stamp == found.stamp:
                return found
            version = found.document.version
            if found.error or database.peek(_VERSION, id) != ([] if version is None else [(version,)]):
                return self._read(id, found)
        except DatabaseError:
            return None if database.is_shared else self._read(id, found)
        now = found._replace(stamp=stamp)
        with self._lock:
            if self._known.get(id) is found:
                self._known[id] = now
        return now

    def load(self, id: DocumentId, at_once: bool) -> StoredDocument:
        """Return a cached document, or read it. Raises DatabaseError if it was never read successfully."""
        found, before = self.current(id), self._known.get(id)
        if found is None:
            found = self._read(id, before)
            database = self._database()
            if found.stamp is None and (at_once or before is not None) and database is not None:
                with self._lock:
                    was_listening, self._is_listening = self._is_listening, True
                if not was_listening:
                    self._looked_at = monotonic()
                    database.on_change(TOPIC, self._look)
        if found.error is not None:
            raise found.error
        return found.document

    def set(self, id: DocumentId, document: StoredDocument) -> None:
        """Cache a document that this process has written."""
        with self._lock:
            before = self._known.get(id)
            old, new = before and before.document.version, document.version
            # Versions only grow; None: deleted.
            if not isinstance(new, int) or not isinstance(old, int) or new > old:
                # The stamp after the change is unknown, so with SQLite the document is read again once.
                self._known[id] = KnownDocument(document, None, monotonic(), None)

    def _read(self, id: DocumentId, before: KnownDocument | None) -> KnownDocument:
        database = self._database()
        assert database is not None  # noqa: S101 - the caller has it
        stamp: Hashable = None
        try:
            stamp = database.stamp()  # before reading, so that a change in between is noticed
            known = None if before is None else before.document
            found = KnownDocument(database.read(lambda work: read_row(work, id, known)), None, monotonic(), stamp)
        except DatabaseError as error:
            is_lost = error.is_damaged or isinstance(error, ReplacedDatabaseError | UnsafeDatabaseError)
            if before is not None and before.error is None and not is_lost:
                found = before._replace(at=monotonic())
            else:
                found = KnownDocument(StoredDocument(None, None), error, monotonic(), stamp)
        with self._lock:
            if self._known.get(id) is before:
                self._known[id] = found
        return found

    def _look(self, detail: str) -> None:
        """Read changed documents, in the thread of the listener. `detail` names a document; empty for all."""
        database, before = self._database(), dict(self._known)
        if database is None:
            return
        kind, _, key = detail.partition(" ")
        ids = [id for id in before if not detail or id == (kind, key)]
        if not ids or database.is_away:
            return

        def changed(work: Transaction) -> dict[DocumentId, StoredDocument]:
            places = ", ".join(["(%s, %s)"] * len(ids))
            sql = f"SELECT kind, key, version FROM documents WHERE (kind, key) IN (VALUES {places})"  # noqa: S608
            rows = work.execute(sql, [part for id in ids for part in id])
            versions = {(kind, key): version for kind, key, version in rows}
            return {
                id: read_row(work, id)
                for id in ids
                if before[id].error is not None or before[id].document.version != versions.get(id)
            }

        now = database.read(changed)
        self._looked_at = monotonic()
        with self._lock:
            for id, document in now.items():
                if self._known.get(id) is before[id]:  # else this process has just written the document
                    self._known[id] = KnownDocument(document, None, monotonic(), None)


def read_row(work: Transaction, id: DocumentId, known: StoredDocument | None = None) -> StoredDocument:
    """Return a document. The body isn't read if the version is the cached one."""
    version = known.version if known is not None and isinstance(known.version, int) else -1
    sql = "SELECT version, CASE version WHEN %s THEN NULL ELSE body END FROM documents WHERE kind = %s AND key = %s"
    rows = work.execute(sql, (version, *id))
    if not rows:
        return StoredDocument(None, None)
    return known if known is not None and rows[0][1] is None else StoredDocument(rows[0][0], bytes(rows[0][1]))


def write_row(work: Transaction, kind: str, key: str, body: bytes, clock: str) -> int:
    """Write a document and return its version. Locks the counter's row, so that versions only grow."""
    version: int = work.execute(_NEXT_VERSION, (1 + getrandbits(32),))[0][0]
    work.execute(_UPSERT.format(clock=clock), (kind, key, body, version))
    work.notify(TOPIC, f"{kind} {key}")
    return version


_followers: "weakref.WeakKeyDictionary[Database, DocumentFollower]" = weakref.WeakKeyDictionary()
_followers_lock = threading.Lock()
