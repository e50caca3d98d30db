"""Where packs are: files and folders of the user's, and installed distributions with an entry point `onetool.packs`."""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import NamedTuple

import msgspec

GROUP = "onetool.packs"
HOME = os.path.realpath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))  # where we are installed
LONGEST_FILE = 1024 * 1024


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """Something that may be a pack: a file to run, or a module to import."""

    name: str  # unless the module says otherwise
    origin: str  # what to call it in a complaint
    file: Path | None = None
    module: str | None = None


def in_paths(paths: Iterable[Path]) -> Iterator[Candidate]:
    """A file, or a folder with an `__init__.py`, is a pack; any other folder holds packs."""
    for path in paths:
        if path.is_dir() and not (path / "__init__.py").exists():
            yield from in_paths(_inside(path))
        else:
            file = path / "__init__.py" if path.is_dir() else path
            yield Candidate(name=path.stem, origin=str(file), file=file)


def _inside(folder: Path) -> list[Path]:
    """What in a folder may be a pack: modules and packages, but nothing private and no tests."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.name[0] not in "._"
        and not path.stem.startswith("test_")
        and ((path.suffix == ".py" and path.is_file()) or (path / "__init__.py").is_file())
    )


class Part(NamedTuple):
    """A file or a folder that packs may be made of."""

    path: Path
    place: str  # where it really is: the path of the packs, or what a link in there leads to; empty for what is no pack
    is_folder: bool


def parts_of(path: Path) -> Iterator[Part]:
    """All that packs at this path are made of, and what lies beside them. Raises OSError where it can't be listed.

    Links are followed where importing would: to a pack, and whatever lies in a package. Bytecode that Python keeps is
    left out: nobody has to have seen it, because it is not read (see `take_source`).
    """
    place = os.path.realpath(path)
    holds_packs = path.is_dir() and not (path / "__init__.py").exists()
    if holds_packs:
        yield Part(path, "", True)
    packs = set(_inside(path)) if holds_packs else {path}
    waiting = [(one, place if one in packs else "") for one in (sorted(path.iterdir()) if holds_packs else [path])]
    waiting.reverse()
    seen: set[tuple[int, int]] = set()
    while waiting:
        part, place = waiting.pop()
        found = _part(part, place, seen)
        if found is not None:
            yield found
            if found.is_folder:
                waiting += [(part / name, found.place) for name in sorted(_listed(part), reverse=True)]


def _part(path: Path, place: str, seen: set[tuple[int, int]]) -> Part | None:
    """None for what is not there, was there already, or is no pack's."""
    if os.path.islink(path):
        if not place:
            return None
        real = os.path.realpath(path)
        place = place if real == place or real.startswith(os.path.join(place, "")) else real
    try:
        status = os.stat(path)
    except OSError:  # it leads nowhere, or nobody may look
        return None
    if not S_ISDIR(status.st_mode):
        return Part(path, place, False) if S_ISREG(status.st_mode) and not _is_kept_bytecode(path) else None
    if (status.st_dev, status.st_ino) in seen:
        return None
    seen.add((status.st_dev, status.st_ino))
    return Part(path, place, True)


def _listed(folder: Path) -> list[str]:
    """Nothing where we may not look: then nothing in there can be imported, and the rest is looked at."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _is_kept_bytecode(path: Path) -> bool:
    """`__pycache__/name.cpython-311.pyc`. A plain `name.pyc` is a module of its own."""
    return path.parent.name == "__pycache__" and path.suffix == ".pyc" and "." in path.stem


def installed() -> Iterator[Candidate]:
    """Entry points of installed distributions.

    Not by importlib.metadata, whose import alone takes longer than all of our start: only files that name our group
    are parsed. The folder that one stands in is often on the path, and nothing is installed there, but us perhaps.
    """
    folders = dict.fromkeys(os.path.realpath(folder) for folder in sys.path)
    here = os.path.realpath("")
    if here != HOME:
        folders.pop(here, None)
    for folder in folders:
        for file in _entry_point_files(folder):
            origin = os.path.basename(os.path.dirname(file))
            for name, module in _entries(file):
                yield Candidate(name=name, origin=f"{origin}: {module}", module=module)


def _entry_point_files(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder or ".") as entries:
            yield from (
                os.path.join(entry.path, "entry_points.txt")
                for entry in entries
                if entry.name.endswith((".dist-info", ".egg-info"))
            )
    except OSError:
        return


def _entries(file: str) -> list[tuple[str, str]]:
    try:
        if not os.path.isfile(file):  # a pipe would keep us waiting
            return []
        with open(file, "rb") as stream:
            text = stream.read(LONGEST_FILE)
    except OSError:
        return []
    if GROUP.encode() not in text:
        return []
    from configparser import ConfigParser, Error

    parser = ConfigParser(delimiters=("=",), interpolation=None, default_section="\0")
    parser.optionxform = str  # pyright: ignore[reportAttributeAccessIssue] - names are case-sensitive
    try:
        parser.read_string(text.decode())
    except (Error, UnicodeDecodeError):
        return []
    return list(parser.items(GROUP)) if parser.has_section(GROUP) else []
