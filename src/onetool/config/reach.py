"""Determines what a project's config would run, connect to and read, and which secrets it names, from its text alone.

Nothing is looked up, filled in or imported. Each item is a human-readable line, with a digest of everything that
belongs to it: a server with a changed header is a different server, although its line is the same. A value of an
unexpected type is reported as a whole, so that nothing can be hidden by an unusual notation.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from onetool.config.file_checks import SECRETS_FILE, is_inside
from onetool.config.fill import LITERAL_KEYS
from onetool.config.findings import Findings, Places, absolute
from onetool.config.reach_servers import (
    ADDRESS,
    pinned_block,
    programs_of,
    server_details,
    server_line,
    text_of,
    texts_in,
)
from onetool.config.read import FILE_PLACEHOLDER, PLACEHOLDER, ConfigFileError, read_config, read_yaml
from onetool.core.errors import ConfigError
from onetool.core.file_facts import MAX_DIGEST_BYTES, digest_of, stamp_of
from onetool.core.redaction import mask_credentials, sounds_secret
from onetool.core.yaml import child
from onetool.sources.mcp_servers.program import ServerProgram
from onetool.sources.packs.importing import parts_of

MAX_FILES = 2_000  # of packs: more than a user writes
PACKS = "packs"  # beside the config
LINE = "Python of packs in "


class Packs(msgspec.Struct, frozen=True, kw_only=True):
    """The packs of a folder: a line for each, their files, and whether the list of files is complete."""

    lines: dict[str, str]
    files: list[Path]
    is_all: bool


def packs_at(paths: Iterable[Path], project: Path) -> Packs:
    lines: dict[str, str] = {}
    files: list[Path] = []
    is_all = True
    for path in paths:
        if "${" in str(path):  # the secret decides which folder this is, so it can't be examined
            lines[f"{LINE}{path}"], is_all = "", False
            continue
        with suppress(OSError):  # the loader reports it
            for part in parts_of(path):
                if part.place and not part.is_folder:
                    lines[_pack_line(part.place, project)] = ""
                if not part.is_folder and part.path.name != ".gitkeep":
                    files.append(part.path)
                if len(files) > MAX_FILES:
                    line = f"more than {MAX_FILES:,} files of packs, up to {path}: not all of them are looked at"
                    return Packs(lines={**lines, line: ""}, files=files[:MAX_FILES], is_all=False)
    return Packs(lines=lines, files=files, is_all=is_all)


def own_line(folder: Path) -> str:
    """Return the line about packs in a project's own folder, whether or not there are any."""
    return _pack_line(os.path.realpath(folder / PACKS), folder.parent)


def _pack_line(place: str, project: Path) -> str:
    return f"{LINE}{place}{'' if is_inside(Path(place), project) else ' (outside of the project)'}"


# The reach of a config. Its lines are stored in `trust.json`, so their wording can't change.

LISTENS = ("host", "hosts", "origins", "admin", "url", "local")  # of http
LETS_IN = ("tokens", "jwt")  # of http, besides its token
ALL = "which may do everything, with servers, tokens and trust"  # of the role admin

SHARED = {
    "database": "database: a PostgreSQL that keeps bundles, tokens, logins and results in place of your files",
    "cluster": "cluster: other machines that may call this one in everybody's name",
    "otel": "otel: a collector that gets the names of tools, and when they are called",
    "metrics": "metrics.token, which lets its holder read how often which tools are called",
}

AUDIT = "audit: "
NOT_NOTED = ", so that nobody sees who called what"
ACCESS_LINE = "http.token, which whoever calls us has to know"
OWN_VALUE = " as this project sets it"
ASK_SYSTEM = "ask.system: the instructions for the model"

_ASKED_FOR = re.compile(r"(?:secret\w*|api_headers)\s*[(=]\s*[\"']([A-Za-z_][A-Za-z0-9_]*)[\"']")


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """The reach of a config: readable lines by category, each with a digest."""

    runs: dict[str, str] = {}
    dials: dict[str, str] = {}
    reads: dict[str, str] = {}
    secrets: dict[str, str] = {}  # `NAME for servers.docs`
    packs: dict[str, str] = {}  # files of packs: they may be edited, unless the user is strict
    places: tuple[str, ...] = ()  # folders that may contain packs
    is_all: bool = True  # whether `packs` has all of their files
    wants: tuple[str, ...] = ()  # secrets that packs ask for
    programs: dict[str, ServerProgram] = {}  # by server: the program that its command finds now
    details: dict[str, tuple[str, ...]] = {}  # by line: the values that its digest covers
    files: dict[str, str] = {}  # the files that all of this was read from

    def pinned(self) -> dict[str, str]:
        """Return everything that needs new trust when it changes."""
        parts = (("runs", self.runs), ("dials", self.dials), ("reads", self.reads), ("secrets", self.secrets))
        return {f"{part}: {line}": digest for part, lines in parts for line, digest in lines.items()}

    def seen(self) -> Any:
        """Return everything that is shown to users, as plain data."""
        return msgspec.to_builtins((self.pinned(), self.packs, self.wants, self.programs))

    def shown(self, part: str) -> Iterator[str]:
        """Yield the lines of a category, each followed by the values that it stands for."""
        for line in getattr(self, part):
            yield readable(line)
            yield from (f"  {detail}" for detail in self.details.get(line, ()))

    def names(self) -> set[str]:
        """Return the names of the secrets that the project may read from the environment once it is trusted."""
        return {*(line.partition(" ")[0] for line in self.secrets), *self.wants}


