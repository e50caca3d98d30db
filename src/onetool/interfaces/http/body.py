"""How much a request may carry, and which have to say what it is.

What is over is answered with 413 while it still arrives, and then cut off. A declared length is judged before anything
is read, and the server below sees to it that no more comes. Only a body in chunks, whose length nobody knows, is
counted.
"""

import asyncio
from collections.abc import Callable, Mapping

from onetool.interfaces.asgi import CLOSE, Message, Receive, Refused, Send, start
from onetool.interfaces.http.rules import TWICE

LINGER_S = 2.0  # for a client that reads nothing before it has sent everything …
LINGER_TIMES = 8  # … and how many times the limit it may send meanwhile
DISCONNECT: Message = {"type": "http.disconnect"}


def check_length(length: bytes | None, limit: int) -> None:
    if length is None:
        return
    if length is TWICE or not length.isdigit():
        raise Refused(400, "bad_request", "Content-Length must be one whole number.", [CLOSE])
    if len(length) > 18 or int(length) > limit:
        raise TooLarge(limit)


def is_json_wanted(method: str, head: Mapping[bytes, bytes]) -> bool:
    """Whether a request has to say that it is JSON: with a body, and a POST without one too.

    A page can send a POST to another origin unasked, but for those that say they are JSON. Other methods that change
    something it can't.
    """
    return method == "POST" or b"transfer-encoding" in head or int(head.get(b"content-length", b"0")) > 0


class TooLarge(Refused):
    """More than a request may carry."""

    def __init__(self, limit: int) -> None:
        most = f"{limit / 1024**2:g} MiB"
        message = f"A request may carry at most {most}; http.max_body_mb in the config of the server sets this."
        super().__init__(413, "too_large", message, [CLOSE])


class Counted:
    """`receive` and `send` for a route whose body comes in chunks.

    When it grows too large we answer in the route's place. To the route it looks as if the client had left, which it
    has to cope with anyway; an exception it might catch.
    """

    def __init__(self, receive: Receive, send: Send, limit: int, told: Callable[[Refused], bytes], kind: bytes) -> None:
        """`told` and `kind`: a refusal, as clients of this route read it."""
        self._told = told
        self._kind = kind
        self._receive = receive
        self._send = send
        self._limit = limit
        self._size = 0
        self._started = False
        self._over = False

    async def receive(self) -> Message:
        if self._over:
            return DISCONNECT
        message = await self._receive()
        self._size += len(message.get("body", b""))
        if self._size <= self._limit:
            return message
        self._over = True
        if not self._started:
            refused = TooLarge(self._limit)
            await refuse_body(refused, self._limit, self._receive, self._send, self._told(refused), self._kind)
        return DISCONNECT

    async def send(self, message: Message) -> None:
        if not self._over:
            self._started = True
            await self._send(message)


async def refuse_body(refused: Refused, limit: int, receive: Receive, send: Send, body: bytes, kind: bytes) -> None:
    """Answer at once, then take in the rest for a moment before the connection ends.

    Closing with bytes unread would reset the connection, and most clients send all they have before they read: they
    would never see the answer.
    """
    await send(start(refused.status, body, kind, refused.headers))
    await send({"type": "http.response.body", "body": body, "more_body": True})
    left = limit * LINGER_TIMES
    try:
        async with asyncio.timeout(LINGER_S):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body"):
                    break
    except TimeoutError:
        pass
    await send({"type": "http.response.body", "body": b""})
