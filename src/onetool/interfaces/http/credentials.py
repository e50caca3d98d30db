"""Credentials: who a request comes from, by what it shows: a token, a session of the page, a JWT, or nothing.

    http.token        role admin; it shares what stays with the command line, such as sessions of `ask`
    a named token     of the config or of `onetool tokens add`: what it was given, until it expires or is revoked
    a session         made with one of these; it may what its token may, and ends with it
    an owner session  made with a link of `onetool page`, on one machine, without `cluster`: role admin
    a JWT             what its scopes and claims are granted (`http.jwt`), until it expires; no session is made with one
    nothing           only where no credential is configured, on one machine, without `cluster`: role edit; and with
                      `http.local`, for requests that come straight from this machine: that role

A server that is for calls only (`--tool-allow`, `http.admin: false`) caps every role at call.

A stream may last for hours. Meanwhile its token may be revoked, or expire, or be given other tools; or its session is
ended. `Admissions` checks each request that lasts every 0.4 s, as if it came now, and ends it if it is not let in.
"""

import asyncio
import hmac
from collections.abc import Callable
from contextvars import ContextVar
from hashlib import sha256
from time import time
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from onetool.app.access import needs_credential
from onetool.config.model import OWN_TOKEN
from onetool.core.principal import OWNER, Principal, Role, current_address, current_principal, is_admitted
from onetool.http.asgi import HttpError, Scope
from onetool.interfaces.http.jwt_token import looks_like_jwt
from onetool.interfaces.http.login_sessions import PREFIX, LoginSession, LoginSessions

if TYPE_CHECKING:
    from onetool.app.access import KnownTokens, TokenTable
    from onetool.config.model import HttpConfig
    from onetool.interfaces.http.jwt_verifier import JwtVerifier
    from onetool.services.access_tokens import TokenMemory, TokenView
    from onetool.services.page_links import ServedLinks

MIN_TOKEN = 16  # characters
CHALLENGE = (b"www-authenticate", b'Bearer realm="onetool"')
UNCHECKED = "Credentials can't be checked now: the server's log says why."
MAX_ADMITTED = 10_000  # callers that are remembered
NOBODY = Principal(role="edit")
_SESSION = PREFIX.encode()


