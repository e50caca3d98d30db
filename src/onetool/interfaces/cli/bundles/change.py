"""`onetool bundles create`, `enable`, `disable`, `delete` and `restore`, and writing new tools to the store."""

from collections.abc import Mapping
from time import time
from typing import TYPE_CHECKING, Any

import click

from onetool.app.bundles import all_tools, live_bundle
from onetool.interfaces.cli.bundles.references import (
    ReferenceType,
    ToolReference,
    complete_ref,
    find_bundle,
    find_only_tool,
    next_version,
    origin,
)
from onetool.interfaces.cli.bundles.requirements import print_outcome, warn_if_name_taken
from onetool.interfaces.cli.options import config_option, data_options, open_app
from onetool.interfaces.cli.output import confirm, counted, echo, printable

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.sources.bundles.model import Tool
    from onetool.sources.bundles.service import BundleService, Shown


place_argument = click.argument(
    "place", metavar="BUNDLE[/TOOL[@VERSION]]", type=ReferenceType(), shell_complete=complete_ref
)


@click.command()
@click.argument("slug")
@click.option("--name", default="", help="The display name; the slug by default.")
@click.option("--description", default="", help="What it is for.")
@data_options
@click.pass_context
def create(ctx: click.Context, slug: str, name: str, description: str, as_json: bool) -> None:
    """Make an empty bundle. SLUG is its short name: letters, digits and dashes."""
    app = open_app(ctx)
    if (other := live_bundle(app.bundles, slug)) is not None:  # REST allows two, but who types the slug means one
        raise click.ClickException(printable(f"There is a bundle {slug} already ({other['id']})."))
    bundle = make_bundle(app, {"slug": slug, "displayName": name, "description": description})
    next_step = f"Add a tool: onetool bundles add {slug}/TOOL FILE, or add-curl, or save"
    print_outcome(bundle, f"Made the bundle {slug} ({bundle['id']}). {next_step}", as_json)


@click.command()
@place_argument
@data_options
@click.pass_context
def enable(ctx: click.Context, place: ToolReference, as_json: bool) -> None:
    """Enable a bundle, or one of its tools."""
    _set_enabled(ctx, place, True, as_json)


@click.command()
@place_argument
@data_options
@click.pass_context
def disable(ctx: click.Context, place: ToolReference, as_json: bool) -> None:
    """Disable a bundle, or one of its tools. It stays stored, but can't be called."""
    _set_enabled(ctx, place, False, as_json)


