"""What a project's config would run, connect to and read, and which secrets it names; from its text alone.

Nothing is looked up, filled in or imported. Each thing is a line that a person can read, with a digest of all that
belongs to it: a server whose header changes is another one, though its line is the same. What is not shaped as it
should be is taken as a whole, so that nothing is left out by being written in another way.
"""

import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from onetool.config.file_checks import MAX_DIGEST_BYTES, SECRETS_FILE, digest_of, is_inside, stamp_of
from onetool.config.include import LITERAL_KEYS
from onetool.config.node import Findings, Node
from onetool.config.yaml_nodes import PLACEHOLDER
from onetool.core.errors import ConfigError
from onetool.core.redaction import sounds_secret
from onetool.sources.packs.importing import Part, parts_of

MOST_FILES = 2_000  # of packs that are looked at: more than a person writes
PACKS = "packs"  # beside the config
LINE = "Python of packs in "


class Packs(msgspec.Struct, frozen=True, kw_only=True):
    """The packs of a folder: a line for each, their files, and whether there are more that were not looked at."""

    lines: dict[str, str]
    files: list[Path]
    is_all: bool


def packs_at(paths: Iterable[Path], project: Path) -> Packs:
    """The packs at these paths."""
    lines: dict[str, str] = {}
    files: list[Path] = []
    is_all = True
    for path in paths:
        if "${" in str(path):  # what stands there then decides where it is, so that it can't be looked at
            lines[f"{LINE}{path}"], is_all = "", False
            continue
        for part in _parts(path):
            if part.place and not part.is_folder:
                lines[_line(part.place, project)] = ""
            if not part.is_folder and part.path.name != ".gitkeep":
                files.append(part.path)
            if len(files) > MOST_FILES:
                told = f"more than {MOST_FILES:,} files of packs, up to {path}: not all of them are looked at"
                return Packs(lines={**lines, told: ""}, files=files[:MOST_FILES], is_all=False)
    return Packs(lines=lines, files=files, is_all=is_all)


def own_line(folder: Path) -> str:
    """The one about packs in a project's own folder, whether there are some or not."""
    return _line(os.path.realpath(folder / PACKS), folder.parent)


def _line(place: str, project: Path) -> str:
    return f"{LINE}{place}{'' if is_inside(Path(place), project) else ' (outside of the project)'}"


def _parts(path: Path) -> Iterable[Part]:
    try:
        yield from parts_of(path)
    except OSError:  # who loads it says so
        return


# The reach of a config


# Of a server.
UNPINNED_KEYS = {"timeout", "connect_timeout", "enabled", "disabled", "tools", "prefix", "pin", "replicate", "type"}
LISTENS = ("host", "hosts", "origins", "admin", "url")  # of http
LETS_IN = ("tokens", "jwt")  # of http, beside its token
ALL = "which may do everything, with servers, tokens and trust"  # of the role admin

SHARED = {
    "database": "database: a PostgreSQL that keeps bundles, tokens, logins and results in place of your files",
    "cluster": "cluster: other machines that may call this one in everybody's name",
}

ADDRESS = "://"
AUDIT = "audit: "
NOT_NOTED = ", so that nobody sees who called what"
DOOR = "http.token, which whoever calls us has to know"

