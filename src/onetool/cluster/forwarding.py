"""`Forwarder`: forwards clients' requests to the responsible replica, and sends our own to routes below /cluster.

A request is read completely before it is forwarded: such requests are messages and decisions, not files. Its response
is streamed back. Only headers that our routes read are forwarded, and only headers that our routes send are returned;
the client's token stays here. `ForwardSeal` makes and checks two headers with the cluster's key:

    onetool-forwarded: base64url(HMAC-SHA256 | {sender, to, at, nonce, principal, address, body, id}), or compressed

This header names the caller, which the sender has checked. The HMAC covers the method, the path with its query, and
these members; `body` is the SHA-256 of the whole body. So no part of a request can be changed, and it is valid for one
replica, once, for a minute. Headers without a valid HMAC are refused.

    onetool-answered: HMAC-SHA256 over the header of the request, and the status of the response

This header proves that a holder of the key has answered this request with this status. Responses without it are not
passed on.
"""

import asyncio
import hmac
import logging
import sys
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from hashlib import sha256
from secrets import token_hex
from threading import Lock
from typing import NamedTuple

import msgspec

from onetool.cluster import OWN_ADDRESS, SAME_KEY, UNIX, Replica, derived_key
from onetool.cluster.members import Members
from onetool.core.context import current_call
from onetool.core.principal import LOCAL, Principal
from onetool.core.signed import sign, verify
from onetool.core.trace import current_trace
from onetool.http.asgi import (
    ANSWERED_HEADER,
    FORWARD_ID,
    FORWARDED,
    FORWARDED_HEADER,
    JSON,
    MAX_HEAD,
    REPLICA,
    REQUEST_ID,
    UNLOGGED,
    HttpError,
    Receive,
    Scope,
    Send,
    current_scope,
    read_body,
)
from onetool.http.connection import Connection, HttpResponse
from onetool.http.errors import StaleConnectionError, UnreachableError, WireError
from onetool.http.pool import ConnectionPool
from onetool.http.response_stream import DisconnectWatch

log = logging.getLogger("onetool.cluster")
CONNECT_S = 2.0
BROADCAST_S = 2.0
MAX_ANSWER_S = 7 * 24 * 3600.0  # streams are endless; missing heartbeats show that a replica is gone
MAX_ANSWER_BYTES = 1 << 62
ACQUIRE_S = 2.0  # for a connection, if all are in use
MAX_CONNECTIONS = 2000  # to one replica, per kind: streams must not block short requests
SHARES = {"stream": 64, "call": 500}  # connections of one owner, by kind; other requests are short
DATABASE_PATH = "/cluster/database"  # called every second, so not logged
MAX_REFUSAL = 2000  # characters of an error response
OTHER_REPLICA = 421
CAME_BACK = 508  # to its sender
VALID_S = 60.0  # in both directions: replicas' clocks are kept close to the database's by heartbeats
COMPRESS_BYTES = 4096  # longer headers are compressed: a token may name thousands of tools

_SENT = frozenset((b"content-type", b"accept", b"user-agent", b"last-event-id", b"if-match", b"if-none-match"))
# Headers that our routes send; they set no cookies.
_RETURNED = frozenset(
    (
        *("allow", "cache-control", "etag", "link", "location", "retry-after", "vary", "www-authenticate"),
        *("content-disposition", "content-length", "content-location", "content-type", "mcp-session-id"),
        *("ratelimit", "ratelimit-limit", "ratelimit-policy", "ratelimit-remaining", "ratelimit-reset"),
        *("x-accel-buffering", "x-content-type-options", REPLICA.decode()),
    )
)

GONE = "the replica responsible for this is gone; it is unknown whether it did anything"
SAME_ADDRESS = f"Another replica has the same address as this one: {OWN_ADDRESS}. The log names it."
NOT_PROVEN = (
    "The response of another replica was rejected: it does not prove that the sender has cluster.key. "
    "It is unknown whether the request had an effect there; the log of this replica names the address."
)
HEAD_TOO_LARGE = (
    f"This request is for another replica, but its headers and your permissions don't fit into {MAX_HEAD // 1024} KiB. "
    "Give your token patterns of tools instead of long lists (github.*), or send fewer headers."
)
RETRY = [(b"retry-after", b"1")]


class ForwardRequest(NamedTuple):
    """The bytes of a request, and its seal, for which the response must contain the proof."""

    data: bytes
    seal: bytes
    is_head: bool = False


