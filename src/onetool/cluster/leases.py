"""`Leases` are for work that only one process does at a time, such as running a stdio MCP server.

A lease is a row with a holder and an expiry time, by the database's clock. Its holder renews it with each heartbeat.
Another process takes it once it has expired, or once its holder is no longer among the replicas.

While the database is unavailable, all processes keep their leases, so that stateful servers continue. If only the
holder can't reach the database, another replica takes the lease after LEASE_S, and both run the server until the holder
reaches the database again, sees the new holder, and ends its own server. The holder can't tell the two cases apart.
When the database is available again, leases have expired: for some seconds no process takes a lease with a known
holder.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from hashlib import sha256
from threading import Lock

import msgspec

from onetool.cluster.members import GONE_S, Members
from onetool.database import Database, DatabaseError, Transaction
from onetool.sources.mcp_servers.settings import ServerSettings

SERVERS = "server:"  # prefix of the leases of MCP servers
LEASE_S = GONE_S
REFUSED_S = 2.0  # the same for a replica that refuses connections


class Leases:
    """The leases with one prefix. All methods may be called from any thread."""

    def __init__(
        self, database: Database, members: Members, prefix: str, is_needed: Callable[[], bool] = lambda: True
    ) -> None:
        """Set up the leases.

        `is_needed` returns whether this process needs to know the holders; if not, heartbeats skip the database.
        """
        self._database = database
        self._members = members
        self._own = members.id
        self._prefix = prefix
        self._is_needed = is_needed
        self._holders: dict[str, str] = {}
        self._is_closed = False
        self._lock = Lock()
        members.on_beat(self.renew)

    def holder(self, name: str) -> str | None:
        """Return the replica that held the lease at the last heartbeat. Never blocks."""
        return self._holders.get(name)

    def is_own(self, name: str) -> bool:
        return self._holders.get(name) == self._own

    def take(self, name: str, refused: str = "") -> str | None:
        """Take a lease if it is free, and return its holder; None if the database is unavailable. May block.

        `refused` is a replica that refuses connections. It may be stopping and still run its servers, so it counts as
        gone only if its heartbeat is missing, too.
        """
        clock, key = self._database.clock, self._prefix + name

        def job(work: Transaction) -> str:
            work.execute(
                f"INSERT INTO leases (name, replica, until) VALUES (%s, %s, {clock} + %s) "  # noqa: S608 - ours
                "ON CONFLICT (name) DO UPDATE SET replica = excluded.replica, until = excluded.until "
                f"WHERE leases.until <= {clock} OR leases.replica = excluded.replica "
                "OR leases.replica NOT IN (SELECT id FROM replicas WHERE seen_at > "
                f"{clock} - CASE WHEN id = %s THEN {REFUSED_S} ELSE {LEASE_S} END AND seen_at < {clock} + {LEASE_S})",
                (key, self._own, LEASE_S, refused),
            )
            return work.execute("SELECT replica FROM leases WHERE name = %s", (key,))[0][0]

        with self._lock:  # `renew` must not read the table before this and store the result after it
            held = self._holders.get(name)
            if self._is_closed or (self._members.is_settling and held not in (None, self._own, refused)):
                return held
            with suppress(DatabaseError):
                self._holders[name] = self._database.write(job)
            return self._holders.get(name)

    def close(self) -> None:
        """Take no more leases. Held leases are kept until they are released."""
        with self._lock:
            self._is_closed = True

    def release(self, names: Collection[str]) -> None:
        """Give up leases of this process, so that others can take them immediately."""

        def job(work: Transaction) -> None:
            rows = [(self._prefix + name, self._own) for name in names]
            work.execute_many("DELETE FROM leases WHERE name = %s AND replica = %s", rows)

        with self._lock:
            names = [name for name in names if self._holders.get(name) == self._own]
            for name in names:
                del self._holders[name]
        if names:
            try:
                self._database.write(job)
            except DatabaseError:
                return  # they will expire

    def renew(self) -> None:
        """Renew the leases of this process, and read the holders of all others. Called with each heartbeat."""
        clock = self._database.clock
        if not self._holders and not self._is_needed():
            return

        def job(work: Transaction) -> list[tuple[str, str]]:
            own = [name for name, holder in self._holders.items() if holder == self._own]
            if own:
                renewed = f"UPDATE leases SET until = {clock} + %s WHERE name = %s AND replica = %s"  # noqa: S608
                work.execute_many(renewed, [(LEASE_S, self._prefix + name, self._own) for name in own])
            select = f"SELECT name, replica FROM leases WHERE name LIKE %s AND until > {clock}"  # noqa: S608
            return [(row[0], row[1]) for row in work.execute(select, (f"{self._prefix}%",))]

        with self._lock:
            try:
                rows = self._database.write(job, apart=True)
            except DatabaseError:
                return
            before = self._holders if self._members.is_settling else {}
            others = {name: holder for name, holder in before.items() if holder != self._own}
            self._holders = others | {name.removeprefix(self._prefix): holder for name, holder in rows}

    def own(self) -> set[str]:
        """Return the names of the leases that this process holds."""
        return {name for name, holder in self.holders().items() if holder == self._own}

    def holders(self) -> dict[str, str]:
        """Return the holder of each lease, as of the last heartbeat."""
        return dict(self._holders)  # other threads change the original


def forget_replica(database: Database, address: str) -> None:
    """Delete the row and leases of a replica that is known to have died, so that others need not wait for their
    expiry.
    """

    def job(work: Transaction) -> None:
        work.execute("DELETE FROM leases WHERE replica IN (SELECT id FROM replicas WHERE address = %s)", (address,))
        work.execute("DELETE FROM replicas WHERE address = %s", (address,))

    database.write(job)


# Lease names of MCP servers


def is_shared(settings: ServerSettings) -> bool:
    """Return whether only one process may run the server: a stdio server keeps its state in its process.

    Every process connects to HTTP servers.
    """
    return settings.enabled and settings.transport == "stdio" and not settings.replicate


def block_digest(settings: ServerSettings) -> str:
    """Return a digest of a server's block in the config. Only processes with equal digests share the server.

    Secret values and the config's folder don't affect the digest.
    """
    facts = (settings.command_line, settings.written_folder, sorted(settings.env))
    return sha256(msgspec.json.encode(facts)).hexdigest()[:16]


def lease_name(server: str, settings: ServerSettings) -> str:
    """Return the name of the lease held by the process that runs the server."""
    return f"{server}@{block_digest(settings)}"


def parts_of_lease(name: str) -> tuple[str, str]:
    """Return the server and the digest in a lease's name."""
    server, _, digest = name.rpartition("@")
    return server, digest