_ASKED_FOR = re.compile(r"(?:secret\w*|api_headers)\s*[(=]\s*[\"']([A-Za-z_][A-Za-z0-9_]*)[\"']")


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """What a config reaches, as readable lines by category, each with a digest."""

    runs: dict[str, str] = {}
    dials: dict[str, str] = {}
    reads: dict[str, str] = {}
    secrets: dict[str, str] = {}  # `NAME for servers.docs`
    packs: dict[str, str] = {}  # files of packs: they may be edited, unless the person is strict
    places: tuple[str, ...] = ()  # where packs may be
    is_all: bool = True  # whether all of their files are among these
    wants: tuple[str, ...] = ()  # names of secrets that packs ask for
    files: dict[str, str] = {}  # what all of this was read from

    def pinned(self) -> dict[str, str]:
        """Everything that needs new trust when it changes."""
        parts = (("runs", self.runs), ("dials", self.dials), ("reads", self.reads), ("secrets", self.secrets))
        return {f"{part}: {line}": digest for part, lines in parts for line, digest in lines.items()}

    def is_like(self, other: "Reach") -> bool:
        """Whether nothing is to be seen in one that is not in the other."""
        return (self.pinned(), self.packs, self.wants) == (other.pinned(), other.packs, other.wants)

    def names(self) -> set[str]:
        """The names of the secrets that it may take from the environment, once it is accepted."""
        return {*(line.partition(" ")[0] for line in self.secrets), *self.wants}


def reach_of(folder: Path, config: Path | None) -> Reach:
    """Of a project's `.onetool`, with its config if it has one. ConfigError for a file that can't be read.

    Stamps are taken before a file is read: what is written meanwhile counts as changed.
    """
    project = project_of(folder)
    data, named, stamps = _read(config)
    included = list(map(Path, stamps))
    secrets = None if isinstance(data.get("secrets"), dict) else named.get("secrets", [folder / SECRETS_FILE])[0]
    stamps |= {str(file): stamp_of(file) for file in named.get("prompts", ()) if not is_inside(file, project)}
    stamps |= {str(secrets): stamp_of(secrets)} if secrets else {}
    paths = list(dict.fromkeys([folder / PACKS, *named.get("packs", [])]))
    packs = packs_at(paths, project)
    return Reach(
        runs={**_servers(data, "command"), **packs.lines},
        dials={**_servers(data, "url"), **_hosts(data), **_addresses(data), **_audit(data), **_of_settings(data)},
        reads={**_outside({**named, "include": included, "packs": paths}, project), **_roots(data)},
        secrets={**_names(data), **_values(data, secrets)},
        packs={str(file): digest_of(file) for file in packs.files},
        places=tuple(map(str, paths)),
        is_all=packs.is_all,
        wants=tuple(sorted({name for file in packs.files for name in _asked_for(file)})),
        files=stamps,
    )


def project_of(folder: Path) -> Path:
    """The folder that a `.onetool` is of."""
    return folder.parent


# Parts of the config


def _read(config: Path | None) -> tuple[dict[str, Any], dict[str, list[Path]], dict[str, str]]:
    """The data of all files together as it was written, the paths that it names, and which files these are."""
    stamps: dict[str, str] = {}
    if config is None:
        return {}, {}, stamps
    from onetool.config.convert import plain
    from onetool.config.include import read_files

    findings = Findings()
    root, _ = read_files(config, findings, lambda file: bool(stamps.setdefault(str(file), stamp_of(file))))
    if findings.errors:
        raise ConfigError(findings.errors)
    data = plain(root, Findings())  # who loads it will say what is wrong with it
    named = {key: list(_paths(root.value[key])) for key in ("packs", "prompts", "secrets") if key in root.value}
    return data, {key: paths for key, paths in named.items() if paths}, stamps


def _paths(node: Node) -> Iterator[Path]:
    """Each is relative to the file that names it."""
    for one in node.value if isinstance(node.value, list) else [node]:
        if isinstance(one.value, str):
            yield Path(one.file).parent / os.path.expanduser(one.value)


def _servers(data: dict[str, Any], kind: str) -> dict[str, str]:
    """Those that are started, or those that are dialled; what is neither is taken for the first."""
    servers = data.get("servers") or {}
    if not isinstance(servers, dict):
        return _whole("servers", servers) if kind == "command" else {}
    found: dict[str, str] = {}
    for name, block in servers.items():
        is_url = isinstance(block, dict) and "url" in block and "command" not in block
        if is_url == (kind == "url"):
            kept = (
                {key: value for key, value in block.items() if key not in UNPINNED_KEYS}
                if isinstance(block, dict)
                else block
            )
            found[f"server {name}: {_shown(kept)}"] = _digest(kept)
    return found


