"""Authentication of requests: by a token, a session of the page, a JWT, or nothing.

    http.token        role admin; shares stored data, such as sessions of `ask`, with the command line
    a named token     of the config or of `onetool tokens add`: the rights it was given, until it expires or is revoked
    a session         started with one of these tokens; has the token's rights and ends with it
    an owner session  started with a link of `onetool page`, on one machine, without `cluster`: role admin
    a JWT             the grants for its scopes and claims (`http.jwt`), until it expires; can't start a session
    nothing           only for local requests, on one machine, without `cluster`: the role `http.local`; without it,
                      if no credential is configured or stored, the role edit

A calls-only server (`--tool-allow`, `http.admin: false`) caps every role at call.
"""

import hmac
from collections.abc import Callable
from hashlib import sha256
from time import time
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from onetool.app.access import MIN_TOKEN, has_credential, needs_credential
from onetool.config.model import OWN_TOKEN
from onetool.core.principal import LOCAL_CALLER, OWNER, Principal, Role
from onetool.http.asgi import HttpError
from onetool.interfaces.http.jwt_token import looks_like_jwt
from onetool.interfaces.http.login_sessions import PREFIX, LoginSession, LoginSessions

if TYPE_CHECKING:
    from onetool.app.access import KnownTokens, TokenTable
    from onetool.config.model import HttpConfig
    from onetool.interfaces.http.jwt_verifier import JwtVerifier
    from onetool.services.access_tokens import TokenMemory, TokenView
    from onetool.services.page_links import ServedLinks

CHALLENGE = (b"www-authenticate", b'Bearer realm="onetool"')
LOCAL_ONLY = (
    "Without a token, this server answers only programs and pages on its own machine that don't use a proxy. Create a "
    "token with `onetool tokens add`, and send it as `Authorization: Bearer …`."
)
UNCHECKED = "Credentials can't be checked now: the server's log says why."
MAX_ADMITTED = 10_000  # cached callers
_SESSION = PREFIX.encode()


class KnownCallers(NamedTuple):
    """The callers that were looked up while these tokens are stored."""

    stored: "TokenView | None"
    is_needed: bool  # whether requests need a credential
    local: Principal | None  # of local requests without one
    by_header: dict[bytes, Principal]  # by the hash of the header


