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
    replaced: dict[str, int] = {}  # token digest -> its sessions that expire by then have ended

    def has_ended(self, session: LoginSession) -> bool:
        until = max(self.ended_until, self.replaced.get(session.digest, 0))
        return session.id in self.ended or session.expires <= until

    def ending(self, ended: dict[str, int], now: float, until: int = 0) -> "LoginSessionState":
        """Return the state after ending these sessions and all that expire by `until`."""
        left = {id: expires for id, expires in (self.ended | ended).items() if expires > now}
        until = max(self.ended_until, until)
        if len(left) > MAX_ENDED:
            until = max(until, sorted(left.values())[-MAX_ENDED - 1])
            left = {id: expires for id, expires in left.items() if expires > until}
        return msgspec.structs.replace(self, ended=left, ended_until=until)

    def replacing(self, token: bytes, until: int, now: float) -> "LoginSessionState":
        left = {digest: expires for digest, expires in self.replaced.items() if expires > now}
        return msgspec.structs.replace(self, replaced=left | {token_digest(self.key, token): until})

    def joining(self, other: "LoginSessionState", now: float) -> "LoginSessionState":
        """Return the state with the sessions ended in another state, which has the same key."""
        replaced = {
            digest: max(self.replaced.get(digest, 0), other.replaced.get(digest, 0))
            for digest in self.replaced | other.replaced
        }
        joined = self.ending(other.ended, now, other.ended_until)
        return msgspec.structs.replace(joined, replaced=replaced)

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
