"""Where a project's packs lie, and which files they are made of: as the loader finds them, and nothing is run.

What is pinned is each place where there are packs, by its real path: also what a link in there leads to. The first
pack of a place waits for another look, and so does the place itself when it has become another one.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from onetool.config.owners import is_inside
from onetool.sources.packs.candidates import Part, parts_of

MOST_FILES = 2_000  # of packs that are looked at: more than a person writes
PACKS = "packs"  # beside the config
LINE = "Python of packs in "


class Packs(msgspec.Struct, frozen=True, kw_only=True):
    """What runs, line by line; the files that it is made of; and whether there is more that nobody has looked at."""

    lines: dict[str, str]
    files: list[Path]
    is_all: bool


def packs_at(paths: Iterable[Path], project: Path) -> Packs:
    """Of the packs at these paths."""
    lines: dict[str, str] = {}
    files: list[Path] = []
    is_all = True
    for path in paths:
        if "${" in str(path):  # what stands there then decides where it is, so that it can't be looked at
            lines[f"{LINE}{path}"], is_all = "", False
            continue
        for part in _parts(path):
            if part.place and not part.is_folder:
                lines[_line(part.place, project)] = ""
            if not part.is_folder and part.path.name != ".gitkeep":
                files.append(part.path)
            if len(files) > MOST_FILES:
                told = f"more than {MOST_FILES:,} files of packs, up to {path}: not all of them are looked at"
                return Packs(lines={**lines, told: ""}, files=files[:MOST_FILES], is_all=False)
    return Packs(lines=lines, files=files, is_all=is_all)


def own_line(folder: Path) -> str:
    """The one about packs in a project's own folder, whether there are some or not."""
    return _line(os.path.realpath(folder / PACKS), folder.parent)


def _line(place: str, project: Path) -> str:
    return f"{LINE}{place}{'' if is_inside(Path(place), project) else ' (outside of the project)'}"


def _parts(path: Path) -> Iterable[Part]:
    try:
        yield from parts_of(path)
    except OSError:  # who loads it says so
        return
