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
        self, impl: HttpImpl, arg_schema: Mapping[str, Any], limits: ToolLimits, context: Callable[[], HttpContext]
    ) -> None:
        request, response = impl.request, impl.response
        self._template = RequestTemplate(request, arg_schema)
        self._auth = _authenticator(request.auth, arg_schema)
        self._context = context
        self._reader = ResponseReader(response, time.time)
        self._accept = ("Accept", ACCEPTS.get(response.encoding, "*/*"))
        if any(name.lower() == "accept" for name in request.headers):
            self._accept = None
        self._streams = response.encoding == "sse"
        retries = Retries(request, limits)
        seconds = request.timeout_ms / 1000
        sizes = limits.max_response_bytes, limits.max_request_bytes
        self._sender = Sender(retries, seconds, *sizes, request.follow_redirects, self._streams)
        self._total = sending_seconds(impl, limits)
        self.timeout = total_seconds(impl, limits)
        self.secrets = self._template.secrets | (self._auth.secrets if self._auth else frozenset())

    async def __call__(self, **args: Any) -> Any:
        call = current_call.get()
        environment = None if call is None else call.environment
        context = self._context()
        secret = context.secret or (_no_secret if environment is None else environment.secret)
        if environment is not None:
            context = context._replace(redact=lambda value: environment.redact(value, args))
        redact = context.redact
        request = self._template.fill(args, secret)
        only_there = context.only_to(request.url, secret)
        for name in self._template.secrets:
            only_there(name)
        for name in self._template.secrets_in_host:  # hosts are in lower case, where nobody would recognise it
            context.mask_also((secret(name) or "").lower())
        if self._accept is not None:
            request.headers.append(self._accept)
        signer = None
        if self._auth is not None:
            signer = self._auth.begin(args, secret if self._auth.asks_elsewhere else only_there, context)
        place = request.url.authority
        try:
            answer = await self._sender.send(request, signer, context, self._total)
            if self._streams:
                return await self._reader.events(answer, place, call.progress if call else None, redact)
            return await self._reader.value(answer, place, context.store_result, redact)
        except WireError as failure:
            raise failure if failure.reason != "timeout" else with_message(failure, str(failure), SLOW) from None


def _authenticator(auth: "Auth | None", arg_schema: Mapping[str, Any]) -> Authenticator | None:
    if isinstance(auth, OAuth2):
        from onetool.http.oauth import OAuthAuthenticator  # only for tools that use it

        return OAuthAuthenticator(auth, argument_names(arg_schema), arg_schema)
    return authenticator_for(auth, argument_names(arg_schema))


def _no_secret(_: str) -> None:
    return None
