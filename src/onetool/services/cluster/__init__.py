"""What a process needs to be one of several: replicas behind a balancer, or the workers of one machine.

members     who serves now: a row each, renewed every second
signatures  what shows that a holder of the cluster's key has written a row
leases      what only one process does at a time
mcp_rows    sessions and tasks of MCP clients, as rows that every replica can read
"""

from collections.abc import Callable

import msgspec

from onetool.database import Database

UNIX = "unix:"


class ClusterSettings(msgspec.Struct, frozen=True):
    """`address` is where the others reach this process: "10.0.0.7:8765", or "unix:/path/to.sock"."""

    address: str
    key: bytes  # the shared secret
    database: Database
    all_stop: Callable[[], bool] = lambda: False  # whether all processes are about to stop, not this one alone
    is_last: Callable[[], bool] = lambda: True  # whether nobody else listens on the sockets of this process by then

    def __repr__(self) -> str:
        return f"ClusterSettings(address={self.address!r})"  # the key stays out of logs


class Replica(msgspec.Struct, frozen=True):
    """One of the processes that serve. One that is not `is_known` has no row that our key has signed."""

    id: str
    address: str
    version: str
    since: float
    is_draining: bool
    is_known: bool = True
