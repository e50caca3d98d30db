"""Find the file that a server's command would start, and compare it with the trusted file. Nothing is started.

A command of a project is trusted together with the file that it resolves to. `why_changed` tells whether the file must
be confirmed again, because a file in the project has changed or because other users can replace the file.
"""

import os
import re
import stat
import sys
from collections.abc import Sequence
from importlib import invalidate_caches
from importlib.machinery import PathFinder
from pathlib import Path

import msgspec

from onetool.core.file_facts import digest_of, is_foreign_owner, is_writable_by_others

SAFE_PATH = "PYTHONSAFEPATH"
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*[a-z]?(?:\.exe)?|py(?:\.exe)?", re.IGNORECASE)


def find_program(command: str, search_path: str | None, folder: str) -> str | None:
    """Return the path of a command, or None if it is neither on the PATH nor beside our own Python.

    `search_path` is the PATH of the server. Relative paths are relative to its working folder, `folder`. Empty entries
    of the PATH, which shells treat as the current folder, are ignored.
    """
    import shutil  # most configs don't need it

    if os.path.dirname(command):
        return os.path.join(folder, os.path.expanduser(command))
    parts = (os.defpath if search_path is None else search_path).split(os.pathsep)
    places = [os.path.join(folder, part) for part in parts if part]
    return shutil.which(command, path=os.pathsep.join([*places, os.path.dirname(sys.executable)]))


def canonical_path(path: str, project: str) -> str:
    """Return a path that doesn't depend on symbolic links to the project. Links inside the project are kept."""
    path, real = os.path.normpath(path), os.path.realpath(project)
    for root in (os.path.normpath(project), real):
        if _is_below(path, root):
            return os.path.normpath(real + os.sep + path[len(root) :])
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """The file that a command resolves to."""

    path: str
    real: str  # `path` without symbolic links
    in_project: bool = False  # `path` or `real` is in the project
    digest: str = ""  # of the file, if `real` is in the project
    writable: str = ""  # the file, link or folder on the way to it that other users can write

    def __str__(self) -> str:
        notes = [f"links to {self.real}"] if self.real != self.path else []
        notes += ["in this project"] if self.in_project else []
        notes += [f"other users can write {self.writable}"] if self.writable else []
        return f"{self.path} ({', '.join(notes)})" if notes else self.path


class ServerProgram(msgspec.Struct, frozen=True, kw_only=True):
    """The command of a project's server as written, with the program that it resolves to."""

    command: str
    search_path: str | None = None  # the PATH in its `env`
    folder: str
    module: str | None = None  # NAME of `python -m NAME`
    has_module: bool = False  # Python finds the module in the folder
    is_safe_path: bool = False  # Python doesn't search the folder
    program: Program | None = None  # None if not found

    def is_written_like(self, other: "ServerProgram") -> bool:
        """Return whether both commands are written the same, whatever they resolve to."""
        mine, theirs = ((server.command, server.search_path, server.folder, server.module) for server in (self, other))
        return mine == theirs

    def now(self, project: str) -> "ServerProgram":
        """Return this command with the program that it resolves to now."""
        search_path = os.environ.get("PATH") if self.search_path is None else self.search_path
        found = find_program(self.command, search_path, self.folder)
        return msgspec.structs.replace(self, program=found and program_at(found, project))


def program_at(path: str, project: str) -> Program | None:
    """Return the program at this path, or None if there is no file."""
    real, inside = os.path.realpath(path), os.path.realpath(project)
    try:
        os.stat(path)
        writable = _writable_by_others(path)
    except OSError:
        return None
    path = canonical_path(path, project)
    return Program(
        path=path,
        real=real,
        in_project=_is_below(path, inside) or _is_below(real, inside),
        digest=digest_of(Path(real)) if _is_below(real, inside) else "",
        writable=writable and canonical_path(writable, project),
    )


def _writable_by_others(path: str) -> str:
    """Return the first of the file, its links and their parent folders that other users can write, or ""."""
    pending, seen = [path], set[str]()
    while pending:
        place = pending.pop()
        if place in seen:
            continue
        seen.add(place)
        status, folder = os.lstat(place), os.path.dirname(place)
        pending.append(folder)
        if is_foreign_owner(status):
            return place
        if stat.S_ISLNK(status.st_mode):  # the mode of a link is meaningless
            pending.append(os.path.join(folder, os.readlink(place)))
        elif is_writable_by_others(status) and not (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
            return place
    return ""


def why_changed(trusted: Program | None, now: Program | None) -> str | None:
    """Return why a program has to be confirmed again, or None."""
    if now is None or now == trusted:
        return None
    if now.writable and (trusted is None or (trusted.writable, trusted.real) != (now.writable, now.real)):
        return f"starts {now.path}, which is not safe: other users can write {now.writable}"
    if now.in_project and (trusted is None or msgspec.structs.replace(trusted, writable=now.writable) != now):
        is_known = trusted is not None and trusted.path == now.path
        return f"starts {now.path}, which {'has changed' if is_known else 'it did not start when it was trusted'}"
    return None


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


# `python -m NAME`


def python_module(words: Sequence[str], *, sets_safe_path: bool = True) -> tuple[str, bool] | None:
    """Return NAME of a command line with `python -m NAME`, even after `env` or `uv run`, or None.

    The second value tells whether Python certainly has a safe path, by -P, -I or the variable SAFE_PATH: other programs
    may not pass the variable on, and -E ignores it.
    """
    start = next((at for at, word in enumerate(words) if _PYTHON.fullmatch(os.path.basename(word))), len(words))
    options, flags = iter(words[start + 1 :]), ""
    for word in options:
        if not word.startswith("-") or word in ("-", "--"):
            return None  # runs a script
        if word == "--check-hash-based-pycs":
            next(options, None)
        for at, option in enumerate("" if word.startswith("--") else word[1:], 2):
            if option == "m":
                is_safe = "P" in flags or "I" in flags or (sets_safe_path and start == 0 and "E" not in flags)
                return word[at:] or next(options, ""), is_safe and "$" not in flags  # a secret that isn't filled in yet
            if option == "c":
                return None
            if option in "WX":  # the value follows, or is the next word
                if not word[at:]:
                    next(options, None)
                break
            flags += option
    return None


def has_module(name: str, folder: str) -> bool:
    """Return whether `python -m NAME` would load NAME from this folder. Nothing is imported."""
    invalidate_caches()
    places, spec = [folder], None
    for part in name.split("."):
        spec = PathFinder.find_spec(part, places) if part.isidentifier() else None
        if spec is None:
            return False
        places = list(spec.submodule_search_locations or ())
    # A folder alone is not a module: Python prefers a library of that name.
    return spec is not None and (spec.loader is not None or PathFinder.find_spec("__main__", places) is not None)
