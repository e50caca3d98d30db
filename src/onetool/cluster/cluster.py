"""`Cluster`: this process as one of several, with its members and its mailbox."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

from onetool.cluster import ClusterSettings
from onetool.cluster.mailbox import Mailbox
from onetool.cluster.members import Members
from onetool.core.principal import LOCAL
from onetool.http.asgi import HttpError

log = logging.getLogger("onetool.serve")
RELOAD = "reload"  # of messages
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
        self._loop: asyncio.AbstractEventLoop | None = None  # while this process serves

    def start(self) -> dict[str, Any]:
        """Join the cluster, and return options for `serve`."""
        self.members.start()
        return {
            "drain_s": 0.0 if self.settings.is_worker else DRAIN_S,  # workers have no balancer
            "finish_s": self.settings.finish_s,
            "shutdown_timeout_s": REQUESTS_TIMEOUT_S,
            "parting_s": PARTING_S,
        }

    def follow_reloads(self, reload: Callable[[], Awaitable[None]]) -> None:
        """Reload when another process says so. Called on the serving event loop."""

        async def hear(_body: None) -> None:
            await reload()

        self._loop = asyncio.get_running_loop()
        self.mailbox.handlers[RELOAD] = hear
        self.mailbox.internal.add(RELOAD)

    def reload_others(self) -> None:
        """Have the other processes reload. Any thread may call this."""
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._tell_others(), self._loop)

    async def _tell_others(self) -> None:
        try:
            await self.mailbox.tell(None, RELOAD, None, LOCAL)
        except HttpError as error:
            log.error("The other replicas were not told to reload: %s", error)

    @property
    def id(self) -> str:
        """The ID of this replica."""
        return self.members.id

    def elsewhere(self, id: str) -> str | None:
        """Return the other process that an ID begins with (8 digits of a process, and 32 more); None if it is ours."""
        owner = id[:ID_DIGITS] if _OWNED.fullmatch(id) else None
        return None if owner == self.id else owner
