"""The handlers that change the servers in the config: found in other clients' files, pasted, edited, renamed, removed.

All are for admins. What a server would run is shown before it is written, and no more than that is written: what has
changed in between is refused. Secrets never leave the machine; they are shown as `${NAME}`.
"""

import asyncio
import logging
import os
import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onetool.config.find import NAME, own_folder, user_home
from onetool.core.errors import ConfigError
from onetool.core.text import shown_line
from onetool.http.asgi import encode
from onetool.interfaces.rest.imports import import_report, reloaded
from onetool.interfaces.rest.problem import RestError
from onetool.interfaces.rest.query import DRY_RUN, REPLACE
from onetool.interfaces.rest.request import RestContext, RestRequest, RestResponse, json_body
from onetool.interfaces.rest.route import RestRoute
from onetool.interfaces.rest.servers import (
    NoOptions,
    changed_error,
    digest_of,
    found_server,
    server_action,
    server_response,
)
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.validation import converted

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.config.server_import import Change, ConfigTarget, ServerImportPlan
    from onetool.config.server_import.translate import ClientServers

log = logging.getLogger("onetool.serve")


class ServerDraft(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A server as it would run. Secrets are `${NAME}`, and characters that can't be seen are escaped."""

    name: str
    exists: Annotated[bool, Meta(description="Whether the config has a server of this name.")]
    can_import: bool
    why: Annotated[str | UnsetType, Meta(description="Why it can't be imported.")] = UNSET
    command: Annotated[str | UnsetType, Meta(description="The whole command line, quoted as a shell takes it.")] = UNSET
    url: str | UnsetType = UNSET
    details: Annotated[
        tuple[str, ...], Meta(description="Program, folder, variables, headers. `! `: decides which code runs.")
    ] = ()
    secrets: Annotated[tuple[str, ...], Meta(description="Secrets of it that go into the secrets file.")] = ()
    notes: tuple[str, ...] = ()


class FoundServer(ServerDraft, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A server in the file of another client."""

    id: Annotated[str, Meta(description="For `POST /servers/import`. It differs if what is shown does.")]


class FoundClient(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file of another client with MCP servers."""

    client: Annotated[str, Meta(description="As `onetool servers import --from` takes it.")]
    title: str
    file: str
    error: Annotated[str | UnsetType, Meta(description="Why the file can't be read.")] = UNSET
    servers: tuple[FoundServer, ...] = ()


class FoundClients(msgspec.Struct, frozen=True):
    """The files of other clients that have servers."""

    clients: list[FoundClient]


class TickedServers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Servers of other clients."""

    ids: Annotated[tuple[str, ...], Meta(description="Ids of `GET /servers/found`.", min_length=1)]


@RestRoute("GET", "/servers/found", "Servers", role="admin", gives=FoundClients, errors=(409,))
async def find_servers(request: RestRequest) -> RestResponse:
    """Find the MCP servers of other clients.

    In the user's own files on the machine of the server: of Claude, Cursor, VS Code and others. Files of a project are
    not read. Nothing is started.
    """
    return await asyncio.to_thread(_find, request)


@RestRoute(
    "POST",
    "/servers/import",
    "Servers",
    role="admin",
    takes=TickedServers,
    example={"ids": ["5f2b1c0e9d8a7f6e5d4c3b2a19080706"]},
    gives="ImportReport",
    errors=(409,),
)
async def import_found_servers(request: RestRequest) -> RestResponse:
    """Import servers of other clients.

    Those that were shown by `GET /servers/found`: what has changed since is refused with 409. Secrets go into the
    secrets file. No tool can call this.
    """
    asked = converted(await json_body(request), TickedServers)
    return await asyncio.to_thread(_import_found, request, asked.ids)


def _find(request: RestRequest) -> RestResponse:
    target = config_target(request.context.app)
    clients: list[FoundClient] = []
    for client, title, file, found in _client_files():
        if isinstance(found, str):
            clients.append(FoundClient(client=client, title=title, file=str(file), error=found))
        elif found.servers:
            servers = tuple(_shown(target, found, name)[0] for name in found.servers)
            clients.append(FoundClient(client=client, title=title, file=str(file), servers=servers))
    return RestResponse(200, encode(request.context.clean(msgspec.to_builtins(FoundClients(clients)), None)))


def _client_files() -> "Iterator[tuple[str, str, Path, ClientServers | str]]":
    """Yield the user's own files: client, its title, the file, and its servers or why it can't be read."""
    from onetool.config.client_files import JsoncError
    from onetool.config.known_clients import CLIENT_FILES, existing_files
    from onetool.config.server_import.translate import read_servers

    home = user_home(os.environ)
    for spot in existing_files(home, home, os.environ):
        if not spot.in_project:
            try:
                found = read_servers(spot.file, home)
            except JsoncError as why:
                found = str(why)
            yield spot.client, CLIENT_FILES[spot.client].title, spot.file, found


def _shown(target: "ConfigTarget", found: "ClientServers", name: str) -> "tuple[FoundServer, ClientServers]":
    """Return one server of a file as it is shown, and as it is imported. Its id is independent of other servers."""
    one = msgspec.structs.replace(found, servers={name: found.servers[name]})
    draft = draft_of(target, _plan(target, one, replace=True), name)
    if draft.exists:
        draft = msgspec.structs.replace(draft, can_import=False, why="The config has a server of this name.")
    facts = msgspec.structs.asdict(draft)
    return FoundServer(id=digest_of([str(found.file), draft]), **facts), one


def _import_found(request: RestRequest, ids: tuple[str, ...]) -> RestResponse:
    from onetool.config.server_import import Planner

    target = config_target(request.context.app)
    known: dict[str, ClientServers] = {}
    for *_, found in _client_files():
        if not isinstance(found, str):
            shown = (_shown(target, found, name) for name in found.servers)
            known |= {server.id: one for server, one in shown}
    planner = Planner(target, replace=False, ask=lambda *_: None, reuse=False)
    for id in dict.fromkeys(ids):
        if id not in known:
            raise changed_error("A file with one of these servers")
        planner.add(known[id])
    return _written(request, target, planner.done())


def _plan(target: "ConfigTarget", found: "ClientServers", *, replace: bool) -> "ServerImportPlan":
    from onetool.config.server_import import Planner

    planner = Planner(target, replace=replace, ask=lambda *_: None, reuse=False)
    planner.add(found)
    return planner.done()


def draft_of(target: "ConfigTarget", plan: "ServerImportPlan", name: str) -> ServerDraft:
    """Return what a person is shown of a server of a plan."""
    exists = name in target.servers
    if (why := plan.skipped.get(name)) is not None:
        return ServerDraft(name=shown_line(name), exists=exists, can_import=False, why=f"Left out: {why}.")
    block = plan.servers[name]
    words = [block.get("command", ""), *block.get("args", ())]
    return ServerDraft(
        name=shown_line(name),
        exists=exists,
        can_import=True,
        command=UNSET if "url" in block else shown_line(shlex.join(words)),
        url=shown_line(block["url"]) if "url" in block else UNSET,
        details=tuple(map(shown_line, target.details(name, block))),
        secrets=tuple(plan.secrets),
        notes=tuple(plan.notes),
    )


def config_target(app: "App") -> "ConfigTarget":
    """Return the config to change: the one in force, else the user's own. Raises RestError.

    A project's is looked up again, because it may not be trusted any more; nothing is written to it then.
    """
    from onetool.config.server_import import ConfigTarget, ConfigUnchangedError

    file = app.config.path
    named = None if file is None or app.config.whose == "project" else str(file)
    try:
        target = ConfigTarget(named, new=own_folder() / NAME)
    except (ConfigUnchangedError, ConfigError) as error:
        raise RestError(409, "config_unchanged", str(error)) from None
    if file is not None and target.file.absolute() != file.absolute():
        message = f"{target.file} has taken the place of {file}: reload the server, then try again."
        raise RestError(409, "config_unchanged", message)
    return target


# Switching them on and off


@server_action("/servers/{server}/enable")
async def enable_server(request: RestRequest) -> RestResponse:
    """Enable a server in the config file."""
    return await _switch(request, on=True)


@server_action("/servers/{server}/disable")
async def disable_server(request: RestRequest) -> RestResponse:
    """Disable a server in the config file."""
    return await _switch(request, on=False)


async def _switch(request: RestRequest, on: bool) -> RestResponse:
    converted(await json_body(request, empty={}), NoOptions)
    return await asyncio.to_thread(_switched, request.context, request.path[0], on)


def _switched(context: RestContext, name: str, on: bool) -> RestResponse:
    from onetool.config.edit import switch_server

    _, status = found_server(context, name)
    if on == (status.state == "disabled"):
        change_config(context, name, partial(switch_server, name=name, on=on))
        log.info("Switched %s over REST: the server %s", "on" if on else "off", name)
    return server_response(context, name)


def change_config(context: RestContext, name: str, change: "Change") -> None:
    """Change the block of a server in the config, and load the config. Raises RestError."""
    target = config_target(context.app)
    if elsewhere := target.elsewhere(name):
        message = f"{name} stands in {elsewhere}, which the config includes: change it there."
        raise RestError(409, "config_unchanged", message)
    write_config(target, change)
    if wrong := reloaded(context.app.reload):
        why = "; ".join(one["why"] for one in wrong)
        raise RestError(409, "config_unused", f"{target.file} was changed, but can't be used as it is: {why}")


def write_config(target: "ConfigTarget", change: "Change", secrets: Mapping[str, str] | None = None) -> None:
    """Write the config. Raises RestError if it stays as it is."""
    from onetool.config.server_import import ConfigUnchangedError

    try:
        target.write(change, secrets)
    except (ConfigUnchangedError, ConfigError) as error:
        raise RestError(409, "config_unchanged", str(error)) from None


# Adding servers to the config


@RestRoute(
    "POST",
    "/tools/imports/servers",
    "Servers",
    role="admin",
    query=(REPLACE, DRY_RUN),
    takes=dict,
    example={"mcpServers": {"docs": {"url": "http://127.0.0.1:9000/mcp"}}},
    gives="ImportReport",
    errors=(409,),
)
async def import_servers(request: RestRequest) -> RestResponse:
    """Add MCP servers to the config.

    Blocks as other clients have them, by their names: all of them, or nothing. Secrets go into the secrets file. No
    tool can call this.
    """
    data = await json_body(request)
    return await asyncio.to_thread(_import_servers, request, data)


def _import_servers(request: RestRequest, data: Any) -> RestResponse:
    from onetool.config.client_files import JsoncError
    from onetool.config.server_import.translate import servers_in

    target = config_target(request.context.app)
    try:
        found = servers_in(data, Path("the request"), target.file.absolute().parent)
    except JsoncError as why:
        raise InvalidError(f"the body: {why}", "") from None
    plan = _plan(target, found, replace=request.query["replace"])
    if plan.skipped and not plan.servers:
        raise InvalidError("; ".join(f"{name}: {why}" for name, why in plan.skipped.items()), "")
    if not plan.servers and not plan.kept:
        raise InvalidError('the body has no servers: send {"mcpServers": {"name": {…}}}', "")
    return _written(request, target, plan, request.query["dryRun"])


def _written(
    request: RestRequest, target: "ConfigTarget", plan: "ServerImportPlan", dry_run: bool = False
) -> RestResponse:
    """Write the servers of a plan, and load them."""
    from onetool.config.edit import put_servers

    if plan.servers and not dry_run:
        write_config(target, partial(put_servers, servers=plan.servers), plan.secrets)
        log.info("Added over REST to %s: the servers %s", target.file, ", ".join(plan.servers))
    warnings = [{"about": "servers", "why": note} for note in plan.notes]
    warnings += [] if dry_run or not plan.servers else reloaded(request.context.app.reload)
    rows = [{"name": name, "what": "new", "block": block} for name, block in plan.servers.items()]
    rows += [{"name": name, "what": "kept"} for name in plan.kept]
    report = import_report(
        dry_run,
        servers=rows,
        skipped=[{"about": name, "why": why} for name, why in plan.skipped.items()],
        warnings=warnings,
        secretsKept=list(plan.secrets),
    )
    return RestResponse(200, encode(report))
