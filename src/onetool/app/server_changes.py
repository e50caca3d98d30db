"""Previews of changes to servers in the config: what would be started, and a digest of everything that was shown.

A client previews a change with a dry run, and confirms it with the digest of the preview. The change is refused if
anything differs from it. Secrets never leave the machine; they are shown as `${NAME}`.
"""

import hmac
import json
import os
import shlex
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onetool.core.file_facts import digest_of as digest_of_file
from onetool.core.text import shown_line
from onetool.sources.bundles.errors import ConflictError, invalid_at
from onetool.sources.mcp_servers.program import find_program

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.config.server_import import ConfigTarget

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


def draft_of(
    target: "ConfigTarget", name: str, block: Mapping[str, Any], secrets: Iterable[str], notes: Iterable[str] = ()
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


def changed_error(
    what: str | Path, advice: str = "Repeat the request with dryRun=true and look at the result."
) -> ConflictError:
    return ConflictError(f"{what} has changed in the meantime. {advice}", "changed")


def sealed_digest(app: "App", data: Any, secrets: Mapping[str, str]) -> str:
    """Return a digest that also covers secrets. It is keyed, so that the secrets can't be guessed by trying."""
    text = json.dumps([data, {name: value[:] for name, value in secrets.items()}], sort_keys=True)
    return hmac.new(app.bundles.key(), text.encode(), sha256).hexdigest()[:32]


def digest_of(data: Any) -> str:
    return sha256(msgspec.json.encode(data, order="deterministic")).hexdigest()[:32]
