"""Copies all state from one place to another, for `onetool db import` and `export`.

A place is a database and, for `state.db`, the folder with the bundles beside it. Tables are copied unchanged. Documents
are decrypted, and encrypted for the target. Tokens revoked in either place stay revoked, and sessions ended in either
place stay ended.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from math import inf
from pathlib import Path
from typing import NamedTuple

import msgspec

from onetool.app import bundles
from onetool.app.bundle_runtime import foreign_file
from onetool.app.documents import COPIED, DocumentKind, documents_in
from onetool.config import Config
from onetool.core.errors import OneToolError
from onetool.core.state_folders import STATE_FILE, make_state_folder
from onetool.database import Database, DatabaseError
from onetool.database.copying import Table, all_tables, copy_table, count_rows
from onetool.database.documents import Documents
from onetool.database.encryption import SealError
from onetool.database.moving import LeftBehind, Moved, Progress
from onetool.database.sqlite import SqliteDatabase
from onetool.services.access_tokens import count_tokens, join_tokens, make_marker
from onetool.services.journal.takeover import Takeover
from onetool.services.page_sessions import read_session_state
from onetool.sources.bundles.errors import BundleError
from onetool.sources.bundles.store.copy import export_bundles, import_bundles
from onetool.sources.bundles.store.rows import count_bundles
from onetool.sources.bundles.store.store import BundleStore, database_store, folder_store
from onetool.sources.mcp_servers.server_cache import count_approved

Tell = Callable[[str, int, int], None]  # the store, the number of copied items, the total
MAX_LOCK_S = 10.0  # seconds to wait for replicas that change the same document
OTHER = "the target has different content under this name"
OTHER_KEY = (
    "The audit log keeps its own key, and the copied lines have another key: `onetool audit --args` doesn't find them."
)

# Tables about running processes, tables that are copied in another way, and tables that belong to one database.
NOT_COPIED = {
    "onetool_migrations",
    "counters",
    "documents",
    "audit_key",
    "stats_writers",
    "rates",
    "replicas",
    "mcp_sessions",
    "mcp_tasks",
}
STORE_NAMES = {
    "ask": "sessions",
    "events": "journal",
    "audit": "journal",
    "stats": "journal",
}  # by first word


class CopyError(OneToolError):
    """The copy failed before anything was copied."""


class Place(NamedTuple):
    """A database, and the folder of bundles stored as files; None if bundles are rows of the database or missing."""

    database: Database
    folder: Path | None

    @property
    def has_bundles(self) -> bool:
        return self.database.is_shared if self.folder is None else (self.folder / bundles.FOLDER).is_dir()

    def bundles(self, config: Config) -> BundleStore:
        limit = config.bundles.max_tools
        if self.folder is None:
            return database_store(self.database, max_tools=limit)
        return folder_store(self.folder / bundles.FOLDER, max_tools=limit, foreign=foreign_file, database=self.database)


def has_state(folder: Path) -> bool:
    """Return whether a folder is an export or a home with any state."""
    return (folder / STATE_FILE).exists() or (folder / bundles.FOLDER).is_dir()


@contextmanager
def open_place(path: Path, file: Path | None = None) -> Iterator[Place]:
    """Open a home, an export, or a copy of a `state.db`. `file` is the database of a home, if stored elsewhere."""
    folder = path if path.is_dir() else None
    with closing(SqliteDatabase(file or (path if folder is None else path / STATE_FILE), is_source=True)) as database:
        yield Place(database, folder)


@contextmanager
def open_export(folder: Path) -> Iterator[Place]:
    """Create a folder for an export, which can be used as a home. Raises CopyError if it isn't empty."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_empty = not any(folder.iterdir())
        if is_empty:
            make_state_folder(folder)  # before it contains a file
    except OSError as error:
        raise CopyError(f"{folder} can't be used: {error.strerror or error}") from None
    if not is_empty:
        raise CopyError(f"{folder} is not empty: name an empty folder, or one that doesn't exist yet")
    with open_place(folder) as place:
        place.database.write(lambda work: None)  # creates the database even if there is nothing to copy
        yield place
    for lock in folder.glob(f".{STATE_FILE}.*.lock"):  # no other process uses the folder yet
        lock.unlink()


def count_stores(database: Database, config: Config) -> dict[str, int | None]:
    """Count the items of each store; None for a store that is damaged or can't be decrypted here."""
    sql = "SELECT kind, count(*) FROM documents GROUP BY kind"
    kinds = dict(database.read(lambda work: work.execute(sql)))
    counts: dict[str, int | None] = {"bundles": count_bundles(database)} if database.is_shared else {}
    counts |= {kind: kinds.get(kind, 0) for kind in COPIED}
    counts |= _count_in(documents_in(database, "tokens", config, "never"), count_tokens, ("tokens", "revoked_tokens"))
    counts |= _count_in(documents_in(database, "servers", config, "never"), count_approved, ("approvals", "pins"))
    for name, tables in _stores().items():
        counts[name] = sum(count_rows(database, table.name) for table in tables)
    return counts


