"""ModelClient: sends a prompt to a provider and reads the reply. Only the host of its base URL is called.

A failed try is repeated if the provider says that this may help, but only while no part of an answer has come: what has
been shown can't be taken back. An answer that is streamed comes as server-sent events or as JSON lines; how long the
next one is waited for depends on what has come.
"""

import asyncio
import codecs
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
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
MAX_WAIT = 60.0  # seconds that are waited where a provider asks for it
LISTING = 15.0  # seconds for a list of models …
LISTING_FOR_HINT = 5.0  # … where it is for an error message
MAX_ERROR_BYTES = 1024 * 1024  # bytes of an error's body
BODY_HEADERS = (("Content-Type", "application/json"),)
HEADERS = (*BODY_HEADERS, ("Accept", "application/json"))
NO_COMPRESSION = ("Accept-Encoding", "identity")  # what compresses a stream may hold it back


# Streams


class StreamStalledError(RequestTimeoutError):
    """Nothing was received for too long. It is not retried: that would take as long again."""

    again = False


class JsonLines:
    """Framing of a stream with one JSON object per line; same interface as `Events`."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest: list[str] = []  # of a line that has not ended yet, in pieces

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
    """Wraps a framing, and limits the size of one event."""

    def __init__(self, framing: Framing, host: str) -> None:
        self._framing, self._host = framing, host
        self._pending = 0

    def feed(self, piece: bytes) -> list[str]:
        found = self._framing.feed(piece)
        self._pending = 0 if found else self._pending + len(piece)
        if self._pending > MAX_EVENT_BYTES:
            raise InvalidResponseError(f"{self._host} sends one event of more than {MAX_EVENT_BYTES:,} bytes")
        return found

    def end(self) -> list[str]:
        return self._framing.end()


async def each_stream_value(
    pieces: BodyStream, framing: Literal["events", "lines"], host: str, timeouts: "StreamTimeouts"
) -> AsyncGenerator[Any]:
    """Yield the value of each event or line: its JSON, or the text if it is not JSON.

    `StreamStalledError` is raised after the time-out, and where no time is left: also when there would be something
    at hand.
    """
    frames = _BoundedFraming(EventDecoder() if framing == "events" else JsonLines(), host)

    async def in_time() -> AsyncGenerator[bytes]:
        async with aclosing(aiter(pieces)) as coming:
            while True:
                seconds = timeouts.seconds()
                silent = StreamStalledError(f"{host} did not go on with its answer", max(seconds or 0, 0))
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


def encode_body(body: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return msgspec.json.encode(replace_all_surrogates(body))


# Timeouts: until the answer begins, while it goes on, and after it is complete


SILENCE = 120.0  # seconds without a byte, once an answer has begun: before that a model may think as long as it likes
AFTERWARDS = 3.0  # seconds in all for what may follow an answer that is complete: how many tokens it took …
ENDING = 0.1  # … and for the end of the body, where nothing may follow: then the connection can be used again


class StreamTimeouts:
    """The timeouts of one streamed answer. `until` is the loop time of the deadline."""

    def __init__(self, reader: ReplyReader, silence: float, until: float) -> None:
        self._reader, self._silence, self._until = reader, silence, until
        self._now = asyncio.get_running_loop().time
        self._ends = until
        self._begun = self._was_complete = False

    def seconds(self) -> float | None:
        """Return the seconds to wait for the next byte; None waits until the deadline."""
        if self._reader.is_complete:
            return self._ends - self._now()
        return self._silence if self._begun else None

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed, also for a stream that never pauses."""
        return self._now() >= self._ends

    def event_received(self, has_delta: bool) -> None:
        """Note an event. `has_delta`: it had more of the answer. Some servers say `complete` with each one."""
        self._begun = True
        if self._reader.has_ended:
            self._ends = min(self._ends, self._now() + ENDING)
        elif self._reader.is_complete and (has_delta or not self._was_complete):
            self._was_complete = True
            self._ends = min(self._until, self._now() + AFTERWARDS)


# The client


class Retrying(msgspec.Struct, frozen=True):
    """A try failed; the next one follows after a pause."""

    seconds: float
    why: str


ModelOutput = TextDelta | ThoughtDelta | Retrying | ModelReply


