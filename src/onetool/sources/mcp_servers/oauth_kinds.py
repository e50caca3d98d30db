"""The kinds of proof that a server may want: a token of the config, a person's login, a program's credentials."""

from collections.abc import Generator
from typing import Any, Protocol

import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull

from onetool.sources.mcp_servers.oauth_callback import HOST, PATH
from onetool.sources.mcp_servers.oauth_flow import Known, Metadata, StoredAuth, short
from onetool.sources.mcp_servers.oauth_settings import Credentials, Login
from onetool.sources.mcp_servers.oauth_store import Store
from onetool.sources.mcp_servers.oauth_trouble import AuthFailed, NeedsLogin


class Ask(Protocol):
    """Somebody who sees to it that a person logs in at a url, and gives back what the browser came home with."""

    redirect_uri: str

    async def __call__(self, url: str) -> dict[str, str]: ...


class BearerAuth(httpx2.Auth):
    """A token of the config."""

    def __init__(self, name: str, token: str) -> None:
        self._name = name
        self._token = token

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._token}"
        response = yield request
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            raise AuthFailed(f"the server {self._name} does not take the token in its `auth`: put in one that is valid")


class PersonAuth(StoredAuth):
    """A person's login. Without somebody to ask, only what is stored is used."""

    def __init__(self, name: str, url: str, settings: Login, store: Store, ask: Ask | None, known: Known) -> None:
        self._ask = ask
        self._may_obtain = ask is not None
        self._page = ""
        back: Any = ask.redirect_uri if ask else f"http://{HOST}{PATH}"
        metadata = Metadata(redirect_uris=[back], client_name=settings.client_name, scope=settings.scopes)
        super().__init__(url, metadata, self, self._show, self._answer, settings.client_metadata_url)
        self._fixed = _client(settings, settings.client_id, back) if settings.client_id else None
        self._set_up(name, store, metadata, known)

    def unasked(self, why: str) -> None:
        """What to say where the server wants something, and nobody has mentioned a login."""
        self._unasked = why

    async def log_in(self, client: httpx2.AsyncClient, request: httpx2.Request) -> str | None:
        """A login from the start, with a registration of its own: what was kept may be the trouble. Its scopes.

        The request is any that the server might want a login for. What is kept is replaced when it has succeeded.
        """
        self._load()
        self.context.client_info, self.context.oauth_metadata = self._fixed, None
        self.context.clear_tokens()
        self._insists = True
        try:
            response = await client.send(request, stream=True, auth=self)
        except NeedsLogin:
            raise AuthFailed(f"the server {self._name} does not take the token that was got for it") from None
        await response.aclose()
        return self.context.current_tokens.scope if self.context.current_tokens else None

    async def _exchange_token_authorization_code(self, auth_code: str, code_verifier: str) -> httpx2.Request:
        self._settle_method()
        return await super()._exchange_token_authorization_code(auth_code, code_verifier)

    async def _show(self, url: str) -> None:
        self._check_address(url)
        self._page = url

    async def _answer(self) -> AuthorizationCodeResult:
        answer = await self._ask(self._page) if self._ask else {}
        if "error" in answer:
            said = ": ".join(short(answer[key]) for key in ("error", "error_description") if answer.get(key))
            raise OAuthFlowError(f"the login was refused ({said})")
        return AuthorizationCodeResult(code=answer.get("code", ""), state=answer.get("state"), iss=answer.get("iss"))


class ProgramAuth(StoredAuth, ClientCredentialsOAuthProvider):
    """A program's own credentials: new tokens whenever they are needed."""

    _may_obtain = True

    def __init__(self, name: str, url: str, settings: Credentials, store: Store, known: Known) -> None:
        # Without an issuer the SDK warns. We go by the first one that has let us in, see `_load`.
        ClientCredentialsOAuthProvider.__init__(
            self, url, self, settings.client_id, settings.client_secret, scope=settings.scopes, issuer=url
        )
        self._issuer = self._configured_issuer = settings.issuer
        self._fixed = self._fixed_client_info
        metadata = Metadata.model_validate(self.context.client_metadata.model_dump())
        self.context.client_metadata = metadata
        self._set_up(name, store, metadata, known)

    def _load(self) -> None:
        super()._load()
        server = self.context.oauth_metadata
        self._issuer = self._configured_issuer or (str(server.issuer) if server else None)

    async def _exchange_token_client_credentials(self) -> httpx2.Request:
        self._settle_method()
        return await super()._exchange_token_client_credentials()


def _client(settings: Login, client_id: str, back: Any) -> OAuthClientInformationFull:
    return OAuthClientInformationFull(
        client_id=client_id, client_secret=settings.client_secret, redirect_uris=[back], issuer=settings.issuer
    )
