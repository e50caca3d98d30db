"""OAuth 2 for HTTP tools: the token endpoint, and tokens by client credentials or a refresh token.

`TokenCache` keeps those, and none is written to disk; `oauth_login` has the logins of people. Every new token is
registered for masking before it is used.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote_plus, urlencode

import msgspec

from onetool.core.errors import ToolFailure
from onetool.core.json_data import JsonTooCostlyError
from onetool.core.redaction import MASK
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
from onetool.http.client import FetchedToken, TokenKey
from onetool.http.definition import TOKEN_SECONDS, OAuth2, Request
from onetool.http.errors import quoted, with_message
from onetool.http.placeholders import KnownNames, Lookup, TemplateError

if TYPE_CHECKING:
    from onetool.http.client import HttpContext
    from onetool.http.connection import HttpResponse
    from onetool.http.url import HttpRequest, Url

LARGEST = 256 * 1024
SENT_SECRETS = ("refresh_token", "code", "code_verifier")  # of a form

_SENDABLE = re.compile(r"[\x21-\x7e]+")
_UNFIT = re.compile(r"[^\x20-\x7e]+")


class OAuthAuthenticator(Authenticator):
    asks_elsewhere = True

    def __init__(self, auth: OAuth2, arguments: KnownNames, arg_schema: Mapping[str, Any]) -> None:
        from onetool.http.template import RequestTemplate

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

    def begin(self, args: Mapping[str, Any], secret: Lookup, context: "HttpContext") -> Signer:
        endpoint = self._endpoint.fill(args, secret)
        for name in self.secrets:
            context.check_secret(name, endpoint.url)
        # A caller that gives all credentials as arguments may see the token.
        masking = context if self.secrets else context._replace(mask_also=lambda _: None)
        filled = self.texts.fill(args, secret)
        return _OAuthSigner(TokenEndpoint(self.auth, self.texts, filled, endpoint, secret, masking))

    def destinations(self, target: "Url | None") -> "Iterator[Destination]":
        yield self.secrets, self._endpoint.fixed_url


class _OAuthSigner(Signer):
    def __init__(self, endpoint: "TokenEndpoint") -> None:
        self._endpoint, self._tokens = endpoint, endpoint.context.client.tokens
        # Everything that a token depends on: with another secret it is another token.
        self._key: TokenKey = (endpoint.request.url.text, endpoint.auth.grant, *endpoint.filled.values())
        self._token = ""
        self._refused: str | None = None
        self._left = 0.0

    async def prepare(self, left: float) -> None:
        self._left = left
        self._token = await self._tokens.get(self._key, self._fetch, self._refused)
        # Tokens in use are masked; of many that were used once, some may be forgotten.
        self._endpoint.context.mask_also(self._token)

    def sign(self, request: "HttpRequest") -> "HttpRequest":
        return with_header(request, "Authorization", f"Bearer {self._token}")

    def on_unauthorized(self) -> bool:
        """Once: a token may have been taken back. A second one that is refused, too, is not the token's fault."""
        if self._refused is not None or not self._tokens.may_fetch(self._key):
            return False
        self._refused = self._token
        return True

    async def _fetch(self, newer: str | None) -> FetchedToken:
        form, filled = {"grant_type": "client_credentials"}, self._endpoint.filled
        if self._endpoint.auth.grant == "refreshToken":
            form = {"grant_type": "refresh_token", "refresh_token": newer or filled["refresh_token"]}
        if filled["scope"]:
            form["scope"] = filled["scope"]
        return await self._endpoint.ask(form, self._left)


class TokenRefusedError(ToolFailure):
    """The token endpoint gave no token. `fault` is its own word for that, such as invalid_grant."""

    fault = ""
    status = 0


