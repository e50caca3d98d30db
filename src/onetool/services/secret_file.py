"""Writing the secrets file: one line a secret, readable by its owner alone, whole or not at all.

Only the line of the secret that changes is touched: what a person wrote around it stays.
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
"""Looks at the draft before it takes the file's place; raises ValueError if it is not what was meant."""


class SecretExistsError(ValueError):
    """The file has a secret of that name already."""


def put_secret(
    file: Path, name: str, value: str, check: Check, hosts: Sequence[str] = (), *, new_only: bool = False
) -> None:
    """Add a secret, or replace it; with `hosts`, as one for these only.

    With `new_only` nothing is replaced: SecretExistsError if the file has the name, whoever has put it there.
    A value that would be read as the name of another file is refused: it may come from a request.
    """
    if value.startswith("${file:"):
        raise ValueError("A value that begins with ${file: can only be written into the file by hand")
    entry = {"value": value, "hosts": list(hosts)} if hosts else value
    line = f"{name}: {json.dumps(entry)}\n"  # what is JSON is YAML
    with _locked(file):
        if file.parent.name == ".onetool" and not file.exists():
            # Keep the first secret from git, if `onetool init` has not done so.
            own_name = "" if file.name == "secrets.yaml" else f"{file.name}\n.{file.name}.*\n"
            with suppress(OSError):
                write_new(file.with_name(IGNORE), IGNORED + own_name)
        lines = _lines(file)
        if new_only and _first_line_of(name, lines) is not None:
            raise SecretExistsError(f"{name} is there already")
        at = _line_of(name, lines)
        _write(file, [*lines, line] if at is None else [*lines[:at], line, *lines[at + 1 :]], check)


def drop_secret(file: Path, name: str, check: Check) -> bool:
    """Remove a secret; whether it was there."""
    if not file.exists():
        return False
    with _locked(file):
        lines = _lines(file)
        at = _line_of(name, lines)
        if at is not None:
            _write(file, [*lines[:at], *lines[at + 1 :]], check)
        return at is not None


def has_secret(file: Path, name: str) -> bool:
    """Return whether the file has the name now. What was read of it before may be old."""
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
    # Only line ends divide: U+2028 and others that `splitlines` knows may be part of somebody's value.
    return [f"{line}\n" for line in text.removesuffix("\n").split("\n")] if text else []


def _first_line_of(name: str, lines: list[str]) -> int | None:
    return next((index for index, line in enumerate(lines) if re.match(rf"['\"]?{name}['\"]?\s*:", line)), None)


def _line_of(name: str, lines: list[str]) -> int | None:
    """Return the line that sets it. A value over several lines was written by hand, and is left to hands."""
    at = _first_line_of(name, lines)
    if at is not None and (re.search(r":\s*[|>]", lines[at]) or (lines[at + 1 : at + 2] and lines[at + 1][0] in " \t")):
        raise ValueError(f"{name} has several lines in the file; please edit it by hand")
    return at


def _write(file: Path, lines: list[str], check: Check) -> None:
    file = file.resolve()  # a link stays a link
    with draft_of(file, "".join(lines).encode()) as draft:
        check(draft)
        draft.replace(file)
