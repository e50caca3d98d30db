"""The handler of /check: problems with the config and the tools.

It names files, tools and hosts of the server, so it needs the role edit.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from onetool.app.database_state import is_reached
from onetool.core.errors import Mistake, Need
from onetool.core.text import utc_text
from onetool.database.connection import DatabaseError
from onetool.database.migrations import missing
from onetool.http.asgi import encode
from onetool.interfaces.rest.request import RestRequest, RestResponse
from onetool.interfaces.rest.route import RestRoute

if TYPE_CHECKING:
    from onetool.app import App

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
