"""MCP over a pipe, with one message per line."""

import asyncio
import os
import signal
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from onetool.core.mcp_protocol import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    JsonRpcError,
    Message,
    decode_message,
    error_response,
    id_of,
)
from onetool.core.threads import Threads, run_later
from onetool.http.asgi import encode
from onetool.interfaces.mcp.client import RemoteClient
from onetool.interfaces.mcp.conversation import Conversation
from onetool.interfaces.mcp.notifications import follow, reload
from onetool.interfaces.mcp.service import Service

CHUNK = 256 * 1024
MAX_LINE = 16 * 1024 * 1024  # bytes of one line
MAX_UNSENT = 4 * 1024 * 1024  # unread bytes of output, beyond which no input is read
MAX_AT_ONCE = 1000  # requests in progress
TURNS = 3  # of the loop, in which a quick request is answered
LAST_SECONDS = 5.0  # for requests in progress when the client closes the pipe


async def serve(service: Service, source: int, writer: int, warm: Callable[[], None] | None = None) -> None:
    """Serve until the client closes the pipe or a signal stops the server. `warm` prepares the first call, in a thread.

    Requests read before the pipe was closed have LAST_SECONDS, then they are cancelled. After a signal nothing more is
    written, because clients that send signals have stopped reading.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    reloads: set[asyncio.Task[None]] = set()
    loop.add_signal_handler(signal.SIGHUP, lambda: _keep(reloads, loop.create_task(reload(service))))
    pipe = StdioConnection(service, writer, stop)
    reading = loop.create_task(pipe.read(source))
    follow(service)
    if warm is not None:
        run_later(0.2, warm)
    stopped = loop.create_task(stop.wait())
    await asyncio.wait({reading, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    await pipe.close(reading)


class StdioConnection:
    """The connection to one client."""

    def __init__(self, service: Service, writer: int, stop: asyncio.Event) -> None:
        self._writer = StdoutWriter(writer, stop)
        self._service = service
        self._conversation = Conversation(service, RemoteClient(), self._writer.send)
        self._tasks: set[asyncio.Task[None]] = set()

    async def read(self, source: int) -> None:
        async for line in _lines(source):
            if line is None:
                self._writer.send(
                    error_response(None, JsonRpcError(INVALID_REQUEST, f"a message of over {MAX_LINE} bytes"))
                )
            elif line.strip():
                for _ in range(TURNS):  # most requests are quick and end in this time
                    if len(self._tasks) >= MAX_AT_ONCE:
                        await asyncio.sleep(0)
                self._received(line)
            await self._writer.has_room()
        self._service.changes.closed.set()
        self._conversation.expect_no_answers()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_SECONDS)

    async def close(self, reading: "asyncio.Task[None]") -> None:
        reading.cancel()
        self._writer.refuse()
        self._conversation.close()
        with suppress(asyncio.CancelledError):
            await reading
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
        await self._writer.close()

    def _received(self, line: bytes) -> None:
        message, problem = decode_message(line)
        if problem is not None:
            self._writer.send(error_response(id_of(message), problem))
            return
        if len(self._tasks) >= MAX_AT_ONCE and "method" in message and "id" in message:
            message_text = f"too many requests: {MAX_AT_ONCE} are in progress; wait for some of them"
            self._writer.send(error_response(id_of(message), JsonRpcError(INTERNAL_ERROR, message_text)))
            return
        _keep(self._tasks, asyncio.get_running_loop().create_task(self._answer(message)))

    async def _answer(self, message: Message) -> None:
        reply = await self._conversation.respond(message, self._writer.send)
        if reply is not None:
            self._writer.send(reply)


class StdoutWriter:
    """A writer of messages to the pipe that doesn't block: it keeps the rest until there is room."""

    def __init__(self, fd: int, stop: asyncio.Event) -> None:
        self._fd = fd
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._unsent = bytearray()
        self._empty = asyncio.Event()
        self._empty.set()
        self._is_waiting = self._refuses = False
        os.set_blocking(fd, False)

    def send(self, message: object) -> None:
        if self._refuses or self._stop.is_set():
            return
        by_the_way = isinstance(message, dict) and "id" not in message
        if by_the_way and len(self._unsent) > MAX_UNSENT:
            return  # a client that doesn't read misses notifications
        self._unsent += encode(message) + b"\n"
        if not self._is_waiting:
            self._write()

    def refuse(self) -> None:
        """Drop further messages, such as responses to requests that are being cancelled."""
        self._refuses = True

    async def has_room(self) -> None:
        """Wait until the client has read enough of the output. No input is read meanwhile."""
        while len(self._unsent) > MAX_UNSENT and not self._stop.is_set():
            self._empty.clear()
            await self._empty.wait()

    async def close(self, seconds: float = 1.0) -> None:
        """Write the rest, for at most `seconds`; nothing after a signal."""
        if self._stop.is_set():
            self._unsent.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._unsent:
                    self._empty.clear()
                    await self._empty.wait()
        if self._is_waiting:
            self._loop.remove_writer(self._fd)
        with suppress(OSError):
            os.set_blocking(self._fd, True)

    def _write(self) -> None:
        if self._stop.is_set():
            self._unsent.clear()
        try:
            while self._unsent:
                del self._unsent[: os.write(self._fd, self._unsent[:CHUNK])]
        except BlockingIOError:
            if not self._is_waiting:
                self._is_waiting = True
                self._loop.add_writer(self._fd, self._write)
            return
        except OSError:  # the client has gone
            self._unsent.clear()
            self._stop.set()
        if self._is_waiting:
            self._is_waiting = False
            self._loop.remove_writer(self._fd)
        self._empty.set()


async def _lines(source: int) -> AsyncIterator[bytes | None]:
    """Yield the incoming lines; None for a line that is too long."""
    held, too_long = bytearray(), False
    async for chunk in _chunks(source):
        held += chunk
        if b"\n" in chunk:
            *lines, held = held.split(b"\n")
            for line in lines:
                yield None if too_long else bytes(line)
                too_long = False
        if len(held) > MAX_LINE:
            held.clear()
            too_long = True
    if held and not too_long:
        yield bytes(held)


async def _chunks(source: int) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    if not _add_reader(loop, source, ready):
        threads = Threads(most=1)  # ends with the process, even while waiting
        while chunk := await threads.run(lambda: os.read(source, CHUNK), {}):
            yield chunk
        return
    try:
        while True:
            try:
                chunk = os.read(source, CHUNK)
            except BlockingIOError:
                ready.clear()
                await ready.wait()
                continue
            except OSError:  # the client is gone
                return
            if not chunk:
                return
            yield chunk
            await asyncio.sleep(0)  # a client that sends continuously must not prevent responses
    finally:
        loop.remove_reader(source)
        os.set_blocking(source, True)  # it may be a terminal, which other programs use afterwards


def _add_reader(loop: asyncio.AbstractEventLoop, source: int, ready: asyncio.Event) -> bool:
    """Register the descriptor with the loop. Return False if the loop can't watch it, as with a file."""
    if stat.S_ISREG(os.fstat(source).st_mode):
        return False
    try:
        loop.add_reader(source, ready.set)
    except OSError:
        return False
    os.set_blocking(source, False)
    return True


def _keep(tasks: "set[asyncio.Task[None]]", task: "asyncio.Task[None]") -> None:
    tasks.add(task)
    task.add_done_callback(tasks.discard)