class TokenEndpoint(NamedTuple):
    """`tokenUrl` of an `auth`, with the credentials of its client. `request` is an empty POST to it."""

    auth: OAuth2
    texts: AuthTexts
    filled: dict[str, str]
    request: "HttpRequest"
    secret: Lookup
    context: "HttpContext"

    def __repr__(self) -> str:
        return "TokenEndpoint(***)"

    async def ask(self, form: dict[str, str], left: float) -> FetchedToken:
        """Send the form within `left` seconds. ToolFailure says why there is no token."""
        client, hosts = self.context.client, self.context.hosts
        request = self._filled_request({**form})
        try:
            answer = await client.send(request, hosts, timeout=min(left, TOKEN_SECONDS), max_bytes=LARGEST)
        except ToolFailure as error:
            raise with_message(
                error, f"no access token: {error}", "it was asked for at tokenUrl of the tool's auth"
            ) from None
        return self._read(answer, form)

    def _filled_request(self, form: dict[str, str]) -> "HttpRequest":
        filled = self.filled
        headers = [("Content-Type", "application/x-www-form-urlencoded"), ("Accept", "application/json")]
        if self.auth.client_auth == "body" or not filled["client_secret"]:
            form["client_id"] = filled["client_id"]
            if filled["client_secret"]:
                form["client_secret"] = filled["client_secret"]
        else:
            # As RFC 6749 has it: both are encoded as in a form first.
            login = basic(quote_plus(filled["client_id"]), quote_plus(filled["client_secret"]))
            for part in self.texts.derived(login.removeprefix("Basic "), self.secret, quote_plus):
                self.context.mask_also(part)
            headers.append(("Authorization", login))
        return self.request._replace(headers=headers, body=urlencode(form).encode())

    def _read(self, answer: "HttpResponse", form: dict[str, str]) -> FetchedToken:
        try:
            said: Any = json_of(answer.body)
        except (msgspec.MsgspecError, JsonTooCostlyError, UnicodeDecodeError):
            said = None
        said = said if isinstance(said, dict) else {}
        access, kind = said.get("access_token"), said.get("token_type", "Bearer")
        if answer.status != 200 or not isinstance(access, str):
            raise self._failure(answer.status, said, form)
        check_length(access, f"the access token of {self.request.url.authority}")
        self.context.mask_also(access)
        if str(kind).lower() != "bearer" or not _SENDABLE.fullmatch(access):
            raise self._failure(answer.status, {"error": "what it gave is no bearer token"}, form)
        refresh = said.get("refresh_token")
        if isinstance(refresh, str) and refresh:
            check_length(refresh, f"the refresh token of {self.request.url.authority}")
            self.context.mask_also(refresh)
        else:
            refresh = None
        scope = said.get("scope")
        return FetchedToken(access, _life(said.get("expires_in")), refresh, scope if isinstance(scope, str) else None)

    def _failure(self, status: int, said: dict[str, Any], form: dict[str, str]) -> ToolFailure:
        """In the endpoint's own words, those that are for people; without what was sent, should they repeat it."""
        texts = [one for key in ("error", "error_description") if isinstance(one := said.get(key), str)]
        words = ": ".join(text for text in texts if text) or "it gave no access token"
        credentials = (self.filled.get("client_secret"), self.filled.get("refresh_token"))
        for value in (*credentials, *(form.get(key) for key in SENT_SECRETS)):
            if value:
                words = words.replace(value, MASK)
        words = quoted(_UNFIT.sub(" ", self.context.redact(words)), self.context.redact, 300)
        refused = TokenRefusedError(
            f"no access token: {self.request.url.authority} answered {status}: {words}",
            reason="upstream_error",
            hints=("check clientId, clientSecret and scope in the tool's auth, and the secrets that they name",),
        )
        refused.fault, refused.status = str(said.get("error") or ""), status
        return refused


def _life(seconds: Any) -> float | None:
    """Seconds until expiry; servers send texts, nothing, or 0 for unknown."""
    try:
        found = float(seconds)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if 0 < found < 10 * 366 * 86_400 else None
