"""The handlers of /check and /trust: problems with the config and the tools, and trust in a project.

Both name files, tools and hosts of the server, so they need the role edit. Trusting a folder starts code, so it needs
the role admin, like changes to servers.
"""

import asyncio
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from onetool.app.database_state import is_reached
from onetool.app.import_report import Remark, reloaded
from onetool.app.operations.fields import DryRun
from onetool.app.server_changes import changed_error, digest_of
from onetool.config.file_checks import require_ownership
from onetool.config.find import FOLDER, NAME, own_folder, trust_store, user_home
from onetool.config.pin import see
from onetool.config.trust import trust_folder as store_trust
from onetool.core.errors import ConfigError, Mistake, Need
from onetool.core.text import utc_text
from onetool.database.connection import DatabaseError
from onetool.database.migrations import missing
from onetool.http.asgi import encode
from onetool.interfaces.rest.problem import RestError
from onetool.interfaces.rest.request import RestRequest, RestResponse
from onetool.interfaces.rest.route import RestRoute
from onetool.sources.bundles.errors import invalid_at

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.config.pin import Seen

log = logging.getLogger("onetool.serve")
LEVELS: dict[str, Literal["error", "warning", "hint"]] = {"error": "error", "warning": "warning"}


class CheckFinding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One problem. `where` is a file with its line, or the tool or key."""

    level: Literal["error", "warning", "hint"]
    where: Annotated[str, Meta(description="A file with its line, or the tool or key.")]
    message: str
    reason: Annotated[str, Meta(description="The kind of finding, for programs: one word.")] = ""
    fix: Annotated[str | UnsetType, Meta(description="How to fix it: a command or a text to copy.")] = UNSET
    needs: Annotated[tuple[Need, ...], Meta(description="Hosts to allow and secrets to set.")] = ()


class DatabaseReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of the database. `why` is set if it can't be reached."""

    reached: bool
    missing_migrations: Annotated[list[str], Meta(description="Migrations to apply with `onetool db migrate`.")]
    why: str | None


class ReplicaReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One of the processes that serve: a replica, or a worker of one machine."""

    id: str
    address: Annotated[str, Meta(description="Its host and port, or the number of the worker.")]
    version: str
    since: str
    is_draining: Annotated[bool, Meta(description="Whether it is about to stop and gets no new requests.")]
    is_this: Annotated[bool, Meta(description="Whether it answered this request.")]


class CheckReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The problems with the config and the tools. `ok` is true if nothing has to be fixed."""

    ok: bool
    findings: list[CheckFinding]
    database: Annotated[DatabaseReport | UnsetType, Meta(description="Only if the config has a database.")] = UNSET
    replicas: Annotated[list[ReplicaReport] | UnsetType, Meta(description="Only if several processes serve.")] = UNSET


@RestRoute("GET", "/check", "Server", role="edit", gives=CheckReport)
async def get_check(request: RestRequest) -> RestResponse:
    """Get the problems with the config and the tools.

    These are the findings of `onetool check`, and the errors that keep a changed config from being used.
    """
    context = request.context
    await context.app.look_again()
    await context.app.catalog.refresh(at_once=True)
    found = context.clean(msgspec.to_builtins(await asyncio.to_thread(_check, context.app)), None)
    if context.members is not None:
        found["replicas"] = [
            msgspec.to_builtins(
                ReplicaReport(
                    id=one.id,
                    address=one.place,
                    version=one.version,
                    since=utc_text(one.since),
                    is_draining=one.is_draining,
                    is_this=one.id == context.members.id,
                )
            )
            for one in context.members.alive()
        ]
    return RestResponse(200, encode(found))


def _check(app: "App") -> CheckReport:
    mistakes = app.findings()
    if app.config.cluster is not None and is_reached(app.config, mistakes):
        from onetool.cluster.report import inspect_replicas

        of_replicas = (replace(one, reason="cluster") for one in inspect_replicas(app.config)[1])
        mistakes = tuple(dict.fromkeys((*mistakes, *of_replicas)))
    report: DatabaseReport | UnsetType = UNSET
    if app.config.database is not None and app.database is not None:
        why = next((one.message for one in mistakes if one.key == "database" and one.severity == "error"), None)
        migrations: list[str] = []
        if why is None:
            try:
                migrations = missing(app.database)
            except DatabaseError as error:  # the connection was lost just now
                why = str(error)
        report = DatabaseReport(reached=why is None, missing_migrations=migrations, why=why)
    ok = all(one.severity != "error" for one in mistakes)
    return CheckReport(ok=ok, findings=[*map(_finding, mistakes)], database=report)