_READABLE = {
    ACCESS_LINE: "http.token: callers need it",
    SHARED["database"]: "database: a PostgreSQL database that stores bundles, tokens, logins and results",
    SHARED["cluster"]: "cluster: the key with which other machines answer questions in everybody's name",
    SHARED["metrics"]: "metrics.token: callers with it can read how often each tool is called",
}


def readable(line: str) -> str:
    """Return a line as people read it. The line itself is stored in `trust.json`, so its wording can't change."""
    if line in _READABLE:
        return _READABLE[line]
    name = line.removesuffix(OWN_VALUE)
    return line if name == line or " " in name else f"{name}: the project's own value is used"


def reach_of(folder: Path, config: Path | None) -> Reach:
    """Return the reach of a project's `.onetool`, with its config if there is one. Raises ConfigError for an unreadable
    file.

    Stamps are taken before a file is read, so that a concurrent write counts as a change.
    """
    project = folder.parent
    data: dict[str, Any] = {}
    places = Places(str(config))
    stamps: dict[str, str] = {}  # of all files of the config
    if config is not None:
        findings = Findings()
        written = read_config(config, findings, lambda file: bool(stamps.setdefault(str(file), stamp_of(file))))
        if findings.errors:
            raise ConfigError(findings.errors)
        data, places = written.data, written.places
    named = {key: list(paths_in(data[key], key, places)) for key in ("packs", "prompts", "secrets") if key in data}
    named = {key: paths for key, paths in named.items() if paths}
    included = list(map(Path, stamps))
    secrets = None if isinstance(data.get("secrets"), dict) else named.get("secrets", [folder / SECRETS_FILE])[0]
    stamps |= {str(file): stamp_of(file) for file in named.get("prompts", ()) if not is_inside(file, project)}
    stamps |= {str(secrets): stamp_of(secrets)} if secrets else {}
    paths = list(dict.fromkeys([folder / PACKS, *named.get("packs", [])]))
    packs = packs_at(paths, project)
    programs = _programs(data, places, project, secrets)
    names = {
        f"{name} for {place}": "" for place, text in _texts_with_secrets(data) for name in PLACEHOLDER.findall(text)
    }
    wants: set[str] = set()
    for file in packs.files:
        with suppress(OSError):
            if file.stat().st_size <= MAX_DIGEST_BYTES:
                wants.update(_ASKED_FOR.findall(file.read_text("utf-8", "replace")))
    return Reach(
        runs={**_servers(data, "command"), **packs.lines},
        dials={**_servers(data, "url"), **_hosts(data), **_addresses(data), **_audit(data), **_settings(data)},
        reads={
            **_paths_outside({**named, "include": included, "packs": paths}, project),
            **_roots(data),
            **_topics(data, places),
            **_secret_files(data, data["secrets"] if secrets is None else _read_values(secrets)),
        },
        secrets={**names, **_values(data, secrets)},
        packs={str(file): digest_of(file) for file in packs.files},
        places=tuple(map(str, paths)),
        is_all=packs.is_all,
        wants=tuple(sorted(wants)),
        programs=programs,
        details=_details(data, programs),
        files=stamps,
    )


# Parts of the config


def _servers(data: dict[str, Any], kind: str) -> dict[str, str]:
    """Return the servers that are started (`command`) or connected to (`url`); unclear ones count as started."""
    servers = data.get("servers") or {}
    if not isinstance(servers, dict):
        return _unexpected("servers", servers) if kind == "command" else {}
    found: dict[str, str] = {}
    for name, block in servers.items():
        is_url = isinstance(block, dict) and "url" in block and "command" not in block
        if is_url == (kind == "url"):
            found[server_line(name, block)] = _digest(pinned_block(block))
    return found


def _hosts(data: dict[str, Any]) -> dict[str, str]:
    hosts = data.get("allowedHosts") or []
    if not isinstance(hosts, list):
        return _unexpected("allowedHosts", hosts)
    found: dict[str, str] = {}
    for one in hosts:
        entry = one if isinstance(one, dict) else {"host": one}
        private = " (also in private networks)" if entry.get("allowPrivate") else ""
        found[f"host {text_of(entry.get('host'))}{private}"] = _digest(entry)
    return found


