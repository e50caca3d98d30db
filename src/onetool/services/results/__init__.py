"""Results that are too large to send are kept, and read page by page by their handle.

`Results` is what can be done with them. `ResultStore` keeps them in a folder; `database.DatabaseResults` in PostgreSQL.

In a folder, results are plain files, so that other processes can read them, too. A file's name is a hash of handle and
owner: a handle is never a path, another owner's result is simply not found, and listing the folder tells no handle. A
result that has ended leaves a line in the list of its day (`ended-19000`), so that "expired" can be told from
"unknown". A large text is followed by an index of its lines and a seal, which is made of the file's name: no text can
end like that. At the end of each file stands what is known of the text, for its owner (see `base`).
"""

import logging
import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time
from typing import BinaryIO

import msgspec

from onetool.core.call import Page as Page
from onetool.core.os_files import private
from onetool.core.state_folders import make_state_folder
from onetool.services.results.base import (
    DAY,
    SEAL,
    EndedResult,
    HandleNotFoundError,
    KeptResult,
    NotStoredError,
    ResultNote,
    Results,
    StoredResult,
    bytes_of,
    check_room,
    encoded,
    is_handle,
    key_of,
    missing_error,
    note_of,
    read_note,
    unreadable_error,
    written_note,
)
from onetool.services.results.base import ResultExpiredError as ResultExpiredError
from onetool.services.results.base import ResultTooLargeError as ResultTooLargeError
from onetool.services.results.paging import (
    Position,
    TextLines,
    in_memory,
    pieces,
)
from onetool.services.results.paging import fitting as fitting
from onetool.services.results.paging import is_page as is_page

SMALL = 1024 * 1024  # bytes that are read as a whole in no time
_ENDING = 3 * 8 + SEAL


def write(stream: BinaryIO, text: str, seal: bytes) -> tuple[int, int, int]:
    """Write it piece by piece. Returns how much was written, the text's size and its lines."""
    firsts, columns, starts, size, position = array("Q"), array("Q"), array("Q"), 0, Position()
    for piece in pieces(text):
        data = encoded(piece)
        stream.write(data)
        firsts.append(position.line)
        columns.append(position.column)
        starts.append(size)
        position.go_past(piece)
        size += len(data)
    if size <= SMALL:
        return size, size, position.total
    facts = array("Q", [size, position.total, len(starts)])
    index = b"".join(numbers.tobytes() for numbers in (firsts, columns, starts, facts)) + seal
    stream.write(index)
    return size + len(index), size, position.total


class StoredText:
    """One that is open for reading. OSError and UnicodeDecodeError, where the file is not as it was written."""

    def __init__(self, stream: BinaryIO, seal: bytes) -> None:
        self._stream = stream
        self.size, _ = read_note(stream, seal)
        self._lines = self._indexed(seal)

    def read(self) -> str:
        """The whole text."""
        return self._decoded(0, self.size)

    def lines(self) -> TextLines:
        return self._lines or in_memory(self.read())

    def _indexed(self, seal: bytes) -> TextLines | None:
        """The lines by way of the index, where there is one; then `size` no longer includes it."""
        end = self.size - _ENDING
        if self.size <= SMALL or (ending := self._bytes(end, self.size))[-SEAL:] != seal:
            return None
        self.size, total, count = array("Q", ending[:-SEAL])
        if self.size + 3 * count * 8 != end:
            raise OSError("its index is broken")
        numbers = array("Q", self._bytes(self.size, end))
        firsts, columns, starts = numbers[:count], numbers[count : 2 * count], numbers[2 * count :]
        starts.append(self.size)
        return TextLines(firsts, columns, total, lambda number: self._decoded(starts[number], starts[number + 1]))

    def _decoded(self, start: int, end: int) -> str:
        return self._bytes(start, end).decode("utf-8", "surrogatepass")

    def _bytes(self, start: int, end: int) -> bytes:
        self._stream.seek(start)
        data = self._stream.read(end - start)
        if len(data) != end - start:
            raise OSError("a part of it is missing")
        return data


# The store


log = logging.getLogger("onetool.results")

_MINUTE = 60
MOST_LISTED = 10_000  # files that are looked at for a list: the newest
_ABANDONED = 5 * _MINUTE  # who lives writes on
_FILE = re.compile(r"[0-9a-f]{32}\.txt")
_DRAFT = re.compile(r"\.[0-9a-f]{32}\.txt")
_LIST = re.compile(r"ended-([0-9]+)")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


