"""The connection pool of one event loop, and the steps to a new connection: name lookup, address check, TLS.

Connections are kept per origin and per rule of `allowedHosts`: a connection that one rule allowed is never used for a
request under another rule. Every address that a name resolves to is checked, and only a checked address is
connected to. A lookup can't be cancelled, so lookups run in a limited number of threads of their own, one per name.
"""

import asyncio
import os
import socket
import ssl
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
    from onetool.http.allowed_hosts import AllowedHosts, HostRule

MAX_LOOKUPS = 32  # lookups at a time
LOCAL = ("::1", "127.0.0.1")

Lookup = list[str] | OSError | UnicodeError


class Resolver:
    def __init__(self) -> None:
        self._threads = Threads(MAX_LOOKUPS)
        self._lookups: dict[Any, asyncio.Future[Lookup]] = {}

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return all addresses of a host. Raise OSError or UnicodeError if there are none."""
        if host == "localhost":  # always this machine, whatever DNS answers: RFC 6761
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
    """Look up a name. Errors are returned, not raised, because no caller may be left to catch them."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return error
    return [str(address[0]) for *_, address in found]


# New connections: resolve the name, check every address, dial a checked one

MAX_ADDRESSES = 16  # to try; all are checked

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
Connect = Callable[..., Awaitable[tuple[Any, Any]]]
"""A function like `loop.create_connection`: (factory, address, port, ssl=…, server_hostname=…)."""


class Dialler:
    def __init__(
        self, resolve: Resolve | None, connect: Connect | None, tls: Callable[[], ssl.SSLContext] | None
    ) -> None:
        self._resolve = resolve or Resolver().addresses
        self._connect = connect
        self._make_tls = tls or _default_tls
        self._tls: ssl.SSLContext | None = None

    async def dial(
        self, url: Url, rule: "HostRule", hosts: "AllowedHosts", deadline: float, on_lost: Callable[[Connection], None]
    ) -> Connection:
        if is_address(url.host):
            addresses = [url.host]
        else:
            try:
                addresses = list(dict.fromkeys(await self._resolve(url.host, url.port)))
            except ToolFailure:
                raise
            except (OSError, UnicodeError) as error:
                why = getattr(error, "strerror", None) or error
                raise UnreachableError(f"the name {url.host} can't be resolved: {why}") from None
        for address in addresses:
            hosts.check_address(rule, address, url)
        loop = asyncio.get_running_loop()
        failure: UnreachableError | None = None
        tried = addresses[:MAX_ADDRESSES]
        for number, address in enumerate(tried):
            others = len(tried) - number - 1  # an address that doesn't respond must not use up the time of the others
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
        raise failure or UnreachableError(f"{url.host} resolves to no address")


def _default_tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    context.hostname_checks_common_name = False  # RFC 9525: names are in subjectAltName
    return context


def _unreachable(url: Url, error: Exception) -> UnreachableError:
    where = url.authority
    if isinstance(error, TimeoutError) and not error.strerror:
        return UnreachableError(f"no connection to {where}: no response")
    if verify := getattr(error, "verify_message", None):
        return UnreachableError(f"the certificate of {where} is not accepted: {verify}", again=False)
    if reason := getattr(error, "reason", None):  # of TLS
        return UnreachableError(
            f"the TLS handshake with {where} failed: {str(reason).lower().replace('_', ' ')}", again=False
        )
    number = getattr(error, "errno", None)  # asyncio's own message does not name the reason
    return UnreachableError(f"no connection to {where}: {os.strerror(number) if number else error}")


# The pool

MAX_PER_ORIGIN = 64  # connections to one origin
MAX_IDLE = 256  # in total
IDLE_SECONDS = 15.0

Dial = Callable[[], Awaitable[Connection]]


class _Origin:
    __slots__ = ("count", "idle", "waiting")

    def __init__(self) -> None:
        self.idle: list[Connection] = []  # most recently used last
        self.count = 0  # idle, in use, and connecting
        self.waiting: deque[asyncio.Future[Connection | None]] = deque()


class ConnectionPool:
    """The connections of one event loop. Not thread-safe."""

    def __init__(self, loop: asyncio.AbstractEventLoop, max_per_origin: int = MAX_PER_ORIGIN) -> None:
        self._loop = loop
        self._max_per_origin = max_per_origin
        self._origins: dict[Hashable, _Origin] = {}
        self._keys: dict[Connection, Hashable] = {}
        self._idle = 0
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False
        self._closer = self._close_with_loop()

    async def begin(self) -> None:
        await anext(self._closer)

    async def _close_with_loop(self) -> AsyncGenerator[None]:
        """Close the pool with the loop: a loop closes all running async generators before it ends."""
        try:
            yield
        finally:
            self.close()
            await asyncio.sleep(0)  # transports report their end in the next iteration

    def acquire_idle(self, key: Hashable) -> Connection | None:
        """Return the idle connection used last, which is the least likely to be closed soon."""
        origin = self._origins.get(key)
        while origin is not None and origin.idle:
            connection = origin.idle.pop()
            self._idle -= 1
            if connection.is_free():
                return connection
            self.drop(connection)
        return None

    async def acquire(self, key: Hashable, dial: Dial, wait_s: float | None = None) -> Connection:
        """Check out a connection: idle, new, or the next one returned.

        Raise TimeoutError if none is returned within `wait_s` seconds.
        """
        if (connection := self.acquire_idle(key)) is not None:
            return connection
        origin = self._origins.setdefault(key, _Origin())
        if origin.count >= self._max_per_origin:
            async with asyncio.timeout(wait_s):
                handed = await self._wait_for_slot(key, origin)
            if handed is not None:
                if handed.is_free():
                    return handed
                self.drop(handed)  # it closed before we woke up
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
            if not turn.cancelled():  # it arrived at the same moment: pass it on to the next caller
                handed = turn.result()
                self._free(key, origin) if handed is None else self.release(handed)
            else:
                with suppress(ValueError):  # a returning task has removed this waiter already
                    origin.waiting.remove(turn)
            raise

    def release(self, connection: Connection) -> None:
        """Return a connection to the pool. It is closed if its response was not read completely."""
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
            self._sweeper = self._loop.call_later(IDLE_SECONDS, self._sweep)

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
        """Give the slot of a connection to the next waiting caller."""
        while origin.waiting:
            turn = origin.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        origin.count -= 1
        if origin.count == 0:
            self._origins.pop(key, None)

    def _sweep(self) -> None:
        """Close connections that have been idle for too long."""
        self._sweeper = None
        now = self._loop.time()
        for origin in list(self._origins.values()):
            for connection in list(origin.idle):
                if now - connection.since >= IDLE_SECONDS:
                    self.drop(connection)
        if self._idle:
            self._sweeper = self._loop.call_later(IDLE_SECONDS / 2, self._sweep)

    def close(self) -> None:
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for connection in list(self._keys):
            self.drop(connection)
