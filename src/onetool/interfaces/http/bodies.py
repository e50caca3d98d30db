"""Request bodies: how large one may be, how many bytes of them wait in memory, and whose large body is next.

    body                  http.max_body_mb; /login: 4 KiB       413, while it still arrives
    waiting in memory     64 MiB in all, 16 MiB of a caller,    503 with Retry-After
                          1 MiB of an address without any
    above 1 MiB           one of a caller at a time             the others wait

Bytes count from when they are read until their request has been answered. What a client announces and doesn't send
costs nothing, so it isn't counted.
"""

import asyncio
from asyncio import Lock
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from weakref import WeakValueDictionary

from onetool.core.principal import Principal
from onetool.http.asgi import (
    BODY_DECODED,
    CLOSE,
    HttpError,
    Message,
    Receive,
    Scope,
    Send,
    client_network,
    response_start,
)
from onetool.interfaces.http.rules import DUPLICATE

MIB = 1024**2
MAX_PER_CALLER = 16 * MIB
MAX_PER_ADDRESS = MIB  # for requests whose caller is not known
FULL_SHARES = 4  # all callers together have four times the share of one
LARGE_BYTES = MIB
UNREAD_BYTES = 320 * 1024  # bytes that a connection holds at most while its body waits: uvicorn's buffer and one read
TURN_TIMEOUT_S = 30.0  # a large body waits that long for its turn; a client has a minute to send it
RETRY_AFTER_S = 5
LINGER_S = 2.0  # for a client that reads nothing before it has sent everything …
LINGER_BYTES = 32 * MIB  # … and what it may send meanwhile
DISCONNECT: Message = {"type": "http.disconnect"}


class RequestBodyError(HttpError):
    """A body that is not read any further."""


class BodyTooLargeError(RequestBodyError):
    """A body that is larger than its route allows."""

    def __init__(self, limit: int) -> None:
        if limit < MIB:
            message = f"A request to this address may carry at most {limit / 1024:g} KiB."
        else:
            setting = "http.max_body_mb in the config of the server sets this"
            message = f"A request may carry at most {limit / MIB:g} MiB; {setting}."
        super().__init__(413, "too_large", message, [CLOSE])


class BodiesFullError(RequestBodyError):
    """A body that memory has no room for."""

    def __init__(self) -> None:
        message = (
            f"Too many request bodies are being read here; try again in {RETRY_AFTER_S} s, with fewer at the same time."
        )
        super().__init__(503, "too_many_bodies", message, [CLOSE, (b"retry-after", b"%d" % RETRY_AFTER_S)])


def check_length(length: bytes | None, limit: int) -> None:
    """Raise HttpError if an announced length can't be read, or is too large."""
    if length is None:
        return
    if length is DUPLICATE or not length.isdigit():
        raise HttpError(400, "bad_request", "Content-Length must be one whole number.", [CLOSE])
    if len(length) > 18 or int(length) > limit:
        raise BodyTooLargeError(limit)


class BodyMemory:
    """The bytes of bodies that a server holds, by caller. It belongs to one event loop."""

    def __init__(self) -> None:
        self.total = 0
        self._held: Counter[str] = Counter()
        self._turns: WeakValueDictionary[str, Lock] = WeakValueDictionary()

    def take(self, caller: str, size: int, limit: int) -> bool:
        """Count `size` more bytes. Return False if the caller would have more than `limit`, or more than is left for
        others: there is always room for one more caller.
        """
        left = FULL_SHARES * max(limit, MAX_PER_CALLER) - self.total - size
        if self._held[caller] + size > min(limit, left):
            return False
        self._held[caller] += size
        self.total += size
        return True

    def give_back(self, caller: str, size: int) -> None:
        self.total -= size
        self._held[caller] -= size
        if not self._held[caller]:
            del self._held[caller]

    def turn(self, caller: str) -> Lock:
        """Return the lock that the caller's large bodies share."""
        return self._turns.setdefault(caller, Lock())


def address_key(scope: Scope) -> str:
    """Return the key that bodies of unknown callers are counted by: the client's address."""
    return f"address {client_network(scope)}"


