"""Authentication at MCP servers over HTTP: `http_auth` for connections, `login` for users.

The SDK's OAuth client handles discovery, registration and token requests. Tokens come from our store, and one process
at a time refreshes them. The SDK's own flow runs only after a server has refused a request, and only if tokens can be
obtained: from a user who logs in, or with client credentials. The SDK holds its lock while a request is pending, so its
calls run one after the other; here requests run concurrently.

Background connections never prompt: if a user has to log in, they fail with `LoginRequiredError`. Tokens are stored
beside the server's other state and never appear in logs or messages. This module imports the SDK, which takes a second,
so import it only where a connection is opened.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, suppress
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth, union_scopes
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from msgspec.structs import replace
from pydantic import BaseModel, PrivateAttr, ValidationError

from onetool.core.redaction import MASK
from onetool.database.documents import Documents, Unknown, Version
from onetool.http.errors import in_short
from onetool.http.login import (
    CALLBACK_HOST,
    CALLBACK_PATH,
    LOGIN_S,
    MAX_QUOTED,
    HeldLogin,
    LoginCallback,
    LoginStore,
    Say,
    StoredLogin,
    browser_login,
)
from onetool.http.url import LOOPBACK
from onetool.sources.mcp_servers.http_transport import LoginTransport
from onetool.sources.mcp_servers.server_cache import file_name
from onetool.sources.mcp_servers.settings import AuthValue, BearerToken, ClientCredentials, PersonLogin, read
from onetool.sources.mcp_servers.upstream_calls import AuthError, LoginRequiredError, note_auth_error

TRIES = 3  # with the stored tokens, refreshed tokens and new tokens
REQUEST_S = 20.0  # seconds for a request to an authorization server
TEMPORARY = ("temporarily_unavailable", "slow_down", "server_error")
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}  # a request that creates no session
HEADERS = {"Accept": "application/json, text/event-stream", "Accept-Encoding": "identity"}
MAX_PAGE = 8_000  # characters of a login page's address, which is printed

Exchange = AsyncGenerator[httpx2.Request, httpx2.Response]


def http_auth(
    name: str, url: str, auth: AuthValue, logins: Documents, mask_also: Say = lambda value: None
) -> httpx2.Auth:
    """Return the `auth` of the transport's HTTP client. It never asks a user to log in.

    Without `auth` in the config, a stored login is used, because blocks copied from other clients never have `auth`.
    Each secret value is passed to `mask_also` before it is used.
    """
    settings = read(auth) or PersonLogin()
    if isinstance(settings, BearerToken):
        return BearerAuth(name, settings.token)
    store = LoginStore(logins, file_name(name), url, settings.key)
    if isinstance(settings, ClientCredentials):
        return ProgramAuth(name, url, settings, store, mask_also)
    person = PersonAuth(name, url, settings, store, mask_also)
    if auth is None:
        person.unasked = "requires a token (`auth` or `headers` in its config) or a login"
    return person


async def login(
    name: str,
    url: str,
    auth: AuthValue,
    logins: Documents,
    say: Say,
    browse: Say | None = None,
    seconds: float = LOGIN_S,
) -> str | None:
    """Ask the user to log in, and store the tokens. Return the granted scopes, if the server names them.

    If the login fails, the stored login is unchanged.
    """
    settings = read(auth) or PersonLogin()
    if not isinstance(settings, PersonLogin):
        kind = "a token" if isinstance(settings, BearerToken) else "credentials of its own"
        raise AuthError(f"the server {name} has {kind} in its `auth`: no login is needed")
    store = LoginStore(logins, file_name(name), url, settings.key)
    try:
        async with (
            browser_login(name, settings.redirect_port, say, browse, seconds) as callback,
            httpx2.AsyncClient(transport=LoginTransport(url), timeout=REQUEST_S, headers=HEADERS) as client,
        ):
            return await PersonAuth(name, url, settings, store, lambda value: None, callback).log_in(client)
    except httpx2.HTTPError as error:
        raise AuthError(f"the server {name} can't be reached for a login: {error or type(error).__name__}") from None
    except httpx2.StreamError as error:
        raise AuthError(f"the login to the server {name} failed: {error}") from None


class BearerAuth(httpx2.Auth):
    def __init__(self, name: str, token: str) -> None:
        self._name, self._token = name, token

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._token}"
        response = yield request
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            raise AuthError(f"the server {self._name} does not accept the token in its `auth`: set a valid token")


class ClientMetadata(OAuthClientMetadata):
    """Client metadata in which `choose` replaces the scopes that the SDK sets."""

    _choose: Callable[[str | None], str | None] | None = PrivateAttr(None)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, self._choose(value) if name == "scope" and self._choose else value)


class StoredAuth(OAuthClientProvider):
    """Base class for both kinds of OAuth, which loads stored tokens and sends each request with them."""

    unasked: str | None = None  # the error text if the config doesn't mention a login
    _login: StoredLogin
    _version: Version = Unknown()  # of the login that was read last
    _may_obtain = False  # new tokens can be obtained
    _insists = False  # obtain new tokens even if stored ones are valid or the server needs none

    def _set_up(self, name: str, store: LoginStore, fixed: OAuthClientInformationFull | None, mask_also: Say) -> None:
        """Prepare the SDK's client. `fixed` is a client from the config, instead of one that we registered."""
        self._name, self._store, self._fixed, self._mask_also = name, store, fixed, mask_also
        self._obtaining = anyio.Lock()
        self._wanted: str | None = None  # scopes that the server requested, in addition to the config's
        self._metadata = ClientMetadata.model_validate(self.context.client_metadata.model_dump())
        ours = self._metadata.scope
        self._metadata._choose = lambda proposed: union_scopes(ours or proposed, self._wanted)  # pyright: ignore
        self.context.client_metadata = self._metadata

    async def _auth_flow(self, request: httpx2.Request) -> Exchange:
        header, ours = request.headers.get("Authorization"), self.context.current_tokens
        # An Authorization header of the config is kept. After a redirect the request has our own header.
        if header is not None and (ours is None or header != f"Bearer {ours.access_token}"):
            yield request
            return
        self.context.protocol_version = request.headers.get(MCP_PROTOCOL_VERSION_HEADER)
        response: httpx2.Response | None = None
        refused: str | None = None
        for _ in range(TRIES):
            for step in (self._refreshed(response, refused), self._obtained(request, response, refused)):
                async with aclosing(step):
                    with suppress(StopAsyncIteration):
                        next_request = await anext(step)
                        while True:
                            self._check_address(str(next_request.url))
                            next_request.extensions["timeout"] = httpx2.Timeout(REQUEST_S).as_dict()
                            next_request = await step.asend((yield next_request))
            token = self._token()
            if response is not None and token in (None, refused):
                break
            if token is not None:
                request.headers["Authorization"] = f"Bearer {token}"
            response = yield request
            if self._insists and response.status_code != httpx2.codes.UNAUTHORIZED:
                # Some servers need a login for certain calls only. The flow starts from a 401 response, so make one.
                response = httpx2.Response(httpx2.codes.UNAUTHORIZED, request=response.request)
            wants_more = extract_field_from_www_auth(response, "error") == "insufficient_scope"
            if response.status_code != httpx2.codes.UNAUTHORIZED and not (
                response.status_code == httpx2.codes.FORBIDDEN and wants_more
            ):
                return
            refused = token
        await self._give_up(response)

    async def _refreshed(self, response: httpx2.Response | None, refused: str | None) -> Exchange:
        """Use the stored tokens. Refresh expired tokens, unless another process has just done so."""
        if self._insists:
            return
        if self._store.version() != self._version:
            await self._load()
        if response is not None and response.status_code != httpx2.codes.UNAUTHORIZED:
            return  # the token is valid, but lacks rights for this request
        if self._needs_token(refused) and self.context.can_refresh_token():
            async with self._store.locked() as held:
                await self._load(held)
                if self._needs_token(refused) and self.context.can_refresh_token():
                    self._choose_auth_method()
                    await held.check()
                    await self._finish_refresh((yield await self._refresh_token()), held)

    async def _obtained(
        self, request: httpx2.Request, response: httpx2.Response | None, refused: str | None
    ) -> Exchange:
        """Get new tokens with the SDK's flow, which starts from a 401 response."""
        if response is None or not self._may_obtain:
            return
        async with self._obtaining:
            if not self._needs_token(refused):  # another task has already obtained tokens
                return
            if response.status_code == httpx2.codes.UNAUTHORIZED:
                self.context.clear_tokens()
            else:
                self._want_scopes(extract_scope_from_www_auth(response))
            async with aclosing(super()._auth_flow(request)) as flow:
                try:
                    await anext(flow)  # the request itself, whose response we already have
                    next_request = await flow.asend(response)
                    while next_request is not request:
                        next_request = await flow.asend((yield next_request))
                except (OAuthFlowError, ValueError, ArithmeticError) as error:
                    raise AuthError(f"the server {self._name}: {self._safe_text(error)}") from None
            async with self._store.locked() as held:
                await self._save(held)
            if self._insists:
                self._insists = self._may_obtain = False  # only once

    async def _finish_refresh(self, response: httpx2.Response, held: HeldLogin) -> None:
        """Read the response to a refresh. Delete the login only if the server reports it as invalid."""
        with suppress(ValueError, ArithmeticError):  # invalid characters in tokens, or times out of range
            if response.status_code == httpx2.codes.OK and await self._handle_refresh_response(response):
                await self._save(held)
                return
        await self._load(held)  # an unreadable response has cleared tokens that are still valid
        code = ""
        with suppress(ValueError, AttributeError, TypeError):
            code = in_short(str(json.loads(await response.aread()).get("error") or ""), MAX_QUOTED)
        if response.status_code not in (400, 401, 403) or code in TEMPORARY:
            answer = f"{response.status_code} {code}".strip()
            hint = f"if this persists: {LoginRequiredError(self._name).command}"
            raise AuthError(f"the login to the server {self._name} could not be refreshed ({answer}); {hint}")
        self.context.clear_tokens()
        self._login = replace(self._login, tokens=None, expires_at=None)
        self._version = await held.clear(self._login)

    async def _load(self, held: HeldLogin | None = None) -> None:
        self._version, kept = await (asyncio.to_thread(self._store.load) if held is None else held.load())
        self._use(kept)

    def _use(self, kept: StoredLogin) -> None:
        context = self.context
        try:
            context.current_tokens = _parsed(OAuthToken, kept.tokens)
            context.client_info = self._fixed or _parsed(OAuthClientInformationFull, kept.client)
            context.oauth_metadata = _parsed(OAuthMetadata, kept.authorization_server)
            context.protected_resource_metadata = _parsed(ProtectedResourceMetadata, kept.resource)
        except ValidationError:  # edited by hand
            context.current_tokens, kept = None, replace(kept, tokens=None)
        context.token_expiry_time = kept.expires_at
        self._login = kept
        self._initialized = True  # so that the SDK doesn't load as well
        self._want_scopes(None)
        self._mask_secrets()

    async def _save(self, held: HeldLogin) -> None:
        context = self.context
        if context.current_tokens is not None and (context.current_tokens.expires_in or 0) <= 0:
            context.token_expiry_time = None  # some servers send 0 for an unknown lifetime
        self._login = replace(
            self._login,
            client=None if self._fixed else _as_json(context.client_info),
            tokens=_as_json(context.current_tokens),
            expires_at=context.token_expiry_time,
            authorization_server=_as_json(context.oauth_metadata),
            resource=_as_json(context.protected_resource_metadata),
            wanted=self._wanted,
        )
        self._mask_secrets()
        self._version = await held.save(self._login)

    def _want_scopes(self, more: str | None) -> None:
        """Request these scopes as well from now on."""
        self._wanted = union_scopes(self._login.wanted, more)
        self._metadata.scope = self._metadata.scope

    async def _give_up(self, response: httpx2.Response | None) -> None:
        """Raise an error that ends the connection. If only one call lacks rights, note the error for that call."""
        if response is None or response.status_code == httpx2.codes.UNAUTHORIZED:
            if self._may_obtain:
                raise AuthError(f"the server {self._name} does not accept the new token")
            names_a_login = response is not None and extract_field_from_www_auth(response, "resource_metadata")
            why = "requires a login" if names_a_login or self.unasked is None else self.unasked
            had_one = self._login.client or self._login.authorization_server
            raise LoginRequiredError(self._name, "requires a new login, the last one has expired" if had_one else why)
        scopes = extract_scope_from_www_auth(response) or ""
        description = extract_field_from_www_auth(response, "error_description") or "unspecified"
        why = f"requires a login with more rights ({scopes or in_short(description, MAX_QUOTED)})"
        note_auth_error(LoginRequiredError(self._name, why, scopes))
        if not set(scopes.split()) <= set((self._login.wanted or "").split()):
            with suppress(AuthError):  # the next login won't request the scopes; the call continues
                async with self._store.locked() as held:
                    await self._load(held)
                    self._want_scopes(scopes)
                    await self._save(held)

    def _token(self) -> str | None:
        tokens = self.context.current_tokens
        return tokens.access_token if tokens is not None and self.context.is_token_valid() else None

    def _needs_token(self, refused: str | None) -> bool:
        return self._token() in (None, refused)

    def _choose_auth_method(self) -> None:
        """Choose how a client with a secret authenticates: by the standard method, if the server accepts it."""
        client, server = self.context.client_info, self.context.oauth_metadata
        if client is None or client.client_secret is None or (client.token_endpoint_auth_method and not self._fixed):
            return
        offered = (server and server.token_endpoint_auth_methods_supported) or ["client_secret_basic"]
        basic, post = (f"client_secret_{way}" for way in ("basic", "post"))
        client.token_endpoint_auth_method = post if post in offered and basic not in offered else basic

    def _check_address(self, url: str) -> None:
        """Raise AuthError for an unencrypted login. `ServerTransport` checks the addresses that it connects to."""
        page, server = urlsplit(url), urlsplit(self.context.server_url)
        if "@" in page.netloc:  # text before the @ looks like a different host
            raise AuthError(f"refused: the login address of the server {self._name} contains a user name")
        is_local = page.hostname in LOOPBACK and server.hostname in LOOPBACK
        is_plain_server = page.scheme == "http" and server.scheme == "http" and page.hostname == server.hostname
        if page.scheme != "https" and not is_local and not is_plain_server:
            place = f"{page.scheme}://{page.netloc}"
            raise AuthError(f"the server {self._name} requires a login at {place}, which is not encrypted: refused")

    def _mask_secrets(self) -> list[str]:
        """Mask the tokens and the client's secret from now on, and return them."""
        tokens, client = self.context.current_tokens, self.context.client_info
        values = [tokens.access_token, tokens.refresh_token] if tokens else []
        secrets = [value for value in (*values, client and client.client_secret) if value]
        for value in secrets:
            self._mask_also(value)
        return secrets

    def _safe_text(self, error: Exception) -> str:
        """Return the SDK's message without quoted parts of a response, which may be a token."""
        text = (
            str(error)
            if isinstance(error, OAuthFlowError)
            else "the response of its authorization server can't be read"
        )
        if text.startswith("Registration failed: 404"):
            return "it offers no login with client registration; if you have a client_id for it, set it in `auth`"
        for start in ("Invalid token response", "Invalid registration response", "State parameter mismatch"):
            if text.startswith(start):
                return start
        for value in self._mask_secrets():
            text = text.replace(value, MASK)
        return in_short(text, MAX_QUOTED)

    # The SDK's storage interface. This object loads and saves tokens itself, so most methods do nothing.

    async def get_tokens(self) -> OAuthToken | None:
        return self.context.current_tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        if not tokens.access_token.isascii() or not tokens.access_token.isprintable() or not tokens.access_token:
            raise ValueError("the token has characters that a header can't contain")

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.context.client_info

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None: ...


