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
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from inspect import isawaitable
from typing import Any

import msgspec
import uvicorn

from onetool.core.errors import OneToolError
from onetool.interfaces.http.guard import Guard
from onetool.interfaces.http.heads import HeadWatch, HttpConnection
from onetool.interfaces.http.listen import BoundAddress

log = logging.getLogger("onetool.serve")
KEEP_ALIVE_S = 75  # between two requests; longer than clients keep connections, so that they close first
STOP_TIMEOUT_S = 5  # for current requests, when the server stops
MAX_FILES = 65_536
THREADS = 64  # for work that waits for a disk, a lock or a name server. A few long waits must not delay other work
# The default of 700 would search for cycles several times a second under load and find none, which costs a tenth of a
# call.
SERVING_GC = (10_000, 10, 10)
LATE_S = 1  # for requests that are not done after the finish time
LOOK_S = 0.02
UNREAD_S = 0.1  # for requests that have arrived and are not read yet, when the server stops
WARM_S = 5.0  # until the background loading after the start is done

Reload = Callable[[], Awaitable[None] | None]


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options for the start, the reloads and the end of a server."""

    started: Callable[[], None]  # called when clients can connect
    reload: Reload | None = None
    drain_s: float = 0.0  # to accept requests after SIGTERM; then …
    finish_s: float = 0.0  # … to listen until all current requests are done, at most
    parting_s: float = 0.0  # for clients with open connections that may be about to send a request


def serve(site: Guard, address: BoundAddress, *, shutdown_timeout_s: float = STOP_TIMEOUT_S, **options: Any) -> int:
    """Serve until a signal stops the server; return the signal. `options` are fields of ServeOptions.

    `shutdown_timeout_s` is the timeout of current requests when the server stops.
    """
    _raise_file_limit()
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # the app does the logging
    handlers = logging.getLogger("onetool").handlers
    logging.getLogger("asyncio").handlers = list(handlers)  # otherwise it would write lines that are not JSON
    watches: set[HeadWatch] = set()
    config = uvicorn.Config(
        site,
        http=partial(HttpConnection, watches=watches),  # pyright: ignore[reportArgumentType]
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # anybody can set these headers
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=shutdown_timeout_s,  # pyright: ignore[reportArgumentType]
    )
    server = _Server(config, site, watches, ServeOptions(**options))
    try:
        from uvloop import new_event_loop
    except ImportError:  # not available on this system
        new_event_loop = None
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(server.serve([*address.sockets]))
    for handler in handlers:
        handler.flush()
    return server.signal


class _Server(uvicorn.Server):
    """uvicorn's server with our own signal handlers: uvicorn's would end the process before everything is closed."""

    def __init__(self, config: uvicorn.Config, site: Guard, watches: set[HeadWatch], options: ServeOptions) -> None:
        super().__init__(config)
        self.signal = 0
        self._site = site
        self._watches = watches
        self._options = options
        self._reloading: asyncio.Task[None] | None = None
        self._finishing: asyncio.Task[None] | None = None
        self._had_terminal = os.isatty(0)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "onetool-wait"))
        await super().startup(sockets)
        gc.freeze()  # objects from the start stay, so collections can skip them
        gc.set_threshold(*SERVING_GC)
        asyncio.get_running_loop().call_later(WARM_S, gc.freeze)  # … and those loaded after it
        self._options.started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._options.parting_s and not self.force_exit:
            await self._part()
        for server in self.servers:
            server.close()  # no new connections, before streams are ended
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._site.stop()
        except Exception as error:  # noqa: BLE001 - the server must stop anyway
            log.error("Streams could not be ended: %s: %s", type(error).__name__, error)
        await self._wait_while(UNREAD_S, HeadWatch.has_unread)  # uvicorn would close these connections
        await super().shutdown(sockets)

    async def _part(self) -> None:
        """Accept no new clients, and wait for those that may be about to send a request."""
        self._site.drain()
        for server in self.servers:
            server.close()
        await self._wait_while(self._options.parting_s, HeadWatch.may_ask)

    async def _wait_while(self, seconds: float, test: Callable[[HeadWatch], bool]) -> None:
        """Wait while a connection passes the test."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while any(map(test, self._watches)) and clock() < until and not self.force_exit:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)

    def _stop(self, number: int) -> None:
        name = signal.Signals(number).name
        self.force_exit = bool(self.signal)  # the second signal
        self.signal = self.signal or number
        if (self._options.drain_s or self._options.finish_s) and not self.force_exit and number == signal.SIGTERM:
            log.info("Stopping in %g s: %s", self._options.drain_s, name)
            self._site.drain()
            self._finishing = asyncio.create_task(self._finish())
        else:
            log.info("Stopping %s: %s", "at once" if self.force_exit else "now", name)
            self.should_exit = True

    async def _finish(self) -> None:
        await asyncio.sleep(self._options.drain_s)
        if self._options.finish_s and not await self._site.finish(self._options.finish_s):
            log.warning("Stopping with work still in progress after %g s (cluster.finish_s)", self._options.finish_s)
            self.config.timeout_graceful_shutdown = LATE_S
        self.should_exit = True

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


def _raise_file_limit() -> None:
    """Raise the limit of open files to the hard limit."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # some systems report a higher limit than they allow
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