def _shown(block: Any) -> str:
    """A server as one line: command or URL, and names of its variables and headers."""
    if not isinstance(block, dict):
        return _text(block)
    args = block.get("args")
    words = [block.get("command"), *(args if isinstance(args, list) else [args] if args else [])]
    started = shlex.join(_text(word) for word in words if word is not None)  # where one ends and the next begins
    line = " ".join(part for part in (_text(block["url"]) if block.get("url") else "", started) if part)
    more = [f"in {_text(block['cwd'])}"] if block.get("cwd") else []
    more += [
        f"{key} {', '.join(map(str, block[key]))}"
        for key in ("env", "headers")
        if isinstance(block.get(key), dict) and block[key]
    ]
    if block.get("auth") is not None:
        urls = [text for text in _texts(block["auth"]) if ADDRESS in text]
        more.append(f"auth {', '.join(urls)}".rstrip())
    return f"{line} ({'; '.join(more)})" if more else line


def _hosts(data: dict[str, Any]) -> dict[str, str]:
    hosts = data.get("allowedHosts") or []
    if not isinstance(hosts, list):
        return _whole("allowedHosts", hosts)
    return {f"host {_host(one)}": _digest(one if isinstance(one, dict) else {"host": one}) for one in hosts}


def _host(entry: Any) -> str:
    if not isinstance(entry, dict):
        return _text(entry)
    return f"{_text(entry.get('host'))}{' (also in private networks)' if entry.get('allowPrivate') else ''}"


def _addresses(data: dict[str, Any]) -> dict[str, str]:
    """Where questions to a model go, and where we listen."""
    ask, http = data.get("ask") or {}, data.get("http") or {}
    found = {} if isinstance(ask, dict) else _whole("ask", ask)
    for key, what in SHARED.items():
        if data.get(key):  # not its text: that may be an address with a password
            found[what] = _digest(data[key])
    if isinstance(ask, dict) and ask.get("base_url") is not None:
        found[f"model at {_text(ask['base_url'])}"] = _digest(ask["base_url"])
    if not isinstance(http, dict):
        return {**found, **_whole("http", http)}
    found |= {f"http.{key}: {_text(http[key])}": _digest(http[key]) for key in LISTENS if http.get(key)}
    found |= _let_in(http)
    return {**found, DOOR: _digest(http["token"])} if http.get("token") else found


def _let_in(http: dict[str, Any]) -> dict[str, str]:
    """Whose tokens and JWTs are accepted, and what they may do."""
    tokens, jwt = http.get("tokens") or [], http.get("jwt")
    if not isinstance(tokens, list):
        tokens = [tokens]
    found = {f"http.tokens: {_holder(one)}": _digest(one) for one in tokens}
    if jwt:
        issuer = _text(jwt.get("issuer")) if isinstance(jwt, dict) else _text(jwt)
        may = f", also with the role admin, {ALL}" if "admin" in _texts(jwt) else ""
        found[f"http.jwt: JWTs of {issuer}{may}"] = _digest(jwt)
    return found


def _holder(token: Any) -> str:
    """The name of a token, its role, and its tools."""
    if not isinstance(token, dict):
        return _text(token)
    role, tools = token.get("role") or "call", token.get("tools")
    told = f"role {_text(role)}, {ALL}" if role == "admin" else f"role {_text(role)}"
    limited = f", with {', '.join(map(_text, tools))}" if isinstance(tools, list) else ""
    return f"{_text(token.get('name'))} ({told}{limited})"


def _audit(data: dict[str, Any]) -> dict[str, str]:
    """How the calls of others are noted, where the project says so."""
    audit = data.get("audit")
    if audit is None:
        return {}
    mode = audit.get("mode", "usual") if isinstance(audit, dict) else audit
    told = NOT_NOTED if mode == "none" else ""
    return {f"{AUDIT}{_text(audit)}{told}": _digest(audit)}


