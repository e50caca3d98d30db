"""`DatabaseDocuments` keeps documents as rows of a database. Secrets are encrypted; changes by others are noticed.

`Seal` encrypts what nobody may read who has only the database, or a backup of it: AES-256-GCM. The key is derived
(HKDF) from a secret of the replicas. Each sealed text names its key by a number, so that a text of another key is told
apart from a damaged one. It is bound to its place: nobody can move the login of one server to another.

`DocumentFollower` knows some documents without asking for them each time. Whoever changes one tells all replicas
(NOTIFY), and each looks for itself every second. So what is known is at most about a second old, and a question costs
nothing. While the database is away, what was known stays valid. A process that asks once and ends starts no
listener: that begins when a document is asked for again later, or at once where the caller says so.
"""

import asyncio
import errno
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cached_property
from os import urandom
from time import monotonic
from typing import Literal, NamedTuple

from onetool.core import flock
from onetool.database.connection import DatabaseError, DatabaseLock, ReplicaDatabase, Transaction
from onetool.database.documents import StoredDocument, Unknown, Version

MARK = b"OT1"  # the form, and its version
ID_BYTES = 8
NONCE_BYTES = 12
KEY_BYTES = 32

TOPIC = "documents"
FRESH_S = 1.0  # that what was read counts as known, without a listener

DocumentId = tuple[str, str]  # kind and key
PAUSE = 0.05  # seconds between two attempts to take a lock

Following = Literal["at once", "later", "never"]
"""Whether what was read is known from then on, and followed: from the first time, from the second, or not at all."""

_UPSERT = """INSERT INTO documents (kind, key, body, version, modified_at)
VALUES (%s, %s, %s, nextval('document_versions'), {clock})
ON CONFLICT (kind, key) DO UPDATE
SET body = excluded.body, version = nextval('document_versions'), modified_at = excluded.modified_at
RETURNING version"""  # the version is taken when the row is locked, so that it only grows


class SealError(DatabaseError):
    """What is kept can't be decrypted."""


class DamagedSealError(SealError):
    """What is kept is damaged: no key decrypts it."""

    is_damaged = True


