"""OAuth 2 by a person's login (grant `authorizationCode`): the login itself, and the tokens that come of it.

    onetool bundles login BUNDLE -> the browser -> a code -> tokens, beside those of MCP servers

A login belongs to one bundle, and there to all tools with the same authorization server, client and scope. Its tokens
are sent to the origins that those tools had when the person logged in, and to no other. Calls ask nobody: without a
login, or when it has ended, they fail with the command to type.
"""

import asyncio
import hashlib
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from msgspec.structs import replace

from onetool.core.context import current_call
from onetool.core.errors import ToolFailure
from onetool.database.documents import Documents, Version
from onetool.http.auth import AUTH_POINTER, Authenticator, AuthTexts, Signer, with_header
from onetool.http.client import FetchedToken
from onetool.http.definition import OAuth2, below
from onetool.http.errors import AuthError, RequestRefusedError, RequestTimeoutError, in_short
from onetool.http.login import (
    LOGIN_S,
    MAX_QUOTED,
    HeldLogin,
    LoginStore,
    Say,
    StoredLogin,
    browser_login,
)
from onetool.http.oauth import TokenEndpoint, TokenRefusedError
from onetool.http.placeholders import Lookup, TemplateError, refused_at
from onetool.http.url import HttpRequest, Url, parse_url

if TYPE_CHECKING:
    from onetool.http.client import HttpContext

EXCHANGE_S = 20.0  # for a code, or a refresh token, to become a token
MARGIN_S = 30.0  # before its end that a token is no longer used
KEY_LENGTH = 16  # characters of a login's key in its name


class LoginAuthenticator(Authenticator):
    """Uses the login of a person. `target` is where the tool's requests go; None if that depends on the call."""

    asks_elsewhere = True

    def __init__(self, auth: OAuth2, arguments: Collection[str], target: Url | None, bundle: str | None) -> None:
        self.auth = auth
        self._bundle = bundle
        self._texts = AuthTexts(auth, ("client_id", "client_secret", "scope"), arguments)
        super().__init__(self._texts.placeholders)
        self._endpoint = HttpRequest("POST", _endpoint_url(auth.token_url, "tokenUrl"), [], b"")
        self._login_page = _endpoint_url(auth.authorization_url, "authorizationUrl")
        self._secrets_in_page = AuthTexts(auth, ("client_id", "scope"), arguments).secrets
        if self._texts.arguments:
            name = min(self._texts.arguments)
            raise TemplateError(f"a login can't depend on an argument, and `{name}` is one", AUTH_POINTER)
        if target is None:
            raise TemplateError("with a login the host has to be written out", "/request/urlTemplate")
        self.origin = origin_of(target)
        self._seen: tuple[str, Version, StoredLogin] | None = None  # which login, its version, and what it was

    def begin(self, args: Mapping[str, Any], secret: Lookup, context: "HttpContext") -> Signer:
        return _LoginSigner(self.login(secret, context), self._read)

    def destinations(self, target: Url | None) -> "Iterator[tuple[frozenset[str], Url]]":
        yield self.secrets, self._endpoint.url
        yield self._secrets_in_page, self._login_page

    def login(self, secret: Lookup, context: "HttpContext") -> "ToolLogin":
        """Return the login that the tool needs, with the secrets of now."""
        if context.logins is None or self._bundle is None:
            raise ToolFailure("there is nowhere to keep a login: only tools of bundles have one", reason="denied")
        for names, url in self.destinations(None):
            for name in names:
                context.check_secret(name, url)
        filled = self._texts.fill({}, secret)
        endpoint = TokenEndpoint(self.auth, self._texts, filled, self._endpoint, secret, context)
        return ToolLogin(endpoint, self._bundle, context.logins)

    async def _read(self, store: LoginStore) -> StoredLogin:
        """Return what is kept. It is read again when it has changed."""
        seen = self._seen
        if seen is None or seen[0] != store.name or seen[1] != store.version():
            seen = self._seen = (store.name, *await asyncio.to_thread(store.load))
        return seen[2]


