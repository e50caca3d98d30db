"""`HttpTool` is the handler of an HTTP tool: arguments in, a value out."""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from onetool.core.context import current_call
from onetool.http.auth import Authenticator, authenticator_for
from onetool.http.client import HttpContext
from onetool.http.definition import HttpImpl, OAuth2, ToolLimits, sending_seconds, total_seconds
from onetool.http.errors import WireError, with_message
from onetool.http.placeholders import argument_names
from onetool.http.response import ResponseReader
from onetool.http.sending import Retries, Sender
from onetool.http.template import RequestTemplate

if TYPE_CHECKING:
    from onetool.http.definition import Auth

SLOW = "timeoutMs in the tool's httpImpl.request sets how long each try may take"
ACCEPTS = {"json": "application/json, */*;q=0.5", "sse": "text/event-stream"}


class HttpTool:
    """`await tool(city="Kyiv")`. Making one raises TemplateError, with a pointer into httpImpl, for what can't work."""

    def __init__(
        self,
        impl: HttpImpl,
        arg_schema: Mapping[str, Any],
        limits: ToolLimits,
        outside: Callable[[], HttpContext],
        bundle: str | None = None,
    ) -> None:
        """`bundle` is the id of the bundle that the tool is in: a person's login is for one bundle."""
        request, response = impl.request, impl.response
        self._template = RequestTemplate(request, arg_schema)
        self._auth = _authenticator(request.auth, arg_schema, self._template, bundle)
        self._outside = outside
        self._reader = ResponseReader(response, time.time)
        self._accept = ("Accept", ACCEPTS.get(response.encoding, "*/*"))
        if any(name.lower() == "accept" for name in request.headers):
            self._accept = None
        self._streams = response.encoding == "sse"
        retries = Retries(request, limits)
        seconds = request.timeout_ms / 1000
        sizes = limits.max_response_bytes, limits.max_request_bytes
        self._sending = Sender(retries, seconds, *sizes, request.follow_redirects, self._streams)
        self._total = sending_seconds(impl, limits)
        self.timeout = total_seconds(impl, limits)
        self.secrets = self._template.secrets | (self._auth.secrets if self._auth else frozenset())

    async def __call__(self, **args: Any) -> Any:
        call = current_call.get()
        environment = None if call is None else call.environment
        outside = self._outside()
        secret = outside.secret or (_no_secret if environment is None else environment.secret)
        if environment is not None:
            outside = outside._replace(redact=lambda value: environment.redact(value, args))
        redact = outside.redact
        outgoing = self._template.fill(args, secret)
        only_there = outside.only_to(outgoing.url, secret)
        for name in self._template.secrets:
            only_there(name)
        for name in self._template.secrets_in_host:  # hosts are in lower case, where nobody would recognise it
            outside.know((secret(name) or "").lower())
        if self._accept is not None:
            outgoing.headers.append(self._accept)
        signer = None
        if self._auth is not None:
            signer = self._auth.begin(args, secret if self._auth.asks_elsewhere else only_there, outside)
        place = outgoing.url.authority
        try:
            answer = await self._sending.send(outgoing, signer, outside, self._total)
            if self._streams:
                return await self._reader.events(answer, place, call.progress if call else None, redact)
            return await self._reader.value(answer, place, outside.keep, redact)
        except WireError as failure:
            raise failure if failure.reason != "timeout" else with_message(failure, str(failure), SLOW) from None


def _authenticator(
    auth: "Auth | None", arg_schema: Mapping[str, Any], template: RequestTemplate, bundle: str | None
) -> Authenticator | None:
    if isinstance(auth, OAuth2) and auth.grant == "authorizationCode":
        from onetool.http.oauth_login import LoginAuthenticator

        return LoginAuthenticator(auth, argument_names(arg_schema), template.fixed_url, bundle)
    if isinstance(auth, OAuth2):
        from onetool.http.oauth import OAuthAuthenticator  # only for tools that use it

        return OAuthAuthenticator(auth, argument_names(arg_schema), arg_schema)
    return authenticator_for(auth, argument_names(arg_schema))


def _no_secret(_: str) -> None:
    return None
