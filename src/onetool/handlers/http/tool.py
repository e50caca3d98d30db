"""HttpTool: the handler of an HTTP tool. Arguments in, a value out; what can be done once is done at its start."""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from onetool.core.blob import Keep
from onetool.core.context import current_call
from onetool.handlers.http.auth import helper_for
from onetool.handlers.http.client import Client
from onetool.handlers.http.faults import TooLarge, WireFailure, retold
from onetool.handlers.http.hosts import AllowedHosts
from onetool.handlers.http.impl import HttpImpl, Limits
from onetool.handlers.http.placeholders import argument_names
from onetool.handlers.http.response import Reader
from onetool.handlers.http.retry import Retries
from onetool.handlers.http.sending import Sending
from onetool.handlers.http.template import Template
from onetool.handlers.http.timing import sending_seconds, total_seconds

if TYPE_CHECKING:
    from onetool.handlers.http.template import Outgoing

SLOW = "timeoutMs in the tool's httpImpl.request sets how long each try may take"
ACCEPTS = {"json": "application/json, */*;q=0.5", "sse": "text/event-stream"}


class Outside(NamedTuple):
    """What a tool reaches of the app. `know` is told of secrets that come by: they are masked from then on."""

    client: Client
    hosts: AllowedHosts
    keep: Keep
    know: Callable[[str], None] = lambda _: None


class HttpTool:
    """`await tool(city="Kyiv")`. Making one raises TemplateError, with a pointer into httpImpl, for what can't work."""

    def __init__(
        self, impl: HttpImpl, arg_schema: Mapping[str, Any], limits: Limits, outside: Callable[[], Outside]
    ) -> None:
        request, response = impl.request, impl.response
        self._template = Template(request, arg_schema)
        self._auth = helper_for(request.auth, argument_names(arg_schema), arg_schema)
        self._outside = outside
        self._reader = Reader(response, time.time)
        self._most = limits.max_request_bytes
        self._accept = ("Accept", ACCEPTS.get(response.encoding, "*/*"))
        if any(name.lower() == "accept" for name in request.headers):
            self._accept = None
        self._streams = response.encoding == "sse"
        retries = Retries(request, limits)
        seconds = request.timeout_ms / 1000
        self._sending = Sending(retries, seconds, limits.max_response_bytes, request.follow_redirects, self._streams)
        self._total = sending_seconds(impl, limits)
        self.timeout = total_seconds(impl, limits)
        self.secrets = self._template.secrets | (self._auth.secrets if self._auth else frozenset())

    async def __call__(self, **args: Any) -> Any:
        call = current_call.get()
        environment = None if call is None else call.environment
        secret = _no_secret if environment is None else environment.secret
        redact = _as_it_is if environment is None else environment.redact
        outside = self._outside()
        outgoing = self._template.fill(args, secret)
        if self._accept is not None:
            outgoing.headers.append(self._accept)
        self._check_size(outgoing)
        signer = None if self._auth is None else self._auth.begin(args, secret, outside)
        place = outgoing.url.authority
        try:
            answer = await self._sending.send(outgoing, signer, outside, self._total)
            if self._streams:
                return await self._reader.events(answer, place, call.progress if call else None, redact)
            return await self._reader.value(answer, place, outside.keep, redact)
        except WireFailure as failure:
            raise failure if failure.reason != "timeout" else retold(failure, str(failure), SLOW) from None

    def _check_size(self, outgoing: "Outgoing") -> None:
        size = (
            len(outgoing.body)
            + len(outgoing.url.target)
            + sum(len(name) + len(text) for name, text in outgoing.headers)
        )
        if size > self._most:
            raise TooLarge(
                f"the request has {size:,} bytes, and the tool may send {self._most:,} (limits.maxRequestBytes)",
                "limits.maxRequestBytes",
            )


def _no_secret(_: str) -> None:
    return None


def _as_it_is(value: Any) -> Any:
    return value
