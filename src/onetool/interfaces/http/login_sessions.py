"""`LoginSessions` starts, checks and ends the sessions of users who have signed in with a token.

A session is signed data held by the client: the name of its token, a keyed digest of that token, an expiry time, and a
random id. So no session has to be stored, and a changed token invalidates its sessions. If a reload replaces the token,
its sessions end and stay ended, even if the old token returns.

The key is random. A document has the key and the ids of sessions that ended before they expired. It is shared by all
processes of the state folder, or by all replicas. Deleting the document ends all sessions. While the document can't be
written, this process keeps the ids in memory. In a state folder, new sessions then use another key, which is also kept
in memory. Replicas continue with the known key, and write the ids when the database is available again.
"""

import hmac
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from secrets import token_bytes, token_hex
from threading import Lock, Thread
from time import sleep

import msgspec

from onetool.config.model import OWN_TOKEN
from onetool.core.signed import sign, verify
from onetool.database import DatabaseError
from onetool.database.documents import Documents, Version
from onetool.services.page_sessions import (
    DOCUMENT,
    KEY_BYTES,
    LoginSession,
    LoginSessionState,
    read_session_state,
    token_digest,
)

log = logging.getLogger("onetool.serve")
PREFIX = "ots_"
LIFETIME_S = 12 * 3600
SKEW_S = 60  # by which a clock may be ahead
MAX_SESSION = 1000  # characters; ours are shorter
RETRY_S = 0.5  # between two attempts to write ended sessions while the database is unavailable
MAX_WAIT_S = 2.0  # for the lock of the document
_BOUND = b"login session:"


class SessionNotEndedError(Exception):
    """Raised when a session has ended only in this process, because the shared document can't be written."""


class LoginSessions:
    """The sessions of one state folder or of all replicas. In all methods, `token` is the digest of a token."""

    def __init__(self, documents: Documents, clock: Callable[[], float] = time.time) -> None:
        self._documents = documents
        self._clock = clock
        self._lock = Lock()
        self._known: tuple[Version, LoginSessionState | None] = (None, None)  # version and content
        self._own: LoginSessionState | None = None  # changes that could not be written
        self._replaced: dict[bytes, int] = {}  # as in the state, by token: for when the state can't be written

    def start(self, token: bytes, name: str = OWN_TOKEN, until: float | None = None) -> tuple[str, LoginSession]:
        """Start a session for the token with this name; return its text for the client, and the session. May wait for a
        lock. Raises DatabaseError if the replicas' key is unknown.
        """
        state = self._shared() if self._own is None or self._documents.is_shared else None
        state = state or self._change(lambda state: state)
        digest = token_digest(state.key, token)
        ended = max(self._replaced.get(token, 0), state.replaced.get(digest, 0))
        expires = max(int(self._clock()) + LIFETIME_S, ended + 1)
        expires = expires if until is None else min(expires, int(until))
        session = LoginSession(name, digest, expires, token_hex(16))
        return PREFIX + sign(state.key, msgspec.json.encode(session), _BOUND), session

    def read(self, text: str, digest_of: "Callable[[str], bytes | None]") -> LoginSession | None:
        """Return the session; None if it is not ours, its token has changed, or it has expired or ended.

        `digest_of` returns the current digest of the token with a name.
        """
        if not text.startswith(PREFIX) or len(text) > MAX_SESSION:
            return None
        shared, own = self._shared(), self._own
        if own is not None and shared is not None and self._documents.is_shared and own.key != shared.key:
            own = None  # the document was deleted, which ended all sessions of its key
        states = [state for state in (shared, own) if state is not None]
        session = next(filter(None, (_verified(state.key, text, digest_of) for state in states)), None)
        token = None if session is None else digest_of(session.name)
        if session is None or token is None or not 0 < session.expires - self._clock() <= LIFETIME_S + SKEW_S:
            return None
        if session.expires <= self._replaced.get(token, 0):
            return None
        return None if any(state.has_ended(session) for state in states) else session

    def end(self, session: LoginSession) -> None:
        """End a session at once, in all processes of the state folder. May wait for a lock.

        Raises SessionNotEndedError if other processes still accept it.
        """
        self._change(lambda state: state.ending({session.id: session.expires}, self._clock()))
        if self._own is not None and self._shared() is not None:
            raise SessionNotEndedError

    def replace_token(self, token: bytes) -> None:
        """End all sessions of this replaced token: in this process at once, in others soon."""
        now = self._clock()
        until = self._replaced[token] = int(now) + LIFETIME_S
        if self._shared() is not None:
            change = partial(LoginSessionState.replacing, token=token, until=until, now=now)
            Thread(target=self._change, args=(change,), daemon=True).start()  # it may wait for a lock

    def _shared(self) -> LoginSessionState | None:
        """Return the stored state. Reads it only if it has changed."""
        try:
            version = self._documents.version(DOCUMENT)
        except DatabaseError:
            return None
        known = self._known
        if known[0] != version:
            known = self._known = self._read_anew(version)  # both at once: other threads read them
        return known[1]

    def _read_anew(self, version: Version) -> tuple[Version, LoginSessionState | None]:
        """Return the version and the state; None instead of the state if there is no valid one."""
        with suppress(DatabaseError):
            version, body = self._documents.load(DOCUMENT)
            state, before = read_session_state(body), self._known[1]
            if state is not None and before is not None and state.key == before.key:
                state = state.joining(before, self._clock())  # it may be older, from a backup
            return version, state
        return version, None

    def _change(self, change: "Callable[[LoginSessionState], LoginSessionState]") -> LoginSessionState:
        """Change the state, under the lock of the document; in memory if the document can't be written."""
        with self._lock:
            own = self._own
            try:
                with self._documents.locked(DOCUMENT, MAX_WAIT_S) as held:
                    state = change(self._with_own(read_session_state(held.load().body) or _new_state()))
                    held.write(msgspec.json.encode(state))
            except (OSError, DatabaseError) as error:
                base = own or (self._shared() if self._documents.is_shared else _new_state())
                if base is None:
                    raise
                self._own = change(base)  # in a folder never with the stored key, which others may replace
                if own is None:
                    place, why = self._documents.describe(DOCUMENT), getattr(error, "strerror", None) or error
                    log.warning("sessions end with this process: %s can't be written (%s)", place, why)
                    if self._documents.is_shared:
                        Thread(target=self._write_own, name="onetool-sessions", daemon=True).start()
                return self._own
            self._own = None
            return state

    def _write_own(self) -> None:
        """Write the ended sessions as soon as the database is available again. Runs in a thread."""
        while self._own is not None:
            sleep(RETRY_S)
            with suppress(OSError, DatabaseError):
                self._change(lambda state: state)

    def _with_own(self, state: LoginSessionState) -> LoginSessionState:
        """Add the sessions that ended while the document could not be written.

        Sessions signed with a key in memory end.
        """
        own, now = self._own, self._clock()
        if own is not None:
            state = state.ending(own.ended, now, own.ended_until)
            for token, until in self._replaced.items():
                state = state.replacing(token, until, now)
        return state


def _new_state() -> LoginSessionState:
    return LoginSessionState(token_bytes(KEY_BYTES))


def _verified(key: bytes, text: str, digest_of: "Callable[[str], bytes | None]") -> LoginSession | None:
    data = verify(key, text.removeprefix(PREFIX), _BOUND)
    if data is None:
        return None
    session = msgspec.json.decode(data, type=LoginSession)
    token = digest_of(session.name)
    if token is None or not hmac.compare_digest(session.digest, token_digest(key, token)):
        return None
    return session
