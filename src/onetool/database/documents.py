"""`Documents`: small things by their key, which several processes read and change: logins, tokens, what servers offer.

    FileDocuments       a file each, in one folder of the state
    DatabaseDocuments   a row each, in the database that replicas share

Stores are written against the protocol alone. What changes a document as a function of what it was holds its lock.
"""

from collections.abc import Hashable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import NamedTuple, Protocol

Version = Hashable
"""Differs after every change of a document. None: there is none."""


class Document(NamedTuple):
    """What is kept at one moment."""

    version: Version
    body: bytes | None


class HeldDocument(Protocol):
    """A document whose lock is held. All methods block."""

    def load(self) -> Document:
        """What is kept now: never what was known before."""
        ...

    def write(self, body: bytes) -> Version: ...

    def delete(self) -> bool: ...

    def check(self) -> None:
        """Raises DatabaseAwayError if the lock was lost meanwhile, with the connection that held it."""
        ...


class Documents(Protocol):
    """The documents of one kind. Files raise OSError, a database DatabaseError; TimeoutError if others hold a lock."""

    def describe(self, key: str) -> str:
        """Where it is kept, for messages."""
        ...

    def version(self, key: str) -> Version:
        """It never waits, at most for a look at a file. Where nothing is known yet, it equals no version."""
        ...

    def load(self, key: str) -> Document:
        """What is kept, and its version. A database that is away gives what was known before."""
        ...

    def read(self, key: str) -> bytes | None: ...

    def write(self, key: str, body: bytes) -> Version:
        """Replace it as a whole, whoever has changed it meanwhile."""
        ...

    def delete(self, key: str) -> bool:
        """Whether there was one."""
        ...

    def keys(self) -> list[str]: ...

    def locked(self, key: str, patience: float) -> AbstractContextManager[HeldDocument]:
        """One at a time, among all processes and replicas. Others may hold it for so many seconds: TimeoutError."""
        ...

    def locked_async(self, key: str, patience: float) -> AbstractAsyncContextManager[HeldDocument]:
        """The same on an event loop, which goes on meanwhile."""
        ...


class Unknown:
    """A version that equals no other. Each use makes one: tuples take the same object for equal."""

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0