def _of_settings(data: dict[str, Any]) -> dict[str, str]:
    """Addresses in the settings of packs: the packs may be the user's own, with keys for another address."""
    return {f"settings: {text}": "" for text in _texts(data.get("settings")) if ADDRESS in text}


def _roots(data: dict[str, Any]) -> dict[str, str]:
    fs = data.get("fs") or {}
    roots = fs.get("roots") if isinstance(fs, dict) else fs
    if roots is None:
        return {}
    return {f"folder {_text(root)}": "" for root in (roots if isinstance(roots, list) else [roots]) if root != "."}


def _outside(named: dict[str, list[Path]], project: Path) -> dict[str, str]:
    """Files and packs that are not the project's own, but that its config names."""
    outside = ((key, path) for key, paths in named.items() for path in paths if not is_inside(path, project))
    return {f"{key} {path if '${' in str(path) else os.path.realpath(path)}": "" for key, path in outside}


def _names(data: dict[str, Any]) -> dict[str, str]:
    """Each name of a secret, with the place where it goes."""
    found: dict[str, str] = {}
    for key, value in data.items():
        if key not in LITERAL_KEYS:
            parts = value.items() if key == "servers" and isinstance(value, dict) else [("", value)]
            for part, content in parts:
                place = f"{key}.{part}" if part else key
                found |= {f"{name} for {place}": "" for text in _texts(content) for name in PLACEHOLDER.findall(text)}
    return found


def _values(data: dict[str, Any], file: Path | None) -> dict[str, str]:
    """Digests of those secrets of the project that decide about a command or an address.

    What is called a secret (`api_key`, `token`) may be another one tomorrow, unless it is an address nevertheless.
    """
    own = data.get("secrets")
    values = own if isinstance(own, dict) else None
    found: dict[str, str] = {}
    for key, text in _deciding(data):
        for name in PLACEHOLDER.findall(text):
            values = values if values is not None else _read_values(file)
            if name in values and (not sounds_secret(key) or ADDRESS in text or ADDRESS in _text(values[name])):
                found[f"{name} as this project sets it"] = _digest(values[name])
    return found


def _deciding(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Strings that decide what is run, connected to or read, each with its key."""
    servers = data.get("servers")
    for block in servers.values() if isinstance(servers, dict) else ():
        if isinstance(block, dict):
            yield from _with_keys({key: block.get(key) for key in ("command", "args", "cwd", "url", "env", "auth")})
    for key in ("packs", "include", "prompts", "secrets", "fs", "topics", "settings", "ask", "audit", *SHARED):
        yield from _with_keys(data.get(key) if not (key == "secrets" and isinstance(data.get(key), dict)) else None)
    http = data.get("http")
    yield from _with_keys({key: http.get(key) for key in LISTENS + LETS_IN} if isinstance(http, dict) else http)


def _with_keys(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text in there, with the nearest key above it."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield str(name), str(name)
            yield from _with_keys(item, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _with_keys(item, key)


def _read_values(file: Path | None) -> dict[str, Any]:
    if file is None or not file.is_file():
        return {}
    from onetool.config.convert import plain
    from onetool.config.yaml_nodes import ConfigFileError, read_yaml

    try:
        found = plain(read_yaml(file), Findings())
    except ConfigFileError:
        return {}
    return found if isinstance(found, dict) else {}


# Packs


def _asked_for(file: Path) -> set[str]:
    try:
        return (
            set(_ASKED_FOR.findall(file.read_text("utf-8", "replace")))
            if file.stat().st_size <= MAX_DIGEST_BYTES
            else set()
        )
    except OSError:
        return set()


# Texts and digests


def _whole(key: str, value: Any) -> dict[str, str]:
    return {f"{key}: {_text(value)}": _digest(value)}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
