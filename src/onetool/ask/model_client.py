"""ModelClient: sends a prompt to a provider and reads the reply. Only the host of its base URL is called.

A failed request is retried if this may help, but only before any part of an answer has arrived: text that was shown
can't be taken back. Streamed answers are server-sent events or JSON lines; the timeout for the next one depends on what
has arrived.
"""

import asyncio
import codecs
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from random import random
from time import time
from typing import Any, Literal

import msgspec

from onetool.ask.endpoint import SETTING, Endpoint, ProviderErrors
from onetool.ask.errors import AskError, ModelError, NoModelError
from onetool.ask.messages import ModelPrompt, ModelReply, TextDelta, ThoughtDelta
from onetool.ask.providers import Adapter, ProviderRequest, ReplyReader
from onetool.core.errors import ToolFailure
from onetool.core.json_data import JsonTooCostlyError
from onetool.core.model_providers import key_name
from onetool.core.text import replace_all_surrogates
from onetool.http.body import BodyStream, EventDecoder, Framing, each_event, event_value, json_of
from onetool.http.client import HttpClient
from onetool.http.connection import HttpResponse
from onetool.http.definition import longest_pause
from onetool.http.errors import InvalidResponseError, RequestTimeoutError, WireError
from onetool.http.response import retry_after
from onetool.http.url import HttpRequest

MAX_EVENT_BYTES = 16 * 1024 * 1024  # bytes of one event, or one line

CONNECT = 10.0  # seconds for a connection
MAX_BYTES = 64 * 1024 * 1024  # bytes of an answer
MAX_EVENTS = 1_000_000  # of an answer: about one for each token
MAX_WAIT = 60.0  # maximum seconds to wait if a provider asks for it
LISTING = 15.0  # seconds for a list of models …
LISTING_FOR_HINT = 5.0  # … if it is for an error message
MAX_ERROR_BYTES = 1024 * 1024  # bytes of an error's body
BODY_HEADERS = (("Content-Type", "application/json"),)
HEADERS = (*BODY_HEADERS, ("Accept", "application/json"))
NO_COMPRESSION = ("Accept-Encoding", "identity")  # compression may delay a stream


# Streams


class StreamStalledError(RequestTimeoutError):
    """A stream that sent nothing for too long. There is no retry, which would take as long again."""

    again = False


class JsonLines:
    """A framing with one JSON object per line, like `EventDecoder`."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest: list[str] = []  # pieces of an unfinished line

    def feed(self, piece: bytes, last: bool = False) -> list[str]:
        first, *others = self._decode(piece, last).split("\n")
        self._rest.append(first)
        if not others:
            return []
        lines = ["".join(self._rest), *others]
        self._rest = [lines.pop()]
        return [line for line in lines if line.strip()]

    def end(self) -> list[str]:
        return [*self.feed(b"", last=True), *self.feed(b"\n")]


class _BoundedFraming:
    """A framing that limits the size of an event."""

    def __init__(self, framing: Framing, host: str) -> None:
        self._framing, self._host = framing, host
        self._pending = 0

    def feed(self, piece: bytes) -> list[str]:
        found = self._framing.feed(piece)
        self._pending = 0 if found else self._pending + len(piece)
        if self._pending > MAX_EVENT_BYTES:
            raise InvalidResponseError(f"{self._host} sent an event of more than {MAX_EVENT_BYTES:,} bytes")
        return found

    def end(self) -> list[str]:
        return self._framing.end()


async def each_stream_value(
    pieces: BodyStream, framing: Literal["events", "lines"], host: str, timeouts: "StreamTimeouts"
) -> AsyncGenerator[Any]:
    """Yield the value of each event or line: its JSON, or the text if it is not JSON.

    Raises StreamStalledError after the timeout, and after the deadline, even if data is available.
    """
    frames = _BoundedFraming(EventDecoder() if framing == "events" else JsonLines(), host)

    async def in_time() -> AsyncGenerator[bytes]:
        async with aclosing(aiter(pieces)) as coming:
            while True:
                seconds = timeouts.seconds()
                silent = StreamStalledError(f"{host} did not continue its response", max(seconds or 0, 0))
                if seconds is not None and seconds <= 0:
                    raise silent
                try:
                    async with asyncio.timeout(seconds):
                        piece = await anext(coming, None)
                except TimeoutError:
                    raise silent from None
                if piece is None:
                    return
                yield piece

    async with aclosing(in_time()) as coming, aclosing(each_event(coming, frames)) as texts:
        async for text in texts:
            yield event_value(text)


# Timeouts: before the answer starts, during it, and after it is complete

SILENCE = 120.0  # seconds without a byte after an answer has started; before that, models may think for long
AFTERWARDS = 3.0  # seconds in total for data after a complete answer, such as token counts …
ENDING = 0.1  # … and for the end of the body if no data can follow, to reuse the connection


class StreamTimeouts:
    """The timeouts of one streamed answer. `until` is the deadline in loop time."""

    def __init__(self, reader: ReplyReader, silence: float, until: float) -> None:
        self._reader, self._silence, self._until = reader, silence, until
        self._now = asyncio.get_running_loop().time
        self._ends = until
        self._has_started = self._was_complete = False

    def seconds(self) -> float | None:
        """Return the seconds to wait for the next byte; None waits until the deadline."""
        if self._reader.is_complete:
            return self._ends - self._now()
        return self._silence if self._has_started else None

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed, even for a stream that never pauses."""
        return self._now() >= self._ends

    def event_received(self, has_delta: bool) -> None:
        """Update the deadline after an event. Some servers mark every event as complete, so a delta extends it."""
        self._has_started = True
        if self._reader.has_ended:
            self._ends = min(self._ends, self._now() + ENDING)
        elif self._reader.is_complete and (has_delta or not self._was_complete):
            self._was_complete = True
            self._ends = min(self._until, self._now() + AFTERWARDS)


