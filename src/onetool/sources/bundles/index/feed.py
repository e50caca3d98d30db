"""What is in memory of an index, the search and all tools: brought up to date by what has changed since it last was.

Every row has the revision that it was written at, and what is gone stays in a table for a while. Who was away for
longer reads everything.

The search is ready at once from a file, which has what it knew of an index, and at which revision. The file is a cache:
one that is missing, damaged, somebody else's or of another index is as good as none.
"""

import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeGuard, TypeVar

import msgspec

from onetool.core.os_files import sync_file
from onetool.core.spec import ToolSpec
from onetool.sources.bundles.index.changes import KEPT_REVISIONS
from onetool.sources.bundles.index.database import IndexConnection
from onetool.sources.bundles.index.rows import read_bundle, tools_of_ids
from onetool.sources.bundles.model import Bundle, Tool, function_name, inherited, unpack_tool
from onetool.sources.bundles.names import code_name
from onetool.sources.bundles.store import BundleRows, KnownTool, Rank, SearchHit, SeenRevision, ToolChanges, ToolKind

if TYPE_CHECKING:
    from onetool.services.search.tiers import TierSearch
    from onetool.sources.bundles.searching import BundleSearch

T = TypeVar("T")
FunctionOf = Callable[[str], ToolSpec | None]
Unpack = Callable[[bytes], Tool]


def no_function(_name: str) -> None:
    """Return None: no function is known."""


NAME = "search.cache"


# What was asked for last


MOST_KEPT = 1_000


class KeptRows(Generic[T]):
    """Bundles or tools by their ids, as they are at one revision: who types letter by letter finds the same ones again,
    and to unpack a tool takes longer than to find it.
    """

    def __init__(self, read: Callable[[sqlite3.Connection, list[str]], dict[str, T]]) -> None:
        self._read = read
        self._kept: tuple[SeenRevision | None, dict[str, T]] = (None, {})

    def of(self, connection: IndexConnection, ids: list[str]) -> Mapping[str, T]:
        """Those of them that are there, and maybe others. It is asked within one snapshot."""
        if connection.is_changing:
            return self._read(connection.database, ids)
        now, (revision, kept) = _revision(connection.database), self._kept
        if revision != now or len(kept) > MOST_KEPT:
            kept = dict[str, T]()
            self._kept = (now, kept)
        if missing := [id for id in ids if id not in kept]:
            kept.update(self._read(connection.database, missing))
        return kept


# The search


LEAST_SAVED = 500  # tools, and changes: fewer are read again as quickly
SAVED_SHARE = 20  # … or one of so many