class Credentials:
    """What a server accepts. Built at start and at each reload, then only read."""

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
        """`tokens` are the named ones. Without `sessions` nobody can sign in. `calls_only` caps all roles.
        `is_reachable`: from other machines, so that something has to be shown in any case. `links` open owner sessions.
        `local` is the role of requests that come straight from this machine and show nothing.
        """
        self.jwt = jwt
        self.sessions = sessions
        self.links = links
        self.local = local
        self._http = http
        self._tokens = tokens
        self._own = _digest(http.token.encode()) if http.token else None
        self._admin = _admin(http.token) if http.token else NOBODY
        self._nobody = Principal(role=http.local or NOBODY.role)
        self._is_capped = calls_only
        self._is_closed = is_reachable or needs_credential(http, None)  # whatever is stored
        self._admitted: tuple[TokenView | None, dict[bytes, Principal]] = (None, {})  # for what was stored then

    @property
    def memory(self) -> "TokenMemory | None":
        """What was seen of named tokens: the credentials that come after a reload go on with it."""
        return None if self._tokens is None else self._tokens.store.memory

    @property
    def needed(self) -> bool:
        """Whether a request has to show something."""
        return self._is_closed or (self._tokens is not None and self._tokens.store.guards)

    def identify(
        self, authorization: bytes | None, stored: "TokenView | None" = None, is_local: bool = False
    ) -> Principal:
        """Return who a request comes from, by its header Authorization. Raises HttpError (401, 503).

        Holders of tokens are remembered by the hash of the header, until the stored tokens change or theirs expires.
        Sessions and JWTs are looked at each time: a session may have been ended, the issuer's keys may have changed.
        `stored` are the stored tokens, if somebody has just looked. `is_local`: it came straight from this machine.
        """
        if authorization is None and is_local and self.local is not None:
            return self.capped(self._nobody)
        stored = stored or self.stored_tokens()
        if stored is not self._admitted[0]:
            self._admitted = stored, {}  # both at once: other threads read them
        admitted, key = self._admitted[1], sha256(authorization or b"").digest()
        if (principal := admitted.get(key)) and (principal.expires is None or principal.expires > time()):
            return principal
        shown = bearer(authorization)
        principal = None if shown is None else self._find(shown, self._table(stored))
        if principal is None:
            if self.needed:
                is_stored = shown is not None and not (self.jwt is not None and looks_like_jwt(shown))
                self.require_current(is_stored)
                raise unauthorized_error(authorization, self._http)
            principal = self.capped(self._nobody)
        if shown is None or not (shown.startswith(_SESSION) or (self.jwt is not None and looks_like_jwt(shown))):
            if len(admitted) >= MAX_ADMITTED:
                del admitted[next(iter(admitted))]
            admitted[key] = principal
        return principal

    def require_current(self, is_stored: bool = True) -> None:
        """Raise HttpError (503) if the stored tokens could never be read; or, for what may be a stored token, if they
        can't be read now: one that is unknown here may be valid.
        """
        store = None if self._tokens is None else self._tokens.store
        if store is not None and (store.view().is_away or (is_stored and store.is_away)):
            raise HttpError(503, "database_away", UNCHECKED, [(b"retry-after", b"1")])

    def stored_tokens(self) -> "TokenView | None":
        return None if self._tokens is None else self._tokens.store.view()

    async def verify(self, authorization: bytes | None) -> Principal | None:
        """Return whose JWT this is, which `identify` did not know; None if it isn't one. Raises JwtError, HttpError."""
        shown = bearer(authorization)
        if self.jwt is None or shown is None or not looks_like_jwt(shown):
            return None
        return self.capped(await self.jwt.verify(shown))

    def current(self, principal: Principal) -> Principal:
        """Return a principal of another replica as it is now. Raises HttpError (401) if it is no longer accepted."""
        if not principal.name:
            return self.identify(None, is_local=True)  # the other one has looked where it came from
        table = self._table()
        digest = self._digest_named(principal.name, table)
        if digest is not None and (found := self._of_digest(digest, table)) is not None:
            return found
        if self._tokens is not None and self._tokens.store.is_away:
            return self.capped(principal)  # the other one knows of tokens that are new here
        if self.jwt is None or principal.expires is None or principal.expires <= time():  # a JWT is not kept
            raise unauthorized_error(None, self._http)
        return self.capped(principal)

    def _find(self, shown: bytes, table: "TokenTable | None") -> Principal | None:
        """Return whose token or session this is. Raises HttpError (401) for one that counts no more."""
        if shown.startswith(_SESSION):
            session = self._read_session(shown, table)
            digest = None if session is None else self._digest_named(session.name, table)
            return None if digest is None else self._of_digest(digest, table)
        if self.jwt is not None and looks_like_jwt(shown) and (principal := self.jwt.known(shown)):
            return self.capped(principal)
        return self._of_digest(_digest(shown), table)

    def find_token(self, shown: bytes) -> Principal | None:
        """Return whose token this is. A JWT doesn't count: nobody signs in with one, as it ends soon."""
        return self._of_digest(_digest(shown), self._table())

    def session(self, shown: bytes) -> LoginSession | None:
        """Return the session if it is valid: its token has not changed, and it was not ended."""
        return self._read_session(shown, self._table())

    def start_session(self, shown: bytes, principal: Principal) -> tuple[str, LoginSession]:
        """Start a session of the principal that has shown this token. May wait for a file."""
        return self._start(_digest(shown), principal)

    def open_link(self, key: str) -> "tuple[str, LoginSession] | None":
        """Start a session of the owner, who has shown the key of a link; None if it does not count. Blocks.

        Raises DatabaseError and TimeoutError.
        """
        if self.links is None or not self.links.use(key):
            return None
        return self._start(self.links.digest, OWNER)

    def _start(self, digest: bytes, principal: Principal) -> tuple[str, LoginSession]:
        assert self.sessions is not None  # noqa: S101 - a server has them
        return self.sessions.start(digest, principal.name, principal.expires)

    def give_way_to(self, new: "Credentials") -> None:
        """End the sessions of http.token, unless the new one is the same."""
        if self.sessions is not None and self._own is not None and self._own != new._own:
            self.sessions.replace_token(self._own)

    def _table(self, stored: "TokenView | None" = None) -> "TokenTable | None":
        return None if self._tokens is None else self._tokens.table(stored)

    def _read_session(self, shown: bytes, table: "TokenTable | None") -> LoginSession | None:
        if self.sessions is None:
            return None
        return self.sessions.read(shown.decode("latin-1"), lambda name: self._digest_named(name, table))

    def _of_digest(self, digest: bytes, table: "TokenTable | None") -> Principal | None:
        # Digests, so that not even the length of the token shows in the time that the comparison takes.
        if self._own is not None and hmac.compare_digest(digest, self._own):
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
        """Return the principal with the role that this server allows it."""
        if not self._is_capped or principal.role == "call":
            return principal
        return replace(principal, role="call", is_capped=True)


