"""The handlers of /check and /trust: what is wrong with the config and the tools, and the folder of the project.

Both name files, tools and hosts of the server, so that they are for those who may change something here.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import UNSET, UnsetType

from onetool.core.errors import ConfigError, Mistake
from onetool.core.text import utc_text
from onetool.interfaces.json_data import encode
from onetool.interfaces.rest.admin import digest_of, reach_at
from onetool.interfaces.rest.request import RestRequest, RestResponse
from onetool.interfaces.rest.servers import server_problems

if TYPE_CHECKING:
    from pathlib import Path

    from onetool.app import App
    from onetool.services.cluster.members import Members

LEVELS: dict[str, Literal["error", "warning", "hint"]] = {"error": "error", "warning": "warning"}
CHANGED = "It has changed since it was read, and is not in force as it is now: read it again."
REACHES = ("runs", "dials", "reads", "secrets")


class CheckFinding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is wrong. `where` is a file with its line, or what it is about."""

    level: Literal["error", "warning", "hint"]
    where: str
    message: str
    fix: str | UnsetType = UNSET


class DatabaseReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether the database is reached; if not, `why`."""

    reached: bool
    missing_migrations: list[str]
    why: str | None


class ReplicaReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One of the processes that serve: a replica, or a worker of one machine."""

    id: str
    address: str
    version: str
    since: str
    is_draining: bool
    is_this: bool


class CheckReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is wrong with the config and the tools. `ok`: nothing is that has to be repaired."""

    ok: bool
    findings: list[CheckFinding]
    database: DatabaseReport | UnsetType = UNSET
    replicas: list[ReplicaReport] | UnsetType = UNSET


class TrustState(msgspec.Struct, frozen=True, kw_only=True):
    """The folder of the project that was found where the server runs; null where there is none."""

    folder: str | None
    trusted: bool
    reaches: list[str]
    message: str | None
    command: str | None
    digest: str | None


async def check(request: RestRequest) -> RestResponse:
    """What is wrong. The config is read again if its last change could not be used."""
    context = request.context
    await context.app.catalog.refresh(at_once=True)
    found = context.clean(msgspec.to_builtins(await asyncio.to_thread(_check, context.app)), None)
    if context.members is not None:  # an address may come from the environment, and is no secret for that
        found["replicas"] = msgspec.to_builtins(_replicas(context.members))
    return RestResponse(200, encode(found))


async def get_trust(request: RestRequest) -> RestResponse:
    context = request.context
    found = await asyncio.to_thread(_trust, context.app)
    return RestResponse(200, encode(context.clean(msgspec.to_builtins(found), None)))


def _check(app: "App") -> CheckReport:
    from onetool.app.findings import findings

    wrong, _ = findings(app)
    if (error := app.reload_error) is not None:  # the file as it is now, which is not in force
        wrong = (*error.mistakes, *wrong)
    else:
        changed = (Mistake(message=CHANGED, file=str(file), severity="warning") for file in app.changed_files())
        wrong = (*wrong, *changed)
    shown = [*(_finding(one) for one in dict.fromkeys(wrong)), *_servers(app)]
    return CheckReport(
        ok=all(one.level != "error" for one in shown),
        findings=shown,
        database=_database(app, wrong),
    )


def _database(app: "App", wrong: Iterable[Mistake]) -> DatabaseReport | UnsetType:
    """`wrong` has what a new connection has found."""
    if app.config.database is None or (database := app.database) is None:
        return UNSET
    from onetool.database.errors import DatabaseError
    from onetool.database.migrations import missing

    why = next((one.message for one in wrong if one.key == "database" and one.severity == "error"), None)
    lacks: list[str] = []
    if why is None:
        try:
            lacks = missing(database)
        except DatabaseError as error:  # since a moment
            why = str(error)
    return DatabaseReport(reached=why is None, missing_migrations=lacks, why=why)


def _replicas(members: "Members") -> list[ReplicaReport]:
    return [
        ReplicaReport(
            id=one.id,
            address=one.address,
            version=one.version,
            since=utc_text(one.since),
            is_draining=one.is_draining,
            is_this=one.id == members.id,
        )
        for one in members.alive()
    ]


def _servers(app: "App") -> list[CheckFinding]:
    """Those that are not connected, or that have changed: a server that runs knows, the command would have to try."""
    statuses = () if app.servers is None else app.servers.statuses(None)
    return [
        CheckFinding(level="warning", where=f"servers.{one.name}", message=message, fix=fix)
        for one in statuses
        for message, fix in server_problems(one)
    ]


def _finding(mistake: Mistake) -> CheckFinding:
    place = ":".join(str(part) for part in (mistake.file, mistake.line) if part is not None)
    about = f"{mistake.key}: " if place and mistake.key else ""
    return CheckFinding(
        level=LEVELS.get(mistake.severity, "hint"),
        where=place or mistake.key or "",
        message=f"{about}{mistake.message}",
        fix=mistake.hint or UNSET,
    )


def _trust(app: "App") -> TrustState:
    if (untrusted := app.untrusted) is not None:
        command = "onetool trust" if untrusted.mistake is None else "onetool check"
        reaches, digest = ([], None) if untrusted.mistake is not None else _reaches(untrusted.folder)
        about = {"folder": str(untrusted.folder), "message": str(untrusted), "command": command}
        return TrustState(**about, trusted=False, reaches=reaches, digest=digest)
    folder = app.config.folder
    if app.config.whose != "project" or folder is None:
        return TrustState(folder=None, trusted=False, reaches=[], message=None, command=None, digest=None)
    reaches, digest = _reaches(folder)
    about = {"folder": str(folder), "message": None, "command": "onetool trust --revoke"}
    return TrustState(**about, trusted=True, reaches=reaches, digest=digest)


def _reaches(folder: "Path") -> tuple[list[str], str | None]:
    """What it runs, dials and reads, and which secrets it names, each with that word before it; and the digest of it.

    Of a config that can't be used, what is wrong with it, and no digest.
    """
    try:
        reach = reach_at(folder)
    except ConfigError as error:
        return [str(one) for one in error.mistakes], None
    return [f"{part}: {line}" for part in REACHES for line in getattr(reach, part)], digest_of(reach.pinned())
