"""Reads a config file and the files that it includes into one root node, and fills in its secrets.

A value that two files set is refused, not overridden. The key `secrets` says where secrets come from, and `${NAME}` in
other values is replaced by a secret, in one pass: a secret that itself contains `${…}` is not expanded.
`${file:/run/secrets/key}` is replaced by the content of that file. No error message repeats a value.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from shlex import quote
from stat import S_ISREG
from typing import Any, get_origin

import msgspec
from msgspec.structs import replace

from onetool.config.cluster import UnsetSecret
from onetool.config.convert import BAD, convert, fields_of, report_mismatch, unknown_key
from onetool.config.file_checks import SECRETS_FILE
from onetool.config.model import Keys
from onetool.config.node import BROKEN, Findings, Node
from onetool.config.yaml_nodes import (
    ANY_PLACEHOLDER,
    FILE,
    FILE_PLACEHOLDER,
    PLACEHOLDER,
    ConfigFileError,
    read_yaml,
)
from onetool.core.errors import Mistake
from onetool.core.file_facts import is_writable_by_others
from onetool.core.text import did_you_mean
from onetool.services.secrets import MAX_LENGTH, Fits, Secret, SecretHostError, Secrets, too_open

MAX_DEPTH = 10
ALSO = {"mcpServers": "servers"}  # the word of other clients, so that text pasted from them works
SECRETS_IN_CONFIG = "The secrets are inside the config. Move them to a file first (secrets: secrets.yaml)"

MayRead = Callable[[Path], bool]


def read_files(path: Path, findings: Findings, may_read: MayRead = lambda _: True) -> tuple[Node, tuple[Path, ...]]:
    """Return the merged root of all files, and the included files. `may_read` is called before each file is opened."""
    files = Files(findings, may_read)
    files.add(path)
    return merge_roots(files.roots, str(path), findings), tuple(files.paths[1:])


class Files:
    """The files of a config. Each is read once, an including file before the files that it includes."""

    def __init__(self, findings: Findings, may_read: MayRead) -> None:
        self.findings = findings
        self._may_read = may_read
        self.roots: list[Node] = []
        self.paths: list[Path] = []
        self._identities: set[str] = set()  # of the files read so far

    def add(self, path: Path, entry: Node | None = None, trail: tuple[str, ...] = ()) -> None:
        """Read a file and its includes. `entry` is the node that named it, `trail` the chain of including files."""
        identity = os.path.realpath(path)
        if entry and identity in trail:
            circle = " -> ".join([*trail[trail.index(identity) :], identity])
            self.findings.error(entry, f"circular include: {circle}", "remove one of the includes")
        elif entry and len(trail) > MAX_DEPTH:
            self.findings.error(
                entry, f"includes are nested more than {MAX_DEPTH} files deep", "include the file directly"
            )
        elif identity not in self._identities and self._may_read(path):
            self._identities.add(identity)
            self.paths.append(path)
            try:
                root = read_yaml(path)
            except ConfigFileError as refused:
                self.findings.add([mistake_of(refused, path, entry)])
                return
            self.findings.add(root.mistakes)
            if root.value is None or isinstance(root.value, dict):
                self.roots.append(replace(root, value=root.value or {}))
                entries = self.roots[-1].value.get("include")
                paths = convert(entries, tuple[Path, ...], self.findings) if entries else ()
                if entries and paths is not BAD:
                    for included, place in zip(entries.value or (), paths, strict=True):
                        self.add(Path(os.path.normpath(place)), included, (*trail, identity))
            elif root.value is not BROKEN:
                report_mismatch(root, dict, self.findings)


def mistake_of(refused: ConfigFileError, path: Path, entry: Node | None) -> Mistake:
    """Return the mistake at its line in the file; for a file that can't be read, at the entry that includes it."""
    if refused.line is None and entry:
        return entry.mistake(refused.message, refused.hint)
    return Mistake(message=refused.message, file=str(path), line=refused.line, hint=refused.hint)


def merge_roots(roots: list[Node], file: str, findings: Findings) -> Node:
    """Merge roots: lists are joined, mappings united, and everything else may be set once."""
    fields = fields_of(Keys)
    found: dict[str, list[Node]] = {}
    for root in roots:
        for written, node in root.value.items():
            key = ALSO.get(written) or written
            if key not in fields:
                unknown_key(node, key, Keys, findings)
            elif key != "include":
                found.setdefault(key, []).append(node)
    together = {key: _merge(nodes, fields[key].type, findings) for key, nodes in found.items()}
    return Node(value=together, file=file, line=1)


