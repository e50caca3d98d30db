"""A real authorization server, of the SDK's own code, whose access tokens are JWTs of an `Issuer`.

    with AuthorizationServer() as server: …  # server.url is its issuer

It publishes its keys at /jwks.json, and its metadata say so. `server.subject` says yes to everything; `server.asked`
is what was asked of the token endpoint and the authorization page.
"""

import secrets
import socket
import time
from threading import Thread

import uvicorn
from helpers import until
from interfaces.http.issuer import key, signed
from mcp.server.auth.provider import AuthorizationCode, RefreshToken, construct_redirect_uri
from mcp.server.auth.routes import build_metadata, create_auth_routes
from mcp.server.auth.settings import ClientRegistrationOptions, RevocationOptions
from mcp.shared.auth import OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

SCOPES = ["tools:call", "tools:admin", "time"]


class AuthorizationServer:
    def __init__(self):
        self.key = key("RSA")
        self.subject, self.lifetime = "ann", 600
        self.clients, self.codes, self.refreshes = {}, {}, {}
        self.asked, self.tokens = [], []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/"  # pydantic writes it with a slash

    def __enter__(self):
        config = uvicorn.Config(self._app(), log_level="critical", lifespan="on", ws="none")
        self._server = uvicorn.Server(config)
        self._thread = Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()
        until(lambda: self._server.started)
        return self

    def __exit__(self, *_):
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(10)

    def _app(self):
        issuer, options = AnyHttpUrl(self.url), ClientRegistrationOptions(enabled=True, valid_scopes=SCOPES)
        routes = create_auth_routes(self, issuer, client_registration_options=options)
        metadata = build_metadata(issuer, None, options, RevocationOptions())
        said = {**metadata.model_dump(mode="json", exclude_none=True), "jwks_uri": f"{self.url}jwks.json"}
        well_known = "/.well-known/oauth-authorization-server"
        routes = [route for route in routes if route.path != well_known]
        routes.append(Route(well_known, lambda _: JSONResponse(said)))
        routes.append(Route("/jwks.json", lambda _: JSONResponse({"keys": [self.key.jwk()]})))
        return Starlette(routes=routes)

    # What the SDK's authorization server wants to know

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client_info):
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client, params):
        self.asked.append((params.scopes, params.resource))
        code = secrets.token_urlsafe(24)
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
        del self.refreshes[refresh_token.token]
        return self._grant(client.client_id, scopes, refresh_token.resource)

    def _grant(self, client_id, scopes, resource):
        now = time.time()
        claims = {
            "iss": self.url,
            "sub": self.subject,
            "aud": resource,
            "client_id": client_id,
            "scope": " ".join(scopes),
            "iat": int(now),
            "exp": int(now) + self.lifetime,
            "jti": secrets.token_hex(8),
        }
        token = signed({"alg": "RS256", "typ": "at+jwt", "kid": self.key.kid}, claims, self.key.sign).decode()
        refresh = secrets.token_urlsafe(24)
        about = {"client_id": client_id, "scopes": scopes, "resource": resource}
        self.refreshes[refresh] = RefreshToken(token=refresh, **about)
        self.tokens.append(token)
        return OAuthToken(
            access_token=token, refresh_token=refresh, expires_in=self.lifetime, scope=" ".join(scopes) or None
        )
