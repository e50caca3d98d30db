"""Finds what tools of bundles need before they can be called: secrets, and hosts that have to be allowed."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from onetool.core.errors import OneToolError

if TYPE_CHECKING:
    from onetool.app.app import App
    from onetool.http.url import Url


_AUTHORITY = re.compile(r"(https?)://([^/?#]*)", re.IGNORECASE)


class RequiredSecret(NamedTuple):
    name: str
    source: str | None  # where it comes from; None: it is not set


class RequiredHost(NamedTuple):
    host: str
    allowed: bool | None  # None: only a call says what it is
    entry: str | None = None  # what to write into allowedHosts


class Requirements(NamedTuple):
    secrets: tuple[RequiredSecret, ...] = ()
    hosts: tuple[RequiredHost, ...] = ()

    def shown(self) -> dict[str, Any]:
        return {key: [one._asdict() for one in found] for key, found in self._asdict().items()}

    def unset(self) -> list[str]:
        return [one.name for one in self.secrets if one.source is None]

    def closed(self) -> list[str]:
        """Entries for allowedHosts."""
        return [one.entry for one in self.hosts if one.entry is not None]


def requirements_of(app: "App", tools: Iterable[Mapping[str, Any]]) -> Requirements:
    """Of all these tools together, as REST shows them; each thing once, in their order."""
    secrets: dict[str, None] = {}
    urls: dict[str, None] = {}
    for tool in tools:
        if tool["type"] == "http":
            names, found = _of_request(app, tool)
            secrets |= dict.fromkeys(names)
            urls |= dict.fromkeys(found)
    return Requirements(secrets_there(app, secrets), hosts_there(app, urls))


def secrets_there(app: "App", names: Iterable[str]) -> tuple[RequiredSecret, ...]:
    return tuple(RequiredSecret(name, app.config.secrets.where(name, environment=False)) for name in names)


def hosts_there(app: "App", urls: Iterable[str]) -> tuple[RequiredHost, ...]:
    """Of URLs with or without a path."""
    found: dict[str, RequiredHost] = {}
    for url in urls:
        match = _AUTHORITY.match(url)
        if match is not None and match[2]:
            found.setdefault(match[2].lower(), _required_host(app, match[1], match[2]))
    return tuple(found.values())


def _of_request(app: "App", tool: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Secrets and URLs of a tool's requests; nothing if its file can't be read."""
    from onetool.http.definition import HttpImpl, OAuth2, ToolLimits
    from onetool.http.tool import HttpTool
    from onetool.sources.bundles.validation import converted

    try:
        impl = converted(tool["httpImpl"], HttpImpl)
        made = HttpTool(impl, tool.get("argSchema") or {}, ToolLimits(), lambda: app.runtime.http_context)
    except (OneToolError, ValueError):
        return [], []
    requests = [step.request for step in impl.steps]
    tokens = [auth.token_url for request in requests if isinstance(auth := request.auth, OAuth2)]
    return sorted(made.secrets), [*(request.url_template for request in requests), *tokens]


def _required_host(app: "App", scheme: str, authority: str) -> RequiredHost:
    from onetool.http.errors import RequestRefusedError
    from onetool.http.url import parse_url

    if "${" in authority:
        return RequiredHost(authority, None)
    try:
        url = parse_url(f"{scheme}://{authority}/")
    except RequestRefusedError:
        return RequiredHost(authority, False)
    try:
        app.runtime.http_context.hosts.check(url)
    except RequestRefusedError:
        return RequiredHost(url.authority, False, _allow_entry(url))
    return RequiredHost(url.authority, True)


def _allow_entry(url: "Url") -> str:
    """The allowedHosts entry that would allow this URL."""
    from onetool.http.allowed_hosts import AllowedHosts, HostRule
    from onetool.http.errors import RequestRefusedError

    try:
        AllowedHosts([HostRule(url.authority)]).check(url)
    except RequestRefusedError:
        return host_entry(url.authority, private=True)
    return host_entry(url.authority, private=False)


def host_entry(host: str, private: bool) -> str:
    """An entry of allowedHosts, in YAML that is JSON, too, as far as texts go."""
    return f'{{host: "{host}", allowPrivate: true}}' if private else f'"{host}"'