class Credentials:
    """The credentials that a server accepts. They are created at startup and by each reload, and never change."""

    def __init__(
        self,
        http: "HttpConfig",
        tokens: "KnownTokens | None" = None,
        sessions: LoginSessions | None = None,
        calls_only: bool = False,
        jwt: "JwtVerifier | None" = None,
        is_reachable: bool = False,
        links: "ServedLinks | None" = None,
        local: Role | None = None,
    ) -> None:
        """Accept http.token and the named `tokens`. Without `sessions`, users can't sign in.

        `calls_only` caps all roles. `is_reachable` means that other machines can connect, so a credential is always
        required. `links` open owner sessions. `local` is the role of local requests without a credential where one is
        needed otherwise.
        """
        self.jwt = jwt
        self.sessions = sessions
        self.links = links
        self.local: Role | None = local
        self._http = http
        self._tokens = tokens
        self._own = _digest(http.token.encode()) if http.token else None
        self._admin = _admin(http.token) if http.token else None
        self._is_capped = calls_only
        self._is_closed = is_reachable or needs_credential(http, None)  # even without stored tokens
        self._known: KnownCallers | None = None

    @property
    def memory(self) -> "TokenMemory | None":
        """The memory of named tokens, which the credentials built by a reload take over."""
        return None if self._tokens is None else self._tokens.store.memory

    @property
    def needed(self) -> bool:
        """Whether requests need a credential."""
        return self._callers(self.stored_tokens()).is_needed

    def _callers(self, stored: "TokenView | None") -> "KnownCallers":
        """Return the callers known while these tokens are stored."""
        if self._known is None or self._known.stored is not stored:
            needed, tokens = self._is_closed, self._tokens
            if not needed and tokens is not None and stored is not None:
                needed = tokens.store.guards_with(stored)
            role = self.local or (None if needed else self._http.local or "edit")
            local = None if role is None else self.capped(Principal(role=role, owner=LOCAL_CALLER))
            self._known = KnownCallers(stored, needed, local, {})  # all at once: other threads read them
        return self._known

    def identify(
        self,
        authorization: bytes | None,
        stored: "TokenView | None" = None,
        is_local: Callable[[], bool] = lambda: False,
    ) -> Principal:
        """Return the caller of a request, by its header Authorization. Raises HttpError (401, 503).

        Callers with tokens are cached by the hash of the header, until the stored tokens change or the token expires.
        Sessions and JWTs are checked each time, because sessions may end and the issuer's keys may change. `stored` are
        the stored tokens, if they were just read. `is_local` returns whether the request came directly from this
        machine.
        """
        known = self._callers(stored or self.stored_tokens())
        if authorization is None and known.local is not None and is_local():
            return known.local
        admitted, key = known.by_header, sha256(authorization or b"").digest()
        if (principal := admitted.get(key)) and (principal.expires is None or principal.expires > time()):
            return principal
        shown = bearer(authorization)
        is_jwt = shown is not None and self.jwt is not None and looks_like_jwt(shown)
        principal = None if shown is None else self._find(shown, self._table(known.stored))
        if principal is None:
            if known.is_needed:
                self.require_current(is_stored=shown is not None and not is_jwt)
                raise unauthorized_error(authorization, self._http)
            if known.local is None or not is_local():
                raise HttpError(401, "unauthorized", LOCAL_ONLY, [CHALLENGE])
            return known.local
        if shown is not None and not is_jwt and not shown.startswith(_SESSION):
            if len(admitted) >= MAX_ADMITTED:
                del admitted[next(iter(admitted))]
            admitted[key] = principal
        return principal

    def require_current(self, is_stored: bool = True) -> None:
        """Raise HttpError (503) if the stored tokens could never be read; or, for a possible stored token, if they
        can't be read now, because an unknown token may be valid.
        """
        store = None if self._tokens is None else self._tokens.store
        if store is not None and (store.view().is_away or (is_stored and store.is_away)):
            raise HttpError(503, "database_away", UNCHECKED, [(b"retry-after", b"1")])

    def stored_tokens(self) -> "TokenView | None":
        return None if self._tokens is None else self._tokens.store.view()

    async def verify(self, authorization: bytes | None) -> Principal | None:
        """Return the caller of a JWT unknown to `identify`; None if this is not a JWT. Raises JwtError, HttpError."""
        shown = bearer(authorization)
        if self.jwt is None or shown is None or not looks_like_jwt(shown):
            return None
        return self.capped(await self.jwt.verify(shown))

    def current(self, principal: Principal) -> Principal:
        """Return a principal from another replica with its current rights. Raises HttpError (401) if it lost access."""
        if not principal.name:
            return self.identify(None, is_local=lambda: True)  # the other replica checked the address
        table = self._table()
        digest = self._digest_named(principal.name, table)
        if digest is not None and (found := self._of_digest(digest, table)) is not None:
            return found
        self.require_current()  # the other replica may know newer tokens
        if self.jwt is None or principal.expires is None or principal.expires <= time():  # JWTs are not stored
            raise unauthorized_error(None, self._http)
        return self.capped(principal)

    def _find(self, shown: bytes, table: "TokenTable | None") -> Principal | None:
        """Return the owner of a token or session. Raises HttpError (401) if it is no longer valid."""
        if shown.startswith(_SESSION):
            session = self._read_session(shown, table)
            digest = None if session is None else self._digest_named(session.name, table)
            return None if digest is None else self._of_digest(digest, table)
        if self.jwt is not None and looks_like_jwt(shown) and (principal := self.jwt.known(shown)):
            return self.capped(principal)
        return self._of_digest(_digest(shown), table)

    def find_token(self, shown: bytes) -> Principal | None:
        """Return the owner of a token. JWTs are ignored: they expire soon, so users don't sign in with them."""
        return self._of_digest(_digest(shown), self._table())

    def session(self, shown: bytes) -> LoginSession | None:
        """Return the session if it is valid: its token has not changed, and it has not ended."""
        return self._read_session(shown, self._table())

    def start_session(self, shown: bytes, principal: Principal) -> tuple[str, LoginSession]:
        """Start a session for the principal of this token. May block while another process holds the lock."""
        assert self.sessions is not None  # noqa: S101 - a server has sessions
        return self.sessions.start(_digest(shown), principal.name, principal.expires)

    def open_link(self, key: str) -> "tuple[str, LoginSession] | None":
        """Start a session of the owner with the key of a link. Return None if the key is not valid. Blocks.

        Raises DatabaseError and TimeoutError.
        """
        if self.links is None or self.sessions is None or not self.links.use(key):
            return None
        return self.sessions.start(self.links.digest, OWNER.name)

    def _table(self, stored: "TokenView | None" = None) -> "TokenTable | None":
        return None if self._tokens is None else self._tokens.table(stored)

    def _read_session(self, shown: bytes, table: "TokenTable | None") -> LoginSession | None:
        if self.sessions is None:
            return None
        return self.sessions.read(shown.decode("latin-1"), lambda name: self._digest_named(name, table))

    def _of_digest(self, digest: bytes, table: "TokenTable | None") -> Principal | None:
        # Comparing digests hides even the length of the token from timing.
        if self._own is not None and self._admin is not None and hmac.compare_digest(digest, self._own):
            return self.capped(self._admin)
        if self.links is not None and hmac.compare_digest(digest, self.links.digest):  # no token has this digest
            return self.capped(OWNER)
        found = None if table is None else table.find(digest)
        if found is None:
            return None
        if found.refusal is not None:
            raise HttpError(401, "unauthorized", found.refusal, [CHALLENGE])
        return self.capped(found.principal)

    def _digest_named(self, name: str, table: "TokenTable | None") -> bytes | None:
        if name == OWN_TOKEN:
            return self._own
        if name == OWNER.name:
            return None if self.links is None else self.links.digest
        return None if table is None else table.digests.get(name)

    def capped(self, principal: Principal) -> Principal:
        """Return the principal with its role capped for this server."""
        if not self._is_capped or principal.role == "call":
            return principal
        return replace(principal, role="call", is_capped=True)