class PersonAuth(StoredAuth):
    """Authentication with a user's login. Without a callback, only a stored login is used."""

    def __init__(
        self,
        name: str,
        url: str,
        settings: PersonLogin,
        store: LoginStore,
        mask_also: Say,
        callback: LoginCallback | None = None,
    ) -> None:
        self._callback, self._may_obtain = callback, callback is not None
        back: Any = callback.redirect_uri if callback else f"http://{CALLBACK_HOST}{CALLBACK_PATH}"
        metadata = OAuthClientMetadata(redirect_uris=[back], client_name=settings.client_name, scope=settings.scopes)
        super().__init__(url, metadata, self, self._show, self._answer, settings.client_metadata_url)
        fixed = settings.client_id and OAuthClientInformationFull(
            client_id=settings.client_id,
            client_secret=settings.client_secret,
            redirect_uris=[back],
            issuer=settings.issuer,
        )
        self._set_up(name, store, fixed or None, mask_also)

    async def log_in(self, client: httpx2.AsyncClient) -> str | None:
        """Log in with a new registration, because the stored one may be the problem. Return the granted scopes.

        A ping provokes the server's request for a login. The stored login is replaced after the ping has succeeded.
        """
        try:
            await self._load()
        except AuthError:  # the key of the stored login is lost; the new login replaces it
            self._use(self._store.empty)
        self.context.client_info, self.context.oauth_metadata = self._fixed, None
        self.context.clear_tokens()
        self._insists = True
        request = client.build_request("POST", self.context.server_url, json=PING)
        try:
            response = await client.send(request, stream=True, auth=self)
        except LoginRequiredError:
            raise AuthError(f"the server {self._name} does not accept the new token") from None
        await response.aclose()
        return self.context.current_tokens.scope if self.context.current_tokens else None

    async def _exchange_token_authorization_code(self, auth_code: str, code_verifier: str) -> httpx2.Request:
        self._choose_auth_method()
        return await super()._exchange_token_authorization_code(auth_code, code_verifier)

    async def _show(self, url: str) -> None:
        self._check_address(url)
        if len(url) > MAX_PAGE:
            raise AuthError(f"the address of the login page of the server {self._name} is too long: refused")
        server = self.context.oauth_metadata
        methods = server and server.code_challenge_methods_supported
        if methods is not None and "S256" not in methods:
            raise AuthError(f"the login of the server {self._name} does not support PKCE's S256: refused")
        self._page = url

    async def _answer(self) -> AuthorizationCodeResult:
        page, tokens = urlsplit(self._page).netloc, urlsplit(self._get_token_endpoint()).netloc
        note = "" if page == tokens else f"The rights that you grant there apply to {tokens}."  # may be another site
        answer = await self._callback(self._page, note) if self._callback else {}
        return AuthorizationCodeResult(code=answer.get("code", ""), state=answer.get("state"), iss=answer.get("iss"))


