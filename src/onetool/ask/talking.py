"""Model: sends a prompt to a provider, and reads what comes back. Nothing but the host of its base URL is called.

A try that failed is made again where the provider says that this may help, as long as nothing has come of an answer:
what has been shown can't be taken back. One of these ends it: the Reply, a ModelError, or whoever stops listening.
"""

import asyncio
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

import msgspec

from onetool.ask.errors import AskError, ModelError, NoModelError
from onetool.ask.lines import each_value, encoded
from onetool.ask.messages import Prompt, Reply, Said, Thought
from onetool.ask.patience import SILENCE, Patience
from onetool.ask.place import SETTING, Place
from onetool.ask.providers import Adapter, Request
from onetool.ask.troubles import Troubles
from onetool.core.errors import ToolFailure
from onetool.core.json_bounds import TooMuch
from onetool.handlers.http.client import Client
from onetool.handlers.http.data import json_of
from onetool.handlers.http.faults import Garbled, TooLate, WireFailure
from onetool.handlers.http.outgoing import Outgoing
from onetool.handlers.http.pieces import Pieces
from onetool.handlers.http.timing import longest_pause
from onetool.handlers.http.wire import Answer

CONNECT = 10.0  # seconds for a connection
LARGEST = 64 * 1024 * 1024  # bytes of an answer
MOST_EVENTS = 1_000_000  # of an answer: about one for each token
LONGEST_WAIT = 60.0  # seconds that are waited where a provider asks for it
LISTING = 15.0  # seconds for a list of models …
LISTING_FOR_HINT = 5.0  # … where it is for an error message
MOST_REFUSED = 1024 * 1024  # bytes of an answer that is none
OF_BODY = (("Content-Type", "application/json"),)
HEADERS = (*OF_BODY, ("Accept", "application/json"))
AT_ONCE = ("Accept-Encoding", "identity")  # what compresses a stream may hold it back


class Retrying(msgspec.Struct, frozen=True):
    """It did not work, and will be tried again after a pause."""

    seconds: float
    why: str


Heard = Said | Thought | Retrying | Reply


