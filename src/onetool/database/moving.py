"""What it takes to move a store between a folder and a database: `onetool db import` and `export` call it.

A store has a class with `count`, `import_folder` and `export_folder` (`StoreMover`), which the table in
`app/database_move.py` names. Moving copies: what it was moved from stays as it is.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from onetool.database.connection import Database

Progress = Callable[[int, int], None]


class LeftBehind(msgspec.Struct, frozen=True):
    """Something that was not moved."""

    what: str  # a file, or a name
    why: str
    is_conflict: bool = False  # something else is there under its name; with `force` it is replaced


class Moved(msgspec.Struct, frozen=True):
    """What became of a store: how many were moved, how many were there already, and what was left."""

    moved: int = 0
    same: int = 0
    left: tuple[LeftBehind, ...] = ()


class MoveOptions(msgspec.Struct, frozen=True):
    """How to move. `config` is the config in force, for those who need a key of it."""

    force: bool = False
    progress: Progress = lambda done, total: None
    config: Any = None


class StoreMover(Protocol):
    """What a store offers. Doing it again changes nothing more."""

    def count(self, database: Database, /) -> int:
        """How many are in the database."""
        ...

    def import_folder(self, home: Path, database: Database, options: MoveOptions, /) -> Moved: ...

    def export_folder(self, database: Database, home: Path, options: MoveOptions, /) -> Moved: ...
