"""Blocks of other clients -> what would be written, what is left out, and why. Touches nothing."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from onetool.config import Config
from onetool.interfaces.cli.clients.server import LOOPBACK
from onetool.interfaces.cli.importing.hiding import Vault, without_secrets
from onetool.interfaces.cli.importing.reading import Found
from onetool.interfaces.cli.importing.translate import Skipped, translated
from onetool.interfaces.cli.importing.variables import OURS, Variables
from onetool.interfaces.cli.importing.writing import Target
from onetool.services.secrets import Secret

LONGEST_NAME = 100

Ask = Callable[[str, str], str | None]
"""Asks a person for the secret that a server needs; None when nobody can or will say."""


class Plan(msgspec.Struct, kw_only=True):
    """What comes of an import. Of secrets only the names are ever shown."""

    servers: dict[str, dict[str, Any]] = {}
    secrets: dict[str, Secret] = {}
    kept: list[str] = []  # there already
    skipped: dict[str, str] = {}
    notes: list[str] = []
    failed: bool = False  # whether one was left out that somebody will miss


class Planner:
    """Goes through the files, one after the other; the first one that has a name wins."""

    def __init__(self, target: Target, *, replace: bool, only: Iterable[str] = (), ask: Ask) -> None:
        self.target = target
        self.replace = replace
        self.only = set(only)
        self.ask = ask
        self.vault = Vault(target.secrets)
        self.plan = Plan()

    def add(self, found: Found) -> None:
        for name, raw in found.servers.items():
            if self.only and name not in self.only:
                continue
            if name in self.plan.servers or name in self.plan.skipped:
                self.plan.notes.append(f"{name}: {found.file} has one of that name, too; the first was taken")
            elif name in self.target.servers and not self.replace:
                self.plan.kept.append(name)
            else:
                self._take(name, raw, found)

    def done(self) -> Plan:
        used = {name for block in self.plan.servers.values() for name in placeholders(block)}
        self.plan.secrets = {name: value for name, value in self.vault.new.items() if name in used}
        return self.plan

    def _take(self, name: str, raw: Any, found: Found) -> None:
        try:
            block, notes = self._block(name, raw, found)
        except Skipped as why:
            self.plan.skipped[name] = str(why)
            self.plan.failed |= not isinstance(why, Itself)
            return
        self.plan.servers[name] = block
        self.plan.notes += [f"{name}: {note}" for note in notes]

    def _block(self, name: str, raw: Any, found: Found) -> tuple[dict[str, Any], list[str]]:
        if elsewhere := self.target.elsewhere(name):
            raise Skipped(f"it stands in {elsewhere}, which the config includes: change it there")
        if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
            raise Skipped(f"a name has 1 to {LONGEST_NAME} characters that can be seen")
        variables = Variables(found.folder, found.inputs, self.vault.has)
        block, notes = translated(raw, variables, found.folder, old_url=found.file.parent.name == ".gemini")
        if is_onetool(block, self.target.config):
            raise Itself("it is OneTool itself")
        block = without_secrets(name, block, self.vault)
        for secret in placeholders(block):
            if not self.vault.has(secret) and not self._given(name, secret):
                notes.append(f"it can't be connected until its secret is set: onetool auth set {secret}")
            elif self.vault.is_borrowed(secret):
                notes.append(f"{secret} comes from the environment; to have it always: onetool auth set {secret}")
        return block, notes

    def _given(self, server: str, secret: str) -> bool:
        """Whether a person has given it, where there is one to ask."""
        value = self.ask(server, secret)
        if value:
            self.vault.put(secret, value)
        return bool(value)


class Itself(Skipped):
    """A server that would call itself; nobody misses it."""


def is_onetool(block: Mapping[str, Any], config: Config) -> bool:
    """Whether a client would reach OneTool by this: then its tools are here already."""
    if url := block.get("url"):
        try:
            parts = urlsplit(url)
            return parts.hostname in LOOPBACK and parts.port == config.http.port and parts.path in ("/mcp", "/mcp/")
        except ValueError:
            return False
    words = [block.get("command", ""), *block.get("args", ())]
    names = [re.sub(r"\.(exe|cmd)$", "", re.split(r"[/\\]", word)[-1].lower()) for word in words]
    starts = [at for at, name in enumerate(names) if name.partition("==")[0].partition("@")[0] == "onetool"]
    return any({"mcp", "serve"} & set(words[at + 1 :]) for at in starts) or names[:1] == ["onetool"]


def placeholders(value: Any) -> list[str]:
    """The names of all secrets in a block."""
    if isinstance(value, str):
        return OURS.findall(value)
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return list(dict.fromkeys(name for item in items for name in placeholders(item)))
