"""OAuth 2 for HTTP tools: tokens from client credentials, a refresh token, or a user's login.

Tokens of the first two stay in memory (`TokenCache`). Tokens of a login (the grant `authorizationCode`) are stored
like those of MCP servers:

    onetool bundles login BUNDLE -> the browser -> a code -> tokens

A login belongs to all tools of one bundle with the same authorization server, client and scope. Its tokens are sent
only to the origins that these tools had when the user logged in. Calls never prompt: without a valid login they fail
with the command to run. Every token is registered for masking before its use.
"""

import asyncio
import hashlib
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from secrets import token_urlsafe
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, quote_plus, urlencode, urlsplit

import msgspec
from msgspec.structs import replace

from onetool.core.context import current_call
from onetool.core.errors import ToolFailure
from onetool.core.json_data import JsonTooCostlyError
from onetool.core.redaction import MASK
from onetool.database.documents import Documents, Version
from onetool.http.auth import (
    AUTH_POINTER,
    Authenticator,
    AuthTexts,
    Destination,
    Signer,
    basic,
    check_length,
    with_header,
)
from onetool.http.body import json_of
from onetool.http.client import TOKEN_MARGIN, FetchedToken, HttpContext, TokenKey
from onetool.http.connection import HttpResponse
from onetool.http.definition import TOKEN_SECONDS, OAuth2, Request, below
from onetool.http.errors import AuthError, RequestRefusedError, RequestTimeoutError, in_short, quoted, with_message
from onetool.http.login import LOGIN_S, MAX_QUOTED, HeldLogin, LoginStore, Say, StoredLogin, browser_login
from onetool.http.placeholders import KnownNames, Lookup, TemplateError, refused_at
from onetool.http.template import RequestTemplate
from onetool.http.url import HttpRequest, Url, parse_url

EXCHANGE_S = 20.0  # for exchanging a code or a refresh token
MAX_LIFE_S = 10 * 366 * 86_400  # a longer lifetime is the server's mistake
MAX_ANSWER = 256 * 1024  # bytes
KEY_LENGTH = 16  # characters of the login's key in its document name
SENT_SECRETS = ("refresh_token", "code", "code_verifier")  # form fields that contain secrets

_SENDABLE = re.compile(r"[\x21-\x7e]+")
_UNFIT = re.compile(r"[^\x20-\x7e]+")


class TokenRefusedError(ToolFailure):
    """The token endpoint issued no token. `fault` is its error code, such as invalid_grant."""

    fault = ""
    status = 0


class TokenEndpoint(NamedTuple):
    """`tokenUrl` of an `auth`, with the credentials of its client. `request` is an empty POST to it."""

    auth: OAuth2
    texts: AuthTexts
    filled: dict[str, str]
    request: HttpRequest
    secret: Lookup
    context: HttpContext

    def __repr__(self) -> str:
        return "TokenEndpoint(***)"

    async def ask(self, form: dict[str, str], left: float) -> FetchedToken:
        """Send the form within `left` seconds. Raise ToolFailure if no token is returned."""
        client, hosts, filled = self.context.client, self.context.hosts, self.filled
        headers = [("Content-Type", "application/x-www-form-urlencoded"), ("Accept", "application/json")]
        sent = dict(form)
        if self.auth.client_auth == "body" or not filled["client_secret"]:
            sent["client_id"] = filled["client_id"]
            if filled["client_secret"]:
                sent["client_secret"] = filled["client_secret"]
        else:
            # RFC 6749 requires both to be form-encoded first.
            login = basic(quote_plus(filled["client_id"]), quote_plus(filled["client_secret"]))
            for part in self.texts.derived(login.removeprefix("Basic "), self.secret, quote_plus):
                self.context.mask_also(part)
            headers.append(("Authorization", login))
        request = self.request._replace(headers=headers, body=urlencode(sent).encode())
        try:
            answer = await client.send(request, hosts, timeout=min(left, TOKEN_SECONDS), max_bytes=MAX_ANSWER)
        except ToolFailure as error:
            hint = "the request went to tokenUrl of the tool's auth"
            raise with_message(error, f"no access token: {error}", hint) from None
        return self._read(answer, form)

    def _read(self, answer: HttpResponse, form: dict[str, str]) -> FetchedToken:
        try:
            fields: Any = json_of(answer.body)
        except (msgspec.MsgspecError, JsonTooCostlyError, UnicodeDecodeError):
            fields = None
        fields = fields if isinstance(fields, dict) else {}
        access, kind = fields.get("access_token"), fields.get("token_type", "Bearer")
        if answer.status != 200 or not isinstance(access, str):
            raise self._failure(answer.status, fields, form)
        check_length(access, f"the access token of {self.request.url.authority}")
        self.context.mask_also(access)
        if str(kind).lower() != "bearer" or not _SENDABLE.fullmatch(access):
            raise self._failure(answer.status, {"error": "the token is not a bearer token"}, form)
        refresh, scope = (
            text if isinstance(text := fields.get(key), str) else None for key in ("refresh_token", "scope")
        )
        if refresh:
            check_length(refresh, f"the refresh token of {self.request.url.authority}")
            self.context.mask_also(refresh)
        life = 0.0
        with suppress(TypeError, ValueError, OverflowError):  # servers send strings, nothing, or 0 for unknown
            life = float(fields.get("expires_in"))
        return FetchedToken(access, life if 0 < life < MAX_LIFE_S else None, refresh or None, scope)

    def _failure(self, status: int, fields: dict[str, Any], form: dict[str, str]) -> ToolFailure:
        """Return an error that quotes the endpoint, without the secrets that it was sent."""
        texts = (fields.get(key) for key in ("error", "error_description"))
        reason = (
            ": ".join(text for text in texts if text and isinstance(text, str)) or "the response has no access_token"
        )
        credentials = (self.filled.get("client_secret"), self.filled.get("refresh_token"))
        for value in (*credentials, *(form.get(key) for key in SENT_SECRETS)):
            if value:
                reason = reason.replace(value, MASK)
        reason = quoted(_UNFIT.sub(" ", self.context.redact(reason)), self.context.redact, MAX_QUOTED)
        refused = TokenRefusedError(
            f"no access token: {self.request.url.authority} answered {status}: {reason}",
            reason="upstream_error",
            hints=("check clientId, clientSecret and scope in the tool's auth, and the secrets that they name",),
        )
        refused.fault, refused.status = str(fields.get("error") or ""), status
        return refused


