"""Run an app with uvicorn: start, signals, and a stop that lets requests finish.

SIGTERM           with a drain time: requests are still accepted, and balancers are told to send them elsewhere; with a
                  finish time: other replicas are served until all current requests are done; then:
SIGTERM, SIGINT   no new connections, streams are ended, requests have some seconds; a second signal: stop at once
SIGHUP            read the config again; stop if the terminal that started the server is gone
"""

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from inspect import isawaitable
from typing import Any

import msgspec
import uvicorn

from onetool.core.errors import OneToolError
from onetool.interfaces.http.app import HttpApp
from onetool.interfaces.http.connection import ConnectionLimits, HttpConnection, IdleConnections
from onetool.interfaces.http.listen import BoundAddress, refuse_new

log = logging.getLogger("onetool.serve")
STOP_TIMEOUT_S = 5  # for current requests, when the server stops
MAX_FILES = 65_536
THREADS = 64  # for work that waits for a disk, a lock or a name server. A few long waits must not delay other work
# The default of 700 would search for cycles several times a second under load and find none, which costs a tenth of a
# call.
SERVING_GC = (10_000, 10, 10)
LATE_S = 1  # for requests that are not done after the finish time
LOOK_S = 0.02
HANDSHAKE_S = 0.1  # for clients that are connecting
WARM_S = 5.0  # until the background loading after the start is done

