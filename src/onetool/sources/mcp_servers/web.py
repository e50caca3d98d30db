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
from onetool.sources.mcp_servers.settings import Server

LARGEST = 32 * 1024 * 1024  # bytes of one answer, or of one event
UNHEARD = (httpx2.ConnectError, httpx2.ConnectTimeout)  # before a byte of the request has left
STREAM_PATIENCE = 24 * 3600.0  # seconds: a stream may be silent; calls have their own limit


class Trouble:
    """The last thing that went wrong on the way to the server."""

    def __init__(self) -> None:
        self.words: str | None = None
        self.status: int | None = None
        self.was_unheard = False

    def failed(self, error: Exception) -> None:
        self.status = None
        self.was_unheard = isinstance(error, UNHEARD)
        self.words = f"{'it can not be reached' if self.was_unheard else 'the connection broke'}: {_reason(error)}"

    def answered(self, response: httpx2.Response) -> None:
        self.was_unheard = False
        self.status = response.status_code
        self.words = f"it answers {response.status_code} {response.reason_phrase}" if response.is_error else None


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


@asynccontextmanager
async def reached(
    settings: Server, way: str, auth: httpx2.Auth | None, trouble: Trouble
) -> AsyncGenerator[tuple[Any, Any]]:
    url = str(settings.url)

    own = {name: str(value) for name, value in settings.headers.items()}

    def client(
        headers: dict[str, str] | None = None, timeout: httpx2.Timeout | None = None, auth: httpx2.Auth | None = None
    ) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=_Noting(trouble), headers=headers, timeout=timeout, auth=auth)

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
        except Exception as error:
            self._trouble.failed(error)
            raise
        self._trouble.answered(response)
        if not response.headers.get("content-type", "").startswith(
            "text/event-stream"
        ):  # events are counted one by one
            response.stream = _Bounded(response.stream)
        return response


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
