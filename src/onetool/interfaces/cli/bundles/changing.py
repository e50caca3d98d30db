"""`onetool bundles create`, `enable`, `disable`, `delete` and `restore`."""

import sys
from time import time
from typing import TYPE_CHECKING, Any

import click

from onetool.interfaces.cli.bundles.listing import all_bundles, all_tools
from onetool.interfaces.cli.bundles.places import Place, PlaceType, complete_place, find_bundle, find_only_tool
from onetool.interfaces.cli.bundles.telling import say_if_taken, tell_or_print
from onetool.interfaces.cli.options import config_option, data_options, open_app
from onetool.interfaces.cli.output import counted, echo, printable

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.sources.bundles.shelf import Shelf, Shown

place_argument = click.argument(
    "place", metavar="BUNDLE[/TOOL[@VERSION]]", type=PlaceType(), shell_complete=complete_place
)


@click.command()
@click.argument("slug")
@click.option("--name", default="", help="A name for people; the slug by default.")
@click.option("--description", default="", help="What it is for.")
@data_options
@click.pass_context
def create(ctx: click.Context, slug: str, name: str, description: str, as_json: bool) -> None:
    """Make an empty bundle. SLUG is its short name: letters, digits and dashes."""
    app = open_app(ctx)
    if (other := live_of(app.bundles, slug)) is not None:  # REST allows two, but who types the slug means one
        raise click.ClickException(printable(f"There is a bundle {slug} already ({other['id']})."))
    bundle = make_bundle(app, {"slug": slug, "displayName": name, "description": description})
    next_step = f"Add a tool: onetool bundles add {slug}/TOOL FILE, or add-curl, or save"
    tell_or_print(bundle, f"Made the bundle {slug} ({bundle['id']}). {next_step}", as_json)


@click.command()
@place_argument
@data_options
@click.pass_context
def enable(ctx: click.Context, place: Place, as_json: bool) -> None:
    """Switch a bundle on, or one tool of it."""
    _switch(ctx, place, True, as_json)


@click.command()
@place_argument
@data_options
@click.pass_context
def disable(ctx: click.Context, place: Place, as_json: bool) -> None:
    """Switch a bundle off, or one tool of it: it stays, and can't be called."""
    _switch(ctx, place, False, as_json)


@click.command()
@place_argument
@click.option("--with-tools", is_flag=True, help="Of a bundle: delete its tools, too, and those for good.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@config_option
@click.pass_context
def delete(ctx: click.Context, place: Place, with_tools: bool, yes: bool) -> None:
    """Delete a tool for good, or a bundle that has no tools: that can be restored for two days."""
    shelf = open_app(ctx).bundles
    bundle = find_bundle(shelf, place.bundle)
    if bundle["isBuiltIn"]:
        raise click.ClickException(printable(f"{place} is built in: it can be switched off (disable), not deleted."))
    if place.tool is None:
        _delete_bundle(shelf, bundle, with_tools, yes)
        return
    tool = find_only_tool(shelf, bundle, place)
    exactly = f"{bundle['slug']}/{tool['slug']}@{tool['version']}"
    _confirm(f"Delete {exactly} for good?", yes)
    shelf.delete_tool(bundle["id"], tool["slug"], tool["version"])
    echo(printable(f"Deleted {exactly}."))


@click.command()
@click.argument("place", metavar="BUNDLE", type=PlaceType(tool=False))
@data_options
@click.pass_context
def restore(ctx: click.Context, place: Place, as_json: bool) -> None:
    """Bring back a bundle that was deleted."""
    shelf = open_app(ctx).bundles
    found = find_bundle(shelf, place.bundle, deleted=True)
    content = {key: found[key] for key in ("slug", "displayName", "description", "isEnabled")}
    bundle, *_ = shelf.put_bundle(found["id"], content)
    tell_or_print(bundle, f"The bundle {bundle['slug']} is back.", as_json)


def make_bundle(app: "App", content: dict[str, Any]) -> "Shown":
    """A new one. A name that code knows already is told."""
    from onetool.sources.bundles.names import new_id

    bundle, *_ = app.bundles.put_bundle(new_id(time()), content, create_only=True)
    say_if_taken(app, bundle["slug"])
    return bundle


def live_of(shelf: "Shelf", slug: str) -> "Shown | None":
    """The first bundle of that slug, if there is one that was not deleted."""
    return next((one for one in all_bundles(shelf) if one["slug"] == slug and one["softDeletedAt"] is None), None)


def _switch(ctx: click.Context, place: Place, on: bool, as_json: bool) -> None:
    shelf = open_app(ctx).bundles
    bundle = find_bundle(shelf, place.bundle)
    change, name = {"isEnabled": on}, bundle["slug"]
    if place.tool is None:
        changed, _ = shelf.patch_bundle(bundle["id"], change)
    else:
        tool = find_only_tool(shelf, bundle, place)
        changed, _ = shelf.patch_tool(bundle["id"], tool["slug"], tool["version"], change)
        name = f"{name}/{tool['slug']}@{tool['version']}"
    why = changed.get("disabledReason")
    words = f"switched on, but {why}" if on and why else "switched on" if on else "switched off"
    tell_or_print(changed, f"{name} is {words}.", as_json)


def _delete_bundle(shelf: "Shelf", bundle: "Shown", with_tools: bool, yes: bool) -> None:
    slug, tools = bundle["slug"], list(all_tools(shelf, bundle["id"]))
    number = counted(len(tools), "tool")
    if tools and not with_tools:
        raise click.ClickException(
            printable(f"{slug} has {number}. Switch it off (disable), or delete them, too, for good: --with-tools")
        )
    _confirm(f"Delete the bundle {slug}, and {number} for good?" if tools else f"Delete the bundle {slug}?", yes)
    for tool in tools:
        shelf.delete_tool(bundle["id"], tool["slug"], tool["version"])
    shelf.delete_bundle(bundle["id"])
    gone = f" and {number}" if tools else ""
    echo(printable(f"Deleted {slug}{gone}."))
    echo(printable(f"The bundle itself stays for two days; to get it back: onetool bundles restore {slug}"))


def _confirm(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty() or not sys.stderr.isatty():
        raise click.UsageError("nobody is there to ask: say --yes to delete it.")
    if not click.confirm(printable(question), err=True):
        raise click.ClickException("nothing was deleted.")