class ResultStore(Results):
    """In a folder. Keeps texts for `ttl_s` seconds, and no more than `max_total_mb` in all: the oldest go first.

    Any number of processes may share a folder. There is no lock: a file appears and vanishes as a whole, all agree
    on which one is the oldest, and each takes away what is too much after it has added something.
    """

    def __init__(self, folder: Path, ttl_s: float, max_total_mb: int, now: Callable[[], float] = time) -> None:
        super().__init__(ttl_s, max_total_mb)
        self._folder = folder
        self._now = now
        self._bytes_to_sweep = 0  # bytes to write before the folder is looked through again …
        self._next_sweep = 0.0  # … and until when at the latest

    def put(self, text: str, owner: str = "", name: str | None = None) -> StoredResult:
        check_room(bytes_of(text), self._most)
        handle = os.urandom(16).hex()
        file = self._file(handle, owner)
        try:
            written, note = self._write(file, text, note_of(text, name, handle, file.stem, owner))
        except OSError as error:
            raise NotStoredError(f"the result could not be kept: {self._folder}: {error.strerror or error}") from error
        self._bytes_to_sweep -= written
        if self._bytes_to_sweep < 0 or self._now() >= self._next_sweep:
            self.sweep()
        return StoredResult(handle, note.size, note.lines)

    def kept(self, owner: str = "") -> Iterator[KeptResult]:
        now = self._now()
        try:
            files = sorted(self._files(now), reverse=True)
        except FileNotFoundError:  # nothing was ever stored
            return
        for at, _, name in files[:MOST_LISTED]:
            if at + self._ttl > now and (found := self._owned(self._folder / name, owner, at)) is not None:
                yield found

    def _owned(self, file: Path, owner: str, at: float) -> KeptResult | None:
        with suppress(OSError, msgspec.DecodeError, ValueError), open(file, "rb", 0) as stream:  # gone, or not of ours
            if data := read_note(stream, seal_of(file))[1]:
                kept = msgspec.json.decode(data, type=ResultNote).kept(file.stem, owner, at)
                return kept if self._file(kept.handle, owner) == file else None
        return None

    def remove(self, handle: str, owner: str = "") -> None:
        with self._opened(handle, owner):
            pass
        try:
            self._file(handle, owner).unlink(missing_ok=True)
        except OSError as error:
            raise unreadable_error(error) from error

    @contextmanager
    def _opened(self, handle: str, owner: str) -> Iterator[StoredText]:
        """The file, which is there until it is closed, whoever removes it meanwhile."""
        if not is_handle(handle):
            raise HandleNotFoundError(handle)
        file = self._file(handle, owner)
        try:
            stream = open(file, "rb")  # noqa: SIM115 - closed below
        except FileNotFoundError:
            raise missing_error(handle, self._listed(file.name), self._now()) from None
        except OSError as error:
            raise unreadable_error(error) from error
        with stream:
            ended = EndedResult(file.name, os.fstat(stream.fileno()).st_mtime + self._ttl, removed=False)
            if (now := self._now()) >= ended.at:
                raise missing_error(handle, ended, now)
            try:
                yield StoredText(stream, seal_of(file))
            except (OSError, UnicodeDecodeError) as error:
                raise unreadable_error(error) from error

    def sweep(self) -> None:
        now = self._now()
        try:
            files = self._files(now)
        except OSError as error:
            log.warning("old results are not removed: %s: %s", self._folder, error)
            return
        over = [EndedResult(name, at + self._ttl, removed=False) for at, _, name in files if at + self._ttl <= now]
        files = sorted(file for file in files if file[0] + self._ttl > now)
        total = sum(size for _, size, _ in files)
        if total > self._most:  # somewhat more than needed, or every single put would have to look
            enough = self._most - self._most // 16
            for _, size, name in files[:-1]:
                if total <= enough:
                    break
                over.append(EndedResult(name, now, removed=True))
                total -= size
        self._remove(over)
        self._bytes_to_sweep = (self._most - total) // 8  # others may be writing as well
        self._next_sweep = now + _MINUTE

    def _files(self, now: float) -> list[tuple[float, int, str]]:
        """The results that are there: when each was put, its size, its name. Drafts and lists that are old go."""
        files: list[tuple[float, int, str]] = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(OSError):  # another process was quicker
                    about = entry.stat(follow_symlinks=False)
                    listed = _LIST.fullmatch(entry.name)
                    if _FILE.fullmatch(entry.name):
                        files.append((about.st_mtime, about.st_size, entry.name))
                    elif listed and int(listed[1]) < now // DAY - 1:
                        os.unlink(entry.path)
                    elif _DRAFT.fullmatch(entry.name) and about.st_mtime < now - _ABANDONED:
                        os.unlink(entry.path)  # its writer did not live to finish it
        return files

    def _remove(self, over: Iterable[EndedResult]) -> None:
        """Listed first: at no moment is a handle unknown. But what can't be listed has to go nevertheless."""
        days, now = dict[int, list[str]](), self._now()
        for ended in over:
            if not ended.is_forgotten(now):
                line = f"{ended.name} {ended.at:.3f} {'removed' if ended.removed else 'expired'}\n"
                days.setdefault(int(ended.at // DAY), []).append(line)
        for day, lines in days.items():
            with suppress(OSError), open(self._list(day), "ab", opener=private) as stream:
                stream.write("".join(lines).encode())
        for ended in over:
            with suppress(OSError):
                (self._folder / ended.name).unlink()

    def _listed(self, name: str) -> EndedResult | None:
        today = int(self._now() // DAY)
        for day in (today, today - 1):
            with suppress(OSError, ValueError):  # no such list, or a line that a full disk has cut off
                _, found, rest = self._list(day).read_bytes().partition(f"{name} ".encode())
                if found:
                    at, why = rest.split(b"\n", 1)[0].split()
                    return EndedResult(name, float(at), why == b"removed")
        return None

    def _list(self, day: int) -> Path:
        return self._folder / f"ended-{day}"

    def _file(self, handle: str, owner: str) -> Path:
        return self._folder / f"{key_of(handle, owner)}.txt"

    def _write(self, file: Path, text: str, note: Callable[[int, int], ResultNote]) -> tuple[int, ResultNote]:
        make_state_folder(self._folder)
        draft = file.with_name(f".{file.name}")
        try:
            with os.fdopen(os.open(draft, _NEW, 0o600), "wb") as stream:
                written, size, lines = write(stream, text, seal_of(file))
                check_room(written, self._most)
                about = note(size, lines)
                ending = written_note(about, seal_of(file))
                if written + len(ending) <= self._most:  # else it can be read, but is not listed
                    written += stream.write(ending)
            now = self._now()
            os.utime(draft, (now, now))
            draft.replace(file)
        except BaseException:
            with suppress(OSError):
                draft.unlink()
            raise
        return written, about


def seal_of(file: Path) -> bytes:
    return bytes.fromhex(file.stem)