class RequestBody:
    """The body of one request. Its `receive` gives the route the whole body at once.

    If the body is refused, this class answers, and the route sees a disconnect, which it has to handle anyway; the
    route might catch an exception. `close` gives back the memory that the body has taken.
    """

    def __init__(
        self,
        memory: BodyMemory,
        scope: Scope,
        head: Mapping[bytes, bytes],
        limit: int,
        receive: Receive,
        send: Send,
        refuse: Callable[[RequestBodyError], Awaitable[None]],
    ) -> None:
        """`refuse` answers the request."""
        self._memory = memory
        self._scope = scope
        self._caller, self._share = "", MAX_PER_ADDRESS
        self._limit = limit
        self._length = head.get(b"content-length", b"0")
        self._receive = receive
        self._send = send
        self._refuse = refuse
        self._size = 0
        self._turn: Lock | None = None
        self._is_read = self._is_refused = self._is_answered = False
        scope[BODY_DECODED] = self.end_turn

    def count_for(self, principal: Principal) -> None:
        """Count the body for this caller, and not for the client's address."""
        self._caller, self._share = f"caller {principal.owner}", max(MAX_PER_CALLER, self._limit)

    async def receive(self) -> Message:
        if self._is_refused:
            return DISCONNECT
        if self._is_read:  # the route has decoded the body, and wants to know whether its client is still there
            self.end_turn()
            return await self._receive()
        self._is_read = True
        found = await self._read()
        if not isinstance(found, RequestBodyError):
            return found
        self.close()
        self._is_refused = True
        self._scope["log"]["error"] = found.code
        if not self._is_answered:
            await self._refuse(found)
        return DISCONNECT

    async def send(self, message: Message) -> None:
        self.end_turn()
        if not self._is_refused:
            self._is_answered = True
            await self._send(message)

    def end_turn(self) -> None:
        """Let the next large body of this caller be read."""
        if self._turn is not None:
            self._turn.release()
            self._turn = None

    def close(self) -> None:
        """Give back what the body has taken."""
        self.end_turn()
        self._scope.pop(BODY_DECODED, None)  # which holds the scope, and all that the request has made
        if self._size:
            self._memory.give_back(self._caller, self._size)
            self._size = 0

    async def _read(self) -> Message | RequestBodyError:
        """Return the whole body, or a disconnect. The error is returned: raised, it would keep the body in memory."""
        is_unknown = not self._caller
        self._caller = self._caller or address_key(self._scope)
        if int(self._length) > LARGE_BYTES and not await self._take_turn():
            return BodiesFullError()
        body = bytearray()
        while True:
            message = await self._receive()
            piece = message.get("body", b"")
            size = self._size + len(piece)
            if size > self._limit:
                return BodyTooLargeError(self._limit)
            # At one address there are many clients: each leaves room for one more.
            share = self._share - size if is_unknown else self._share
            if piece and not self._memory.take(self._caller, len(piece), share):
                return BodiesFullError()
            self._size = size
            is_last = not message.get("more_body")
            if is_last and (not body or message["type"] != "http.request"):
                return message
            body += piece
            if is_last:
                return {"type": "http.request", "body": bytes(body), "more_body": False}
            if self._size > LARGE_BYTES and self._turn is None and not await self._take_turn():
                return BodiesFullError()

    async def _take_turn(self) -> bool:
        """Wait until no other large body of this caller is read. False if it takes too long, or too many wait."""
        turn = self._memory.turn(self._caller)
        unread = UNREAD_BYTES if turn.locked() else 0
        if unread and not self._memory.take(self._caller, unread, self._share // 2):  # the other half is for its turn
            return False
        try:
            async with asyncio.timeout(TURN_TIMEOUT_S):
                await turn.acquire()
        except TimeoutError:
            return False
        finally:
            self._memory.give_back(self._caller, unread)
        self._turn = turn
        return True


async def refuse_body(error: HttpError, receive: Receive, send: Send, body: bytes, kind: bytes) -> None:
    """Send the error at once, then read and discard the rest of the body for a moment before closing.

    Closing with bytes unread would reset the connection, and most clients send all they have before they read: they
    would never see the answer.
    """
    await send(response_start(error.status, body, kind, error.headers))
    await send({"type": "http.response.body", "body": body, "more_body": True})
    left = LINGER_BYTES
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
