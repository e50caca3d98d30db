"""Authentication at MCP servers over HTTP: `http_auth` for connections, `login` for people.

Connections in the background ask nobody: where a person is needed they end with `LoginRequiredError`. Tokens are kept
beside the server's other state, and nowhere else: no log and no message has them.
"""

from collections.abc import Callable, Generator
from typing import Any, Protocol

import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull

from onetool.database.documents import Documents
from onetool.http.login import (
    CALLBACK_HOST,
    CALLBACK_PATH,
    LoginStore,
    StoredLogin,
    listening,
    open_browser,
)
from onetool.sources.mcp_servers.http_transport import ServerTransport
from onetool.sources.mcp_servers.oauth_flow import ClientMetadata, Known, StoredAuth, short
from onetool.sources.mcp_servers.server_cache import file_name
from onetool.sources.mcp_servers.settings import (
    AuthValue,
    BearerToken,
    ClientCredentials,
    PersonLogin,
    read,
)
from onetool.sources.mcp_servers.upstream_calls import AuthError, LoginRequiredError

# Authentication: a token of the config, a person's login, a program's credentials


class LoginPrompt(Protocol):
    """Sends a person to the login url, and returns the query that the browser came back with."""

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
            raise AuthError(f"the server {self._name} does not take the token in its `auth`: put in one that is valid")


class PersonAuth(StoredAuth):
    """The login of a person. Without a prompt, only a stored login is used."""

    def __init__(
        self,
        name: str,
        url: str,
        settings: PersonLogin,
        store: LoginStore,
        prompt: LoginPrompt | None,
        mask_also: Known,
    ) -> None:
        self._prompt = prompt
        self._may_obtain = prompt is not None
        self._page = ""
        back: Any = prompt.redirect_uri if prompt else f"http://{CALLBACK_HOST}{CALLBACK_PATH}"
        metadata = ClientMetadata(redirect_uris=[back], client_name=settings.client_name, scope=settings.scopes)
        super().__init__(url, metadata, self, self._show, self._answer, settings.client_metadata_url)
        self._fixed = _client_info(settings, settings.client_id, back) if settings.client_id else None
        self._set_up(name, store, metadata, mask_also)

    def set_no_prompt_message(self, why: str) -> None:
        """What to say where the server wants something, and nobody has mentioned a login."""
        self._unasked = why

    async def log_in(self, client: httpx2.AsyncClient, request: httpx2.Request) -> str | None:
        """A login from the start, with a registration of its own: what was kept may be the trouble. Its scopes.

        The request is any that the server might want a login for. What is kept is replaced when it has succeeded.
        """
        try:
            await self._load()
        except AuthError:  # it was encrypted with a key that is gone: this login replaces it
            self._use(self._store.empty)
        self.context.client_info, self.context.oauth_metadata = self._fixed, None
        self.context.clear_tokens()
        self._insists = True
        try:
            response = await client.send(request, stream=True, auth=self)
        except LoginRequiredError:
            raise AuthError(f"the server {self._name} does not take the token that was got for it") from None
        await response.aclose()
        return self.context.current_tokens.scope if self.context.current_tokens else None

    async def _exchange_token_authorization_code(self, auth_code: str, code_verifier: str) -> httpx2.Request:
        self._settle_method()
        return await super()._exchange_token_authorization_code(auth_code, code_verifier)

    async def _show(self, url: str) -> None:
        self._check_address(url)
        self._page = url

    async def _answer(self) -> AuthorizationCodeResult:
        answer = await self._prompt(self._page) if self._prompt else {}
        if "error" in answer:
            said = ": ".join(short(answer[key]) for key in ("error", "error_description") if answer.get(key))
            raise OAuthFlowError(f"the login was refused ({said})")
        return AuthorizationCodeResult(code=answer.get("code", ""), state=answer.get("state"), iss=answer.get("iss"))


class ProgramAuth(StoredAuth, ClientCredentialsOAuthProvider):
    """A program's own credentials: new tokens whenever they are needed."""

    _may_obtain = True

    def __init__(self, name: str, url: str, settings: ClientCredentials, store: LoginStore, mask_also: Known) -> None:
        # Without an issuer the SDK warns. We go by the first one that has let us in, see `_use`.
        ClientCredentialsOAuthProvider.__init__(
            self, url, self, settings.client_id, settings.client_secret, scope=settings.scopes, issuer=url
        )
        self._issuer = self._configured_issuer = settings.issuer
        self._fixed = self._fixed_client_info
        metadata = ClientMetadata.model_validate(self.context.client_metadata.model_dump())
        self.context.client_metadata = metadata
        self._set_up(name, store, metadata, mask_also)

    def _use(self, kept: StoredLogin) -> None:
        super()._use(kept)
        server = self.context.oauth_metadata
        self._issuer = self._configured_issuer or (str(server.issuer) if server else None)

    async def _exchange_token_client_credentials(self) -> httpx2.Request:
        self._settle_method()
        return await super()._exchange_token_client_credentials()


