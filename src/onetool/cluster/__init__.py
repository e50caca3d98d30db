"""Several processes that serve together: replicas behind a balancer, or the workers of one machine.

members           the serving processes, each with a row that is renewed every second
mailbox           messages between the processes, as rows
cluster           this process as one of several: members and mailbox
mcp_rows          sessions and tasks of MCP clients, as rows that every replica can read
shared_sessions   sessions that several replicas serve
shared_requests   requests about a call or a task of another process, and the results of tasks, which outlive it
drift             replicas with other packs, settings or tools
report            the report on replicas in commands

No interface is imported here: `interfaces/http/serve.py` passes the necessary objects. Processes outside a cluster do
not load this package.

This module has the shared definitions: the settings, and a `Replica`.
"""

import hmac
from hashlib import sha256

import msgspec

from onetool.core.errors import cut
from onetool.core.text import escape_invisible
from onetool.database import Database

MAX_SHOWN = 100  # characters of another key's row in messages
SAME_KEY = "give all replicas the same key"


class ClusterSettings(msgspec.Struct, frozen=True):
    """The settings of a process in a cluster. `place` names it for people: "web-3:8765"."""

    place: str
    key: bytes  # the shared secret
    database: Database
    accepted: tuple[bytes, ...] = ()  # further valid secrets, while the secret is being replaced
    finish_s: float = 0.0  # seconds after SIGTERM for pending requests, tasks and questions
    is_worker: bool = False  # whether it shares its sockets, and so its place, with other workers

    @property
    def keys(self) -> tuple[bytes, ...]:
        """All valid secrets. The first one signs."""
        return self.key, *self.accepted

    def __repr__(self) -> str:
        return f"ClusterSettings(place={self.place!r})"  # keeps the key out of logs


class Replica(msgspec.Struct, frozen=True):
    """A serving process. Unless `is_known`, it has another key than this one."""

    id: str
    place: str
    version: str
    since: float
    is_draining: bool
    is_known: bool = True
    seen_at: float = 0.0  # the last heartbeat, by the database's clock
    catalogue: str = ""  # signed digests of its packs, settings and tools: see `drift`


def derived_key(key: bytes, use: str) -> bytes:
    """Return a key for one purpose: a signature for one purpose is not valid for another."""
    return hmac.digest(key, f"onetool {use}".encode(), sha256)


def key_number(key: bytes) -> str:
    """Return a number that tells keys apart, and says nothing else about them."""
    return derived_key(key, "number").hex()[:16]


def other_key(id: str, place: str) -> str:
    """Describe a process with another key. Its values are untrusted."""
    id, place = (escape_invisible(cut(" ".join(text.split()), MAX_SHOWN)) for text in (id, place))
    return f"replica {id} at {place} has another cluster.key"