class IndexedSearch:
    """Safe for several threads."""

    def __init__(self, cache: Path | None = None, wal: str = "") -> None:
        """`cache` is the file that it is ready from, `wal` the one in which SQLite keeps what was changed last."""
        self._cache, self._wal = cache, wal
        self._found: BundleSearch | None = None  # nobody has searched yet: it needs numpy
        self._seen: tuple[int, int] | None = None  # which index, and its revision
        self._unsaved = 0  # changes
        self._functions: dict[str, ToolSpec | None] | None = None  # those whose words tools have now
        self._tools = KeptRows(tools_of_ids)
        self._lock = Lock()

    def current(self, connection: IndexConnection, function: FunctionOf = no_function) -> "TierSearch":
        """Return the search in step with what this connection sees, and with functions that tools inherit from."""
        from onetool.sources.bundles.searching import BundleSearch

        database = connection.database
        with self._lock:
            if self._found is None:
                self._found = BundleSearch()
            if connection.is_changing:  # what is not certain yet must not get in
                return self._found.current()
            born, revision = _revision(database)
            seen, self._seen = self._seen or self._saved(born), None  # should this fail
            unpack = partial(_unpack, function)
            if not _can_follow(seen, born, revision):
                self._found, self._unsaved = _read_all(database, unpack), sys.maxsize
            elif revision != seen[1]:
                self._unsaved += _read_changes(self._found, database, seen[1], unpack)
            if seen != (born, revision) or self._functions is None:
                known, names = self._functions or {}, database.execute(_FUNCTIONS).fetchall()
                self._functions = {name: known.get(name) for (name,) in names}
            self._follow_functions(self._found, database, self._functions, function)
            self._seen = (born, revision)
            current = self._found.current()
            if current.words.count >= LEAST_SAVED and self._unsaved > max(
                LEAST_SAVED, current.words.count // SAVED_SHARE
            ):
                if self._cache is not None and _sync_log(self._wal):
                    self._found.write(self._cache, born, revision)
                self._unsaved = 0
            return current

    def _follow_functions(
        self,
        found: "BundleSearch",
        database: sqlite3.Connection,
        known: dict[str, ToolSpec | None],
        function: FunctionOf,
    ) -> None:
        """Read the tools again whose function is another one now."""
        for name, before in known.items():
            if (now := function(name)) is not before:
                for (body,) in database.execute(f"{_BODIES} WHERE function = ? AND NOT built_in", (name,)):
                    found.put_tool(_unpack(function, body))
                known[name] = now

    def _saved(self, born: int) -> tuple[int, int] | None:
        from onetool.sources.bundles.searching import BundleSearch

        if self._cache is None or (found := BundleSearch.read(self._cache, born)) is None:
            return None
        revision, self._found = found
        self._functions = None
        return born, revision

    def search(
        self,
        connection: IndexConnection,
        query: str,
        include_disabled: bool,
        after: Rank | None,
        limit: int,
        function: FunctionOf = no_function,
    ) -> list[SearchHit]:
        found, hits = self.current(connection, function), list[SearchHit]()
        while True:
            wanted = limit - len(hits)
            ranks = [Rank(*rank) for rank in found.search(query, include_disabled, after, wanted)]
            tools = self._tools.of(connection, [rank.id for rank in ranks])
            # Another thread may have come with a later moment: what is not there in ours is left out.
            hits += (SearchHit(rank, tools[rank.id]) for rank in ranks if rank.id in tools)
            if len(ranks) < wanted or len(hits) >= limit:  # fewer than `limit` are the last ones
                return hits
            after = ranks[-1]


def _sync_log(wal: str) -> bool:
    """Have the last changes of the index outlive a power failure: whether that went well. Else other changes would get
    their revisions, and the cache, which knows the lost ones, would be taken for up to date.
    """
    try:
        sync_file(wal)
    except FileNotFoundError:  # they are in the index itself
        return True
    except OSError:
        return False
    return True


_BUNDLES = "SELECT body FROM bundles WHERE NOT built_in"
_TOOLS = (
    "SELECT id, bundle, slug, version, enabled, function, body FROM tools JOIN bodies USING (no) WHERE NOT built_in"
)
# As BundleRows has them: 100,000 tools come in half the time, and none becomes an object.
_EVERYTHING = """
SELECT bundle, json_array(id, slug, version, enabled, function, length(body)), body, version, enabled, function
FROM tools JOIN bodies USING (no) WHERE NOT built_in ORDER BY bundle
"""
_BODIES = "SELECT body FROM tools JOIN bodies USING (no)"
_FUNCTIONS = "SELECT DISTINCT function FROM tools WHERE function IS NOT NULL AND NOT built_in"


