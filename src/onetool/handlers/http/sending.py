"""One call on its way: tries, and in each of them hops, until there is an answer that counts, or no time left."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from onetool.core.errors import ToolFailure
from onetool.handlers.http.faults import TooLarge, TooLate, WireFailure, retold
from onetool.handlers.http.redirects import MOST_HOPS, next_hop
from onetool.handlers.http.refusal import Refusal
from onetool.handlers.http.retry import Retries
from onetool.handlers.http.wire import Answer

if TYPE_CHECKING:
    from onetool.handlers.http.auth import Signer
    from onetool.handlers.http.outgoing import Outgoing
    from onetool.handlers.http.tool import Outside

Sleep = Callable[[float], Awaitable[None]]


class Sending:
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

    async def send(self, outgoing: "Outgoing", signer: "Signer | None", outside: "Outside", seconds: float) -> Answer:
        """The last answer; what kept it from coming is raised. `seconds` are for all of it."""
        self._check_size(outgoing)  # before anybody fetches a token for it
        until = self._clock() + seconds
        number = 1
        while True:
            left = until - self._clock()
            if left <= 0:
                raise TooLate("there was no answer", seconds)
            try:
                if signer is not None:
                    await signer.ready(left)
                outcome = await self._try(outgoing, signer, outside, min(self._seconds, until - self._clock()))
            except WireFailure as failure:
                outcome = failure
            if (
                not isinstance(outcome, WireFailure)
                and outcome.status == 401
                and signer is not None
                and signer.refused()
            ):
                _close(outcome)
                continue
            pause = self._retries.pause(number, outcome, until - self._clock())
            if pause is None:
                break
            _close(outcome)
            number += 1
            await self._sleep(pause)
        if isinstance(outcome, WireFailure):
            raise outcome if number == 1 else retold(outcome, f"{outcome} (tried {number} times)")
        return outcome

    async def _try(self, outgoing: "Outgoing", signer: "Signer | None", outside: "Outside", seconds: float) -> Answer:
        """One try, with all its hops. Once away from the origin that the tool names, nothing is signed any more."""
        send = outside.client.stream if self._stream else outside.client.send
        until = self._clock() + seconds
        hops = 0
        while True:
            signed = outgoing if signer is None else signer.sign(outgoing)
            self._check_size(signed)
            answer = await send(signed, outside.hosts, timeout=until - self._clock(), max_bytes=self._max_bytes)
            try:
                there = next_hop(outgoing, answer) if self._follow else None
            except ToolFailure:
                _close(answer)
                raise
            if there is None:
                return answer
            _close(answer)
            hops += 1
            if hops > MOST_HOPS:
                raise ToolFailure(f"{outgoing.url.authority} redirects more than {MOST_HOPS} times", "upstream_error")
            if there.url.origin != outgoing.url.origin:
                _check_host(outgoing, answer, outside)
                signer = None
            outgoing = there

    def _check_size(self, outgoing: "Outgoing") -> None:
        headers = sum(len(name) + len(text) for name, text in outgoing.headers)
        size = len(outgoing.body) + len(outgoing.url.target) + headers
        if size > self._most:
            raise TooLarge(
                f"the request has {size:,} bytes, and the tool may send {self._most:,} (limits.maxRequestBytes)",
                "limits.maxRequestBytes",
            )


def _check_host(outgoing: "Outgoing", answer: Answer, outside: "Outside") -> None:
    """No redirect carries a secret off in a host's name, which name servers see, and messages in another spelling."""
    host = urlsplit(urljoin(outgoing.url.text, answer.headers["location"].strip())).netloc
    if outside.redact(host) != host:
        raise Refusal(f"{outgoing.url.authority} redirects to a host with a secret in its name")


def _close(outcome: Answer | WireFailure) -> None:
    """Of a streamed answer nobody will read the rest."""
    if isinstance(outcome, Answer) and outcome.pieces is not None:
        outcome.pieces.close()
