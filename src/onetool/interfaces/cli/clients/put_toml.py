"""One more server in the text of a client's TOML file: put in as text, and read once more to be sure."""

import json
import re
import tomllib
from typing import Any

from onetool.interfaces.cli.clients.refused import Refused, taken


def toml_snippet(section: str, name: str, entry: dict[str, Any]) -> str:
    # A JSON text, or a list of them, is written the same way in TOML.
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()]
    return "\n".join([f"[{section}.{name}]", *lines, ""])


def put_toml(text: str, section: str, name: str, entry: dict[str, Any], *, force: bool) -> str:
    """The text with the entry in it; the same text if it is there already. Refused says why it can't be."""
    before = _read(text)
    servers = before.get(section, {})
    if not isinstance(servers, dict):
        raise Refused(f"{section} in it is no table")
    if servers.get(name) == entry:
        return text
    if name in servers and not force:
        raise taken(name)
    newline = "\r\n" if "\r\n" in text else "\n"
    table = toml_snippet(section, name, entry).replace("\n", newline)
    new = _replaced(text, section, name, table) if name in servers else _appended(text, table, newline)
    try:
        after = tomllib.loads(new)
    except tomllib.TOMLDecodeError:
        after = None
    if after != {**before, section: {**servers, name: entry}}:
        raise Refused("it is written in a way that can't be changed from here")
    return new


def _read(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Refused(f"it is not TOML: {error}") from None


def _appended(text: str, table: str, newline: str) -> str:
    if not text.strip():
        return table
    return text.rstrip("\r\n") + newline * 2 + table


def _replaced(text: str, section: str, name: str, table: str) -> str:
    """The lines of the table, and of tables in it, give way; comments above the next header belong to that one."""
    lines = text.splitlines(keepends=True)
    own = re.compile(rf"\s*\[\s*{_key(section)}\s*\.\s*{_key(name)}\s*[.\]]")
    headers = [at for at, line in enumerate(lines) if re.match(r"\s*\[", line)]
    start = next((at for at in headers if own.match(lines[at])), None)
    if start is None:
        raise Refused("it is written in a way that can't be changed from here")
    end = next((at for at in headers if at > start and not own.match(lines[at])), len(lines))
    while end > start + 1 and re.match(r"\s*(#.*)?$", lines[end - 1]):
        end -= 1
    return "".join([*lines[:start], table, *lines[end:]])


def _key(key: str) -> str:
    return rf"[\"']?{re.escape(key)}[\"']?"
