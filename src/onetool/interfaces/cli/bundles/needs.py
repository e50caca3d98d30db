"""What a tool needs before it can be called: secrets that are set, hosts that are allowed, a function that is there."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from onetool.core.errors import OneToolError

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.handlers.http.url import Url

_AUTHORITY = re.compile(r"(https?)://([^/?#]*)", re.IGNORECASE)


class Secret(NamedTuple):
    name: str
    source: str | None  # where it comes from; None: it is not set


class Host(NamedTuple):
    host: str
    allowed: bool | None  # None: only a call says what it is
    entry: str | None = None  # what to write into allowedHosts


class Needs(NamedTuple):
    secrets: tuple[Secret, ...] = ()
    hosts: tuple[Host, ...] = ()

    def shown(self) -> dict[str, Any]:
        return {key: [one._asdict() for one in found] for key, found in self._asdict().items()}

    def unset(self) -> list[str]:
        return [one.name for one in self.secrets if one.source is None]

    def closed(self) -> list[str]:
        """Entries for allowedHosts."""
        return [one.entry for one in self.hosts if one.entry is not None]


def needs_of(app: "App", tools: Iterable[Mapping[str, Any]]) -> Needs:
    """Of all these tools together, as REST shows them; each thing once, in their order."""
    secrets: dict[str, None] = {}
    urls: dict[str, None] = {}
    for tool in tools:
        if tool["type"] == "http":
            names, found = _of_request(app, tool)
            secrets |= dict.fromkeys(names)
            urls |= dict.fromkeys(found)
    return Needs(secrets_there(app, secrets), hosts_there(app, urls))


def secrets_there(app: "App", names: Iterable[str]) -> tuple[Secret, ...]:
    return tuple(Secret(name, app.config.secrets.where(name, environment=False)) for name in names)


def hosts_there(app: "App", urls: Iterable[str]) -> tuple[Host, ...]:
    """Of URLs with or without a path."""
    found: dict[str, Host] = {}
    for url in urls:
        match = _AUTHORITY.match(url)
        if match is not None and match[2]:
            found.setdefault(match[2].lower(), _host(app, match[1], match[2]))
    return tuple(found.values())


def _of_request(app: "App", tool: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The secrets that its request names, and the URLs that it goes to. None of a file that nobody can read."""
    from onetool.handlers.http.impl import HttpImpl, Limits, OAuth2
    from onetool.handlers.http.tool import HttpTool
    from onetool.sources.bundles.reading import converted

    try:
        impl = converted(tool["httpImpl"], HttpImpl)
        made = HttpTool(impl, tool.get("argSchema") or {}, Limits(), lambda: app.outside)
    except (OneToolError, ValueError):
        return [], []
    auth = impl.request.auth
    tokens = [auth.token_url] if isinstance(auth, OAuth2) else []
    return sorted(made.secrets), [impl.request.url_template, *tokens]


def _host(app: "App", scheme: str, authority: str) -> Host:
    from onetool.handlers.http.refusal import Refusal
    from onetool.handlers.http.url import parse_url

    if "${" in authority:
        return Host(authority, None)
    try:
        url = parse_url(f"{scheme}://{authority}/")
    except Refusal:
        return Host(authority, False)
    try:
        app.outside.hosts.check(url)
    except Refusal:
        return Host(url.authority, False, _entry(url))
    return Host(url.authority, True)


def _entry(url: "Url") -> str:
    """What would let it pass: a name of this machine or its network needs more than its name."""
    from onetool.handlers.http.hosts import AllowedHosts, HostRule
    from onetool.handlers.http.refusal import Refusal

    try:
        AllowedHosts([HostRule(url.authority)]).check(url)
    except Refusal:
        return written(url.authority, private=True)
    return written(url.authority, private=False)


def written(host: str, private: bool) -> str:
    """An entry of allowedHosts, in YAML that is JSON, too, as far as texts go."""
    return f'{{host: "{host}", allowPrivate: true}}' if private else f'"{host}"'