def _merge(nodes: list[Node], wanted: Any, findings: Findings) -> Node:
    if len(nodes) == 1:
        return nodes[0]
    kind = get_origin(wanted) or wanted
    if kind is tuple:
        items = [item for node in _nodes_of_kind(list, nodes, wanted, findings) for item in node.value]
        return replace(nodes[0], value=items)
    if kind is dict:
        entries: dict[str, Node] = {}
        for node in _nodes_of_kind(dict, nodes, wanted, findings):
            for key, entry in node.value.items():
                _require_one([entries.setdefault(key, entry), entry], findings)
        return replace(nodes[0], value=entries)
    return _require_one(nodes, findings)


def _require_one(nodes: list[Node], findings: Findings) -> Node:
    first = nodes[0]
    for node in nodes[1:]:
        if node is not first:
            both = f"{first.file}:{first.line} and {node.file}:{node.line}"
            where = "two files" if first.file != node.file else "two places"
            findings.error(node, f"set in {where}, {both}", "remove one of them")
    return first


def _nodes_of_kind(kind: type, nodes: list[Node], wanted: Any, findings: Findings) -> list[Node]:
    """Return the nodes of this kind, and report the others as mistakes."""
    for node in nodes:
        if isinstance(node.value, kind):
            findings.add(node.mistakes)
        else:
            convert(node, wanted, findings)
    return [node for node in nodes if isinstance(node.value, kind)]


# `${NAME}` in values

# An entry of these keys with a missing secret is skipped; the rest of the config works.
OPTIONAL_KEYS = {"servers"}

# Missing secrets of these keys are reported when they are needed: most commands need neither address nor key of a
# replica.
LATE_KEYS = {"cluster"}

# `${…}` in these keys is literal text.
LITERAL_KEYS = {"tools", "snippets", "aliases", "prompts", "allowedHosts"}

_UNSUPPORTED = re.compile(
    r"\$\{[^{}]{0,100}\}"
)  # bounded: otherwise a string of nothing but `${` would take quadratic time


def resolve(root: Node, secrets: Secrets | None, findings: Findings, kept_here: Collection[str] = frozenset()) -> Node:
    """Return the root with secrets filled in. `secrets` is None if they could not be read, which has been reported.

    The names in `kept_here` are filled in only if they are stored with the config.
    """
    values: dict[str, Node] = {}
    for key, node in root.value.items():
        kept = () if key == "http" else kept_here  # http.token may come from any source
        filler = _Filler(secrets, findings, key in OPTIONAL_KEYS, kept, key in LATE_KEYS)
        if key in LITERAL_KEYS:
            values[key] = node
        elif key == "servers" and isinstance(node.value, dict):
            values[key] = replace(node, value={name: filler.server(one) for name, one in node.value.items()})
        else:
            values[key] = filler.node(node)
    return replace(root, value=values)


def names_in(text: object) -> list[str]:
    return PLACEHOLDER.findall(text) if isinstance(text, str) else []