def bearer(authorization: bytes | None) -> bytes | None:
    """Return the token after `Bearer` in the header."""
    scheme, _, rest = (authorization or b"").partition(b" ")
    shown = rest.strip(b" ")
    # No regular expression: it would take five times as long for a JWT as all the rest.
    return shown if scheme.lower() == b"bearer" and shown.split() == [shown] else None


def missing_token(http: "HttpConfig", tokens: "KnownTokens | None" = None) -> str | None:
    """Return what a server lacks that other machines can reach: a token, long enough not to be guessed."""
    if http.token is not None and len(http.token) < MIN_TOKEN:
        return f"a token of at least {MIN_TOKEN} characters"
    has_any = needs_credential(http, None) or (tokens is not None and tokens.store.has_any)
    return None if has_any else "a token"


def unauthorized_error(authorization: bytes | None, http: "HttpConfig") -> HttpError:
    """Return the error for a request without a token, or with a wrong one."""
    shown = bearer(authorization)
    if shown is not None and shown.startswith(_SESSION):
        message = "This session has ended, or is not one of this server: sign in again, with POST /login."
    else:
        what = "This server needs a token" if authorization is None else "This is not a token of this server"
        where = "http.token in its config, or made by `onetool tokens add`"  # which may be done at any time
        if http.jwt is not None:
            own = "http.token in its config, " if http.token else ""
            where = f"a JWT of {http.jwt.issuer}, {own}or made by `onetool tokens add`"
        message = f"{what}: send one as `Authorization: Bearer …`; it is {where}."
    return HttpError(401, "unauthorized", message, [CHALLENGE])


def _admin(token: str) -> Principal:
    """Return the principal of http.token. What it stores isn't there for the holder of another token later."""
    owner = sha256(b"principal:" + token.encode()).hexdigest()[:16]
    return Principal(name=OWN_TOKEN, owner=owner, role="admin", shares_local_state=True)


def _digest(token: bytes) -> bytes:
    return sha256(token).digest()


# Requests that last longer than their caller is let in


CHECK_EVERY_S = 0.4  # between two looks: the calls of a revoked token end within half a second


class Admission(msgspec.Struct, eq=False):
    """One request. `identify` says who it would come from if it came now."""

    identify: Callable[[], Principal]
    principal: Principal
    task: "asyncio.Task[Any] | None"
    since: float
    is_over: bool = False

    def is_valid(self) -> bool:
        """Return whether the caller would still be let in, with the rights that it had when the request began."""
        try:
            return self.identify() == self.principal
        except HttpError:
            return False


current_admission: ContextVar[Admission | None] = ContextVar("current_admission", default=None)


class Admissions:
    """The requests under way. It belongs to one event loop."""

    def __init__(self) -> None:
        self._open: set[Admission] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, scope: Scope, principal: Principal, address: str, identify: Callable[[], Principal]) -> None:
        """Set who it is for all that the request does. `identify` says who it would be if it came now."""
        loop = asyncio.get_running_loop()
        admission = Admission(identify, principal, asyncio.current_task(loop), loop.time())
        scope["principal"], scope["admission"] = principal, admission
        current_principal.set(principal)
        current_address.set(address)
        is_admitted.set(admission.is_valid)
        current_admission.set(admission)
        self._open.add(admission)
        if self._timer is None:
            self._timer = loop.call_later(CHECK_EVERY_S, self._look)

    def end(self, admission: Admission) -> None:
        self._open.discard(admission)
        # The task holds us, in its context. What holds itself stays until somebody looks for such garbage, and all that
        # a request has made with it: the next ones would find no memory that is still in the processor's caches.
        admission.task = None

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(CHECK_EVERY_S, self._look) if self._open else None
        latest = loop.time() - CHECK_EVERY_S
        for admission in [one for one in self._open if one.since <= latest]:
            if not admission.is_valid() and admission.task is not None:
                admission.is_over = True
                admission.task.cancel()