class ToolLogin:
    """One login: of one bundle, at one authorization server, as one client, for one scope."""

    def __init__(self, endpoint: TokenEndpoint, bundle: str, logins: Documents) -> None:
        self.auth, self.filled, self.endpoint = endpoint.auth, endpoint.filled, endpoint
        auth, client, scope = self.auth, self.filled["client_id"], self.filled["scope"]
        about = (bundle, auth.authorization_url, auth.token_url, auth.issuer, client, scope)
        self.key = hashlib.sha256(msgspec.json.encode(about)).hexdigest()
        self.store = LoginStore(logins, f"{_of_bundle(bundle)}{self.key[:KEY_LENGTH]}", auth.token_url, self.key)

    async def save(
        self, granted: FetchedToken, before: StoredLogin, held: HeldLogin, origins: tuple[str, ...]
    ) -> StoredLogin:
        """Keep new tokens. A refresh token that is not replaced is good for more."""
        tokens = {"access_token": granted.access, "refresh_token": granted.refresh, "scope": granted.scope}
        login = replace(
            before,
            tokens={**(before.tokens or {}), **{key: value for key, value in tokens.items() if value}},
            expires_at=None if granted.life is None else time.time() + granted.life,
            origins=origins,
        )
        await held.save(login)
        return login


def stored_logins(logins: Documents, bundle: str) -> list[str]:
    """Return the names of all logins of a bundle, also of those that none of its tools needs any more."""
    name = re.compile(f"{re.escape(_of_bundle(bundle))}[0-9a-f]{{{KEY_LENGTH}}}")
    return list(filter(name.fullmatch, logins.keys()))


def _of_bundle(bundle: str) -> str:
    """Return how the names of its logins begin. The dot tells them from those of servers, whose names have none."""
    return f"bundle.{bundle}-"


class _LoginSigner(Signer):
    def __init__(self, login: ToolLogin, read: Callable[[LoginStore], Awaitable[StoredLogin]]) -> None:
        self._login, self._read = login, read
        self._stored: StoredLogin | None = None
        self._refused: str | None = None

    async def prepare(self, left: float) -> None:
        try:
            stored = await self._read(self._login.store)
            if stored.tokens and self._is_spent(stored):
                # The refresh goes on when its call is cancelled or has no time left: a refresh token may be good for
                # one use only, and if the one that came for it were not kept, the login would be lost.
                task = asyncio.create_task(self._refresh())
                _running.add(task)
                task.add_done_callback(_ended)
                async with asyncio.timeout(left):
                    stored = await asyncio.shield(task)
        except TimeoutError:
            raise RequestTimeoutError("the login was not refreshed", left) from None
        except AuthError as error:
            raise ToolFailure(str(error), reason="source_unavailable") from None
        if not stored.tokens:
            raise _needs_login("it needs a login")
        for key in ("access_token", "refresh_token"):
            if value := stored.tokens.get(key):
                self._login.endpoint.context.mask_also(value)
        self._stored = stored

    def sign(self, request: HttpRequest) -> HttpRequest:
        stored, origin = self._stored, origin_of(request.url)
        if stored is None or stored.tokens is None:
            raise _needs_login("it needs a login")
        if origin not in stored.origins:
            raise RequestRefusedError(
                f"the login is only for requests to {', '.join(stored.origins)}, and this one goes to {origin}",
                [f"if that is meant, log in again: {login_command()}"],
            )
        return with_header(request, "Authorization", f"Bearer {stored.tokens['access_token']}")

    def on_unauthorized(self) -> bool:
        """Once: a token may have been taken back."""
        if self._refused is not None or self._stored is None or self._stored.tokens is None:
            return False
        self._refused = self._stored.tokens["access_token"]
        return True

    async def _refresh(self) -> StoredLogin:
        """Return new tokens, or those that another process has got meanwhile."""
        async with self._login.store.locked() as held:
            stored = (await held.load())[1]
            if not stored.tokens or not self._is_spent(stored):
                return stored
            refresh = stored.tokens.get("refresh_token")
            if not refresh:
                raise _needs_login("its login has ended")
            self._login.endpoint.context.mask_also(refresh)
            await held.check()
            form = {"grant_type": "refresh_token", "refresh_token": refresh}
            try:
                granted = await self._login.endpoint.ask(form, EXCHANGE_S)
            except TokenRefusedError as refused:
                if refused.status not in (400, 401, 403) or refused.fault != "invalid_grant":
                    raise
                await held.clear(replace(stored, tokens=None, expires_at=None))
                raise _needs_login("its login has ended") from None
            return await self._login.save(granted, stored, held, stored.origins)

    def _is_spent(self, stored: StoredLogin) -> bool:
        access, ends = (stored.tokens or {}).get("access_token"), stored.expires_at
        return access in (None, self._refused) or (ends is not None and time.time() >= ends - MARGIN_S)


