"""The transport for a server with a URL: Streamable HTTP, or SSE for older servers, with headers and login.

    async with reached(settings, way, auth, failure) as (incoming, outgoing): …

Headers are sent to that server only: the SDK follows redirects only within its origin. A server with a public address
can't send us to private addresses, either by a redirect or by its login metadata. The cause of an error is recorded in
`failure`, because the SDK only reports that a request failed.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar, cast

import httpcore2
import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from onetool.core.errors import cut
from onetool.core.json_data import JsonTooCostlyError, check_json
from onetool.http.allowed_hosts import GLOBAL, reach
from onetool.http.definition import FROM_TOOL
from onetool.http.pool import MAX_ADDRESSES, Resolver
from onetool.http.url import is_address
from onetool.sources.mcp_servers.settings import ServerSettings
from onetool.sources.mcp_servers.upstream_calls import AuthError, TransportFailure, current_upstream_call

MAX_BYTES = 32 * 1024 * 1024  # bytes of one response or event
MAX_REFUSAL, MAX_LINE = 64 * 1024, 200  # bytes of a refusal to read, characters of it to show
REFUSAL_TIMEOUT = 5.0  # seconds for reading a refusal
_BLANK_LINE = re.compile(rb"(?>\r\n|\r|\n){2}")
MAX_OVERLAP = 3  # bytes of it that may have come before
NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout)  # no byte of the request was sent
STREAM_PAUSE = 0.1  # seconds between two streams from a server
STREAM_TIMEOUT = 24 * 3600.0  # seconds: streams may be silent; calls have their own limit


@asynccontextmanager
async def reached(
    settings: ServerSettings, way: str, auth: httpx2.Auth | None, failure: TransportFailure
) -> AsyncGenerator[tuple[Any, Any]]:
    url = str(settings.url)
    own = {name: str(value) for name, value in settings.headers.items()}

    def client(
        headers: dict[str, str] | None = None, timeout: httpx2.Timeout | None = None, auth: httpx2.Auth | None = None
    ) -> httpx2.AsyncClient:
        plain = {**(headers or {}), "Accept-Encoding": "identity", FROM_TOOL: "server"}
        return httpx2.AsyncClient(transport=_NotingTransport(url, failure), headers=plain, timeout=timeout, auth=auth)

    if way == "sse":
        async with sse_client(
            url,
            headers=own,
            timeout=settings.connect_timeout,
            sse_read_timeout=STREAM_TIMEOUT,
            httpx_client_factory=client,
            auth=auth,
        ) as streams:
            yield streams
    else:
        async with (
            client(own, httpx2.Timeout(settings.connect_timeout, read=STREAM_TIMEOUT), auth) as http,
            streamable_http_client(url, http_client=http, max_sse_event_size=MAX_BYTES) as streams,
        ):
            yield streams


class ServerTransport(httpx2.AsyncHTTPTransport):
    """A transport for one server and its login, which may be on another host."""

    def __init__(self, url: str) -> None:
        super().__init__()
        # httpx2 has no options for these.
        self._pool._network_backend = _CheckedNetwork(url)  # pyright: ignore
        self._pool._ssl_context.hostname_checks_common_name = False  # pyright: ignore


class _CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """A network that connects to public addresses only, unless all addresses of the server itself are private.

    Without TLS, only its address identifies a server. All addresses of such a server must therefore be public, even
    when it is connected again.
    """

    _seen_public: ClassVar[set[str]] = set()  # hosts of servers without TLS; bounded by the config

    def __init__(self, url: str) -> None:
        self._is_plain = url.lower().startswith("http:")
        self._server = httpx2.URL(url).raw_host.decode()
        self._own: list[str] = []  # addresses of the server, resolved once
        self._resolver = Resolver()
        self._network: Any = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore2's
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore2.AsyncNetworkStream:
        self._own = self._own or await self._addresses(self._server, port)
        is_public = any(reach(address) == GLOBAL for address in self._own)
        if is_public and self._is_plain:
            self._seen_public.add(self._server)
        if not is_public and self._server not in self._seen_public:
            return await self._network.connect_tcp(host, port, timeout, local_address, socket_options)
        addresses = await self._addresses(host, port)
        known = self._own if host == self._server and not self._is_plain else ()
        for address in addresses:
            if reach(address) != GLOBAL and address not in known:
                place = host if address == host else f"{host} ({address})"
                raise AuthError(f"refused: the server leads to {place}, which is not a public address")
        failure: Exception | None = None
        share = timeout and timeout / max(1, len(addresses))  # so that a silent address leaves time for the others
        for address in addresses[:MAX_ADDRESSES]:
            try:
                return await self._network.connect_tcp(address, port, share, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore2.ConnectError(f"{host} leads to no address")

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)

    async def _addresses(self, host: str, port: int) -> list[str]:
        if is_address(host):
            return [host]
        try:
            return list(dict.fromkeys(await self._resolver.addresses(host, port)))
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"the name {host} can't be resolved: {error}") from None


class LoginTransport(ServerTransport):
    """A transport for a login, with a limit on the size of responses."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise AuthError("refused: the login sent a compressed response, which was not asked for")
        response.stream = _BoundedStream(response.stream, TransportFailure())
        return response


