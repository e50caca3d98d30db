"""`Cluster`: this process as one of several, with its members and its mailbox."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

from onetool.cluster import RELOAD, ClusterSettings
from onetool.cluster.mailbox import Mailbox
from onetool.cluster.members import Members
from onetool.core.errors import OneToolError

log = logging.getLogger("onetool.serve")
ID_DIGITS = 8
_OWNED = re.compile(r"[0-9a-f]{40}")
DRAIN_S = 5.0  # after SIGTERM, until the balancer stops sending requests
PARTING_S = 2.0  # for clients about to send a request on a kept connection
REQUESTS_TIMEOUT_S = 20  # for pending requests after that


class Cluster:
    """This process as one of several."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self.members = Members(settings)
        self.mailbox = Mailbox(settings.database, self.members, settings.keys)
        self.on_serving: list[Callable[[], None]] = [self.mailbox.start]  # on the event loop, once clients can connect
        self.on_close: list[Callable[[], None]] = []  # called before this process stops being a member

    def start(self) -> dict[str, Any]:
        """Join the cluster, and return options for `serve`."""
        self.members.start()
        return {
            "drain_s": 0.0 if self.settings.is_one_machine else DRAIN_S,  # workers share their sockets
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

    def elsewhere(self, id: str) -> str | None:
        """Return the other process that an ID begins with (8 digits of a process, and 32 more); None if it is ours."""
        owner = id[:ID_DIGITS] if _OWNED.fullmatch(id) else None
        return None if owner == self.id else owner
