"""Handlers that change a configured server: enable, edit, rename, remove, restore.

All are for admins. Clients preview a change with a dry run. The change is refused if anything differs from the preview.
Secrets never leave the machine; they are shown as `${NAME}`.
"""

import logging
import os
import shlex
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onetool.app.grants import load_written, target_of
from onetool.app.operations.fields import DryRun
from onetool.config.edit import drop_server, put_servers, server_block, switch_server
from onetool.config.pin import listed, text_of
from onetool.config.read import ConfigFileError
from onetool.config.server_import import ConfigTarget, ConfigUnchangedError, ServerExistsError, is_onetool, placeholders
from onetool.config.server_import.hide_secrets import SecretCollector, without_secrets
from onetool.config.server_import.translate import SkipServer
from onetool.core.file_facts import digest_of as digest_of_file
from onetool.core.text import shown_line
from onetool.database.connection import DatabaseError
from onetool.http.asgi import encode
from onetool.interfaces.rest.problem import RestError
from onetool.interfaces.rest.request import RestContext, RestRequest, RestResponse
from onetool.interfaces.rest.route import RestRoute
from onetool.interfaces.rest.servers import (
    NoOptions,
    changed_error,
    digest_of,
    found_server,
    sealed_digest,
    server_action,
    server_response,
)
from onetool.sources.bundles.errors import invalid_at
from onetool.sources.bundles.validation import converted
from onetool.sources.mcp_servers.program import find_program

log = logging.getLogger("onetool.serve")
MAX_FILES = 20  # of one server, in the digest of a dry run