class TokenSigner(Signer):
    """A signer with an access token. If the token is refused, the request is signed once more with a new one."""

    def __init__(self, endpoint: TokenEndpoint) -> None:
        self._endpoint = endpoint
        self._token = ""
        self._refused: str | None = None

    async def prepare(self, left: float) -> None:
        self._token = await self._fetch(left)
        # Masks of tokens in use are kept; of many that were used once, some may be dropped.
        self._endpoint.context.mask_also(self._token)

    async def _fetch(self, left: float) -> str:
        """Return a token that is not the refused one, within `left` seconds."""
        raise NotImplementedError

    def sign(self, request: HttpRequest) -> HttpRequest:
        return with_header(request, "Authorization", f"Bearer {self._token}")

    def on_unauthorized(self) -> bool:
        """Return True once: a token may have been revoked. If the next is refused, too, the token isn't the problem."""
        if self._refused is not None:
            return False
        self._refused = self._token
        return True


# Client credentials, and refresh tokens


class OAuthAuthenticator(Authenticator):
    """An authenticator that fetches tokens without user interaction."""

    asks_elsewhere = True

    def __init__(self, auth: OAuth2, arguments: KnownNames, arg_schema: Mapping[str, Any]) -> None:
        self.auth = auth
        self.texts = AuthTexts(auth, ("client_id", "client_secret", "refresh_token", "scope"), arguments)
        if auth.grant == "refreshToken" and not auth.refresh_token:
            raise TemplateError("the grant refreshToken needs a refreshToken", f"{AUTH_POINTER}/refreshToken")
        try:
            request = Request(url_template=auth.token_url, method="POST")
            self._endpoint = RequestTemplate(request, arg_schema, arguments.steps)
        except TemplateError as error:
            raise TemplateError(str(error), f"{AUTH_POINTER}/tokenUrl") from None
        super().__init__(self.texts.placeholders + self._endpoint.placeholders)

    def begin(self, args: Mapping[str, Any], secret: Lookup, context: HttpContext) -> Signer:
        endpoint = self._endpoint.fill(args, secret)
        for name in self.secrets:
            context.check_secret(name, endpoint.url)
        # A caller that passes all credentials as arguments may see the token.
        masking = context if self.secrets else context._replace(mask_also=lambda _: None)
        filled = self.texts.fill(args, secret)
        return _GrantSigner(TokenEndpoint(self.auth, self.texts, filled, endpoint, secret, masking))

    def destinations(self, target: Url | None) -> "Iterator[Destination]":
        yield self.secrets, self._endpoint.fixed_url