def _addresses(data: dict[str, Any]) -> dict[str, str]:
    """Return the addresses that questions to a model are sent to, and those that we listen on."""
    ask, http = data.get("ask") or {}, data.get("http") or {}
    found = {} if isinstance(ask, dict) else _unexpected("ask", ask)
    for key, what in SHARED.items():
        if data.get(key):  # without its text, which may be an address with a password
            endpoint = data[key].get("endpoint") if key == "otel" and isinstance(data[key], dict) else None
            where = f" (at {mask_credentials(text_of(endpoint))})" if endpoint else ""
            found[what + where] = _digest(data[key])
    if isinstance(ask, dict) and ask.get("base_url") is not None:
        found[f"model at {text_of(ask['base_url'])}"] = _digest(ask["base_url"])
    if isinstance(ask, dict) and ask.get("system"):
        found[ASK_SYSTEM] = _digest(ask["system"])
    if not isinstance(http, dict):
        return {**found, **_unexpected("http", http)}
    found |= {f"http.{key}: {text_of(http[key])}": _digest(http[key]) for key in LISTENS if http.get(key)}
    found |= _credentials(http)
    return {**found, ACCESS_LINE: _digest(http["token"])} if http.get("token") else found


def _credentials(http: dict[str, Any]) -> dict[str, str]:
    """Return lines for the accepted tokens and JWTs, with their rights."""
    tokens, jwt = http.get("tokens") or [], http.get("jwt")
    if not isinstance(tokens, list):
        tokens = [tokens]
    found = {f"http.tokens: {_describe_token(one)}": _digest(one) for one in tokens}
    if jwt:
        issuer = text_of(jwt.get("issuer")) if isinstance(jwt, dict) else text_of(jwt)
        may = f", also with the role admin, {ALL}" if "admin" in texts_in(jwt) else ""
        found[f"http.jwt: JWTs of {issuer}{may}"] = _digest(jwt)
    return found


def _describe_token(token: Any) -> str:
    """Describe a token by its name, role and tools."""
    if not isinstance(token, dict):
        return text_of(token)
    role, tools = token.get("role") or "call", token.get("tools")
    rights = f"role {text_of(role)}, {ALL}" if role == "admin" else f"role {text_of(role)}"
    limited = f", with {', '.join(map(text_of, tools))}" if isinstance(tools, list) else ""
    return f"{text_of(token.get('name'))} ({rights}{limited})"


def _audit(data: dict[str, Any]) -> dict[str, str]:
    """Return a line about the audit log, if the project sets `audit`."""
    audit = data.get("audit")
    if audit is None:
        return {}
    mode = audit.get("mode", "usual") if isinstance(audit, dict) else audit
    effect = NOT_NOTED if mode == "none" else ""
    return {f"{AUDIT}{text_of(audit)}{effect}": _digest(audit)}


def _settings(data: dict[str, Any]) -> dict[str, str]:
    """Return lines for the settings of packs: the user's own packs may send keys to an address in them."""
    settings = data.get("settings") or {}
    if not isinstance(settings, dict):
        return _unexpected("settings", settings)
    return {f"settings.{pack}": _digest(values) for pack, values in settings.items()}


def paths_in(value: Any, path: str, places: Places) -> Iterator[Path]:
    """Yield the paths in a value, each relative to the file that names it."""
    for at, one in enumerate(value) if isinstance(value, list) else [(None, value)]:
        if isinstance(one, str):
            yield absolute(places.folder(path if at is None else f"{path}[{at}]"), one)


def _topics(root: dict[str, Any], places: Places) -> dict[str, str]:
    """Return a line for each file that messages to a topic are written to."""
    topics = root.get("topics")
    found: dict[str, str] = {}
    for at, data in enumerate((topics if isinstance(topics, list) else [topics]) if topics else []):
        paths = (
            list(paths_in(data["file"], f"topics[{at}]", places)) if isinstance(data, dict) and "file" in data else []
        )
        file = "" if not paths else str(paths[0]) if "${" in str(paths[0]) else os.path.realpath(paths[0])
        line = f"topic {text_of(data.get('pattern'))}: writes {file}" if paths else f"topics: {text_of(data)}"
        found[line] = _digest(data)
    return found


def _roots(data: dict[str, Any]) -> dict[str, str]:
    fs = data.get("fs") or {}
    roots = fs.get("roots") if isinstance(fs, dict) else fs
    if roots is None:
        return {}
    return {f"folder {text_of(root)}": "" for root in (roots if isinstance(roots, list) else [roots]) if root != "."}


