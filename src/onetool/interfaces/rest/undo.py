"""Removed config blocks, kept in memory for ten minutes so that they can be restored. They may contain secrets."""

from collections.abc import Callable
from secrets import token_urlsafe
from time import monotonic
from typing import NamedTuple

from onetool.core.principal import owner

UNDO_S = 600.0
MAX_KEPT = 100


class Removal(NamedTuple):
    """A removed block, and the function that restores it in the file's text."""

    name: str
    owner: str
    until: float
    restore: Callable[[str], str]


class Removals:
    """Removals by id. Only the caller who removed a block can restore it."""

    def __init__(self) -> None:
        self._kept: dict[str, Removal] = {}

    def add(self, name: str, restore: Callable[[str], str]) -> str:
        """Keep a removal and return its id. Drops the oldest one if there are too many."""
        now = monotonic()
        fresh = [(id, one) for id, one in [*self._kept.items()] if one.until > now]
        self._kept = dict(fresh[1 - MAX_KEPT :])
        id = token_urlsafe(16)
        self._kept[id] = Removal(name, owner(), now + UNDO_S, restore)
        return id

    def get(self, id: str) -> Removal | None:
        found = self._kept.get(id)
        return found if found is not None and found.owner == owner() and found.until > monotonic() else None

    def drop(self, id: str) -> None:
        self._kept.pop(id, None)
