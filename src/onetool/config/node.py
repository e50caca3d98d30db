"""A value of a config file with its position, and the collection of mistakes."""

from collections.abc import Iterable
from typing import Any

import msgspec

from onetool.core.errors import Mistake
from onetool.core.text import lazy_pattern

_PLAIN_KEY = lazy_pattern(r"[\w-]+\Z")


class Broken:
    """A placeholder for a value that could not be read; its node has the mistakes."""

    def __repr__(self) -> str:
        return "BROKEN"


BROKEN = Broken()


class Node(msgspec.Struct, frozen=True):
    """A scalar, a list of nodes, or nodes by key.

    A node carries the mistakes in its text (a duplicate key, an unknown tag). The reader of the node reports them,
    because their effect differs: inside a declared tool, they invalidate only that tool.
    """

    value: Any
    file: str
    line: int
    path: tuple[str | int, ...] = ()
    trap: str | None = None  # advice if YAML 1.1 would have read another value
    written: str | None = None  # the text before secrets were filled in
    mistakes: tuple[Mistake, ...] = ()

    @property
    def key(self) -> str | None:
        """The path in its usual notation: tools[2].name"""
        return dotted(self.path) or None

    def mistake(self, message: str, hint: str | None = None, severity: str = "error") -> Mistake:
        return Mistake(message=message, file=self.file, line=self.line, key=self.key, hint=hint, severity=severity)


class Findings:
    """Errors and warnings so far. Reading continues after a mistake, so that all are reported at once."""

    def __init__(self) -> None:
        self.errors: list[Mistake] = []
        self.warnings: list[Mistake] = []

    def add(self, mistakes: Iterable[Mistake]) -> None:
        for mistake in mistakes:
            (self.warnings if mistake.severity == "warning" else self.errors).append(mistake)

    def error(self, node: Node, message: str, hint: str | None = None) -> None:
        self.add([node.mistake(message, hint)])

    def warn(self, node: Node, message: str, hint: str | None = None) -> None:
        self.add([node.mistake(message, hint, severity="warning")])


def in_order(mistakes: Iterable[Mistake]) -> tuple[Mistake, ...]:
    """Sort mistakes by place and remove duplicates, which an anchor that is used several times causes."""
    once: dict[tuple[object, ...], Mistake] = {}
    for mistake in mistakes:
        once.setdefault((mistake.file, mistake.line, mistake.message), mistake)
    return tuple(sorted(once.values(), key=lambda mistake: (mistake.file or "", mistake.line or 0, mistake.key or "")))


def dotted(path: Iterable[str | int]) -> str:
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.match(part):
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text
