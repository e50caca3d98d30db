"""The places of a config's values, and the mistakes found so far."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from onetool.core.errors import Mistake

if TYPE_CHECKING:
    from onetool.core.yaml import YamlDocument


class Place(NamedTuple):
    """Where a value is written. `key` is its path in its own file: `tools[2].name`."""

    file: str
    line: int
    key: str


class Piece(NamedTuple):
    """A part of the merged data that comes from one file, where it has the path `own`."""

    file: str
    own: str
    lines: Mapping[str, int]


class Places:
    """The place of every value in the merged data of several files, by its path."""

    def __init__(self, file: str, lines: Mapping[str, int] | None = None) -> None:
        self._pieces: dict[str, Piece] = {"": Piece(file, "", lines or {})}

    def put(self, path: str, piece: Piece) -> None:
        """Note that the value at this path comes from another file, or has another path in its file."""
        self._pieces[path] = piece

    def at(self, path: str) -> Place:
        """Return the place of this path; its line is that of the nearest value above, if this one has none."""
        piece_path = path
        while piece_path not in self._pieces:
            piece_path = _parent(piece_path)
        piece = self._pieces[piece_path]
        key = nearest = (piece.own + path[len(piece_path) :]).removeprefix("." if not piece.own else "\0")
        while nearest and nearest not in piece.lines:
            nearest = _parent(nearest)
        return Place(piece.file, piece.lines.get(nearest, 1), key)

    def folder(self, path: str) -> Path:
        """Return the folder of the file that contains this path: relative paths are relative to it."""
        return Path(self.at(path).file).parent


def _parent(path: str) -> str:
    """Return the path of the list or mapping that contains this one."""
    if path.endswith('"]'):
        return path[: path.rindex('["')]
    return path[: max(path.rfind("."), path.rfind("["), 0)]


class Findings:
    """Errors and warnings so far. Reading continues after a mistake, so that all are reported at once."""

    def __init__(self, places: Places | None = None) -> None:
        self.places = places or Places("")
        self.errors: list[Mistake] = []
        self.warnings: list[Mistake] = []
        self.of_tools: list[Mistake] = []  # below `tools`, where a mistake affects only its own tool
        self.unusable: set[str] = set()  # paths of values whose mistake has been reported

    @classmethod
    def of(cls, file: Path, document: "YamlDocument") -> "Findings":
        """Return findings about a file, with the problems of its keys."""
        findings = cls(Places(str(file), document.lines))
        for one in document.problems:
            mistake = findings.mistake(one.path, one.message, one.hint)
            findings.errors.append(msgspec.structs.replace(mistake, line=one.line))
        return findings

    def mistake(self, path: str, message: str, hint: str | None = None, severity: str = "error") -> Mistake:
        file, line, key = self.places.at(path)
        return Mistake(message=message, file=file, line=line, key=key or None, hint=hint, severity=severity)

    def error(self, path: str, message: str, hint: str | None = None) -> None:
        self.errors.append(self.mistake(path, message, hint))

    def warn(self, path: str, message: str, hint: str | None = None) -> None:
        self.warnings.append(self.mistake(path, message, hint, "warning"))


def in_order(mistakes: Iterable[Mistake]) -> tuple[Mistake, ...]:
    """Sort mistakes by place and remove duplicates."""
    once: dict[tuple[object, ...], Mistake] = {}
    for mistake in mistakes:
        once.setdefault((mistake.file, mistake.line, mistake.key, mistake.message), mistake)
    return tuple(sorted(once.values(), key=lambda mistake: (mistake.file or "", mistake.line or 0, mistake.key or "")))


def absolute(folder: Path, path: str) -> Path:
    """Return a path of a config, relative to the folder of the file that names it."""
    return folder / os.path.expanduser(path)
