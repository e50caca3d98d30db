"""The results of `onetool db import` and `export`: the copied and the skipped items."""

from collections.abc import Callable

import msgspec

Progress = Callable[[int, int], None]  # done, total


class LeftBehind(msgspec.Struct, frozen=True):
    """An item that was not copied."""

    what: str  # a file or a name
    why: str
    is_conflict: bool = False  # the name exists with other content; `force` replaces it


class Moved(msgspec.Struct, frozen=True):
    """The number of copied and existing items, and the skipped items.

    Remarks are information for the user about complete copies.
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
