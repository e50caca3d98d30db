"""The SDK's OAuth client, adapted: tokens come from our store, and one process at a time refreshes them.

The SDK's own flow runs only after a server has refused us, and only where tokens can be had: with a person to ask, or
with client credentials. It would hold its lock while a request is pending, one call after the other; here requests run
concurrently. Imports the SDK, which takes a second: import this only where a connection is opened.
"""

import json
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth, union_scopes
from mcp.shared.auth import (
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
from onetool.database.documents import Unknown, Version
from onetool.http.login import HeldLogin, LoginStore, StoredLogin
from onetool.sources.mcp_servers.upstream_calls import AuthError, LoginRequiredError, note_auth_error

TRIES = 3  # as we are, with refreshed tokens, with new ones
TIMEOUT = httpx2.Timeout(20.0).as_dict()  # of the requests to an authorization server, which otherwise have none
LONGEST = 300  # characters of what somebody else says in our messages
TEMPORARY = ("temporarily_unavailable", "slow_down", "server_error")
LOOPBACK = ("127.0.0.1", "localhost", "::1")

Exchange = AsyncGenerator[httpx2.Request, httpx2.Response]
Known = Callable[[str], None]


class ClientMetadata(OAuthClientMetadata):
    """What we ask for: the scopes of the config or else the server's, and those it asked for since."""

    _ours: str | None = PrivateAttr(None)
    _wanted: str | None = PrivateAttr(None)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "scope":  # the SDK sets what the server proposes
            value = union_scopes(self._ours or value, self._wanted)
        super().__setattr__(name, value)

    @property
    def wanted(self) -> str | None:
        return self._wanted

    def want(self, ours: str | None, wanted: str | None) -> None:
        self._ours, self._wanted = ours, wanted
        self.scope = self.scope


class StoredAuth(OAuthClientProvider):
    """What both kinds share: where tokens come from, and the way of one request."""

    _name: str
    _store: LoginStore
    _mask_also: Known
    _metadata: ClientMetadata
    _scopes: str | None  # of the config
    _login: StoredLogin
    _fixed: OAuthClientInformationFull | None  # a client that the config names, not one that we registered
    _version: Version = Unknown()  # of what was read last
    _may_obtain = False  # there is a way to new tokens
    _insists = False  # on new ones, whatever is kept and whether or not the server asks
    _unasked: str | None = None  # what to say where nobody mentioned a login

    def _set_up(self, name: str, store: LoginStore, metadata: ClientMetadata, mask_also: Known) -> None:
        self._name, self._store, self._metadata, self._mask_also = name, store, metadata, mask_also
        self._scopes = metadata.scope
        self._obtaining = anyio.Lock()

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        if self._is_foreign_header(request.headers.get("Authorization")):
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
                            next_request = await step.asend((yield self._bounded(next_request)))
            token = self._token()
            if response is not None and token in (None, refused):
                break
            if token is not None:
                request.headers["Authorization"] = f"Bearer {token}"
            response = yield request
            if self._insists:
                response = _as_refusal(response)
            if not self._is_refused(response):
                return
            refused = token
        await self._give_up(response)

    async def _refreshed(self, response: httpx2.Response | None, refused: str | None) -> Exchange:
        """What is kept, and if it is used up, refreshed: unless another process has just done so."""
        if self._insists:
            return
        if self._store.version() != self._version:
            await self._load()
        if response is not None and response.status_code != httpx2.codes.UNAUTHORIZED:
            return  # the token is good, but not for this
        if self._is_spent(refused) and self.context.can_refresh_token():
            async with self._store.locked() as held:
                await self._load(held)
                if self._is_spent(refused) and self.context.can_refresh_token():
                    self._settle_method()
                    await held.check()
                    await self._take((yield await self._refresh_token()), held)

    async def _obtained(
        self, request: httpx2.Request, response: httpx2.Response | None, refused: str | None
    ) -> Exchange:
        """New tokens, by the SDK's flow. It starts from a response that refuses us, and ends when it has some."""
        if response is None or not self._may_obtain:
            return
        async with self._obtaining:
            if not self._is_spent(refused):  # somebody else of this process was faster
                return
            if response.status_code == httpx2.codes.UNAUTHORIZED:
                self.context.clear_tokens()
            else:
                self._want(extract_scope_from_www_auth(response))
            async with aclosing(super()._auth_flow(request)) as flow:
                try:
                    await anext(flow)  # the request itself: the response to it is here
                    next_request = await flow.asend(response)
                    while next_request is not request:
                        next_request = await flow.asend((yield next_request))
                except (OAuthFlowError, ValidationError) as error:
                    raise AuthError(f"the server {self._name}: {self._safe_text(error)}") from None
            async with self._store.locked() as held:
                await self._save(held)
            if self._insists:
                self._insists = self._may_obtain = False  # once is enough

    async def _take(self, response: httpx2.Response, held: HeldLogin) -> None:
        """Read the response to a refresh. The login is only forgotten if the server says that it is invalid."""
        if response.status_code == httpx2.codes.OK and await self._handle_refresh_response(response):
            await self._save(held)
            return
        await self._load(held)  # a response that could not be read has cleared what is still good
        code = _error_code(await response.aread())
        if response.status_code not in (400, 401, 403) or code in TEMPORARY:
            said = f"{response.status_code} {code}".strip()
            hint = f"if that stays so: {LoginRequiredError(self._name).command}"
            raise AuthError(f"the login to the server {self._name} could not be refreshed ({said}); {hint}")
        self.context.clear_tokens()
        self._login = replace(self._login, tokens=None, expires_at=None)
        self._version = await held.clear(self._login)

    async def _load(self, held: HeldLogin | None = None) -> None:
        self._version, kept = await (self._store.load_async() if held is None else held.load())
        self._use(kept)

    def _use(self, kept: StoredLogin) -> None:
        context = self.context
        try:
            context.current_tokens = _model(OAuthToken, kept.tokens)
            context.client_info = self._fixed or _model(OAuthClientInformationFull, kept.client)
            context.oauth_metadata = _model(OAuthMetadata, kept.authorization_server)
            context.protected_resource_metadata = _model(ProtectedResourceMetadata, kept.resource)
        except ValidationError:  # somebody edited it
            context.current_tokens, kept = None, replace(kept, tokens=None)
        context.token_expiry_time = kept.expires_at
        self._login = kept
        self._initialized = True  # or the SDK would load, too
        self._want(None)
        self._mask_secrets()

    async def _save(self, held: HeldLogin) -> None:
        context = self.context
        if context.current_tokens is not None and (context.current_tokens.expires_in or 0) <= 0:
            context.token_expiry_time = None  # some say 0 and mean that they do not know
        self._login = replace(
            self._login,
            client=None if self._fixed else _plain(context.client_info),
            tokens=_plain(context.current_tokens),
            expires_at=context.token_expiry_time,
            authorization_server=_plain(context.oauth_metadata),
            resource=_plain(context.protected_resource_metadata),
            wanted=self._metadata.wanted,
        )
        self._mask_secrets()
        self._version = await held.save(self._login)

    def _want(self, more: str | None) -> None:
        self._metadata.want(self._scopes, union_scopes(self._login.wanted, more))

    async def _give_up(self, response: httpx2.Response | None) -> None:
        """The connection ends with an error; a single call that wants more rights gets its refusal, and a note."""
        if response is None or response.status_code == httpx2.codes.UNAUTHORIZED:
            if self._may_obtain:
                raise AuthError(f"the server {self._name} does not take the token that was got for it")
            raise LoginRequiredError(self._name, self._why(response))
        scopes = extract_scope_from_www_auth(response) or ""
        reason = scopes or short(extract_field_from_www_auth(response, "error_description") or "it does not say which")
        note_auth_error(LoginRequiredError(self._name, f"wants a login with more rights ({reason})", scopes))
        if not set(scopes.split()) <= set((self._login.wanted or "").split()):
            with suppress(AuthError):  # then the next login will not ask for them; that is no reason to end a call
                async with self._store.locked() as held:
                    await self._load(held)
                    self._want(scopes)
                    await self._save(held)

    def _why(self, response: httpx2.Response | None) -> str:
        if self._login.client or self._login.authorization_server:
            return "wants a new login, the last one has ended"
        names_a_login = response is not None and extract_field_from_www_auth(response, "resource_metadata")
        return "wants a login" if names_a_login or self._unasked is None else self._unasked

    def _is_foreign_header(self, header: str | None) -> bool:
        """The config may give a header of its own. A redirect brings ours back."""
        ours = self.context.current_tokens
        return header is not None and (ours is None or header != f"Bearer {ours.access_token}")

    def _is_refused(self, response: httpx2.Response) -> bool:
        if response.status_code == httpx2.codes.FORBIDDEN:
            return extract_field_from_www_auth(response, "error") == "insufficient_scope"
        return response.status_code == httpx2.codes.UNAUTHORIZED

    def _token(self) -> str | None:
        tokens = self.context.current_tokens
        return tokens.access_token if tokens is not None and self.context.is_token_valid() else None

    def _is_spent(self, refused: str | None) -> bool:
        return self._token() in (None, refused)

    def _settle_method(self) -> None:
        """Choose how a client with a secret authenticates: the standard's method, if the server accepts it."""
        client, server = self.context.client_info, self.context.oauth_metadata
        if client is None or client.client_secret is None or (client.token_endpoint_auth_method and not self._fixed):
            return
        offered = (server and server.token_endpoint_auth_methods_supported) or ["client_secret_basic"]
        basic, post = (f"client_secret_{way}" for way in ("basic", "post"))
        client.token_endpoint_auth_method = post if post in offered and basic not in offered else basic

    def _bounded(self, request: httpx2.Request) -> httpx2.Request:
        self._check_address(str(request.url))
        request.extensions = {**request.extensions, "timeout": TIMEOUT}
        return request

    def _check_address(self, url: str) -> None:
        """Raise AuthError for a login in the clear. `ServerTransport` checks which addresses it leads to."""
        there, server = urlsplit(url), urlsplit(self.context.server_url)
        both_here = there.hostname in LOOPBACK and server.hostname in LOOPBACK
        in_the_clear = there.scheme == "http" and server.scheme == "http" and there.hostname == server.hostname
        if there.scheme != "https" and not both_here and not in_the_clear:
            place = f"{there.scheme}://{there.netloc}"
            raise AuthError(f"the server {self._name} wants a login at {place}, which is not encrypted: refused")

    def _secrets(self) -> list[str]:
        tokens, client = self.context.current_tokens, self.context.client_info
        found = [tokens.access_token, tokens.refresh_token] if tokens else []
        return [value for value in (*found, client and client.client_secret) if value]

    def _mask_secrets(self) -> None:
        for value in self._secrets():
            self._mask_also(value)

    def _safe_text(self, error: Exception) -> str:
        """The SDK's words, without what they may quote of a response: that may be a token."""
        text = "its authorization server's answer can't be read" if isinstance(error, ValidationError) else str(error)
        if text.startswith("Registration failed: 404"):
            return "it offers no login that we could register for; if it gave you a client_id, put it in `auth`"
        for start in ("Invalid token response", "Invalid registration response", "State parameter mismatch"):
            if text.startswith(start):
                return start
        for value in self._secrets():
            text = text.replace(value, MASK)
        return short(text)

    # The SDK's storage. It is this object itself, which loads and saves at moments of its own choosing.

    async def get_tokens(self) -> OAuthToken | None:
        return self.context.current_tokens

    async def set_tokens(self, tokens: OAuthToken) -> None: ...

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.context.client_info

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None: ...


def _model(kind: type[Any], value: dict[str, Any] | None) -> Any:
    return None if value is None else kind.model_validate(value)


def _plain(model: BaseModel | None) -> dict[str, Any] | None:
    return None if model is None else model.model_dump(mode="json", exclude_none=True)


def _as_refusal(response: httpx2.Response) -> httpx2.Response:
    """Some servers want a login for certain calls only. The flow starts from a refusal, so it gets one."""
    if response.status_code == httpx2.codes.UNAUTHORIZED:
        return response
    return httpx2.Response(httpx2.codes.UNAUTHORIZED, request=response.request)


def _error_code(body: bytes) -> str:
    with suppress(ValueError, AttributeError, TypeError):
        return short(str(json.loads(body).get("error") or ""))
    return ""


def short(text: str) -> str:
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def _is_harmless(record: logging.LogRecord) -> bool:
    return record.exc_info is None


# With an exception the SDK logs what it quotes, and that may be a response with tokens. We raise it, in our own words.
logging.getLogger("mcp.client.auth.oauth2").addFilter(_is_harmless)
