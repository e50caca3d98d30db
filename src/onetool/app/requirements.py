"""Requirements of bundles' tools: the secrets and allowed hosts that they need."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import to_builtins

from onetool.core.errors import OneToolError
from onetool.http.allowed_hosts import binding_for, host_entry, host_need, is_bound_to, is_private, secret_need
from onetool.http.definition import HttpImpl, OAuth2
from onetool.http.errors import RequestRefusedError
from onetool.http.url import parse_url

if TYPE_CHECKING:
    from onetool.app.secret_rules import SecretRules
    from onetool.core.errors import Need
    from onetool.http.allowed_hosts import AllowedHosts
    from onetool.http.tool import HttpTool
    from onetool.http.url import Url

_AUTHORITY = re.compile(r"(https?)://([^/?#]*)", re.IGNORECASE)


class RequiredSecret(NamedTuple):
    name: str
    source: str | None  # None if it is not set
    need: "Need | None" = None


class RequiredHost(NamedTuple):
    host: str
    allowed: bool | None  # None if it depends on the call
    entry: str | None = None  # the entry for allowedHosts
    need: "Need | None" = None


class Requirements(NamedTuple):
    secrets: tuple[RequiredSecret, ...] = ()
    hosts: tuple[RequiredHost, ...] = ()
    sent_to: Mapping[str, Iterable[str]] = {}  # the required bindings of each secret

    def shown(self) -> dict[str, Any]:
        return {
            "secrets": [{"name": one.name, "source": one.source} for one in self.secrets],
            "hosts": [{"host": one.host, "allowed": one.allowed, "entry": one.entry} for one in self.hosts],
            "missing": to_builtins(self.missing()),
        }

    def missing(self) -> "list[Need]":
        """Return the hosts to allow and the secrets to set before the tools can be called."""
        return [one.need for one in (*self.hosts, *self.secrets) if one.need is not None]

    def unset(self) -> "list[Need]":
        """Return the secrets that are not set."""
        return [one.need for one in self.secrets if one.need is not None and one.source is None]

    def closed(self) -> list[str]:
        """Return the missing entries for allowedHosts."""
        return [one.entry for one in self.hosts if one.entry is not None]


def http_requirements(rules: "SecretRules", hosts: "AllowedHosts", tools: "Iterable[HttpTool]") -> Requirements:
    """Return the combined requirements of these tools."""
    secrets: dict[str, dict[str, Url]] = {}  # name -> binding -> a URL that needs it
    urls: dict[str, None] = {}
    for tool in tools:
        secrets |= {name: {} for name in sorted(tool.secrets) if name not in secrets}
        for name, url in tool.destinations:
            secrets[name] |= {} if url is None else {binding_for(url): url}
        requests = [step.request for step in tool.impl.steps]
        urls |= dict.fromkeys(request.url_template for request in requests)
        urls |= dict.fromkeys(auth.token_url for request in requests if isinstance(auth := request.auth, OAuth2))
    found = tuple(_required_secret(rules, name, there) for name, there in secrets.items())
    called: dict[str, RequiredHost] = {}
    for url in urls:  # with or without a path
        match = _AUTHORITY.match(url)
        if match is not None and match[2]:
            called.setdefault(match[2].lower(), _required_host(hosts, match[1], match[2]))
    return Requirements(found, tuple(called.values()), secrets)


def _required_secret(rules: "SecretRules", name: str, there: "Mapping[str, Url]") -> RequiredSecret:
    known = rules.secrets
    source, hosts = known.where(name, environment=False), known.hosts(name)
    if rules.use_by_server(name):
        return RequiredSecret(name, source)
    if source is None:
        return RequiredSecret(name, source, secret_need(name, there))
    elsewhere = [binding for binding, url in there.items() if hosts and not is_bound_to(url, hosts)]
    return RequiredSecret(name, source, rules.binding_need(name, elsewhere) if elsewhere else None)


def read_http_tool(tool: Mapping[str, Any]) -> "HttpTool | None":
    """Return an HTTP tool of a bundle for inspection; None if its definition is invalid."""
    from onetool.http.tool import tool_to_inspect
    from onetool.sources.bundles.validation import converted

    try:
        impl = converted(tool["httpImpl"], HttpImpl)
        return tool_to_inspect(impl, tool.get("argSchema") or {}, bundle=tool.get("bundleID"))
    except (OneToolError, ValueError):
        return None


def _required_host(hosts: "AllowedHosts", scheme: str, authority: str) -> RequiredHost:
    if "${" in authority:
        return RequiredHost(authority, None)
    try:
        url = parse_url(f"{scheme}://{authority}/")
    except RequestRefusedError:
        return RequiredHost(authority, False)
    try:
        hosts.check(url)
    except RequestRefusedError:
        return RequiredHost(url.authority, False, host_entry(url.authority, is_private(url.host)), host_need(url))
    return RequiredHost(url.authority, True)