class _NotingTransport(ServerTransport):
    """A transport that records failures and limits the size of responses."""

    def __init__(self, url: str, failure: TransportFailure) -> None:
        super().__init__(url)
        self._failure = failure
        self._next_stream = 0.0  # the time at which another stream may be opened

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET" and "text/event-stream" in request.headers.get("accept", ""):
            # A server may ask for immediate retries without end.
            now = asyncio.get_running_loop().time()
            self._next_stream = max(now, self._next_stream) + STREAM_PAUSE
            await asyncio.sleep(self._next_stream - STREAM_PAUSE - now)
        try:
            response = await super().handle_async_request(request)
        except NOT_SENT as error:
            self._current_failure().failed(error, was_not_received=True)
            # An exception would make the SDK close the connection, with all its other calls.
            return httpx2.Response(503, request=request)
        except Exception as error:
            self._current_failure().failed(error, was_not_received=False)
            raise
        if response.headers.get("content-encoding", "identity") != "identity":
            # The decompressed size can't be limited, and the request asked for an uncompressed response.
            await response.aclose()
            self._current_failure().answered(502, "with a compressed response, which was not asked for")
            return httpx2.Response(502, request=request)
        self._current_failure().answered(response.status_code, response.reason_phrase, await _refusal_text(response))
        is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        response.stream = (_BoundedEvents if is_stream else _BoundedStream)(response.stream, self._current_failure())
        return response

    def _current_failure(self) -> TransportFailure:
        """Return the TransportFailure of the current call, else that of the connection."""
        call = current_upstream_call.get()
        return self._failure if call is None else call.failure


async def _refusal_text(response: httpx2.Response) -> str:
    """Return the first line of the body of a refusal, which the SDK ignores."""
    if response.status_code != httpx2.codes.FORBIDDEN:
        return ""
    body = bytearray()
    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(REFUSAL_TIMEOUT):
            async for part in cast(httpx2.AsyncByteStream, response.stream):
                body += part
                if len(body) > MAX_REFUSAL:
                    break
    await response.stream.aclose()  # pyright: ignore[reportAttributeAccessIssue] - an async stream
    response.stream = httpx2.ByteStream(bytes(body[:MAX_REFUSAL]))
    lines = (line.strip() for line in body.decode(errors="replace").splitlines())
    first = next((line for line in lines if line), "")
    is_news = first and first.lower() != response.reason_phrase.lower() and not first.startswith("<")
    return cut("".join(char if char.isprintable() else " " for char in first), MAX_LINE) if is_news else ""


class _BoundedStream(httpx2.AsyncByteStream):
    """A response body that is checked before the SDK reads it as a whole."""

    def __init__(self, stream: Any, failure: TransportFailure) -> None:
        self._stream = stream
        self._failure = failure

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = bytearray()
        async for part in self._stream:
            body += part
            if len(body) > MAX_BYTES:
                raise self._refused(f"is larger than {MAX_BYTES // 1024**2} MB")
        self._check(body)
        yield bytes(body)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def _check(self, data: bytearray) -> None:
        try:
            check_json(bytes(data))
        except JsonTooCostlyError as error:
            raise self._refused(str(error)) from None

    def _refused(self, what: str) -> "_RefusedResponseError":
        self._failure.refused(what)
        return _RefusedResponseError(f"its response {what}")


class _BoundedEvents(_BoundedStream):
    """A stream of events. Each event is checked before its end is passed on. The SDK limits the size of events."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        event = bytearray()
        async for part in self._stream:
            before = max(0, len(event) - MAX_OVERLAP)
            event += part
            while end := _BLANK_LINE.search(event, before):
                self._check(event[: end.start()])
                del event[: end.end()]
                before = 0
            if len(event) > MAX_BYTES:  # the SDK doesn't count comments
                raise self._refused(f"is larger than {MAX_BYTES // 1024**2} MB")
            yield part


class _RefusedResponseError(httpx2.SSEError, httpx2.StreamError):
    """An error that the SDK reports to the affected call alone, due to its two base classes."""
