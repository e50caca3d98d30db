"""The event loop of all MCP connections, in its own thread.

Callers run in many loops (of a command, a server or a notebook), but a connection belongs to one loop. Calls are passed
to this loop, which passes the results back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from onetool.core.errors import ToolFailure
from onetool.core.threads import LoopThread
from onetool.services.child_reaper import ChildReaper
from onetool.sources.mcp_servers.proxy import ServerSet
from onetool.sources.mcp_servers.upstream import Upstream
from onetool.sources.mcp_servers.upstream_calls import UpstreamCall

if TYPE_CHECKING:
    from onetool.sources.mcp_servers.connection import Work

T = TypeVar("T")
LogIn = Callable[[Callable[[str], None]], Awaitable[object]]
"""Let a user log in; the function is called with the address of the login page."""

log = logging.getLogger("onetool.servers")
CLOSE_TIMEOUT = 10.0  # seconds, in which the servers are closed concurrently
LOOK_AGAIN = 1.0  # seconds between two checks for new approvals
NOT_YET = 0.05  # seconds between two checks whether calls have ended


class ServerLoop:
    """The loop and its connections. All methods run on the loop, except `__init__`, `replace` and `close`."""

    def __init__(self, servers: ServerSet) -> None:
        self.background = LoopThread("onetool-servers")
        self.upstreams: dict[str, Upstream] = {}
        self._servers = servers
        self._reaper = ChildReaper()
        self._poller: asyncio.Task[None] | None = None
        self._closing: dict[Upstream, asyncio.Task[None]] = {}  # replaced connections with pending calls
        self._logins: dict[str, asyncio.Task[None]] = {}  # waiting for a user

    async def start(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(ToolFailure):  # the server may have been removed
                self._upstream(name)

    async def wait_connected(self, names: list[str], retry: bool, seconds: float | None) -> None:
        waiting = [asyncio.create_task(self._upstream(name).wait_connected(retry)) for name in names]
        _, late = await asyncio.wait(waiting, timeout=seconds)
        for task in late:
            task.cancel()
        for name in names:
            upstream, proxy = self.upstreams.get(name), self._servers.proxy(name)
            if upstream is not None and upstream.state != "connected" and proxy is not None:
                await asyncio.to_thread(proxy.failed)  # writes to the database

    async def reconnect(self, name: str) -> None:
        """Close any connection, and wait until the server is connected again or has failed."""
        if (upstream := self.upstreams.pop(name, None)) is not None:
            await upstream.close()
        await self.wait_connected([name], True, None)

    async def begin_login(self, name: str, log_in: LogIn) -> str:
        """Start a login and return the address of its page. After the login, the server is connected again.

        An unfinished login to the same server is cancelled.
        """
        page: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def wait_for_person() -> None:
            await log_in(lambda url: None if page.done() else page.set_result(url))
            await self.reconnect(name)

        def ended(task: asyncio.Task[None]) -> None:
            if self._logins.get(name) is task:
                del self._logins[name]
            proxy = self._servers.proxy(name)
            if not task.cancelled() and (error := task.exception()) is not None and proxy is not None:
                proxy.server_log.note(f"not logged in: {error}")

        if (before := self._logins.get(name)) is not None:
            before.cancel()
        task = self._logins[name] = asyncio.create_task(wait_for_person())
        task.add_done_callback(ended)
        await asyncio.wait({task, page}, return_when=asyncio.FIRST_COMPLETED)
        if not page.done():
            await task
            raise ToolFailure(f"the server {name} needs no login")
        return page.result()

    async def do(self, server: str, what: str, work: "Work[T]", may_repeat: bool, call: UpstreamCall) -> T:
        return await self._upstream(server).do(what, work, may_repeat, call)

    def replace(self, gone: Sequence[str], names: Sequence[str]) -> None:
        """Close the servers `gone`. If all servers stay connected, start `names`. Thread-safe."""

        async def replaced() -> None:
            ended = [upstream for name in gone if (upstream := self.upstreams.pop(name, None)) is not None]
            for upstream in ended:
                if upstream.calls:
                    self._closing[upstream] = asyncio.create_task(self._close_when_idle(upstream))
            if self._servers.stays_connected:
                await self.start(names)
            await asyncio.gather(*(upstream.close() for upstream in ended if upstream not in self._closing))

        with suppress(TimeoutError):  # slower servers close in the background
            self.background.submit(replaced()).result(CLOSE_TIMEOUT)

    async def _close_when_idle(self, upstream: Upstream) -> None:
        """Close after its pending calls have ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(upstream.settings.timeout):
                while upstream.calls:  # noqa: ASYNC110 - rare, and cheaper than an event
                    await asyncio.sleep(NOT_YET)
        await upstream.close()
        del self._closing[upstream]

    def _upstream(self, name: str) -> Upstream:
        if (found := self.upstreams.get(name)) is not None:
            return found
        proxy = self._servers.proxy(name)
        if proxy is None:
            raise ToolFailure(f"there is no MCP server {name} any more", reason="source_unavailable")
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll_approvals())
        found = self.upstreams[name] = Upstream(
            proxy, self._servers, self._reaper, logs_errors=self._servers.stays_connected
        )
        return found

    async def _poll_approvals(self) -> None:
        while True:
            await asyncio.sleep(LOOK_AGAIN)
            try:
                await asyncio.to_thread(self._servers.reread_approvals)
            except Exception:  # polling must continue
                log.exception("approvals and listings of the servers could not be read")

    def close(self) -> None:
        async def closed() -> None:
            if self._poller is not None:
                self._poller.cancel()
            for waiting in (*self._closing.values(), *self._logins.values()):
                waiting.cancel()
            upstreams, self.upstreams = [*self.upstreams.values(), *self._closing], {}
            await asyncio.gather(*(upstream.close() for upstream in upstreams))

        with suppress(TimeoutError):
            self.background.submit(closed()).result(CLOSE_TIMEOUT)
        self.background.close()
        self._reaper.close()
