"""How often tools were called, counted in the database by all replicas together."""

import logging
from collections.abc import Callable

from onetool.database import ChangeUnknownError, Database, DatabaseError, Transaction
from onetool.sources.bundles.usage import Counts, UsageCounter

log = logging.getLogger("onetool.bundles")

# In the order of the ids: so two replicas that add at once wait for each other, and never both.
_ADD = (
    "INSERT INTO bundle_usage (tool, calls, last_called_at) VALUES (%s, %s, %s) ON CONFLICT (tool) DO UPDATE SET "
    "calls = bundle_usage.calls + excluded.calls, "
    "last_called_at = greatest(bundle_usage.last_called_at, excluded.last_called_at)"
)


class DatabaseUsage(UsageCounter):
    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        super().__init__(now)
        self._database = database

    def all(self) -> Counts:
        self.flush()
        return self._database.read(lambda work: _counts(work, "", ()))

    def _written(self, counts: Counts) -> bool:
        rows = [(id, calls, last) for id, (calls, last) in sorted(counts.items())]
        try:
            self._database.write(lambda work: work.execute_many(_ADD, rows))
        except ChangeUnknownError:
            return True  # rather too few than twice
        except DatabaseError as error:
            log.debug("usage of tools waits: %s", error)
            return False
        return True

    def _read(self, ids: list[str]) -> Counts:
        try:
            return self._database.read(lambda work: _counts(work, " WHERE tool = ANY(%s)", (ids,)))
        except DatabaseError:  # lists go on without
            return {}


def _counts(work: Transaction, which: str, values: tuple[list[str], ...]) -> Counts:
    asked = f"SELECT tool, calls, last_called_at FROM bundle_usage{which}"  # noqa: S608 - our own words
    return {id: (calls, last) for id, calls, last in work.execute(asked, values)}