class ModelClient:
    """Asks one model: `async for output in model.ask(prompt)`. An invalid base URL or key raises NoModelError."""

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
        chance: Callable[[], float] | None = None,
    ) -> None:
        self.provider, self.name = adapter.name, model
        key = (key or "").strip() or None
        if key and not all("!" <= character <= "~" for character in key):  # it could not stand in a header
            name = key_name(adapter.name)
            raise NoModelError(
                f"{name} can't be a key: there are spaces, line ends or other strange characters in it",
                "no_key",
                [f"`onetool auth set {adapter.name}` sets another one"],
            )
        self._adapter, self._client = adapter, client
        self._endpoint = Endpoint(base_url, with_key=key is not None, setting=setting)
        self._errors = ProviderErrors(adapter, model, self._endpoint, key)
        self._headers = [*HEADERS, *adapter.headers(key)]
        self._timeout, self._tries, self._silence = timeout, tries, silence
        self._sleep, self._random = sleep, chance or _random

    def __repr__(self) -> str:
        return f"Model({self.provider}, {self.name}, {self._endpoint.text})"

    @property
    def base_url(self) -> str:
        return self._endpoint.text

    async def ask(self, prompt: ModelPrompt, stream: bool = True) -> AsyncGenerator[ModelOutput]:
        """Yield what is said, as it comes, and at last the ModelReply, which has all of it."""
        request = self._adapter.request(prompt, stream)
        http_request = self._http_request(request, stream)
        until = asyncio.get_running_loop().time() + self._timeout
        tries, begun = 1, False
        while True:
            try:
                async with aclosing(self._try(http_request, request, prompt, stream, until)) as received:
                    async for one in received:
                        begun = True
                        yield one
                return
            except ModelError as error:
                failed = error
            except ToolFailure as failure:
                failed = self._errors.from_http_failure(failure)
            pause = None if begun else self._pause(failed, tries, until)
            if pause is None:
                models: list[str] = []
                if failed.reason == "model_not_found":
                    with suppress(ModelError):
                        models = await self.names(LISTING_FOR_HINT)
                raise self._errors.explained(failed, tries=tries, was_cut_off=begun, models=models) from None
            yield Retrying(pause, self._errors.masked(str(failed)))
            await self._sleep(pause)
            tries += 1

    async def names(self, seconds: float = LISTING) -> list[str]:
        body = await self.fetch(self._adapter.models_request(), seconds)
        with self._reading():
            return self._adapter.models(body)

    async def fetch(self, request: ProviderRequest, seconds: float) -> Any:
        """Return what the provider says to something else than a prompt. It is asked once."""
        try:
            answer = await self._client.send(
                self._http_request(request), self._endpoint.hosts, timeout=seconds, max_bytes=MAX_BYTES, connect=CONNECT
            )
            return self._body(answer, request)
        except ModelError as error:
            raise self._errors.explained(error) from None
        except ToolFailure as failure:
            raise self._errors.explained(self._errors.from_http_failure(failure)) from None

    # One try

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
                    async for one in received:
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
                        late = f"{self._endpoint.authority} did not come to the end of its answer"
                        raise RequestTimeoutError(late, self._timeout)
                    if number > MAX_EVENTS:
                        raise InvalidResponseError(f"{self._endpoint.authority} sends more than {MAX_EVENTS:,} events")
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
            raise ModelError(f"{self._endpoint.authority} broke off its answer", "unreachable", status=200, again=True)
        with self._reading():
            reply = reader.reply()
        yield reply

    async def _rest(self, answer: HttpResponse, pieces: BodyStream) -> bytes:
        """Return a body that isn't a stream. Of one that tells of an error the beginning will do."""
        found, most = bytearray(), MAX_BYTES if _is_success(answer) else MAX_ERROR_BYTES
        async with aclosing(aiter(pieces)) as coming:
            async for piece in coming:
                found += piece
                if len(found) > most:
                    break
        return bytes(found)

    def _body(self, answer: HttpResponse, request: ProviderRequest) -> Any:
        """Return the body's JSON. Raises ModelError where it is a refusal, or not JSON."""
        if 300 <= answer.status < 400:
            raise self._errors.redirected(answer, request.path)
        is_fine = _is_success(answer)
        said = answer.body if is_fine else self._errors.without_key(answer.body)
        try:
            body = json_of(said.removeprefix(BOM_UTF8))
        except (msgspec.MsgspecError, JsonTooCostlyError, UnicodeError):
            if is_fine:
                raise self._errors.not_json(answer) from None
            body = said.decode("utf-8", "replace")
        if is_fine:
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
        """Turn exceptions of an adapter into ModelError: the provider's reply did not follow its API."""
        try:
            yield
        except AskError:
            raise
        except Exception as error:
            raise ModelError(
                f"{self._endpoint.authority} sent what can't be read ({type(error).__name__}: {error})", "garbled"
            ) from error

    def _http_request(self, request: ProviderRequest, stream: bool = False) -> HttpRequest:
        headers = [*self._headers, NO_COMPRESSION] if stream else self._headers
        url = self._endpoint.url(request.path)
        if request.body is None:
            return HttpRequest("GET", url, [one for one in headers if one not in BODY_HEADERS], b"")
        return HttpRequest("POST", url, headers, encode_body(request.body), idempotent=True)

    # Between two tries, and after the last

    def _pause(self, error: ModelError, tries: int, until: float) -> float | None:
        """Return the seconds until the next try; None where there is none."""
        if tries >= self._tries or not error.again or error.reason == "quota" or (error.wait or 0) > MAX_WAIT:
            return None
        pause = max(error.wait or 0.0, longest_pause(tries + 1) * (1 + self._random()) / 2)
        return pause if pause < until - asyncio.get_running_loop().time() else None


def _random() -> float:
    import random  # where something failed, and not at every start

    return random.random()  # noqa: S311 - of no use to anybody


def _is_success(answer: HttpResponse) -> bool:
    return 200 <= answer.status < 300


def _retry_after(answer: HttpResponse) -> float | None:
    exact = answer.headers.get("retry-after-ms", "").strip()
    if exact.isascii() and exact.isdigit():
        return float(exact[:12]) / 1000
    if "retry-after" not in answer.headers:
        return None
    from time import time

    return retry_after(answer, time())
