"""`Upstream`, which keeps one connection: opens it on demand, reopens it when it is lost, and closes it at the end.

All code here runs on the servers' event loop. The SDK is imported with the first connection, not before.
"""

import asyncio
import logging
import math
import random
from contextlib import suppress
from importlib import import_module
from time import monotonic, time
from typing import TYPE_CHECKING, Literal, TypeVar

from onetool.core.context import note_startup
from onetool.core.errors import ToolFailure, cut
from onetool.core.redaction import mask_values
from onetool.services.child_reaper import ChildReaper
from onetool.services.secrets import RELOAD_NOTE
from onetool.sources.mcp_servers.environment import start_advice
from onetool.sources.mcp_servers.process import ServerProcess, spawned
from onetool.sources.mcp_servers.proxy import ServerProxy, ServerSet
from onetool.sources.mcp_servers.server_cache import ServerListing
from onetool.sources.mcp_servers.settings import missing_secret
from onetool.sources.mcp_servers.upstream_calls import LoginRequiredError, UpstreamCall, UpstreamCalls, auth_error_in

if TYPE_CHECKING:
    from onetool.sources.mcp_servers.connection import UpstreamConnection, Work

log = logging.getLogger("onetool.servers")
T = TypeVar("T")

State = Literal["connected", "connecting", "disconnected"]

FIRST_DELAY, MAX_DELAY = 0.5, 60.0  # seconds between two attempts
STEADY = 10.0  # seconds after which a connection counts as stable
FRESH = 1.0  # seconds during which callers get the last failure without a new attempt
GRACE = 15.0  # seconds in addition to connect_timeout, to import the SDK and to end a process that did not answer
PAUSE = 0.1  # seconds between two listings of a server that changes all the time
MAX_ERROR = 600
END_TIMEOUT = 4.0  # seconds; a process is killed after two


