"""Everything that is wrong with the config and the tools: what `onetool check` and `GET /check` say.

Tools of bundles need secrets, and hosts that have to be allowed. HTTP is loaded only where there are bundles.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from onetool.app.audit import audit_mistakes
from onetool.app.bundles import is_unread_store
from onetool.app.database import STATE_FILE
from onetool.core.errors import Mistake, OneToolError
from onetool.sdk.requirements import Report
from onetool.sdk.requirements import check as check_requirements

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.http.tool import HttpTool
    from onetool.sources.bundles.model import Bundle, Tool


def findings(app: "App") -> tuple[tuple[Mistake, ...], Report]:
    """What is wrong, and what tools need."""
    report = check_requirements({spec.name: spec.requires for spec in app.catalog.registry if spec.requires})
    of_database = _database_mistakes(app)
    says_same = of_database and app.config.database is not None
    of_tools = (one for one in app.mistakes if not (says_same and is_unread_store(one)))
    return (
        *app.config.warnings,
        *of_tools,
        *_missing(report),
        *bundle_mistakes(app),
        *audit_mistakes(app.config),
        *of_database,
        *(() if app.config.cluster is None else app.config.cluster.unset()),
    ), report


def _database_mistakes(app: "App") -> list[Mistake]:
    if app.config.database is None and not os.path.lexists(app.config.home / STATE_FILE):
        return []
    from onetool.app.database_state import database_mistakes

    return database_mistakes(app.config)


def _missing(report: Report) -> list[Mistake]:
    """Warnings for missing requirements; each affects only its own tools."""
    return [
        Mistake(
            message=f"needs {found['name']}, which is {found['status']}",
            key=tool,
            hint=found["install"],
            severity="warning",
        )
        for tool, needs in report.items()
        for found in needs
        if found["status"] != "ok"
    ]


# Tools of bundles that can't run as they are, and what they lack


CREDENTIALS = ("value", "password", "secret", "clientSecret", "refreshToken")  # of `auth`


def bundle_mistakes(app: "App") -> list[Mistake]:
    if app.config.database is None and not (app.config.home / "bundles").is_dir():
        return []
    from onetool.sources.bundles.errors import UnavailableError

    try:
        bundles, tools = app.bundles.store.everything()
    except UnavailableError:  # the database is away, which is told of it
        if app.config.database is None:
            raise
        return []
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
    for message, hint in _lacking(app, needs):
        yield Mistake(message=message, key=f"bundles.{bundle.slug}", hint=hint, severity="warning")


def _lacking(app: "App", needs: "Requirements") -> Iterator[tuple[str, str]]:
    """Yield what is missing or wrong, each with a hint."""
    from onetool.http.allowed_hosts import allow_command

    for name, source in needs.secrets:
        if what := app.runtime.secret_rules.use_by_server(name):
            yield f"uses the secret {name}, which is {what} of this server: no tool may send it", "use another secret"
        elif source is None:
            yield f"needs the secret {name}, which is not set", needs.command_for(name)
        elif not app.config.secrets.hosts(name):
            yield f"uses the secret {name}, which is not bound to a host", needs.command_for(name)
    for one in needs.hosts:
        if one.entry is not None:
            yield f"calls {one.host}, which is not allowed", allow_command(one.host, "allowPrivate" in one.entry)


def _literal_credential(impl: dict[str, Any] | None) -> str | None:
    """Which credential is no placeholder."""
    impl = impl or {}
    auths = [(one.get("request") or {}).get("auth") or {} for one in (impl, *(impl.get("requests") or ()))]
    return next((key for auth in auths for key in CREDENTIALS if auth.get(key) and "${" not in auth[key]), None)


# What tools of bundles need before they can be called: secrets, and hosts that have to be allowed


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
    sent_to: Mapping[str, Iterable[str]] = {}  # bindings by the names of the secrets that need them

    def shown(self) -> dict[str, Any]:
        return {"secrets": [one._asdict() for one in self.secrets], "hosts": [one._asdict() for one in self.hosts]}

    def command_for(self, name: str) -> str:
        """Return the command that sets a secret, and binds it to the hosts that it is sent to."""
        from onetool.http.allowed_hosts import binding_command

        return binding_command(name, self.sent_to.get(name, ()))

    def unset(self) -> list[str]:
        return [one.name for one in self.secrets if one.source is None]

    def closed(self) -> list[str]:
        """Entries for allowedHosts."""
        return [one.entry for one in self.hosts if one.entry is not None]


def requirements_of(app: "App", tools: Iterable[Mapping[str, Any]]) -> Requirements:
    """Of all these tools together, as REST shows them; each thing once, in their order."""
    from onetool.http.allowed_hosts import binding_for

    secrets: dict[str, dict[str, None]] = {}  # by name, with the bindings that each needs
    urls: dict[str, None] = {}
    for tool in tools:
        if tool["type"] == "http" and (made := read_http_tool(tool)) is not None:
            secrets |= {name: {} for name in sorted(made.secrets) if name not in secrets}
            for name, url in made.destinations:
                secrets[name] |= {} if url is None else {binding_for(url): None}
            urls |= dict.fromkeys(_urls_of(made))
    known = app.config.secrets
    found = tuple(RequiredSecret(name, known.where(name, environment=False)) for name in secrets)
    return Requirements(found, hosts_there(app, urls), secrets)


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
