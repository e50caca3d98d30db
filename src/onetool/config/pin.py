"""Describes what a project's folder says, line by line: what `onetool trust` shows, stores and compares.

The lines are the config as written, without a few harmless keys. Nothing is looked up, filled in or imported, and no
value is interpreted, so that nothing can be hidden by an unusual notation. Added to them is what the text alone does
not show: where links lead, the project's own secrets that decide what is run or called, packs, and programs.
"""

import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from onetool.config.file_checks import SECRETS_FILE, is_inside
from onetool.config.fill import LITERAL_KEYS
from onetool.config.findings import Findings, Places, absolute
from onetool.config.read import FILE_PLACEHOLDER, PLACEHOLDER, ConfigFileError, read_config, read_yaml
from onetool.core.errors import ConfigError
from onetool.core.file_facts import MAX_DIGEST_BYTES, digest_of, stamp_of
from onetool.core.redaction import sounds_secret
from onetool.core.yaml import child, plain_value
from onetool.sources.mcp_servers.program import ServerProgram, canonical_path, has_module, python_module
from onetool.sources.packs.importing import parts_of

# A change of these needs no new trust: they name no program, file or variable, and tools, like bundles, call only
# `allowedHosts` with secrets that were accepted.
HARMLESS = {"aliases", "snippets", "tools", "stats", "results", "run", "defaults", "docs_url", "bundles"}
HARMLESS_OF_SERVERS = {"timeout", "connect_timeout"}

# Any other variable may make some program load code, or connect elsewhere: GIT_SSH_COMMAND, BASH_ENV, HTTPS_PROXY.
HARMLESS_VARIABLES = re.compile(r"TZ|LANG|LANGUAGE|LC_[A-Z]+|LOG_LEVEL|NO_COLOR|FORCE_COLOR|COLUMNS|LINES")

SECRET = ("secrets.", "secrets[", "cluster.", "metrics")  # paths below which every literal value is secret
_PASSWORD = re.compile(r"(://[^/\s:@]*:)[^/\s@]+(?=@)")
WARN = "! "  # prefix of a line that may decide which code runs
PACKS = "packs"  # beside the config
MAX_FILES = 2_000  # of packs: more than a user writes
FILE_REFUSED = "${file:…} is allowed only in text that you write into the config or the secrets file by hand"
_ADDRESS_OR_PATH = re.compile(r".*://|[./~]")
_ASKED_FOR = re.compile(r"(?:secret\w*|api_headers)\s*[(=]\s*[\"']([A-Za-z_][A-Za-z0-9_]*)[\"']")
_VARIABLE_LINE = re.compile(r'(?:servers(?:\.[\w-]+|\["(?:[^"\\]|\\.)*"\])\.)?env(?:\.([\w-]+)|\[)')


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a project's folder says now."""

    lines: dict[str, str] = {}  # path of a value -> the value, as text
    notes: dict[str, tuple[str, ...]] = {}  # path of a server -> what its lines mean on this machine
    packs: dict[str, str] = {}  # file of a pack -> digest: they may be edited, unless the user is strict
    pack_places: tuple[str, ...] = ()  # where packs were found
    is_all: bool = True  # whether `packs` has all of their files
    folders: tuple[str, ...] = ()  # folders that may contain packs
    names: tuple[str, ...] = ()  # secrets that the config names, and those that packs ask for
    programs: dict[str, ServerProgram] = {}  # by server: the program that its command finds now
    files: dict[str, str] = {}  # the files that all of this was read from, with their stamps

    def compared(self) -> Any:
        """Return everything that is shown to users, as plain data."""
        return msgspec.to_builtins((self.lines, self.packs, self.pack_places, self.names, self.programs))

    def described(self) -> Iterator[str]:
        """Yield all lines, with notes below each server."""
        yield from with_notes((f"{path}: {value}" for path, value in self.lines.items()), self.notes)
        yield from (f"Python of packs in {place}" for place in self.pack_places)


