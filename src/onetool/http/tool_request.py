"""`ToolRequest` is one request of an HTTP tool: it fills the template, signs, sends, and reads the response.

It retries and follows redirects within one deadline. Only idempotent requests are sent again. After a redirect to
another origin, nothing is sent that could be secret.
"""

import random
import time
from asyncio import sleep
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from time import monotonic
from typing import Any
from urllib.parse import urljoin, urlsplit

from msgspec.structs import replace

from onetool.core.context import SENT_TO, UPSTREAM, add_note, begin_span, note_call
from onetool.core.errors import ToolFailure
from onetool.core.trace import Span
from onetool.http.auth import Authenticator, CredentialAuthenticator, Destination, HmacAuthenticator, Signer
from onetool.http.client import HttpContext
from onetool.http.connection import HttpResponse
from onetool.http.definition import (
    Auth,
    Hmac,
    OAuth2,
    Request,
    RequestStep,
    ToolLimits,
    longest_pause,
    max_tries,
    sending_seconds,
)
from onetool.http.errors import (
    Redact,
    RequestRefusedError,
    RequestTimeoutError,
    ResponseTooLargeError,
    UnmetNeedError,
    WireError,
    with_message,
)
from onetool.http.placeholders import KnownNames, Lookup, StepNames, TemplateErrors
from onetool.http.response import OnProgress, ResponseReader, retry_after
from onetool.http.template import RequestTemplate
from onetool.http.upstream import shown_response
from onetool.http.url import HttpRequest, Url, parse_url

TIMEOUT_HINT = "timeoutMs in the tool's httpImpl.request sets how long each attempt may take"
ACCEPTS = {"json": "application/json, */*;q=0.5", "sse": "text/event-stream"}