class Forwarder:
    """A client for other replicas. Any event loop may use it; each loop has its own connections."""

    def __init__(self, members: Members, seal: "ForwardSeal") -> None:
        self._members = members
        self._seal = seal
        self._pools: dict[asyncio.AbstractEventLoop, ConnectionPool] = {}
        self._open: dict[Connection, tuple[asyncio.AbstractEventLoop, str]] = {}  # loop and replica of each connection
        self._shares: Counter[tuple[str, str, str]] = Counter()  # connections by replica, kind and owner
        self._lock = Lock()
        members.on_beat(self._end_gone)

    async def forward(self, replica: Replica, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the replica answer this request. If the client disconnects, the forwarded request is cancelled.

        Raise ReplicaGoneError, or HttpError for a request that was forwarded already.
        """
        if FORWARDED in scope:
            raise HttpError(502, "forward_loop", "The request was forwarded to a replica that does not have it.")
        body = await read_body(receive)
        if body is None:
            return
        method, target = scope["method"], target_of(scope)
        client = scope.get("client")
        principal, address = scope.get("principal", LOCAL), str(client[0]) if client else ""
        seal = self._seal.write(replica.id, method, target, principal, body, address).encode()
        headers = [(name, value) for name, value in scope["headers"] if name in _SENT or name.startswith(b"mcp-")]
        request = _request(method, target, replica, headers, seal, body)
        kind = "stream" if method == "GET" else "call"
        with DisconnectWatch(receive), self._share(replica, kind, principal.owner):
            async with self._exchange(replica, request, kind) as response:
                returned = [
                    (name.encode("latin-1"), value.encode("latin-1"))
                    for name, value in response.headers.items()
                    if name in _RETURNED
                ]
                await send({"type": "http.response.start", "status": response.status, "headers": returned})
                try:
                    if response.stream is not None:
                        async for piece in response.stream:
                            await send({"type": "http.response.body", "body": piece, "more_body": True})
                except WireError:
                    raise ReplicaGoneError(was_answering=True) from None
                await send({"type": "http.response.body", "body": b""})

    async def post(self, replica: Replica, path: str, body: bytes, principal: Principal) -> bytes:
        """POST to a route below /cluster as this principal, and return the body of the response.

        Raise ReplicaGoneError, or ReplicaRefusedError, including for a status other than 2xx.
        """
        seal = self._seal.write(replica.id, "POST", path.encode(), principal, body, "").encode()
        request = _request("POST", path.encode(), replica, [(b"content-type", JSON)], seal, body)
        with self._share(replica, "", principal.owner):
            async with self._exchange(replica, request, "") as response:
                assert response.stream is not None  # noqa: S101 - no HEAD
                if response.status // 100 != 2:
                    refusal = b""
                    with suppress(WireError):
                        refusal = await response.stream.read()
                    text = refusal.decode("utf-8", "replace")[:MAX_REFUSAL]
                    message = f"Another replica answered {response.status}: {text}"
                    raise ReplicaRefusedError(502, "replica_refused", message)
                try:
                    return await response.stream.read()
                except WireError:
                    raise ReplicaGoneError(was_answering=True) from None

    async def broadcast(self, path: str, body: bytes, principal: Principal) -> "list[ReplicaRefusedError]":
        """POST to all other replicas at once, for at most BROADCAST_S seconds. Log failures, and return refusals."""
        refusals: list[ReplicaRefusedError] = []

        async def notify(replica: Replica) -> None:
            try:
                async with asyncio.timeout(BROADCAST_S):
                    await self.post(replica, path, body, principal)
            except (HttpError, TimeoutError) as error:
                why = error or "it did not answer in time"
                log.warning("the notification of %s at %s failed: %s", replica.id, path, why)
                if isinstance(error, ReplicaRefusedError):
                    refusals.append(error)

        await asyncio.gather(*(notify(one) for one in self._members.alive() if one.id != self._members.id))
        return refusals

    # Connections

    @contextmanager
    def _share(self, replica: Replica, kind: str, owner: str) -> Generator[None]:
        """Count a connection. Raise ReplicaRefusedError (429) if this owner has too many."""
        key = (replica.id, kind, owner)
        with self._lock:
            if self._shares[key] >= (limit := SHARES.get(kind, sys.maxsize)):
                kinds = "streams" if kind == "stream" else "requests"
                message = f"You have {limit} open {kinds} to another replica: end some of them first."
                raise ReplicaRefusedError(429, "replica_busy", message, RETRY)
            self._shares[key] += 1
        try:
            yield
        finally:
            with self._lock:
                self._shares[key] -= 1
                if not self._shares[key]:
                    del self._shares[key]

    @asynccontextmanager
    async def _exchange(self, replica: Replica, request: ForwardRequest, kind: str) -> AsyncGenerator[HttpResponse]:
        """Send a request, and check the proof in its response before passing on any of it."""
        loop = asyncio.get_running_loop()
        if (pool := self._pools.get(loop)) is None:
            pool = self._pools[loop] = ConnectionPool(loop, MAX_CONNECTIONS)
            await pool.begin()
        connection, response = await self._ask(pool, replica, request, kind)
        try:
            proof = response.headers.get(ANSWERED_HEADER.decode(), "").encode("utf-8", "replace")
            if not hmac.compare_digest(self._seal.proof(request.seal, response.status), proof):
                problem = "the response of replica %s at %s (status %d) does not prove that it has our cluster.key: %s"
                log.error(problem, replica.id, replica.address, response.status, SAME_KEY)
                raise ReplicaRefusedError(502, "answer_not_proven", NOT_PROVEN)
            if response.status == OTHER_REPLICA:
                raise ReplicaGoneError
            if response.status == CAME_BACK:
                problem = "a request for replica %s at %s has come back to this replica: %s"
                log.error(problem, replica.id, replica.address, OWN_ADDRESS)
                raise ReplicaRefusedError(502, "same_address", SAME_ADDRESS)
            yield response
        finally:
            del self._open[connection]
            pool.release(connection)

    async def _ask(
        self, pool: ConnectionPool, replica: Replica, request: ForwardRequest, kind: str
    ) -> tuple[Connection, HttpResponse]:
        try:
            try:
                return await self._ask_once(pool, replica, request, kind)
            except StaleConnectionError:  # safe to retry, because the nonce prevents a second execution
                pool.drop_idle((replica.address, kind))
            return await self._ask_once(pool, replica, request, kind)
        except (WireError, OSError, TimeoutError):
            raise ReplicaGoneError from None

    async def _ask_once(
        self, pool: ConnectionPool, replica: Replica, request: ForwardRequest, kind: str
    ) -> tuple[Connection, HttpResponse]:
        loop = asyncio.get_running_loop()
        try:
            connection = await pool.acquire(
                (replica.address, kind), lambda: _dial(loop, replica.address, pool), ACQUIRE_S
            )
        except TimeoutError:
            message = "All connections to another replica are in use. Try again later."
            raise ReplicaRefusedError(503, "replica_busy", message, RETRY) from None
        self._open[connection] = loop, replica.id
        try:
            until = loop.time() + MAX_ANSWER_S
            response = await connection.exchange(
                request.data, request.is_head, MAX_ANSWER_BYTES, until, True, MAX_ANSWER_S
            )
            return connection, response
        except BaseException:
            del self._open[connection]
            pool.drop(connection)
            raise

    def _end_gone(self) -> None:
        """End requests to replicas that are gone. Called after each heartbeat, in its thread."""
        for connection, (loop, id) in list(self._open.items()):
            if not self._members.is_alive(id):
                with suppress(RuntimeError):  # the loop has just closed
                    loop.call_soon_threadsafe(connection.end, UnreachableError(GONE))


async def _dial(loop: asyncio.AbstractEventLoop, address: str, pool: ConnectionPool) -> Connection:
    factory = partial(Connection, loop, address, pool.drop)
    try:
        async with asyncio.timeout(CONNECT_S):
            if address.startswith(UNIX):
                _, connection = await loop.create_unix_connection(factory, address.removeprefix(UNIX))
            else:
                host, _, port = address.rpartition(":")
                _, connection = await loop.create_connection(factory, host.strip("[]"), int(port))
    except (TimeoutError, ValueError, OverflowError):  # no response, or the address is invalid
        raise UnreachableError(GONE) from None
    return connection


def _request(
    method: str, target: bytes, replica: Replica, headers: list[tuple[bytes, bytes]], seal: bytes, body: bytes
) -> ForwardRequest:
    """Return the bytes to send. Headers came over HTTP, so they contain no line breaks. Raises ReplicaRefusedError."""
    host = b"localhost" if replica.address.startswith(UNIX) else replica.address.encode()
    own = [(b"host", host), (FORWARDED_HEADER, seal), (b"content-length", b"%d" % len(body))]
    if (trace := current_trace.get()) is not None:
        own += [(REQUEST_ID, trace.request_id.encode()), (b"traceparent", trace.traceparent().encode())]
        own += [(b"tracestate", trace.state.encode())] if trace.state else []
    lines = [b"%b %b HTTP/1.1" % (method.encode(), target), *(b"%b: %b" % header for header in (*own, *headers))]
    head = b"\r\n".join(lines) + b"\r\n\r\n"
    if len(head) > MAX_HEAD:
        raise ReplicaRefusedError(431, "head_too_large", HEAD_TOO_LARGE)
    return ForwardRequest(head + body, seal, method == "HEAD")


# The two headers


class ForwardedBy(msgspec.Struct, frozen=True, kw_only=True):
    """The replica that sends a request, and its caller."""

    sender: str
    to: str
    at: float
    nonce: str
    principal: Principal
    address: str
    body: str
    id: str = ""  # for the audit logs of both replicas; older versions send none


class ForwardSeal:
    """The signer and verifier of both headers. Belongs to one event loop."""

    def __init__(self, key: bytes, members: Members, accepted: Sequence[bytes] = ()) -> None:
        """Sign with `key`. Headers signed with an `accepted` key are valid, too, and answered with the same key."""
        self._keys = [(derived_key(key, "forward"), derived_key(key, "answer")) for key in (key, *accepted)]
        self._members = members
        self._seen: dict[str, float] = {}  # nonces and their expiry, oldest first

    @property
    def replica(self) -> str:
        """The ID of this replica."""
        return self._members.id

    def write(self, to: str, method: str, target: bytes, principal: Principal, body: bytes, address: str) -> str:
        if (context := current_call.get()) is not None:
            id = context.call.id  # the ID in the audit log of the current call, or of the client's request
        else:
            scope, trace = current_scope.get(), current_trace.get()
            id = token_hex(16) if trace is None else trace.own_id
            if scope is not None:
                scope[FORWARD_ID] = id
        forwarded = ForwardedBy(
            sender=self._members.id,
            to=to,
            at=self._members.now(),
            nonce=token_hex(16),
            principal=principal,
            address=address,
            body=sha256(body).hexdigest(),
            id=id,
        )
        data = msgspec.json.encode(forwarded)
        return sign(
            self._keys[0][0], data if len(data) < COMPRESS_BYTES else zlib.compress(data), _bound(method, target)
        )

    def open(self, header: bytes, scope: Scope) -> tuple[bytes, bytes]:
        """Return the content of a header, and the key for the proof of the response. Raise HttpError (401) unless the
        header was made for this request with one of our keys.
        """
        text, bound = header.decode("latin-1"), _bound(scope["method"], target_of(scope))
        for key, answer_key in self._keys:
            if (data := verify(key, text, bound)) is not None:
                return data, answer_key
        raise _refused("it was not made by a replica of this cluster for this request")

    def read(self, data: bytes) -> ForwardedBy:
        """Decode the content of a header. Raise HttpError (401, 421) unless it is new, and for this replica."""
        try:
            forwarded = msgspec.json.decode(data if data.startswith(b"{") else zlib.decompress(data), type=ForwardedBy)
        except (msgspec.DecodeError, zlib.error):  # from a version with other fields
            raise _refused("it was made by an incompatible version of OneTool") from None
        if forwarded.to != self._members.id and forwarded.sender == self._members.id:
            raise HttpError(CAME_BACK, "came_back", "This request has come back to the replica that sent it.")
        if forwarded.to != self._members.id:
            # This status tells the sender that the replica is gone: its address is ours now.
            raise HttpError(OTHER_REPLICA, "other_replica", "This request is for another replica, which is gone.")
        now = self._members.now()
        if abs(now - forwarded.at) > VALID_S:
            raise _refused("it has expired, or the clocks of the replicas differ by more than a minute")
        while self._seen and (oldest := next(iter(self._seen.items())))[1] < now:
            del self._seen[oldest[0]]
        if forwarded.nonce in self._seen:
            raise _refused("it was used already, and is valid only once")
        self._seen[forwarded.nonce] = now + 2 * VALID_S
        return forwarded

    def accept(self, forwarded: ForwardedBy, body: bytes, scope: Scope) -> None:
        """Record in the scope which replica has sent the request.

        Raise HttpError (401) if the header was made for another body.
        """
        if not hmac.compare_digest(sha256(body).hexdigest(), forwarded.body):
            raise _refused("it was made for another body")
        scope[FORWARDED] = forwarded
        scope[FORWARD_ID] = forwarded.id or forwarded.nonce
        scope["log"]["from"] = forwarded.sender
        if scope["path"] == DATABASE_PATH:
            scope["log"][UNLOGGED] = True

    def proof(self, header: bytes, status: int, key: bytes | None = None) -> bytes:
        """Return the proof that a holder of the key has answered the request with this header and this status. `key`
        comes from `open`.
        """
        return hmac.new(key or self._keys[0][1], b"%d " % status + header, sha256).hexdigest().encode()


def target_of(scope: Scope) -> bytes:
    """Return the path with its query, as sent."""
    query = scope.get("query_string", b"")
    return scope["raw_path"] + (b"?" + query if query else b"")


def _bound(method: str, target: bytes) -> bytes:
    return method.encode() + b" " + target + b"\n"


def _refused(why: str) -> HttpError:
    return HttpError(401, "bad_forward", f"The header {FORWARDED_HEADER.decode()} can't be accepted: {why}.")


# Errors


class ReplicaGoneError(HttpError):
    """The replica can't be reached. `was_answering` means that part of its response was sent already."""

    def __init__(self, was_answering: bool = False) -> None:
        super().__init__(502, "replica_gone", f"{GONE[0].upper()}{GONE[1:]}.")
        self.was_answering = was_answering


class ReplicaRefusedError(HttpError):
    """The refusal of another replica, an answer without proof, or a limit that kept this one from asking."""
