"""`ServerProcess` is a server that runs as a child process: started without a shell, read by lines, ended as a group.

    process = await spawned(settings, log, reaper)
    await process.write(b"…"); line = await process.lines.next()
    await process.end()

The MCP SDK takes a second to import, and most servers take as long to start. This module does not import it, so that
both happen at once.
"""

import asyncio
import os
import signal
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from onetool.core.errors import ToolFailure
from onetool.services.child_reaper import ChildReaper
from onetool.sources.mcp_servers.environment import environment, masked_values
from onetool.sources.mcp_servers.program import find_program, program_at, why_changed
from onetool.sources.mcp_servers.server_log import ServerLog
from onetool.sources.mcp_servers.settings import PlacedServer, ServerSettings

MAX_LINE = 32 * 1024 * 1024  # bytes of one message
MAX_WAITING = 256  # lines that were read and not yet taken, of MAX_LINE bytes in all; then the server has to wait
TURN = 64  # lines that are taken before others have their turn
GRACE_SECONDS = 1.0  # seconds to end by itself, and again when it is told to
LAST_OUTPUT = 0.5  # seconds for the rest of what it wrote, when it has ended

KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has no stronger one, as SIGTERM is strong enough there


async def spawned(settings: ServerSettings, server_log: ServerLog, reaper: ChildReaper) -> "ServerProcess":
    env = environment(settings)
    server_log.masked = masked_values(settings)
    written = str(settings.command)
    command = find_program(written, env.get("PATH"), str(settings.cwd or os.getcwd()))
    if command is None:
        advice = "install it, or write its whole path"
        if " " in written.strip():
            advice = "the command is the program alone: what follows goes into args"
        raise ToolFailure(f"command not found: {written} ({advice})")
    if isinstance(settings, PlacedServer) and settings.project:
        why = why_changed(settings.trusted, program_at(command, settings.project))
        if why is not None:  # since the config was read
            raise ToolFailure(f"it {why}: run onetool trust")
    if settings.cwd is not None and not settings.cwd.is_dir():
        raise ToolFailure(f"its folder does not exist: {settings.cwd} (cwd in its block of the config)")
    loop = asyncio.get_running_loop()
    try:
        _, child = await loop.subprocess_exec(
            lambda: ServerProcess(loop, server_log, reaper),
            command,
            *map(str, settings.args),
            env=env,
            cwd=settings.cwd,
            start_new_session=True,  # Ctrl-C is not meant for it, and it can be ended with all that it started
        )
    except (OSError, ValueError) as error:
        raise ToolFailure(f"it can't be started: {command}: {getattr(error, 'strerror', None) or error}") from None
    reaper.add(child.pid)
    server_log.note(f"started as process {child.pid}: {settings.target}")
    return child