# The client


class Retrying(msgspec.Struct, frozen=True):
    """A failed attempt, which is repeated after a pause."""

    seconds: float
    why: str


ModelOutput = TextDelta | ThoughtDelta | Retrying | ModelReply


class ModelClient:
    """A client for one model: `async for output in model.ask(prompt)`. Raises NoModelError for a bad URL or key."""

    def __init__(
        self,
        adapter: Adapter,
        model: str,
        base_url: str,
        key: str | None,
        client: HttpClient,
        *,
        timeout: float = 600.0,
        tries: int = 4,
        silence: float = SILENCE,
        setting: str = SETTING,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random,
    ) -> None:
        self.provider, self.name = adapter.name, model
        key = (key or "").strip() or None
        if key and not all("!" <= character <= "~" for character in key):  # not allowed in a header
            name = key_name(adapter.name)
            raise NoModelError(
                f"{name} is not a valid key: it contains spaces, line breaks or other special characters",
                "no_key",
                [f"`onetool auth set {adapter.name}` replaces it"],
            )
        self._adapter, self._client = adapter, client
        self._endpoint = Endpoint(base_url, with_key=key is not None, setting=setting)
        self._errors = ProviderErrors(adapter, model, self._endpoint, key)
        self._headers = [*HEADERS, *adapter.headers(key)]
        self._timeout, self._tries, self._silence = timeout, tries, silence
        self._sleep, self._chance = sleep, chance

    def __repr__(self) -> str:
        return f"Model({self.provider}, {self.name}, {self._endpoint.text})"

    @property
    def base_url(self) -> str:
        return self._endpoint.text

    async def ask(self, prompt: ModelPrompt, stream: bool = True) -> AsyncGenerator[ModelOutput]:
        """Yield pieces of the reply as they arrive, then the whole ModelReply."""
        request = self._adapter.request(prompt, stream)
        http_request = self._http_request(request, stream)
        until = asyncio.get_running_loop().time() + self._timeout
        tries, has_output = 1, False
        while True:
            try:
                async with aclosing(self._try(http_request, request, prompt, stream, until)) as received:
                    async for output in received:
                        has_output = True
                        yield output
                return
            except ModelError as error:
                failed = error
            except ToolFailure as failure:
                failed = self._errors.from_http_failure(failure)
            pause = None if has_output else self._pause(failed, tries, until)
            if pause is None:
                models: list[str] = []
                if failed.reason == "model_not_found":
                    with suppress(ModelError):
                        models = await self.names(LISTING_FOR_HINT)
                raise self._errors.explained(failed, tries=tries, was_cut_off=has_output, models=models) from None
            yield Retrying(pause, self._errors.masked(str(failed)))
            await self._sleep(pause)
            tries += 1

    async def names(self, seconds: float = LISTING) -> list[str]:
        body = await self.fetch(ProviderRequest(self._adapter.models_path), seconds)
        with self._reading():
            return self._adapter.models(body)

    async def fetch(self, request: ProviderRequest, seconds: float) -> Any:
        """Return the JSON response to a request other than a prompt, without retries."""
        try:
            answer = await self._client.send(
                self._http_request(request), self._endpoint.hosts, timeout=seconds, max_bytes=MAX_BYTES, connect=CONNECT
            )
            return self._body(answer, request)
        except ModelError as error:
            raise self._errors.explained(error) from None
        except ToolFailure as failure:
            raise self._errors.explained(self._errors.from_http_failure(failure)) from None

    # One attempt

    async def _try(
        self, http_request: HttpRequest, request: ProviderRequest, prompt: ModelPrompt, stream: bool, until: float
    ) -> AsyncGenerator[TextDelta | ThoughtDelta | ModelReply]:
        seconds = until - asyncio.get_running_loop().time()
        if seconds <= 0:
            raise RequestTimeoutError(f"{self._endpoint.authority} did not answer", self._timeout)
        answer = await self._client.send(
            http_request,
            self._endpoint.hosts,
            timeout=seconds,
            max_bytes=MAX_BYTES,
            connect=CONNECT,
            stream=stream,
        )
        pieces = answer.stream
        try:
            # Some servers always answer with one JSON body, or with an HTML page.
            kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
            if pieces is not None and _is_success(answer) and kind not in ("application/json", "text/html"):
                async with aclosing(self._streamed(pieces, prompt, until)) as received:
                    async for output in received:
                        yield output
                return
            if pieces is not None:
                answer.body = await self._rest(answer, pieces)
            body = self._body(answer, request)
            with self._reading():
                reply = self._adapter.reply(body, prompt)
            yield reply
        finally:
            if pieces is not None:
                pieces.close()  # stop the model at once

    async def _streamed(
        self, pieces: BodyStream, prompt: ModelPrompt, until: float
    ) -> AsyncGenerator[TextDelta | ThoughtDelta | ModelReply]:
        reader = self._adapter.reader(prompt)
        timeouts = StreamTimeouts(reader, self._silence, until)
        values = each_stream_value(pieces, self._adapter.stream, self._endpoint.authority, timeouts)
        number = 0
        try:
            async with aclosing(values) as coming:
                async for value in coming:
                    number += 1
                    if timeouts.is_over:
                        late = f"{self._endpoint.authority} did not finish its response"
                        raise RequestTimeoutError(late, self._timeout)
                    if number > MAX_EVENTS:
                        raise InvalidResponseError(f"{self._endpoint.authority} sent more than {MAX_EVENTS:,} events")
                    if reader.has_ended:
                        continue
                    with self._reading():
                        deltas = list(reader.feed(value))
                    for delta in deltas:
                        yield delta
                    timeouts.event_received(has_delta=bool(deltas))
        except WireError:
            if not reader.is_complete:
                raise
        if not reader.is_complete:
            raise ModelError(
                f"{self._endpoint.authority} closed the connection in the middle of its response",
                "unreachable",
                status=200,
                again=True,
            )
        with self._reading():
            reply = reader.reply()
        yield reply

    async def _rest(self, answer: HttpResponse, pieces: BodyStream) -> bytes:
        """Return a body that isn't an event stream. An error's body may be cut."""
        body, limit = bytearray(), MAX_BYTES if _is_success(answer) else MAX_ERROR_BYTES
        async with aclosing(aiter(pieces)) as coming:
            async for piece in coming:
                body += piece
                if len(body) > limit:
                    break
        return bytes(body)

    def _body(self, answer: HttpResponse, request: ProviderRequest) -> Any:
        """Return the body's JSON. Raises ModelError for an error status, or a body that isn't JSON."""
        if 300 <= answer.status < 400:
            raise self._errors.redirected(answer, request.path)
        is_success = _is_success(answer)
        data = answer.body if is_success else self._errors.without_key(answer.body)
        try:
            body = json_of(data.removeprefix(BOM_UTF8))
        except (msgspec.MsgspecError, JsonTooCostlyError, UnicodeError):
            if is_success:
                raise self._errors.not_json(answer) from None
            body = data.decode("utf-8", "replace")
        if is_success:
            return body
        with self._reading():
            error = self._adapter.failure(answer.status, body)
        error.status = answer.status
        if error.wait is None:
            error.wait = _retry_after(answer)
        if answer.headers.get("x-should-retry") == "false":
            error.again = False
        raise error

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn exceptions from an adapter into ModelError: the provider's reply did not follow its API."""
        try:
            yield
        except AskError:
            raise
        except Exception as error:
            raise ModelError(
                f"{self._endpoint.authority} sent an unreadable response ({type(error).__name__}: {error})", "garbled"
            ) from error

    def _http_request(self, request: ProviderRequest, stream: bool = False) -> HttpRequest:
        headers = [*self._headers, NO_COMPRESSION] if stream else self._headers
        url = self._endpoint.url(request.path)
        if request.body is None:
            return HttpRequest("GET", url, [one for one in headers if one not in BODY_HEADERS], b"")
        try:
            body = msgspec.json.encode(request.body)
        except UnicodeEncodeError:
            body = msgspec.json.encode(replace_all_surrogates(request.body))
        return HttpRequest("POST", url, headers, body, idempotent=True)

    # Retries

    def _pause(self, error: ModelError, tries: int, until: float) -> float | None:
        """Return the seconds until the next attempt; None if there is none."""
        if tries >= self._tries or not error.again or error.reason == "quota" or (error.wait or 0) > MAX_WAIT:
            return None
        pause = max(error.wait or 0.0, longest_pause(tries + 1) * (1 + self._chance()) / 2)
        return pause if pause < until - asyncio.get_running_loop().time() else None


def _is_success(answer: HttpResponse) -> bool:
    return 200 <= answer.status < 300


def _retry_after(answer: HttpResponse) -> float | None:
    exact = answer.headers.get("retry-after-ms", "").strip()
    if exact.isascii() and exact.isdigit():
        return float(exact[:12]) / 1000
    if "retry-after" not in answer.headers:
        return None
    return retry_after(answer, time())
