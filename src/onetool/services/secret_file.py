"""Writing the secrets file: one line a secret, readable by its owner alone, whole or not at all.

Only the line of the secret that changes is touched: what a person wrote around it stays.
"""

import json
import os
import re
from contextlib import suppress
from pathlib import Path

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def put_secret(file: Path, name: str, value: str) -> None:
    """Add a secret, or replace it."""
    line = f"{name}: {json.dumps(value)}\n"  # a JSON string is a YAML string
    lines = _lines(file)
    at = _line_of(name, lines)
    if at is None:
        lines.append(line)
    else:
        lines[at] = line
    _write(file, lines)


def drop_secret(file: Path, name: str) -> bool:
    """Remove a secret; whether it was there."""
    lines = _lines(file)
    at = _line_of(name, lines)
    if at is None:
        return False
    del lines[at]
    _write(file, lines)
    return True


def _lines(file: Path) -> list[str]:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [f"{line}\n" for line in text.splitlines()]


def _line_of(name: str, lines: list[str]) -> int | None:
    """The line that sets it. A value over several lines was written by hand, and is left to hands."""
    at = next((index for index, line in enumerate(lines) if re.match(rf"['\"]?{name}['\"]?\s*:", line)), None)
    if at is not None and (re.search(r":\s*[|>]", lines[at]) or (lines[at + 1 : at + 2] and lines[at + 1][0] in " \t")):
        raise ValueError(f"{name} has several lines in the file; please edit it by hand")
    return at


def _write(file: Path, lines: list[str]) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.writelines(lines)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(file)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