class _Filler:
    def __init__(
        self,
        secrets: Secrets | None,
        findings: Findings,
        spares: bool,
        kept_here: Collection[str],
        is_late: bool,
    ) -> None:
        self.secrets = secrets
        self.findings = findings
        self.spares = spares
        self.kept_here = kept_here
        self.is_late = is_late

    def node(self, node: Node, fits: Fits | None = None) -> Node:
        """Fill in secrets below a node.

        `fits` returns whether given hosts receive the value; None means that it is not sent.
        """
        if isinstance(node.value, dict):
            return replace(node, value={key: self.node(item, fits) for key, item in node.value.items()})
        if isinstance(node.value, list):
            return replace(node, value=[self.node(item, fits) for item in node.value])
        if isinstance(node.value, str) and "${" in node.value:
            return self._text(node, node.value, fits)
        return node

    def server(self, node: Node) -> Node:
        """Fill in secrets in a block of `servers`. Values sent to its URL may contain secrets bound to that host."""
        url = node.value.get("url") if isinstance(node.value, dict) else None
        if url is None or not isinstance(url.value, str):
            return self.node(node)
        secrets, text = self.secrets, url.value

        def secret_or_name(match: "re.Match[str]") -> str:
            return (secrets.get(match[1], lambda _: True) if secrets else None) or match[0]

        def fits(hosts: tuple[str, ...]) -> bool:
            from onetool.http.allowed_hosts import is_bound_to  # most configs have no secrets bound to hosts
            from onetool.http.errors import RequestRefusedError
            from onetool.http.url import parse_url

            try:
                return is_bound_to(parse_url(PLACEHOLDER.sub(secret_or_name, text)), hosts)
            except RequestRefusedError:
                return False

        values = {
            key: self.node(item, fits if _is_sent_to_url(key, item) else None) for key, item in node.value.items()
        }
        return replace(node, value=values)

    def _text(self, node: Node, text: str, fits: Fits | None) -> Node:
        names = list(dict.fromkeys(ANY_PLACEHOLDER.findall(text)))
        for other in _UNSUPPORTED.findall(ANY_PLACEHOLDER.sub("", text)):
            self.findings.warn(node, f"{other} is not replaced", "only ${NAME} is replaced, by the secret of that name")
        if not names:
            return node
        if self.secrets is None:
            return replace(node, value=BROKEN)
        values: dict[str, str | None] = {}
        report = self.findings.warn if self.spares else self.findings.error
        for name in names:
            if name.startswith(FILE):
                try:
                    values[name] = read_secret_file(name.removeprefix(FILE), self.secrets)
                except SecretFileError as error:
                    if self.is_late:
                        return replace(node, value=UnsetSecret(text, name, node.mistake(str(error))), written=text)
                    report(node, str(error), error.hint)
                    values[name] = None
                continue
            try:
                elsewhere = name in self.kept_here and self.secrets.where(name) not in ("file", "config")
                values[name] = None if elsewhere else self.secrets.get(name, fits)
                if values[name] is None and self.is_late:
                    unset = node.mistake(f"{name} is not set on this machine")
                    return replace(node, value=UnsetSecret(text, name, unset), written=text)
                if values[name] is None:
                    file = self.secrets.file
                    place = f"add it to {file}" if file else "set a file with `secrets: secrets.yaml` and add it there"
                    hint = f"run: onetool auth set {name}; or set the environment variable {name}, or {place}"
                    # A server must not get a secret of a similar name: it would be another service's token.
                    near = None if self.spares else did_you_mean(name, self.secrets.names())
                    report(node, f"the secret {name} is not set", f"{near} Otherwise {hint}" if near else hint)
            except SecretHostError as bound:
                values[name] = None
                report(node, str(bound), bound.hints[0])
        if None in values.values():
            return node if self.spares else replace(node, value=BROKEN)
        filled = ANY_PLACEHOLDER.sub(lambda match: values[match[1]] or "", text)
        return replace(node, value=Secret(filled, shown=text), written=text)


def _is_sent_to_url(key: str, node: Node) -> bool:
    """Return whether a key of a server is sent to its URL and nowhere else. Credentials of a login are not."""
    if key != "auth" or not isinstance(node.value, dict):
        return key in ("url", "headers", "auth")
    kind = node.value.get("type")
    return kind is not None and kind.value == "bearer"


# The key `secrets`


class HostBoundSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret bound to hosts, written as in `allowedHosts`. A host means https unless it begins with http://."""

    value: Secret
    hosts: tuple[str, ...]

    def problems(self) -> Iterator[tuple[str, str, str | None]]:
        from onetool.http.allowed_hosts import read_binding  # most secrets have no hosts

        if not self.hosts:
            yield "hosts", "hosts is empty", "list the hosts of the secret, or write the value alone: KEY: value"
        for host in self.hosts:
            try:
                if not read_binding(host).host:
                    yield "hosts", f"{host!r} matches any host", "list the hosts of the secret"
            except ValueError as error:
                yield "hosts", str(error).removeprefix("allowedHosts: "), None


