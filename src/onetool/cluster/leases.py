"""Leases: what only one process does at a time, such as running the stdio server of an MCP server.

A lease is a row with a holder and an end, by the database's clock. Its holder renews it with each heartbeat. Another
takes it when it has run out, or when its holder is no longer among the replicas.

While the database is away everybody keeps what it had, so that servers with a state go on. If it is away for the holder
alone, another replica takes the lease after LEASE_S, and both run the server until the holder reaches the database
again: then it sees the new holder, and ends its own. It can't tell the two cases apart.
"""

from collections.abc import Collection
from hashlib import sha256
from threading import Lock

import msgspec

from onetool.cluster.members import GONE_S, Members
from onetool.database import Database, DatabaseError, Transaction
from onetool.sources.mcp_servers.settings import ServerSettings

SERVERS = "server:"  # what the names of the leases of MCP servers begin with
DIGEST_DIGITS = 16
LEASE_S = GONE_S
REFUSED_S = 2.0  # the same for one that lets nobody connect any more


class Leases:
    """The leases of one kind, whose names begin with `prefix`. All methods may be called from any thread."""

    def __init__(self, database: Database, members: Members, prefix: str) -> None:
        self._database = database
        self._own = members.id
        self._prefix = prefix
        self._holders: dict[str, str] = {}
        self._is_closed = False
        self._lock = Lock()
        members.on_beat(self.renew)

    def holder(self, name: str) -> str | None:
        """The id of the replica that holds it, as of the last heartbeat. It never blocks."""
        return self._holders.get(name)

    def is_own(self, name: str) -> bool:
        return self._holders.get(name) == self._own

    def take(self, name: str, refused: str = "") -> str | None:
        """Take it if it is free; gives who holds it now. It may block. None: the database is away, nobody knows.

        `refused` is a replica that refuses connections. That alone proves nothing: it may be stopping, and it runs
        until then what it holds. If its heartbeat is missing, too, it is gone.
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

        with self._lock:  # `renew` must not read the table before this, and remember it after it
            if self._is_closed:
                return self._holders.get(name)
            try:
                found = self._holders[name] = self._database.write(job)
            except DatabaseError:
                return self._holders.get(name)
        return found

    def close(self) -> None:
        """Take none any more. What is held stays so until it is released."""
        with self._lock:
            self._is_closed = True

    def release(self, names: Collection[str]) -> None:
        """Give up those that this process holds: others can take them at once."""

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
                return  # then they run out

    def renew(self) -> None:
        """Renew those of this process, and read who holds the others. Called with each heartbeat."""
        clock = self._database.clock

        def job(work: Transaction) -> list[tuple[str, str]]:
            own = [name for name, holder in self._holders.items() if holder == self._own]
            if own:
                renewed = f"UPDATE leases SET until = {clock} + %s WHERE name = %s AND replica = %s"  # noqa: S608
                work.execute_many(renewed, [(LEASE_S, self._prefix + name, self._own) for name in own])
            select = f"SELECT name, replica FROM leases WHERE name LIKE %s AND until > {clock}"  # noqa: S608
            return [(row[0], row[1]) for row in work.execute(select, (f"{self._prefix}%",))]

        with self._lock:
            try:
                rows = self._database.write(job)
            except DatabaseError:
                return
            self._holders = {name.removeprefix(self._prefix): holder for name, holder in rows}

    def own(self) -> set[str]:
        """The names of those that this process holds."""
        return {name for name, holder in dict(self._holders).items() if holder == self._own}  # others take some now

    def holders(self) -> dict[str, str]:
        """Who holds which, as of the last heartbeat."""
        return dict(self._holders)


def forget_replica(database: Database, address: str) -> None:
    """Delete a replica that has died, and its leases: for those who know, so that nobody has to wait."""

    def job(work: Transaction) -> None:
        work.execute("DELETE FROM leases WHERE replica IN (SELECT id FROM replicas WHERE address = %s)", (address,))
        work.execute("DELETE FROM replicas WHERE address = %s", (address,))

    database.write(job)


# The names of the leases of MCP servers


def is_shared(settings: ServerSettings) -> bool:
    """Return whether only one process may run it.

    A server that is started by a command keeps its state in its process, so two of them would not know of each other.
    Every process connects to a server over HTTP itself.
    """
    return settings.enabled and settings.transport == "stdio" and not settings.replicate


def block_digest(settings: ServerSettings) -> str:
    """The same for all processes whose configs start the same server: only those share one.

    It is made of what is written: neither secrets nor the folder that a config lies in make a difference.
    """
    decides = (settings.command_line, settings.written_folder, sorted(settings.env))
    return sha256(msgspec.json.encode(decides)).hexdigest()[:DIGEST_DIGITS]


def lease_name(server: str, settings: ServerSettings) -> str:
    """What the process that runs it holds: see `parts_of_lease`."""
    return f"{server}@{block_digest(settings)}"


def parts_of_lease(name: str) -> tuple[str, str]:
    """The server and the digest of its block."""
    server, _, digest = name.rpartition("@")
    return server, digest
