"""Several processes that serve together: replicas behind a balancer, or the workers of one machine.

members           the serving processes, each with a row that is renewed every second
forwarding        requests to other replicas, and the header that authenticates them
cluster           this process as one of several: members, forwarder, routes
mcp_rows          sessions and tasks of MCP clients, as rows that every replica can read
shared_sessions   sessions that several replicas serve
shared_requests   requests about the state of another replica, and the results of tasks, which outlive theirs
drift             replicas with other packs, settings or tools
report            the report on replicas in commands

No interface is imported here: `interfaces/http/serve.py` passes the necessary objects. Processes outside a cluster do
not load this package.

This module has the shared definitions: the settings, a `Replica`, and the signature of its row. A row decides where
requests go, with their callers and bodies. So write access to the database must not be enough to add, change or restore
a row: the signature is made with the cluster's key, and covers the id, the address and the time of the last heartbeat.
"""

import hmac
import json
from collections.abc import Callable, Iterable
from hashlib import sha256
from itertools import combinations

import msgspec

from onetool.core.errors import cut
from onetool.core.text import escape_invisible
from onetool.database import Database

UNIX = "unix:"

ROWS = "replicas"
RELOAD = "reload"  # the database notification topic
MAX_SHOWN = 100  # characters of an unsigned row in messages
OVERLAP_S = 2.0  # for which two replicas with one address must both have had heartbeats: a restart can be quick
SAME_KEY = "give all replicas the same key"
OWN_ADDRESS = "give each replica an address of its own (cluster.address)"


class ClusterSettings(msgspec.Struct, frozen=True):
    """The settings of a process in a cluster.

    `address` is where the others reach it: "10.0.0.7:8765", or "unix:/path/to.sock".
    """

    address: str
    key: bytes  # the shared secret
    database: Database
    is_last: Callable[[], bool] = lambda: True  # whether no other process listens on this process's sockets by then
    accepted: tuple[bytes, ...] = ()  # further valid secrets, while the secret is being replaced
    finish_s: float = 0.0  # seconds after SIGTERM for pending requests, tasks and questions

    @property
    def keys(self) -> tuple[bytes, ...]:
        """All valid secrets. The first one signs."""
        return self.key, *self.accepted

    @property
    def is_one_machine(self) -> bool:
        """Whether the others are workers of the same server, which listen on the same sockets."""
        return self.address.startswith(UNIX)

    def __repr__(self) -> str:
        return f"ClusterSettings(address={self.address!r})"  # keeps the key out of logs


class Replica(msgspec.Struct, frozen=True):
    """A serving process. Without `is_known`, its row is not signed with our key."""

    id: str
    address: str
    version: str
    since: float
    is_draining: bool
    is_known: bool = True
    seen_at: float = 0.0  # the last heartbeat, by the database's clock
    catalogue: str = ""  # signed digests of its packs, settings and tools: see `drift`


def derived_key(key: bytes, use: str) -> bytes:
    """Return a key for one purpose: a signature for one purpose is not valid for another."""
    return hmac.digest(key, f"onetool {use}".encode(), sha256)


def row_signature(key: bytes, id: str, address: str, version: str, is_draining: bool, seen_at: float) -> str:
    """Return the signature of a row. `key` is derived for ROWS."""
    # msgspec can't encode a `Secret`, which an address may be.
    signed = json.dumps((id, address, version, is_draining, seen_at))
    return hmac.new(key, signed.encode(), sha256).hexdigest()


def is_signed(key: bytes, replica: Replica, signature: str) -> bool:
    """Return whether a holder of the key has written this row."""
    own = row_signature(key, replica.id, replica.address, replica.version, replica.is_draining, replica.seen_at)
    return hmac.compare_digest(own.encode(), signature.encode("utf-8", "replace"))


def other_key(id: str, address: str) -> str:
    """Describe a row that is not signed with our key. Its values are untrusted."""
    id, address = (escape_invisible(cut(" ".join(text.split()), MAX_SHOWN)) for text in (id, address))
    return f"replica {id} at {address} has another cluster.key (or its row was changed)"


def same_addresses(replicas: Iterable[Replica]) -> list[tuple[Replica, Replica]]:
    """Return pairs of replicas with the same address, the older one first.

    A killed process and its successor are not a pair: the old row stays for some seconds, but its last heartbeat is at
    most a moment after the start of the successor.
    """
    serving = [replica for replica in replicas if replica.is_known and not replica.is_draining]
    return [
        (older, newer)
        for older, newer in combinations(sorted(serving, key=lambda replica: replica.since), 2)
        if older.address == newer.address and older.seen_at > newer.since + OVERLAP_S
    ]
