"""`DocumentFollower` knows some documents of a database without asking for them each time.

Whoever changes one tells all replicas (NOTIFY), and each looks for itself every second. So what is known is at most
about a second old, and a question costs nothing. While the database is away, what was known goes on to count.

A process that asks once and ends starts no listener: that begins when a document is asked for again later, or at once
where the caller says so.
"""

import threading
import weakref
from time import monotonic
from typing import NamedTuple

from onetool.database.connection import ReplicaDatabase, Transaction
from onetool.database.documents import Document, Unknown, Version
from onetool.database.errors import DatabaseError

TOPIC = "documents"
FRESH_S = 1.0  # that what was read counts as known, without a listener

DocumentId = tuple[str, str]  # kind and key


class KnownDocument(NamedTuple):
    """With an `error` it could never be read, and nobody knows whether there is one."""

    document: Document
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

    def load(self, id: DocumentId, at_once: bool) -> Document:
        """What is known; read now, if it is not. Raises DatabaseError if it never could be."""
        found = self._known.get(id)
        if found is None or not self._is_current(found):
            is_new, found = found is None, self._read(id, found)
            if at_once or not is_new:
                self._listen()
        if found.error is not None:
            raise found.error
        return found.document

    def set(self, id: DocumentId, document: Document) -> None:
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
                found = KnownDocument(Document(None, None), error, monotonic())
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


def read_row(work: Transaction, id: DocumentId) -> Document:
    rows = work.execute("SELECT version, body FROM documents WHERE kind = %s AND key = %s", id)
    return Document(rows[0][0], bytes(rows[0][1])) if rows else Document(None, None)


def _changed(
    work: Transaction, ids: list[DocumentId], before: dict[DocumentId, KnownDocument]
) -> dict[DocumentId, Document]:
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


def _is_newer(new: Document, old: Document) -> bool:
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