def _finding(mistake: Mistake) -> CheckFinding:
    place = ":".join(str(part) for part in (mistake.file, mistake.line) if part is not None)
    about = f"{mistake.key}: " if place and mistake.key else ""
    return CheckFinding(
        level=LEVELS.get(mistake.severity, "hint"),
        where=place or mistake.key or "",
        message=f"{about}{mistake.message}",
        reason=mistake.reason,
        fix=mistake.hint or UNSET,
        needs=mistake.needs,
    )


# Trust in the project's folder


class TrustState(msgspec.Struct, frozen=True, kw_only=True):
    """The project folder found from the server's working directory, and whether it is trusted."""

    folder: str | None
    trusted: Annotated[bool, Meta(description="Whether its config, packs, bundles and servers are used.")]
    says: Annotated[list[str], Meta(description="What its config says: a line for each value, and for packs.")]
    message: str | None
    command: Annotated[str | None, Meta(description="The command that changes the trust.")]
    digest: Annotated[str | None, Meta(description="For `POST /tools/trust`: refuses a folder that has changed since.")]


@RestRoute("GET", "/trust", "Server", role="edit", gives=TrustState)
def get_trust(request: RestRequest) -> RestResponse:
    """Get whether the project's folder is trusted, and what its config says."""
    app = request.context.app
    folder, message, command, says, digest = app.config.folder, None, None, list[str](), None
    if (untrusted := app.untrusted) is not None:
        folder, message, command = untrusted.folder, str(untrusted), untrusted.command
        if untrusted.mistake is None:
            says, digest = _says(folder)
    elif app.config.whose != "project":
        folder = None
    elif folder is not None:
        command = "onetool trust --revoke"
        says, digest = _says(folder)
    state = TrustState(
        folder=None if folder is None else str(folder),
        trusted=folder is not None and untrusted is None,
        says=says,
        message=message,
        command=command,
        digest=digest,
    )
    return request.context.response(state)


class TrustRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The folder to trust: that of a project, or its `.onetool`."""

    folder: Annotated[str, Meta(description="The absolute path.")]
    digest: Annotated[str | None, Meta(description="The digest of a dry run.")] = None


@RestRoute(
    "POST",
    "/tools/trust",
    "Servers",
    role="admin",
    query=DryRun,
    takes=TrustRequest,
    example={"folder": "/home/me/project"},
    gives="TrustReport",
    errors=(409,),
)
def trust_folder(request: RestRequest, asked: TrustRequest) -> RestResponse:
    """Trust the folder of a project.

    With the `digest` of a dry run, a folder that has changed since is refused with 409. No tool can call this.
    """
    app, dry_run = request.context.app, request.query.dry_run
    request.scope["admission"].task = None  # the new config may not know this caller; answer nevertheless
    folder = _folder(asked.folder)
    try:
        seen = seen_at(folder)
    except ConfigError as error:
        raise RestError(409, "config_unchanged", "; ".join(map(str, error.mistakes))) from None
    digest = digest_of(seen.compared())
    if asked.digest not in (None, digest):
        raise changed_error(folder)
    warnings: list[Remark] = []
    if not dry_run:
        try:
            store_trust(folder, seen, trust_store())
        except OSError as error:
            raise RestError(503, "unavailable", f"Trust can't be stored: {error.strerror}.") from None
        log.info("Trusted over REST: %s", folder)
        warnings = reloaded(app.reload) if app.untrusted is not None else []
    report = {
        "dryRun": dry_run,
        "folder": str(folder),
        "says": [*seen.described()],
        "warnings": warnings,
        "digest": digest,
    }
    return RestResponse(200, encode(report))


def _folder(named: str) -> Path:
    if (not named.startswith("/") and not Path(named).is_absolute()) or "\0" in named:
        raise invalid_at("/folder", "expected the absolute path of a folder")
    path = Path(named)
    folder = path if path.name == FOLDER else path / FOLDER
    if not folder.is_dir():
        raise invalid_at("/folder", f"{folder} is not a folder")
    if os.path.realpath(folder) == os.path.realpath(own_folder()):
        raise invalid_at("/folder", f"{folder} is the user's own and needs no trust")
    return folder


def _says(folder: Path) -> tuple[list[str], str | None]:
    """Return what a folder says, as lines, and its digest.

    For a config that can't be used, return its errors and no digest.
    """
    try:
        seen = seen_at(folder)
    except ConfigError as error:
        return [str(one) for one in error.mistakes], None
    return [*seen.described()], digest_of(seen.compared())


def seen_at(folder: Path) -> "Seen":
    config = folder / NAME if (folder / NAME).is_file() else None
    require_ownership([folder, *([config] if config else [])], user_home(os.environ), trust_store().owners)
    return see(folder, config)
