"""`DatabaseStore`, which stores bundles in the database that replicas share, and reads from memory.

The tables are authoritative (see `tables`). Each replica has a copy in memory, and in a file for its next start.
`catch_up` queries the revision of the tables and loads changes: callers that must see the latest changes by other
replicas call it first. Other callers read the last known state, which `watch` updates after notifications and every
second. While the database is unavailable, reading continues and changes are refused at once.

All replicas count calls of tools in the database together.
"""

import logging
from collections.abc import Callable, Hashable
from pathlib import Path
from threading import RLock
from typing import Any

from onetool.core.errors import Mistake
from onetool.core.state_folders import make_state_folder
from onetool.database import ChangeUnknownError, Database, DatabaseAwayError, DatabaseError, Transaction
from onetool.sources.bundles.contents import Contents, ContentsChange
from onetool.sources.bundles.database.tables import (
    TOPIC,
    Followed,
    TableChanges,
    TableTransaction,
    apply_changes,
    followed,
    read_changes,
)
from onetool.sources.bundles.derived import DerivedBundles
from onetool.sources.bundles.errors import InvalidError, UnavailableError
from onetool.sources.bundles.files.disk import Foreign, anybody
from onetool.sources.bundles.files.overlay import BuiltIn
from onetool.sources.bundles.rules import CONTENTS, MAX_TOOLS, BundleStore
from onetool.sources.bundles.transaction import StoreTransaction

log = logging.getLogger("onetool.bundles")
AWAY, UNKNOWN_CHANGE, REFUSED = "database_away", "change_unknown", "database_refused"
REPEAT = (
    "the connection to the database was lost while the change was being written, so it may have happened. "
    "Send it again: the same PUT of a bundle, PATCH, or PUT of examples changes nothing more; a PUT of a tool that "
    "says then that it exists, and a DELETE that says then that nothing is there, have happened"
)


