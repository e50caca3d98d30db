"""Chooses the operations of a document to import: by patterns, tags, and names of operations."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from onetool.core.text import did_you_mean
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.openapi.operation import Operation

MAX_SHOWN_TAGS = 10

NamedOperation = tuple[Operation, str]
"""An operation, and the slug of its tool."""


class Selection(NamedTuple):
    """What to import: several values of one field add up, and each field narrows down the others. Empty: all."""

    only: tuple[str, ...] = ()  # patterns for a path (`/users/*`) or for the name of a tool (`list-*`)
    tag: tuple[str, ...] = ()
    operation: tuple[str, ...] = ()  # an operationId, the name of a tool, or `GET /users/{id}`

    def choose(self, operations: Sequence[NamedOperation]) -> Sequence[NamedOperation]:
        """Return the operations that are wanted. Raises InvalidError for a value that no operation has."""
        chosen = operations
        for field, values in self._asdict().items():
            for value in values:
                if not any(_has(field, value, *named) for named in operations):
                    raise InvalidError(_nothing_has(field, value, operations))
            if values:
                chosen = [named for named in chosen if any(_has(field, value, *named) for value in values)]
        if any(self) and not chosen:
            raise InvalidError("No operation matches all of these options: leave out one of only, tag and operation")
        return chosen


EVERYTHING = Selection()


def _has(field: str, value: str, operation: Operation, slug: str) -> bool:
    if field == "only":
        return fnmatchcase(operation.path if value[:1] == "/" else slug, value)
    return value in (operation.tags if field == "tag" else (*operation.names, slug))


def _nothing_has(field: str, value: str, operations: Iterable[NamedOperation]) -> str:
    if field == "only":
        advice = "a pattern with / at its beginning is for paths (/users/*), any other for names of tools (list-*)"
        return f"No operation matches {value[:100]!r}: {advice}"
    if field == "operation":
        near = did_you_mean(value, {name for one, slug in operations for name in (*one.names, slug)})
        return f"No operation is called {value[:100]!r}: {near or 'use its operationId, or a method and a path'}"
    tags = list(dict.fromkeys(tag for one, _ in operations for tag in one.tags))
    few = ", ".join(tags[:MAX_SHOWN_TAGS]) or "none"
    return f"No operation has the tag {value[:100]!r}: {did_you_mean(value, tags) or f'there are {few}'}"
