"""`Cluster`: a replica's members, forwarder and internal routes.

Routes below /cluster are for other replicas only: `Guard` refuses requests without a valid header from one of them.
"""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from socket import socket
from typing import Any

from onetool.cluster import RELOAD, UNIX, ClusterSettings, Replica
from onetool.cluster.forwarding import DATABASE_PATH, RETRY, Forwarder, ForwardSeal, ReplicaGoneError
from onetool.cluster.members import BEAT_S, Members
from onetool.core.errors import OneToolError
from onetool.core.principal import LOCAL
from onetool.database import DatabaseError
from onetool.http.asgi import Asgi, HttpError, Receive, Scope, Send, respond

log = logging.getLogger("onetool.serve")
ID_DIGITS = 8
_OWNED = re.compile(r"[0-9a-f]{40}")
DRAIN_S = 5.0  # after SIGTERM, until the balancer stops sending requests
PARTING_S = 2.0  # for clients about to send a request on a kept connection
REQUESTS_TIMEOUT_S = 20  # for pending requests after that
ASK_S = 1.0  # for a peer to report whether it can reach the database
MAX_ASKED = 3  # peers
HAS_DATABASE, HAS_NONE = b'{"database":"ok"}', b'{"database":"away"}'


class Cluster:
    """This process as one of several. `routes` maps path prefixes below /cluster to ASGI apps."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self.members = Members(settings)
        self.seal = ForwardSeal(settings.key, self.members, settings.accepted)
        self.forwarder = Forwarder(self.members, self.seal)
        self.routes: dict[str, Asgi] = {DATABASE_PATH: self._report_database}
        self._cut_off: tuple[float, bool] = (0.0, False)  # the time and result of the last query of the peers
        self.on_serving: list[Callable[[], None]] = []  # called on the event loop, once clients can connect
        self.on_close: list[Callable[[], None]] = []  # called before this process stops being a member

    def start(self, listen_unix: Callable[[str], socket]) -> dict[str, Any]:
        """Join the cluster, and return options for `serve`. `listen_unix` opens a socket at a path."""
        unix = self.settings.is_one_machine
        further = listen_unix(self.settings.address.removeprefix(UNIX)) if unix else None
        self.members.start()
        return {
            "further": further,
            "drain_s": 0.0 if unix else DRAIN_S,  # workers of one machine share their sockets, without a balancer
            "finish_s": self.settings.finish_s,
            "shutdown_timeout_s": REQUESTS_TIMEOUT_S,
            "parting_s": PARTING_S,
            "is_last": self.settings.is_last,
        }

    def close(self) -> None:
        """Run all callbacks and leave the members, even if some callbacks fail; then raise the error."""
        with ExitStack() as ends:
            ends.callback(self.members.close)
            for call in reversed(self.on_close):
                ends.callback(call)

    def follow_reloads(self, reload: Callable[[], Awaitable[None]]) -> None:
        """Reload on `onetool db reload`. Called on the serving event loop."""
        loop = asyncio.get_running_loop()

        async def run() -> None:
            try:
                await reload()
            except Exception as error:  # noqa: BLE001 - the old config stays in force
                log.error("Not reloaded: %s", error if isinstance(error, OneToolError) else repr(error))

        def hear(detail: str) -> None:
            if detail:  # an empty notification follows a reconnect, maybe without a reload
                asyncio.run_coroutine_threadsafe(run(), loop)

        self.on_close.append(self.settings.database.on_change(RELOAD, hear))

    @property
    def id(self) -> str:
        """The ID of this replica."""
        return self.members.id

    def owner_of(self, id: str) -> str | None:
        """Return the replica in an ID (8 digits of a replica, and 32 more); None for other IDs."""
        return id[:ID_DIGITS] if _OWNED.fullmatch(id) else None

    async def other(self, id: str) -> Replica:
        """Return the replica with this ID. Raise ReplicaGoneError if there is none, HttpError if that is unknown."""
        try:
            replica = self.members.known(id) or await asyncio.to_thread(self.members.find, id)
        except DatabaseError as error:
            why = f"The database, which knows the replica responsible for this, can't be used: {error}."
            raise HttpError(503, "database_away", why, RETRY) from None
        if replica is None:
            raise ReplicaGoneError
        return replica

    async def is_cut_off(self) -> bool:
        """Return whether another replica can reach the database, but not this one. Peers are asked once per second."""
        if self.members.has_database:
            return False
        asked_at, result = self._cut_off
        if time.monotonic() - asked_at >= BEAT_S:
            others = [peer for peer in self.members.alive() if peer.id != self.id and not peer.is_draining]
            result = any(await asyncio.gather(*map(self._has_database, others[:MAX_ASKED])))
            self._cut_off = time.monotonic(), result
        return result

    async def _has_database(self, replica: Replica) -> bool:
        try:
            async with asyncio.timeout(ASK_S):
                return await self.forwarder.post(replica, DATABASE_PATH, b"{}", LOCAL) == HAS_DATABASE
        except (HttpError, TimeoutError):
            return False

    async def _report_database(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await respond(send, 200, HAS_DATABASE if self.members.has_database else HAS_NONE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve /cluster and all paths below it."""
        path = scope["path"]
        for start, app in self.routes.items():
            if path == start or path.startswith(f"{start}/"):
                await app(scope, receive, send)
                return
        raise HttpError(404, "not_found", f"No replica of this version has {path[:100]!r}.")
