"""One request and its response, with the limits for bodies. A `Route` says what a path accepts.

    body                  http.max_body_mb; /login: 4 KiB       413, while it still arrives
    waiting in memory     64 MiB in all, 16 MiB per caller,     503 with Retry-After
                          1 MiB per address without a caller
    above 1 MiB           one per caller at a time              other bodies wait

Bytes count from when they are read until their request is answered. Bytes that are announced but not sent cost nothing
and don't count. On our own server, where the number of connections is limited, bodies of known callers don't count
either if they have at most 4 KiB and arrive in one piece, as most do.
"""

import asyncio
from asyncio import Lock
from collections.abc import Callable, Collection
from sys import maxsize
from typing import NamedTuple
from weakref import WeakValueDictionary

from onetool.core.limits import MIB
from onetool.core.principal import Principal
from onetool.http.asgi import (
    ANSWERED_HEADER,
    BODY_DECODED,
    CLOSE,
    CLUSTER_PATH,
    DUPLICATE,
    HEAD,
    IS_WHOLE,
    JSON,
    REPLICA,
    SEND_WHOLE,
    Asgi,
    HttpError,
    Message,
    Receive,
    Scope,
    Send,
    client_network,
    respond,
)

MAX_PER_CALLER = 16 * MIB
MAX_PER_ADDRESS = MIB  # for requests of unknown callers
FULL_SHARES = 4  # all callers together have four times the share of one caller
SMALL_BYTES = 4 * 1024
LARGE_BYTES = MIB
UNREAD_BYTES = 320 * 1024  # bytes that a connection holds while its body waits, at most: uvicorn's buffer and one read
TURN_TIMEOUT_S = 30.0  # a large body waits this long for its turn; clients have a minute to send it
RETRY_AFTER_S = 5
LINGER_S = 2.0  # for a client that sends everything before it reads …
LINGER_BYTES = 32 * MIB  # … and the bytes that it may still send
SendWhole = Callable[[int, list[tuple[bytes, bytes]], bytes], bool]
DISCONNECT: Message = {"type": "http.disconnect"}


class Route(NamedTuple):
    """A path with its app; with `below`, including all paths below it."""

    path: str
    app: Asgi
    protected: bool = True
    methods: tuple[str, ...] = ()  # empty: the app handles all methods
    below: bool = False
    write_error: Callable[[HttpError], bytes] = HttpError.body  # encodes errors in the format of this route …
    error_type: bytes = JSON  # … with this media type
    is_page: bool = False  # links on any page may lead here
    takes_bare_post: bool = False  # see `check_media_type`
    check: Callable[[Scope], Collection[bytes]] | None = None  # raises if the path or the method doesn't exist;
    # otherwise returns the media types accepted in addition to JSON
    is_public: bool = False  # with JWTs, pages of all origins may read it: it says where to get a JWT
    takes_any_host: bool = False  # balancers send no name or an address as Host; the response has only a status
    body_factor: int = 1  # multiple of http.max_body_mb: some bodies have files
    max_body: int | None = None  # bytes, regardless of http.max_body_mb

    @property
    def is_internal(self) -> bool:
        """Whether the route is only for other replicas."""
        return self.path == CLUSTER_PATH or self.path.startswith(f"{CLUSTER_PATH}/")


class RequestBodyError(HttpError):
    """Raised when a body is refused."""


class BodyTooLargeError(RequestBodyError):
    """Raised when a body is larger than its route allows."""

    def __init__(self, limit: int) -> None:
        if limit < MIB:
            message = f"The body of a request to this address may have at most {limit / 1024:g} KiB."
        else:
            setting = "http.max_body_mb in the config of the server sets this"
            message = f"The body of a request may have at most {limit / MIB:g} MiB; {setting}."
        super().__init__(413, "too_large", message, [CLOSE])


class BodiesFullError(RequestBodyError):
    """Raised when the memory for bodies is full."""

    def __init__(self) -> None:
        message = (
            f"Too many request bodies are being read; try again in {RETRY_AFTER_S} s, with fewer at the same time."
        )
        super().__init__(503, "too_many_bodies", message, [CLOSE, (b"retry-after", b"%d" % RETRY_AFTER_S)])