def with_notes(lines: Iterable[str], notes: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Yield lines, each server's followed by its notes, and mark the variables that are not harmless."""
    last: str | None = None
    for line in lines:
        path = line.removeprefix("+ ").removeprefix("- ")
        server = next((one for one in notes if path.startswith((f"{one}.", f"{one}:"))), None)
        if last is not None and server != last:
            yield from (f"  {note}" for note in notes[last])
        last = server
        variable = _VARIABLE_LINE.match(path)
        is_marked = variable is not None and not HARMLESS_VARIABLES.fullmatch(variable[1] or "")
        yield f"{WARN}{line}" if is_marked else line
    if last is not None:
        yield from (f"  {note}" for note in notes[last])


def see(folder: Path, config: Path | None) -> Seen:
    """Return what a project's `.onetool` says, with its config if there is one. Raises ConfigError for an unreadable
    file.

    Stamps are taken before a file is read, so that a concurrent write counts as a change.
    """
    project = folder.parent
    data: dict[str, Any] = {}
    places = Places(str(config))
    files: dict[str, str] = {}
    included: tuple[Path, ...] = ()
    if config is not None:
        findings = Findings()
        written = read_config(config, findings, lambda file: bool(files.setdefault(str(file), stamp_of(file))))
        if findings.errors:
            raise ConfigError(findings.errors)
        data, places, included = written.data, written.places, written.included
    named = dict(_named_paths(data, places))
    secrets = named.get("secrets", folder / SECRETS_FILE)
    own = data.get("secrets")
    if not isinstance(own, dict):
        files |= {str(secrets): stamp_of(secrets)}
        own = _values_of(secrets) if is_inside(secrets, project) else {}
    if (prompts := named.get("prompts")) is not None:
        files |= {str(prompts): stamp_of(prompts)}
    folders = [folder / PACKS, *(path for key, path in named.items() if key.startswith(PACKS))]
    packs = packs_at(dict.fromkeys(folders), project)
    programs = _programs(data, places, project, own)
    lines = dict(flat({key: _pinned(key, value) for key, value in data.items() if key not in HARMLESS}))
    named |= {f"include[{at}]": path for at, path in enumerate(included)}  # their content is in the data
    lines |= {f"{key} leads to": real for key, path in named.items() if (real := _other_place(path, project))}
    lines |= _own_secrets(data, own)
    return Seen(
        lines=lines,
        notes={
            child("servers", name): tuple(server_notes(block, programs.get(name)))
            for name, block in _servers(data).items()
        },
        packs={str(file): digest_of(file) for file in packs.files},
        pack_places=packs.places,
        is_all=packs.is_all,
        folders=tuple(map(str, folders)),
        names=tuple(sorted({*_names_in(data), *_asked_for(packs.files)})),
        programs=programs,
        files=files,
    )


# Lines


def flat(value: Any, path: str = "", key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the text of every value. `key` is the nearest key above it."""
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from flat(item, child(path, str(name)), str(name))
    elif key == "args" and isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        yield path, shlex.join(value)  # quoted, to separate the words
    elif isinstance(value, list) and value:
        for at, item in enumerate(value):
            yield from flat(item, f"{path}[{at}]", key)
    else:
        # Variables are shown: SSH_ASKPASS sounds secret, but names a program.
        is_secret = path.startswith(SECRET) or (sounds_secret(key) and ".env." not in f".{path}")
        yield path, _text(value, is_secret)


def _text(value: Any, is_secret: bool) -> str:
    """Return a value as text; two values never have the same."""
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False, default=str)
    if is_secret and value and "${" not in value:
        return f"a secret ({_digest(value)})"
    if (masked := _PASSWORD.sub(r"\1***", value)) != value:
        return f"{masked} ({_digest(value)})"
    with suppress(ValueError):
        if isinstance(plain_value(value), str) and value[0] not in '[{"':
            return value
    return json.dumps(value, ensure_ascii=False)


def _digest(text: str) -> str:
    return f"sha256 {hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _pinned(key: str, value: Any) -> Any:
    if key != "servers" or not isinstance(value, dict):
        return value
    return {
        name: {inner: item for inner, item in block.items() if inner not in HARMLESS_OF_SERVERS}
        if isinstance(block, dict)
        else block
        for name, block in value.items()
    }


# Files


def _named_paths(data: dict[str, Any], places: Places) -> Iterator[tuple[str, Path]]:
    """Yield the files and folders that the config names, by the path of the value; each relative to its own file."""
    topics, packs = data.get("topics"), data.get("packs")
    found: list[tuple[str, Any]] = [("prompts", data.get("prompts")), ("secrets", data.get("secrets"))]
    found += [(f"packs[{at}]", one) for at, one in enumerate(packs if isinstance(packs, list) else [packs])]
    for at, topic in enumerate(topics if isinstance(topics, list) else [topics]):
        found.append((f"topics[{at}].file", topic.get("file") if isinstance(topic, dict) else None))
    yield from ((path, absolute(places.folder(path), one)) for path, one in found if isinstance(one, str))


def _other_place(path: Path, project: Path) -> str | None:
    """Return the real path of a file outside of the project, or behind a link; None if it is where it seems to be."""
    if "${" in str(path):
        return None
    real = os.path.realpath(path)
    seeming = canonical_path(str(path), str(project))
    return None if real == seeming and is_inside(path, project) else real


class Packs(msgspec.Struct, frozen=True, kw_only=True):
    """The packs of a folder: their places, their files, and whether the list of files is complete."""

    places: tuple[str, ...]
    files: list[Path]
    is_all: bool


def packs_at(paths: Iterable[Path], project: Path) -> Packs:
    places: dict[str, None] = {}
    files: list[Path] = []
    is_all = True
    for path in paths:
        if "${" in str(path):  # the secret decides which folder this is, so it can't be examined
            places[str(path)], is_all = None, False
            continue
        with suppress(OSError):  # the loader reports it
            for part in parts_of(path):
                if part.place and not part.is_folder:
                    places[pack_place(part.place, project)] = None
                if not part.is_folder and part.path.name != ".gitkeep":
                    files.append(part.path)
                if len(files) > MAX_FILES:
                    many = f"more than {MAX_FILES:,} files, up to {path}: not all of them are looked at"
                    return Packs(places=(*places, many), files=files[:MAX_FILES], is_all=False)
    return Packs(places=tuple(places), files=files, is_all=is_all)


def pack_place(place: str, project: Path) -> str:
    """Return the line for packs in a folder."""
    return f"{place}{'' if is_inside(Path(place), project) else ' (outside of the project)'}"


def _asked_for(files: Iterable[Path]) -> set[str]:
    """Return the secrets that packs ask for."""
    names: set[str] = set()
    for file in files:
        with suppress(OSError):
            if file.stat().st_size <= MAX_DIGEST_BYTES:
                names.update(_ASKED_FOR.findall(file.read_text("utf-8", "replace")))
    return names


# Secrets


def _names_in(data: dict[str, Any]) -> set[str]:
    """Return the names of all secrets that are filled into the config."""
    values = (value for key, value in data.items() if key not in LITERAL_KEYS)
    return {name for value in values for text in texts_in(value) for name in PLACEHOLDER.findall(text)}


def _own_secrets(data: dict[str, Any], own: dict[str, Any]) -> dict[str, str]:
    """Return lines for the project's own secrets that decide what is run or called, and for those read from files.

    A value of a header, or under a name that sounds secret (`api_key`, `token`), may change at any time, so it is
    pinned only if it is an address or a path.
    """
    lines: dict[str, str] = {}
    for key, value in data.items():
        if key in LITERAL_KEYS or key in HARMLESS or key == "secrets":
            continue
        for path, name, text in _texts_by_path(value, key, key):
            for secret in PLACEHOLDER.findall(text):
                if secret in own and (
                    not (sounds_secret(name) or ".headers" in path)
                    or _ADDRESS_OR_PATH.match(str(own[secret]))
                    or "://" in text
                ):
                    lines[f"secret {secret}"] = f"the project's own value ({_digest(str(own[secret]))})"
    for name, value in own.items():
        for text in texts_in(value):
            if FILE_PLACEHOLDER.search(text):
                lines[f"secret {name}"] = text
    return lines


def _texts_by_path(value: Any, path: str, key: str) -> Iterator[tuple[str, str, str]]:
    """Yield the path of every string in a value, the nearest key above it, and the string."""
    if isinstance(value, str):
        yield path, key, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _texts_by_path(name, path, "")
            yield from _texts_by_path(item, child(path, name), name)
    elif isinstance(value, list):
        for item in value:
            yield from _texts_by_path(item, path, key)


def _values_of(file: Path) -> dict[str, Any]:
    """Return the content of a secrets file; empty if there is none, or loading it will report a mistake."""
    try:
        found = read_yaml(file).data if file.is_file() else None
    except ConfigFileError:
        return {}
    return found if isinstance(found, dict) else {}


# Servers


def _servers(data: dict[str, Any]) -> dict[str, Any]:
    servers = data.get("servers")
    return servers if isinstance(servers, dict) else {}


def _programs(data: dict[str, Any], places: Places, project: Path, own: dict[str, Any]) -> dict[str, ServerProgram]:
    servers = _servers(data)
    folders = {
        name: absolute(places.folder(child("servers", name)), block["cwd"])
        for name, block in servers.items()
        if isinstance(block, dict) and isinstance(block.get("cwd"), str)
    }
    return programs_of(servers, folders, project, own)


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


def server_notes(block: Any, started: ServerProgram | None) -> Iterator[str]:
    """Yield what a server's command means on this machine: its program, folder and module."""
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
    elif isinstance(block, dict) and block.get("command"):
        yield "program: unknown until the server starts, because its command contains a secret"


def described_server(block: Any, started: ServerProgram | None) -> Iterator[str]:
    """Yield what a server would run and send, a line for each value."""
    yield from with_notes((f"{path}: {value}" for path, value in flat(block)), {})
    yield from server_notes(block, started)


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
