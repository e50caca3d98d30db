"""Select the operations of a document to import, by patterns, tags and names of operations."""

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from typing import NamedTuple

from onetool.core.text import did_you_mean
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.openapi.document import PART_OPTIONS
from onetool.sources.bundles.openapi.operation import Operation

MAX_PATTERNS = 100
MAX_SHOWN_TAGS = 10

NamedOperation = tuple[Operation, str]
"""An operation with the slug of its tool."""


class Selection(NamedTuple):
    """The part of a document to import. Values of a field are alternatives; all fields must match.

    Empty fields match all.
    """

    only: tuple[str, ...] = ()  # patterns for a path (`/users/*`) or for the name of a tool (`list-*`)
    tag: tuple[str, ...] = ()  # case-insensitive
    operation: tuple[str, ...] = ()  # an operationId, the name of a tool, or `GET /users/{id}`

    def choose(self, operations: Sequence[NamedOperation], check_time: Callable[[], None]) -> Sequence[NamedOperation]:
        """Return the selected operations. Raises InvalidError for a value that no operation matches."""
        if not any(self):
            return operations
        if len(self.only) > MAX_PATTERNS:
            number = f"{len(self.only):,} values of --only (over REST: only=)"
            raise InvalidError(
                f"{number}: at most {MAX_PATTERNS} patterns are taken; use * to match several operations"
            )
        patterns = [(value, re.compile(translate(value))) for value in self.only]
        chosen = set(range(len(operations)))
        for field, values in self._asdict().items():
            if not values:
                continue
            wanted = {_key(field, value) for value in values}
            used: set[str] = set()
            matching: set[int] = set()
            for number, operation in enumerate(operations):
                check_time()
                if found := wanted.intersection(_keys(field, patterns, *operation)):
                    used |= found
                    matching.add(number)
            if unused := [value for value in values if _key(field, value) not in used]:
                raise InvalidError(_no_match(field, unused[0], operations))
            chosen &= matching
        if not chosen:
            raise InvalidError(f"No operation matches all of these options: leave out one of {PART_OPTIONS}")
        return [operations[number] for number in sorted(chosen)]


EVERYTHING = Selection()


def _key(field: str, value: str) -> str:
    """Return a value in the form for comparison, in which tags and methods (`get /users`) are case-insensitive."""
    if field == "tag":
        return value.casefold()
    method, _, path = value.partition(" ")
    return f"{method.upper()} {path}" if field == "operation" and path.startswith("/") else value


def _keys(field: str, patterns: list[tuple[str, re.Pattern[str]]], operation: Operation, slug: str) -> list[str]:
    """Return the values of an operation in the form for comparison."""
    if field == "only":
        return [value for value, one in patterns if one.match(operation.path if value[:1] == "/" else slug)]
    return [_key(field, value) for value in (operation.tags if field == "tag" else (*operation.names, slug))]


def _no_match(field: str, value: str, operations: Iterable[NamedOperation]) -> str:
    if field == "only":
        advice = "a pattern with / at its beginning is for paths (/users/*), any other for names of tools (list-*)"
        return f"No operation matches {value[:100]!r}: {advice}"
    if field == "operation":
        near = did_you_mean(value, {name for operation, slug in operations for name in (*operation.names, slug)})
        advice = "use its operationId, the name of its tool, or a method and a path"
        return f"No operation is called {value[:100]!r}: {near or advice}"
    tags = list(dict.fromkeys(tag for operation, _ in operations for tag in operation.tags))
    few = ", ".join(tag[:100] for tag in tags[:MAX_SHOWN_TAGS]) or "none"
    return f"No operation has the tag {value[:100]!r}: {did_you_mean(value, tags) or f'known: {few}'}"