class Model:
    """`async for heard in model.ask(prompt)`. A base URL or a key that can't ever work is a NoModelError."""

    def __init__(
        self,
        adapter: Adapter,
        model: str,
        base_url: str,
        key: str | None,
        client: Client,
        *,
        timeout: float = 600.0,
        tries: int = 4,
        silence: float = SILENCE,
        setting: str = SETTING,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] | None = None,
    ) -> None:
        self.provider, self.name = adapter.name, model
        key = _sound(key, adapter)
        self._adapter, self._client = adapter, client
        self._place = Place(base_url, with_key=key is not None, setting=setting)
        self._troubles = Troubles(adapter, model, self._place, key)
        self._headers = [*HEADERS, *adapter.headers(key)]
        self._timeout, self._tries, self._silence = timeout, tries, silence
        self._sleep, self._chance = sleep, chance or _random

    def __repr__(self) -> str:
        return f"Model({self.provider}, {self.name}, {self._place.text})"

    @property
    def base_url(self) -> str:
        return self._place.text

    async def ask(self, prompt: Prompt, stream: bool = True) -> AsyncGenerator[Heard]:
        """What is said, as it comes, and at last the Reply, which has all of it."""
        request = self._adapter.request(prompt, stream)
        outgoing = self._outgoing(request, stream)
        until = asyncio.get_running_loop().time() + self._timeout
        tries, begun = 1, False
        while True:
            try:
                async with aclosing(self._try(outgoing, request, prompt, stream, until)) as heard:
                    async for one in heard:
                        begun = True
                        yield one
                return
            except ModelError as error:
                failed = error
            except ToolFailure as fault:
                failed = self._troubles.of_fault(fault)
            pause = None if begun else self._pause(failed, tries, until)
            if pause is None:
                raise await self._explained(failed, tries, begun) from None
            yield Retrying(pause, self._troubles.masked(str(failed)))
            await self._sleep(pause)
            tries += 1

    async def names(self, seconds: float = LISTING) -> list[str]:
        """The models that are there."""
        body = await self.fetch(self._adapter.models_request(), seconds)
        with self._reading():
            return self._adapter.models(body)

    async def fetch(self, request: Request, seconds: float) -> Any:
        """What the provider says to something else than a prompt. It is asked once."""
        try:
            answer = await self._client.send(
                self._outgoing(request), self._place.hosts, timeout=seconds, max_bytes=LARGEST, connect=CONNECT
            )
            return self._body(answer, request)
        except ModelError as error:
            raise self._troubles.retold(error) from None
        except ToolFailure as fault:
            raise self._troubles.retold(self._troubles.of_fault(fault)) from None

    # One try

    async def _try(
        self, outgoing: Outgoing, request: Request, prompt: Prompt, stream: bool, until: float
    ) -> AsyncGenerator[Said | Thought | Reply]:
        seconds = until - asyncio.get_running_loop().time()
        if seconds <= 0:
            raise TooLate(f"{self._place.authority} did not answer", self._timeout)
        send = self._client.stream if stream else self._client.send
        answer = await send(outgoing, self._place.hosts, timeout=seconds, max_bytes=LARGEST, connect=CONNECT)
        pieces = answer.pieces
        try:
            if pieces is not None and _is_stream(answer):
                async with aclosing(self._streamed(pieces, prompt, until)) as heard:
                    async for one in heard:
                        yield one
                return
            if pieces is not None:
                answer.body = await self._rest(answer, pieces)
            body = self._body(answer, request)
            with self._reading():
                reply = self._adapter.reply(body, prompt)
            yield reply
        finally:
            if pieces is not None:
                pieces.close()  # at once: whoever stops listening wants no more to be said

    async def _streamed(self, pieces: Pieces, prompt: Prompt, until: float) -> AsyncGenerator[Said | Thought | Reply]:
        reader = self._adapter.reader(prompt)
        patience = Patience(reader, self._silence, until)
        values = each_value(pieces, self._adapter.stream, self._place.authority, patience.seconds)
        number = 0
        try:
            async with aclosing(values) as coming:
                async for value in coming:
                    number += 1
                    self._check(number, patience)
                    if reader.has_ended:
                        continue
                    with self._reading():
                        deltas = list(reader.feed(value))
                    for delta in deltas:
                        yield delta
                    patience.heard(more=bool(deltas))
        except WireFailure:
            if not reader.is_complete:
                raise
        if not reader.is_complete:
            raise ModelError(f"{self._place.authority} broke off its answer", "unreachable", status=200, again=True)
        with self._reading():
            reply = reader.reply()
        yield reply

    def _check(self, number: int, patience: Patience) -> None:
        if patience.is_over:
            raise TooLate(f"{self._place.authority} did not come to the end of its answer", self._timeout)
        if number > MOST_EVENTS:
            raise Garbled(f"{self._place.authority} sends more than {MOST_EVENTS:,} events")

    async def _rest(self, answer: Answer, pieces: Pieces) -> bytes:
        """A body that is no stream. Of one that tells of an error the beginning will do."""
        found, most = bytearray(), LARGEST if _is_fine(answer) else MOST_REFUSED
        async with aclosing(aiter(pieces)) as coming:
            async for piece in coming:
                found += piece
                if len(found) > most:
                    break
        return bytes(found)

    def _body(self, answer: Answer, request: Request) -> Any:
        """What it says, in JSON; ModelError where it is a refusal, or none."""
        if 300 <= answer.status < 400:
            raise self._troubles.of_redirect(answer, request.path)
        is_fine = _is_fine(answer)
        said = answer.body if is_fine else self._troubles.without_key(answer.body)
        try:
            body = json_of(said.removeprefix(BOM_UTF8))
        except (msgspec.MsgspecError, TooMuch, UnicodeError):
            if is_fine:
                raise self._troubles.of_no_json(answer) from None
            body = said.decode("utf-8", "replace")
        if is_fine:
            return body
        with self._reading():
            error = self._adapter.failure(answer.status, body)
        raise _as_asked(error, answer)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Whatever an adapter stumbles over is the provider's answer, and not what its API says."""
        try:
            yield
        except AskError:
            raise
        except Exception as error:
            raise ModelError(
                f"{self._place.authority} sent what can't be read ({type(error).__name__}: {error})", "garbled"
            ) from error

    def _outgoing(self, request: Request, stream: bool = False) -> Outgoing:
        headers = [*self._headers, AT_ONCE] if stream else self._headers
        url = self._place.url(request.path)
        if request.body is None:
            return Outgoing("GET", url, [one for one in headers if one not in OF_BODY], b"")
        return Outgoing("POST", url, headers, encoded(request.body), idempotent=True)

    # Between two tries, and after the last

    def _pause(self, error: ModelError, tries: int, until: float) -> float | None:
        """Seconds until the next try; None where there is none."""
        if tries >= self._tries or not error.again or error.reason == "quota" or (error.wait or 0) > LONGEST_WAIT:
            return None
        pause = max(error.wait or 0.0, longest_pause(tries + 1) * (1 + self._chance()) / 2)
        return pause if pause < until - asyncio.get_running_loop().time() else None

    async def _explained(self, error: ModelError, tries: int, broke_off: bool) -> ModelError:
        models: list[str] = []
        if error.reason == "model_not_found":
            try:
                models = await self.names(LISTING_FOR_HINT)
            except ModelError:
                models = []
        return self._troubles.retold(error, tries=tries, broke_off=broke_off, models=models)


def _sound(key: str | None, adapter: Adapter) -> str | None:
    """The key as it can stand in a header."""
    key = (key or "").strip()
    if all("!" <= character <= "~" for character in key):
        return key or None
    raise NoModelError(
        f"{adapter.key} can't be a key: there are spaces, line ends or other strange characters in it",
        "no_key",
        [f"`onetool auth set {adapter.name}` sets another one"],
    )


def _random() -> float:
    import random  # where something failed, and not at every start

    return random.random()  # noqa: S311 - of no use to anybody


def _is_fine(answer: Answer) -> bool:
    return 200 <= answer.status < 300


def _is_stream(answer: Answer) -> bool:
    """Some servers answer in one piece, whatever they were asked for; and pages are no streams at all."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    return _is_fine(answer) and kind not in ("application/json", "text/html")


def _as_asked(error: ModelError, answer: Answer) -> ModelError:
    """With what the answer says beside its body."""
    error.status = answer.status
    if error.wait is None:
        error.wait = _wait(answer)
    if answer.headers.get("x-should-retry") == "false":
        error.again = False
    return error


def _wait(answer: Answer) -> float | None:
    exact = answer.headers.get("retry-after-ms", "").strip()
    if exact.isascii() and exact.isdigit():
        return float(exact[:12]) / 1000
    if "retry-after" not in answer.headers:
        return None
    from time import time

    from onetool.handlers.http.retry import retry_after

    return retry_after(answer, time())
