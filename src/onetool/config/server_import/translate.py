"""Translates MCP servers, from another client's file or from pasted text, to blocks of our config."""

import os
import re
import shlex
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from onetool.config.client_files import JsoncError, read_json
from onetool.config.pin import FILE_REFUSED, names_secret_file
from onetool.config.read import ConfigFileError, data_of
from onetool.config.server_import.hide_secrets import Variables
from onetool.core.text import line_of

MAX_BYTES = 32 * 1024 * 1024  # some clients store their whole history in the same file
SECTIONS = ("mcpServers", "servers", "context_servers", "mcp_servers", "mcp", "extensions")
START = ("command", "cmd", "url", "httpUrl", "serverUrl", "uri")  # a block has one of these keys


class ClientServers(msgspec.Struct, frozen=True, kw_only=True):
    """The servers that a client's file defines."""

    file: Path
    folder: Path  # the folder for `${workspaceFolder}` and relative paths
    servers: Mapping[str, Any]
    inputs: Mapping[str, Mapping[str, Any]] = {}  # the inputs of VS Code, by id
    in_project: bool = False  # whether the file came with a project


def read_servers(file: Path, folder: Path) -> ClientServers:
    """Read the servers in a file. Raises JsoncError if the file can't be used; its message completes a sentence."""
    return servers_in(read_data(text_of(file), file.suffix), file, folder)


def text_of(file: Path) -> str:
    try:
        if not stat.S_ISREG(file.stat().st_mode):  # checked first, because opening a pipe or a device would block
            raise JsoncError("it is not a regular file")
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise JsoncError(f"it can't be read: {error.strerror}") from None
    return decoded(data)


