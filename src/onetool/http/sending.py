"""`Sender` sends the requests of one tool: it retries and follows redirects, within one deadline.

Only what does no harm twice is sent twice. After a redirect to another origin nothing is sent that could be secret.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime
from math import isfinite
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from onetool.core.errors import ToolFailure
from onetool.http.connection import HttpResponse
from onetool.http.definition import Request, ToolLimits, longest_pause, max_tries
from onetool.http.errors import RequestRefusedError, RequestTimeoutError, ResponseTooLargeError, WireError, with_message
from onetool.http.url import parse_url

if TYPE_CHECKING:
    from onetool.http.auth import Signer
    from onetool.http.client import HttpContext
    from onetool.http.url import HttpRequest


TOO_MANY = 429


class Retries:
    """The retry policy of one tool. `tries` is the maximum number of tries."""

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
        """Seconds to wait after try `number` (from 1); None when that was the last one, for one reason or another."""
        if number >= self.tries:
            return None
        asked = 0.0
        if isinstance(outcome, WireError):
            if not outcome.again:
                return None
        elif outcome.status != TOO_MANY and outcome.status < 500:
            return None
        else:
            asked = retry_after(outcome, self._now()) or 0.0
        pause = max(asked, self._chance() * longest_pause(number))
        return pause if pause < left else None


def retry_after(answer: HttpResponse, now: float) -> float | None:
    """Seconds that a server asks to wait: it says them, or a date."""
    text = answer.headers.get("retry-after", "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return float(text[:12])
    try:
        seconds = parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return max(0.0, seconds) if isfinite(seconds) else None


# Redirects: nothing secret goes to another origin


MOST_HOPS = 5
REDIRECTS = frozenset((301, 302, 303, 307, 308))
HARMLESS = frozenset(("accept", "accept-language", "user-agent"))  # headers that any origin may see
OF_BODY = frozenset(("content-type", "content-encoding", "content-language"))


def next_request(request: "HttpRequest", answer: HttpResponse) -> "HttpRequest | None":
    """The request to send next; None where the answer sends us nowhere. Whether it may go there is not asked here."""
    location = answer.headers.get("location", "").strip()
    if answer.status not in REDIRECTS or not location:
        return None
    here = request.url
    try:
        there = parse_url(urljoin(here.text, location))
    except (RequestRefusedError, ValueError) as error:
        raise RequestRefusedError(f"{here.authority} redirects to something that can't be called: {error}") from None
    method, body, headers = request.method, request.body, request.headers
    if (answer.status == 303 and method != "HEAD") or (answer.status in (301, 302) and method == "POST"):
        method, body = "GET", b""
        headers = [header for header in headers if header[0].lower() not in OF_BODY]
    if there.origin != here.origin:
        if body or method not in ("GET", "HEAD", "OPTIONS"):
            raise RequestRefusedError(
                f"{here.authority} redirects a {method} to {there.authority}: it is not sent to another origin"
            )
        headers = [header for header in headers if header[0].lower() in HARMLESS]
    return request._replace(method=method, url=there, headers=headers, body=body)


# Tries, and the redirects in each of them


Sleep = Callable[[float], Awaitable[None]]


class Sender:
    """How a tool's requests are sent."""

    def __init__(
        self,
        retries: Retries,
        try_seconds: float,
        max_bytes: int,
        most: int,
        follow: bool,
        stream: bool,
        sleep: Sleep = asyncio.sleep,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._retries = retries
        self._seconds, self._max_bytes, self._most = try_seconds, max_bytes, most
        self._follow, self._stream = follow, stream
        self._sleep, self._clock = sleep, clock

    async def send(
        self, request: "HttpRequest", signer: "Signer | None", context: "HttpContext", seconds: float
    ) -> HttpResponse:
        """The last answer; what kept it from coming is raised. `seconds` are for all of it."""
        if signer is not None:
            self._check_size(request)  # before it fetches a token
        until = self._clock() + seconds
        number = 1
        while True:
            left = until - self._clock()
            if left <= 0:
                raise RequestTimeoutError("there was no answer", seconds)
            try:
                if signer is not None:
                    await signer.prepare(left)
                outcome = await self._try(request, signer, context, min(self._seconds, until - self._clock()))
                if outcome.status < 400:
                    return outcome
                if outcome.status == 401 and signer is not None and signer.on_unauthorized():
                    _close(outcome)
                    continue
            except WireError as failure:
                outcome = failure
            pause = self._retries.pause(number, outcome, until - self._clock())
            if pause is None:
                break
            _close(outcome)
            number += 1
            await self._sleep(pause)
        if isinstance(outcome, WireError):
            raise outcome if number == 1 else with_message(outcome, f"{outcome} (tried {number} times)")
        return outcome

    async def _try(
        self, request: "HttpRequest", signer: "Signer | None", context: "HttpContext", seconds: float
    ) -> HttpResponse:
        """One try, with all its hops. Once away from the origin that the tool names, nothing is signed any more."""
        until = self._clock() + seconds
        hops = 0
        while True:
            signed = request if signer is None else signer.sign(request)
            self._check_size(signed)
            left = until - self._clock()
            answer = await context.client.send(
                signed, context.hosts, timeout=left, max_bytes=self._max_bytes, stream=self._stream
            )
            try:
                there = next_request(request, answer) if self._follow else None
            except ToolFailure:
                _close(answer)
                raise
            if there is None:
                return answer
            _close(answer)
            hops += 1
            if hops > MOST_HOPS:
                raise ToolFailure(f"{request.url.authority} redirects more than {MOST_HOPS} times", "upstream_error")
            if there.url.origin != request.url.origin:
                _check_host(request, answer, context)
                signer = None
            request = there

    def _check_size(self, request: "HttpRequest") -> None:
        headers = sum(len(name) + len(text) for name, text in request.headers)
        size = len(request.body) + len(request.url.target) + headers
        if size > self._most:
            raise ResponseTooLargeError(
                f"the request has {size:,} bytes, and the tool may send {self._most:,} (limits.maxRequestBytes)",
                "limits.maxRequestBytes",
            )


def _check_host(request: "HttpRequest", answer: HttpResponse, context: "HttpContext") -> None:
    """Refuse a redirect whose host contains a secret: name servers would see it."""
    host = urlsplit(urljoin(request.url.text, answer.headers["location"].strip())).netloc
    if context.redact(host) != host:
        raise RequestRefusedError(f"{request.url.authority} redirects to a host with a secret in its name")


def _close(outcome: HttpResponse | WireError) -> None:
    """Close a streamed response that is not read to its end."""
    if isinstance(outcome, HttpResponse) and outcome.stream is not None:
        outcome.stream.close()
