"""`ServerProcess`, a server in a child process: started without a shell, read by lines, ended as a process group.

    process = await spawned(settings, log, reaper)
    await process.write(b"…"); line = await process.lines.next()
    await process.end()

Importing the MCP SDK takes a second, as does starting most servers. This module does not import the SDK, so that both
happen concurrently.
"""

import asyncio
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, cast

from onetool.core.errors import ToolFailure
from onetool.services.child_reaper import ChildReaper
from onetool.sources.mcp_servers.environment import environment, masked_values
from onetool.sources.mcp_servers.program import find_program, program_at, why_changed
from onetool.sources.mcp_servers.server_log import ServerLog
from onetool.sources.mcp_servers.settings import PlacedServer, ServerSettings

MAX_LINE = 32 * 1024 * 1024  # bytes of one message
MAX_WAITING = 256  # unread lines (and MAX_LINE bytes in all), after which reading pauses
TURN = 64  # lines read before other tasks have their turn
GRACE_SECONDS = 1.0  # seconds to exit by itself, and again after SIGTERM
LAST_OUTPUT = 0.5  # seconds for the rest of the output after the process has ended

KILL = signal.SIGKILL


def required_program(settings: ServerSettings, env: Mapping[str, str]) -> str:
    """Return the path of the server's program. Raises ToolFailure if it is not there."""
    configured = str(settings.command)
    command = find_program(configured, env.get("PATH"), str(settings.cwd or os.getcwd()))
    if command is None:
        advice = "install it, or use its full path"
        if " " in configured.strip():
            advice = "command is the program only: put its arguments into args"
        raise ToolFailure(f"command not found: {configured} ({advice})")
    return command


async def spawned(settings: ServerSettings, server_log: ServerLog, reaper: ChildReaper) -> "ServerProcess":
    env = environment(settings)
    server_log.masked = masked_values(settings)
    command = required_program(settings, env)
    if isinstance(settings, PlacedServer) and settings.project:
        why = why_changed(settings.trusted, program_at(command, settings.project))
        if why is not None:  # changed since the config was read
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
            start_new_session=True,  # Ctrl-C doesn't reach the server, and its child processes can be killed
        )
    except (OSError, ValueError) as error:
        raise ToolFailure(f"it can't be started: {command}: {getattr(error, 'strerror', None) or error}") from None
    reaper.add(child.pid)
    server_log.note(f"started as process {child.pid}: {settings.target}")
    return child


class ServerProcess(asyncio.SubprocessProtocol):
    """A server process, with the callbacks of asyncio's subprocess protocol."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server_log: ServerLog, reaper: ChildReaper) -> None:
        self._loop = loop
        self._server_log = server_log
        self._reaper = reaper
        self._transport: asyncio.SubprocessTransport | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._exited = asyncio.Event()
        self._is_closed = False  # standard input is closed, or the process is being ended
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
        # A child of the process may keep the pipe open, but the connection has ended.
        self._loop.call_later(LAST_OUTPUT, self.lines.end)

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    @property
    def code(self) -> int | None:
        return None if self._transport is None else self._transport.get_returncode()

    async def wait_exited(self, seconds: float) -> None:
        """Wait at most `seconds` for the process to end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._exited.wait()

    def why_ended(self) -> str:
        if self.lines.too_long:
            return f"it sent a line of more than {MAX_LINE // 1024**2} MB"
        code = self.code
        if code is None:
            return "it closed its standard output"
        return f"it was ended by {_signal_name(-code)}" if code < 0 else f"it ended with exit code {code}"

    async def write(self, data: bytes) -> None:
        while not self._may_write.is_set():  # before writing: a cancelled call leaves nothing in the buffer
            await self._may_write.wait()
        pipe = self._pipe(0)
        if pipe is None or pipe.is_closing() or self._exited.is_set():
            from anyio import BrokenResourceError

            raise BrokenResourceError
        pipe.write(data)

    async def end(self) -> None:
        """Close standard input and wait, then send SIGTERM, then SIGKILL to the process group."""
        from anyio import CancelScope

        if self._is_closed and not self._exited.is_set():
            await self.wait_exited(LAST_OUTPUT)
        if self._exited.is_set():
            self.lines.broke_off = True  # the process had already ended by itself
        try:
            if (pipe := self._pipe(0)) is not None:
                pipe.close()
            with CancelScope(shield=True):  # even if cancelled, the process must not be left running
                for signal_ in (None, signal.SIGTERM):
                    if signal_ is not None and not self._exited.is_set():
                        self._kill(signal_)
                    await self.wait_exited(GRACE_SECONDS)
                self._kill(KILL)
                await self.wait_exited(GRACE_SECONDS)  # otherwise it would be reported as left running
        finally:
            self._kill(KILL)
            self._server_log.end_stderr()
            if self._transport is not None:
                with suppress(PermissionError):
                    self._transport.close()
            self._reaper.forget(self.pid)

    def _kill(self, signal_: signal.Signals) -> None:
        """Send a signal to the process and its process group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal_)

    def _pause(self, pause: bool) -> None:
        if (pipe := self._pipe(1)) is not None:
            pipe.pause_reading() if pause else pipe.resume_reading()

    def _pipe(self, fd: int) -> Any:
        return None if self._transport is None else self._transport.get_pipe_transport(fd)


def _signal_name(number: int) -> str:
    with suppress(ValueError):  # real-time signals between SIGRTMIN and SIGRTMAX have no name
        return signal.Signals(number).name
    return f"signal {number}"


class ProcessLines:
    """The lines of standard output, without a task per process."""

    def __init__(self, pause: Callable[[bool], None]) -> None:
        self._pause = pause
        self._parts: list[bytes] = []  # of an incomplete line
        self._size = 0
        self._waiting: deque[bytes] = deque()
        self._bytes = 0  # of `_parts`
        self._taken = 0  # lines returned by `next`
        self._paused = False
        self._next_line: asyncio.Future[None] | None = None
        self._closed = False
        self.broke_off = False  # the process ended before we ended it
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
        """Mark the output as complete."""
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
        """Return the next line, or None after the last one."""
        while not self._waiting:
            if self.broke_off or self._closed:
                return None
            self._next_line = asyncio.get_running_loop().create_future()
            try:
                await self._next_line
            finally:
                self._next_line = None
        self._taken += 1
        if self._taken % TURN == 0:  # so that a flood of lines doesn't starve other servers
            await asyncio.sleep(0)
        line = self._waiting.popleft()
        self._bytes -= len(line)
        if self._paused and len(self._waiting) < MAX_WAITING // 2 and self._bytes < MAX_LINE // 2:
            self._paused = False
            self._pause(False)
        return line

    def _wake(self) -> None:
        if self._next_line is not None and not self._next_line.done():
            self._next_line.set_result(None)
