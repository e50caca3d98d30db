"""Finds what tools of bundles need before they can be called: secrets, and hosts that have to be allowed."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from onetool.core.errors import OneToolError

if TYPE_CHECKING:
    from onetool.app.app import App
    from onetool.http.tool import HttpTool


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
        if tool["type"] == "http" and (made := read_http_tool(tool)) is not None:
            secrets |= dict.fromkeys(sorted(made.secrets))
            urls |= dict.fromkeys(_urls_of(made))
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


def read_http_tool(tool: Mapping[str, Any]) -> "HttpTool | None":
    """An HTTP tool of a bundle, to look at; None if its file can't be read."""
    from onetool.http.definition import HttpImpl
    from onetool.http.tool import tool_to_inspect
    from onetool.sources.bundles.validation import converted

    try:
        impl = converted(tool["httpImpl"], HttpImpl)
        return tool_to_inspect(impl, tool.get("argSchema") or {}, bundle=tool.get("bundleID"))
    except (OneToolError, ValueError):
        return None


def _urls_of(tool: "HttpTool") -> Iterator[str]:
    """Where its requests go to, and where it gets its tokens."""
    from onetool.http.definition import OAuth2

    requests = [step.request for step in tool.impl.steps]
    yield from (request.url_template for request in requests)
    yield from (auth.token_url for request in requests if isinstance(auth := request.auth, OAuth2))


def _required_host(app: "App", scheme: str, authority: str) -> RequiredHost:
    from onetool.http.allowed_hosts import entry_for
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
        return RequiredHost(url.authority, False, entry_for(url))
    return RequiredHost(url.authority, True)