def _count_in(
    documents: Documents, count: Callable[[bytes], tuple[int, int]], names: tuple[str, str]
) -> dict[str, int | None]:
    """Sum two counts over all documents of a kind."""
    try:
        keys = documents.keys()
        found = [count(body) for key in keys if (body := documents.read(key)) is not None]
    except (SealError, TypeError, ValueError, RecursionError):
        return dict.fromkeys(names)
    return {names[0]: sum(one for one, _ in found), names[1]: sum(other for _, other in found)}


def copy_state(
    source: Place, target: Place, config: Config, tell: Tell, *, force: bool = False
) -> Iterator[tuple[str, Moved]]:
    """Copy everything, store by store. Existing values stay, unless `force` replaces them."""
    one, other = source.database, target.database
    yield "bundles", _copy_bundles(source, target, config, force, partial(tell, "bundles"))
    if target.folder is not None and documents_in(one, "tokens", config, "never").keys():
        make_marker(target.folder)  # before the first token is stored
    for kind in COPIED:
        yield kind, _copy_documents(one, other, kind, config, force, partial(tell, kind))
    children = [table for table in all_tables() if table.parent]
    for name, tables in _stores().items():
        done = Moved()
        if name == "journal":
            Takeover(one).finish(max_seconds=inf)  # then rows are found that were copied before
            done = _copy_audit_key(one, other)
        for table in tables:
            of_table = [child for child in children if child.parent == table.name]
            done += copy_table(one, other, table, of_table, force=force, progress=partial(tell, name))
        yield name, done


def _stores() -> dict[str, list[Table]]:
    """Return the tables to copy, by store, without child tables."""
    found: dict[str, list[Table]] = {}
    for table in all_tables():
        if table.parent is None and table.name not in NOT_COPIED and not table.name.startswith("bundle"):
            word = table.name.partition("_")[0]
            found.setdefault(STORE_NAMES.get(word, word), []).append(table)
    return found


def _copy_audit_key(source: Database, target: Database) -> Moved:
    """Copy the key of the audit hashes, unless the target has hashes with another key."""
    if not count_rows(source, "events"):
        return Moved()
    (table,) = [table for table in all_tables() if table.name == "audit_key"]
    is_unused = not count_rows(target, "events") and not count_rows(target, "audit")
    done = copy_table(source, target, table, (), force=is_unused, progress=lambda done, total: None)
    return Moved(remarks=(OTHER_KEY,) if done.left else ())


def _copy_bundles(source: Place, target: Place, config: Config, force: bool, progress: Progress) -> Moved:
    """Copy bundles, except files that other users could have written: those are never used."""
    if not source.has_bundles:
        return Moved()
    with closing(source.bundles(config)) as of_source, closing(target.bundles(config)) as of_target:
        try:
            return import_bundles(of_target, export_bundles(of_source), force, progress)
        except BundleError as error:
            if isinstance(error.__cause__, DatabaseError):  # callers handle it for all stores
                raise error.__cause__ from None
            return Moved(left=(LeftBehind("bundles", str(error)),))


# Documents


def _copy_documents(
    source: Database, target: Database, kind: DocumentKind, config: Config, force: bool, progress: Progress
) -> Moved:
    here = documents_in(source, kind, config, "never", is_source=True)
    there = documents_in(target, kind, config, "never")
    keys, done = here.keys(), Moved()
    for number, key in enumerate(keys, 1):
        try:
            done += _copy_document(kind, here, there, key, force)
        except (SealError, TimeoutError) as error:
            done += Moved(left=(LeftBehind(here.describe(key), str(error)),))
        except (TypeError, ValueError, RecursionError):
            done += Moved(left=(LeftBehind(here.describe(key), "it is damaged"),))
        progress(number, len(keys))
    return done


def _copy_document(kind: DocumentKind, source: Documents, target: Documents, key: str, force: bool) -> Moved:
    if (body := source.read(key)) is None:  # deleted since the keys were read
        return Moved()
    with target.locked(key, MAX_LOCK_S) as held:
        try:
            before = held.load().body
        except SealError as error:
            if not force:
                return Moved(left=(LeftBehind(target.describe(key), str(error), is_conflict=True),))
            before = None
        problems: list[str] = []
        if kind == "tokens":
            joined, names = join_tokens(before, body, force=force)
            problems = [f"another token is called {name}" for name in names]
        elif (sessions := _join_sessions(before, body) if kind == "page_sessions" else None) is not None:
            joined = sessions
        elif before in (None, body) or force:
            joined = body
        else:
            joined, problems = before or b"", [OTHER]
        left = tuple(LeftBehind(source.describe(key), problem, is_conflict=True) for problem in problems)
        if joined == before:
            return Moved(same=0 if left else 1, left=left)
        held.write(joined)
        return Moved(1, left=left)


def _join_sessions(before: bytes | None, body: bytes) -> bytes | None:
    """Return the page's session state with the sessions ended in either place; None if their keys differ."""
    there, new = read_session_state(before), read_session_state(body)
    if there is None or new is None or there.key != new.key:
        return None
    joined = there.joining(new)
    return before if joined == there else msgspec.json.encode(joined)
