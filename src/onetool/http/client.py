"""`HttpClient` sends one request: no redirects, no cookies, no proxies; `ToolRequest` has retries and redirects.

    response = await client.send(request, hosts, timeout=10, max_bytes=4_000_000)

`send` checks the host and every address that its name resolves to, then connects to a checked address.
Each event loop has its own pool of reusable connections.

`TokenCache` keeps the access tokens of OAuth in memory until they expire, for all tools of the client. There is one
fetch at a time for each set of credentials, however many calls wait for it, on any loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from onetool._version import __version__
from onetool.core.errors import ToolFailure
from onetool.http.connection import HttpResponse
from onetool.http.definition import FROM_TOOL, is_idempotent
from onetool.http.errors import ConnectTimeoutError, RequestRefusedError, StaleConnectionError, with_message
from onetool.http.pool import MAX_PER_ORIGIN, Connect, ConnectionPool, Dialler, Resolve

if TYPE_CHECKING:
    import ssl

    from onetool.core.errors import Need
    from onetool.core.json_data import StoreBlob
    from onetool.database.documents import Documents
    from onetool.http.allowed_hosts import AllowedHosts
    from onetool.http.files import FileSources
    from onetool.http.placeholders import Lookup
    from onetool.http.upstream import ShowResponse
    from onetool.http.url import HttpRequest, Url

AGENT = f"onetool/{__version__}"
MAX_STALE = 3  # idle connections in a row that the server has already closed
TOKEN_MARGIN = 30.0  # seconds before its expiry that a token is no longer used
DEFAULT_LIFE = 300.0  # seconds, for a token without an expiry time
MIN_LIFE = 1.0  # minimum seconds between two tokens for the same credentials; one immediate renewal is allowed
MAX_TOKENS = 1_000

TokenKey = tuple[str, ...]


class HttpClient:
    """An HTTP client, one per app. Tests can replace `resolve`, `connect` and `tls`."""

    def __init__(
        self,
        resolve: Resolve | None = None,
        connect: Connect | None = None,
        tls: Callable[[], "ssl.SSLContext"] | None = None,
        max_per_origin: int = MAX_PER_ORIGIN,
    ) -> None:
        self._dialler = Dialler(resolve, connect, tls)
        self._max_per_origin = max_per_origin
        self.tokens = TokenCache()  # OAuth tokens of all tools
        self._pools: dict[asyncio.AbstractEventLoop, ConnectionPool] = {}
        self._lock = Lock()

    async def send(
        self,
        request: "HttpRequest",
        hosts: "AllowedHosts",
        *,
        timeout: float,  # noqa: ASYNC109 - asyncio.timeout around it would cost more than all the rest
        max_bytes: int,
        connect: float | None = None,
        stream: bool = False,
    ) -> HttpResponse:
        """Send the request and return the whole answer. Raise ToolFailure if there is none.

        `connect` is the time limit in seconds for connecting. With `stream` it returns when the head of the answer has
        arrived; the caller has to close `answer.stream`, the body.
        """
        url = request.url
        rule = hosts.check(url)
        data = request_bytes(request)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        pool = self._pools.get(loop) or await self._new_pool(loop)
        key = (url.scheme, url.host, url.port, rule)
        tries = 0
        while True:
            connection = pool.acquire_idle(key)
            if connection is None:
                connect_seconds = timeout if connect is None else min(connect, timeout)
                until = min(deadline, loop.time() + connect_seconds)
                dial = partial(self._dialler.dial, url, rule, hosts, until, pool.drop)
                try:
                    async with asyncio.timeout_at(until):
                        connection = await pool.acquire(key, dial)
                except TimeoutError:
                    raise ConnectTimeoutError(f"no connection to {url.authority}", connect_seconds) from None
            try:
                answer = await connection.exchange(data, request.method == "HEAD", max_bytes, deadline, stream, timeout)
            except StaleConnectionError as stale:
                pool.drop(connection)
                pool.drop_idle(key)  # other idle connections to the server are probably closed as well
                tries += 1
                if tries > MAX_STALE or (stale.sent and not is_idempotent(request)):
                    raise
            except BaseException:
                pool.drop(connection)
                raise
            else:
                if answer.stream is None:
                    pool.release(connection)
                else:
                    answer.stream.on_close(partial(pool.release, connection))
                return answer

    async def _new_pool(self, loop: asyncio.AbstractEventLoop) -> ConnectionPool:
        pool = ConnectionPool(loop, self._max_per_origin)
        with self._lock:
            for old in list(self._pools):
                if old.is_closed():
                    del self._pools[old]
            pool = self._pools.setdefault(loop, pool)
        await pool.begin()
        return pool

    def close(self) -> None:
        with self._lock:
            pools, self._pools = self._pools, {}
        for loop, pool in pools.items():
            with suppress(RuntimeError):  # the connections of a closed loop are gone already
                loop.call_soon_threadsafe(pool.close)


class HttpContext(NamedTuple):
    """The app's services for HTTP tools. `mask_also` registers a secret, which `redact` masks from then on."""

    client: HttpClient
    hosts: "AllowedHosts"
    store_result: "StoreBlob"
    mask_also: Callable[[str], None] = lambda _: None
    redact: Callable[[Any], Any] = lambda value: value  # of this call
    secret: "Lookup | None" = None  # by name; None: the secrets of the call's environment
    check_secret: Callable[[str, "Url"], None] = lambda *_: None  # raises if this secret may not be sent to this URL
    logins: "Documents | None" = None  # logins of users
    files: "FileSources | None" = None  # for tools that send files
    needs: "Callable[[Any], Sequence[Need]]" = lambda _: ()  # hosts to allow and secrets to set for an HttpTool
    look_again: "Callable[[], Awaitable[HttpContext | None]] | None" = None  # rereads the settings; None: unchanged
    on_response: "Callable[[ShowResponse], None] | None" = None  # called with each response of a trial


