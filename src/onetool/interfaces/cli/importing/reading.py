"""A client's file -> the blocks of its servers, by name. Reads one file; changes nothing."""

import json
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from onetool.config.node import Findings
from onetool.config.shape import plain
from onetool.config.source import Refused
from onetool.config.yaml_nodes import node_of
from onetool.interfaces.cli.clients.json_text import Unreadable, read_json

MAX_BYTES = 32 * 1024 * 1024  # some clients keep their whole history in the same file
SECTIONS = ("mcpServers", "servers", "context_servers", "mcp_servers", "mcp", "extensions")
START = ("command", "cmd", "url", "httpUrl", "serverUrl", "uri")  # a block has one of these


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What one file says."""

    file: Path
    folder: Path  # what `${workspaceFolder}` and relative paths in it mean
    servers: Mapping[str, Any]
    inputs: Mapping[str, Mapping[str, Any]] = {}  # what VS Code asks for, by id


def read_servers(file: Path, folder: Path) -> Found:
    """The servers in a file. Unreadable says why there are none, as the end of a sentence about the file."""
    return servers_in(read_data(text_of(file), file.suffix), file, folder)


def text_of(file: Path) -> str:
    try:
        if not stat.S_ISREG(file.stat().st_mode):  # before opening it: a pipe or a device would keep us waiting
            raise Unreadable("it is no regular file")
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise Unreadable(f"it can't be read: {error.strerror}") from None
    return decoded(data)


def decoded(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise Unreadable(f"it is larger than {MAX_BYTES // 1024 // 1024} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Unreadable(f"it is not UTF-8 text: line {line}") from None


def read_data(text: str, suffix: str) -> Any:
    """By the ending of the file's name; where that says nothing, whatever can be read. Errors repeat no values."""
    readers = {".toml": [_toml], ".yaml": [_yaml], ".yml": [_yaml], ".json": [_json], ".jsonc": [_json]}
    ways = readers.get(suffix.lower()) or ([_json] if text.lstrip()[:1] in ("{", "/") else [_toml, _yaml])
    for reader in ways[:-1]:
        try:
            return reader(text)
        except Unreadable:
            continue
    return ways[-1](text)


def servers_in(data: Any, file: Path, folder: Path) -> Found:
    if not isinstance(data, dict):
        raise Unreadable("it holds no mapping of servers")
    servers: dict[str, Any] = {}
    for blocks in _sections(data, folder):
        for name, block in blocks.items():
            servers.setdefault(name, block)
    if not servers and _is_block(data):
        raise Unreadable('it holds one server without a name: write {"name": {…}}')
    if not servers and not any(key in data for key in SECTIONS):
        servers = {name: block for name, block in data.items() if _is_block(block)}
    return Found(file=file, folder=folder, servers=servers, inputs=_inputs(data))


def _sections(data: dict[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    """The nearest first: Claude Code keeps a project's private servers below the project's path."""
    projects = data.get("projects")
    if isinstance(projects, dict):
        for path in (folder, *folder.parents):
            project = projects.get(str(path))
            if isinstance(project, dict):
                yield _blocks(project.get("mcpServers"))
    for section in SECTIONS:
        found = data.get(section)
        if section in ("mcp", "extensions"):  # other things are called that, too
            inside = found.get("servers") if isinstance(found, dict) else None
            blocks = _blocks(found if inside is None else inside)
            yield {name: block for name, block in blocks.items() if _is_block(block)}
        else:
            yield _blocks(found)


def _blocks(found: Any) -> dict[str, Any]:
    """A mapping by name; or a list, where each says its own."""
    if isinstance(found, list):
        found = {str(block["name"]): block for block in found if isinstance(block, dict) and block.get("name")}
    return {str(name): block for name, block in found.items()} if isinstance(found, dict) else {}


def _is_block(block: Any) -> bool:
    return isinstance(block, dict) and any(isinstance(block.get(key), str | list | dict) for key in START)


def _inputs(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    inside = data.get("mcp")
    found = data.get("inputs") or (inside.get("inputs") if isinstance(inside, dict) else None)
    listed = found if isinstance(found, list) else []
    return {str(one["id"]): one for one in listed if isinstance(one, dict) and one.get("id")}


def _json(text: str) -> Any:
    """The fast reader first: these files can be large, and few of them have comments."""
    if not text.strip():
        return {}
    try:
        return json.loads(text, object_pairs_hook=_once)
    except RecursionError:
        raise Unreadable("it is nested too deep") from None
    except (json.JSONDecodeError, ValueError):
        return read_json(text).root.data


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name stands twice")  # the slow reader will say where
    return members


def _toml(text: str) -> Any:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Unreadable(f"it is not TOML: {error}") from None


def _yaml(text: str) -> Any:
    findings = Findings()
    try:
        data = plain(node_of(text, ""), findings)
    except Refused as refused:
        raise Unreadable(f"it is not YAML: line {refused.line}: {refused.message}") from None
    if findings.errors:
        raise Unreadable(f"line {findings.errors[0].line}: {findings.errors[0].message}")
    return data
