"""`onetool bundles export` and `import`: a bundle as a ZIP archive, or tools from an OpenAPI document.

An archive or a document that is invalid as a whole is refused. An operation of a document that can't become a tool is
skipped and reported.
"""

import errno
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onetool.app.findings import requirements_of
from onetool.core.os_files import NO_WAIT, PLAIN
from onetool.interfaces.cli.bundles.references import (
    ReferenceType,
    ToolReference,
    allow_hosts_option,
    allow_in_config,
    allowing,
    complete_ref,
    find_bundle,
    print_requirements,
    warn_if_name_taken,
)
from onetool.interfaces.cli.inputs import STDIN, fetch_url, is_url, read_bytes
from onetool.interfaces.cli.options import config_option, data_options, open_app
from onetool.interfaces.cli.output import (
    counted,
    echo,
    print_json,
    print_note,
    print_table,
    printable,
    stdout,
    wants_json,
)
from onetool.sources.bundles.model import shown

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.app.bundle_import import BundleImport, ImportRemark
    from onetool.app.requirements import Requirements

MAX_SHOWN = 20
MAX_NAMED = 3  # operations with the same remark
LARGE = 1024**2  # bytes


@click.command()
@click.argument("place", metavar="BUNDLE", type=ReferenceType(tool=False), shell_complete=complete_ref)
@click.option("-o", "--output", metavar="FILE", help="The file to write; SLUG.zip by default, - is standard output.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@config_option
def export(ctx: click.Context, place: ToolReference, output: str | None, force: bool) -> None:
    """Write a bundle with all its tools to a ZIP file. It contains names of secrets, but no secrets."""
    from onetool.app.bundle_import import tools_of
    from onetool.sources.bundles.archive import pack

    app = open_app(ctx)
    found = app.bundles.store.bundle(find_bundle(app.bundles, place.bundle)["id"])
    if found is None:
        raise click.ClickException(f"The bundle {place} was just deleted.")
    if output == STDIN and stdout().isatty():
        raise click.UsageError("A ZIP file can't be shown at a terminal: pipe it, or use -o FILE.")
    tools = tools_of(app, found)
    data = pack(found, tools)
    if output == STDIN:
        stdout().buffer.write(data)
        stdout().flush()
        return
    file = Path(output or f"{found.slug}.zip")
    flags = os.O_WRONLY | os.O_CREAT | NO_WAIT | PLAIN | (os.O_TRUNC if force else os.O_EXCL)
    try:
        with os.fdopen(os.open(file, flags, 0o644), "wb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file; -o - writes to a pipe")
            stream.write(data)
    except FileExistsError:
        raise click.ClickException(f"{file} already exists; --force replaces it.") from None
    except OSError as error:
        raise click.ClickException(f"Can't write {file}: {error.strerror}.") from None
    print_note(f"Wrote {found.slug} with {counted(len(tools), 'tool')} to {file}.")


@click.command("import")
@click.argument("source", metavar="FILE|URL|-")
@click.option("--as", "slug", metavar="SLUG", help="Import it under this name, as a new bundle.")
@click.option("--base-url", metavar="URL", help="OpenAPI: the URL of the API, if the document has none or a wrong one.")
@click.option("--token", is_flag=True, help="OpenAPI: send a bearer token if the document defines no auth.")
@click.option(
    "--only",
    metavar="PATTERN",
    multiple=True,
    help="OpenAPI: only operations with a matching path ('/users/*') or tool name ('list-*').",
)
@click.option("--tag", metavar="TAG", multiple=True, help="OpenAPI: only operations with this tag, in any case.")
@click.option(
    "--operation",
    metavar="NAME",
    multiple=True,
    help="OpenAPI: only this operation: its operationId, the name of its tool, or 'GET /users/{id}'.",
)
@allow_hosts_option
@click.option("--dry-run", is_flag=True, help="Print what would change, but change nothing.")
@data_options
def import_bundle(
    ctx: click.Context,
    source: str,
    slug: str | None,
    base_url: str | None,
    token: bool,
    only: tuple[str, ...],
    tag: tuple[str, ...],
    operation: tuple[str, ...],
    allow: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Import a bundle from a ZIP file or OpenAPI. An OpenAPI 3 document (JSON or YAML) gives one tool per operation."""
    from onetool.app.bundle_import import ImportOptions, read_import, store_import

    if allow and is_url(source) and not dry_run:
        allow_in_config(ctx, [source])
    app = open_app(ctx)
    data = fetch_url(app, source) if is_url(source) else read_bytes(source)
    document_url = source if is_url(source) else None
    options = ImportOptions(slug, base_url, document_url, token, only=only, tag=tag, operation=operation)
    if len(data) > LARGE and sys.stderr.isatty():  # this takes some seconds
        print_note(f"Reading {len(data) / 1024**2:.1f} MiB …")
    bundle_import = read_import(app, data, options)
    if bundle_import.plan.is_new and not bundle_import.plan.refused:
        warn_if_name_taken(app, bundle_import.plan.bundle.slug)
    if not dry_run and not bundle_import.plan.refused:
        bundle_import = bundle_import._replace(notes=[*bundle_import.notes, *store_import(app, bundle_import)])
    needs = requirements_of(app.runtime, map(shown, bundle_import.tools))
    if allow and not dry_run and not bundle_import.plan.refused:
        needs = allowing(ctx, needs)
    _report(app, bundle_import, needs, dry_run, as_json)
    ctx.exit(1 if bundle_import.plan.refused else 0)


# Reporting an import


def _report(app: "App", bundle_import: "BundleImport", needs: "Requirements", dry_run: bool, as_json: bool) -> None:
    plan = bundle_import.plan
    if wants_json(as_json):
        facts: dict[str, Any] = {
            "bundle": {"id": plan.bundle.id, "slug": plan.bundle.slug},
            "imported": not dry_run and not plan.refused,
            "isNew": plan.is_new,
            "changes": [row._asdict() for row in plan.rows],
            "refused": plan.refused,
            "skipped": [one._asdict() for one in bundle_import.skipped],
            "notes": [one._asdict() for one in bundle_import.notes],
            "needs": needs.shown(),
        }
        print_json(facts)
    else:
        _print(bundle_import, dry_run)
    for reason in plan.refused:
        print_note(f"Not imported: {reason}")
    if plan.refused:
        if any(row.what == "clash" for row in plan.rows) or (not plan.is_new and plan.bundle.is_built_in):
            print_note("To import it as a separate bundle: --as SLUG")
        return
    if used := [one.name for one in needs.secrets if one.source is not None]:
        print_note(f"Its tools will use secrets that are set: {', '.join(used)}")
    print_requirements(app, needs)


def _print(bundle_import: "BundleImport", dry_run: bool) -> None:
    plan = bundle_import.plan
    if dry_run or plan.refused:
        rows = [(f"{row.slug}@{row.version}" if row.version else row.slug, row.what, row.detail) for row in plan.rows]
        print_table("What would change" if dry_run else "Nothing was imported", ("", "", ""), rows)
    else:
        stays = len(bundle_import.tools) - len(plan.new_tools)
        also = f"; {stays} {'was' if stays == 1 else 'were'} there already" if stays else ""
        echo(
            printable(f"Imported {plan.bundle.slug} ({plan.bundle.id}): {counted(len(plan.new_tools), 'tool')}{also}.")
        )
        echo(printable(f"Look at them: onetool bundles show {plan.bundle.slug}"))
    _print_remarks("Skipped", bundle_import.skipped)
    _print_remarks("Changed on import", bundle_import.notes)


def _print_remarks(heading: str, remarks: "Sequence[ImportRemark]") -> None:
    if not remarks:
        return
    echo(f"{heading}: {len(remarks):,}")
    by_reason: dict[str, list[str]] = {}
    for one in remarks:
        by_reason.setdefault(one.why, []).append(one.about or "the document")
    for why, about in list(by_reason.items())[:MAX_SHOWN]:
        more = f" and {len(about) - MAX_NAMED:,} more" if len(about) > MAX_NAMED else ""
        echo(printable(f"  {', '.join(about[:MAX_NAMED])}{more}: {why}"))
    if len(by_reason) > MAX_SHOWN:
        echo(f"  … and {len(by_reason) - MAX_SHOWN:,} more reasons: --json has all of them")
