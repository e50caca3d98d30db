"""Lists all problems with a config and its tools, as `onetool check`, `GET /check` and `ot.health` report them.

Tools of bundles need secrets, and hosts that have to be allowed. HTTP is loaded only if there are bundles.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from onetool.app.bundles import is_unread_store
from onetool.app.config_lint import may_store_tokens
from onetool.app.database import STATE_FILE
from onetool.app.database_state import database_mistakes
from onetool.app.journal import audit_mistakes
from onetool.app.requirements import Requirements, http_requirements, read_http_tool
from onetool.config.stateful import stateful_servers
from onetool.core.errors import Mistake, ToolFailure
from onetool.http.allowed_hosts import secret_need
from onetool.sdk.requirements import Report
from onetool.sdk.requirements import check as check_requirements
from onetool.sources.bundles.errors import InvalidError, UnavailableError
from onetool.sources.bundles.model import shown

if TYPE_CHECKING:
    from onetool.app.bundles import AppBundles
    from onetool.app.catalog import ToolCatalog
    from onetool.app.runtime import Runtime
    from onetool.config import Config
    from onetool.core.errors import ConfigError, Need
    from onetool.sources.bundles.model import Bundle, Tool
    from onetool.sources.mcp_servers.servers import ServerStatus

MIN_FREE_MB = 64  # on a disk that state is written to


def findings(
    catalog: "ToolCatalog",
    runtime: "Runtime",
    bundles: "AppBundles",
    reload_error: "ConfigError | None",
    pending: "Iterable[Mistake]",
) -> tuple[Mistake, ...]:
    """Return all problems without duplicates, except those of other replicas."""
    config = runtime.config
    broken = () if reload_error is None else reload_error.mistakes  # files that are not used
    pending = (one for one in pending if one.file not in {mistake.file for mistake in broken})
    of_database: list[Mistake] = []
    if config.database is not None or os.path.lexists(config.home / STATE_FILE):
        of_database = database_mistakes(config)
    says_same = of_database and config.database is not None
    statuses = () if catalog.servers is None else catalog.servers.statuses(None)
    by_reason: tuple[tuple[str, Iterable[Mistake]], ...] = (
        ("config", broken),
        ("untrusted", _untrusted(catalog)),
        ("config_warning", (*config.warnings, *_broken_snippets(config))),
        ("tool", (one for one in catalog.mistakes if not (says_same and is_unread_store(one)))),
        ("requirement", _missing_requirements(tool_requirements(catalog))),
        ("bundle", _bundle_mistakes(runtime, bundles)),
        ("audit", audit_mistakes(config)),
        ("database", of_database),
        ("cluster", () if config.cluster is None else (*config.cluster.unset(), *stateful_servers(config))),
        ("not_loaded", (replace(one, message=f"Not loaded: {one.message}") for one in pending)),
        ("full_disk", _full_disks(runtime)),
        ("lost", _lost_records(runtime)),
        ("no_token", _only_revoked_tokens(runtime)),
        ("", _server_mistakes(statuses)),
        ("server_down", _missing_programs(config, statuses)),
    )
    found: dict[Mistake, str] = {}
    for reason, mistakes in by_reason:
        for one in mistakes:
            found.setdefault(one, reason or one.reason)
    return tuple(replace(one, reason=reason) for one, reason in found.items())


def tool_requirements(catalog: "ToolCatalog") -> Report:
    return check_requirements({spec.name: spec.requires for spec in catalog.registry if spec.requires})


def _untrusted(catalog: "ToolCatalog") -> list[Mistake]:
    """Report an ignored folder. Its config was not checked, so an empty list would be misleading."""
    if (found := catalog.untrusted) is None:
        return []
    if found.mistake is not None:
        return [replace(found.mistake, severity="warning")]
    return [Mistake(message=str(found), file=str(found.config or found.folder), key="trust", severity="warning")]


def _broken_snippets(config: "Config") -> Iterator[Mistake]:
    for name, snippet in config.snippets.items():
        from onetool.script.snippet_templates import template_error

        if (why := template_error(snippet.body, snippet.params)) is not None:
            yield Mistake(message=why, key=f"snippets.{name}.body", severity="warning")


def _full_disks(runtime: "Runtime") -> Iterator[Mistake]:
    """Yield the folders that we write to and whose disk is almost full."""
    config, seen = runtime.config, set[int]()
    for folder in (config.home, config.home / "bundles", *(topic.file.parent for topic in config.topics)):
        with suppress(OSError):  # the folder doesn't exist yet
            disk, device = os.statvfs(folder), os.stat(folder).st_dev
            free = disk.f_bavail * disk.f_frsize
            if device not in seen and free < MIN_FREE_MB * 1024**2:
                seen.add(device)
                message = (
                    f"The disk of {folder} is full: {free / 1024**2:.0f} MB are free, and {MIN_FREE_MB} are needed"
                )
                yield Mistake(message=message, key="disk", hint="remove files, or set ONETOOL_HOME to another disk")


def _lost_records(runtime: "Runtime") -> Iterator[Mistake]:
    """Yield a warning for each kind of record that could not be written since this process started."""
    for key, state in runtime.records_health().items():
        if state is not None:
            words = (f"{word}: {value}" for word, value in state.items() if word != "status")
            yield Mistake(message=", ".join(words), key=key, severity="warning")


def _only_revoked_tokens(runtime: "Runtime") -> Iterator[Mistake]:
    """Yield a warning if no valid token is left. Token support is loaded only if there may be tokens."""
    config = runtime.config
    if not config.http.tokens and not may_store_tokens(config):
        return
    from onetool.app.access import accepts_any
    from onetool.services.access_tokens import TokenStoreError

    store = runtime.tokens.store
    with suppress(TokenStoreError):  # which the check of the tokens reports
        if store.guards and not accepts_any(config.http, store):
            message = "All tokens were revoked, so the server refuses every client"
            yield Mistake(message=message, key="http.tokens", hint="onetool tokens add NAME", severity="warning")


def _server_mistakes(statuses: "Iterable[ServerStatus]") -> Iterator[Mistake]:
    """Yield the problems with servers. Only a process that has tried its servers knows them."""
    reasons = {"approve": "server_changed", "login": "server_login", "logs": "server_down"}
    for status in statuses:
        for message, hint in server_problems(status):
            key, reason = f"servers.{status.name}", reasons[hint.split()[2]]
            yield Mistake(message=message, key=key, hint=hint, severity="warning", reason=reason)


def _missing_programs(config: "Config", statuses: "Iterable[ServerStatus]") -> Iterator[Mistake]:
    """Yield the servers that this process has not tried, and whose program is not there."""
    for status in statuses:
        settings = config.servers.get(status.name)
        if status.state != "idle" or settings is None or settings.command is None:
            continue
        from onetool.sources.mcp_servers.environment import environment
        from onetool.sources.mcp_servers.process import required_program

        try:
            required_program(settings, environment(settings))
        except ToolFailure as failure:
            hint = f"onetool servers test {status.name}"
            yield Mistake(message=str(failure), key=f"servers.{status.name}", hint=hint, severity="warning")


def server_problems(status: "ServerStatus") -> list[tuple[str, str]]:
    """Return the problems with a server, each with the command that fixes it."""
    found = [("Its tools have changed since they were approved.", "approve")] if status.changed else []
    if status.needs_login:
        found.append((status.error or "It requires a login.", "login"))
    elif status.state == "disconnected":
        found.append((status.error or "It is not connected.", "logs"))
    return [(message, f"onetool servers {command} {status.name}") for message, command in found]


def _missing_requirements(report: Report) -> list[Mistake]:
    """Return warnings for missing requirements; each affects only its own tools."""
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


# Tools of bundles that can't run, and what they lack

CREDENTIALS = ("value", "password", "secret", "clientSecret", "refreshToken")  # of `auth`


def _bundle_mistakes(runtime: "Runtime", app_bundles: "AppBundles") -> list[Mistake]:
    config = runtime.config
    if config.database is None and not (config.home / "bundles").is_dir():
        return []
    try:
        bundles, tools = app_bundles.service.store.everything()
    except UnavailableError as error:  # an unreachable database is reported separately
        return [Mistake(message=str(error), key="bundles")] if config.database is None else []
    names = {bundle.id: bundle for bundle in bundles if bundle.soft_deleted_at is None}
    of: dict[str, list[Tool]] = {}
    for tool in tools:
        of.setdefault(tool.bundle_id, []).append(tool)
    return [one for id, bundle in names.items() if id in of for one in _of_bundle(runtime, app_bundles, bundle, of[id])]


def _of_bundle(runtime: "Runtime", bundles: "AppBundles", bundle: "Bundle", tools: "list[Tool]") -> Iterator[Mistake]:
    for tool in tools:
        key = f"bundles.{bundle.slug}/{tool.slug}@{tool.version}"
        try:
            bundles.service.check(tool)
        except InvalidError as wrong:
            gone = tool.type in ("python", "go")  # works again once its function is back
            place = bundles.service.store.file_of(tool.id)
            yield Mistake(message=str(wrong), file=place, key=key, severity="warning" if gone else "error")
        impl = tool.http_impl or {}
        requests = [one.get("request") or {} for one in (impl, *(impl.get("requests") or ()))]
        auths = [request.get("auth") or {} for request in requests]
        literal = (name for auth in auths for name in CREDENTIALS if auth.get(name) and "${" not in auth[name])
        if name := next(literal, None):
            message = f"auth.{name} is written into the tool, where everyone who gets its file can read it"
            yield Mistake(message=message, key=key, hint="use a secret: ${NAME}", severity="warning")
    needs = requirements_of(runtime, [shown(tool) for tool in tools if tool.is_enabled] if bundle.is_enabled else [])
    for message, need in _lacking(runtime, needs):
        hint, fixes = ("use another secret", ()) if need is None else (need.command, (need,))
        yield Mistake(message=message, key=f"bundles.{bundle.slug}", hint=hint, severity="warning", needs=fixes)


def _lacking(runtime: "Runtime", needs: Requirements) -> "Iterator[tuple[str, Need | None]]":
    """Yield what is missing or wrong, each with the secret to set or the host to allow."""
    for name, source, need in needs.secrets:
        if what := runtime.secret_rules.use_by_server(name):
            yield f"uses the secret {name}, which is {what} of this server: no tool may send it", None
        elif need is not None:
            yield f"needs the secret {name}, which is {'not set' if source is None else 'for other hosts'}", need
        elif not runtime.config.secrets.hosts(name):
            need = secret_need(name, needs.sent_to.get(name, ()), stored=True)
            yield f"uses the secret {name}, which is not bound to a host", need
    for one in needs.hosts:
        if one.need is not None:
            yield f"calls {one.host}, which is not allowed", one.need


def requirements_of(runtime: "Runtime", tools: Iterable[Mapping[str, Any]]) -> Requirements:
    """Return the combined requirements of bundles' tools, which are given as REST shows them."""
    made = (read_http_tool(tool) for tool in tools if tool["type"] == "http")
    return http_requirements(runtime.secret_rules, runtime.http_context.hosts, (one for one in made if one is not None))
