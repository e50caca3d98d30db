"""`HttpTool` is the handler of an HTTP tool: arguments in, a value out."""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from onetool.core.context import current_call
from onetool.core.json_data import StoreBlob
from onetool.http.allowed_hosts import AllowedHosts, is_one_of
from onetool.http.auth import authenticator_for
from onetool.http.client import HttpClient
from onetool.http.definition import HttpImpl, ToolLimits, sending_seconds, total_seconds
from onetool.http.errors import RequestRefusedError, WireError, with_message
from onetool.http.placeholders import Lookup, argument_names
from onetool.http.response import ResponseReader
from onetool.http.sending import Retries, Sender
from onetool.http.template import RequestTemplate
from onetool.http.url import Url

SLOW = "timeoutMs in the tool's httpImpl.request sets how long each try may take"
ACCEPTS = {"json": "application/json, */*;q=0.5", "sse": "text/event-stream"}


class HttpContext(NamedTuple):
    """What a tool reaches of the app. `know` is told of secrets that come by: `redact` masks them from then on."""

    client: HttpClient
    hosts: AllowedHosts
    keep: StoreBlob
    know: Callable[[str], None] = lambda _: None
    redact: Callable[[Any], Any] = lambda value: value  # the call's own
    secret: Lookup | None = None  # by name; those of the call's environment where it is None
    bound: Callable[[str], tuple[str, ...]] = lambda _: ()  # the hosts that a secret is for, if not for any

    def only_to(self, url: Url, secret: Lookup) -> Lookup:
        """The same secrets for who sends them to this URL: one that is for other hosts is refused."""

        def find(name: str) -> str | None:
            if (hosts := self.bound(name)) and not is_one_of(url, hosts):
                only = ", ".join(hosts)
                raise RequestRefusedError(
                    f"the secret {name} is only for requests to {only}, and this one goes to {url.authority}",
                    [f"if that is meant: onetool auth set {name} --host {url.authority}"],
                )
            return secret(name)

        return find


class HttpTool:
    """`await tool(city="Kyiv")`. Making one raises TemplateError, with a pointer into httpImpl, for what can't work."""

    def __init__(
        self, impl: HttpImpl, arg_schema: Mapping[str, Any], limits: ToolLimits, outside: Callable[[], HttpContext]
    ) -> None:
        request, response = impl.request, impl.response
        self._template = RequestTemplate(request, arg_schema)
        self._auth = authenticator_for(request.auth, argument_names(arg_schema), arg_schema)
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


def _no_secret(_: str) -> None:
    return None