class ProgramAuth(StoredAuth, ClientCredentialsOAuthProvider):
    """Authentication with client credentials, which obtains new tokens whenever they are needed."""

    _may_obtain = True

    def __init__(self, name: str, url: str, settings: ClientCredentials, store: LoginStore, mask_also: Say) -> None:
        # Without an issuer the SDK warns. We use the issuer of the first successful login, see `_use`.
        ClientCredentialsOAuthProvider.__init__(
            self, url, self, settings.client_id, settings.client_secret, scope=settings.scopes, issuer=url
        )
        self._issuer = self._configured_issuer = settings.issuer
        self._set_up(name, store, self._fixed_client_info, mask_also)

    def _use(self, kept: StoredLogin) -> None:
        super()._use(kept)
        server = self.context.oauth_metadata
        self._issuer = self._configured_issuer or (str(server.issuer) if server else None)

    async def _exchange_token_client_credentials(self) -> httpx2.Request:
        self._choose_auth_method()
        return await super()._exchange_token_client_credentials()


def _parsed(kind: type[Any], value: dict[str, Any] | None) -> Any:
    return None if value is None else kind.model_validate(value)


def _as_json(model: BaseModel | None) -> dict[str, Any] | None:
    return None if model is None else model.model_dump(mode="json", exclude_none=True)


# The SDK's log records of exceptions may quote responses with tokens. We raise these errors with our own messages.
logging.getLogger("mcp.client.auth.oauth2").addFilter(lambda record: record.exc_info is None)