class ServerProcess(asyncio.SubprocessProtocol):
    """The process, as the loop tells us about it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server_log: ServerLog, reaper: ChildReaper) -> None:
        self._loop = loop
        self._server_log = server_log
        self._reaper = reaper
        self._transport: asyncio.SubprocessTransport | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._exited = asyncio.Event()
        self._is_closed = False  # it has closed its standard input, or is about to be gone
        self.lines = ProcessLines(self._pause)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self.pid = self._transport.get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self.lines.feed(data)
        else:
            self._server_log.write_stderr(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 0:
            self._is_closed = True
            self._may_write.set()
        elif fd == 1:
            self.lines.end()
        else:
            self._server_log.end_stderr()

    def process_exited(self) -> None:
        self._exited.set()
        self._may_write.set()
        # One that it started may hold the other end of the pipe open: the conversation is over nevertheless.
        self._loop.call_later(LAST_OUTPUT, self.lines.end)

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    @property
    def code(self) -> int | None:
        return None if self._transport is None else self._transport.get_returncode()

    async def wait_exited(self, seconds: float) -> None:
        """Wait until the process has ended, at most so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._exited.wait()

    def why_ended(self) -> str:
        if self.lines.too_long:
            return f"it sent a line of more than {MAX_LINE // 1024**2} MB"
        code = self.code
        if code is None:
            return "it closed its standard output"
        return f"it was ended by {_named(-code)}" if code < 0 else f"it ended with exit code {code}"

    async def write(self, data: bytes) -> None:
        while not self._may_write.is_set():  # before writing: a call that is given up leaves nothing in the buffer
            await self._may_write.wait()
        pipe = self._pipe(0)
        if pipe is None or pipe.is_closing() or self._exited.is_set():
            from anyio import BrokenResourceError

            raise BrokenResourceError
        pipe.write(data)

    async def end(self) -> None:
        """Close standard input and wait; then SIGTERM; then SIGKILL to the process group."""
        from anyio import CancelScope

        if self._is_closed and not self._exited.is_set():
            await self.wait_exited(LAST_OUTPUT)
        if self._exited.is_set():
            self.lines.broke_off = True  # it ended by itself; that may not have been noticed yet
        try:
            if (pipe := self._pipe(0)) is not None:
                pipe.close()
            with CancelScope(shield=True):  # whoever is in a hurry: it must not stay behind
                for signal_ in (None, signal.SIGTERM):
                    if signal_ is not None and not self._exited.is_set():
                        self._kill(signal_)
                    await self.wait_exited(GRACE_SECONDS)
                self._kill(KILL)
                await self.wait_exited(GRACE_SECONDS)  # else it would be told as one that was left running
        finally:
            self._kill(KILL)
            self._server_log.end_stderr()
            if self._transport is not None:
                with suppress(PermissionError):
                    self._transport.close()
            self._reaper.forget(self.pid)

    def _kill(self, signal_: signal.Signals) -> None:
        """Send a signal to the process and its group, which it leads."""
        with suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self.pid, signal_)
            elif self._transport is not None:
                self._transport.send_signal(signal_)

    def _pause(self, pause: bool) -> None:
        pipe = None if self._transport is None else cast(Any, self._transport.get_pipe_transport(1))
        if pipe is not None:
            pipe.pause_reading() if pause else pipe.resume_reading()

    def _pipe(self, fd: int) -> asyncio.WriteTransport | None:
        return None if self._transport is None else cast(asyncio.WriteTransport, self._transport.get_pipe_transport(fd))


def _named(number: int) -> str:
    with suppress(ValueError):  # those between the two that have a name
        return signal.Signals(number).name
    return f"signal {number}"


class ProcessLines:
    """Standard output as lines, without tasks in between."""

    def __init__(self, pause: Callable[[bool], None]) -> None:
        self._pause = pause
        self._parts: list[bytes] = []  # of a line that has no end yet
        self._size = 0
        self._waiting: deque[bytes] = deque()
        self._bytes = 0  # of these
        self._taken = 0  # lines in all
        self._paused = False
        self._wanted: asyncio.Future[None] | None = None
        self._closed = False
        self.broke_off = False  # it has ended, and not because we wanted it
        self.too_long = False
        self.at_end: Callable[[], None] | None = None  # called once

    def feed(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._waiting.append(b"".join((*self._parts, line)) if self._parts else line)
            self._parts, self._size = [], 0
            self._bytes += len(self._waiting[-1])
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
        if self._size > MAX_LINE:
            self.too_long = True
            self._parts, self._size = [], 0
            self.end()
        is_much = len(self._waiting) > MAX_WAITING or self._bytes > MAX_LINE
        if is_much and not self._paused:
            self._paused = True
            self._pause(True)
        self._wake()

    def end(self) -> None:
        """Note that there is no more to come."""
        if not self.broke_off and not self._closed:
            self.broke_off = True
            if self.at_end is not None:
                self.at_end()
        self._wake()

    def close(self) -> None:
        """Discard further output."""
        self._closed = True
        self._wake()

    async def next(self) -> bytes | None:
        """Return the next line; None when there are no more."""
        while not self._waiting:
            if self.broke_off or self._closed:
                return None
            self._wanted = asyncio.get_running_loop().create_future()
            try:
                await self._wanted
            finally:
                self._wanted = None
        self._taken += 1
        if self._taken % TURN == 0:  # a flood leaves other servers their turn
            await asyncio.sleep(0)
        line = self._waiting.popleft()
        self._bytes -= len(line)
        if self._paused and len(self._waiting) < MAX_WAITING // 2 and self._bytes < MAX_LINE // 2:
            self._paused = False
            self._pause(False)
        return line

    def _wake(self) -> None:
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)
