"""`${NAME}` in the values of a config -> the secret of that name. One pass: a secret that contains `${…}` is data."""

import re
from collections.abc import Collection

from msgspec.structs import replace

from onetool.config.mend import NAME
from onetool.config.node import BROKEN, Findings, Node
from onetool.core.nearest import did_you_mean
from onetool.services.secrets import Bound, Fits, Secret, Secrets

# What misses a secret here can be left out, and the rest of the config works.
SPARED = {"servers"}

# Texts of these are for others to read, who have their own `${…}` or none at all.
UNTOUCHED = {"tools", "snippets", "aliases", "prompts", "allowedHosts"}

_PLACEHOLDER = re.compile(r"\$\{(" + NAME + r")\}")
_OTHER = re.compile(r"\$\{[^{}]{0,100}\}")  # bounded: a text of nothing but `${` would take a square of time


def fill(root: Node, secrets: Secrets | None, findings: Findings, kept_here: Collection[str] = frozenset()) -> Node:
    """The root with secrets filled in. None says that they could not be read, which was told already.

    The names in `kept_here` are filled in only if they are kept with the config.
    """
    values = {
        key: node if key in UNTOUCHED else _filled(key, node, secrets, findings, kept_here)
        for key, node in root.value.items()
    }
    return replace(root, value=values)


def names_in(text: object) -> list[str]:
    """The names of secrets that a text asks for."""
    return _PLACEHOLDER.findall(text) if isinstance(text, str) else []


def _filled(key: str, node: Node, secrets: Secrets | None, findings: Findings, kept_here: Collection[str]) -> Node:
    filler = _Filler(secrets, findings, key in SPARED, _where(key, kept_here))
    if key != "servers" or not isinstance(node.value, dict):
        return filler.node(node)
    return replace(node, value={name: filler.server(server) for name, server in node.value.items()})


def _where(key: str, kept_here: Collection[str]) -> Collection[str]:
    """Our own door may have its own key from anywhere."""
    return () if key == "http" else kept_here


class _Filler:
    def __init__(self, secrets: Secrets | None, findings: Findings, spares: bool, kept_here: Collection[str]) -> None:
        self.secrets = secrets
        self.findings = findings
        self.spares = spares
        self.kept_here = kept_here

    def node(self, node: Node, fits: Fits | None = None) -> Node:
        """`fits` is for what is sent in requests, and tells of hosts whether it is sent there."""
        if isinstance(node.value, dict):
            return replace(node, value={key: self.node(item, fits) for key, item in node.value.items()})
        if isinstance(node.value, list):
            return replace(node, value=[self.node(item, fits) for item in node.value])
        if isinstance(node.value, str) and "${" in node.value:
            return self._text(node, node.value, fits)
        return node

    def server(self, node: Node) -> Node:
        """One block of `servers`: what goes to its url may hold secrets that are for its host only."""
        url = node.value.get("url") if isinstance(node.value, dict) else None
        if url is None or not isinstance(url.value, str):
            return self.node(node)
        fits = self._goes_to(url.value)
        return replace(
            node,
            value={key: self.node(item, fits if _goes_along(key, item) else None) for key, item in node.value.items()},
        )

    def _goes_to(self, url: str) -> Fits:
        secrets = self.secrets

        def fits(hosts: tuple[str, ...]) -> bool:
            from onetool.handlers.http.hosts import is_one_of  # most configs have no secrets for hosts
            from onetool.handlers.http.refusal import Refusal
            from onetool.handlers.http.url import parse_url

            def known(match: "re.Match[str]") -> str:
                return (secrets.get(match[1], lambda _: True) if secrets else None) or match[0]

            try:
                return is_one_of(parse_url(_PLACEHOLDER.sub(known, url)), hosts)
            except Refusal:
                return False

        return fits

    def _text(self, node: Node, text: str, fits: Fits | None) -> Node:
        names = list(dict.fromkeys(_PLACEHOLDER.findall(text)))
        for other in _OTHER.findall(_PLACEHOLDER.sub("", text)):
            self.findings.warn(node, f"{other} stays as it is", "only ${NAME} is replaced, by the secret of that name")
        if not names:
            return node
        if self.secrets is None:
            return replace(node, value=BROKEN)
        values: dict[str, str | None] = {}
        for name in names:
            try:
                values[name] = self._value(self.secrets, name, fits)
                if values[name] is None:
                    self._missing(node, name, self.secrets)
            except Bound as bound:
                values[name] = None
                (self.findings.warn if self.spares else self.findings.error)(node, str(bound), bound.hints[0])
        if None in values.values():
            return node if self.spares else replace(node, value=BROKEN)
        filled = _PLACEHOLDER.sub(lambda match: values[match[1]] or "", text)
        return replace(node, value=Secret(filled, shown=text), written=text)

    def _value(self, secrets: Secrets, name: str, fits: Fits | None) -> str | None:
        elsewhere = name in self.kept_here and secrets.where(name) not in ("file", "config")
        return None if elsewhere else secrets.get(name, fits)

    def _missing(self, node: Node, name: str, secrets: Secrets) -> None:
        file = (
            f"add it to {secrets.file}" if secrets.file else "name a file with `secrets: secrets.yaml` and add it there"
        )
        hint = f"run: onetool auth set {name}; or set the environment variable {name}, or {file}"
        # For a server another name would be another service's token, and go to the wrong party.
        near = None if self.spares else did_you_mean(name, secrets.names())
        tell = self.findings.warn if self.spares else self.findings.error
        tell(node, f"the secret {name} is not set", f"{near} Else {hint}" if near else hint)


def _goes_along(key: str, node: Node) -> bool:
    """Whether a key of a server with a url is sent to that url, and nowhere else. Credentials of a login are not."""
    if key != "auth" or not isinstance(node.value, dict):
        return key in ("url", "headers", "auth")
    kind = node.value.get("type")
    return kind is not None and kind.value == "bearer"
