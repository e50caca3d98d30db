"""`DatabaseDocuments` keeps documents as rows of a database, encrypted where they are secrets."""

import asyncio
import errno
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Literal

from onetool.core import flock
from onetool.database.connection import DatabaseLock, ReplicaDatabase, Transaction
from onetool.database.documents import Document, Version
from onetool.database.following import TOPIC, DocumentFollower, follower_of, read_row
from onetool.database.sealing import Seal

PAUSE = 0.05  # seconds between two attempts to take a lock

Following = Literal["at once", "later", "never"]
"""Whether what was read is known from then on, and followed: from the first time, from the second, or not at all."""

_UPSERT = """INSERT INTO documents (kind, key, body, version, modified_at)
VALUES (%s, %s, %s, nextval('document_versions'), {clock})
ON CONFLICT (kind, key) DO UPDATE
SET body = excluded.body, version = nextval('document_versions'), modified_at = excluded.modified_at
RETURNING version"""  # the version is taken when the row is locked, so that it only grows


class HeldRow:
    def __init__(self, documents: "DatabaseDocuments", key: str, lock: DatabaseLock) -> None:
        self._documents, self._key, self._lock = documents, key, lock

    def load(self) -> Document:
        return self._documents.load_now(self._key)

    def write(self, body: bytes) -> Version:
        """It is written though the lock was lost: whoever must not do that calls `check` before."""
        return self._documents.write(self._key, body)

    def delete(self) -> bool:
        return self._documents.delete(self._key)

    def check(self) -> None:
        self._lock.check()


class DatabaseDocuments:
    """The documents of one kind. With a `seal` nobody reads them who has the database alone."""

    def __init__(
        self, database: ReplicaDatabase, kind: str, seal: Seal | None = None, follow: Following = "later"
    ) -> None:
        self._database = database
        self._kind = kind
        self._seal = seal
        self._follow: Following = follow
        self._follower: DocumentFollower = follower_of(database)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DatabaseDocuments) and (self._database, self._kind) == (other._database, other._kind)

    def __hash__(self) -> int:
        return hash((self._database, self._kind))

    def describe(self, key: str) -> str:
        return f"{self._kind}/{key} in the database"

    def version(self, key: str) -> Version:
        if self._follow == "never":
            return self._row(key).version
        return self._follower.version((self._kind, key))

    def load(self, key: str) -> Document:
        if self._follow == "never":
            return self.load_now(key)
        found = self._follower.load((self._kind, key), self._follow == "at once")
        return found._replace(body=self._opened(key, found.body))

    def read(self, key: str) -> bytes | None:
        return self.load(key).body

    def load_now(self, key: str) -> Document:
        """What is kept, whatever is known. It is known from then on, also if nobody has told of it yet."""
        found = self._row(key)
        if self._follow != "never" and found.version is not None:
            self._follower.set((self._kind, key), found)
        return found._replace(body=self._opened(key, found.body))

    def write(self, key: str, body: bytes) -> Version:
        kept = body if self._seal is None else self._seal.close(self._about(key), body)
        sql = _UPSERT.format(clock=self._database.clock)

        def job(work: Transaction) -> int:
            version: int = work.execute(sql, (self._kind, key, kept))[0][0]
            work.notify(TOPIC, f"{self._kind} {key}")
            return version

        version = self._database.write(job)
        self._follower.set((self._kind, key), Document(version, kept))
        return version

    def delete(self, key: str) -> bool:
        def job(work: Transaction) -> bool:
            work.execute("DELETE FROM documents WHERE kind = %s AND key = %s", (self._kind, key))
            is_gone = work.row_count > 0
            work.notify(TOPIC, f"{self._kind} {key}")
            return is_gone

        was_there = self._database.write(job)
        self._follower.set((self._kind, key), Document(None, None))
        return was_there

    def keys(self) -> list[str]:
        sql = "SELECT key FROM documents WHERE kind = %s ORDER BY key"
        return [key for (key,) in self._database.read(lambda work: work.execute(sql, (self._kind,)))]

    def seal_anew(self, patience: float) -> int:
        """Encrypt with the key that counts now what another one of ours has encrypted; gives how many those are."""
        if (seal := self._seal) is None:
            return 0
        count = 0
        for key in self.keys():
            if (body := self._row(key).body) is None or not seal.is_of_other_key(body):
                continue
            with self.locked(key, patience) as held:
                if (opened := held.load().body) is not None:
                    held.write(opened)
                    count += 1
        return count

    def _row(self, key: str) -> Document:
        return self._database.read(lambda work: read_row(work, (self._kind, key)))

    def _opened(self, key: str, body: bytes | None) -> bytes | None:
        return body if body is None or self._seal is None else self._seal.open(self._about(key), body)

    def _about(self, key: str) -> str:
        return f"{self._kind}/{key}"

    # Locks

    @contextmanager
    def locked(self, key: str, patience: float) -> Iterator[HeldRow]:
        lock = self._database.lock(self._about(key))
        try:
            between = flock.pauses(patience, PAUSE, PAUSE)
            while not lock.take():
                if (pause := next(between, None)) is None:
                    raise self._held(key)
                time.sleep(pause)
            yield HeldRow(self, key, lock)
        finally:
            lock.release()

    @asynccontextmanager
    async def locked_async(self, key: str, patience: float) -> AsyncIterator[HeldRow]:
        lock = self._database.lock(self._about(key))
        try:
            between = flock.pauses(patience, PAUSE, PAUSE)
            while not await asyncio.to_thread(lock.take):
                if (pause := next(between, None)) is None:
                    raise self._held(key)
                await asyncio.sleep(pause)
            yield HeldRow(self, key, lock)
        finally:
            lock.release()

    def _held(self, key: str) -> TimeoutError:
        return TimeoutError(errno.ETIMEDOUT, "another replica holds its lock", self.describe(key))
