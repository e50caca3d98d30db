"""Chooses the operations of a document to import: by patterns, tags, and names of operations."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple

from onetool.core.text import did_you_mean
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.openapi.operation import Operation

MAX_SHOWN_TAGS = 10


class Selection(NamedTuple):
    """What to import: several values of one field add up, and each field narrows down the others. Empty: all."""

    only: tuple[str, ...] = ()  # patterns for a path (`/users/*`) or for the name of a tool (`list-*`)
    tag: tuple[str, ...] = ()
    operation: tuple[str, ...] = ()  # an operationId, the name of a tool, or `GET /users/{id}`

    def choose(self, operations: Iterable[tuple[Operation, str]]) -> list[tuple[Operation, str]]:
        """Return the operations that are wanted. Raises InvalidError for a value that no operation has."""
        if not any(self):
            return list(operations)
        chosen: list[tuple[Operation, str]] = []
        known: dict[str, dict[str, None]] = {"only": {}, "tag": {}, "operation": {}}
        used: dict[str, set[str]] = {field: set() for field in known}
        for operation, slug in operations:
            found = {
                "only": [one for one in self.only if fnmatchcase(operation.path if one[:1] == "/" else slug, one)],
                "tag": [one for one in self.tag if one in operation.tags],
                "operation": [one for one in self.operation if one in (*operation.names, slug)],
            }
            known["tag"].update(dict.fromkeys(operation.tags))
            known["operation"].update(dict.fromkeys((*operation.names, slug)))
            for field, values in found.items():
                used[field].update(values)
            if all(found[field] for field, values in self._asdict().items() if values):
                chosen.append((operation, slug))
        for field, values in self._asdict().items():
            if unused := [one for one in values if one not in used[field]]:
                raise InvalidError(_nothing_has(field, unused[0], known[field]))
        if not chosen:
            raise InvalidError("No operation has all that is asked for: leave out one of only, tag and operation")
        return chosen


EVERYTHING = Selection()


def _nothing_has(field: str, value: str, known: Iterable[str]) -> str:
    if field == "only":
        advice = "a pattern with / at its beginning is for paths (/users/*), any other for names of tools (list-*)"
        return f"No operation matches {value[:100]!r}: {advice}"
    near = did_you_mean(value, known)
    if field == "operation":
        return f"No operation is called {value[:100]!r}: {near or 'use its operationId, or a method and a path'}"
    few = ", ".join(list(known)[:MAX_SHOWN_TAGS]) or "none"
    return f"No operation has the tag {value[:100]!r}: {near or f'there are {few}'}"
