"""Reports on the replicas of a database: for `onetool db` and `onetool check`."""

from collections.abc import Iterator
from contextlib import closing

import msgspec

from onetool.app.database import open_database
from onetool.app.database_state import config_mistake, explain
from onetool.cluster import SAME_KEY, other_key
from onetool.cluster.drift import SAME_FILES, drifts
from onetool.cluster.members import read_members
from onetool.config import Config
from onetool.core.errors import ConfigError, Mistake
from onetool.core.text import utc_text
from onetool.database import Database, DatabaseError
from onetool.database.migrations import missing

MAX_MISTAKES = 20  # of one kind: anyone with write access to the database can add rows


class ReplicaRow(msgspec.Struct, frozen=True):
    """A replica with a heartbeat. `differs_in` describes how its packs, settings and tools differ from those of the
    oldest replica.
    """

    id: str
    address: str
    version: str
    since: str
    is_draining: bool
    has_other_key: bool = False
    differs_in: str | None = None


def alive_replicas(database: Database, config: Config) -> tuple[ReplicaRow, ...]:
    """Return the serving replicas. Raises DatabaseError."""
    keys = () if config.cluster is None or not config.cluster.has_key else config.cluster.keys
    members = read_members(database, *keys)
    differs = {replica.id: text for replica, text in drifts(members, keys[0])} if keys else {}
    return tuple(
        ReplicaRow(
            *(
                replica.id,
                replica.place,
                replica.version,
                utc_text(replica.since),
                replica.is_draining,
                not replica.is_known,
            ),
            differs_in=differs.get(replica.id),
        )
        for replica in members
    )


def inspect_replicas(config: Config) -> tuple[tuple[ReplicaRow, ...], list[Mistake]]:
    """Return the serving replicas, and the problems found."""
    try:
        with closing(open_database(config)) as database:
            if missing(database):  # reported by `database_mistakes`
                return (), []
            replicas = alive_replicas(database, config)
    except ConfigError as error:
        return (), list(error.mistakes)
    except DatabaseError as error:
        message, hint = explain(error)
        return (), [config_mistake(config, message, hint, "error")]
    return replicas, list(_mistakes(config, replicas))


def _mistakes(config: Config, replicas: tuple[ReplicaRow, ...]) -> Iterator[Mistake]:
    for replica in [replica for replica in replicas if replica.has_other_key][:MAX_MISTAKES]:
        yield config_mistake(config, other_key(replica.id, replica.address), SAME_KEY, "error", "cluster.key")
    versions = sorted({replica.version for replica in replicas if not replica.has_other_key})
    if len(versions) > 1:
        which = "; ".join(
            f"{replica.id} at {replica.address} has {replica.version}" for replica in replicas[:MAX_MISTAKES]
        )
        message = f"the replicas have different versions of OneTool ({', '.join(versions)}): {which}"
        yield config_mistake(
            config, message, "finish the update: all replicas should have the same version", "warning", "cluster"
        )
    for replica in [replica for replica in replicas if replica.differs_in][:MAX_MISTAKES]:
        message = f"replica {replica.id} at {replica.address} differs from {replica.differs_in}"
        yield config_mistake(config, message, SAME_FILES, "warning", "cluster")