class _GrantSigner(TokenSigner):
    def __init__(self, endpoint: TokenEndpoint) -> None:
        super().__init__(endpoint)
        self._tokens = endpoint.context.client.tokens
        # Everything that a token depends on, including the values of secrets.
        self._key: TokenKey = (endpoint.request.url.text, endpoint.auth.grant, *endpoint.filled.values())

    async def _fetch(self, left: float) -> str:
        async def ask(newer: str | None) -> FetchedToken:
            form, filled = {"grant_type": "client_credentials"}, self._endpoint.filled
            if self._endpoint.auth.grant == "refreshToken":
                form = {"grant_type": "refresh_token", "refresh_token": newer or filled["refresh_token"]}
            if filled["scope"]:
                form["scope"] = filled["scope"]
            return await self._endpoint.ask(form, left)

        return await self._tokens.get(self._key, ask, self._refused)

    def on_unauthorized(self) -> bool:
        return self._tokens.may_fetch(self._key) and super().on_unauthorized()


# A user's login


class LoginAuthenticator(Authenticator):
    """An authenticator that uses a user's login. `target` is the URL of requests; None if it depends on the call."""

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
            raise TemplateError("with a login the host can't have placeholders", "/request/urlTemplate")
        self.origin = origin_of(target)
        self._seen: tuple[str, Version, StoredLogin] | None = None  # key, version and content

    def begin(self, args: Mapping[str, Any], secret: Lookup, context: HttpContext) -> Signer:
        return _LoginSigner(self, self.login(secret, context))

    def destinations(self, target: Url | None) -> "Iterator[tuple[frozenset[str], Url]]":
        yield self.secrets, self._endpoint.url
        yield self._secrets_in_page, self._login_page

    def login(self, secret: Lookup, context: HttpContext) -> "ToolLogin":
        """Return the login that the tool needs, with the current secrets."""
        if context.logins is None or self._bundle is None:
            raise ToolFailure("there is no place to store a login: only tools of bundles have one", reason="denied")
        for names, url in self.destinations(None):
            for name in names:
                context.check_secret(name, url)
        filled = self._texts.fill({}, secret)
        endpoint = TokenEndpoint(self.auth, self._texts, filled, self._endpoint, secret, context)
        return ToolLogin(endpoint, self._bundle, context.logins)

    async def stored(self, store: LoginStore) -> StoredLogin:
        """Return the stored login. Reads it again if it has changed."""
        seen = self._seen
        if seen is None or seen[0] != store.name or seen[1] != store.version():
            seen = self._seen = (store.name, *await asyncio.to_thread(store.load))
        return seen[2]


class ToolLogin:
    """The login of a bundle at an authorization server, for one client and scope."""

    def __init__(self, endpoint: TokenEndpoint, bundle: str, logins: Documents) -> None:
        self.auth, self.filled, self.endpoint = endpoint.auth, endpoint.filled, endpoint
        auth, client, scope = self.auth, self.filled["client_id"], self.filled["scope"]
        about = (bundle, auth.authorization_url, auth.token_url, auth.issuer, client, scope)
        self.key = hashlib.sha256(msgspec.json.encode(about)).hexdigest()
        self.store = LoginStore(logins, f"{_of_bundle(bundle)}{self.key[:KEY_LENGTH]}", auth.token_url, self.key)

    async def save(
        self, granted: FetchedToken, before: StoredLogin, held: HeldLogin, origins: tuple[str, ...]
    ) -> StoredLogin:
        """Save new tokens. Without a new refresh token the old one is kept."""
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
    """Return the names of all logins of a bundle, including those that its tools no longer need."""
    name = re.compile(f"{re.escape(_of_bundle(bundle))}[0-9a-f]{{{KEY_LENGTH}}}")
    return list(filter(name.fullmatch, logins.keys()))


def _of_bundle(bundle: str) -> str:
    """Return the prefix of a bundle's login names. Logins of servers have no dot in their names."""
    return f"bundle.{bundle}-"


class _LoginSigner(TokenSigner):
    def __init__(self, authenticator: LoginAuthenticator, login: ToolLogin) -> None:
        super().__init__(login.endpoint)
        self._authenticator, self._login = authenticator, login
        self._origins: tuple[str, ...] = ()

    async def _fetch(self, left: float) -> str:
        try:
            stored = await self._authenticator.stored(self._login.store)
            if stored.tokens and self._has_expired(stored):
                # The refresh continues if the call is cancelled or out of time: a refresh token may be valid for one
                # use only, and the login would be lost if its successor were not saved.
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
            raise _needs_login("it requires a login")
        if refresh := stored.tokens.get("refresh_token"):
            self._endpoint.context.mask_also(refresh)
        self._origins = stored.origins
        return stored.tokens["access_token"]

    def sign(self, request: HttpRequest) -> HttpRequest:
        if (origin := origin_of(request.url)) not in self._origins:
            raise RequestRefusedError(
                f"the login is only for requests to {', '.join(self._origins)}, and this one goes to {origin}",
                [f"if this is intended, log in again: {login_command()}"],
            )
        return super().sign(request)

    async def _refresh(self) -> StoredLogin:
        """Return new tokens, or those that another process has obtained in the meantime."""
        async with self._login.store.locked() as held:
            stored = (await held.load())[1]
            if not stored.tokens or not self._has_expired(stored):
                return stored
            refresh = stored.tokens.get("refresh_token")
            if not refresh:
                raise _needs_login("its login has ended")
            self._endpoint.context.mask_also(refresh)
            await held.check()
            form = {"grant_type": "refresh_token", "refresh_token": refresh}
            try:
                granted = await self._endpoint.ask(form, EXCHANGE_S)
            except TokenRefusedError as refused:
                if refused.status not in (400, 401, 403) or refused.fault != "invalid_grant":
                    raise
                await held.clear(replace(stored, tokens=None, expires_at=None))
                raise _needs_login("its login has ended") from None
            return await self._login.save(granted, stored, held, stored.origins)

    def _has_expired(self, stored: StoredLogin) -> bool:
        access, ends = (stored.tokens or {}).get("access_token"), stored.expires_at
        return access in (None, self._refused) or (ends is not None and time.time() >= ends - TOKEN_MARGIN)


