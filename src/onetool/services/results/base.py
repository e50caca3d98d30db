"""`Results` is what can be done with stored results, wherever they are kept; with their errors and their notes.

The note on a text stands at the end of its file, so that both go together. No file tells its handle: it is masked with
a hash of its owner. So whoever reads a folder of somebody else's results can't ask a server for them, and an owner
finds their own alone, whichever process has stored them.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from os import SEEK_END
from typing import BinaryIO, Protocol, TypeGuard

import msgspec

from onetool.core.call import Page
from onetool.core.errors import ToolFailure
from onetool.services.results.paging import MOST_BYTES, TextLines, check_query, page_of, pieces

DAY = 86_400
LONGEST_HEAD = 200  # characters
LONGEST_NAME = 200
LONGEST_NOTE = 4096  # bytes; what we write is shorter, also if each character takes six
LONGEST_SHOWN_HANDLE = 60  # characters of a handle that came from outside
SEAL = 16  # bytes
_NUMBER = 8  # bytes of the length of a note
_HANDLE = re.compile(r"[0-9a-f]{32}")


class StoredResult(msgspec.Struct, frozen=True):
    """A result that is kept: the handle to read it by, its size in bytes of UTF-8, and its lines."""

    handle: str
    size: int
    lines: int


class KeptResult(msgspec.Struct, frozen=True, kw_only=True):
    """One stored result. `name` is the tool that it came from, where that is known; `at` is when it was stored."""

    handle: str
    name: str | None
    at: float
    size: int
    lines: int
    head: str


class OpenedResult(Protocol):
    """The text of a result that is open for reading."""

    size: int  # in bytes of UTF-8

    def lines(self) -> TextLines: ...

    def read(self) -> str:
        """The whole text."""
        ...


class Results(ABC):
    """Keeps texts for `ttl_s` seconds, and no more than `max_total_mb` in all: the oldest go first."""

    def __init__(self, ttl_s: float, max_total_mb: int) -> None:
        self._ttl = ttl_s
        self._most = max_total_mb * 1024 * 1024

    @abstractmethod
    def put(self, text: str, owner: str = "", name: str | None = None) -> StoredResult:
        """Keep a text. NotStoredError says why it could not be. `name` is the tool that it came from."""

    @abstractmethod
    def kept(self, owner: str = "") -> Iterator[KeptResult]:
        """What is stored for an owner, by whichever process, the newest first; nothing of other owners.

        OSError or ToolFailure, where that can't be read.
        """

    def expires_at(self, kept: KeptResult) -> float:
        return kept.at + self._ttl

    @abstractmethod
    def remove(self, handle: str, owner: str = "") -> None:
        """Forget a result. HandleNotFoundError or ResultExpiredError, where there is none."""

    def page(
        self,
        handle: str,
        owner: str = "",
        offset: int = 1,
        limit: int = 100,
        search: str | None = None,
        fuzzy: bool = False,
        most_bytes: int = MOST_BYTES,
        column: int = 1,
    ) -> Page:
        """Some lines of it (see `page_of`): what comes before and after them is not read, unless it is searched."""
        check_query(offset, limit, column)  # first: it is wrong whatever the handle is
        with self._opened(handle, owner) as text:
            return page_of(text.lines(), offset, limit, search, fuzzy, most_bytes, column)

    def read(self, handle: str, owner: str = "", most_bytes: int | None = None) -> str:
        """The whole text. ResultTooLargeError, where it has more bytes than that."""
        with self._opened(handle, owner) as text:
            if most_bytes is not None and text.size > most_bytes:
                raise ResultTooLargeError(handle, text.size, most_bytes)
            return text.read()

    @abstractmethod
    def _opened(self, handle: str, owner: str) -> AbstractContextManager[OpenedResult]:
        """HandleNotFoundError or ResultExpiredError, where there is none."""

    @abstractmethod
    def sweep(self) -> None:
        """Take away what has expired, then the oldest until the rest fits. Putting does this when it may be needed."""


class EndedResult(msgspec.Struct, frozen=True):
    """A result that is over. `name` is its file, or its key."""

    name: str
    at: float
    removed: bool  # before its time, to make room

    def is_forgotten(self, now: float) -> bool:
        return self.at + DAY <= now


def is_handle(value: object) -> TypeGuard[str]:
    """Whether it looks like a handle: it may come from anybody."""
    return isinstance(value, str) and _HANDLE.fullmatch(value) is not None


def key_of(handle: str, owner: str) -> str:
    """What a result is stored by: nobody gets the handle from it, and another owner's handle gives another key."""
    from hashlib import blake2b  # listing tools does not need it

    return blake2b(f"{handle} {owner}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def owner_key(owner: str) -> str:
    """An owner in a table, where their results are found by it. The name itself is not told."""
    from hashlib import blake2b  # listing tools does not need it

    return blake2b(owner.encode("utf-8", "surrogatepass"), digest_size=16, person=b"owner").hexdigest()


def bytes_of(text: str) -> int:
    """Its size in UTF-8, without a second copy of it."""
    return len(text) if text.isascii() else sum(len(encoded(piece)) for piece in pieces(text))


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def check_room(size: int, most: int) -> None:
    if size > most:
        raise NotStoredError(f"{size:,} bytes are more than all kept results may have: {most:,}")


# What can go wrong


class HandleNotFoundError(ToolFailure):
    """The handle is unknown: never issued, another owner's, or forgotten."""

    def __init__(self, handle: object) -> None:
        hint = "a handle comes with the result that was too large; use it as it is"
        super().__init__(f"Handle not found: {handle_shown(handle)}", reason="not_found", hints=[hint])


class ResultExpiredError(ToolFailure):
    """The result has expired, or was removed to make room."""

    def __init__(self, handle: str, removed: bool) -> None:
        why = "it was removed to make room for newer ones" if removed else "its time is up"
        super().__init__(
            f"Result has expired: {handle_shown(handle)} ({why})",
            reason="expired",
            hints=["run again what gave the result"],
        )


class ResultTooLargeError(ToolFailure):
    """It is there, but more than can be had at once."""

    def __init__(self, handle: str, size: int, most: int) -> None:
        super().__init__(
            f"the result has {size:,} bytes, more than the {most:,} that can be read at once: "
            f'read it in parts, with ot.result(handle="{handle}", offset=1, limit=100)',
            reason="too_large",
        )


class NotStoredError(ToolFailure):
    """The result could not be stored: too large, or a disk error."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="not_stored")


def missing_error(handle: str, ended: EndedResult | None, now: float) -> ToolFailure:
    """Why there is no result: "expired" is told from "unknown" for a day."""
    if ended is None or ended.is_forgotten(now):
        return HandleNotFoundError(handle)
    return ResultExpiredError(handle, ended.removed)


def unreadable_error(error: Exception) -> ToolFailure:
    return ToolFailure(f"the result can't be read: {error}", reason="source_unavailable")


def handle_shown(handle: object) -> str:
    """A handle inside a message: whatever it holds, it stays short and on its line."""
    text = handle if isinstance(handle, str) else f"a {type(handle).__name__}"
    text = text if len(text) <= LONGEST_SHOWN_HANDLE else f"{text[:LONGEST_SHOWN_HANDLE]}…"
    return text if text.isprintable() else ascii(text)


# The note


class ResultNote(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says of its text. `masked` is the handle, masked."""

    masked: str
    name: str | None
    size: int
    lines: int
    head: str

    def kept(self, file: str, owner: str, at: float) -> KeptResult:
        """As its owner knows it. For anybody else the handle is a wrong one."""
        handle = masked(self.masked, file, owner)
        return KeptResult(handle=handle, name=self.name, at=at, size=self.size, lines=self.lines, head=self.head)


def note_of(text: str, name: str | None, handle: str, file: str, owner: str) -> Callable[[int, int], ResultNote]:
    """The note on a text, once its size and its lines are known."""
    facts = {
        "masked": masked(handle, file, owner),
        "name": name and _sayable(name[:LONGEST_NAME]),
        "head": _sayable(text[:LONGEST_HEAD]),
    }
    return lambda size, lines: ResultNote(**facts, size=size, lines=lines)


def masked(handle: str, file: str, owner: str) -> str:
    """The handle, masked; of one that is masked, the handle. `file` is the name of the file without its suffix."""
    from hashlib import blake2b  # listing tools does not need it

    pad = blake2b(f"{file} {owner}".encode("utf-8", "surrogatepass"), digest_size=16, person=b"handle").digest()
    return bytes(one ^ other for one, other in zip(bytes.fromhex(handle), pad, strict=True)).hex()


def written_note(note: ResultNote, seal: bytes) -> bytes:
    """The end of a file. The seal is unknown to whoever wrote the text, so that no text ends like this."""
    return sealed_note(msgspec.json.encode(note), seal)


def sealed_note(data: bytes, seal: bytes) -> bytes:
    return data + len(data).to_bytes(_NUMBER, "little") + seal[::-1]  # an index ends with it the right way round


def read_note(stream: BinaryIO, seal: bytes) -> tuple[int, bytes]:
    """Where the note begins, and the note: at the end of the file, and empty, where there is none."""
    size = stream.seek(0, SEEK_END)
    most = min(size, LONGEST_NOTE)
    stream.seek(size - most)
    ending = stream.read(most)
    if len(ending) < _NUMBER + SEAL or ending[-SEAL:] != seal[::-1]:
        return size, b""
    end = most - _NUMBER - SEAL
    length = int.from_bytes(ending[end:-SEAL], "little")
    if length > end:
        raise OSError("what is known of it is broken")
    return size - (most - end) - length, ending[end - length : end]


def _sayable(text: str) -> str:
    """Without halves of characters, which JSON can't say."""
    return text.encode("utf-8", "replace").decode()
