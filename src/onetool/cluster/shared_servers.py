"""`SharedServers`: one process runs a stdio server, and the others send their calls to it.

The process that runs a server holds a lease. The name of the lease contains a digest of the server's config block, so
replicas with different blocks don't share the server. The database is only queried if no holder is known, or if the
holder is gone. Progress, messages and questions from the server arrive on the response stream. If the caller gives up,
the request is cancelled, and with it the call there.

Each heartbeat wakes a thread that maintains the servers, because loading new tools may take longer than a heartbeat.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from itertools import count
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from onetool.cluster import UNIX
from onetool.cluster.forwarding import STATES_PATH, ReplicaGoneError, ReplicaRefusedError
from onetool.cluster.leases import SERVERS, Leases, is_shared, lease_name, parts_of_lease
from onetool.cluster.shared_calls import (
    CAPABILITIES,
    QUESTIONS,
    FailureLine,
    LackLine,
    Line,
    LogLine,
    MovedLine,
    ProgressLine,
    QuestionLine,
    ResultLine,
    SharedCall,
    SharedCalls,
    SharedResult,
    answer_of,
    decode_line,
    failure_of,
)
from onetool.core.call import CannotAsk, current_caller
from onetool.core.context import current_call
from onetool.core.errors import ToolFailure
from onetool.core.principal import LOCAL, current_principal
from onetool.http.asgi import HttpError
from onetool.sdk.context import log_message, report_progress
from onetool.sources.mcp_servers.owners import ServerOwners, ServerRequest, SharedState
from onetool.sources.mcp_servers.settings import ServerSettings

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.cluster import Replica
    from onetool.cluster.cluster import Cluster
    from onetool.core.call import Caller

log = logging.getLogger("onetool.cluster")
SERVERS_PATH, ANSWERS_PATH = "/cluster/servers", "/cluster/answers"
SILENCE_TIMEOUT_S = 10.0  # without a line; owners send one at least every two seconds
FIND_S = 10.0  # for finding another owner, if the previous one is gone
HAND_OVER_S = 3.0  # for another process to run the servers released by a stopping one
LOOK_S = 0.2
KEPT_PEERS_S = 60.0
CLOSE_S = 2.0
OTHER_KEY = "{} runs in a replica with another cluster.key: give all replicas the same key; the log names that replica"
DIFFERS = "the MCP server %s is configured differently on the replica %s at %s: they do not share it"

MOVED = "%s runs in this process from now on, and no longer in %s; it starts again without its state in memory"


class NotRunThereError(Exception):
    """The process that was asked does not run the server. Nothing has happened."""


class SharedServers(ServerOwners):
    """The owners of servers that several processes share."""

    def __init__(self, cluster: "Cluster", app: "App") -> None:
        self._cluster = cluster
        self._app = app
        self._leases = Leases(
            cluster.settings.database,
            cluster.members,
            SERVERS,
            is_needed=lambda: any(map(is_shared, app.config.servers.values())),
        )
        self._states: dict[str, SharedState] = {}
        self._differing: set[tuple[str, str]] = set()  # servers with holders that have another block for them
        self._ran_in: dict[str, str] = {}  # the last known holders, by lease
        self._peers = PeerNumbers()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reading: asyncio.Task[None] | None = None
        self._is_due, self._is_closed = Event(), False
        self._thread = Thread(target=self._maintain, name="onetool-tend", daemon=True)
        cluster.routes[SERVERS_PATH] = cluster.routes[ANSWERS_PATH] = SharedCalls(self.runs_here, app)
        app.catalog.share_servers(self)
        cluster.members.on_beat(self._is_due.set)
        cluster.on_serving.append(self.start)
        cluster.on_close.append(self.close)

    def start(self) -> None:
        """Start the thread, on the serving event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def close(self) -> None:
        """Release the leases, so that other processes can run the servers that run here."""
        self._is_closed = True
        self._is_due.set()
        self._leases.close()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)
        if self._app.servers is not None:
            self._app.servers.end_shared()

    # Ownership of servers

    def runs_here(self, server: str, block: str) -> bool:
        """Return whether this process runs a server, after trying to take it over. Its config must have the same block.

        Older versions send no block.
        """
        lease = self._lease(server)
        if lease is None or block not in ("", parts_of_lease(lease)[1]):
            return False
        return self.is_own(server) or self.take(server)

    def is_shared(self, settings: ServerSettings) -> bool:
        return is_shared(settings)

    def is_own(self, server: str) -> bool:
        lease = self._lease(server)
        return lease is not None and self._leases.is_own(lease)

    def take(self, server: str) -> bool:
        """Take the lease of a server, unless this process is stopping and would run the server only briefly."""
        lease = self._lease(server)
        if lease is None or self._is_stopping():
            return False
        return self._leases.take(lease) == self._cluster.id

    def _is_stopping(self) -> bool:
        members = self._cluster.members
        is_draining = any(replica.id == members.id and replica.is_draining for replica in members.alive())
        return is_draining or self._is_closed or self._cluster.settings.all_stop()

    def release(self, servers: list[str]) -> None:
        self._leases.release([lease for server in servers if (lease := self._lease(server)) is not None])

    def holder(self, server: str) -> str | None:
        lease = self._lease(server)
        return None if lease is None else self._leases.holder(lease)

    def _lease(self, server: str) -> str | None:
        proxy = None if self._app.servers is None else self._app.servers.proxy(server)
        return lease_name(server, proxy.settings) if proxy is not None and is_shared(proxy.settings) else None

    def state(self, server: str) -> SharedState | None:
        lease = self._lease(server)
        return None if lease is None or self._leases.is_own(lease) else self._states.get(server)

    def _maintain(self) -> None:
        """Maintain the servers after each heartbeat, in a thread. Heartbeats in the meantime count as one."""
        while self._is_due.wait() and not self._is_closed:
            self._is_due.clear()
            if (servers := self._app.servers) is None or self._loop is None:
                continue
            try:
                servers.tend_shared()
                leases = {name: lease for name in servers.names() if (lease := self._lease(name)) is not None}
                self._log_moved(leases)
                self._compare_blocks(leases)
            except Exception as error:  # noqa: BLE001 - the next attempt may succeed
                log.error("the maintenance of shared MCP servers failed: %s: %s", type(error).__name__, error)
            with suppress(RuntimeError):  # the loop has just closed
                self._loop.call_soon_threadsafe(self._read_soon)

    def _log_moved(self, leases: dict[str, str]) -> None:
        """Log servers that another process ran before. A lease without a holder keeps the name of its last one."""
        holders = self._leases.holders()
        for server, lease in leases.items():
            before, now = self._ran_in.get(lease), holders.get(lease)
            if now == self._cluster.id and before not in (None, now):
                log.warning(MOVED, server, before)
        last = {lease: holders.get(lease) or self._ran_in.get(lease) for lease in leases.values()}
        self._ran_in = {lease: holder for lease, holder in last.items() if holder}

    def _compare_blocks(self, leases: dict[str, str]) -> None:
        """Release leases of blocks that the config no longer has, and log replicas with other blocks."""
        self._leases.release(self._leases.own() - set(leases.values()))
        members = self._cluster.members.alive()
        others = {replica.id: replica for replica in members if not replica.address.startswith(UNIX)}
        differing = {
            (server, holder)
            for lease, holder in self._leases.holders().items()
            if holder in others and leases.get(server := parts_of_lease(lease)[0], lease) != lease
        }
        for server, holder in sorted(differing - self._differing):
            log.warning(DIFFERS, server, holder, others[holder].address)
        self._differing = differing

    def _read_soon(self) -> None:
        """Read states, unless a read is pending: a late answer from a slow owner must not replace a newer one."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_states())

    async def _read_states(self) -> None:
        servers = self._app.servers
        names = [] if servers is None else servers.names()
        holders = {holder for name in names if (holder := self.holder(name)) and not self.is_own(name)}
        replicas = [replica for replica in self._cluster.members.alive() if replica.id in holders]
        answers = await asyncio.gather(*map(self._states_in, replicas))
        self._states = {
            name: state
            for replica, states in zip(replicas, answers, strict=True)
            for name, state in states.items()
            if self.holder(name) == replica.id  # the replica may have another server with this name
        }

    async def _states_in(self, replica: "Replica") -> dict[str, SharedState]:
        try:
            async with asyncio.timeout(SILENCE_TIMEOUT_S):
                body = await self._cluster.forwarder.post(replica, STATES_PATH, b"{}", LOCAL)
                return msgspec.json.decode(body, type=dict[str, SharedState])
        except (HttpError, TimeoutError, msgspec.MsgspecError):
            return {}

    # Requests

    async def do(
        self, server: str, request: ServerRequest, may_repeat: bool, here: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Make the request where the server runs. If the owner is gone, repeat a request that may be repeated."""
        began, may_again, refused = monotonic(), may_repeat, ""
        while True:
            owner = None
            try:
                owner = await self._owner(server, refused, monotonic() - began > HAND_OVER_S)
                if owner is None:
                    return await here()
                return await self._send(owner, server, request, may_repeat)
            except NotRunThereError:
                again = True
            except ReplicaGoneError as error:
                refused = owner.id if owner is not None and error.was_not_reached else ""
                again = error.was_not_reached or may_again
                may_again = may_again and error.was_not_reached
            except ReplicaRefusedError as error:
                raise ToolFailure(f"{server} runs in another process, which refused the call: {error}") from None
            if not again or monotonic() > began + FIND_S:
                raise ToolFailure(
                    f"the process that ran {server} is gone; try again",
                    reason="source_unavailable",
                    hints=["it is unknown whether the call had an effect"],
                )
            await asyncio.sleep(LOOK_S)
            await asyncio.to_thread(self._leases.renew)

    async def _owner(self, server: str, refused: str, is_late: bool) -> "Replica | None":
        """Return the process that runs a server; None if it is this one.

        `refused` is a replica that refuses connections. `is_late` means that this process is stopping, and no other has
        taken over its server. Raise NotRunThereError if the owner has just gone, and ToolFailure if the owner has
        another key: it keeps running, so waiting would not help.
        """
        if (lease := self._lease(server)) is None:
            raise ToolFailure(f"the MCP server {server} no longer exists", reason="source_unavailable")
        members, holder = self._cluster.members, self._leases.holder(lease)
        if holder is None or holder == refused or not members.is_alive(holder):
            goes_on = any(replica.id != members.id and not replica.is_draining for replica in members.alive())
            if goes_on and not is_late and self._is_stopping() and not self._cluster.settings.all_stop():
                raise NotRunThereError  # another process is about to take it
            holder = await asyncio.to_thread(self._leases.take, lease, refused)
        if holder is None or holder == members.id:  # None: the database is unavailable, and no holder is known
            return None
        if (owner := await asyncio.to_thread(members.find, holder)) is None:
            if members.stranger(holder) is not None:
                raise ToolFailure(OTHER_KEY.format(server), reason="source_unavailable")
            raise NotRunThereError
        self._ran_in[lease] = owner.id
        return owner

    async def _send(self, owner: "Replica", server: str, request: ServerRequest, may_repeat: bool) -> Any:
        caller, context = current_caller.get(), current_call.get()
        call = SharedCall(
            request=request,
            block=parts_of_lease(self._lease(server) or "")[1],
            may_repeat=may_repeat,
            peer=self._peers.number(getattr(caller, "peer", caller)),
            can=() if caller is None else tuple(filter(caller.can, CAPABILITIES)),
            wants_progress=context is not None and context.progress is not None,
        )
        path, principal = f"{SERVERS_PATH}/{quote(server, safe='')}/call", current_principal.get()
        body = msgspec.json.encode(call)
        questions: set[asyncio.Task[None]] = set()
        try:
            async with aclosing(self._cluster.forwarder.stream(owner, path, body, principal)) as pieces:
                async for line in _lines(pieces):
                    if isinstance(line, QuestionLine):
                        questions.add(asyncio.create_task(self._answer(owner, line, caller)))
                    elif isinstance(line, ResultLine):
                        return msgspec.json.decode(line.value, type=SharedResult if request.kind == "tool" else Any)
                    else:
                        _take(line, caller)
        finally:
            for question in questions:
                question.cancel()
        raise ReplicaGoneError(was_answering=True)

    async def _answer(self, owner: "Replica", line: QuestionLine, caller: "Caller | None") -> None:
        """Ask our caller, and send its answer."""
        try:
            if caller is None:
                raise ToolFailure("there is no caller to ask")
            data, context = line.question, current_call.get()
            if context is not None and context.environment is not None:
                data = context.environment.redact(data)  # it goes to the client
            reply = {"value": await caller.ask(msgspec.convert(data, type=QUESTIONS[line.kind]))}
        except ToolFailure as error:
            reply = answer_of(error)
        body, path = msgspec.json.encode(reply), f"{ANSWERS_PATH}/{line.id}"
        with suppress(HttpError):  # if this fails, the call itself ends, too
            await self._cluster.forwarder.post(owner, path, body, current_principal.get())


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[Line]:
    """Yield the lines of a response. Raise ReplicaGoneError if none arrives for a while."""
    pending: list[bytes] = []
    while True:
        try:
            async with asyncio.timeout(SILENCE_TIMEOUT_S):
                piece = await anext(pieces)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise ReplicaGoneError(was_answering=True) from None
        *whole, rest = piece.split(b"\n")
        for part in whole:
            line = b"".join((*pending, part))
            pending.clear()
            if line:
                yield decode_line(line)
        pending.append(rest)


def _take(line: Line, caller: "Caller | None") -> None:
    """Process a line from the server. Raise if the line ends the request."""
    match line:
        case ProgressLine():
            report_progress(line.done, line.total, line.message)
        case LogLine():
            log_message(line.data, line.level, line.logger)  # pyright: ignore[reportArgumentType] - it was checked there
        case LackLine() if caller is not None:
            caller.lacks(CannotAsk(line.capability, line.message))
        case FailureLine():
            raise failure_of(line)
        case MovedLine():
            raise NotRunThereError
        case _:
            pass


class PeerNumbers:
    """Numbers that identify clients to other processes: older servers don't name the client of a question."""

    def __init__(self) -> None:
        self._next = count(1)
        self._known: dict[int, tuple[object, str, float]] = {}  # keeps the client alive, so that its id is not reused

    def number(self, peer: object) -> str:
        now = monotonic()
        _, number, _ = self._known.pop(id(peer), (peer, str(next(self._next)), now))
        while self._known and (oldest := next(iter(self._known.items())))[1][2] < now - KEPT_PEERS_S:
            del self._known[oldest[0]]
        self._known[id(peer)] = peer, number, now
        return number
