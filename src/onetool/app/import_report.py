"""The report of an import: what was stored, or would be, and what is still needed."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onetool.core.errors import ConfigError, Need

What = Annotated[Literal["new", "same", "changed", "clash", "kept"], Meta(description="Compared to what is stored.")]


class Remark(msgspec.Struct, frozen=True):
    """A remark about something that was imported, or wasn't."""

    about: str
    why: str


class ImportedBundle(msgspec.Struct, frozen=True):
    """A bundle of an import."""

    id: str
    slug: str
    what: What


class ImportedTool(msgspec.Struct, frozen=True):
    """A tool of an import."""

    slug: str
    version: str
    what: What


class ImportedServer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A server of an import."""

    name: str
    what: What
    block: dict[str, Any] | UnsetType = UNSET


class SecretUse(msgspec.Struct, frozen=True, rename="camel"):
    """The proposed name of a secret in a curl command, and the name used."""

    name: str
    used: str = msgspec.field(name="as")
    is_new: bool


class NeededSecret(msgspec.Struct, frozen=True):
    """A secret that tools use."""

    name: str
    source: Annotated[str | None, Meta(description="Null: the secret is not set.")]


class NeededHost(msgspec.Struct, frozen=True):
    """A host that tools use."""

    host: str
    allowed: bool | None
    entry: str | None


class ImportNeeds(msgspec.Struct, frozen=True):
    """What the tools of an import use."""

    secrets: list[NeededSecret] = []
    hosts: list[NeededHost] = []
    missing: Annotated[
        list[Need], Meta(description="Hosts to allow and secrets to set before the tools can be called.")
    ] = []


class ImportReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an import has stored, or would store."""

    dry_run: bool
    bundles: list[ImportedBundle] = []
    tools: list[ImportedTool] = []
    servers: list[ImportedServer] = []
    skipped: Annotated[list[Remark], Meta(description="Items that could not be imported, and why.")] = []
    warnings: Annotated[
        list[Remark], Meta(description="Items that were imported with changes, or can't be called yet.")
    ] = []
    secrets_kept: Annotated[list[str], Meta(description="Names of secrets that were stored in the secrets file.")] = []
    secret_names: Annotated[
        list[SecretUse], Meta(description="Only for a curl command: the names of its secrets.")
    ] = []
    needs: ImportNeeds = ImportNeeds()


def reloaded(reload: Callable[[], None]) -> list[Remark]:
    """Reload after a change to the config or its secrets. Returns warnings if the new config can't be used."""
    try:
        reload()
    except ConfigError as error:
        return [Remark("config", str(mistake)) for mistake in error.mistakes]
    return []