class ToolRequest:
    """A request of a tool, created once. Raises TemplateError, with a pointer, if it can't work.

    `args` of its methods are the arguments of the call and the values of earlier steps, by their placeholders' names.
    """

    def __init__(
        self,
        step: RequestStep,
        arg_schema: Mapping[str, Any],
        limits: ToolLimits,
        steps: StepNames | None = None,
        bundle: str | None = None,
    ) -> None:
        request, response = step.request, step.response
        self._name = step.name
        if not any(name.lower() == "accept" for name in request.headers):
            accept = ACCEPTS.get(response.encoding or "json", "*/*")
            request = replace(request, headers={**request.headers, "Accept": accept})
        errors = TemplateErrors()
        self.fixed_url = None
        with errors.part():
            self.template = RequestTemplate(request, arg_schema, steps, limits.max_request_bytes)
            self.fixed_url = self.template.fixed_url
        with errors.part():
            self.auth = _authenticator(request.auth, KnownNames(arg_schema, steps), arg_schema, self.fixed_url, bundle)
        with errors.part():
            self._reader = ResponseReader(response, time.time)
        errors.raise_all()
        self._streams = response.encoding == "sse"
        self._retries = Retries(request, limits)
        self._max_bytes, self._max_request_bytes = limits.max_response_bytes, limits.max_request_bytes
        self._follow = request.follow_redirects
        self._try_seconds, self._seconds = request.timeout_ms / 1000, sending_seconds(request, limits)
        self.secrets, self.step_values = self.template.secrets, self.template.step_values
        self.files, self.texts = self.template.files, self.template.texts  # names of arguments
        self.credentials = self.template.credentials  # values of steps that must be masked
        if self.auth is not None:
            self.texts |= {placeholder.name for placeholder in self.auth.placeholders}
            self.secrets |= self.auth.secrets
            self.step_values |= self.auth.step_values
            self.credentials |= self.auth.step_values

    @property
    def destinations(self) -> Iterator[Destination]:
        yield self.template.secrets, self.fixed_url
        if self.auth is not None:
            yield from self.auth.destinations(self.fixed_url)

    def prepared(
        self, args: Mapping[str, Any], secret: Lookup, context: HttpContext
    ) -> tuple[HttpRequest, Signer | None]:
        """Return the request of one call, and its signer. Sends nothing."""
        outgoing = self.template.fill(args, secret)
        asks_elsewhere = self.auth is not None and self.auth.asks_elsewhere
        for name in self.template.secrets if asks_elsewhere else self.secrets:
            context.check_secret(name, outgoing.url)
        for name in self.template.secrets_in_host:  # hosts are sent in lower case, so mask that form of a secret, too
            context.mask_also((secret(name) or "").lower())
        if self.auth is None:
            return outgoing, None
        return outgoing, self.auth.begin(args, secret, context)

    async def send(
        self,
        args: Mapping[str, Any],
        secret: Lookup,
        context: HttpContext,
        on_event: OnProgress | None,
        max_seconds: float | None = None,
        clean: Redact | None = None,
    ) -> Any:
        """Return the value. `on_event` receives events as they arrive; `clean` masks data if `context.redact` masks too
        much.
        """
        outgoing, signer = self.prepared(args, secret, context)
        place = outgoing.url.authority
        seconds = self._seconds if max_seconds is None else min(self._seconds, max_seconds)
        if context.on_response is not None:
            add_note(SENT_TO, context.redact(outgoing.url.host))
        try:
            began = monotonic()
            answer = await self._send(outgoing, signer, context, seconds)
            elapsed = monotonic() - began
            size = {} if self._streams else {"size": len(answer.body)}
            note_call(UPSTREAM, {"status": answer.status, "duration_ms": round(elapsed * 1000, 1), **size})
            if context.on_response is not None:
                context.on_response(partial(shown_response, outgoing, answer, elapsed, context.redact, self._name))
            if self._streams:
                return await self._reader.events(answer, place, on_event, context.redact)
            return await self._reader.value(answer, place, context.store_result, context.redact, clean)
        except WireError as failure:
            if failure.reason != "timeout":
                raise
            raise with_message(failure, str(failure), TIMEOUT_HINT) from None

    async def _send(
        self, request: HttpRequest, signer: Signer | None, context: HttpContext, seconds: float
    ) -> HttpResponse:
        """Return the last response, or raise the last error. `seconds` is the limit for all attempts."""
        if signer is not None:
            self._check_size(request)  # before a token is fetched
        until = monotonic() + seconds
        number = 1
        while True:
            left = until - monotonic()
            if left <= 0:
                raise RequestTimeoutError("there was no response", seconds)
            try:
                if signer is not None:
                    await signer.prepare(left)
                left = min(self._try_seconds, until - monotonic())
                outcome = await self._try(request, signer, context, left, number - 1)
                if outcome.status < 400:
                    return outcome
                if outcome.status == 401 and signer is not None and signer.on_unauthorized():
                    _close(outcome)
                    continue
            except WireError as failure:
                outcome = failure
            pause = self._retries.pause(number, outcome, until - monotonic())
            if pause is None:
                break
            _close(outcome)
            number += 1
            await sleep(pause)
        if isinstance(outcome, WireError):
            raise outcome if number == 1 else with_message(outcome, f"{outcome} (tried {number} times)")
        return outcome

    async def _try(
        self, request: HttpRequest, signer: Signer | None, context: HttpContext, seconds: float, resent: int
    ) -> HttpResponse:
        """Try once, following redirects. Each hop has a span of its own.

        Nothing is signed after a redirect to another origin.
        """
        until = monotonic() + seconds
        hops = 0
        while True:
            signed = request if signer is None else signer.sign(request)
            if (span := begin_span(signed.method)) is not None:
                self._describe(span, signed, resent + hops)
                if not hops:
                    signed = signed._replace(headers=[*signed.headers, *span.headers()])
            self._check_size(signed)
            left = until - monotonic()
            try:
                with span or nullcontext():
                    answer = await context.client.send(
                        signed, context.hosts, timeout=left, max_bytes=self._max_bytes, stream=self._streams
                    )
                    if span is not None:
                        span.attributes["http.response.status_code"] = answer.status
                        if answer.status >= 400:
                            span.attributes["error.type"] = str(answer.status)
            except UnmetNeedError as unmet:
                if not hops:
                    raise
                raise RequestRefusedError(str(unmet), unmet.hints, unmet.needs) from None
            try:
                redirected = next_request(request, answer) if self._follow else None
            except ToolFailure:
                _close(answer)
                raise
            if redirected is None:
                return answer
            _close(answer)
            hops += 1
            if hops > MAX_HOPS:
                raise ToolFailure(f"{request.url.authority} redirects more than {MAX_HOPS} times", "upstream_error")
            if redirected.url.origin != request.url.origin:
                host = urlsplit(urljoin(request.url.text, answer.headers["location"].strip())).netloc
                if context.redact(host) != host:  # name servers would see it
                    raise RequestRefusedError(f"{request.url.authority} redirects to a host with a secret in its name")
                signer = None
            request = redirected

    def _describe(self, span: Span, request: HttpRequest, resent: int) -> None:
        span.attributes["http.request.method"] = request.method
        if resent:
            span.attributes["http.request.resend_count"] = resent
        # A host that isn't fixed is a value from arguments or a redirect.
        if (fixed := self.fixed_url) is not None and fixed.origin == request.url.origin:
            span.attributes |= {"server.address": fixed.host, "server.port": fixed.port}

    def _check_size(self, request: HttpRequest) -> None:
        headers = sum(len(name) + len(text) for name, text in request.headers)
        size, limit = len(request.body) + len(request.url.target) + headers, self._max_request_bytes
        if size > limit:
            raise ResponseTooLargeError(
                f"the request has {size:,} bytes, and the tool may send {limit:,} (limits.maxRequestBytes)",
                "limits.maxRequestBytes",
            )