class Seal:
    """`secrets` is called once, when a key is first needed. The first secret encrypts, all of them decrypt."""

    def __init__(self, secrets: Callable[[], Sequence[bytes]]) -> None:
        self._secrets = secrets

    @cached_property
    def _keys(self) -> dict[bytes, bytes]:
        """The keys by their number."""
        return {
            _derived(secret, b"number", ID_BYTES): _derived(secret, b"key", KEY_BYTES) for secret in self._secrets()
        }

    def close(self, about: str, body: bytes) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        number, key = next(iter(self._keys.items()))
        nonce = urandom(NONCE_BYTES)
        return MARK + number + nonce + AESGCM(key).encrypt(nonce, body, about.encode())

    def is_of_other_key(self, sealed: bytes) -> bool:
        """Whether we can open it, and would encrypt it with another key now."""
        number = sealed[len(MARK) : len(MARK) + ID_BYTES]
        return sealed.startswith(MARK) and number in self._keys and number != next(iter(self._keys))

    def open(self, about: str, sealed: bytes) -> bytes:
        """Raises SealError."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        start = len(MARK) + ID_BYTES
        if not sealed.startswith(MARK) or len(sealed) < start + NONCE_BYTES:
            raise DamagedSealError(f"{about} in the database is damaged, or a newer version has written it")
        key = self._keys.get(sealed[len(MARK) : start])
        if key is None:
            raise SealError(
                f"{about} in the database was encrypted with another cluster.key than the one in the config: put that "
                "one back, or make it anew; if there was no cluster.key, run `onetool db init` with this config on the "
                "machine that has written it"
            )
        nonce, text = sealed[start : start + NONCE_BYTES], sealed[start + NONCE_BYTES :]
        try:
            return AESGCM(key).decrypt(nonce, text, about.encode())
        except InvalidTag:
            raise DamagedSealError(f"{about} in the database is damaged: it can't be decrypted") from None


def _derived(secret: bytes, what: bytes, size: int) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), size, salt=None, info=b"onetool documents " + what).derive(secret)


class KnownDocument(NamedTuple):
    """With an `error` it could never be read, and nobody knows whether there is one."""

    document: StoredDocument
    error: DatabaseError | None
    at: float


class DocumentFollower:
    """All that is known of the documents of one database. Any thread may use it."""

    def __init__(self, database: ReplicaDatabase) -> None:
        self._database = weakref.ref(database)
        self._known: dict[DocumentId, KnownDocument] = {}
        self._lock = threading.Lock()
        self._is_listening = False

    def version(self, id: DocumentId) -> Version:
        """Never waits. What is not known, or not any more, has a version that equals none."""
        found = self._known.get(id)
        return Unknown() if found is None or found.error or not self._is_current(found) else found.document.version

    def load(self, id: DocumentId, at_once: bool) -> StoredDocument:
        """What is known; read now, if it is not. Raises DatabaseError if it never could be."""
        found = self._known.get(id)
        if found is None or not self._is_current(found):
            is_new, found = found is None, self._read(id, found)
            if at_once or not is_new:
                self._listen()
        if found.error is not None:
            raise found.error
        return found.document

    def set(self, id: DocumentId, document: StoredDocument) -> None:
        """What was written by this process: it counts here at once."""
        with self._lock:
            before = self._known.get(id)
            if before is None or _is_newer(document, before.document):
                self._known[id] = KnownDocument(document, None, monotonic())

    def _is_current(self, found: KnownDocument) -> bool:
        return self._is_listening or monotonic() - found.at < FRESH_S

    def _read(self, id: DocumentId, before: KnownDocument | None) -> KnownDocument:
        database = self._database()
        assert database is not None  # noqa: S101 - whoever asks has it
        try:
            found = KnownDocument(database.read(lambda work: read_row(work, id)), None, monotonic())
        except DatabaseError as error:
            if before is not None and before.error is None:
                found = before._replace(at=monotonic())
            else:
                found = KnownDocument(StoredDocument(None, None), error, monotonic())
        with self._lock:
            if self._known.get(id) is before:
                self._known[id] = found
        return found

    def _listen(self) -> None:
        database = self._database()
        with self._lock:
            if self._is_listening or database is None:
                return
            self._is_listening = True
        database.on_change(TOPIC, self._look)

    def _look(self, detail: str) -> None:
        """In the thread of the listener. `detail`: the document that has changed; empty: look for all of them."""
        database, before = self._database(), dict(self._known)
        if database is None:
            return
        kind, _, key = detail.partition(" ")
        ids = [id for id in before if not detail or id == (kind, key)]
        if not ids or database.is_away:
            return
        now = database.read(lambda work: _changed(work, ids, before))
        with self._lock:
            for id, document in now.items():
                if self._known.get(id) is before[id]:  # else this process has just written it
                    self._known[id] = KnownDocument(document, None, monotonic())


def read_row(work: Transaction, id: DocumentId) -> StoredDocument:
    rows = work.execute("SELECT version, body FROM documents WHERE kind = %s AND key = %s", id)
    return StoredDocument(rows[0][0], bytes(rows[0][1])) if rows else StoredDocument(None, None)


def _changed(
    work: Transaction, ids: list[DocumentId], before: dict[DocumentId, KnownDocument]
) -> dict[DocumentId, StoredDocument]:
    """Those that are not as they were known."""
    places = ", ".join(["(%s, %s)"] * len(ids))
    sql = f"SELECT kind, key, version FROM documents WHERE (kind, key) IN ({places})"  # noqa: S608 - placeholders
    rows = work.execute(sql, [part for id in ids for part in id])
    versions = {(kind, key): version for kind, key, version in rows}
    return {
        id: read_row(work, id)
        for id in ids
        if before[id].error is not None or before[id].document.version != versions.get(id)
    }


def _is_newer(new: StoredDocument, old: StoredDocument) -> bool:
    """Versions of a document only grow; what was deleted is newer than what it was."""
    return not isinstance(new.version, int) or not isinstance(old.version, int) or new.version > old.version


_followers: "weakref.WeakKeyDictionary[ReplicaDatabase, DocumentFollower]" = weakref.WeakKeyDictionary()
_guard = threading.Lock()


def follower_of(database: ReplicaDatabase) -> DocumentFollower:
    """The one of that database: all stores of it share what is known."""
    with _guard:
        found = _followers.get(database)
        if found is None:
            found = _followers[database] = DocumentFollower(database)
        return found


class HeldRow:
    def __init__(self, documents: "DatabaseDocuments", key: str, lock: DatabaseLock) -> None:
        self._documents, self._key, self._lock = documents, key, lock

    def load(self) -> StoredDocument:
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

    def load(self, key: str) -> StoredDocument:
        if self._follow == "never":
            return self.load_now(key)
        found = self._follower.load((self._kind, key), self._follow == "at once")
        return found._replace(body=self._opened(key, found.body))

    def read(self, key: str) -> bytes | None:
        return self.load(key).body

    def load_now(self, key: str) -> StoredDocument:
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
        self._follower.set((self._kind, key), StoredDocument(version, kept))
        return version

    def delete(self, key: str) -> bool:
        def job(work: Transaction) -> bool:
            work.execute("DELETE FROM documents WHERE kind = %s AND key = %s", (self._kind, key))
            is_gone = work.row_count > 0
            work.notify(TOPIC, f"{self._kind} {key}")
            return is_gone

        was_there = self._database.write(job)
        self._follower.set((self._kind, key), StoredDocument(None, None))
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

    def _row(self, key: str) -> StoredDocument:
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
