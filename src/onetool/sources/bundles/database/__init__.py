"""`DatabaseStore` keeps bundles in the database that replicas share, and reads from an index of its own.

The tables are the truth (see `tables`). Each replica has an index of its own, in SQLite, which follows them. `catch_up`
asks for their revision and takes in what is new: who must see what another replica has just written begins with it. All
others read what was taken in last: by `watch`, which hears of each change, and looks every second besides. While the
database is away, reading goes on, and changes are refused at once.

How often tools were called is counted in the database by all replicas together.
"""

import logging
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_bytes
from threading import RLock
from typing import Any, TypeVar

from onetool.core.errors import Mistake
from onetool.core.state_folders import make_state_folder
from onetool.database import (
    ChangeUnknownError,
    Database,
    DatabaseAwayError,
    DatabaseError,
    Transaction,
)
from onetool.sources.bundles.database.tables import (
    FOLLOWED,
    TOPIC,
    Followed,
    TableChanges,
    TableTransaction,
    followed,
    keep_switches,
    read_changes,
    take_in,
)
from onetool.sources.bundles.derived import DerivedBundles, WithDerived
from onetool.sources.bundles.errors import InvalidError, UnavailableError
from onetool.sources.bundles.files.disk import Foreign, anybody
from onetool.sources.bundles.files.overlay import BuiltIn
from onetool.sources.bundles.index import Index, IndexUnwritableError
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.rules import MOST_TOOLS, StoreRules, StoreTransaction
from onetool.sources.bundles.usage import UsageCounter

log = logging.getLogger("onetool.bundles")

T = TypeVar("T")
INDEX = "index.db"
KEY_BYTES = 32
MOST_TRIES = 5  # where other processes use the same index
AWAY, UNKNOWN_CHANGE, REFUSED = "database_away", "change_unknown", "database_refused"
REPEAT = (
    "the connection to the database was lost while the change was being written: nobody knows whether it happened. "
    "Send it again: the same PUT of a bundle, PATCH, or PUT of examples changes nothing more; a PUT of a tool that "
    "says then that it exists, and a DELETE that says then that nothing is there, have happened"
)


