"""The response to one HTTP request, as one JSON body or a stream of events.

`DisconnectWatch` cancels the task that prepares the response if the client disconnects.
"""

import asyncio
from collections import deque
from typing import Any, Self

from onetool.http.asgi import Headers, Receive, Send, encode, respond

Message = dict[str, Any]

KEEP_ALIVE_S = 15.0  # seconds of silence after which proxies may close a connection
UNREAD_S = 30.0  # seconds without progress after which a client gets nothing more
MAX_UNSENT = 1024 * 1024  # bytes for a client that does not read; droppable events are left out first

EVENT_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]

STILL_HERE = b": still here\n\n"
CHECK_AFTER_S = 0.1  # seconds after which checking for a disconnect is worthwhile


async def send_json(send: Send, status: int, message: Any, headers: Headers = ()) -> None:
    """Send a whole response; None is an empty one."""
    if message is None:
        own = (b"content-length", b"0")
        await send({"type": "http.response.start", "status": status, "headers": [own, *headers]})
        await send({"type": "http.response.body", "body": b""})
    else:
        await respond(send, status, encode(message), headers=headers)


class ResponseStream:
    """A response. `push` turns it into a stream; `finish` sends the reply, as JSON or as the last event."""

    def __init__(self, send: Send, opening: bytes = b"") -> None:
        """Set the `send` function. `opening` is the first event, if the response becomes a stream."""
        self._send = send
        self._opening = opening
        self._unsent: deque[bytes] = deque()
        self._size = 0
        self._ended = False
        self.dropped = 0  # events left out because the client was too slow
        self.is_unread = False  # the client has read nothing for UNREAD_S, and gets no more
        self.is_complete = False  # nothing follows: from now on, a disconnect is the normal end
        self._more = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None

    @property
    def is_stream(self) -> bool:
        return self._sender is not None

    def begin_when_idle(self) -> None:
        """Become a stream if there is no reply within KEEP_ALIVE_S seconds: a proxy may time out."""
        if not self._ended and self._sender is None:
            self._idle_timer = asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self.begin)

    def begin(self) -> None:
        if self._sender is None and not self._ended:
            self._cancel_timer()
            self._sender = asyncio.get_running_loop().create_task(self._send_events())

    def push(self, message: Message) -> None:
        self.push_event(b"data: " + encode(message) + b"\n\n", droppable="id" not in message)

    def push_event(self, event: bytes, droppable: bool = False) -> None:
        if self._ended or (droppable and self._size >= MAX_UNSENT):
            self.dropped += 1
            return
        self.begin()
        self._unsent.append(event)
        self._size += len(event)
        self._more.set()

    async def finish(self, reply: Any, status: int = 200) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._sender is None:
            self._ended = True
            await respond(self._send, status, encode(reply))
            return
        self.push(reply)
        await self.end()

    async def end(self) -> None:
        """Send the remaining events, and end the stream."""
        self._cancel_timer()
        self._ended = True
        self._more.set()
        if self._sender is not None:
            await self._sender

    def drop(self) -> None:
        """Send nothing more: the client has disconnected, or an exception has ended the response."""
        self._cancel_timer()
        self._ended = True
        if self._sender is not None:
            self._sender.cancel()

    def _cancel_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    async def _send_events(self) -> None:
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": EVENT_HEADERS})
            if self._opening:
                await self._write(self._opening)
            while True:
                while self._unsent:
                    event = self._unsent.popleft()
                    self._size -= len(event)
                    await self._write(event)
                if self._ended:
                    break
                self._more.clear()
                try:
                    async with asyncio.timeout(KEEP_ALIVE_S):
                        await self._more.wait()
                except TimeoutError:
                    await self._write(STILL_HERE)
            self.is_complete = True
            await self._send({"type": "http.response.body", "body": b""})
        except TimeoutError:  # from `_write`
            self.is_unread = self._ended = True
            self._unsent.clear()
            self._size = 0

    async def _write(self, event: bytes) -> None:
        async with asyncio.timeout(UNREAD_S):
            await self._send({"type": "http.response.body", "body": event, "more_body": True})


async def wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class DisconnectWatch:
    """A watcher that cancels the current task if the client disconnects after its body has been read.

    with DisconnectWatch(receive):
        return ...        # cancelled if the client disconnects
    return None           # which ends the block without an exception
    """

    __slots__ = ("_before", "_is_disconnected", "_loop", "_receive", "_response", "_timer", "_watcher", "_worker")

    def __init__(self, receive: Receive, response: ResponseStream | None = None) -> None:
        """Watch `receive`. The response becomes a stream when idle, and is dropped if an exception ends the block."""
        self._is_disconnected = False
        self._response = response
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._worker = asyncio.current_task()
        self._before = 0 if self._worker is None else self._worker.cancelling()
        self._watcher: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(CHECK_AFTER_S, self._begin)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if kind is not None and self._response is not None:
            self._response.drop()
        if not self._is_disconnected or self._worker is None:
            return False
        is_ours = self._worker.uncancel() <= self._before  # otherwise somebody else has cancelled the task, too
        return is_ours and kind is not None and issubclass(kind, asyncio.CancelledError)

    def _begin(self) -> None:
        if self._response is not None:
            self._response.begin_when_idle()
        self._watcher = self._loop.create_task(self._watch())

    async def _watch(self) -> None:
        await wait_for_disconnect(self._receive)
        if self._response is not None and self._response.is_complete:
            return
        self._is_disconnected = True
        if self._worker is not None:
            self._worker.cancel()
