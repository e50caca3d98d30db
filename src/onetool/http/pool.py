"""The connection pool of one event loop, and how a new connection is made: name lookup, address check, TLS.

Connections are kept per origin and per rule of `allowedHosts`: one that a rule let through is never used for a request
that another rule would have to judge. Every address that a name resolves to is checked, and only a checked address is
connected to. A lookup can't be ended, so lookups have a bounded number of threads of their own, one per name.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from onetool.core.errors import ToolFailure
from onetool.core.threads import Threads
from onetool.http.connection import Connection
from onetool.http.errors import UnreachableError
from onetool.http.url import Url, is_address

if TYPE_CHECKING:
    import ssl

    from onetool.http.allowed_hosts import AllowedHosts, HostRule


MAX_LOOKUPS = 32  # lookups at a time
LOCAL = ("::1", "127.0.0.1")

Lookup = list[str] | OSError | UnicodeError


class Resolver:
    def __init__(self, most: int = MAX_LOOKUPS) -> None:
        self._threads = Threads(most)
        self._lookups: dict[Any, asyncio.Future[Lookup]] = {}

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return all addresses of a host. Raises OSError or UnicodeError if there are none."""
        if host == "localhost":  # it is here, whatever anybody says: RFC 6761
            return list(LOCAL)
        key = (asyncio.get_running_loop(), host, port)
        lookup = self._lookups.get(key)
        if lookup is None:
            work = self._threads.run(_look_up, {"host": host, "port": port})
            lookup = self._lookups[key] = asyncio.ensure_future(work)
            lookup.add_done_callback(lambda _: self._lookups.pop(key, None))
        found = await asyncio.shield(lookup)
        if isinstance(found, Exception):
            raise found
        return found


