"""`PageLinks`: links that open the page as its owner, and the running servers.

A link has a random key, and works once. `onetool serve` and `onetool page` write the hash of the key into the state,
which only its owner can do; no route does. The document also lists the running servers, so that the command knows their
addresses. Each server process holds a lock: an entry whose lock is free is left over from a killed process.

A link is for one server. Its sessions are signed with a secret of that server, and end with it.
"""

import hmac
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_hex, token_urlsafe
from threading import RLock
from typing import TypeVar

import msgspec

from onetool.core.flock import KEY_BYTES
from onetool.core.state_folders import STATE_FILE
from onetool.database import DatabaseError
from onetool.database.documents import Documents
from onetool.database.encryption import SealError
from onetool.database.sqlite_processes import SqliteLock

log = logging.getLogger("onetool.serve")
DOCUMENT = "links"
LIFETIME_S = 600
MAX_WAIT_S = 5.0  # for another process that changes the document

T = TypeVar("T")


class PageServer(msgspec.Struct, frozen=True):
    """A server that accepts links. All its workers have the same id."""

    url: str
    id: str


class PageLink(msgspec.Struct, frozen=True):
    """An unused link."""

    server: str
    expires: float


class PageLinkState(msgspec.Struct, frozen=True):
    """The content of the document."""

    servers: dict[str, PageServer] = {}  # by process
    links: dict[str, PageLink] = {}  # by the hash of the key


class PageLinks:
    """The links and servers of a state folder. All methods block, and raise DatabaseError and TimeoutError."""

    def __init__(self, documents: Documents, home: Path, clock: Callable[[], float] = time.time) -> None:
        """Open the document. `home` is the state folder, where processes hold their locks."""
        self.home = home
        self._documents = documents
        self._clock = clock

    def servers(self) -> dict[str, str]:
        """Return the ids of the running servers, by URL."""
        return {server.url: server.id for server in self._read().servers.values()}

    def make(self, server: str) -> str:
        """Store a new link to a server, and return its key."""
        key = token_urlsafe(KEY_BYTES)
        link = PageLink(server, self._clock() + LIFETIME_S)
        self._change(lambda state: state.links.update({_hash(key): link}))
        return key

    def use(self, key: str, server: str) -> bool:
        """Return whether this is the key of a link to this server. If so, the link is used up in all processes."""
        hash = _hash(key)
        if hash not in self._read().links:  # guessed keys take no lock
            return False
        link = self._change(lambda state: state.links.pop(hash, None))
        return link is not None and link.server == server

    def add_server(self, server: PageServer) -> Callable[[], None]:
        """List this process as a server. Return a function that removes it and never raises."""
        process = token_hex(8)
        lock = self._lock_of(process)
        lock.take()
        self._change(lambda state: state.servers.update({process: server}))

        def remove() -> None:
            with suppress(Exception):  # a remaining entry has no lock holder, and is ignored
                self._change(lambda state: state.servers.pop(process, None))
            lock.remove()

        return remove

    def _lock_of(self, process: str) -> SqliteLock:
        return SqliteLock(self.home / STATE_FILE, f"page server {process}")

    def _read(self) -> PageLinkState:
        """Return the links that have not expired, and the servers that are running."""
        state, now = PageLinkState(), self._clock()
        with suppress(msgspec.MsgspecError, SealError):  # ignore a document that is damaged or was forged
            if (body := self._documents.read(DOCUMENT)) is not None:
                state = msgspec.json.decode(body, type=PageLinkState)
        return PageLinkState(
            {process: server for process, server in state.servers.items() if self._lock_of(process).find_holder()},
            {hash: link for hash, link in state.links.items() if 0 < link.expires - now <= LIFETIME_S},
        )

    def _change(self, change: Callable[[PageLinkState], T]) -> T:
        """Apply a change to the state under its lock, and return what the change returns."""
        with self._documents.locked(DOCUMENT, MAX_WAIT_S) as held:
            state = self._read()
            result = change(state)
            held.write(msgspec.json.encode(state))
        return result


class ServedLinks:
    """The links of one server, in one of its processes."""

    def __init__(self, links: PageLinks, url: str, secret: bytes) -> None:
        """Derive the server's keys. `secret` is random, and known only to the processes of this server."""
        self._links = links
        self._lock = RLock()
        self._remove: Callable[[], None] | None = None  # set while this process is listed
        self._server = PageServer(url, hmac.digest(secret, b"server", sha256).hex())
        self.digest = hmac.digest(secret, b"sessions", sha256)  # signs sessions, in place of a token's digest

    def use(self, key: str) -> bool:
        """Return whether this key opens a session. Each key works once."""
        return self._links.use(key, self._server.id)

    @property
    def home(self) -> Path:
        return self._links.home

    def begin(self) -> None:
        """List this process, unless the state can't be changed. Never raises."""
        with self._lock:
            try:
                self._remove = self._links.add_server(self._server)
            except (DatabaseError, TimeoutError) as error:
                log.warning("`onetool page` can't find this server, because the state can't be changed: %s", error)

    def move(self, links: PageLinks) -> None:
        """Continue in another state folder, which a reload has chosen. Blocks."""
        with self._lock:
            self.end()
            self._links = links
            self.begin()

    def end(self) -> None:
        with self._lock:
            if self._remove is not None:
                self._remove()
                self._remove = None


def _hash(key: str) -> str:
    return sha256(key.encode()).hexdigest()
