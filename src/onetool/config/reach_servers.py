"""A project's servers as `onetool trust` shows them: a line for each, the values behind it, and its program."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from onetool.config.read import FILE_PLACEHOLDER, PLACEHOLDER
from onetool.sources.mcp_servers.program import ServerProgram, canonical_path, has_module, python_module

ADDRESS = "://"
UNPINNED_KEYS = {"timeout", "connect_timeout", "enabled", "disabled", "tools", "prefix", "replicate", "type"}
SHOWN_KEYS = {"command", "args", "cwd", "url", "env", "headers"}  # in the line, or as separate details
FILE_REFUSED = "${file:…} is allowed only in text that you write into the config or the secrets file by hand"
WARN = "! "  # prefix of a detail that may decide which code runs
# Any other variable may make some program load code, or connect elsewhere: GIT_SSH_COMMAND, BASH_ENV, HTTPS_PROXY.
HARMLESS = re.compile(r"TZ|LANG|LANGUAGE|LC_[A-Z]+|LOG_LEVEL|NO_COLOR|FORCE_COLOR|COLUMNS|LINES")


def pinned_block(block: Any) -> Any:
    """Return the part of a server's block that is pinned."""
    if not isinstance(block, dict):
        return block
    kept = {key: value for key, value in block.items() if key not in UNPINNED_KEYS}
    if not kept.get("pin"):
        kept.pop("pin", None)  # false is the default
    return kept


def server_line(name: str, block: Any) -> str:
    """Return a server as one line: command or URL, and the names of its variables and headers."""
    if not isinstance(block, dict):
        return f"server {name}: {text_of(block)}"
    words = [block.get("command"), *listed(block.get("args"))]
    started = shlex.join(text_of(word) for word in words if word is not None)  # quoted, to separate the words
    line = " ".join(part for part in (text_of(block["url"]) if block.get("url") else "", started) if part)
    more = [f"in {text_of(block['cwd'])}"] if block.get("cwd") else []
    more += [
        f"{key} {', '.join(map(str, block[key]))}"
        for key in ("env", "headers")
        if isinstance(block.get(key), dict) and block[key]
    ]
    if block.get("auth") is not None:
        urls = [text for text in texts_in(block["auth"]) if ADDRESS in text]
        more.append(f"auth {', '.join(urls)}".rstrip())
    return f"server {name}: {line} ({'; '.join(more)})" if more else f"server {name}: {line}"


def programs_of(
    servers: Mapping[str, Any],
    folders: Mapping[str, Path],
    project: Path,
    own_secrets: Mapping[str, Any],
    *,
    sets_safe_path: bool = True,
) -> dict[str, ServerProgram]:
    """Return the program that each command finds, in the server's folder or the project's.

    A command with a secret that the project does not set is left out, because the command is known only when the server
    starts. `sets_safe_path` means that the servers start with PYTHONSAFEPATH, as those of a project's config do.
    """
    found: dict[str, ServerProgram] = {}
    for name, block in servers.items():
        if not isinstance(block, dict) or not isinstance(block.get("command"), str):
            continue
        search_path = block["env"].get("PATH") if isinstance(block.get("env"), dict) else None
        written = (block["command"], str(folders.get(name, project)), text_of(search_path or ""))
        filled = [PLACEHOLDER.sub(lambda match: text_of(own_secrets.get(match[1], match[0])), text) for text in written]
        if any("${" in text or "\0" in text for text in filled):
            continue
        words = [filled[0], *map(text_of, listed(block.get("args")))]
        module, is_safe = python_module(words, sets_safe_path=sets_safe_path) or (None, False)
        started = ServerProgram(
            command=filled[0],
            folder=canonical_path(filled[1], str(project)),
            search_path=None if search_path is None else filled[2],
            module=module,
            has_module=module is not None and has_module(module, filled[1]),
            is_safe_path=is_safe,
        )
        found[name] = started.now(str(project))
    return found


def server_details(block: Any, started: ServerProgram | None) -> Iterator[str]:
    """Yield a line for each value that decides what a server runs and sends. Secrets stay `${NAME}`."""
    if not isinstance(block, dict):
        return
    if started is not None:
        yield f"program: {started.program or 'not found'}"
        yield f"folder: {started.folder}"
        if started.module is not None:
            if started.has_module:
                yield f"module: {started.module}, in this folder"
            elif started.is_safe_path:
                yield f"module: {started.module}, never taken from this folder"
            else:
                yield f"{WARN}module: {started.module}, taken from this folder if it appears there (fix: python -P)"
    elif block.get("command"):
        yield "program: unknown until the server starts, because its command contains a secret"
    for key, label, sign in (("env", "env", "="), ("headers", "header", ": ")):
        values = block.get(key)
        if isinstance(values, dict):
            for name, value in values.items():
                warn = WARN if key == "env" and not HARMLESS.fullmatch(str(name)) else ""
                yield f"{warn}{label} {name}{sign}{text_of(value)}"
        elif values:
            yield f"{WARN}{key}: {text_of(values)}"
    for key, value in block.items():
        if key not in SHOWN_KEYS:
            yield f"{key}: {text_of(value)}"


# Texts


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from texts_in(key)
            yield from texts_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item)


def names_secret_file(value: Any) -> bool:
    """Return whether a config with this data would read a secret file."""
    return any(FILE_PLACEHOLDER.search(text) for text in texts_in(value))


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if value else []
