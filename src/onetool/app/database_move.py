"""Moves the state of a home into the database, and back: `onetool db import` and `export`.

`STORES` is the table of all that can be moved. A store is one line there, with the files of a home that it stands for
and a function that imports its module.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onetool.config.file_checks import STATE
from onetool.core.errors import OneToolError
from onetool.database.moving import LeftBehind, Moved, MoveOptions, StoreMover

if TYPE_CHECKING:
    from onetool.database import ReplicaDatabase

Tell = Callable[[str, int, int], None]  # the store, how many are done, of how many


class MoveError(OneToolError):
    """Nothing was moved."""


class MovableStore(msgspec.Struct, frozen=True):
    name: str
    files: tuple[str, ...]  # of a home
    mover: Callable[[], StoreMover]


def _bundles() -> StoreMover:
    from onetool.app import bundle_move

    return bundle_move


def _results() -> StoreMover:
    from onetool.services.results import moving

    return moving


def _sessions() -> StoreMover:
    from onetool.ask.sessions import moving

    return moving


def _stats() -> StoreMover:
    from onetool.services.stats import moving

    return moving


def _audit() -> StoreMover:
    from onetool.services.audit import moving

    return moving


def _documents(name: str) -> Callable[[], StoreMover]:
    def mover() -> StoreMover:
        from onetool.app import document_move

        return getattr(document_move, name)

    return mover


# `database` has the index of the bundles in the database, which each machine makes for itself.
STORES: tuple[MovableStore, ...] = (
    MovableStore("bundles", ("bundles", "database"), _bundles),
    MovableStore("results", ("results",), _results),
    MovableStore("sessions", ("sessions",), _sessions),
    MovableStore("servers", ("servers",), _documents("servers")),
    MovableStore("logins", ("servers",), _documents("logins")),
    MovableStore("tokens", ("access_tokens",), _documents("tokens")),
    MovableStore("own_examples", ("own_examples",), _documents("own_examples")),
    MovableStore("page_sessions", ("page_sessions",), _documents("sessions_of_page")),
    MovableStore("stats", ("stats.db",), _stats),
    MovableStore("audit", ("audit",), _audit),
)


def count_stores(database: "ReplicaDatabase") -> dict[str, int]:
    """How many rows each store has in the database."""
    return {store.name: store.mover().count(database) for store in STORES}


def import_home(
    home: Path, database: "ReplicaDatabase", options: MoveOptions, tell: Tell
) -> Iterator[tuple[str, Moved]]:
    """Copy all that a home has into the database, store by store. What nobody moves is told, too."""
    for store in STORES:
        yield store.name, store.mover().import_folder(home, database, _telling(options, store.name, tell))
    known = {file for store in STORES for file in store.files}
    for name in STATE:
        if name not in known and "/" not in name and (home / name).exists():
            yield name, Moved(left=(LeftBehind(str(home / name), "this version has no way to move it"),))


def export_home(
    database: "ReplicaDatabase", home: Path, options: MoveOptions, tell: Tell
) -> Iterator[tuple[str, Moved]]:
    """Copy all that the database has into an empty folder, which is a home then. Raises MoveError for another one."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_empty = not any(home.iterdir())
    except OSError as error:
        raise MoveError(f"{home} can't be used: {error.strerror or error}") from None
    if not is_empty:
        raise MoveError(f"{home} is not empty: name a folder that is, or that is not there yet")
    for store in STORES:
        try:
            moved = store.mover().export_folder(database, home, _telling(options, store.name, tell))
        except OSError as error:
            raise MoveError(f"{error.filename or home} can't be written: {error.strerror or error}") from None
        yield store.name, moved


def _telling(options: MoveOptions, name: str, tell: Tell) -> MoveOptions:
    return msgspec.structs.replace(options, progress=lambda done, total: tell(name, done, total))
