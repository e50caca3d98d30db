"""What is known of a stored result besides its text. It stands at the end of the file, so that both go together.

No file tells its handle: it is masked with a hash of its owner. So whoever reads a folder of somebody else's results
can't ask a server for them, and an owner finds their own alone, whichever process has stored them.
"""

from collections.abc import Callable
from os import SEEK_END
from typing import BinaryIO

import msgspec

from onetool.core.errors import ToolFailure
from onetool.services.results.errors import HandleNotFoundError, NotStoredError, ResultExpiredError
from onetool.services.results.paging import pieces

DAY = 86_400
LONGEST_HEAD = 200  # characters
LONGEST_NAME = 200
LONGEST_NOTE = 4096  # bytes; what we write is shorter, also if each character takes six
_NUMBER = 8
SEAL = 16


class StoredResult(msgspec.Struct, frozen=True):
    """A result that is kept: the handle to read it by, its size in bytes of UTF-8, and its lines."""

    handle: str
    size: int
    lines: int


class EndedResult(msgspec.Struct, frozen=True):
    """A result that is over. `name` is its file, or its key."""

    name: str
    at: float
    removed: bool  # before its time, to make room

    def is_forgotten(self, now: float) -> bool:
        return self.at + DAY <= now


class KeptResult(msgspec.Struct, frozen=True, kw_only=True):
    """One stored result. `name` is the tool that it came from, where that is known; `at` is when it was stored."""

    handle: str
    name: str | None
    at: float
    size: int
    lines: int
    head: str


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


def missing_error(handle: str, ended: EndedResult | None, now: float) -> ToolFailure:
    """Why there is no result: "expired" is told from "unknown" for a day."""
    if ended is None or ended.is_forgotten(now):
        return HandleNotFoundError(handle)
    return ResultExpiredError(handle, ended.removed)


def masked(handle: str, file: str, owner: str) -> str:
    """The handle, masked; of one that is masked, the handle. `file` is the name of the file without its suffix."""
    from hashlib import blake2b  # listing tools does not need it

    pad = blake2b(f"{file} {owner}".encode("utf-8", "surrogatepass"), digest_size=16, person=b"handle").digest()
    return bytes(one ^ other for one, other in zip(bytes.fromhex(handle), pad, strict=True)).hex()


def note_of(text: str, name: str | None, handle: str, file: str, owner: str) -> Callable[[int, int], ResultNote]:
    """The note on a text, once its size and its lines are known."""
    facts = {
        "masked": masked(handle, file, owner),
        "name": name and _sayable(name[:LONGEST_NAME]),
        "head": _sayable(text[:LONGEST_HEAD]),
    }
    return lambda size, lines: ResultNote(**facts, size=size, lines=lines)


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
