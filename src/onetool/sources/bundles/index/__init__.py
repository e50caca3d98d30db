"""`Index` is derived from a folder of bundles: lists without opening a file. Delete it, and it comes back.

The search is in memory, and follows the index. Safe for several threads and processes.

    access      reads and transactions, with recovery of a damaged file
    database    the SQLite file, its tables, and a connection per thread
    waiting     how long a caller waits, and the errors of the index
    rows        bundles and tools as rows
    changes     what is written, in one transaction
    queries     lists by id
    feed        what is in memory follows it: the search, and all tools
    search_cache   the file that the search is ready from
"""

from collections.abc import Generator, Hashable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from onetool.core.errors import Mistake
from onetool.sources.bundles.index import queries
from onetool.sources.bundles.index.access import Fill, IndexAccess
from onetool.sources.bundles.index.changes import IndexTransaction, PathTakenError, Stamp, read_note
from onetool.sources.bundles.index.database import IndexConnection
from onetool.sources.bundles.index.feed import IndexedSearch, changes_since
from onetool.sources.bundles.index.rows import inode_out, path_out
from onetool.sources.bundles.index.search_cache import NAME
from onetool.sources.bundles.index.waiting import IndexBusyError, IndexDamagedError, IndexUnwritableError
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.searching import BundleSearch
from onetool.sources.bundles.store import Rank, SearchHit, SeenRevision, ToolChanges


class Index:
    """`file` None keeps it in memory: for a folder that can't be written, which raises UnavailableError.

    The files are the truth. `fill` brings all of them in, within one `changing()`. It is called before the first answer
    of an index that nobody has filled: the first one, or one made anew because the old one was deleted or damaged. That
    happens in the thread that asks, in each that asks meanwhile, and again after it has failed.
    """

    def __init__(self, file: Path | None, fill: Fill | None = None) -> None:
        self._access = IndexAccess(file, fill)
        self._search = IndexedSearch(None if file is None else file.with_name(NAME))

    # Writing

    @contextmanager
    def changing(self) -> Generator[IndexTransaction]:
        """One transaction: all or nothing. Raises UnavailableError; IndexDamagedError, if the index must be rebuilt."""
        with self._access.transaction() as database:
            yield IndexTransaction(database)

    # Reading: see Store

    def bundle(self, id: str) -> Bundle | None:
        return self._access.read(lambda connection: queries.bundle(connection.database, id), is_single=True)

    def bundles(
        self, ids: Iterable[str] = (), include_disabled: bool = False, after: str | None = None, limit: int = 100
    ) -> list[Bundle]:
        wanted = set(ids)
        return self._access.read(
            lambda connection: queries.bundles(connection.database, wanted, include_disabled, after, limit)
        )

    def tool(self, bundle_id: str, slug: str, version: str) -> Tool | None:
        return self._access.read(
            lambda connection: queries.tool(connection.database, bundle_id, slug, version), is_single=True
        )

    def versions(self, bundle_id: str, slug: str) -> list[Tool]:
        return self._access.read(lambda connection: queries.versions(connection.database, bundle_id, slug))

    def tools(
        self,
        tags: Iterable[str] = (),
        bundle_ids: Iterable[str] = (),
        include_disabled: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Tool]:
        some, of = set(tags), set(bundle_ids)
        return self._access.read(
            lambda connection: queries.tools(connection.database, some, of, include_disabled, after, limit)
        )

    def search(
        self, query: str, include_disabled: bool = False, after: Rank | None = None, limit: int = 100
    ) -> list[SearchHit]:
        def question(connection: IndexConnection) -> list[SearchHit]:
            return self._search.search(connection, query, include_disabled, after, limit)

        return self._access.read(question)

    def searched(self) -> BundleSearch:
        """The words of all tools, in step with the index."""
        return self._access.read(self._search.current)

    def everything(self) -> tuple[list[Bundle], Iterator[Tool]]:
        """All bundles and tools in one snapshot."""

        def question(connection: IndexConnection) -> tuple[list[Bundle], list[Tool]]:
            found = changes_since(connection, None)
            return found.bundles, [known.tool() for known in found.tools]

        bundles, tools = self._access.read(question)
        return bundles, iter(tools)

    def changes(self, seen: SeenRevision | None) -> ToolChanges:
        return self._access.read(lambda connection: changes_since(connection, seen))

    def path_of(self, tool_id: str) -> str | None:
        asked = "SELECT path FROM files JOIN tools ON tool = no WHERE id = ?"
        found = self._access.read(lambda connection: connection.database.execute(asked, (tool_id,)).fetchone())
        return None if found is None else path_out(found[0])

    def mistakes(self) -> list[Mistake]:
        asked = "SELECT path, reason FROM files WHERE reason IS NOT NULL ORDER BY path"
        found = self._access.read(lambda connection: connection.database.execute(asked).fetchall())
        return [Mistake(file=path_out(path), message=reason) for path, reason in found]

    def switches(self) -> str:
        """What `IndexTransaction.built_in` was given as `others`."""
        asked = "SELECT value FROM meta WHERE key = 'switches'"
        return self._access.read(lambda connection: connection.database.execute(asked).fetchone()[0], is_single=True)

    def noted(self, key: str) -> str | None:
        """What `IndexTransaction.note` was given last."""
        return self._access.read(lambda connection: read_note(connection.database, key), is_single=True)

    # Keeping in step

    def stamps(self) -> dict[str, Stamp]:
        """The stamps of all known files, broken ones included."""
        asked = "SELECT path, mtime_ns, size, inode FROM files"
        found = self._access.read(lambda connection: connection.database.execute(asked).fetchall())
        new = tuple.__new__  # there may be very many: each step counts
        return {
            path_out(path): new(Stamp, (mtime_ns, size, inode if inode >= 0 else inode_out(inode)))
            for path, mtime_ns, size, inode in found
        }

    def state(self) -> int:
        """A number that grows with every change by any process, and when the index is made anew."""
        return self._access.revision()

    def stamp(self) -> Hashable:
        """Differs after every change by anybody. It never blocks; None where only `state` tells."""
        return self._access.stamp()

    def close(self) -> None:
        self._access.close()


__all__ = [
    "Index",
    "IndexBusyError",
    "IndexDamagedError",
    "IndexTransaction",
    "IndexUnwritableError",
    "PathTakenError",
    "Stamp",
]