class Retries:
    """The retry policy of one tool. `tries` is the maximum number of attempts."""

    def __init__(
        self,
        request: Request,
        limits: ToolLimits,
        now: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.tries = max_tries(request, limits)
        self._now = now
        self._chance = chance

    def pause(self, number: int, outcome: HttpResponse | WireError, left: float) -> float | None:
        """Return the seconds to wait after attempt `number` (from 1); None if it was the last."""
        if number >= self.tries:
            return None
        asked = 0.0
        if isinstance(outcome, WireError):
            if not outcome.again:
                return None
        elif outcome.status != 429 and outcome.status < 500:
            return None
        else:
            asked = retry_after(outcome, self._now()) or 0.0
        pause = max(asked, self._chance() * longest_pause(number))
        return pause if pause < left else None


# Redirects: nothing secret goes to another origin

MAX_HOPS = 5
REDIRECTS = frozenset((301, 302, 303, 307, 308))
HARMLESS = frozenset(("accept", "accept-language", "user-agent"))  # headers that any origin may see
BODY_HEADERS = frozenset(("content-type", "content-encoding", "content-language"))


def next_request(request: HttpRequest, answer: HttpResponse) -> HttpRequest | None:
    """Return the next request; None if the response isn't a redirect. Doesn't check whether the host is allowed."""
    location = answer.headers.get("location", "").strip()
    if answer.status not in REDIRECTS or not location:
        return None
    url = request.url
    try:
        target = parse_url(urljoin(url.text, location))
    except (RequestRefusedError, ValueError) as error:
        raise RequestRefusedError(f"{url.authority} redirects to a URL that can't be called: {error}") from None
    method, body, headers = request.method, request.body, request.headers
    if (answer.status == 303 and method != "HEAD") or (answer.status in (301, 302) and method == "POST"):
        method, body = "GET", b""
        headers = [header for header in headers if header[0].lower() not in BODY_HEADERS]
    if target.origin != url.origin:
        if body or method not in ("GET", "HEAD", "OPTIONS"):
            raise RequestRefusedError(
                f"{url.authority} redirects a {method} to {target.authority}: it is not sent to another origin"
            )
        headers = [header for header in headers if header[0].lower() in HARMLESS]
    return request._replace(method=method, url=target, headers=headers, body=body)


def _close(outcome: HttpResponse | WireError) -> None:
    """Close a streamed response that is not read completely."""
    if isinstance(outcome, HttpResponse) and outcome.stream is not None:
        outcome.stream.close()


def _authenticator(
    auth: Auth | None, arguments: KnownNames, arg_schema: Mapping[str, Any], target: Url | None, bundle: str | None
) -> Authenticator | None:
    if isinstance(auth, OAuth2):
        from onetool.http.oauth import LoginAuthenticator, OAuthAuthenticator  # only for tools that use it

        if auth.grant == "authorizationCode":
            return LoginAuthenticator(auth, arguments, target, bundle)
        return OAuthAuthenticator(auth, arguments, arg_schema)
    if auth is None:
        return None
    return HmacAuthenticator(auth, arguments) if isinstance(auth, Hmac) else CredentialAuthenticator(auth, arguments)
