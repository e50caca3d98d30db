"""The handlers of what starts code: MCP servers of the config, approving their changes, trusting a folder.

What starts code needs the role admin, and no tool can reach these routes: every request of an HTTP tool and to an MCP
server carries the header `OneTool-Call`, which only few routes take (`RouteMethod.for_tools`), and `http.token` can't
be a secret of a tool. What can't be held back is code of a pack, which runs in this process, and programs that were
given the token by a person.
"""

import asyncio
import logging
import os
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from onetool.core.errors import ConfigError
from onetool.core.text import or_rather
from onetool.interfaces.json_data import encode
from onetool.interfaces.rest.imports import import_report, reloaded
from onetool.interfaces.rest.problem import RestError
from onetool.interfaces.rest.request import RestRequest, RestResponse, json_body
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.validation import converted

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.config.reach import Reach
    from onetool.config.server_import import ServerImportPlan

log = logging.getLogger("onetool.serve")


class SeenDigest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`digest` is that of a dry run: what has changed since is not approved."""

    digest: str | None = None


class TrustRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The folder of a project, or its `.onetool`."""

    folder: str
    digest: str | None = None


# Servers of the config


async def import_servers(request: RestRequest) -> RestResponse:
    data = await json_body(request.headers, request.receive)
    return await asyncio.to_thread(_import_servers, request, data)


def _import_servers(request: RestRequest, data: Any) -> RestResponse:
    from onetool.config.client_files import JsoncError
    from onetool.config.edit import put_servers
    from onetool.config.find import NAME, own_folder
    from onetool.config.server_import import ConfigTarget, ConfigUnchangedError, Planner
    from onetool.config.server_import.translate import servers_in

    app, dry_run = request.context.app, request.query["dryRun"]
    file = app.config.path
    try:
        target = ConfigTarget(str(file) if file else None, new=own_folder() / NAME)
        planner = Planner(target, replace=request.query["replace"], ask=lambda *_: None, reuse=False)
        planner.add(servers_in(data, Path("the request"), target.file.absolute().parent))
        plan = planner.done()
        _check_plan(plan)
        if plan.servers and not dry_run:
            target.write(partial(put_servers, servers=plan.servers), plan.secrets)
            log.info("Added over REST to %s: the servers %s", target.file, ", ".join(plan.servers))
    except JsoncError as why:
        raise InvalidError(f"the body: {why}", "") from None
    except (ConfigUnchangedError, ConfigError) as error:
        raise RestError(409, "config_unchanged", str(error)) from None
    warnings = [{"about": "servers", "why": note} for note in plan.notes]
    warnings += [] if dry_run or not plan.servers else reloaded(app)
    return RestResponse(200, encode(_servers_report(plan, dry_run, warnings)))


def _check_plan(plan: "ServerImportPlan") -> None:
    if plan.skipped and not plan.servers:
        raise InvalidError("; ".join(f"{name}: {why}" for name, why in plan.skipped.items()), "")
    if not plan.servers and not plan.kept:
        raise InvalidError('the body has no servers: send {"mcpServers": {"name": {…}}}', "")


def _servers_report(plan: "ServerImportPlan", dry_run: bool, warnings: list[dict[str, str]]) -> dict[str, Any]:
    rows = [{"name": name, "what": "new", "block": block} for name, block in plan.servers.items()]
    rows += [{"name": name, "what": "kept"} for name in plan.kept]
    return import_report(
        dry_run,
        servers=rows,
        skipped=[{"about": name, "why": why} for name, why in plan.skipped.items()],
        warnings=warnings,
        secretsKept=list(plan.secrets),
    )


async def approve_server(request: RestRequest) -> RestResponse:
    """What has changed about a server's tools, and unless it is a dry run, trust them as they are now."""
    from onetool.sources.mcp_servers.proxy import ChangedSinceSeenError

    asked = converted(await json_body(request.headers, request.receive, empty={}), SeenDigest)
    (name,), servers = request.path, request.context.app.catalog.servers
    known = [] if servers is None else servers.names()
    if servers is None or name not in known:
        raise RestError(404, "not_found", f"There is no server {name[:100]!r}{or_rather(name, known) or '.'}")
    await servers.wait_connected([name])
    status = next(one for one in servers.statuses() if one.name == name)
    if status.state not in ("connected", "disabled") and not status.changed:
        raise RestError(409, "source_unavailable", f"{name} can't be reached: {status.error}")
    differences = await asyncio.to_thread(servers.differences, name)
    digest = digest_of(differences)
    if asked.digest not in (None, digest):
        raise _changed(name)
    dry_run = request.query["dryRun"]
    if not dry_run:
        try:
            await asyncio.to_thread(servers.approve, name, differences)
        except ChangedSinceSeenError:  # while this request was on its way
            raise _changed(name) from None
        log.info("Approved over REST: the server %s as it is now", name)
    found = [{"tool": tool, "lines": lines} for tool, lines in differences.items()]
    return RestResponse(200, encode({"dryRun": dry_run, "server": name, "changes": found, "digest": digest}))


# A folder


async def trust(request: RestRequest) -> RestResponse:
    asked = converted(await json_body(request.headers, request.receive), TrustRequest)
    return await asyncio.to_thread(_trust, request.context.app, asked, request.query["dryRun"])


def _trust(app: "App", asked: TrustRequest, dry_run: bool) -> RestResponse:
    from onetool.config.find import trust_store
    from onetool.config.trust import trust_folder

    folder = _folder(asked.folder)
    try:
        reach = reach_at(folder)
    except ConfigError as error:
        raise RestError(409, "config_unchanged", "; ".join(map(str, error.mistakes))) from None
    found = {part: list(getattr(reach, part)) for part in ("runs", "dials", "reads", "secrets")}
    digest = digest_of(reach.pinned())
    if asked.digest not in (None, digest):
        raise _changed(folder)
    warnings: list[dict[str, str]] = []
    if not dry_run:
        try:
            trust_folder(folder, reach, trust_store())
        except OSError as error:
            raise RestError(503, "unavailable", f"It could not be remembered: {error.strerror}.") from None
        log.info("Trusted over REST: %s", folder)
        warnings = reloaded(app) if app.untrusted is not None else []
    return RestResponse(
        200,
        encode({"dryRun": dry_run, "folder": str(folder), **found, "warnings": warnings, "digest": digest}),
    )


def _folder(named: str) -> Path:
    from onetool.config.find import FOLDER, own_folder

    if (not named.startswith("/") and not Path(named).is_absolute()) or "\0" in named:
        raise InvalidError("/folder: expected the absolute path of a folder", "/folder")
    path = Path(named)
    folder = path if path.name == FOLDER else path / FOLDER
    if not folder.is_dir():
        raise InvalidError(f"/folder: {folder} is no folder, so that there is nothing to trust", "/folder")
    if os.path.realpath(folder) == os.path.realpath(own_folder()):
        raise InvalidError(f"/folder: {folder} is the person's own, and needs no trust", "/folder")
    return folder


def reach_at(folder: Path) -> "Reach":
    from onetool.config.file_checks import require_ownership
    from onetool.config.find import NAME, trust_store, user_home
    from onetool.config.reach import reach_of

    config = folder / NAME if (folder / NAME).is_file() else None
    require_ownership([folder, *([config] if config else [])], user_home(os.environ), trust_store().owners)
    return reach_of(folder, config)


def _changed(what: str | Path) -> RestError:
    return RestError(409, "changed", f"{what} has changed since you looked: look again, with dryRun=true.")


def digest_of(data: Any) -> str:
    return sha256(msgspec.json.encode(data, order="deterministic")).hexdigest()[:32]