def bearer(authorization: bytes | None) -> bytes | None:
    """Return the token after `Bearer` in the header."""
    scheme, _, rest = (authorization or b"").partition(b" ")
    shown = rest.strip(b" ")
    # A regular expression would take five times as long for a JWT as everything else.
    return shown if scheme.lower() == b"bearer" and shown.split() == [shown] else None


def missing_token(http: "HttpConfig", tokens: "KnownTokens | None" = None) -> str | None:
    """Describe the missing token of a server that other machines can reach.

    Return None if it has one that is long enough.
    """
    if http.token is not None and len(http.token) < MIN_TOKEN:
        return f"a token of at least {MIN_TOKEN} characters"
    has_any = has_credential(http) or (tokens is not None and tokens.store.has_any)
    return None if has_any else "a token"


def unauthorized_error(authorization: bytes | None, http: "HttpConfig") -> HttpError:
    """Return the error for a request with a missing or wrong token."""
    shown = bearer(authorization)
    if shown is not None and shown.startswith(_SESSION):
        message = "This session has ended or belongs to another server: sign in again with POST /login."
    else:
        what = "This server requires a token" if authorization is None else "Invalid token"
        where = "http.token of the server's config, or a token created with `onetool tokens add`"
        if http.jwt is not None:
            own = "http.token of the server's config, " if http.token else ""
            where = f"a JWT of {http.jwt.issuer}, {own}or a token created with `onetool tokens add`"
        message = f"{what}. Send `Authorization: Bearer …` with {where}."
    return HttpError(401, "unauthorized", message, [CHALLENGE])


def _admin(token: str) -> Principal:
    """Return the principal of http.token. A later, different token does not get its stored data."""
    owner = sha256(b"principal:" + token.encode()).hexdigest()[:16]
    return Principal(name=OWN_TOKEN, owner=owner, role="admin", shares_local_state=True)


def _digest(token: bytes) -> bytes:
    return sha256(token).digest()