def _look_up(host: str, port: int) -> Lookup:
    """Look a name up. Errors are returned, not raised: there may be no caller left to catch them."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return error
    return [str(address[0]) for *_, address in found]


# New connections: resolve the name, check every address, dial a checked one

MAX_ADDRESSES = 16  # that are tried; all are checked

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
Connect = Callable[..., Awaitable[tuple[Any, Any]]]
"""Like `loop.create_connection`: (factory, address, port, ssl=…, server_hostname=…)."""


class Dialler:
    def __init__(
        self, resolve: Resolve | None, connect: Connect | None, tls: "Callable[[], ssl.SSLContext] | None"
    ) -> None:
        self._resolve = resolve or Resolver().addresses
        self._connect = connect
        self._make_tls = tls or _default_tls
        self._tls: ssl.SSLContext | None = None

    async def dial(
        self, url: Url, rule: "HostRule", hosts: "AllowedHosts", deadline: float, on_lost: Callable[[Connection], None]
    ) -> Connection:
        addresses = await self._addresses(url)
        for address in addresses:
            hosts.check_address(rule, address, url)
        loop = asyncio.get_running_loop()
        failure: UnreachableError | None = None
        tried = addresses[:MAX_ADDRESSES]
        for number, address in enumerate(tried):
            others = len(tried) - number - 1  # one that is silent must not use up the time of those that follow
            try:
                async with asyncio.timeout((deadline - loop.time()) / (others + 1) if others else None):
                    more: dict[str, Any] = {}
                    if url.scheme == "https":
                        self._tls = self._tls or self._make_tls()
                        more = {"ssl": self._tls, "server_hostname": url.host}
                    connect = self._connect or loop.create_connection
                    make = partial(Connection, loop, url.authority, on_lost)
                    return (await connect(make, address, url.port, **more))[1]
            except (OSError, TimeoutError, ValueError) as error:
                failure = _unreachable(url, error)
        raise failure or UnreachableError(f"{url.host} leads to no address")

    async def _addresses(self, url: Url) -> Sequence[str]:
        if is_address(url.host):
            return [url.host]
        try:
            return list(dict.fromkeys(await self._resolve(url.host, url.port)))
        except ToolFailure:
            raise
        except (OSError, UnicodeError) as error:
            words = getattr(error, "strerror", None) or error
            raise UnreachableError(f"the name {url.host} can't be resolved: {words}") from None


def _default_tls() -> "ssl.SSLContext":
    import ssl

    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    context.hostname_checks_common_name = False  # RFC 9525: the name of a certificate stands elsewhere
    return context


def _unreachable(url: Url, error: Exception) -> UnreachableError:
    where = url.authority
    if isinstance(error, TimeoutError) and not error.strerror:
        return UnreachableError(f"no connection to {where}: nobody answers there")
    if verify := getattr(error, "verify_message", None):
        return UnreachableError(f"the certificate of {where} is not accepted: {verify}", again=False)
    if reason := getattr(error, "reason", None):  # of TLS
        return UnreachableError(f"no TLS with {where}: {str(reason).lower().replace('_', ' ')}", again=False)
    number = getattr(error, "errno", None)  # asyncio has words of its own, which do not say why
    return UnreachableError(f"no connection to {where}: {os.strerror(number) if number else error}")


# The pool

MAX_PER_ORIGIN = 64  # connections to one origin
MAX_IDLE = 256  # in all
IDLE_SECONDS = 15.0

Dial = Callable[[], Awaitable[Connection]]


class _Origin:
    __slots__ = ("count", "idle", "waiting")

    def __init__(self) -> None:
        self.idle: list[Connection] = []  # the one used last at the end
        self.count = 0  # idle, in use, and being made
        self.waiting: deque[asyncio.Future[Connection | None]] = deque()


class ConnectionPool:
    """The connections of one event loop. Not thread-safe."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, most: int = MAX_PER_ORIGIN, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self._loop = loop
        self._most = most
        self._idle_seconds = idle_seconds
        self._origins: dict[Hashable, _Origin] = {}
        self._keys: dict[Connection, Hashable] = {}
        self._idle = 0
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False
        self._closer = self._close_with_loop()

    async def begin(self) -> None:
        """Have the pool closed with the loop, which closes all generators that have begun before it ends."""
        await anext(self._closer)

    async def _close_with_loop(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self.close()
            await asyncio.sleep(0)  # transports tell their end in the next turn

    def acquire_idle(self, key: Hashable) -> Connection | None:
        """Return an idle connection, the one used last: it is the least likely to be closed in a moment."""
        origin = self._origins.get(key)
        while origin is not None and origin.idle:
            connection = origin.idle.pop()
            self._idle -= 1
            if connection.is_free():
                return connection
            self.drop(connection)
        return None

    async def acquire(self, key: Hashable, dial: Dial, wait_s: float | None = None) -> Connection:
        """Check a connection out: an idle one, a new one, or the next one returned.

        Raises TimeoutError if none is returned within `wait_s` seconds.
        """
        if (connection := self.acquire_idle(key)) is not None:
            return connection
        origin = self._origins.setdefault(key, _Origin())
        if origin.count >= self._most:
            async with asyncio.timeout(wait_s):
                handed = await self._wait_for_slot(key, origin)
            if handed is not None:
                if handed.is_free():
                    return handed
                self.drop(handed)  # it ended on the way to us
                return await self.acquire(key, dial, wait_s)
        else:
            origin.count += 1
        try:
            connection = await dial()
        except BaseException:
            self._free(key, origin)
            raise
        self._keys[connection] = key
        return connection

    async def _wait_for_slot(self, key: Hashable, origin: _Origin) -> Connection | None:
        """Wait until a connection is returned or a slot is free."""
        turn: asyncio.Future[Connection | None] = self._loop.create_future()
        origin.waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it came just then: it is for the next one
                handed = turn.result()
                self._free(key, origin) if handed is None else self.release(handed)
            else:
                with suppress(ValueError):  # who returned a connection has seen already that nobody waits
                    origin.waiting.remove(turn)
            raise

    def release(self, connection: Connection) -> None:
        """Return a connection. One whose answer was not read to its end is closed."""
        if self._closed or not connection.is_free():
            self.drop(connection)
            return
        origin = self._origins[self._keys[connection]]
        while origin.waiting:
            turn = origin.waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return
        if self._idle >= MAX_IDLE:
            self.drop(connection)
            return
        self._idle += 1
        origin.idle.append(connection)
        connection.since = self._loop.time()
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._idle_seconds, self._sweep)

    def drop(self, connection: Connection) -> None:
        connection.end()
        key = self._keys.pop(connection, None)
        if key is None:
            return
        origin = self._origins[key]
        if connection in origin.idle:
            origin.idle.remove(connection)
            self._idle -= 1
        self._free(key, origin)

    def drop_idle(self, key: Hashable) -> None:
        origin = self._origins.get(key)
        for connection in list(origin.idle) if origin else ():
            self.drop(connection)

    def _free(self, key: Hashable, origin: _Origin) -> None:
        """Give the slot of a connection to the next caller that waits."""
        while origin.waiting:
            turn = origin.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        origin.count -= 1
        if origin.count == 0:
            self._origins.pop(key, None)

    def _sweep(self) -> None:
        """Close what has been idle for long. Those used least recently stand first."""
        self._sweeper = None
        now = self._loop.time()
        for origin in list(self._origins.values()):
            for connection in [one for one in origin.idle if now - one.since >= self._idle_seconds]:
                self.drop(connection)
        if self._idle:
            self._sweeper = self._loop.call_later(self._idle_seconds / 2, self._sweep)

    def close(self) -> None:
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for connection in list(self._keys):
            self.drop(connection)