Reload = Callable[[], Awaitable[None] | None]


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options for the start, the reloads and the end of a server."""

    started: Callable[[], None]  # called when clients can connect
    reload: Reload | None = None
    further: socket.socket | None = None  # an additional Unix socket to listen on
    drain_s: float = 0.0  # to accept requests after SIGTERM; then …
    finish_s: float = 0.0  # … to listen until all current requests are done, at most
    parting_s: float = 0.0  # for clients with open connections that may be about to send a request
    is_last: Callable[[], bool] = lambda: True  # whether no other process accepts connections on these sockets then


def serve(
    http_app: HttpApp,
    address: BoundAddress,
    *,
    limits: ConnectionLimits | None = None,
    shutdown_timeout_s: int = STOP_TIMEOUT_S,
    **options: Any,
) -> int:
    """Serve until a signal stops the server; return the signal. `options` are fields of ServeOptions.

    `shutdown_timeout_s` is the timeout of current requests when the server stops.
    """
    limits = limits or ConnectionLimits(connections=min(ConnectionLimits().connections, _raise_file_limit() * 3 // 4))
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # the app does the logging
    handlers = logging.getLogger("onetool").handlers
    logging.getLogger("asyncio").handlers = list(handlers)  # otherwise it would write lines that are not JSON
    protocol = partial(HttpConnection, limits=limits, waiting=IdleConnections(), bodies=http_app.bodies)
    config = uvicorn.Config(
        http_app,
        http=protocol,  # pyright: ignore[reportArgumentType]
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # anybody can set these headers
        server_header=False,
        timeout_keep_alive=limits.idle_s,
        timeout_graceful_shutdown=shutdown_timeout_s,
    )
    server = _Server(config, http_app, ServeOptions(**options))
    try:
        from uvloop import new_event_loop
    except ImportError:  # not available on this system
        new_event_loop = None
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(server.serve(list(address.sockets)))
    for handler in handlers:
        handler.flush()
    return server.signal


class _Server(uvicorn.Server):
    """uvicorn's server with our own signal handlers: uvicorn's would end the process before everything is closed."""

    def __init__(self, config: uvicorn.Config, http_app: HttpApp, options: ServeOptions) -> None:
        super().__init__(config)
        self.signal = 0
        self._http_app = http_app
        self._options = options
        self._reloading: asyncio.Task[None] | None = None
        self._finishing: asyncio.Task[None] | None = None
        self._asked_to_stop = asyncio.Event()
        self._had_terminal = os.isatty(0)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handlers: dict[int, Callable[[], None]] = {
            number: partial(self._stop, number) for number in (signal.SIGTERM, signal.SIGINT)
        }
        if hasattr(signal, "SIGHUP"):
            handlers[signal.SIGHUP] = self._hang_up
        with suppress(NotImplementedError):  # Windows has only Ctrl-C, which cancels what runs
            for number, handler in handlers.items():
                loop.add_signal_handler(number, handler)
        yield

    async def startup(self, sockets: Any = None) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "onetool-wait"))
        await super().startup(sockets)
        if self._options.further is not None:
            loop = asyncio.get_running_loop()
            self.servers.append(await loop.create_unix_server(self._protocol, sock=self._options.further))
        gc.freeze()  # objects from the start stay, so collections can skip them
        gc.set_threshold(*SERVING_GC)
        asyncio.get_running_loop().call_later(WARM_S, gc.freeze)  # … and those loaded after it
        self._options.started()

    def _protocol(self) -> asyncio.Protocol:
        """Return a protocol for a connection, configured the way uvicorn configures its own."""
        made: Any = self.config.http_protocol_class
        loop = asyncio.get_running_loop()
        return made(config=self.config, server_state=self.server_state, app_state=self.lifespan.state, _loop=loop)

    async def main_loop(self) -> None:
        """Sleep until the server is asked to stop; refresh the Date header once a second."""
        while not self.should_exit:
            await self.on_tick(0)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._asked_to_stop.wait(), 1)

    async def shutdown(self, sockets: Any = None) -> None:
        listening = [one.dup() for one in sockets or ()] if self._options.parting_s and not self.force_exit else []
        for server in self.servers:
            server.close()  # no new connections, before the others are notified
        if listening:
            self._http_app.drain()
            await self._take_last(listening)
            await self._part()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._http_app.stop()
        except Exception as error:  # noqa: BLE001 - the server must stop anyway
            log.error("Streams could not be ended: %s: %s", type(error).__name__, error)
        await super().shutdown(sockets)
        if tasks := self.server_state.tasks:  # they were cancelled and may still send a response
            timeout = self.config.timeout_graceful_shutdown
            log.warning("Stopped with %d requests still in progress after %d s", len(tasks), timeout)
            await asyncio.wait(tasks, timeout=1)

    async def _take_last(self, listening: list[socket.socket]) -> None:
        """Accept the clients in the system's queue, which it drops if no other process listens."""
        taken: list[socket.socket] = []
        if self._options.is_last():
            for one in listening:
                refuse_new(one)
            await asyncio.sleep(HANDSHAKE_S)
        for one in listening:
            one.setblocking(False)
            with one, suppress(OSError):  # BlockingIOError: the queue is empty
                while True:
                    taken.append(one.accept()[0])
        for client in taken:
            client.setblocking(False)
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, client)

    async def _part(self) -> None:
        """Wait for clients that may be about to send a request, which a closed connection would lose."""
        clock = asyncio.get_running_loop().time
        until = clock() + self._options.parting_s
        await asyncio.sleep(0)  # lets new connections register
        for one in self._clients():
            one.part()
        while any(one.may_ask() for one in self._clients()) and clock() < until and not self.force_exit:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)

    def _clients(self) -> list[HttpConnection]:
        return [one for one in self.server_state.connections if isinstance(one, HttpConnection)]

    def _stop(self, number: int) -> None:
        name = signal.Signals(number).name
        self.force_exit = bool(self.signal)  # the second signal
        self.signal = self.signal or number
        if (self._options.drain_s or self._options.finish_s) and not self.force_exit and number == signal.SIGTERM:
            log.info("Stopping in %g s: %s", self._options.drain_s, name)
            self._http_app.drain()
            self._finishing = asyncio.create_task(self._finish())
        else:
            log.info("Stopping %s: %s", "at once" if self.force_exit else "now", name)
            self._end()

    async def _finish(self) -> None:
        await asyncio.sleep(self._options.drain_s)
        if self._options.finish_s and not await self._http_app.finish(self._options.finish_s):
            log.warning("Stopping with work still in progress after %g s (cluster.finish_s)", self._options.finish_s)
            self.config.timeout_graceful_shutdown = LATE_S
        self._end()

    def _end(self) -> None:
        self.should_exit = True
        self._asked_to_stop.set()

    def _hang_up(self) -> None:
        if self._had_terminal and not os.isatty(0):
            self._stop(signal.SIGHUP)
        elif self._options.reload is not None:
            self._reloading = asyncio.create_task(self._run_reload(self._options.reload))

    async def _run_reload(self, reload: Reload) -> None:
        try:
            done = reload()
            if isawaitable(done):
                await done
        except OneToolError as error:
            log.error("Not reloaded, the previous config stays in effect: %s", error)
        except Exception as error:  # noqa: BLE001 - a failed reload must not stop the server
            log.error("Not reloaded: %s: %s", type(error).__name__, error)


def _raise_file_limit() -> int:
    """Raise the limit of open files to the hard limit, and return it."""
    try:
        import resource
    except ImportError:
        return 1024
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # some systems report a higher limit than they allow
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_FILES if soft == resource.RLIM_INFINITY else soft
