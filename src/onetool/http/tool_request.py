"""`ToolRequest` is one request of an HTTP tool: it fills the template, signs, sends, and reads the response."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onetool.http.auth import Authenticator, Signer, authenticator_for
from onetool.http.client import HttpContext
from onetool.http.definition import OAuth2, RequestStep, ToolLimits, sending_seconds
from onetool.http.errors import Redact, WireError, with_message
from onetool.http.placeholders import KnownNames, Lookup, StepNames
from onetool.http.response import ResponseReader, Tell
from onetool.http.sending import Retries, Sender
from onetool.http.template import RequestTemplate

if TYPE_CHECKING:
    from onetool.http.definition import Auth
    from onetool.http.url import HttpRequest, Url

SLOW = "timeoutMs in the tool's httpImpl.request sets how long each try may take"
ACCEPTS = {"json": "application/json, */*;q=0.5", "sse": "text/event-stream"}


class ToolRequest:
    """Made once per tool. Making one raises TemplateError, with a pointer, for what can't work.

    `args` of its methods are the arguments of the call, and values of the steps before under their placeholders' names.
    """

    def __init__(
        self,
        step: RequestStep,
        arg_schema: Mapping[str, Any],
        limits: ToolLimits,
        steps: StepNames | None = None,
        bundle: str | None = None,
    ) -> None:
        """`bundle` is the id of the bundle that the tool is in: a person's login is for one bundle."""
        request, response = step.request, step.response
        self._template = RequestTemplate(request, arg_schema, steps)
        self.auth = _authenticator(request.auth, KnownNames(arg_schema, steps), arg_schema, self.fixed_url, bundle)
        self._reader = ResponseReader(response, time.time)
        self._accept = ("Accept", ACCEPTS.get(response.encoding, "*/*"))
        if any(name.lower() == "accept" for name in request.headers):
            self._accept = None
        self._streams = response.encoding == "sse"
        retries = Retries(request, limits)
        sizes = limits.max_response_bytes, limits.max_request_bytes
        self._sending = Sender(retries, request.timeout_ms / 1000, *sizes, request.follow_redirects, self._streams)
        self._seconds = sending_seconds(request, limits)
        self.secrets, self.step_values = self._template.secrets, self._template.step_values
        self.credentials = self._template.credentials  # values of steps that have to be masked
        if self.auth is not None:
            self.secrets |= self.auth.secrets
            self.step_values |= self.auth.step_values
            self.credentials |= self.auth.step_values

    @property
    def fixed_url(self) -> "Url | None":
        """Where every request goes to, as far as the host; None where that depends on the call."""
        return self._template.fixed_url

    def prepared(
        self, args: Mapping[str, Any], secret: Lookup, context: HttpContext
    ) -> "tuple[HttpRequest, Signer | None]":
        """The request of one call, and what signs it. Nothing is sent."""
        outgoing = self.unsigned(args, secret)
        only_there = context.only_to(outgoing.url, secret)
        for name in self._template.secrets:
            only_there(name)
        for name in self._template.secrets_in_host:  # a host is written in lower case: that form is a secret, too
            context.mask_also((secret(name) or "").lower())
        if self.auth is None:
            return outgoing, None
        return outgoing, self.auth.begin(args, secret if self.auth.asks_elsewhere else only_there, context)

    def unsigned(self, args: Mapping[str, Any], secret: Lookup) -> "HttpRequest":
        """The request of one call, without what logs in."""
        outgoing = self._template.fill(args, secret)
        if self._accept is not None:
            outgoing.headers.append(self._accept)
        return outgoing

    async def send(
        self,
        args: Mapping[str, Any],
        secret: Lookup,
        context: HttpContext,
        tell: Tell | None,
        most_seconds: float | None = None,
        clean: Redact | None = None,
    ) -> Any:
        """The value. `tell` is told of events as they come; `clean` masks data, where `context.redact` masks more."""
        outgoing, signer = self.prepared(args, secret, context)
        place = outgoing.url.authority
        seconds = self._seconds if most_seconds is None else min(self._seconds, most_seconds)
        try:
            answer = await self._sending.send(outgoing, signer, context, seconds)
            if self._streams:
                return await self._reader.events(answer, place, tell, context.redact)
            return await self._reader.value(answer, place, context.store_result, context.redact, clean)
        except WireError as failure:
            raise failure if failure.reason != "timeout" else with_message(failure, str(failure), SLOW) from None


def _authenticator(
    auth: "Auth | None", arguments: KnownNames, arg_schema: Mapping[str, Any], target: "Url | None", bundle: str | None
) -> Authenticator | None:
    if isinstance(auth, OAuth2) and auth.grant == "authorizationCode":
        from onetool.http.oauth_login import LoginAuthenticator

        return LoginAuthenticator(auth, arguments, target, bundle)
    if isinstance(auth, OAuth2):
        from onetool.http.oauth import OAuthAuthenticator  # only for tools that use it

        return OAuthAuthenticator(auth, arguments, arg_schema)
    return authenticator_for(auth, arguments)