def _paths_outside(named: dict[str, list[Path]], project: Path) -> dict[str, str]:
    """Return lines for files and packs outside the project that its config names."""
    outside = ((key, path) for key, paths in named.items() for path in paths if not is_inside(path, project))
    return {f"{key} {path if '${' in str(path) else os.path.realpath(path)}": "" for key, path in outside}


def _secret_files(data: dict[str, Any], own: dict[str, Any]) -> dict[str, str]:
    """Return a line for each file with a secret, and the place that uses it. `own` are the project's secrets."""
    texts = [one for one in _texts_with_secrets(data) if one[0] != "secrets"]
    texts += ((f"the secret {name}", text) for name, value in own.items() for text in texts_in(value))
    return {f"secret in {path} for {place}": "" for place, text in texts for path in FILE_PLACEHOLDER.findall(text)}


def _texts_with_secrets(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield every string whose placeholders are filled in, with its place."""
    for key, value in data.items():
        if key not in LITERAL_KEYS:
            parts = value.items() if key == "servers" and isinstance(value, dict) else [("", value)]
            for part, content in parts:
                yield from ((f"{key}.{part}" if part else key, text) for text in texts_in(content))


def _values(data: dict[str, Any], file: Path | None) -> dict[str, str]:
    """Return digests of the project's own secrets that determine a command or an address.

    Values under names that sound secret (`api_key`, `token`) may change at any time, so they count only if they are
    addresses.
    """
    own = data.get("secrets")
    values = own if isinstance(own, dict) else None
    found: dict[str, str] = {}
    for key, text in _deciding_texts(data):
        for name in PLACEHOLDER.findall(text):
            values = values if values is not None else _read_values(file)
            if name in values and (not sounds_secret(key) or ADDRESS in text or ADDRESS in text_of(values[name])):
                found[f"{name}{OWN_VALUE}"] = _digest(values[name])
    return found


def _deciding_texts(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield strings that decide what is run, connected to or read, each with its key."""
    servers = data.get("servers")
    for block in servers.values() if isinstance(servers, dict) else ():
        if isinstance(block, dict):
            yield from _texts_by_key({key: block.get(key) for key in ("command", "args", "cwd", "url", "env", "auth")})
    for key in ("packs", "include", "prompts", "secrets", "fs", "topics", "settings", "ask", "audit", *SHARED):
        yield from _texts_by_key(data.get(key) if not (key == "secrets" and isinstance(data.get(key), dict)) else None)
    http = data.get("http")
    yield from _texts_by_key({key: http.get(key) for key in LISTENS + LETS_IN} if isinstance(http, dict) else http)


def _texts_by_key(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield every string in a value, with the nearest key above it."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield str(name), str(name)
            yield from _texts_by_key(item, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _texts_by_key(item, key)


def _read_values(file: Path | None) -> dict[str, Any]:
    if file is None or not file.is_file():
        return {}
    try:
        found = read_yaml(file).data
    except ConfigFileError:
        return {}
    return found if isinstance(found, dict) else {}


def _programs(data: dict[str, Any], places: Places, project: Path, secrets: Path | None) -> dict[str, ServerProgram]:
    servers, own = data.get("servers"), data.get("secrets")
    if not isinstance(servers, dict):
        return {}
    has_names = any(PLACEHOLDER.search(text) for text in texts_in(servers))
    values = own if isinstance(own, dict) else _read_values(secrets) if has_names else {}
    blocks = [(name, block) for name, block in servers.items() if isinstance(block, dict)]
    folders = {
        name: path for name, block in blocks for path in paths_in(block.get("cwd"), child("servers", name), places)
    }
    return programs_of(servers, folders, project, values)


def _details(data: dict[str, Any], programs: dict[str, ServerProgram]) -> dict[str, tuple[str, ...]]:
    """Return the values that a line stands for. They are shown, but neither stored nor logged."""
    servers, settings, ask = (data.get(key) or {} for key in ("servers", "settings", "ask"))
    found: dict[str, tuple[str, ...]] = {}
    for name, block in servers.items() if isinstance(servers, dict) else ():
        found[server_line(name, block)] = tuple(server_details(block, programs.get(name)))
    for pack, values in settings.items() if isinstance(settings, dict) else ():
        pairs = values.items() if isinstance(values, dict) else [("", values)]
        found[f"settings.{pack}"] = tuple(f"{key}: {text_of(value)}" for key, value in pairs)
    if isinstance(ask, dict) and ask.get("system"):
        found[ASK_SYSTEM] = tuple(text_of(ask["system"]).splitlines())
    return found


# Digests


def _unexpected(key: str, value: Any) -> dict[str, str]:
    return {f"{key}: {text_of(value)}": _digest(value)}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
