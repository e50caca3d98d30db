"""A real authorization server, and an MCP server that wants its tokens: two origins, the SDK's own code.

    with Authority() as authority: …  # authority.url is the MCP server's

What it does next can be changed while it runs: `authority.lifetime = 5`, `authority.denies = True`. Everything secret
that it ever gave out is in `authority.secrets`.
"""

import asyncio
import json
import re
import secrets
import socket
import time
from threading import Thread
from urllib.error import HTTPError
from urllib.request import urlopen

import httpx2
import uvicorn
from helpers import until
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizeError,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

PROGRAM = ("robot", "robots-own-secret")


class Authority:
    def __init__(self):
        self.lifetime = 3600  # seconds of a new access token
        self.denies = False
        self.slow = 0.0  # seconds before a token is given
        self.fault = None  # (status, body) of every answer of the token endpoint
        self.secrets = []
        self.requests = []  # what was asked of the token endpoint: (grant type, form)
        self.scopes_asked = []
        self.clients, self.codes, self.refreshes, self.accesses = {}, {}, {}, {}
        self.most_at_once = self.at_once = 0
        self._sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self.issuer, origin = (f"http://127.0.0.1:{one.getsockname()[1]}" for one in self._sockets)
        self.url = f"{origin}/mcp"
        self._servers = []

    def __enter__(self):
        for app, listener in zip((self._authorization_app(), self._mcp_app()), self._sockets, strict=True):
            server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="on", ws="none"))
            thread = Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
            thread.start()
            self._servers.append((server, thread))
        until(lambda: all(server.started for server, _ in self._servers))
        return self

    def __exit__(self, *failure):
        for server, _ in self._servers:
            server.should_exit = server.force_exit = True
        for _, thread in self._servers:
            thread.join(10)

    def expire_everything(self):
        """The access tokens: their time is over, as far as the server knows."""
        self.accesses.clear()

    # What the SDK's authorization server wants to know

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client_info):
        self.clients[client_info.client_id] = client_info
        self.secrets += [client_info.client_secret] if client_info.client_secret else []

    async def authorize(self, client, params):
        self.scopes_asked.append(params.scopes)
        if self.denies:
            raise AuthorizeError("access_denied", "the user said no")
        code = self._new("code")
        self.codes[code] = AuthorizationCode(
            code=code,
            client_id=client.client_id,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(self, client, authorization_code):
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client, authorization_code):
        del self.codes[authorization_code.code]
        return self._grant(client.client_id, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client, refresh_token):
        return self.refreshes.get(refresh_token)

    async def exchange_refresh_token(self, client, refresh_token, scopes):
        if self.refreshes.pop(refresh_token.token, None) is None:  # good for one use
            raise TokenError("invalid_grant")
        return self._grant(client.client_id, scopes, refresh_token.resource)

    async def load_access_token(self, token):
        return self.accesses.get(token)

    async def verify_token(self, token):
        return self.accesses.get(token)

    def _grant(self, client_id, scopes, resource):
        access, refresh = self._new("access"), self._new("refresh")
        lasts = None if self.lifetime is None else int(time.time()) + (self.lifetime or 3600)
        about = {"client_id": client_id, "scopes": scopes, "resource": resource}
        self.accesses[access] = AccessToken(token=access, expires_at=lasts, **about)
        self.refreshes[refresh] = RefreshToken(token=refresh, **about)
        return OAuthToken(
            access_token=access, refresh_token=refresh, expires_in=self.lifetime, scope=" ".join(scopes) or None
        )

    def _new(self, kind):
        self.secrets.append(f"{kind}-{secrets.token_urlsafe(24)}")
        return self.secrets[-1]

    # The two servers

    def _authorization_app(self):
        options = ClientRegistrationOptions(
            enabled=True, valid_scopes=["read", "write", "admin"], default_scopes=["read"]
        )
        routes = create_auth_routes(self, AnyHttpUrl(self.issuer), client_registration_options=options)
        token = next(route for route in routes if route.path == "/token")
        routes.remove(token)
        routes.append(Route("/token", _TokenEndpoint(self, token.app), methods=["POST"]))
        return Starlette(routes=routes)

    def _mcp_app(self):
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(self.issuer),
            resource_server_url=AnyHttpUrl(self.url),
            required_scopes=["read"],
            validate_token_resource=True,
        )
        server = MCPServer("vault", token_verifier=self, auth=settings)

        @server.tool()
        async def peek(wait: float = 0) -> str:
            """Look."""
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            await asyncio.sleep(wait)
            self.at_once -= 1
            return "gold"

        @server.tool()
        async def burn() -> str:
            """Wants more rights than the rest."""
            return "ashes"

        return _WantsMore(self, server.streamable_http_app(json_response=True))


class _TokenEndpoint:
    """The SDK's, with what is on the knobs, and with the grant for programs that it does not know."""

    def __init__(self, authority, inner):
        self._authority = authority
        self._inner = inner

    async def __call__(self, scope, receive, send):
        body = (await receive())["body"]
        form = dict(httpx2.QueryParams(body.decode()))
        authority = self._authority
        authority.requests.append((form["grant_type"], form))
        await asyncio.sleep(authority.slow)

        async def again():
            return {"type": "http.request", "body": body, "more_body": False}

        if authority.fault:
            status, content = authority.fault
            await JSONResponse(content, status)(scope, again, send)
        elif form["grant_type"] == "client_credentials":
            await self._program(dict(scope["headers"]), form)(scope, again, send)
        else:
            await self._inner(scope, again, send)

    def _program(self, headers, form):
        given = httpx2.BasicAuth(*PROGRAM)._auth_header.encode()
        if headers.get(b"authorization") != given:
            return JSONResponse({"error": "invalid_client"}, 401)
        granted = self._authority._grant(PROGRAM[0], form.get("scope", "read").split(), form.get("resource"))
        return JSONResponse(granted.model_dump(exclude={"refresh_token"}))


class _WantsMore:
    """In front of the MCP server: one tool wants the scope `admin`."""

    def __init__(self, authority, inner):
        self._authority = authority
        self._inner = inner

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._inner(scope, receive, send)
            return
        message = await receive()
        token = re.sub(rb"(?i)^bearer ", b"", dict(scope["headers"]).get(b"authorization", b"")).decode()
        held = self._authority.accesses.get(token)
        if b'"burn"' in message["body"] and held is not None and "admin" not in held.scopes:
            challenge = 'Bearer error="insufficient_scope", scope="admin"'
            await JSONResponse({}, 403, {"WWW-Authenticate": challenge})(scope, receive, send)
            return
        messages = iter([message])

        async def first():
            return next(messages, None) or await receive()

        await self._inner(scope, first, send)


def browser(url):
    """A person who says yes: the page is opened, and its redirect followed, in a thread as a browser would."""
    Thread(target=visit, args=(url,), daemon=True).start()


def visit(url):
    """The page at the end, as (status, headers, text). Not with our own HTTP client: its log is looked through."""
    try:
        with urlopen(url, timeout=10) as page:
            return page.status, page.headers, page.read().decode()
    except HTTPError as error:
        return error.code, error.headers, error.read().decode()


def stored(file):
    return json.loads(file.read_text())