def changes_since(connection: IndexConnection, seen: SeenRevision | None) -> ToolChanges:
    """Of bundles and tools that are not built-in."""
    database = connection.database
    born, revision = _revision(database)
    now = None if connection.is_changing else (born, revision)  # what is not certain yet must not be taken for known
    if not _can_follow(seen, born, revision):
        every = list(_bundle_rows(database.execute(_EVERYTHING)))
        functions = frozenset(function for (function,) in database.execute(_FUNCTIONS))
        bundles = _bundles(database.execute(_BUNDLES))
        return ToolChanges(now, True, bundles, everything=every, functions=functions)
    if now is not None and seen == now:
        return ToolChanges(now, False, [])
    since = (seen[1],)
    gone = database.execute("SELECT id, is_bundle FROM gone WHERE since >= ?", since).fetchall()
    tools = _known(database.execute(f"{_TOOLS} AND since >= ?", since))
    return ToolChanges(
        now,
        False,
        _bundles(database.execute(f"{_BUNDLES} AND since >= ?", since)),
        tools,
        [id for id, is_bundle in gone if is_bundle],
        [id for id, is_bundle in gone if not is_bundle],
        functions=frozenset(row.function for row in tools if row.function is not None),
    )


def _bundle_rows(rows: Iterable[tuple[Any, ...]]) -> Iterator[BundleRows]:
    """Joined here: SQLite's own `group_concat` ends at a zero byte, up to some version."""
    for bundle_id, every in groupby(rows, itemgetter(0)):
        _, heads, bodies, *kinds = zip(*every, strict=True)
        counted = {ToolKind(*kind): size for kind, size in Counter(zip(*kinds, strict=True)).items()}
        yield BundleRows(bundle_id, counted, f"[{','.join(heads)}]", b"".join(bodies))


def _bundles(rows: Iterable[tuple[bytes]]) -> list[Bundle]:
    return [read_bundle(body) for (body,) in rows]


def _known(rows: Iterable[tuple[Any, ...]]) -> list[KnownTool]:
    return [
        KnownTool(id, bundle, code_name(slug), version, bool(enabled), function, body, 0, len(body))
        for id, bundle, slug, version, enabled, function, body in rows
    ]


def _can_follow(seen: SeenRevision | None, born: int, revision: int) -> TypeGuard[SeenRevision]:
    """Whether what has changed since then is known."""
    return seen is not None and seen[0] == born and 0 <= revision - seen[1] <= KEPT_REVISIONS


def _revision(database: sqlite3.Connection) -> SeenRevision:
    asked = "SELECT (SELECT value FROM meta WHERE key = 'born'), value FROM meta WHERE key = 'revision'"
    return database.execute(asked).fetchone()


def _unpack(function: FunctionOf, body: bytes) -> Tool:
    """Return a tool with what it leaves to its function."""
    tool = unpack_tool(body)
    name = function_name(tool)
    return tool if name is None else msgspec.structs.replace(tool, **inherited(tool, function(name)))


def _read_all(database: sqlite3.Connection, unpack: Unpack) -> "BundleSearch":
    from onetool.sources.bundles.searching import BundleSearch

    found = BundleSearch()
    for (body,) in database.execute("SELECT body FROM bundles"):
        found.put_bundle(read_bundle(body), tuple)
    for (body,) in database.execute("SELECT body FROM bodies"):
        found.put_tool(unpack(body))
    return found


def _read_changes(found: "BundleSearch", database: sqlite3.Connection, since: int, unpack: Unpack) -> int:
    """How many there were."""
    gone = database.execute("SELECT id, is_bundle FROM gone WHERE since >= ?", (since,)).fetchall()
    for id, is_bundle in gone:
        if is_bundle:
            found.drop_bundle(id, partial(_tools_of, database, id, unpack))
        else:
            found.drop_tool(id)
    for (body,) in database.execute("SELECT body FROM bundles WHERE since >= ?", (since,)).fetchall():
        bundle = read_bundle(body)
        found.put_bundle(bundle, partial(_tools_of, database, bundle.id, unpack))
    tools = database.execute("SELECT body FROM bodies WHERE since >= ?", (since,)).fetchall()
    for (body,) in tools:
        found.put_tool(unpack(body))
    return len(gone) + len(tools)


def _tools_of(database: sqlite3.Connection, bundle_id: str, unpack: Unpack) -> Iterator[Tool]:
    return (unpack(body) for (body,) in database.execute(f"{_BODIES} WHERE bundle = ?", (bundle_id,)))