def request_bytes(request: "HttpRequest") -> bytes:
    """Return the request as bytes, with Host, Content-Length and defaults for missing headers.

    Raise RequestRefusedError if a header contains a line break, which would begin another header.
    """
    method, url, body = request.method, request.url, request.body
    names = {name.lower() for name, _ in request.headers}
    lines = [f"{method} {url.target} HTTP/1.1", f"Host: {url.authority}"]
    lines += [f"{name}: {value}" for name, value in request.headers]
    if "user-agent" not in names:
        lines.append(f"User-Agent: {AGENT}")
    if "accept-encoding" not in names:
        lines.append("Accept-Encoding: gzip, deflate")
    lines.append(f"{FROM_TOOL}: tool")  # always: even without a token, a server has routes that tools must not call
    if body or method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(body)}")
    text = "\r\n".join(lines)
    if text.count("\n") != len(lines) - 1 or text.count("\r") != len(lines) - 1 or "\0" in text:
        raise RequestRefusedError("a header can't be sent: it has a line break or a null character in it")
    return f"{text}\r\n\r\n".encode() + body


class FetchedToken(NamedTuple):
    """The response from a token endpoint."""

    access: str
    life: float | None  # seconds; None: unknown
    refresh: str | None = None  # the refresh token to use from now on
    scope: str | None = None


class _CachedToken(NamedTuple):
    access: str
    since: float
    until: float
    refresh: str | None
    hurried: bool  # fetched less than MIN_LIFE after the one before


class _Abandoned(Exception):  # noqa: N818 - the fetching call was cancelled, so another one must fetch
    pass


class TokenCache:
    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._tokens: dict[TokenKey, _CachedToken] = {}
        self._fetches: dict[TokenKey, Future[None]] = {}

    async def get(
        self, key: TokenKey, fetch: Callable[[str | None], Awaitable[FetchedToken]], refused: str | None = None
    ) -> str:
        """Return a token that is valid for a while and isn't the refused one. `fetch` gets a newer refresh token, if
        any.
        """
        while True:
            with self._lock:
                cached = self._tokens.get(key)
                if cached is not None and cached.access != refused and self._clock() < cached.until:
                    return cached.access
                pending = self._fetches.get(key)
                if pending is None:
                    if not self.may_fetch(key):
                        message = "no access token: the last one was fetched less than a second ago, and it was refused"
                        hint = "the API refuses the token from tokenUrl: check clientId and scope in the tool's auth"
                        raise ToolFailure(message, reason="upstream_error", hints=(hint,))
                    mine = self._fetches[key] = Future()
                    break
            try:
                await asyncio.shield(asyncio.wrap_future(pending))
            except _Abandoned:
                continue
            except ToolFailure as error:
                raise with_message(error, str(error)) from None
        return await self._fetch(key, fetch, cached, mine)

    def may_fetch(self, key: TokenKey) -> bool:
        """Return False if the last two tokens were issued within a second: the server would refuse another one, too."""
        cached = self._tokens.get(key)
        return cached is None or not cached.hurried or self._clock() >= cached.since + MIN_LIFE

    async def _fetch(
        self,
        key: TokenKey,
        fetch: Callable[[str | None], Awaitable[FetchedToken]],
        cached: _CachedToken | None,
        mine: "Future[None]",
    ) -> str:
        refresh = cached.refresh if cached else None
        try:
            fetched = await fetch(refresh)
        except BaseException as error:
            with self._lock:
                del self._fetches[key]
            mine.set_exception(error if isinstance(error, ToolFailure) else _Abandoned())
            raise
        life = DEFAULT_LIFE if fetched.life is None else fetched.life
        life = max(life - min(TOKEN_MARGIN, life / 10), MIN_LIFE)
        now = self._clock()
        hurried = cached is not None and now < cached.since + MIN_LIFE
        with self._lock:
            self._tokens.pop(key, None)
            self._tokens[key] = _CachedToken(fetched.access, now, now + life, fetched.refresh or refresh, hurried)
            if len(self._tokens) > MAX_TOKENS:
                del self._tokens[next(iter(self._tokens))]
            del self._fetches[key]
        mine.set_result(None)
        return fetched.access