class DatabaseStore(BundleStore):
    """A store in a database. `state` is the folder for the cache of this database; without it, nothing is cached."""

    def __init__(
        self,
        database: Database,
        state: Path | None = None,
        built_in: BuiltIn = (),
        now: Callable[[], float] | None = None,
        max_tools: int = MAX_TOOLS,
        foreign: Foreign = anybody,
        derived: DerivedBundles | None = None,
    ) -> None:
        super().__init__(built_in, now or database.now, max_tools, derived, database, min_saved=1)
        self._database = database
        self._state, self._foreign = state, foreign
        self._lock = RLock()  # for opening and following
        self._seen: Followed | None = None  # the revision of the contents
        self._outdated: DatabaseError | None = None  # why the last `catch_up` failed
        self._watching: list[Callable[[], None]] = []

    # Reading

    def contents(self) -> Contents:
        """Return the contents. Raises UnavailableError if nothing is cached and the database is unavailable."""
        if self._contents is None:
            with self._lock:
                if self._contents is None:
                    state = self._state_folder()
                    cached = self._snapshot.read(None if state is None else state / CONTENTS, self.reserved)
                    try:
                        self._contents = self._updated(cached)
                    except DatabaseError as error:
                        self._outdated = error
                        if not cached.note:
                            raise _unavailable(error) from error
                        self._contents = cached
                    self._synced = self._contents.revision
        return self._contents

    def _state_folder(self) -> Path | None:
        if self._state is None:
            return None
        try:
            make_state_folder(self._state)
        except OSError as error:
            log.warning("%s can't be written (%s): the bundles are in memory only", self._state, error.strerror)
            return None
        mistakes = [self._foreign(path) for path in (self._state, *self._state.iterdir())]
        for mistake in filter(None, mistakes):  # a user who can write this folder could change tools
            log.warning("%s; the bundles are in memory only", mistake)
            return None
        return self._state

    def file_of(self, tool_id: str) -> str | None:
        return None

    def mistakes(self) -> list[Mistake]:
        """Return the rows that this version can't read."""
        return [
            Mistake(message=f"in the database: {mistake.file}: {mistake.message}")
            for mistake in self.contents().mistakes()
        ]

    def state(self) -> int:
        if self.must_ask:
            self.catch_up()
        return super().state()

    def stamp(self) -> Hashable:
        return None if self._contents is None else self._contents.revision

    @property
    def must_ask(self) -> bool:
        return not self._watching

    # Synchronization

    def catch_up(self) -> None:
        self.contents()
        self._try(self._follow_changes)

    def require_current(self) -> None:
        if self._outdated is not None:
            raise _unavailable(self._outdated)

    def _try(self, job: Callable[[], None]) -> None:
        """Run `job`, which loads changes. If the database is unavailable, the last known state remains."""
        try:
            job()
            self._outdated = None
        except DatabaseError as error:
            self._outdated = error

    def sync(self) -> bool:
        before = self._synced
        self.contents()
        self._try(self._follow_changes)
        self._save()
        self._synced = self.contents().revision
        return before != self._synced

    def watch(self, call: Callable[[], None]) -> None:
        def notified(detail: str) -> None:
            is_known = detail.isdecimal() and self._seen is not None and int(detail) <= self._seen.revision
            if not is_known:
                call()

        self._watching.append(self._database.on_change(TOPIC, notified))

    def reap(self) -> list[str]:
        return [] if self._database.is_away else super().reap()

    def _follow_changes(self) -> None:
        """Check for changes with one statement, and read them. Raises DatabaseError."""
        ((born, revision),) = self._database.read(lambda work: work.execute("SELECT born, revision FROM bundle_store"))
        if Followed(born, revision) != self._seen:
            self._follow()

    def _follow(self) -> None:
        """Load all changes. Raises DatabaseError."""
        with self._lock:
            self._contents = self._updated(self.contents())

    def _updated(self, known: Contents) -> Contents:
        base = followed(known.note)
        changes = self._database.read(lambda work: read_changes(work, base, known.known_overlay is None), snapshot=True)
        return known if changes.is_empty() else self._apply(known, changes)

    def _apply(self, known: Contents, changes: TableChanges) -> Contents:
        change = ContentsChange(known, self.reserved)
        apply_changes(change, changes)
        self._snapshot.count(change.files_changed + changes.has_switches)
        self._seen = changes.to
        return change.done()

    # Other

    def _shared_key(self) -> bytes | None:
        try:
            return self._database.read(lambda work: work.execute("SELECT key FROM bundle_store"))[0][0]
        except DatabaseError:
            return None

    def close(self) -> None:
        for forget in self._watching:
            forget()
        super().close()

    # Changing

    def change(self, job: Callable[[StoreTransaction], None], makes: bool = False) -> Any:
        built_in = {tool.id for _, tools in self.built_in for tool in tools}

        def run(work: Transaction) -> TableTransaction:
            changing = TableTransaction(work, built_in)
            job(changing)
            changing.finish()
            return changing

        try:
            done = self._database.write(run)
        except DatabaseError as error:
            raise _unavailable(error) from error
        except UnicodeEncodeError as error:
            raise InvalidError("a name contains a lone surrogate") from error
        if done.has_changed:
            self._apply_own(done.changes)
        return done.result

    def _apply_own(self, changes: TableChanges) -> None:
        """Load our own change, so that its author can read it. Errors are logged, since the change is committed."""
        try:
            with self._lock:
                known = self.contents()
                if followed(known.note) == changes.base:
                    self._contents = self._apply(known, changes)
                else:
                    self._follow()
        except (UnavailableError, DatabaseError) as error:
            log.warning("changed bundles could not be loaded yet: %s", error)


def _unavailable(error: DatabaseError) -> UnavailableError:
    if isinstance(error, ChangeUnknownError):
        return UnavailableError(REPEAT, UNKNOWN_CHANGE)
    return UnavailableError(str(error), AWAY if isinstance(error, DatabaseAwayError) else REFUSED)
