"""Moves bundles between the folder of a home and the database. The index of neither is moved: each makes its own."""

from contextlib import closing
from pathlib import Path

from onetool.app.bundle_runtime import foreign_file
from onetool.app.bundles import FOLDER
from onetool.database import DatabaseError, ReplicaDatabase
from onetool.database.moving import LeftBehind, Moved, MoveOptions
from onetool.sources.bundles.database import DatabaseStore
from onetool.sources.bundles.errors import BundleError
from onetool.sources.bundles.files.store import FileStore
from onetool.sources.bundles.rules import MOST_TOOLS, StoreRules
from onetool.sources.bundles.transfer import export_bundles, import_bundles


def count(database: ReplicaDatabase) -> int:
    return database.read(lambda work: work.execute("SELECT count(*) FROM bundles")[0][0])


def import_folder(home: Path, database: ReplicaDatabase, options: MoveOptions) -> Moved:
    """Files that others could have written are left, as they are never used."""
    if not (home / FOLDER).is_dir():
        return Moved()
    return _moved(_files(home, options), DatabaseStore(database, max_tools=_most(options)), options, str(home / FOLDER))


def export_folder(database: ReplicaDatabase, home: Path, options: MoveOptions) -> Moved:
    return _moved(DatabaseStore(database), _files(home, options), options, "bundles in the database")


def _files(home: Path, options: MoveOptions) -> FileStore:
    return FileStore(home / FOLDER, max_tools=_most(options), foreign=foreign_file)


def _most(options: MoveOptions) -> int:
    return MOST_TOOLS if options.config is None else options.config.bundles.max_tools


def _moved(source: StoreRules, target: StoreRules, options: MoveOptions, place: str) -> Moved:
    with closing(source), closing(target):
        try:
            return import_bundles(target, export_bundles(source), options.force, options.progress)
        except BundleError as error:
            if isinstance(error.__cause__, DatabaseError):  # it is told for all stores in one way
                raise error.__cause__ from None
            return Moved(left=(LeftBehind(place, str(error)),))