class DatabaseStore(StoreRules):
    """`state` is a folder for the index of this database alone. Where there is none, or it can't be used: memory."""

    def __init__(
        self,
        database: Database,
        state: Path | None = None,
        built_in: Sequence[tuple[Bundle, Sequence[Tool]]] = (),
        now: Callable[[], float] | None = None,
        max_tools: int = MOST_TOOLS,
        foreign: Foreign = anybody,
    ) -> None:
        super().__init__(built_in, now or self._database_time, max_tools)
        self._database = database
        self._state = state
        self._foreign = foreign
        self._lock = RLock()  # of opening and following
        self._made: Index | None = None
        self._retired: list[Index] = []
        self._seen: Followed | None = None  # what the index has followed to, as far as we know
        self._has_switches = False  # the index has the built-in bundles of this process, switched as the tables say
        self._synced = -1  # the index's state at the last sync
        self._ahead: float | None = None  # seconds that the database's clock is ahead of ours
        self.counter = UsageCounter(database, self._now)
        self._key: bytes | None = None
        self._own_key = token_bytes(KEY_BYTES)
        self._watching: list[Callable[[], None]] = []

    # Keeping in step

    def catch_up(self) -> None:
        index = self._index()
        if not self._database.is_away:
            with suppress(DatabaseError):  # then it is as it was known last
                if self._ask() != self._seen:
                    self._follow(index)

    def sync(self) -> bool:
        before, index = self._synced, self._index()
        if not self._database.is_away:
            with suppress(DatabaseError):
                self._follow(index)
                self._learn_time()
        self._synced = index.state()
        return before != self._synced

    def watch(self, call: Callable[[], None]) -> None:
        def told(detail: str) -> None:
            is_known = detail.isdecimal() and self._seen is not None and int(detail) <= self._seen.revision
            if not is_known:
                call()

        self._watching.append(self._database.on_change(TOPIC, told))

    def state(self) -> int:
        if not self._watching:
            self.catch_up()
        return super().state()

    def stamp(self) -> Hashable:
        return self._made.stamp() if self._made is not None and self._watching else None

    def reap(self) -> list[str]:
        return [] if self._database.is_away else super().reap()

    # Beside

    def file_of(self, tool_id: str) -> str | None:
        return None

    def mistakes(self) -> list[Mistake]:
        """Rows that this version can't read."""
        return [Mistake(message=f"in the database: {one.file}: {one.message}") for one in self._read(Index.mistakes)]

    def key(self) -> bytes:
        """While it can't be read, it is this process's own."""
        if self._key is not None:
            return self._key
        try:
            ((key,),) = self._database.read(lambda work: work.execute("SELECT key FROM bundle_store"))
        except DatabaseError:
            return self._own_key
        self._key = key
        return key

    def close(self) -> None:
        for forget in self._watching:
            forget()
        self.counter.close()
        for index in (*self._retired, *((self._made,) if self._made else ())):
            index.close()

    # The index

    def _read(self, question: Callable[[Index], T]) -> T:
        return question(self._index())

    def _index(self) -> Index:
        if self._made is None:
            with self._lock:
                if self._made is None:
                    self._made = self._open()
                    self._synced = self._made.state()
        return self._made

    def _open(self) -> Index:
        """Raises UnavailableError if nothing is known of the bundles, and the database is away."""
        file = self._index_file()
        if file is not None:
            try:
                return self._opened(file)
            except IndexUnwritableError as error:
                log.warning("%s; the index is kept in memory", error)
        return self._opened(None)

    def _opened(self, file: Path | None) -> Index:
        index = Index(file, lambda: self._fill(index))
        try:
            try:
                self._follow(index)
                self._learn_time()
            except DatabaseError as error:
                if index.noted(FOLLOWED) is None:
                    raise _away(error) from error
                keep_switches(index, self.built_in)
        except BaseException:
            index.close()
            raise
        return index

    def _index_file(self) -> Path | None:
        if self._state is None:
            return None
        try:
            make_state_folder(self._state)
        except OSError as error:
            log.warning("%s can't be written (%s): the index of the bundles is in memory", self._state, error.strerror)
            return None
        mistakes = [self._foreign(path) for path in (self._state, *self._state.iterdir())]
        for mistake in filter(None, mistakes):  # whoever can write the index is whoever calls its tools
            log.warning("%s; the index of the bundles is in memory", mistake)
            return None
        return self._state / INDEX

    def _fill(self, index: Index) -> None:
        try:
            self._follow(index)
        except DatabaseError as error:
            raise _away(error) from error

    # Following

    def _ask(self) -> Followed:
        clock = f"SELECT born, revision, {self._database.clock} FROM bundle_store"  # noqa: S608 - our own words
        began = time.time()
        ((born, revision, now),) = self._database.read(lambda work: work.execute(clock))
        self._ahead = now - (began + time.time()) / 2
        return Followed(born, revision)

    def _follow(self, index: Index) -> None:
        """Raises DatabaseError, and UnavailableError where it is the index that fails."""
        with self._lock:
            for _ in range(MOST_TRIES):
                base, has_switches = followed(index.noted(FOLLOWED)), self._has_switches
                found = self._database.read(lambda work: read_changes(work, base, not has_switches))  # noqa: B023
                if found.is_nothing() or self._take_in(index, found):
                    self._seen = found.to
                    self._has_switches = True
                    return
        raise UnavailableError("other processes change the index of the bundles all the time: try again")

    def _take_in(self, index: Index, found: TableChanges) -> bool:
        try:
            return take_in(index, found, self.built_in)
        except IndexUnwritableError as error:
            if index is not self._made:
                raise
            log.warning("%s; the index is kept in memory from now on", error)
            self._has_switches = False
            # Another thread may still be asking it: it is closed at the end.
            self._retired.append(index)
            self._made = self._opened(None)
            return True

    def _learn_time(self) -> None:
        """Raises DatabaseError."""
        if self._ahead is None:
            self._ask()

    def _database_time(self) -> float:
        """Replicas agree on it, whatever their clocks say. It never asks: calls are counted on the event loop."""
        return time.time() + (self._ahead or 0.0)

    # Changing

    def change(self, job: Callable[[StoreTransaction], None], makes: bool = False) -> Any:
        built_in = {tool.id for _, tools in self.built_in for tool in tools}

        def run(work: Transaction) -> TableTransaction:
            changing = TableTransaction(work, built_in)
            job(changing)
            changing.finish()
            return changing

        try:
            self._learn_time()
            done = self._database.write(run)
        except DatabaseError as error:
            raise _away(error) from error
        except UnicodeEncodeError as error:
            raise InvalidError("there is half a character in a text: it can't be the name of anything") from error
        if done.has_changed:
            self._know(done.changes)
        return done.result

    def _know(self, changes: TableChanges) -> None:
        """Take in a change of our own, so that whoever made it reads it. It counts, whatever becomes of the index."""
        try:
            index = self._index()
            with self._lock:
                if self._has_switches and self._take_in(index, changes):
                    self._seen = changes.to
                else:
                    self._follow(index)
        except (UnavailableError, DatabaseError) as error:
            log.warning("the index of the bundles could not be updated; it follows later: %s", error)


def _away(error: DatabaseError) -> UnavailableError:
    if isinstance(error, ChangeUnknownError):
        return UnavailableError(REPEAT, UNKNOWN_CHANGE)
    return UnavailableError(str(error), AWAY if isinstance(error, DatabaseAwayError) else REFUSED)


class DatabaseCatalogueStore(WithDerived, DatabaseStore):
    """With the bundles that are derived from the catalogue."""

    def __init__(
        self, database: Database, state: Path | None, built_in: BuiltIn, derived: DerivedBundles, **options: Any
    ) -> None:
        super().__init__(database, state, built_in, **options)
        self.add_derived(derived)
