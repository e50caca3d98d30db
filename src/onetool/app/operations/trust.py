"""Trust in the folder of a project.

The operations name files, tools and hosts of the server, so they need the role edit. Trusting a folder starts code, so
it needs the role admin, like changes to servers.
"""

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from onetool.app.import_report import Remark, reloaded
from onetool.app.operations import At, operation
from onetool.app.operations.fields import DryRun, Input
from onetool.app.server_changes import changed_error, digest_of
from onetool.config.find import FOLDER, own_folder, owned_config, trust_store, user_home
from onetool.config.pin import see
from onetool.config.trust import trust_folder as store_trust
from onetool.core.errors import ConfigError
from onetool.sources.bundles.errors import ConflictError, UnavailableError, invalid_at

if TYPE_CHECKING:
    from onetool.config.pin import Seen

log = logging.getLogger("onetool.serve")


class TrustState(msgspec.Struct, frozen=True, kw_only=True):
    """The project folder found from the server's working directory, and whether it is trusted."""

    folder: str | None
    trusted: Annotated[bool, Meta(description="Whether its config, packs, bundles and servers are used.")]
    says: Annotated[list[str], Meta(description="What its config says: a line for each value, and for packs.")]
    message: str | None
    command: Annotated[str | None, Meta(description="The command that changes the trust.")]
    digest: Annotated[str | None, Meta(description="For `POST /tools/trust`: refuses a folder that has changed since.")]


@operation("GET", "/trust", "Server", role="edit")
def get_trust(at: At) -> TrustState:
    """Get whether the project's folder is trusted, and what its config says."""
    app = at.app
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
    return TrustState(
        folder=None if folder is None else str(folder),
        trusted=folder is not None and untrusted is None,
        says=says,
        message=message,
        command=command,
        digest=digest,
    )


class TrustRequest(Input, frozen=True):
    """The folder to trust: that of a project, or its `.onetool`."""

    folder: Annotated[str, Meta(description="The absolute path.")]
    digest: Annotated[str | None, Meta(description="The digest of a dry run.")] = None


class TrustReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was trusted, or would be."""

    dry_run: bool
    folder: str
    says: list[str]
    warnings: list[Remark]
    digest: Annotated[str, Meta(description="For the real request, which fails if anything has changed since.")]


@operation(
    "POST",
    "/tools/trust",
    "Servers",
    role="admin",
    example={"folder": "/home/me/project"},
    errors=(409,),
    changes_access=True,
)
def trust_folder(at: At, query: DryRun, asked: TrustRequest) -> TrustReport:
    """Trust the folder of a project.

    With the `digest` of a dry run, a folder that has changed since is refused with 409. No tool can call this.
    """
    folder = _folder(asked.folder)
    try:
        seen = seen_at(folder)
    except ConfigError as error:
        raise ConflictError("; ".join(map(str, error.mistakes)), "config_unchanged") from None
    digest = digest_of(seen.compared())
    if asked.digest not in (None, digest):
        raise changed_error(folder)
    warnings: list[Remark] = []
    if not query.dry_run:
        try:
            store_trust(folder, seen, trust_store())
        except OSError as error:
            raise UnavailableError(f"Trust can't be stored: {error.strerror}.") from None
        log.info("Trusted: %s", folder)
        warnings = reloaded(at.app.reload) if at.app.untrusted is not None else []
    return TrustReport(
        dry_run=query.dry_run, folder=str(folder), says=[*seen.described()], warnings=warnings, digest=digest
    )


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
    return see(folder, owned_config(folder, user_home(os.environ), trust_store()))