_running: set[asyncio.Task[StoredLogin]] = set()  # the loop itself keeps only weak references


def _ended(task: asyncio.Task[StoredLogin]) -> None:
    _running.discard(task)
    if not task.cancelled():
        task.exception()  # marks it as retrieved, even if no call waits for it


def _needs_login(why: str) -> ToolFailure:
    return ToolFailure(f"{why}: {login_command()}", reason="denied", hints=(f"run: {login_command()}",))


def login_command() -> str:
    """Return the login command for the tool that is called."""
    context = current_call.get()
    name = "BUNDLE" if context is None else context.spec.name
    bundle, dot, tool = name.partition(".")
    if dot and "/" not in bundle:
        name = f"{bundle.replace('_', '-')}/{tool.replace('_', '-')}"
    return f"onetool bundles login {name}"


def origin_of(url: Url) -> str:
    return f"{url.scheme}://{url.authority}"


def _endpoint_url(text: str, key: str) -> Url:
    """Return a URL without placeholders that is encrypted or on this machine."""
    pointer = below(AUTH_POINTER, key)
    if not text:
        raise TemplateError(f"the grant authorizationCode needs {key}", pointer)
    if "${" in text:
        raise TemplateError("can't have placeholders: a login can't depend on a call", pointer)
    with refused_at(pointer):
        url = parse_url(text)
    if not url.is_unseen:
        raise TemplateError(f"{origin_of(url)} is not encrypted: write https://", pointer)
    return url


# The login: a page in the browser, an answer to a listener on this machine, and the exchange of a code for tokens.


async def log_in(
    login: ToolLogin, name: str, origins: Iterable[str], say: Say, browse: Say | None = None, seconds: float = LOGIN_S
) -> str | None:
    """Ask the user to log in, and save the tokens for requests to `origins`. Return the granted scope, if known.

    If the login fails, the stored one stays unchanged.
    """
    allowed = tuple(origins)
    say(f"The token of this login will be sent to {', '.join(allowed)}.")
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
            async with login.store.locked() as held:  # replaces any earlier login
                saved = await login.save(granted, login.store.empty, held, allowed)
                return (saved.tokens or {}).get("scope")
    except ToolFailure as failure:
        raise AuthError("; ".join([str(failure), *failure.hints])) from None


def _page_url(login: ToolLogin, redirect_uri: str, verifier: str, state: str) -> str:
    """Return the URL of the login page. The query of `authorizationUrl` is kept, but can't override our parameters."""
    challenge = urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    parameters = {
        "response_type": "code",
        "client_id": login.filled["client_id"],
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    if login.filled["scope"]:
        parameters["scope"] = login.filled["scope"]
    page, _, query = login.auth.authorization_url.partition("#")[0].partition("?")
    own = [(key, value) for key, value in parse_qsl(query, keep_blank_values=True) if key not in parameters]
    return f"{page}?{urlencode([*own, *parameters.items()], quote_via=quote)}"


def _check_issuer(auth: OAuth2, issuer: str | None) -> None:
    """Raise AuthError if the answer comes from an authorization server other than the tool's (RFC 9207).

    The expected issuer is the tool's `issuer`, or the origin of the login page.
    """
    page, sender = urlsplit(auth.authorization_url), None
    with suppress(ValueError):
        sender = urlsplit(issuer or auth.authorization_url)
    is_same = sender is not None and (sender.scheme, sender.netloc.lower()) == (page.scheme, page.netloc.lower())
    if issuer is not None and not (issuer == auth.issuer if auth.issuer else is_same):
        known = auth.issuer or f"{page.scheme}://{page.netloc}"
        answered = in_short(issuer, MAX_QUOTED)
        raise AuthError(f"the response to the login is from {answered}, not from {known} (`issuer` in the tool's auth)")
