"""`~/.onetool/trust.json`: which folders a person trusts, what these reached at that moment, and whose files count.

    {"version": 1,
     "folders": {"/real/path/.onetool": {"at": …, "reaches": {…}, "packs": {…}, "files": {…}, "accepted": […]}},
     "owners": {"/real/path": {"at": …, "uid": 1000, "writable": false}}}

It is never in a project, and a file that others can write is none. Written whole or not at all, one writer at a time.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from onetool.config.owners import foreign

FILE = "trust.json"
VERSION = 1
LARGEST = 16 * 1024 * 1024

Kept = dict[str, dict[str, Any]]


class Store:
    """What is kept; read when it is first asked for."""

    def __init__(self, own: Path) -> None:
        """`own` is the person's `.onetool`."""
        self.file = own / FILE
        self._read: dict[str, Kept] | None = None

    @property
    def folders(self) -> Kept:
        return self._content()["folders"]

    @property
    def owners(self) -> Kept:
        return self._content()["owners"]

    def folder(self, folder: Path) -> dict[str, Any] | None:
        return self.folders.get(os.path.realpath(folder))

    def change(self, change: Callable[[dict[str, Kept]], None]) -> None:
        """Read it anew, change it and write it. Raises OSError: then it is as it was."""
        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(self.file):
            content = _content_of(self.file)
            change(content)
            text = msgspec.json.format(msgspec.json.encode({"version": VERSION, **content}), indent=1)
            _write(self.file, text)
        self._read = content

    def _content(self) -> dict[str, Kept]:
        if self._read is None:
            self._read = _content_of(self.file)
        return self._read


def _content_of(file: Path) -> dict[str, Kept]:
    """What can't be read, or what others could have written, trusts nobody."""
    found: Any = None
    with suppress(OSError, msgspec.DecodeError, RecursionError):
        if foreign(file, file.parent.parent, {}) is None and file.stat().st_size <= LARGEST:
            found = msgspec.json.decode(file.read_bytes())
    found = found if isinstance(found, dict) and found.get("version") == VERSION else {}
    return {part: _kept(found.get(part)) for part in ("folders", "owners")}


def _kept(found: Any) -> Kept:
    return {key: one for key, one in found.items() if isinstance(one, dict)} if isinstance(found, dict) else {}


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # not on this system
        yield
        return
    with open(file.with_name(f".{file.name}.lock"), "a") as lock:  # never deleted: a new one would be another lock
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(file: Path, data: bytes) -> None:
    from secrets import token_hex  # most only read

    file = Path(os.path.realpath(file))  # a link of the person's own stays a link
    draft = file.with_name(f".{file.name}.{token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(file)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