class Upstream:
    """The connection to the server of a proxy. `servers` receives each listing."""

    def __init__(self, proxy: ServerProxy, servers: ServerSet, reaper: ChildReaper, logs_errors: bool = False) -> None:
        self.name = proxy.name
        self.settings = proxy.settings
        self.server_log = proxy.server_log
        self.way = proxy.cached.way
        self.logins = servers.logins
        self.mask_also = servers.mask_also
        self._proxy = proxy
        self._servers = servers
        self._reaper = reaper
        self.pending_calls = UpstreamCalls()
        self.calls = 0  # pending calls, including those that wait for the connection
        self.state: State = "connecting"
        self.error: str | None = None
        self.since = time()  # when the connection was opened or lost
        self.needs_login = False  # the reason for not being connected
        self._logs_errors = logs_errors
        self._connection: UpstreamConnection | None = None
        self._failed_at = -math.inf
        self._started: ServerProcess | None = None
        self._try_now = asyncio.Event()
        self._stop = asyncio.Event()
        self._attempt: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(), name=f"onetool-server-{self.name}")

    # For callers

    async def do(self, what: str, work: "Work[T]", may_repeat: bool, call: UpstreamCall) -> T:
        """Run `work` and return the answer. If the connection is lost, repeat only work that may be done twice."""
        self.calls += 1
        try:
            while True:
                if self._connection is None:
                    began = monotonic()
                    connection = await self._connected()
                    call.run_in_context(note_startup, monotonic() - began)
                else:
                    connection = await self._connected()
                if (refusal := self._proxy.refusal()) is not None:  # a new listing may have changed the tools
                    raise refusal
                try:
                    with self.pending_calls.pending(call):
                        async with call.within(self.settings.timeout):
                            return await work(connection, call)
                except TimeoutError:
                    raise ToolFailure(
                        f"{self.name}.{what} did not respond within {self.settings.timeout:g} s",
                        reason="timeout",
                        hints=[f"servers.{self.name}.timeout in the config raises this limit"],
                    ) from None
                except Exception as error:  # noqa: BLE001 - the SDK raises many types
                    was_not_received = connection.was_not_received(error, call)
                    alone = self.pending_calls.is_empty()
                    if connection.ends_connection(error, call) or (alone and was_not_received):
                        self._drop(connection)
                    may_again = may_repeat or was_not_received
                    if connection.was_dropped(error, call) and may_again and not call.is_retry:
                        call.is_retry = True
                        self.server_log.note(f"{what}: the connection was lost; retrying the call")
                        continue
                    if call.failure.body_text:
                        self.server_log.note(f"{what}: {call.failure.words}")
                    raise await self._failure(connection, what, error, call) from None
        finally:
            self.calls -= 1

    async def wait_connected(self, retry: bool = False) -> None:
        """Wait until connected or failed, at most `connect_timeout`. With `retry`, try again after a failure."""
        if self._connection is not None or (self.error and not retry) or monotonic() - self._failed_at <= FRESH:
            return
        self._try_now.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._attempt), self.settings.connect_timeout + GRACE)

    async def close(self) -> None:
        self._stop.set()
        self._try_now.set()
        if self.state != "connected":
            self._task.cancel()
        _, late = await asyncio.wait({self._task}, timeout=END_TIMEOUT)
        if late:  # for example a web server that doesn't close the connection
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=END_TIMEOUT)
        self._settle()  # release waiting calls

    # The connection

    async def _connected(self) -> "UpstreamConnection":
        """Return the connection. If there is none, connect at once and wait."""
        if self._connection is not None:
            if not self._connection.has_ended:
                return self._connection
            self._drop(self._connection)
        await self.wait_connected(retry=True)
        if self._connection is None:
            raise self.unavailable()
        return self._connection

    def _drop(self, connection: "UpstreamConnection") -> None:
        """Discard the connection. The next caller waits for a new one."""
        connection.mark_unusable()
        if self._connection is connection:
            self._connection = None
            self._attempt = asyncio.get_running_loop().create_future()

    def unavailable(self) -> ToolFailure:
        why = self.error or f"it is still starting, after {self.settings.connect_timeout:g} s"
        return ToolFailure(
            f"the MCP server {self.name} is not connected: {why}",
            reason="source_unavailable",
            hints=[f"onetool servers test {self.name}", f"onetool servers logs {self.name}"],
        )

    async def _run(self) -> None:
        delay = FIRST_DELAY
        while not self._stop.is_set():
            self.state = "connecting"
            started_at = monotonic()
            try:
                await self._connect_once()
                why = None if self._stop.is_set() else "the connection was lost"
            except BaseException as error:  # noqa: BLE001 - a group of errors in the SDK's tasks
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    # Another error at the same time may have replaced the cancellation; that error no longer matters.
                    raise asyncio.CancelledError from None
                why = self._reason_text(error)
            was_connected, self._connection = self.state == "connected", None
            self.state = "disconnected"
            if self._stop.is_set():
                break
            if self._logs_errors and (was_connected or self.error is None):  # once, not after every attempt
                log.warning("the MCP server %s is not connected: %s", self.name, why)
            self.error = why
            self.server_log.note(f"{'lost' if was_connected else 'not connected'}: {why}")
            if was_connected:
                self.since = time()
            else:
                self._failed_at = monotonic()
                self._settle()
            if self._attempt.done():  # callers wait for the next attempt
                self._attempt = asyncio.get_running_loop().create_future()
            if was_connected and monotonic() - started_at > STEADY:
                delay = FIRST_DELAY
                continue  # the connection was stable: reconnect at once
            self._try_now.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._try_now.wait(), delay * random.uniform(0.8, 1.2))  # noqa: S311
            delay = min(delay * 2, MAX_DELAY)
        self._settle()

    async def _connect_once(self) -> None:
        """Connect, and wait until the connection ends."""
        if mistakes := self.settings.mistakes:
            raise ToolFailure("; ".join(map(str, mistakes)))
        if (secret := missing_secret(self.settings)) is not None:
            fix = "mount that file" if ":" in secret else f"run: onetool auth set {secret}"
            raise ToolFailure(f"the secret {secret} is not set; {fix} ({RELOAD_NOTE})")
        self.server_log.words.clear()
        if self.settings.transport == "stdio":
            self._started = await self.process()
        try:
            # Importing takes a second, concurrently with the start of processes.
            opening = await asyncio.to_thread(import_module, "onetool.sources.mcp_servers.opening")
            async with opening.connected(self) as connection:
                await self._report_listing(connection)  # first: callers may list tools once connected
                self._connection, self.state, self.error = connection, "connected", None
                self.since, self.needs_login = time(), False
                self._settle()
                stopped, ended, listing = map(
                    asyncio.create_task,
                    (self._stop.wait(), connection.wait_ended(), self._relist_on_change(connection)),
                )
                try:
                    await asyncio.wait({stopped, ended}, return_when=asyncio.FIRST_COMPLETED)
                    if ended.done() and not self._stop.is_set():
                        raise ToolFailure(connection.why_ended())
                finally:
                    for task in (stopped, ended, listing):
                        task.cancel()
        finally:
            if self._started is not None:
                await self._started.end()
                self._started = None

    async def process(self) -> ServerProcess:
        """Return the started process, or a new one."""
        started, self._started = self._started, None
        return started or await spawned(self.settings, self.server_log, self._reaper)

    async def _relist_on_change(self, connection: "UpstreamConnection") -> None:
        """List the tools again whenever the server reports changes. Errors don't end the connection."""
        pause = PAUSE
        while True:
            await connection.changed.wait()
            await asyncio.sleep(pause)
            connection.changed.clear()
            began = monotonic()
            try:
                async with asyncio.timeout(self.settings.connect_timeout):
                    await connection.list_all()
            except Exception as error:  # noqa: BLE001 - the SDK raises many types
                self.server_log.note(f"the changed tools can't be listed: {error!r:.200}")
            else:
                await self._report_listing(connection)
            pause = min(max(PAUSE, 4 * (monotonic() - began)), MAX_DELAY)

    async def _report_listing(self, connection: "UpstreamConnection") -> None:
        if self._stop.is_set():
            return
        self.way = connection.way
        tools = f"{len(connection.tools)} {'tool' if len(connection.tools) == 1 else 'tools'}"
        self.server_log.note(f"connected: {connection.version or 'unnamed server'}, {tools}")
        try:
            # In a thread, because checking definitions may take long and all servers share the loop.
            listing = ServerListing(connection.tools, connection.offers, connection.version, connection.way)
            await asyncio.to_thread(self._servers.listing_received, self._proxy, listing)
        except Exception:  # a bug of ours, which must not end the connection
            log.exception("the tools of the server %s could not be listed", self.name)

    def _settle(self) -> None:
        if not self._attempt.done():
            self._attempt.set_result(None)

    # Errors

    def _reason_text(self, error: BaseException) -> str:
        """Return the message for a failed or lost connection. An exception group counts as its first cause."""
        self.needs_login = isinstance(auth_error_in(error), LoginRequiredError)
        if isinstance(error, ToolFailure):
            cause = str(error)
        else:
            from onetool.sources.mcp_servers.connection import why  # imports the SDK

            cause = why(error)
        last = self.server_log.last_lines()
        text = f"{cause}; last output: {last}" if last and last not in cause else cause
        text = cut(mask_values(text, self.server_log.masked), MAX_ERROR)
        if self.state == "connected":
            return text
        return text + start_advice(self.settings, " ".join((cause, *self.server_log.words)))

    async def _failure(
        self, connection: "UpstreamConnection", what: str, error: BaseException, call: UpstreamCall
    ) -> ToolFailure:
        if not connection.was_dropped(error, call):
            return connection.failure(error, call)
        if call.failure.was_not_received:
            why = f"the MCP server {self.name} was not reached: {connection.why_ended(call)}"
            return ToolFailure(cut(why, MAX_ERROR), reason="source_unavailable")
        if connection.has_ended:
            await connection.wait_ended()
        last = self.server_log.last_lines()
        output = f"; last output: {last}" if last else ""
        why = f"the MCP server {self.name} ended in the middle of {what}: {connection.why_ended(call)}{output}"
        hints = ["the call may or may not have had an effect", f"onetool servers logs {self.name}"]
        return ToolFailure(cut(why, MAX_ERROR), reason="source_unavailable", hints=hints)
