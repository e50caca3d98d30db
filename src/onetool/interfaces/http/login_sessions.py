"""`LoginSessions` makes, checks and ends the sessions of people who have signed in with the token of the server.

A session is signed data that the client holds: whose token it was made with, a keyed digest of that token, when it
expires, and a random id. So nothing is stored for a session, and with another token in the config it is not valid.

The key is random. It lies in one file of the state folder, with the ids of sessions that were ended before they
expired. All processes of this state folder share the file, and see by its time that it has changed. Who deletes it ends
all sessions. Where the file can't be written, the key and the ids are in the memory of this process.
"""

import hmac
import logging
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_bytes, token_hex
from threading import Lock

import msgspec

from onetool.core import flock
from onetool.core.os_files import open_no_link
from onetool.core.private_file import private, replace_file, write_new
from onetool.interfaces.signed import sign, verify

log = logging.getLogger("onetool.serve")

HAS_OWNERS = hasattr(os, "geteuid")  # and modes that say who can read

PREFIX = "ots_"
LIFETIME_S = 12 * 3600
MOST_ENDED = 10_000  # ids that are remembered
KEY_BYTES = 32
LARGEST_FILE = 4 * 1024**2  # bytes; ours are smaller
LONGEST_SESSION = 1000  # characters; ours are shorter
PATIENCE_S = 2.0  # to wait for another process that writes the file
TOKEN_NAME = "token"  # noqa: S105 - the name of the only token that a config has
_BOUND = b"login session:"
_SHOWN = re.compile(rf"\b{PREFIX}[A-Za-z0-9_-]{{40,}}")  # names of tools are shorter


class LoginSession(msgspec.Struct, frozen=True):
    """What a session says."""

    name: str
    digest: str  # of the token, keyed
    expires: int
    id: str


class _SessionState(msgspec.Struct, frozen=True):
    """The content of the file."""

    key: bytes
    ended: dict[str, int] = {}  # when each of them would have expired
    ended_until: int = 0  # all that expire until then have ended, too: their ids were too many to remember

    def has_ended(self, session: LoginSession) -> bool:
        return session.id in self.ended or session.expires <= self.ended_until

    def ending(self, session: LoginSession, now: float) -> "_SessionState":
        left = {id: expires for id, expires in self.ended.items() if expires > now} | {session.id: session.expires}
        until = self.ended_until
        if len(left) > MOST_ENDED:
            until = max(until, min(left.values()))
            left = {id: expires for id, expires in left.items() if expires > until}
        return _SessionState(self.key, left, until)

    def __repr__(self) -> str:
        return "_SessionState(***)"


class LoginSessions:
    """The sessions of one state folder. `token` is a digest of the configured token in all methods."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._file = folder / "sessions.json"
        self._clock = clock
        self._lock = Lock()
        self._seen: tuple[int, ...] | None = None
        self._kept: _SessionState | None = None  # what the file says
        self._own: _SessionState | None = None  # what could not be written

    def start(self, token: bytes) -> tuple[str, LoginSession]:
        """A new session, as text for the client. It may wait for a file."""
        state = self._from_file() or self._own or self._change(lambda state: state)
        expires = int(self._clock()) + LIFETIME_S
        session = LoginSession(TOKEN_NAME, _token_digest(state.key, token), expires, token_hex(16))
        return PREFIX + sign(state.key, msgspec.json.encode(session), _BOUND), session

    def read(self, text: str, token: bytes) -> LoginSession | None:
        """The session; None if it is not ours, was made with another token, has expired, or was ended."""
        if not text.startswith(PREFIX) or len(text) > LONGEST_SESSION:
            return None
        states = [state for state in (self._from_file(), self._own) if state is not None]
        session = next(filter(None, (_verified(state.key, text, token) for state in states)), None)
        if session is None or session.expires <= self._clock():
            return None
        return None if any(state.has_ended(session) for state in states) else session

    def end(self, session: LoginSession) -> None:
        """End it at once, in all processes of the state folder. It may wait for a file."""
        self._change(lambda state: state.ending(session, self._clock()))

    def _from_file(self) -> _SessionState | None:
        """What the file says now. It is read only if it has changed."""
        try:
            found = os.stat(self._file, follow_symlinks=False)
            stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
        except OSError:
            self._seen = self._kept = None
            return None
        if stamp != self._seen:
            self._kept, self._seen = _read_state(self._file), stamp
        return self._kept

    def _change(self, change: "Callable[[_SessionState], _SessionState]") -> _SessionState:
        """Change what is kept, under the lock of the file; in memory where it can't be written."""
        with self._lock:
            try:
                return self._write(change)
            except OSError as error:
                if self._own is None:
                    why = error.strerror or error
                    log.warning("sessions end with this process: %s can't be written (%s)", self._file, why)
                self._own = change(self._own or self._from_file() or _new_state())
                return self._own

    def _write(self, change: "Callable[[_SessionState], _SessionState]") -> _SessionState:
        folder = self._file.parent
        if folder.is_symlink():
            raise OSError("its folder is a link, which state is not")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_new(folder / ".gitignore", "*\n")
        lock = flock.take_path(folder / ".lock", _open_lock, PATIENCE_S)
        if lock is None:
            raise OSError("another process holds its lock")
        try:
            state = change(_read_state(self._file) or _new_state())
            replace_file(self._file, msgspec.json.encode(state))
        finally:
            flock.give_back(lock)
        return state


def mask_sessions(text: str) -> str:
    """The text without sessions, for logs."""
    return _SHOWN.sub(f"{PREFIX}***", text) if PREFIX in text else text


def _new_state() -> _SessionState:
    return _SessionState(token_bytes(KEY_BYTES))


def _open_lock(path: Path) -> int:
    return private(path, os.O_RDWR | os.O_CREAT)


def _token_digest(key: bytes, token: bytes) -> str:
    """Keyed: the client that holds a session learns nothing about the token from it."""
    return hmac.digest(key, b"token:" + token, sha256).hex()


def _verified(key: bytes, text: str, token: bytes) -> LoginSession | None:
    data = verify(key, text.removeprefix(PREFIX), _BOUND)
    if data is None:
        return None
    session = msgspec.json.decode(data, type=LoginSession)
    return session if hmac.compare_digest(session.digest, _token_digest(key, token)) else None


def _read_state(file: Path) -> _SessionState | None:
    """None if there is none that counts: who else could read or write the file could make sessions."""
    with suppress(OSError, msgspec.MsgspecError):
        handle = open_no_link(file, os.O_RDONLY)
        with os.fdopen(handle, "rb") as stream:
            status = os.fstat(handle)
            if HAS_OWNERS and (status.st_uid != os.geteuid() or status.st_mode & 0o077):
                return None
            state = msgspec.json.decode(stream.read(LARGEST_FILE), type=_SessionState)
        return state if len(state.key) == KEY_BYTES else None
    return None
