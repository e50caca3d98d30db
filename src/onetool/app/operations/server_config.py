"""Change a server in the config: enable, edit, rename, remove, restore. All are for admins."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from secrets import token_urlsafe
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onetool.app.operations import At, Command, operation
from onetool.app.operations.fields import DryRun, Input
from onetool.app.operations.servers import ACTION, NoOptions, ServerEntry, found_server, get_server
from onetool.app.server_changes import (
    ServerDrafts,
    changed_error,
    check_digest,
    digest_of,
    draft_of,
    file_digests,
    sealed_digest,
)
from onetool.core.principal import owner
from onetool.database.connection import DatabaseError
from onetool.sources.bundles.errors import ConflictError, NotFoundError, UnavailableError, invalid_at
from onetool.sources.bundles.validation import converted

if TYPE_CHECKING:
    from onetool.config.server_import import ConfigTarget
    from onetool.config.server_import.hide_secrets import SecretCollector

log = logging.getLogger("onetool.serve")
CHANGE: dict[str, Any] = {"role": "admin", "errors": (404, 409)}


# Enabling and disabling


@operation("POST", "/servers/{server}/enable", "Servers", **ACTION, command=Command("servers enable"))
def enable_server(at: At, server: str, options: NoOptions) -> ServerEntry:
    """Enable a server in the config file."""
    return _switch(at, server, on=True)


@operation("POST", "/servers/{server}/disable", "Servers", **ACTION, command=Command("servers disable"))
def disable_server(at: At, server: str, options: NoOptions) -> ServerEntry:
    """Disable a server in the config file. Its block stays."""
    return _switch(at, server, on=False)


def _switch(at: At, name: str, on: bool) -> ServerEntry:
    from onetool.config.edit import switch_server  # loads the editor of YAML, as in the functions below

    _, status = found_server(at, name)
    word = "on" if on else "off"
    if on != (status.state == "disabled"):
        at.say(f"{name} is switched {word} already.")
        return get_server(at, name)
    target = at.config_target()
    block = target.block(name)
    target.write(partial(switch_server, name=name, on=on))
    log.info("Switched %s: the server %s", word, name)
    at.say(f"Switched {name} {word} in {target.file}.")
    at.load(target.file, is_code=on and "command" in block)
    return get_server(at, name)


# Editing


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


@operation("GET", "/servers/{server}/definition", "Servers", **CHANGE)
def get_server_definition(at: At, server: str) -> ServerDefinition:
    """Get the block of a server in the config.

    Secrets in it are shown as `${NAME}`; with the next edit they go into the secrets file.
    """
    found_server(at, server)
    target = at.config_target()
    hidden, _ = _without_secrets(at, target, server, target.block(server))
    return ServerDefinition(name=server, file=str(target.file), definition=hidden, seen=digest_of(hidden))


def _without_secrets(
    at: At, target: "ConfigTarget", name: str, block: Mapping[str, Any]
) -> "tuple[dict[str, Any], SecretCollector]":
    """Return a block of the config without its secrets, and the collector of these secrets.

    Raises ConfigUnchangedError if a secret would stay in the block.
    """
    from onetool.config.pin import listed, text_of
    from onetool.config.server_import import ConfigUnchangedError
    from onetool.config.server_import.hide_secrets import SecretCollector, without_secrets

    texts, known = dict(block), list[str]()
    for key in ("env", "headers"):
        values = block.get(key)
        texts[key] = {str(one): text_of(value) for one, value in (values if isinstance(values, dict) else {}).items()}
        known += [one for one, value in texts[key].items() if at.clean(value) != value]
    texts["args"] = [text_of(one) for one in listed(block.get("args"))]
    texts = {key: value for key, value in texts.items() if key in block}
    collector = SecretCollector(target.secrets, reuse=False)
    hidden = without_secrets(name, texts, collector, known)
    if at.clean(hidden) != hidden:  # a mask would be written in place of the value
        where = f"contains a secret in an unsupported place. Edit {target.file} by hand."
        raise ConfigUnchangedError(f"The definition of {name} {where}")
    return hidden, collector


@operation(
    "PUT",
    "/servers/{server}",
    "Servers",
    **CHANGE,
    example={"definition": {"url": "http://127.0.0.1:9000/mcp"}, "seen": "5f2b1c0e9d8a7f6e5d4c3b2a19080706"},
)
def edit_server(at: At, server: str, query: DryRun, asked: ServerEdit) -> ServerDrafts:
    """Replace the block of a server in the config.

    Send the request first with `dryRun=true`, which shows what would be started, then with the `digest` of that
    response. Values that look like secrets, and those in `keep`, go into the secrets file. 409 means that the block or
    what would be started has changed since.
    """
    from onetool.config.edit import put_servers, server_block
    from onetool.config.read import ConfigFileError
    from onetool.config.server_import import is_onetool, placeholders
    from onetool.config.server_import.hide_secrets import without_secrets

    converted(asked.definition, ServerBlock, "/definition")
    found_server(at, server)
    target = at.config_target()
    old = target.block(server)
    hidden, collector = _without_secrets(at, target, server, old)
    if asked.seen != digest_of(hidden):
        advice = f"Get /servers/{server}/definition again, and repeat your edit."
        raise changed_error(f"The definition of {server}", advice)
    new = without_secrets(server, asked.definition, collector, asked.keep)
    if not new.get("url") and is_onetool(new):
        raise invalid_at("/definition", "this command starts OneTool itself, whose tools are already available")
    secrets = {one: collector.new[one] for one in placeholders(new) if one in collector.new}
    digest = sealed_digest(at.app, [str(target.file), server, new, file_digests(target, [new])], secrets)

    def change(text: str) -> str:
        if server_block(text, server) != old:
            raise ConfigFileError(f"The definition of {server} was just changed; get it again")
        return put_servers(text, {server: new})

    if query.dry_run:
        target.check(change, secrets)
    else:
        check_digest(asked.digest, digest)
        target.write(change, secrets)
        log.info("Edited: the server %s", server)
        at.load(target.file, is_code=True)
    return ServerDrafts(dry_run=query.dry_run, servers=[draft_of(target, server, new, secrets)], digest=digest)


# Renaming


class NewName(Input, frozen=True):
    """A new name for a server."""

    name: Annotated[str, Meta(extra={"argument": True})]


@operation(
    "POST",
    "/servers/{server}/rename",
    "Servers",
    **CHANGE,
    example={"name": "docs"},
    command=Command("servers rename"),
)
def rename_server(at: At, server: str, asked: NewName) -> ServerEntry:
    """Rename a server in the config.

    Its tools get the new name, unless its block has a `prefix`. The server's approvals and login are kept.
    """
    from onetool.config.server_import import ServerExistsError
    from onetool.config.server_import.translate import SkipServer

    new = asked.name
    servers, _ = found_server(at, server)
    if new == server:
        at.say(f"{server} already has this name.")
        return get_server(at, server)
    target = at.config_target()
    try:
        old = target.rename(servers, server, new)
    except SkipServer as why:
        raise invalid_at("/name", str(why)) from None
    except ServerExistsError as error:
        raise ConflictError(str(error), "exists") from None
    except DatabaseError as error:
        raise UnavailableError(f"The approvals and login of {server} can't be copied: {error}.") from None
    log.info("Renamed: the server %s to %s", server, new)
    at.say(f"Renamed {server} to {new} in {target.file}.")
    at.load(target.file, is_code=target.config.servers[server].command is not None)
    old.delete()
    return get_server(at, new)


# Removing and restoring

UNDO_S = 600.0


class Removal(NamedTuple):
    """A removed block, kept in memory because it may have secrets: who may restore it, until when, and how."""

    name: str
    owner: str
    until: float
    restore: Callable[[str], str]


class RemovedServer(msgspec.Struct, frozen=True, rename="camel"):
    """The ID that restores a removed server."""

    undo: Annotated[str, Meta(description="The id for `POST …/restore`, valid for ten minutes and only for you.")]


class UndoRequest(Input, frozen=True):
    """The id from a removal."""

    undo: str


@operation("DELETE", "/servers/{server}", "Servers", **CHANGE, command=Command("servers remove"))
def remove_server(at: At, server: str) -> RemovedServer:
    """Remove a server from the config. Its secrets stay.

    For ten minutes, `POST …/restore` with `undo` restores it.
    """
    from onetool.config.edit import drop_server, put_servers

    found_server(at, server)
    target = at.config_target()
    block, before, after = target.block(server), "", ""

    def change(text: str) -> str:
        nonlocal before, after
        before, after = text, drop_server(text, server)
        return after

    def restore(text: str) -> str:
        """Return the text with the block restored; byte for byte the old text if the file has not changed since."""
        return before if text == after else put_servers(text, {server: block})

    target.write(change)
    log.info("Removed: the server %s", server)
    undo, now = token_urlsafe(16), monotonic()
    for id in [id for id, one in at.removals.items() if one.until < now]:
        del at.removals[id]
    at.removals[undo] = Removal(server, owner(), now + UNDO_S, restore)
    at.say(f"Removed {server} from {target.file}.")
    at.load(target.file)
    return RemovedServer(undo)


@operation("POST", "/servers/{server}/restore", "Servers", **CHANGE, example={"undo": "kT3v0Zq1fJ8s2LxWbYd9uA"})
def restore_server(at: At, server: str, asked: UndoRequest) -> ServerEntry:
    """Restore a removed server.

    The block is restored unchanged, with the secrets in it. Only the caller who removed the server can restore it,
    within ten minutes.
    """
    found = at.removals.get(asked.undo)
    if found is None or (found.name, found.owner) != (server, owner()) or found.until < monotonic():
        message = "This removal can't be undone: it expired, or another caller made it. Add the server again."
        raise NotFoundError(message)
    target = at.config_target()
    if server in target.servers:
        raise ConflictError(f"A server named {server[:100]!r} already exists. Rename it first.", "exists")
    target.write(found.restore)
    del at.removals[asked.undo]
    log.info("Restored: the server %s", server)
    at.load(target.file)
    return get_server(at, server)