@click.command()
@place_argument
@click.option("--with-tools", is_flag=True, help="Also delete the tools of the bundle, for good.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@config_option
@click.pass_context
def delete(ctx: click.Context, place: ToolReference, with_tools: bool, yes: bool) -> None:
    """Delete a tool, or an empty bundle. A tool is deleted for good; a bundle can be restored for two days."""
    bundles = open_app(ctx).bundles
    bundle = find_bundle(bundles, place.bundle)
    if bundle["isBuiltIn"]:
        what = "built in" if "source" not in bundle else f"no bundle of its own ({origin(bundle)})"
        raise click.ClickException(printable(f"{place} is {what}: it can be switched off (disable), not deleted."))
    if place.tool is None:
        _delete_bundle(bundles, bundle, with_tools, yes)
        return
    tool = find_only_tool(bundles, bundle, place)
    exactly = f"{bundle['slug']}/{tool['slug']}@{tool['version']}"
    confirm(f"Delete {exactly} for good?", yes, "delete it", "deleted")
    bundles.delete_tool(bundle["id"], tool["slug"], tool["version"])
    echo(printable(f"Deleted {exactly}."))


@click.command()
@click.argument("place", metavar="BUNDLE", type=ReferenceType(tool=False))
@data_options
@click.pass_context
def restore(ctx: click.Context, place: ToolReference, as_json: bool) -> None:
    """Restore a deleted bundle."""
    bundles = open_app(ctx).bundles
    found = find_bundle(bundles, place.bundle, deleted=True)
    content = {key: found[key] for key in ("slug", "displayName", "description", "isEnabled")}
    bundle, *_ = bundles.put_bundle(found["id"], content)
    print_outcome(bundle, f"The bundle {bundle['slug']} is back.", as_json)


def make_bundle(app: "App", content: dict[str, Any]) -> "Shown":
    """Make a bundle. Warns if code knows its name already."""
    from onetool.sources.bundles.names import new_id

    bundle, *_ = app.bundles.put_bundle(new_id(time()), content, create_only=True)
    warn_if_name_taken(app, bundle["slug"])
    return bundle


def _set_enabled(ctx: click.Context, place: ToolReference, on: bool, as_json: bool) -> None:
    bundles = open_app(ctx).bundles
    bundle = find_bundle(bundles, place.bundle)
    change, name = {"isEnabled": on}, bundle["slug"]
    if place.tool is None:
        changed, _ = bundles.patch_bundle(bundle["id"], change)
    else:
        tool = find_only_tool(bundles, bundle, place)
        changed, _ = bundles.patch_tool(bundle["id"], tool["slug"], tool["version"], change)
        name = f"{name}/{tool['slug']}@{tool['version']}"
    why = changed.get("disabledReason")
    words = f"switched on, but {why}" if on and why else "switched on" if on else "switched off"
    print_outcome(changed, f"{name} is {words}.", as_json)


def _delete_bundle(bundles: "BundleService", bundle: "Shown", with_tools: bool, yes: bool) -> None:
    slug, tools = bundle["slug"], list(all_tools(bundles, bundle["id"]))
    number = counted(len(tools), "tool")
    if tools and not with_tools:
        raise click.ClickException(
            printable(f"{slug} has {number}. Switch it off (disable), or delete them, too, for good: --with-tools")
        )
    question = f"Delete the bundle {slug}, and {number} for good?" if tools else f"Delete the bundle {slug}?"
    confirm(question, yes, "delete it", "deleted")
    for tool in tools:
        bundles.delete_tool(bundle["id"], tool["slug"], tool["version"])
    bundles.delete_bundle(bundle["id"])
    gone = f" and {number}" if tools else ""
    echo(printable(f"Deleted {slug}{gone}."))
    echo(printable(f"The bundle itself stays for two days; to get it back: onetool bundles restore {slug}"))


# Writing new tools to the store


FIRST_VERSION = "1"

create_option = click.option("--create", is_flag=True, help="Make the bundle if it does not exist.")


def version_of(place: ToolReference, data: Any) -> str:
    """The one that is named, or that the tool says of itself, or the first."""
    said = data.get("version") if isinstance(data, Mapping) else None
    return place.version or (said if isinstance(said, str) else None) or FIRST_VERSION


def put_tool(app: "App", place: ToolReference, data: Any, create: bool) -> "Shown":
    """Checked as REST checks it. With `create` a bundle that is not there is made, of one piece with the tool."""
    from onetool.app.bundle_import import assemble
    from onetool.sources.bundles.errors import ConflictError

    bundles, version = app.bundles, version_of(place, data)
    if create and live_bundle(bundles, place.bundle) is None and bundles.store.bundle(place.bundle) is None:
        bundle, (tool,) = assemble({"slug": place.bundle}, [(str(place.tool), version, data)])
        bundles.check(tool)  # before the warning: of a bundle that is not made nothing is told
        warn_if_name_taken(app, bundle.slug)
        bundles.put_all(bundle, [tool])
        return bundles.get_tool(bundle.id, tool.slug, tool.version)[0]
    home = find_bundle(bundles, place.bundle, otherwise="to make it with its first tool: --create")
    try:
        return bundles.put_tool(home["id"], str(place.tool), version, data)[0]
    except ConflictError:
        free = next_version(bundles, home["id"], str(place.tool))
        name = f"{home['slug']}/{place.tool}"
        message = f"{name}@{version} is there already, and stays as it is. Put it beside that one: {name}@{free}"
        raise click.ClickException(printable(message)) from None


def check_tool(app: "App", place: ToolReference, data: Any) -> dict[str, Any]:
    """The same without putting it anywhere: the tool as it would be."""
    from onetool.app.bundle_import import assemble

    _, (tool,) = assemble({"slug": "draft"}, [(str(place.tool), version_of(place, data), data)])
    app.bundles.check(tool)
    return as_put(tool)


def as_put(tool: "Tool") -> dict[str, Any]:
    """What a person gives of a tool: as PUT takes it, with its place."""
    from onetool.sources.bundles.model import shown
    from onetool.sources.bundles.validation import KEPT

    return {key: value for key, value in shown(tool).items() if key not in KEPT}