def _client_info(settings: PersonLogin, client_id: str, back: Any) -> OAuthClientInformationFull:
    return OAuthClientInformationFull(
        client_id=client_id, client_secret=settings.client_secret, redirect_uris=[back], issuer=settings.issuer
    )


# Entry points


LOGIN_SECONDS = 300.0  # seconds for a person to log in
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}  # leaves no session behind
HEADERS = {"Accept": "application/json, text/event-stream"}

Say = Callable[[str], None]


def http_auth(
    name: str,
    url: str,
    auth: AuthValue,
    logins: Documents,
    prompt: "LoginPrompt | None" = None,
    mask_also: Say = lambda value: None,
) -> "httpx2.Auth":
    """What the transport's HTTP client takes as its `auth`. `prompt` is None where there is nobody to ask.

    Without `auth` in the config a login is used where there is one: blocks from elsewhere never mention it. Each secret
    value is passed to `mask_also` before it is used.
    """

    settings = read(auth)
    match settings:
        case BearerToken():
            return BearerAuth(name, settings.token)
        case ClientCredentials():
            return ProgramAuth(name, url, settings, login_store(logins, name, url, settings.key), mask_also)
        case PersonLogin():
            return _person_auth(name, url, settings, logins, prompt, mask_also)
        case None:
            quiet = _person_auth(name, url, PersonLogin(), logins, prompt, mask_also)
            quiet.set_no_prompt_message("wants a token (`auth` or `headers` in its config) or a login")
            return quiet


async def login(
    name: str,
    url: str,
    auth: AuthValue,
    logins: Documents,
    say: Say,
    browse: Say | None = None,
    seconds: float = LOGIN_SECONDS,
) -> str | None:
    """Have a person log in, and keep what comes of it. The scopes that were granted, where the server says so.

    Whatever ends it, also Ctrl-C: nothing listens any more, and what was kept before is as it was.
    """
    import asyncio

    import httpx2

    settings = _login_settings(name, auth)
    browse = browse or open_browser

    def show(page: str) -> None:
        say(f"To log in to {name}, open this page in a browser on this machine:\n\n  {page}\n")
        browse(page)

    try:
        async with (
            asyncio.timeout(seconds),
            listening(name, settings.redirect_port, show) as prompt,
            httpx2.AsyncClient(transport=ServerTransport(url), timeout=20.0, headers=HEADERS) as client,
        ):
            person = _person_auth(name, url, settings, logins, prompt, lambda value: None)
            return await person.log_in(client, client.build_request("POST", url, json=PING))
    except TimeoutError:
        raise AuthError(f"nobody has finished the login to {name} within {seconds:.0f} s") from None
    except httpx2.HTTPError as error:
        raise AuthError(f"the server {name} can't be reached for a login: {error or type(error).__name__}") from None
    except OSError as error:
        if settings.redirect_port is None:
            raise
        place = f"{CALLBACK_HOST}:{settings.redirect_port}"
        raise AuthError(f"can't listen at {place} for the end of the login: {error.strerror}") from None


def _login_settings(name: str, auth: AuthValue) -> PersonLogin:
    settings = read(auth) or PersonLogin()
    if not isinstance(settings, PersonLogin):
        kind = "a token" if isinstance(settings, BearerToken) else "credentials of its own"
        raise AuthError(f"the server {name} has {kind} in its `auth`: there is nothing to log in to")
    return settings


def _person_auth(
    name: str,
    url: str,
    settings: PersonLogin,
    logins: Documents,
    prompt: "LoginPrompt | None",
    mask_also: Say,
) -> "PersonAuth":
    return PersonAuth(name, url, settings, login_store(logins, name, url, settings.key), prompt, mask_also)


def login_store(logins: Documents, name: str, url: str, key: str) -> LoginStore:
    """Return the login to the server of that name."""
    return LoginStore(logins, file_name(name), url, key)