def decoded(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise JsoncError(f"it is larger than {MAX_BYTES // 1024 // 1024} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise JsoncError(f"it is not UTF-8 text: line {line_of(error)}") from None


def read_data(text: str, suffix: str) -> Any:
    """Parse data by the file's suffix, or else by trying the formats. Errors quote no values."""
    readers = {".toml": [_toml], ".yaml": [_yaml], ".yml": [_yaml], ".json": [_json], ".jsonc": [_json]}
    ways = readers.get(suffix.lower()) or ([_json] if text.lstrip()[:1] in ("{", "/") else [_toml, _yaml])
    for reader in ways[:-1]:
        try:
            return reader(text)
        except JsoncError:
            continue
    return ways[-1](text)


def servers_in(data: Any, file: Path, folder: Path) -> ClientServers:
    if not isinstance(data, dict):
        raise JsoncError("it contains no mapping of servers")
    servers: dict[str, Any] = {}
    for blocks in _sections(data, folder):
        for name, block in blocks.items():
            servers.setdefault(name, block)
    if not servers and _is_block(data):
        raise JsoncError('it contains a server without a name: write {"name": {…}}')
    if not servers and not any(key in data for key in SECTIONS):
        servers = {name: block for name, block in data.items() if _is_block(block)}
    inside = data.get("mcp")
    listed = data.get("inputs") or (inside.get("inputs") if isinstance(inside, dict) else None)
    asked = [one for one in listed if isinstance(one, dict) and one.get("id")] if isinstance(listed, list) else []
    inputs = {str(one["id"]): one for one in asked}
    return ClientServers(file=file, folder=folder, servers=servers, inputs=inputs)


def _sections(data: dict[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the sections with servers, nearest first: Claude Code stores private servers below the project's path."""
    projects = data.get("projects")
    if isinstance(projects, dict):
        for path in (folder, *folder.parents):
            project = projects.get(str(path))
            if isinstance(project, dict):
                yield _blocks(project.get("mcpServers"))
    for section in SECTIONS:
        found = data.get(section)
        if section in ("mcp", "extensions"):  # these names have other meanings, too
            inside = found.get("servers") if isinstance(found, dict) else None
            blocks = _blocks(found if inside is None else inside)
            yield {name: block for name, block in blocks.items() if _is_block(block)}
        else:
            yield _blocks(found)


def _blocks(found: Any) -> dict[str, Any]:
    """Return blocks by name, from a mapping or from a list of blocks with names."""
    if isinstance(found, list):
        found = {str(block["name"]): block for block in found if isinstance(block, dict) and block.get("name")}
    return {str(name): block for name, block in found.items()} if isinstance(found, dict) else {}


def _is_block(block: Any) -> bool:
    return isinstance(block, dict) and any(isinstance(block.get(key), str | list | dict) for key in START)


def _json(text: str) -> Any:
    return read_json(text) if text.strip() else {}


def _toml(text: str) -> Any:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise JsoncError(f"it is not TOML: {error}") from None


def _yaml(text: str) -> Any:
    try:
        return data_of(text)
    except ConfigFileError as refused:
        raise JsoncError(f"it is not YAML: line {refused.line}: {refused.message}") from None


# Translation

KNOWN = (
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "headers",
    "auth",
    "timeout",
    "connect_timeout",
    "tools",
    "prefix",
    "pin",
)
OTHERS = {  # other clients' names of the same keys
    "cmd": "command",
    "environment": "env",
    "envs": "env",
    "workingDirectory": "cwd",
    "serverUrl": "url",
    "serverURL": "url",
    "httpUrl": "url",
    "uri": "url",
    "http_headers": "headers",
    "httpHeaders": "headers",
    "tool_timeout_sec": "timeout",
    "timeoutMs": "timeout",
    "startup_timeout_sec": "connect_timeout",
    "startup_timeout_ms": "connect_timeout",
    "includeTools": "tools",
    "enabled_tools": "tools",
    "oauth": "auth",
}
HANDLED_KEYS = {
    "type", "transport", "transportType", "enabled", "disabled", "env_vars", "env_http_headers", "envHeaders",
    "bearer_token_env_var", "bearerTokenEnvVar", "inherit",
}  # fmt: skip
IGNORED_KEYS = {"name", "description", "displayName", "source", "version", "gallery", "icon"}
EXCLUDE_KEYS = ("excludeTools", "disabled_tools", "disabledTools")
STARTED = {"stdio", "local", "process", "command"}
CALLED = {"http", "streamable-http", "streamablehttp", "streamable", "remote"}
NOTHING = (None, {}, [], "", False)
IN_MS = 1000  # from here on, values are milliseconds: nobody waits a thousand seconds


class SkipServer(Exception):  # noqa: N818 - an answer, not a fault
    """A server is left out; the message says why."""


def translated(
    raw: Any, variables: Variables, folder: Path, *, old_url: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """Return the block for our config, and notes on the dropped parts.

    `old_url` means that `url` stands for the SSE transport.
    """
    if not isinstance(raw, Mapping):
        raise SkipServer("it is not a mapping")
    if names_secret_file(raw):
        raise SkipServer(FILE_REFUSED)
    found, notes = _renamed(raw)
    _split_command(found)
    block: dict[str, Any] = _transport(raw, found, old_url)
    for key, read in _READERS.items():
        if (value := found.get(key)) not in NOTHING and (value := read(value, key)) is not None:
            block[key] = value
    _environment(raw, block)
    if raw.get("enabled") is False or raw.get("disabled") is True:
        block["enabled"] = False
    if raw.get("inherit") is False:
        block["inherit"] = False
    block = _mapped(block, variables.ours)
    _absolute(block, folder)
    return _fitting(block, notes), [*notes, *variables.notes]


def _renamed(raw: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the values under the keys of our config, and notes on keys without an equivalent."""
    found: dict[str, Any] = {}
    unknown: list[str] = []
    for key, value in raw.items():
        ours = OTHERS.get(key, key)
        if ours in KNOWN:
            found.setdefault(ours, value / 1000 if key.lower().endswith("ms") and _is_number(value) else value)
        elif key not in HANDLED_KEYS | IGNORED_KEYS and value not in NOTHING:
            unknown.append(str(key))
    notes = [f"without {', '.join(unknown)}, which OneTool doesn't support"] if unknown else []
    if any(key in unknown for key in EXCLUDE_KEYS) and "tools" not in found:
        notes.append("all its tools are offered: list the tools that you want in `tools`")
    if "envFile" in unknown:
        notes.append("envFile is not supported: list the variables that it needs in `env`")
    return found, notes


def _split_command(found: dict[str, Any]) -> None:
    """Split a command that is a list, or a mapping of its own."""
    command = found.get("command")
    if isinstance(command, Mapping):
        found.update({key: command[key] for key in ("args", "env") if command.get(key) and not found.get(key)})
        command = found["command"] = command.get("path") or command.get("command")
    if isinstance(command, list) and command:
        found["command"], *first = command
        found["args"] = [*first, *(found.get("args") or [])]


def _transport(raw: Mapping[str, Any], found: Mapping[str, Any], old_url: bool) -> dict[str, Any]:
    if not found.get("command") and not found.get("url"):
        raise SkipServer("it has no command and no url: it is probably built into that client")
    if found.get("command") and found.get("url"):
        raise SkipServer("it has both a command and a url")
    given = next((raw[key] for key in ("type", "transport", "transportType") if raw.get(key)), None)
    given = given.get("type") if isinstance(given, Mapping) else given
    kind = str(given or "").lower().replace("_", "-")
    if kind and kind not in STARTED | CALLED | {"sse"}:
        raise SkipServer("its transport is not supported (expected stdio, http or sse)")
    url = found.get("url")
    old = kind == "sse" or (not kind and isinstance(url, str) and (url.rstrip("/").endswith("/sse") or old_url))
    return {"type": "sse"} if url and old and "httpUrl" not in raw else {}


def _environment(raw: Mapping[str, Any], block: dict[str, Any]) -> None:
    """Add the variables that Codex passes on or uses for a header or the token."""
    variables = raw.get("env_vars")
    for one in variables if isinstance(variables, list) else ():
        name = one.get("name") if isinstance(one, Mapping) else one
        if isinstance(name, str) and name in os.environ:  # else there is nothing to pass on
            block.setdefault("env", {}).setdefault(name, f"${{{name}}}")
    headers = raw.get("env_http_headers") or raw.get("envHeaders") or {}
    for header, name in headers.items() if isinstance(headers, Mapping) else ():
        block.setdefault("headers", {})[str(header)] = f"${{{name}}}"
    token = raw.get("bearer_token_env_var") or raw.get("bearerTokenEnvVar")
    if isinstance(token, str):
        block["auth"] = f"${{{token}}}"


def _fitting(block: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """Return the block without keys that don't apply to its transport, in the usual order."""
    useless = ("env", "cwd", "args") if "url" in block else ("headers", "auth")
    for key in [key for key in useless if key in block]:
        del block[key]
        notes.append(f"without {key}, which a server with a {'url' if 'url' in block else 'command'} doesn't use")
    order = ("type", *KNOWN, "inherit", "enabled")
    return {key: block[key] for key in order if key in block}


def _absolute(block: dict[str, Any], folder: Path) -> None:
    """Resolve paths against the project's folder."""
    for key in ("command", "cwd"):
        path = block.get(key)
        if path and (key == "cwd" or path.startswith(("./", "../", ".\\"))) and not path.startswith(("/", "~", "$")):
            block[key] = os.path.normpath(folder / path)


# Checks of values


def _string(value: Any, key: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise SkipServer(f"its {key} must contain only strings")


def _texts(value: Any, key: str) -> list[str]:
    if not isinstance(value, list):
        raise SkipServer(f"its {key} must be a list")
    return [_string(item, key) for item in value]


def _by_name(value: Any, key: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise SkipServer(f"its {key} must be a mapping")
    return {str(name): _string(item, key) for name, item in value.items() if item is not None}


def _seconds(value: Any, key: str) -> float:
    if not _is_number(value) or not 0 < value < 10**9:
        raise SkipServer(f"its {key} must be a number of seconds")
    return value / 1000 if value >= IN_MS else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _auth(value: Any, key: str) -> Any:
    """Return the settings of a login with OAuth, in the spelling of any client or of our config."""
    if isinstance(value, str):
        return value
    value = {} if value is True else value
    if not isinstance(value, Mapping):
        raise SkipServer(f"its {key} must be a mapping")
    given = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(name)).lower(): item for name, item in value.items()}
    if given.get("enabled") is False:
        return None
    if "callback_port" in given:
        given["redirect_port"] = given.pop("callback_port")
    keys = ("type", "token", "scopes", "client_id", "client_secret", "client_name", "redirect_port", "issuer")
    texts = {name: " ".join(map(str, item)) if isinstance(item, list) else _string(item, key)
             for name in keys if (item := given.get(name)) not in (None, "")}  # fmt: skip
    return {"type": "oauth", **texts}


def _is_true(value: Any, key: str) -> bool:
    if not isinstance(value, bool):
        raise SkipServer(f"its {key} must be true or false")
    return value


_READERS: dict[str, Callable[[Any, str], Any]] = {
    "command": _string, "args": _texts, "env": _by_name, "cwd": _string, "url": _string, "headers": _by_name,
    "auth": _auth, "timeout": _seconds, "connect_timeout": _seconds, "tools": _texts, "prefix": _string,
    "pin": _is_true,
}  # fmt: skip


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _mapped(item, change) for key, item in value.items()}
    return [_mapped(item, change) for item in value] if isinstance(value, list) else value


# Pasted command lines and URLs

# Words of a command line that tell how to run a program, not which one.
_RUNNERS = re.compile(
    r"(npx|bunx|uvx?|pnpm|yarn|npm|node|bun|deno|docker|podman|python[\d.]*|dlx|exec|run|tool)(\.\w+)?"
)


def read_pasted(text: str) -> dict[str, dict[str, Any]] | None:
    """Return one server block by a suggested name; None if the text is neither a command line nor a URL.

    Raises ValueError for an unbalanced quote.
    """
    text = re.sub(r"\\\r?\n", " ", text)
    if "\n" in text or text[:1] in ("", "{", "[", '"', "#") or re.match(r"[\w.\"-]+\s*[:=](\s|$)", text):
        return None
    if re.match(r"https?://\S+$", text, re.IGNORECASE):
        host = re.sub(r"^(www|api|mcp)\.", "", re.split(r"[/:?#]", text.partition("://")[2].rpartition("@")[2])[0])
        return {host.split(".")[0] or "server": {"url": text}}
    words = shlex.split(text)
    env: dict[str, str] = {}
    while words and re.match(r"[A-Za-z_]\w*=", words[0]):
        name, _, env[name] = words.pop(0).partition("=")
    if not words:
        return None
    known = (one for one in words if not one.startswith("-") and not _RUNNERS.fullmatch(one.rpartition("/")[2]))
    name = re.sub(r"@[\w.^~-]*$|\.\w+$", "", re.split(r"[/\\]", next(known, words[0]))[-1])
    name = re.sub(r"^(mcp-)?(server|mcp)-|-(mcp-)?(server|mcp)$", "", name) or "server"
    return {name: {"command": words[0], "args": words[1:], "env": env}}