_running: set[asyncio.Task[StoredLogin]] = set()  # the loop alone does not keep them


def _ended(task: asyncio.Task[StoredLogin]) -> None:
    _running.discard(task)
    if not task.cancelled():
        task.exception()  # marks it as retrieved, also if no one waits any more


def _needs_login(why: str) -> ToolFailure:
    return ToolFailure(f"{why}: {login_command()}", reason="denied", hints=(f"run: {login_command()}",))


def login_command() -> str:
    """Return what a person types for the tool that is called."""
    context = current_call.get()
    name = "BUNDLE" if context is None else context.spec.name
    bundle, dot, tool = name.partition(".")
    if dot and "/" not in bundle:
        name = f"{bundle.replace('_', '-')}/{tool.replace('_', '-')}"
    return f"onetool bundles login {name}"


def origin_of(url: Url) -> str:
    return f"{url.scheme}://{url.authority}"


def _endpoint_url(text: str, key: str) -> Url:
    """Return a fixed address that is encrypted, or on this machine."""
    pointer = below(AUTH_POINTER, key)
    if not text:
        raise TemplateError(f"the grant authorizationCode needs {key}", pointer)
    if "${" in text:
        raise TemplateError("has to be written out: what a person logs in to can't depend on a call", pointer)
    with refused_at(pointer):
        url = parse_url(text)
    if not url.is_unseen:
        raise TemplateError(f"{origin_of(url)} is not encrypted: write https://", pointer)
    return url


# The login itself: a page in the browser, an answer to a listener on this machine, and a code for tokens.


async def log_in(
    login: ToolLogin,
    name: str,
    origins: Iterable[str],
    say: Say,
    browse: Say | None = None,
    seconds: float = LOGIN_S,
) -> str | None:
    """Have a person log in, and keep what comes of it for requests to `origins`. The scope that was granted, if told.

    Whatever ends it: what was kept before is as it was.
    """
    allowed = tuple(origins)
    say(f"Whoever answers at {', '.join(allowed)} will get the token of this login.")
    verifier, state = token_urlsafe(64), token_urlsafe(32)
    try:
        async with browser_login(name, login.auth.redirect_port, say, browse, seconds) as callback:
            answer = await callback(_page_url(login, callback.redirect_uri, verifier, state))
            _check_issuer(login.auth, answer.get("iss"))
            form = {
                "grant_type": "authorization_code",
                "code": answer["code"],
                "redirect_uri": callback.redirect_uri,
                "code_verifier": verifier,
            }
            granted = await login.endpoint.ask(form, EXCHANGE_S)
            async with login.store.locked() as held:  # nothing of another login counts
                kept = await login.save(granted, login.store.empty, held, allowed)
                return (kept.tokens or {}).get("scope")
    except ToolFailure as failure:
        raise AuthError("; ".join([str(failure), *failure.hints])) from None


def _page_url(login: ToolLogin, redirect_uri: str, verifier: str, state: str) -> str:
    """Return the login page. `authorizationUrl` may have a query of its own, which stays."""
    challenge = urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    asked = {
        "response_type": "code",
        "client_id": login.filled["client_id"],
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    if login.filled["scope"]:
        asked["scope"] = login.filled["scope"]
    page = login.auth.authorization_url.partition("#")[0]
    joint = "&" if "?" in page else "?"
    return f"{page}{joint}{urlencode(asked, quote_via=quote)}"


def _check_issuer(auth: OAuth2, issuer: str | None) -> None:
    """Raise AuthError for an answer of another authorization server than the one that was asked (RFC 9207): the issuer
    that the tool names, or else one of the same origin as the login page."""
    page, there = urlsplit(auth.authorization_url), None
    with suppress(ValueError):
        there = urlsplit(issuer or auth.authorization_url)
    is_same = there is not None and (there.scheme, there.netloc.lower()) == (page.scheme, page.netloc.lower())
    if issuer is not None and not (issuer == auth.issuer if auth.issuer else is_same):
        known = auth.issuer or f"{page.scheme}://{page.netloc}"
        answered = in_short(issuer, MAX_QUOTED)
        raise AuthError(f"the answer to the login is of {answered}, and not of {known} (`issuer` in the tool's auth)")