class BodyMemory:
    """The bytes of bodies that a server holds, by caller. Belongs to one event loop."""

    def __init__(self) -> None:
        self.total = 0
        self._held: dict[str, int] = {}
        self._turns: WeakValueDictionary[str, Lock] = WeakValueDictionary()

    def take(self, caller: str, size: int, limit: int) -> bool:
        """Count `size` more bytes. Return False if the caller would have more than `limit`, or if no share would be
        left for another caller.
        """
        left = FULL_SHARES * max(limit, MAX_PER_CALLER) - self.total - size
        held = self._held.get(caller, 0) + size
        if held > min(limit, left):
            return False
        self._held[caller] = held
        self.total += size
        return True

    def give_back(self, caller: str, size: int) -> None:
        self.total -= size
        held = self._held.pop(caller, 0) - size
        if held:
            self._held[caller] = held

    def turn(self, caller: str) -> Lock:
        """Return the lock shared by the caller's large bodies."""
        return self._turns.setdefault(caller, Lock())


def address_key(scope: Scope) -> str:
    """Return the key for bodies of unknown callers: the client's address."""
    return f"address {client_network(scope)}"


class Exchange:
    """A request and its response. `receive` returns the whole body at once, `send` takes the route's response.

    If the body is refused, this class responds, and the route sees a disconnect, which it has to handle anyway; the
    route might catch an exception. Its further output is dropped. `close` frees the memory of the body. `add` has
    headers for the response; `prove` makes a header from the status, without which another replica rejects the
    response. `status` and `bytes` describe the response sent.
    """

    def __init__(
        self, memory: BodyMemory, route: Route, limit: int, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._memory, self._limit = memory, limit
        self._scope, self._receive, self._send = scope, receive, send
        self._send_whole: SendWhole | None = scope.pop(SEND_WHOLE, None)
        self._start: Message | None = None  # of a response, until its body is sent
        self._length = 0  # bytes, from Content-Length
        self._size = 0  # bytes counted in memory
        self._turn: Lock | None = None
        self._is_read = self._is_refused = False
        self.route = route
        self.caller, self.share = "", MAX_PER_ADDRESS
        self.add: tuple[tuple[bytes, bytes], ...] = ()
        self.prove: Callable[[int], bytes] | None = None
        self.status = self.bytes = 0

    @property
    def is_work(self) -> bool:
        """Whether the request does work: False for reads and for streams of notifications."""
        return self._scope["method"] not in ("GET", "HEAD") and self._scope["log"].get("mcp") != "subscriptions/listen"

    def count_for(self, principal: Principal) -> None:
        """Count the body for this caller instead of the client's address."""
        self.caller, self.share = f"caller {principal.caller}", max(MAX_PER_CALLER, self._limit)

    def name_replica(self, principal: Principal, replica: str) -> None:
        """Tell admins which replica responds. A replica that forwards a request adds its own id."""
        if principal.role == "admin":
            self.add += ((REPLICA, replica.encode()),)

    def check_length(self) -> None:
        """Raise HttpError if Content-Length is invalid or too large."""
        length = self._scope[HEAD].get(b"content-length")
        if length is None:
            return
        if length is DUPLICATE or not length.isdigit():
            raise HttpError(400, "bad_request", "Content-Length must be one whole number.", [CLOSE])
        self._length = int(length) if len(length) <= 18 else maxsize
        if self._length > self._limit:
            raise BodyTooLargeError(self._limit)

    async def receive(self) -> Message:
        if self._is_refused:
            return DISCONNECT
        if self._is_read:  # the route has the body and waits for the disconnect
            if self._turn is not None:
                self.end_turn()
            return await self._receive()
        self._is_read = True
        if self._length > SMALL_BYTES or not self.caller or self._send_whole is None:
            return await self._receive_whole()
        first = await self._receive()
        if first.get("more_body") or len(first.get("body", b"")) > min(SMALL_BYTES, self._limit):
            return await self._receive_whole(first)
        return first

    async def _receive_whole(self, first: Message | None = None) -> Message:
        """Return the whole body within its limits, as one message. `first` is the part that was already received."""
        is_unknown = not self.caller
        self.caller = self.caller or address_key(self._scope)
        if self._length > LARGE_BYTES and not await self._take_turn():
            return await self._refuse_body(BodiesFullError())
        body = bytearray()
        while True:
            message, first = first or await self._receive(), None
            piece = message.get("body", b"")
            size = self._size + len(piece)
            if size > self._limit:
                return await self._refuse_body(BodyTooLargeError(self._limit), body)
            # Many clients may share an address: each leaves room for another one.
            share = self.share - size if is_unknown else self.share
            if piece and not self._memory.take(self.caller, len(piece), share):
                return await self._refuse_body(BodiesFullError(), body)
            self._size = size
            is_last = not message.get("more_body")
            if is_last and (not body or message["type"] != "http.request"):
                return message
            body += piece
            if is_last:
                return {"type": "http.request", "body": bytes(body), "more_body": False}
            if size > LARGE_BYTES and self._turn is None and not await self._take_turn():
                return await self._refuse_body(BodiesFullError(), body)

    async def send(self, message: Message) -> None:
        """Pass on a message of the response. Adds our headers to the message itself."""
        if self._turn is not None:
            self.end_turn()
        if self._is_refused:
            return
        if message["type"] == "http.response.start":
            if self.status:
                raise RuntimeError("a second response was started")
            self.status = message["status"]
            add = self.add if self.prove is None else (*self.add, (ANSWERED_HEADER, self.prove(self.status)))
            message["headers"] = [*message.get("headers", ()), *add]
            if message.pop(IS_WHOLE, False) and self._send_whole is not None:
                self._start = message  # the body follows at once
            else:
                await self._send(message)
            return
        self.bytes += len(message.get("body", b""))
        if (start := self._start) is not None and self._send_whole is not None:
            self._start = None
            if self._send_whole(self.status, start["headers"], message["body"]):
                return
            await self._send(start)
        await self._send(message)

    async def refuse(self, error: HttpError) -> None:
        """Respond with an error in the format of the route. Does nothing if a response has begun."""
        if self.status and self._start is None:
            return
        self._start, self.status = None, 0
        body, kind = self.route.write_error(error), self.route.error_type
        if not isinstance(error, RequestBodyError):
            await respond(self.send, error.status, body, kind, error.headers)
            return
        # Most clients send everything before they read. Closing with unread bytes would reset the connection, and they
        # would never see the response. So it is sent at once, and then the rest is read for a moment.
        await respond(self.send, error.status, body, kind, error.headers, is_last=False)
        left = LINGER_BYTES
        try:
            async with asyncio.timeout(LINGER_S):
                while left > 0:
                    message = await self._receive()
                    left -= len(message.get("body", b""))
                    if not message.get("more_body"):
                        break
        except TimeoutError:
            pass
        await self.send({"type": "http.response.body", "body": b""})

    def end_turn(self) -> None:
        """Release the lock of this caller's large bodies."""
        if self._turn is not None:
            self._scope.pop(BODY_DECODED, None)  # it refers to the scope and all data of the request
            self._turn.release()
            self._turn = None

    def close(self) -> None:
        """Free the memory of the body."""
        if self._turn is not None:
            self.end_turn()
        if self._size:
            self._memory.give_back(self.caller, self._size)
            self._size = 0

    async def _refuse_body(self, error: RequestBodyError, body: bytearray | None = None) -> Message:
        if body is not None:
            body.clear()  # the received part is no longer needed
        self.close()
        self._scope["log"]["error"] = error.code
        await self.refuse(error)
        self._is_refused = True
        return DISCONNECT

    async def _take_turn(self) -> bool:
        """Wait until no other large body of this caller is read. Return False after a timeout or if too many wait."""
        turn = self._memory.turn(self.caller)
        unread = UNREAD_BYTES if turn.locked() else 0
        if unread and not self._memory.take(self.caller, unread, self.share // 2):  # the other half: for its turn
            return False
        try:
            async with asyncio.timeout(TURN_TIMEOUT_S):
                await turn.acquire()
        except TimeoutError:
            return False
        finally:
            self._memory.give_back(self.caller, unread)
        self._turn = turn
        self._scope[BODY_DECODED] = self.end_turn
        return True
