"""`LoginSessions` starts, checks and ends the sessions of users who have signed in with a token.

A session is signed data held by the client: the name of its token, a keyed digest of that token, an expiry time, and a
random id. So no session has to be stored, and a changed token invalidates its sessions.

The key is random. A document has the key and the ids of sessions that ended before they expired. It is shared by all
processes of the state folder, or by all replicas. Deleting the document ends all sessions.
"""

import hmac
import time
from collections.abc import Callable
from contextlib import suppress
from secrets import token_bytes, token_hex

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

PREFIX = "ots_"
LIFETIME_S = 12 * 3600
SKEW_S = 60  # by which a clock may be ahead
MAX_SESSION = 1000  # characters; ours are shorter
MAX_WAIT_S = 2.0  # for the lock of the document
_BOUND = b"login session:"


class LoginSessions:
    """The sessions of one state folder or of all replicas. In all methods, `token` is the digest of a token."""

    def __init__(self, documents: Documents, clock: Callable[[], float] = time.time) -> None:
        self._documents = documents
        self._clock = clock
        self._known: tuple[Version, LoginSessionState | None] = (None, None)  # version and content

    def start(self, token: bytes, name: str = OWN_TOKEN, until: float | None = None) -> tuple[str, LoginSession]:
        """Start a session for the token with this name; return its text for the client, and the session.

        May wait for a lock. Raises DatabaseError and OSError if there is no key yet and none can be stored.
        """
        state = self._state() or self._change(lambda state: state)
        expires = max(int(self._clock()) + LIFETIME_S, state.ended_until + 1)
        expires = expires if until is None else min(expires, int(until))
        session = LoginSession(name, token_digest(state.key, token), expires, token_hex(16))
        return PREFIX + sign(state.key, msgspec.json.encode(session), _BOUND), session

    def read(self, text: str, digest_of: "Callable[[str], bytes | None]") -> LoginSession | None:
        """Return the session; None if it is not ours, its token has changed, or it has expired or ended.

        `digest_of` returns the current digest of the token with a name.
        """
        if not text.startswith(PREFIX) or len(text) > MAX_SESSION or (state := self._state()) is None:
            return None
        if (data := verify(state.key, text.removeprefix(PREFIX), _BOUND)) is None:
            return None
        session = msgspec.json.decode(data, type=LoginSession)
        token = digest_of(session.name)
        if token is None or not hmac.compare_digest(session.digest, token_digest(state.key, token)):
            return None
        if state.has_ended(session) or not 0 < session.expires - self._clock() <= LIFETIME_S + SKEW_S:
            return None
        return session

    def end(self, session: LoginSession) -> None:
        """End a session in all processes. May wait for a lock. Raises DatabaseError and OSError."""
        self._change(lambda state: state.ending(session, self._clock()))

    def _state(self) -> LoginSessionState | None:
        """Return the stored state. Reads it only if it has changed."""
        with suppress(DatabaseError):
            version = self._documents.version(DOCUMENT)
            if self._known[0] != version:
                version, body = self._documents.load(DOCUMENT)
                state, before = read_session_state(body), self._known[1]
                if state is not None and before is not None and state.key == before.key:
                    state = state.joining(before)
                self._known = version, state  # both at once: other threads read them
            return self._known[1]
        return None

    def _change(self, change: "Callable[[LoginSessionState], LoginSessionState]") -> LoginSessionState:
        """Change the state, under the lock of the document."""
        with self._documents.locked(DOCUMENT, MAX_WAIT_S) as held:
            state = change(read_session_state(held.load().body) or LoginSessionState(token_bytes(KEY_BYTES)))
            held.write(msgspec.json.encode(state))
        return state
