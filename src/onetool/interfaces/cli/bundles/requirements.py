"""Finds what tools of bundles need before they can be called (secrets, hosts, functions) and prints what is
missing."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from onetool.core.errors import Mistake, OneToolError
from onetool.interfaces.cli.output import echo, print_json, printable, wants_json

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.http.url import Url
    from onetool.sources.bundles.model import Bundle, Tool


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
    """What all these tools need together, each thing once, in their order."""
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
    """The hosts of URLs, with or without a path, and whether they are allowed."""
    found: dict[str, RequiredHost] = {}
    for url in urls:
        match = _AUTHORITY.match(url)
        if match is not None and match[2]:
            found.setdefault(match[2].lower(), _required_host(app, match[1], match[2]))
    return tuple(found.values())


def _of_request(app: "App", tool: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Secrets and URLs of a tool's request; nothing if its file can't be read."""
    from onetool.http.definition import HttpImpl, OAuth2, ToolLimits
    from onetool.http.tool import HttpTool
    from onetool.sources.bundles.validation import converted

    try:
        impl = converted(tool["httpImpl"], HttpImpl)
        made = HttpTool(impl, tool.get("argSchema") or {}, ToolLimits(), lambda: app.runtime.http_context)
    except (OneToolError, ValueError):
        return [], []
    auth = impl.request.auth
    tokens = [auth.token_url] if isinstance(auth, OAuth2) else []
    return sorted(made.secrets), [impl.request.url_template, *tokens]


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


# Hints on standard error


F = TypeVar("F", bound=Callable[..., Any])


def print_note(text: str) -> None:
    click.echo(printable(text), err=True)


def print_outcome(data: Any, text: str, as_json: bool) -> None:
    """What was done: in words on a terminal, as data for a program."""
    if wants_json(as_json):
        print_json(data)
    else:
        echo(printable(text))


def warn_if_name_taken(app: "App", slug: str) -> None:
    """Warn if the name of a new bundle already means something else in code."""
    from onetool.sources.bundles.names import code_name

    name = code_name(slug)
    if any(one.partition(".")[0] == name for one in app.registry.names()):
        what = "tool" if name in app.registry else "pack"
        shadowed = f"in code that is what {name} stands for, and not the bundle"
        print_note(f"warning: {name} is a {what} already: {shadowed}. Take another slug, like my-{slug}")


def allow_hosts_option(command: F) -> F:
    help = "Allow the hosts that its tools call: adds them to allowedHosts in the config."
    return click.option("--allow", is_flag=True, help=help)(command)


def allowing(ctx: click.Context, needs: Requirements) -> Requirements:
    """Allow the missing hosts, print each of them, and return what is still needed."""
    from onetool.interfaces.cli.hosts import allow_hosts, config_for_hosts, read_host

    closed = [one.host for one in needs.hosts if one.entry is not None]
    if not closed:
        return needs
    target = config_for_hosts(ctx)
    for host in allow_hosts(target, map(read_host, closed)):
        print_note(f"Allowed {host} in {target.file}.")
    allowed = (one._replace(allowed=True, entry=None) if one.entry else one for one in needs.hosts)
    return needs._replace(hosts=tuple(allowed))


def print_requirements(app: "App", needs: Requirements) -> None:
    """Each as a line that can be pasted."""
    if entries := needs.closed():
        print_note(f"To let the tools call their host{'s' if len(entries) > 1 else ''}, write in {_config_file(app)}:")
        print_note(f"  {hosts_line(app, entries)}")
        print_note(f"which this does: onetool hosts allow {' '.join(one.host for one in needs.hosts if one.entry)}")
    if names := needs.unset():
        print_note("Secrets to set:" if len(names) > 1 else "Secret to set:")
        for name in names:
            print_note(f"  onetool auth set {name}")


def hosts_line(app: "App", entries: Sequence[str]) -> str:
    """The complete `allowedHosts` line, with the existing entries."""
    there = [host_entry(one.host, one.allow_private) for one in app.config.allowed_hosts]
    return f"allowedHosts: [{', '.join(dict.fromkeys([*there, *entries]))}]"


def _config_file(app: "App") -> str:
    """The file in force; where there is none, the one beside the bundles: with another they are not seen."""
    if app.config.path is not None:
        return str(app.config.path)
    from onetool.config.find import FOLDER, NAME, user_home

    return f"{user_home(os.environ) / FOLDER / NAME} (a new file)"


# For `onetool check`: tools of bundles that can't run as they are, and what they lack.


CREDENTIALS = ("value", "password", "secret", "clientSecret", "refreshToken")  # of `auth`


def bundle_mistakes(app: "App") -> list[Mistake]:
    bundles, tools = app.bundles.store.everything()
    names = {bundle.id: bundle for bundle in bundles if bundle.soft_deleted_at is None}
    of: dict[str, list[Tool]] = {}
    for tool in tools:
        of.setdefault(tool.bundle_id, []).append(tool)
    return [one for id, bundle in names.items() if id in of for one in _of_bundle(app, bundle, of[id])]


def _of_bundle(app: "App", bundle: "Bundle", tools: "list[Tool]") -> Iterator[Mistake]:
    from onetool.sources.bundles.errors import InvalidError
    from onetool.sources.bundles.model import shown

    for tool in tools:
        key = f"bundles.{bundle.slug}/{tool.slug}@{tool.version}"
        try:
            app.bundles.check(tool)
        except InvalidError as wrong:
            gone = tool.type in ("python", "go")  # it comes back with its function
            place = app.bundles.store.file_of(tool.id)
            yield Mistake(message=str(wrong), file=place, key=key, severity="warning" if gone else "error")
        if written := _literal_credential(tool.http_impl):
            message = f"auth.{written} is written into the tool, where everybody reads it who gets its file"
            yield Mistake(message=message, key=key, hint="name a secret: ${NAME}", severity="warning")
    needs = requirements_of(app, [shown(tool) for tool in tools if tool.is_enabled] if bundle.is_enabled else [])
    yield from _missing(bundle, "needs the secret {}, which is not set", "onetool auth set {}", needs.unset())
    entry = "add it to allowedHosts in the config"
    yield from _missing(bundle, "calls {}, which is not allowed", entry, needs.closed())


def _missing(bundle: "Bundle", message: str, hint: str, names: Iterable[str]) -> Iterator[Mistake]:
    for name in names:
        key = f"bundles.{bundle.slug}"
        yield Mistake(message=message.format(name), key=key, hint=hint.format(name), severity="warning")


def _literal_credential(impl: dict[str, Any] | None) -> str | None:
    """Which credential is no placeholder."""
    auth = ((impl or {}).get("request") or {}).get("auth") or {}
    return next((key for key in CREDENTIALS if auth.get(key) and "${" not in auth[key]), None)