class ServerDraft(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A server as it would run. Secrets are `${NAME}`; invisible characters are escaped, except in `name`."""

    name: str
    exists: Annotated[bool, Meta(description="Whether the config has a server of this name.")]
    can_import: bool
    why: Annotated[str | UnsetType, Meta(description="Why it can't be imported.")] = UNSET
    command: Annotated[str | UnsetType, Meta(description="The whole command line, quoted as a shell takes it.")] = UNSET
    url: str | UnsetType = UNSET
    details: Annotated[
        tuple[str, ...], Meta(description="Program, folder, variables, headers. `! `: decides which code runs.")
    ] = ()
    secrets: Annotated[tuple[str, ...], Meta(description="Secrets that go into the secrets file.")] = ()
    notes: tuple[str, ...] = ()


class ServerDrafts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Servers that were written to the config, or would be."""

    dry_run: bool
    servers: list[ServerDraft]
    digest: Annotated[
        str, Meta(description="Send it with the real request, which is refused if anything changed in the meantime.")
    ]


class ServerBlock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The validated keys of a server definition. Other config keys are allowed."""

    command: str | UnsetType = UNSET
    args: list[str] | UnsetType = UNSET
    env: dict[str, str] | UnsetType = UNSET
    cwd: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    auth: str | dict[str, str] | UnsetType = UNSET


class ServerDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """The block of a server in the config. Secrets in it are `${NAME}`."""

    name: str
    file: str
    definition: dict[str, Any]
    seen: Annotated[str, Meta(description="For PUT, which refuses to replace a definition that has changed since.")]


class ServerEdit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new definition, and the version that it replaces."""

    definition: dict[str, Any]
    seen: Annotated[str, Meta(description="The `seen` of the definition that this one replaces.")]
    keep: Annotated[tuple[str, ...], Meta(description="Variables and headers whose values are secrets.")] = ()
    digest: Annotated[str | None, Meta(description="The digest of the dry run.")] = None


class NewName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new name for a server."""

    name: str


class RemovedServer(msgspec.Struct, frozen=True, rename="camel"):
    """The ID that restores a removed server."""

    undo: Annotated[str, Meta(description="The id for `POST …/restore`, valid for ten minutes and only for you.")]


class UndoRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The id from a removal."""

    undo: str


# Previews


def draft_of(
    target: ConfigTarget, name: str, block: Mapping[str, Any], secrets: Iterable[str], notes: Iterable[str] = ()
) -> ServerDraft:
    """Return the preview of a block that could be written."""
    words = [block.get("command", ""), *block.get("args", ())]
    return ServerDraft(
        name=name,
        exists=name in target.servers,
        can_import=True,
        command=UNSET if "url" in block else shown_line(shlex.join(words)),
        url=shown_line(block["url"]) if "url" in block else UNSET,
        details=tuple(map(shown_line, target.details(name, block))),
        secrets=tuple(secrets),
        notes=tuple(map(shown_line, notes)),
    )


def file_digests(target: "ConfigTarget", blocks: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return digests of the programs and scripts that these servers would start, by path."""
    found: dict[str, str] = {}
    for block in blocks:
        folder = os.path.join(target.file.absolute().parent, os.path.expanduser(block.get("cwd") or ""))
        program = find_program(
            block.get("command", ""), block.get("env", {}).get("PATH", os.environ.get("PATH")), folder
        )
        words = (os.path.join(folder, os.path.expanduser(one)) for one in block.get("args", ()))
        files = [one for one in (program, *words) if one and "\0" not in one and os.path.isfile(one)]
        found |= {file: digest_of_file(Path(file)) for file in files[:MAX_FILES]}
    return found


def check_digest(given: str | None, now: str) -> None:
    """Raise an error unless the digest matches the preview."""
    if given is None:
        how = "Send the request with dryRun=true first, then repeat it with the digest of that response."
        raise invalid_at("/digest", f"it is missing. {how}")
    if given != now:
        raise changed_error("The command, URL or environment of the server")


# Enabling and disabling


@server_action("/servers/{server}/enable")
def enable_server(request: RestRequest, _: NoOptions) -> RestResponse:
    """Enable a server in the config file."""
    return _switch(request.context, request.path[0], on=True)


@server_action("/servers/{server}/disable")
def disable_server(request: RestRequest, _: NoOptions) -> RestResponse:
    """Disable a server in the config file."""
    return _switch(request.context, request.path[0], on=False)


def _switch(context: RestContext, name: str, on: bool) -> RestResponse:
    _, status = found_server(context, name)
    if on == (status.state == "disabled"):
        target = target_of(context.app)
        target.block(name)
        target.write(partial(switch_server, name=name, on=on))
        log.info("Switched %s over REST: the server %s", "on" if on else "off", name)
        load_written(context.app, target.file)
    return server_response(context, name)


# Editing


@RestRoute("GET", "/servers/{server}/definition", "Servers", role="admin", gives=ServerDefinition, errors=(404, 409))
def get_server_definition(request: RestRequest) -> RestResponse:
    """Get the block of a server in the config.

    Secrets in it are shown as `${NAME}`; with the next edit they go into the secrets file.
    """
    context, (name,) = request.context, request.path
    found_server(context, name)
    target = target_of(context.app)
    hidden, _ = _without_secrets(context, target, name, target.block(name))
    found = ServerDefinition(name=name, file=str(target.file), definition=hidden, seen=digest_of(hidden))
    return context.response(found)


def _without_secrets(
    context: RestContext, target: ConfigTarget, name: str, block: Mapping[str, Any]
) -> tuple[dict[str, Any], SecretCollector]:
    """Return a block of the config without its secrets, and the collector of these secrets.

    Raises ConfigUnchangedError if a secret would stay in the block.
    """
    texts, known = dict(block), list[str]()
    for key in ("env", "headers"):
        values = block.get(key)
        texts[key] = {str(one): text_of(value) for one, value in (values if isinstance(values, dict) else {}).items()}
        known += [one for one, value in texts[key].items() if context.clean(value, None) != value]
    texts["args"] = [text_of(one) for one in listed(block.get("args"))]
    texts = {key: value for key, value in texts.items() if key in block}
    collector = SecretCollector(target.secrets, reuse=False)
    hidden = without_secrets(name, texts, collector, known)
    if context.clean(hidden, None) != hidden:  # a mask would be written in place of the value
        where = f"contains a secret in an unsupported place. Edit {target.file} by hand."
        raise ConfigUnchangedError(f"The definition of {name} {where}")
    return hidden, collector


@RestRoute(
    "PUT",
    "/servers/{server}",
    "Servers",
    role="admin",
    query=DryRun,
    takes=ServerEdit,
    example={"definition": {"url": "http://127.0.0.1:9000/mcp"}, "seen": "5f2b1c0e9d8a7f6e5d4c3b2a19080706"},
    gives=ServerDrafts,
    errors=(404, 409),
)
def edit_server(request: RestRequest, asked: ServerEdit) -> RestResponse:
    """Replace the block of a server in the config.

    Send the request first with `dryRun=true`, which shows what would be started, then with the `digest` of that
    response. Values that look like secrets, and those in `keep`, go into the secrets file. 409 means that the block or
    what would be started has changed since.
    """
    converted(asked.definition, ServerBlock, "/definition")
    context, (name,), dry_run = request.context, request.path, request.query.dry_run
    found_server(context, name)
    target = target_of(context.app)
    old = target.block(name)
    hidden, collector = _without_secrets(context, target, name, old)
    if asked.seen != digest_of(hidden):
        raise changed_error(f"The definition of {name}", f"Get /servers/{name}/definition again, and repeat your edit.")
    new = without_secrets(name, asked.definition, collector, asked.keep)
    if not new.get("url") and is_onetool(new):
        raise invalid_at("/definition", "this command starts OneTool itself, whose tools are already available")
    secrets = {one: collector.new[one] for one in placeholders(new) if one in collector.new}
    digest = sealed_digest(context, [str(target.file), name, new, file_digests(target, [new])], secrets)

    def change(text: str) -> str:
        if server_block(text, name) != old:
            raise ConfigFileError(f"The definition of {name} was just changed; get it again")
        return put_servers(text, {name: new})

    if dry_run:
        target.check(change, secrets)
    else:
        check_digest(asked.digest, digest)
        target.write(change, secrets)
        log.info("Edited over REST: the server %s", name)
        load_written(context.app, target.file)
    drafts = [draft_of(target, name, new, secrets)]
    return context.response(ServerDrafts(dry_run=dry_run, servers=drafts, digest=digest))


# Renaming


@server_action("/servers/{server}/rename", takes=NewName, example={"name": "docs"})
def rename_server(request: RestRequest, asked: NewName) -> RestResponse:
    """Rename a server in the config.

    Its tools get the new name. The server's approvals and login are kept.
    """
    context, (name,), new = request.context, request.path, asked.name
    servers, _ = found_server(context, name)
    if new == name:
        return server_response(context, name)
    target = target_of(context.app)
    try:
        old = target.rename(servers, name, new)
    except SkipServer as why:
        raise invalid_at("/name", str(why)) from None
    except ServerExistsError as error:
        raise RestError(409, "exists", str(error)) from None
    except DatabaseError as error:
        raise RestError(503, "unavailable", f"The approvals and login of {name} can't be copied: {error}.") from None
    log.info("Renamed over REST: the server %s to %s", name, new)
    load_written(context.app, target.file)
    old.delete()
    return server_response(context, new)


# Removing and restoring


@RestRoute("DELETE", "/servers/{server}", "Servers", role="admin", gives=RemovedServer, errors=(404, 409))
def remove_server(request: RestRequest) -> RestResponse:
    """Remove a server from the config.

    Its secrets stay stored. For ten minutes, `POST …/restore` with `undo` restores it.
    """
    context, (name,) = request.context, request.path
    found_server(context, name)
    target = target_of(context.app)
    block, before, after = target.block(name), "", ""

    def change(text: str) -> str:
        nonlocal before, after
        before, after = text, drop_server(text, name)
        return after

    def restore(text: str) -> str:
        """Return the text with the block restored; byte for byte the old text if the file has not changed since."""
        return before if text == after else put_servers(text, {name: block})

    target.write(change)
    log.info("Removed over REST: the server %s", name)
    undo = context.removals.add(name, restore)
    load_written(context.app, target.file)
    return RestResponse(200, encode(RemovedServer(undo)))


@RestRoute(
    "POST",
    "/servers/{server}/restore",
    "Servers",
    role="admin",
    takes=UndoRequest,
    example={"undo": "kT3v0Zq1fJ8s2LxWbYd9uA"},
    gives="ServerEntry",
    errors=(404, 409),
)
def restore_server(request: RestRequest, asked: UndoRequest) -> RestResponse:
    """Restore a removed server.

    The block is restored unchanged, with the secrets in it. Only the caller who removed the server can restore it,
    within ten minutes.
    """
    context, (name,) = request.context, request.path
    found = context.removals.get(asked.undo)
    if found is None or found.name != name:
        message = "This removal can't be undone: it expired, or another caller made it. Add the server again."
        raise RestError(404, "not_found", message)
    target = target_of(context.app)
    if name in target.servers:
        raise RestError(409, "exists", f"A server named {name[:100]!r} already exists. Rename it first.")
    target.write(found.restore)
    context.removals.drop(asked.undo)
    log.info("Restored over REST: the server %s", name)
    load_written(context.app, target.file)
    return server_response(context, name)
