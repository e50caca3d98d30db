"""Credentials: who a request comes from, by what it shows: a token, a session of the page, a JWT, or nothing.

    http.token        role admin; it shares what stays with the command line, such as sessions of `ask`
    a named token     of the config or of `onetool tokens add`: what it was given, until it expires or is revoked
    a session         made with one of these; it may what its token may, and ends with it
    a JWT             what its scopes and claims are granted (`http.jwt`), until it expires; no session is made with one
    nothing           only where no credential is configured: role edit

A server that is for calls only (`--tool-allow`, `http.admin: false`) caps every role at call.
"""

import hmac
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec.structs import replace

from onetool.config.access import OWN_TOKEN
from onetool.core.principal import Principal
from onetool.interfaces.asgi import HttpError
from onetool.interfaces.http.jwt_token import looks_like_jwt
from onetool.interfaces.http.login_sessions import PREFIX, LoginSession, LoginSessions

if TYPE_CHECKING:
    from onetool.app.access import KnownTokens
    from onetool.config.model import HttpConfig
    from onetool.interfaces.http.jwt_verifier import JwtVerifier

SHORTEST_TOKEN = 16  # characters
CHALLENGE = (b"www-authenticate", b'Bearer realm="onetool"')
NOBODY = Principal(role="edit")


class Credentials:
    """What a server accepts. Built at start and at each reload, then only read."""

    def __init__(
        self,
        http: "HttpConfig",
        tokens: "KnownTokens | None" = None,
        sessions: LoginSessions | None = None,
        calls_only: bool = False,
        jwt: "JwtVerifier | None" = None,
    ) -> None:
        """`tokens` are the named ones. Without `sessions` nobody can sign in. `calls_only` caps all roles."""
        self.jwt = jwt
        self.sessions = sessions
        self._tokens = tokens
        self._own = _digest(http.token.encode()) if http.token else None
        self._admin = _admin(http.token) if http.token else NOBODY
        self._accepts_jwt = http.jwt is not None
        self._is_capped = calls_only

    @property
    def needed(self) -> bool:
        """Whether a request has to show something."""
        return self._own is not None or self._accepts_jwt or bool(self._tokens)

    def identify(self, authorization: bytes | None) -> Principal:
        """Who a request comes from, by its header Authorization. Raises HttpError (401)."""
        if not self.needed:
            return self.capped(NOBODY)
        shown = bearer(authorization)
        found = None if shown is None else self.find(shown)
        if found is None:
            raise unauthorized_error(authorization)
        return found

    async def verify(self, authorization: bytes | None) -> None:
        """Verify a JWT that was not seen before: `identify` knows it then. Raises JwtError."""
        shown = bearer(authorization)
        if self.jwt is None or shown is None or not looks_like_jwt(shown) or self.find(shown) is not None:
            return
        await self.jwt.verify(shown)

    def find(self, shown: bytes) -> Principal | None:
        """Whose token or session this is. Raises HttpError (401) for one that counts no more."""
        if shown.startswith(PREFIX.encode()):
            session = self.session(shown)
            return None if session is None else self._of_session(session)
        if self.jwt is not None and looks_like_jwt(shown) and (principal := self.jwt.known(shown)):
            return self.capped(principal)
        return self.find_token(shown)

    def find_token(self, shown: bytes) -> Principal | None:
        """Whose token this is. A JWT is none: nobody signs in with one, as it ends soon."""
        return self._of_digest(_digest(shown))

    def session(self, shown: bytes) -> LoginSession | None:
        """The session, if it is valid: its token has not changed, and it was not ended."""
        if self.sessions is None:
            return None
        return self.sessions.read(shown.decode("latin-1"), self._digest_named)

    def start_session(self, shown: bytes, principal: Principal) -> tuple[str, LoginSession]:
        """A new session for who has shown this token. It may wait for a file."""
        assert self.sessions is not None  # noqa: S101 - a server has them
        return self.sessions.start(_digest(shown), principal.name, principal.expires)

    def give_way_to(self, new: "Credentials") -> None:
        """End the sessions of http.token, unless the new one is the same."""
        if self.sessions is not None and self._own is not None and self._own != new._own:
            self.sessions.replace_token(self._own)

    def _of_session(self, session: LoginSession) -> Principal | None:
        digest = self._digest_named(session.name)
        return None if digest is None else self._of_digest(digest)

    def _of_digest(self, digest: bytes) -> Principal | None:
        # Digests, so that not even the length of the token shows in the time that the comparison takes.
        if self._own is not None and hmac.compare_digest(digest, self._own):
            return self.capped(self._admin)
        found = None if self._tokens is None else self._tokens.find(digest)
        if found is None:
            return None
        if found.refusal is not None:
            raise HttpError(401, "unauthorized", found.refusal, [CHALLENGE])
        return self.capped(found.principal)

    def _digest_named(self, name: str) -> bytes | None:
        if name == OWN_TOKEN:
            return self._own
        return None if self._tokens is None else self._tokens.digest_of(name)

    def capped(self, principal: Principal) -> Principal:
        """The principal as this server takes it."""
        if not self._is_capped or principal.role == "call":
            return principal
        return replace(principal, role="call", is_capped=True)


def bearer(authorization: bytes | None) -> bytes | None:
    """What stands behind `Bearer` in the header."""
    scheme, _, rest = (authorization or b"").partition(b" ")
    shown = rest.strip(b" ")
    # No regular expression: it would take five times as long for a JWT as all the rest.
    return shown if scheme.lower() == b"bearer" and shown.split() == [shown] else None


def missing_token(http: "HttpConfig", tokens: "KnownTokens | None" = None) -> str | None:
    """What is missing for a server that other machines can reach: a token, long enough not to be guessed."""
    if http.token is not None:
        return None if len(http.token) >= SHORTEST_TOKEN else f"a token of at least {SHORTEST_TOKEN} characters"
    return None if tokens or http.jwt is not None else "a token"


def unauthorized_error(authorization: bytes | None) -> HttpError:
    """The error for a request without a token, or with something else in its place."""
    shown = bearer(authorization)
    if shown is not None and shown.startswith(PREFIX.encode()):
        message = "This session has ended, or is not one of this server: sign in again, with POST /login."
    else:
        what = "This server needs a token" if authorization is None else "This is no token of this server"
        how = "send one as `Authorization: Bearer …`; it is http.token in its config, or made by `onetool tokens add`"
        message = f"{what}: {how}."
    return HttpError(401, "unauthorized", message, [CHALLENGE])


def _admin(token: str) -> Principal:
    """Who shows http.token. What is stored for it is not there for who shows another one later."""
    owner = sha256(b"principal:" + token.encode()).hexdigest()[:16]
    return Principal(name=OWN_TOKEN, owner=owner, role="admin", is_local=True)


def _digest(token: bytes) -> bytes:
    return sha256(token).digest()
