"""The stored state of login sessions: the key that signs them, and which of them have ended.

Clients hold the sessions themselves: see `interfaces/http/login_sessions.py`.
"""

import hmac
from contextlib import suppress
from hashlib import sha256

import msgspec

from onetool.core.flock import KEY_BYTES

DOCUMENT = "sessions"
MAX_ENDED = 10_000  # remembered ids


class LoginSession(msgspec.Struct, frozen=True):
    """The content of a session."""

    name: str
    digest: str  # of the token, keyed
    expires: int
    id: str


class LoginSessionState(msgspec.Struct, frozen=True):
    key: bytes
    ended: dict[str, int] = {}  # id -> when the session would have expired
    ended_until: int = 0  # sessions that expire by then have ended too: too many ids to remember

    def has_ended(self, session: LoginSession) -> bool:
        return session.id in self.ended or session.expires <= self.ended_until

    def ending(self, session: LoginSession, now: float) -> "LoginSessionState":
        """Return the state after ending a session."""
        left = {id: expires for id, expires in self.ended.items() if expires > now} | {session.id: session.expires}
        until = self.ended_until
        if len(left) > MAX_ENDED:
            until = max(until, sorted(left.values())[-MAX_ENDED - 1])
            left = {id: expires for id, expires in left.items() if expires > until}
        return msgspec.structs.replace(self, ended=left, ended_until=until)

    def joining(self, before: "LoginSessionState") -> "LoginSessionState":
        """Return the state with the sessions ended in an earlier state: this one may be older, from a backup."""
        until = max(self.ended_until, before.ended_until)
        return msgspec.structs.replace(self, ended=before.ended | self.ended, ended_until=until)

    def __repr__(self) -> str:
        return "LoginSessionState(***)"


def token_digest(key: bytes, token: bytes) -> str:
    """Return a keyed digest, which tells the holder of a session nothing about the token."""
    return hmac.digest(key, b"token:" + token, sha256).hex()


def read_session_state(body: bytes | None) -> LoginSessionState | None:
    """Read the document; None if it is missing or invalid."""
    with suppress(msgspec.MsgspecError):
        state = None if body is None else msgspec.json.decode(body, type=LoginSessionState)
        return state if state is not None and len(state.key) == KEY_BYTES else None
    return None
