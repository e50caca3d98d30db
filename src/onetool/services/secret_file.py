"""Writes the secrets file: one line per secret, readable only by its owner, replaced atomically.

Only the line of the changed secret is touched: everything else in the file stays.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from onetool.core.flock import lock_beside
from onetool.core.os_files import draft_of, write_new
from onetool.core.state_folders import IGNORE, IGNORED, make_home

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Check = Callable[[Path], None]
"""Checks the new file before it replaces the old one; raises ValueError if it is wrong."""


class SecretExistsError(ValueError):
    """A secret of that name exists already."""


def put_secret(
    file: Path, name: str, value: str, check: Check, hosts: Sequence[str] = (), *, new_only: bool = False
) -> None:
    """Add or replace a secret, which `hosts` restricts to these hosts.

    With `new_only`, an existing name raises SecretExistsError. A value that refers to another file is refused, since it
    may come from a request.
    """
    if value.startswith("${file:"):
        raise ValueError("A value that begins with ${file: must be written into the file by hand")
    entry = {"value": value, "hosts": list(hosts)} if hosts else value
    line = f"{name}: {json.dumps(entry)}\n"  # JSON is YAML
    with _locked(file):
        if file.parent.name == ".onetool" and not file.exists():
            # Hide the file from git, if `onetool init` has not done so.
            own_name = "" if file.name == "secrets.yaml" else f"{file.name}\n.{file.name}.*\n"
            with suppress(OSError):
                write_new(file.with_name(IGNORE), IGNORED + own_name)
        lines = _lines(file)
        if new_only and _first_line_of(name, lines) is not None:
            raise SecretExistsError(f"{name} already exists")
        at = _line_of(name, lines)
        _write(file, [*lines, line] if at is None else [*lines[:at], line, *lines[at + 1 :]], check)


def drop_secret(file: Path, name: str, check: Check) -> bool:
    """Remove a secret. Return whether it existed."""
    if not file.exists():
        return False
    with _locked(file):
        lines = _lines(file)
        at = _line_of(name, lines)
        if at is not None:
            _write(file, [*lines[:at], *lines[at + 1 :]], check)
        return at is not None


def has_secret(file: Path, name: str) -> bool:
    """Return whether the file has the name now."""
    return _first_line_of(name, _lines(file)) is not None


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    make_home(file.parent)
    with lock_beside(file):
        yield


def _lines(file: Path) -> list[str]:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    # Not `splitlines`: U+2028 and other separators may be part of a value.
    return [f"{line}\n" for line in text.removesuffix("\n").split("\n")] if text else []


def _first_line_of(name: str, lines: list[str]) -> int | None:
    return next((index for index, line in enumerate(lines) if re.match(rf"['\"]?{name}['\"]?\s*:", line)), None)


def _line_of(name: str, lines: list[str]) -> int | None:
    """Return the index of a secret's line. Raises ValueError for a value over several lines."""
    at = _first_line_of(name, lines)
    if at is not None and (re.search(r":\s*[|>]", lines[at]) or (lines[at + 1 : at + 2] and lines[at + 1][0] in " \t")):
        raise ValueError(f"{name} has several lines in the file; edit it by hand")
    return at


def _write(file: Path, lines: list[str], check: Check) -> None:
    file = file.resolve()  # a link stays a link
    with draft_of(file, "".join(lines).encode()) as draft:
        check(draft)
        draft.replace(file)
