"""Results of copying state: what was copied by `onetool db import` and `export`, and what was left."""

from collections.abc import Callable

import msgspec

Progress = Callable[[int, int], None]  # how many are done, of how many


class LeftBehind(msgspec.Struct, frozen=True):
    """Something that was not copied."""

    what: str  # a file, or a name
    why: str
    is_conflict: bool = False  # something else is there under its name; with `force` it is replaced


class Moved(msgspec.Struct, frozen=True):
    """The number of things that were copied, of those that were there already, and what was left. Remarks are what a
    person should know, though nothing is missing.
    """

    moved: int = 0
    same: int = 0
    left: tuple[LeftBehind, ...] = ()
    remarks: tuple[str, ...] = ()

    def __add__(self, other: "Moved") -> "Moved":
        return Moved(
            self.moved + other.moved,
            self.same + other.same,
            (*self.left, *other.left),
            (*self.remarks, *other.remarks),
        )
