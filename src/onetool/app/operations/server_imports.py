"""Add servers to the config: from other clients' files, from pasted text, or from a form."""

import logging
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onetool.app.import_report import ImportedServer, ImportReport, Remark, reloaded
from onetool.app.operations import At, operation
from onetool.app.operations.fields import DryRun
from onetool.app.server_changes import (
    ServerDraft,
    ServerDrafts,
    changed_error,
    check_digest,
    draft_of,
    file_digests,
    sealed_digest,
)
from onetool.config.client_files import JsoncError
from onetool.config.edit import put_servers
from onetool.config.find import user_home
from onetool.config.known_clients import CLIENT_FILES, existing_files
from onetool.config.server_import import ConfigTarget, Planner, ServerImportPlan, placeholders
from onetool.config.server_import.translate import ClientServers, read_data, read_pasted, read_servers, servers_in
from onetool.core.text import shown_line
from onetool.sources.bundles.errors import InvalidError, invalid_at

if TYPE_CHECKING:
    from onetool.app import App

log = logging.getLogger("onetool.serve")
ADD: dict[str, Any] = {"role": "admin", "errors": (409,)}


class FoundServer(ServerDraft, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A server in the file of another client."""

    id: Annotated[str, Meta(description="The id for `POST /servers/import`. It changes with the definition.")]


class FoundClient(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file of another client with MCP servers."""

    client: Annotated[str, Meta(description="The name for `onetool servers import --from`.")]
    title: str
    file: str
    error: Annotated[str | UnsetType, Meta(description="Why the file can't be read.")] = UNSET
    servers: tuple[FoundServer, ...] = ()


class FoundClients(msgspec.Struct, frozen=True):
    """The files of other clients with MCP servers."""

    clients: list[FoundClient]


class TickedServers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Selected servers of other clients."""

    ids: Annotated[tuple[str, ...], Meta(description="Ids from `GET /servers/found`.", min_length=1)]


class NewServers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Servers to add: `text` or `servers`."""

    text: Annotated[
        str | UnsetType, Meta(description="Blocks of any client in JSON, TOML or YAML; a command line; or a URL.")
    ] = UNSET
    servers: Annotated[
        Annotated[dict[str, dict[str, Any]], Meta(min_length=1)] | UnsetType, Meta(description="Blocks by name.")
    ] = UNSET
    name: Annotated[str | UnsetType, Meta(description="The name of a single server.")] = UNSET
    keep: Annotated[tuple[str, ...], Meta(description="Variables and headers whose values are secrets.")] = ()
    digest: Annotated[str | None, Meta(description="The digest of the dry run.")] = None


# Servers of other clients


@operation("GET", "/servers/found", "Servers", **ADD)
def find_servers(at: At) -> FoundClients:
    """Find the MCP servers of other clients.

    Reads the user's own files of Claude, Cursor, VS Code and others on the server's machine, but no files of projects.
    Starts nothing.
    """
    target = at.config_target()
    clients: list[FoundClient] = []
    for client, title, file, found in _client_files():
        if isinstance(found, str):
            clients.append(FoundClient(client=client, title=title, file=str(file), error=found))
        elif found.servers:
            servers = tuple(_server_row(at.app, target, found, name)[0] for name in found.servers)
            clients.append(FoundClient(client=client, title=title, file=str(file), servers=servers))
    return FoundClients(clients)


@operation("POST", "/servers/import", "Servers", **ADD, example={"ids": ["5f2b1c0e9d8a7f6e5d4c3b2a19080706"]})
def import_found_servers(at: At, ticked: TickedServers) -> ImportReport:
    """Import servers of other clients.

    The servers are those listed by `GET /servers/found`; servers that have changed since are refused with 409. Secrets
    go into the secrets file. No tool can call this.
    """
    target = at.config_target()
    known: dict[str, ClientServers] = {}
    for *_, found in _client_files():
        if not isinstance(found, str):
            shown = (_server_row(at.app, target, found, name) for name in found.servers)
            known |= {server.id: one for server, one in shown}
    if not known.keys() >= {*ticked.ids}:
        raise changed_error("A file with one of these servers", "Get /servers/found again.")
    return _write(at, target, _plan(target, *(known[id] for id in dict.fromkeys(ticked.ids))))


def _client_files() -> Iterator[tuple[str, str, Path, ClientServers | str]]:
    """Yield the user's own files: client, its title, the file, and its servers or the reason why it can't be read."""
    home = user_home(os.environ)
    for spot in existing_files(home, home, os.environ):
        if not spot.in_project:
            try:
                found = read_servers(spot.file, home)
            except JsoncError as why:
                found = str(why)
            yield spot.client, CLIENT_FILES[spot.client].title, spot.file, found


def _server_row(
    app: "App", target: ConfigTarget, found: ClientServers, name: str
) -> "tuple[FoundServer, ClientServers]":
    """Return one server from a file, for display and for import. Its id does not depend on other servers."""
    one = msgspec.structs.replace(found, servers={name: found.servers[name]})
    plan = _plan(target, one)
    draft = _drafts(target, one, plan)[0]
    shown = [str(found.file), name, plan.servers.get(name), plan.skipped.get(name)]
    id = sealed_digest(app, shown, plan.secrets)
    return FoundServer(id=id, **msgspec.structs.asdict(draft)), one


def _plan(
    target: ConfigTarget, *found: ClientServers, replace: bool = False, keep: tuple[str, ...] = ()
) -> ServerImportPlan:
    planner = Planner(target, replace=replace, ask=lambda *_: None, reuse=False, keep=keep)
    for one in found:
        planner.add(one)
    return planner.done()


def _drafts(target: ConfigTarget, found: ClientServers, plan: ServerImportPlan) -> list[ServerDraft]:
    """Return the previews of the servers of a plan."""
    drafts: list[ServerDraft] = []
    for name in found.servers:
        if (block := plan.servers.get(name)) is not None:
            secrets = [one for one in placeholders(block) if one in plan.secrets]
            notes = [note.removeprefix(f"{name}: ") for note in plan.notes if note.startswith(f"{name}: ")]
            drafts.append(draft_of(target, name, block, secrets, notes))
        else:
            taken = "a server with this name already exists"
            why = f"Not added: {plan.skipped.get(name, taken)}."
            exists = name in target.servers
            drafts.append(ServerDraft(name=name, exists=exists, can_import=False, why=shown_line(why)))
    return drafts


# Servers from pasted text or a form


@operation("POST", "/servers", "Servers", **ADD, example={"text": "uvx mcp-server-time", "name": "time"})
def add_servers(at: At, query: DryRun, asked: NewServers) -> ServerDrafts:
    """Add servers to the config.

    Send the request first with `dryRun=true`, which shows what would be started, then with the `digest` of that
    response. Values that look like secrets, and those in `keep`, go into the secrets file. No tool can call this.
    """
    target = at.config_target()
    found = _requested_servers(asked, target.file.absolute().parent)
    plan = _plan(target, found, keep=asked.keep)
    drafts = _drafts(target, found, plan)
    files = file_digests(target, plan.servers.values())
    digest = sealed_digest(at.app, [str(target.file), plan.servers, files], plan.secrets)
    if not query.dry_run:
        check_digest(asked.digest, digest)
        if not plan.servers:
            raise InvalidError("; ".join(f"{one.name}: {one.why}" for one in drafts), "")
        _store(target, plan)
        at.load(target.file, is_code=True)
    return ServerDrafts(dry_run=query.dry_run, servers=drafts, digest=digest)


def _requested_servers(asked: NewServers, folder: Path) -> ClientServers:
    """Return the servers in a request. Raises InvalidError."""
    try:
        if asked.servers is not UNSET and asked.text is UNSET:
            data: Any = {"mcpServers": asked.servers}
        elif asked.text is not UNSET and asked.servers is UNSET:
            text = asked.text.strip()
            try:
                pasted = read_pasted(text)
            except ValueError as error:
                raise invalid_at("/text", f"invalid command line: {error}") from None
            data = {"mcpServers": pasted} if pasted else read_data(text, "")
        else:
            raise InvalidError("expected `text` or `servers`", "")
        found = servers_in(data, Path("the request"), folder)
    except JsoncError as why:
        raise invalid_at("/text", str(why)) from None
    if not found.servers:
        raise invalid_at("/text", 'expected {"mcpServers": {…}} of a client, a command line, or a URL')
    if asked.name is UNSET:
        return found
    if len(found.servers) > 1:
        raise invalid_at("/name", f"only allowed for a single server; the text has {len(found.servers)}")
    return msgspec.structs.replace(found, servers={asked.name: next(iter(found.servers.values()))})


class ServerImportQuery(DryRun, frozen=True):
    """The options of an import of servers."""

    replace: Annotated[bool, Meta(description="Replace servers of the same name instead of keeping them.")] = False


@operation(
    "POST",
    "/tools/imports/servers",
    "Servers",
    **ADD,
    example={"mcpServers": {"docs": {"url": "http://127.0.0.1:9000/mcp"}}},
)
def import_servers(at: At, query: ServerImportQuery, blocks: dict[str, Any]) -> ImportReport:
    """Add MCP servers to the config.

    The body has blocks by name, as in other clients' configs. Adds all servers or none. Secrets go into the secrets
    file. No tool can call this.
    """
    target = at.config_target()
    try:
        found = servers_in(blocks, Path("the request"), target.file.absolute().parent)
    except JsoncError as why:
        raise InvalidError(str(why), "") from None
    plan = _plan(target, found, replace=query.replace)
    if plan.skipped and not plan.servers:
        raise InvalidError("; ".join(f"{name}: {why}" for name, why in plan.skipped.items()), "")
    if not plan.servers and not plan.kept:
        raise InvalidError('the body has no servers: send {"mcpServers": {"name": {…}}}', "")
    return _write(at, target, plan, query.dry_run)


def _write(at: At, target: ConfigTarget, plan: ServerImportPlan, dry_run: bool = False) -> ImportReport:
    """Write the servers of a plan to the config, and load them."""
    warnings = [Remark("servers", note) for note in plan.notes]
    if plan.servers and not dry_run:
        _store(target, plan)
        warnings += reloaded(at.app.reload)
    return ImportReport(
        dry_run=dry_run,
        servers=[
            *(ImportedServer(name, "new", block) for name, block in plan.servers.items()),
            *(ImportedServer(name, "kept") for name in plan.kept),
        ],
        skipped=[Remark(name, why) for name, why in plan.skipped.items()],
        warnings=warnings,
        secrets_kept=list(plan.secrets),
    )


def _store(target: ConfigTarget, plan: ServerImportPlan) -> None:
    target.write(partial(put_servers, servers=plan.servers), plan.secrets)
    log.info("Added to %s: the servers %s", target.file, ", ".join(plan.servers))
