"""What the key `secrets` says -> Secrets. No message from here repeats a value."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from onetool.config.include import placed
from onetool.config.node import BROKEN, Findings, Node
from onetool.config.placeholders import fill
from onetool.config.shape import BAD, read
from onetool.config.source import Refused
from onetool.config.yaml_nodes import read_yaml
from onetool.services.secrets import UNMISTAKABLE, Secret, Secrets, too_open

DEFAULT = "secrets.yaml"


class ForHosts(msgspec.Struct, frozen=True, kw_only=True):
    """A secret that is only for requests to some hosts, written as in `allowedHosts`."""

    value: Secret
    hosts: tuple[str, ...]

    def problems(self) -> Iterator[tuple[str, str, str | None]]:
        from onetool.handlers.http.hosts import read_entry  # most secrets have no hosts

        if not self.hosts:
            yield "hosts", "hosts is empty", "write those that it is for, or the value alone: KEY: value"
        for host in self.hosts:
            try:
                if not read_entry(host).host:
                    yield "hosts", f"{host!r} is any host", "write those that it is for"
            except ValueError as error:
                yield "hosts", str(error).removeprefix("allowedHosts: "), None


Values = tuple[dict[str, str], dict[str, tuple[str, ...]]]
"""The values by name, and the hosts of those that have some."""


def read_secrets(
    node: Node | None, home: Path, env: Mapping[str, str], findings: Findings, may_be_missing: bool = False
) -> Secrets | None:
    """The secrets of the file or mapping, and of the environment. None when something is wrong with the first.

    Where nothing is said, the file is `secrets.yaml` among the state: where `onetool auth` keeps them.
    """
    if node is None or node.value is None:
        return _default(home, env, findings)
    if isinstance(node.value, dict):
        findings.warn(node, "secrets stand in the config itself", "better keep them in a file: secrets: secrets.yaml")
        values = _values(node, findings)
        return None if values is None else Secrets(values[0], env=env, hosts=values[1])
    # The file's own name can only come from the environment.
    named = fill(Node(value={"secrets": node}, file=node.file, line=1), Secrets(env=env), findings).value["secrets"]
    path = read(named, Path | dict[str, str], findings)
    if path is BAD:
        return None
    if may_be_missing and not path.exists():
        return Secrets(env=env, file=path)
    return _from_file(path, node, env, findings)


def _default(home: Path, env: Mapping[str, str], findings: Findings) -> Secrets | None:
    """The secrets of the file that nobody named; there need not be one."""
    file = home / DEFAULT
    if not file.exists():
        return Secrets(env=env, file=file)
    return _from_file(file, Node(value=None, file=str(file), line=1), env, findings)


def _from_file(path: Path, entry: Node, env: Mapping[str, str], findings: Findings) -> Secrets | None:
    command = too_open(path)
    if command:
        findings.error(entry, f"others than its owner may read or write {path}", f"run: {command}")
        return None
    try:
        root = read_yaml(path)
    except Refused as refused:
        findings.add([placed(refused, path, entry)])
        return None
    if root.value is None:
        return Secrets(env=env, file=path)
    values = _values(root, findings)
    return None if values is None else Secrets(values[0], env=env, file=path, hosts=values[1])


def _values(node: Node, findings: Findings) -> Values | None:
    findings.add(node.mistakes)
    if not isinstance(node.value, dict):
        if node.value is not BROKEN:
            findings.error(node, "expected a mapping of names to texts", "write NAME: value")
        return None
    values: dict[str, str] = {}
    hosts: dict[str, tuple[str, ...]] = {}
    for name, entry in node.value.items():
        findings.add(entry.mistakes)
        found = read(entry, ForHosts, findings) if isinstance(entry.value, dict) else entry.value
        if isinstance(found, ForHosts):
            values[name], hosts[name] = str(found.value), found.hosts
        elif isinstance(found, str):
            values[name] = found
        elif entry.value is not BROKEN and not isinstance(entry.value, dict):
            findings.error(entry, "a secret must be a text", "quote it")
        if name in values and 0 < len(values[name]) < UNMISTAKABLE:
            message = f"a secret shorter than {UNMISTAKABLE} characters can't be masked well"
            findings.warn(entry, message, "choose a longer one: other texts have a short one by chance")
    return (values, hosts) if len(values) == len(node.value) else None
