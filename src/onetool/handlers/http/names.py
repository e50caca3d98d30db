"""From a name to its addresses, by the system, in threads of their own: nobody else's work waits for a name server.

A lookup can't be ended. One that nobody waits for any more goes on and keeps its thread, so the threads are bounded.
All who ask for one name at a time share a lookup: a name whose server is silent takes one thread.
"""

import asyncio
import socket
from typing import Any

from onetool.core.threads import Threads

MOST = 32  # lookups at a time
LOCAL = ("::1", "127.0.0.1")

Found = list[str] | OSError | UnicodeError


class Names:
    def __init__(self, most: int = MOST) -> None:
        self._threads = Threads(most)
        self._lookups: dict[Any, asyncio.Future[Found]] = {}

    async def addresses(self, host: str, port: int) -> list[str]:
        """All of them; OSError or UnicodeError when there are none."""
        if host == "localhost":  # it is here, whatever anybody says: RFC 6761
            return list(LOCAL)
        key = (asyncio.get_running_loop(), host, port)
        lookup = self._lookups.get(key)
        if lookup is None:
            work = self._threads.run(_looked_up, {"host": host, "port": port})
            lookup = self._lookups[key] = asyncio.ensure_future(work)
            lookup.add_done_callback(lambda _: self._lookups.pop(key, None))
        found = await asyncio.shield(lookup)
        if isinstance(found, Exception):
            raise found
        return found


def _looked_up(host: str, port: int) -> Found:
    """What went wrong is a result like any other: there may be nobody left to whom it could be raised."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return error
    return [str(address[0]) for *_, address in found]
