"""A server behind a url: Streamable HTTP, or the SSE of old ones; with its headers, and with what it wants for a login.

    async with reached(settings, way, auth, trouble) as (incoming, outgoing): …

Headers go to that server alone: redirects are followed only where they stay with it (the SDK sees to that). What went
wrong on the wire is noted: the SDK says only that something did.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from onetool.core.errors import ToolFailure
from onetool.sources.mcp_servers.flight import current_flight
from onetool.sources.mcp_servers.settings import Server
from onetool.sources.mcp_servers.trouble import Trouble

LARGEST = 32 * 1024 * 1024  # bytes of one answer, or of one event
UNHEARD = (httpx2.ConnectError, httpx2.ConnectTimeout)  # before a byte of the request has left
STREAM_PATIENCE = 24 * 3600.0  # seconds: a stream may be silent; calls have their own limit


@asynccontextmanager
async def reached(
    settings: Server, way: str, auth: httpx2.Auth | None, trouble: Trouble
) -> AsyncGenerator[tuple[Any, Any]]:
    url = str(settings.url)

    own = {name: str(value) for name, value in settings.headers.items()}

    def client(
        headers: dict[str, str] | None = None, timeout: httpx2.Timeout | None = None, auth: httpx2.Auth | None = None
    ) -> httpx2.AsyncClient:
        plain = {**(headers or {}), "Accept-Encoding": "identity"}
        return httpx2.AsyncClient(transport=_Noting(trouble), headers=plain, timeout=timeout, auth=auth)

    if way == "sse":
        async with sse_client(
            url,
            headers=own,
            timeout=settings.connect_timeout,
            sse_read_timeout=STREAM_PATIENCE,
            httpx_client_factory=client,
            auth=auth,
        ) as streams:
            yield streams
    else:
        async with (
            client(own, httpx2.Timeout(settings.connect_timeout, read=STREAM_PATIENCE), auth) as http,
            streamable_http_client(url, http_client=http, max_sse_event_size=LARGEST) as streams,
        ):
            yield streams


class _Noting(httpx2.AsyncHTTPTransport):
    """Notes what goes wrong, and reads no answer without end."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__()
        self._trouble = trouble

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await super().handle_async_request(request)
        except UNHEARD as error:
            self._of_call().failed(error, unheard=True)
            # The SDK would end the connection, with every other call on it.
            return httpx2.Response(503, request=request)
        except Exception as error:
            self._of_call().failed(error, unheard=False)
            raise
        if response.headers.get("content-encoding", "identity") != "identity":
            # A little that becomes a lot: it was asked for plain, and what it holds can't be bounded.
            await response.aclose()
            self._of_call().answered(502, "with something compressed, though it was asked not to")
            return httpx2.Response(502, request=request)
        self._of_call().answered(response.status_code, response.reason_phrase)
        if not response.headers.get("content-type", "").startswith(
            "text/event-stream"
        ):  # events are counted one by one
            response.stream = _Bounded(response.stream)
        return response

    def _of_call(self) -> Trouble:
        """Of the call that this is sent for, else of the connection itself."""
        flight = current_flight.get()
        return self._trouble if flight is None else flight.trouble


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._stream:
            size += len(part)
            if size > LARGEST:
                raise ToolFailure(f"its answer is larger than {LARGEST // 1024**2} MB")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()