class SecretFileError(ValueError):
    """A secret file that can't be used."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def read_secret_file(path: str, secrets: Secrets) -> str:
    """Return the content of a placeholder's file, without trailing line ends. Raises SecretFileError.

    Links are followed, because Kubernetes mounts secrets as links. Other users may read the file, because Docker mounts
    it that way, but must not be able to write to it. `secrets` records the file and masks the value.
    """
    if not os.path.isabs(path):
        raise SecretFileError(f"{path} is not an absolute path", "write ${file:/run/secrets/NAME}")
    secrets.files.append(Path(path))
    try:
        status = os.stat(path)
        if not S_ISREG(status.st_mode):
            raise SecretFileError(
                f"{path} is not a regular file", "use a file that contains the secret and nothing else"
            )
        if is_writable_by_others(status):
            message = f"{path} is ignored, because other users can write to it"
            raise SecretFileError(message, f"run: chmod go-w {quote(path)}")
        with open(path, "rb") as file:
            data = file.read(MAX_LENGTH + 1)
        value = data.decode().rstrip("\r\n")
    except OSError as error:
        hint = "check that the secret is mounted, and that this user may read it: ls -lL"
        raise SecretFileError(f"can't read the secret {path}: {error.strerror or error}", hint) from None
    except UnicodeDecodeError:
        raise SecretFileError(f"{path} is not UTF-8 text", "store the secret in it as text") from None
    if not value or len(data) > MAX_LENGTH:
        what = "empty" if not value else f"larger than {MAX_LENGTH // 1024} KiB"
        raise SecretFileError(f"{path} is {what}", "use a file that contains the secret and nothing else")
    secrets.mask_always(value)
    return value


def read_secrets(
    node: Node | None, home: Path, env: Mapping[str, str], findings: Findings, may_be_missing: bool = False
) -> Secrets | None:
    """Return the secrets of the file or mapping, and of the environment. None if the file or mapping has a mistake.

    The default file is `secrets.yaml` in the state folder, where `onetool auth` stores secrets.
    """
    if node is None or node.value is None:
        file = home / SECRETS_FILE
        if not file.exists():
            return Secrets(env=env, file=file)
        return _from_file(file, Node(value=None, file=str(file), line=1), env, findings)
    if isinstance(node.value, dict):
        findings.warn(node, "the config itself contains secrets", "move them to a file: secrets: secrets.yaml")
        return _secrets_in(node, findings, env)
    # The file's own name may use only the environment: `onetool trust` has to see where a project's secrets are.
    if isinstance(node.value, str) and FILE_PLACEHOLDER.search(node.value):
        findings.error(node, "${file:…} can't name the secrets file", "write the path itself: secrets: secrets.yaml")
        return None
    named = resolve(Node(value={"secrets": node}, file=node.file, line=1), Secrets(env=env), findings).value["secrets"]
    path = convert(named, Path | dict[str, str], findings)
    if path is BAD:
        return None
    if may_be_missing and not path.exists():
        return Secrets(env=env, file=path)
    return _from_file(path, node, env, findings)


def _from_file(path: Path, entry: Node, env: Mapping[str, str], findings: Findings) -> Secrets | None:
    command = too_open(path)
    if command:
        findings.error(entry, f"other users can read or write {path}", f"run: {command}")
        return None
    try:
        root = read_yaml(path)
    except ConfigFileError as refused:
        findings.add([mistake_of(refused, path, entry)])
        return None
    return Secrets(env=env, file=path) if root.value is None else _secrets_in(root, findings, env, path)


def _secrets_in(node: Node, findings: Findings, env: Mapping[str, str], file: Path | None = None) -> Secrets | None:
    """Return the secrets of a mapping. A value that is just `${file:…}` is replaced by the content of that file."""
    findings.add(node.mistakes)
    if not isinstance(node.value, dict):
        if node.value is not BROKEN:
            findings.error(node, "expected a mapping of names to strings", "write NAME: value")
        return None
    values: dict[str, str] = {}
    hosts: dict[str, tuple[str, ...]] = {}
    secrets = Secrets(env=env, file=file)
    for name, entry in node.value.items():
        findings.add(entry.mistakes)
        found = convert(entry, HostBoundSecret, findings) if isinstance(entry.value, dict) else entry.value
        if isinstance(found, HostBoundSecret):
            found, hosts[name] = str(found.value), found.hosts
        if isinstance(found, str):
            try:
                from_file = FILE_PLACEHOLDER.fullmatch(found)
                values[name] = read_secret_file(from_file[1], secrets) if from_file else found
            except SecretFileError as error:
                findings.error(entry, str(error), error.hint)
        elif entry.value is not BROKEN and not isinstance(entry.value, dict):
            findings.error(entry, "a secret must be a string", "quote it")
    if len(values) != len(node.value):
        return None
    return Secrets(values, env=env, file=file, hosts=hosts, files=secrets.files)


def is_in_config(config: Path | None, secret: str) -> bool:
    """Return whether the config, or a file that it includes, has a placeholder for this secret."""
    if config is None:
        return False
    _, included = read_files(config, Findings())
    return any(f"${{{secret}}}" in file.read_text(errors="replace") for file in (config, *included))


def check_kept(secret: str, value: str | None, draft: Path) -> None:
    """Raise ValueError unless the draft of the secrets file can be read and contains this value."""
    try:
        found = read_yaml(draft).value or {}
        kept = found[secret].value if secret in found else None
        kept = kept["value"].value if isinstance(kept, dict) else kept
    except (ConfigFileError, TypeError, AttributeError):
        kept = draft  # unreadable, so not the value that was meant
    if kept != value:
        raise ValueError("Its YAML layout can't be edited automatically; edit it by hand")
