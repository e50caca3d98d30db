"""Moves the state of a home into the database, and back: `onetool db import` and `export`.

`STORES`, at the end, is the table of all that can be moved. A store is one line there, with the files of a home that it
stands for and its StoreMover.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from onetool.app import bundles
from onetool.app.bundle_runtime import foreign_file
from onetool.config.file_checks import STATE
from onetool.core.errors import OneToolError
from onetool.core.state_folders import make_state_folder
from onetool.database import Database, DatabaseError
from onetool.database.moving import LeftBehind, Moved, MoveOptions, StoreMover
from onetool.sources.bundles.database import DatabaseStore
from onetool.sources.bundles.errors import BundleError
from onetool.sources.bundles.files.store import FileStore
from onetool.sources.bundles.rules import MOST_TOOLS, StoreRules
from onetool.sources.bundles.transfer import export_bundles, import_bundles

Tell = Callable[[str, int, int], None]  # the store, how many are done, of how many
PATIENCE_S = 10.0  # for replicas that change the same document
OTHER = "something else is in the database under this name"


class MoveError(OneToolError):
    """Nothing was moved."""


class MovableStore(msgspec.Struct, frozen=True):
    name: str
    files: tuple[str, ...]  # of a home
    mover: StoreMover


def count_stores(database: Database) -> dict[str, int]:
    """How many rows each store has in the database."""
    return {store.name: store.mover.count(database) for store in STORES}


def import_home(home: Path, database: Database, options: MoveOptions, tell: Tell) -> Iterator[tuple[str, Moved]]:
    """Copy all that a home has into the database, store by store. What nobody moves is told, too."""
    for store in STORES:
        yield store.name, store.mover.import_folder(home, database, _telling(options, store.name, tell))
    known = {file for store in STORES for file in store.files}
    for name in STATE:
        if name not in known and "/" not in name and (home / name).exists():
            yield name, Moved(left=(LeftBehind(str(home / name), "this version has no way to move it"),))


def export_home(database: Database, home: Path, options: MoveOptions, tell: Tell) -> Iterator[tuple[str, Moved]]:
    """Copy all that the database has into an empty folder, which is a home then. Raises MoveError for another one."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_empty = not any(home.iterdir())
        if is_empty:
            make_state_folder(home)  # before the first file is in it
    except OSError as error:
        raise MoveError(f"{home} can't be used: {error.strerror or error}") from None
    if not is_empty:
        raise MoveError(f"{home} is not empty: name a folder that is, or that is not there yet")
    for store in STORES:
        try:
            moved = store.mover.export_folder(database, home, _telling(options, store.name, tell))
        except OSError as error:
            raise MoveError(f"{error.filename or home} can't be written: {error.strerror or error}") from None
        yield store.name, moved


def _telling(options: MoveOptions, name: str, tell: Tell) -> MoveOptions:
    return msgspec.structs.replace(options, progress=lambda done, total: tell(name, done, total))


# Bundles


class BundleMover:
    """Bundles. The index of neither side is moved: each makes its own."""

    def count(self, database: Database) -> int:
        return database.read(lambda work: work.execute("SELECT count(*) FROM bundles")[0][0])

    def import_folder(self, home: Path, database: Database, options: MoveOptions) -> Moved:
        """Files that others could have written are left, as they are never used."""
        if not (home / bundles.FOLDER).is_dir():
            return Moved()
        target = DatabaseStore(database, max_tools=_most_tools(options))
        return _move_bundles(_bundle_files(home, options), target, options, str(home / bundles.FOLDER))

    def export_folder(self, database: Database, home: Path, options: MoveOptions) -> Moved:
        return _move_bundles(DatabaseStore(database), _bundle_files(home, options), options, "bundles in the database")


def _bundle_files(home: Path, options: MoveOptions) -> FileStore:
    return FileStore(home / bundles.FOLDER, max_tools=_most_tools(options), foreign=foreign_file)


def _most_tools(options: MoveOptions) -> int:
    return MOST_TOOLS if options.config is None else options.config.bundles.max_tools


def _move_bundles(source: StoreRules, target: StoreRules, options: MoveOptions, place: str) -> Moved:
    with closing(source), closing(target):
        try:
            return import_bundles(target, export_bundles(source), options.force, options.progress)
        except BundleError as error:
            if isinstance(error.__cause__, DatabaseError):  # it is told for all stores in one way
                raise error.__cause__ from None
            return Moved(left=(LeftBehind(place, str(error)),))


# `database` has the index of the bundles in the database, which each machine makes for itself.
STORES: tuple[MovableStore, ...] = (MovableStore("bundles", ("bundles", "database"), BundleMover()),)
