"""`onetool bundles create`, `enable`, `disable`, `delete`, `restore`, `edit`, `copy` and `rename`; storing new tools.

A stored version never changes: an edit makes a new version.
"""

import json
import sys
from collections.abc import Mapping
from time import time
from typing import Any

import click

from onetool.app import App
from onetool.app.bundles import all_tools, live_bundle
from onetool.interfaces.cli.bundles.references import (
    ReferenceType,
    ToolReference,
    complete_ref,
    find_bundle,
    find_only_tool,
    find_tool,
    next_version,
    origin,
    parse_reference,
    warn_if_name_taken,
)
from onetool.interfaces.cli.inputs import read_data
from onetool.interfaces.cli.options import config_option, data_options, open_app
from onetool.interfaces.cli.output import confirm, counted, echo, print_note, print_outcome, printable
from onetool.sources.bundles.editing import Place, copied, rename_tool, switch_versions
from onetool.sources.bundles.errors import ConflictError
from onetool.sources.bundles.model import shown
from onetool.sources.bundles.names import new_id
from onetool.sources.bundles.service import BundleService, Shown
from onetool.sources.bundles.validation import KEPT

place_argument = click.argument(
    "place", metavar="BUNDLE[/TOOL[@VERSION]]", type=ReferenceType(), shell_complete=complete_ref
)
create_option = click.option("--create", is_flag=True, help="Create the bundle if it does not exist.")


@click.command()
@click.argument("slug")
@click.option("--name", default="", help="The display name; the slug by default.")
@click.option("--description", default="", help="What it is for.")
@data_options
def create(ctx: click.Context, slug: str, name: str, description: str, as_json: bool) -> None:
    """Make an empty bundle. SLUG is its short name: letters, digits and dashes."""
    app = open_app(ctx)
    if (other := live_bundle(app.bundles, slug)) is not None:  # REST allows two, but a typed slug should mean one
        raise click.ClickException(f"A bundle {slug} already exists ({other['id']}).")
    bundle = make_bundle(app, {"slug": slug, "displayName": name, "description": description})
    next_step = f"Add a tool: onetool bundles add {slug}/TOOL FILE, or add-curl, or save"
    print_outcome(bundle, f"Created the bundle {slug} ({bundle['id']}). {next_step}", as_json)


@click.command()
@place_argument
@data_options
def enable(ctx: click.Context, place: ToolReference, as_json: bool) -> None:
    """Enable a bundle, or one of its tools: all versions, unless one is named."""
    _set_enabled(ctx, place, True, as_json)


@click.command()
@place_argument
@data_options
def disable(ctx: click.Context, place: ToolReference, as_json: bool) -> None:
    """Disable a bundle, or one of its tools: all versions, unless one is named. It stays, but can't be called."""
    _set_enabled(ctx, place, False, as_json)


@click.command()
@place_argument
@click.option("--with-tools", is_flag=True, help="Also delete the tools of the bundle, permanently.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@config_option
def delete(ctx: click.Context, place: ToolReference, with_tools: bool, yes: bool) -> None:
    """Delete a tool, or an empty bundle. A tool is deleted permanently; a bundle can be restored for two days."""
    bundles = open_app(ctx).bundles
    bundle = find_bundle(bundles, place.bundle)
    if bundle["isBuiltIn"]:
        what = "built in" if "source" not in bundle else f"not a stored bundle ({origin(bundle)})"
        raise click.ClickException(f"{place} is {what}: it can be switched off (disable), not deleted.")
    if place.tool is None:
        _delete_bundle(bundles, bundle, with_tools, yes)
        return
    tool = find_only_tool(bundles, bundle, place)
    exactly = f"{bundle['slug']}/{tool['slug']}@{tool['version']}"
    confirm(f"Delete {exactly} permanently?", yes, "delete it", "deleted")
    bundles.delete_tool(bundle["id"], tool["slug"], tool["version"])
    echo(printable(f"Deleted {exactly}."))


@click.command()
@click.argument("place", metavar="BUNDLE", type=ReferenceType(tool=False))
@data_options
def restore(ctx: click.Context, place: ToolReference, as_json: bool) -> None:
    """Restore a deleted bundle."""
    bundles = open_app(ctx).bundles
    found = find_bundle(bundles, place.bundle, deleted=True)
    content = {key: found[key] for key in ("slug", "displayName", "description", "isEnabled")}
    bundle, *_ = bundles.put_bundle(found["id"], content)
    print_outcome(bundle, f"Restored the bundle {bundle['slug']}.", as_json)


def make_bundle(app: App, content: dict[str, Any]) -> Shown:
    """Make a bundle. Warns if its name already means something else in code."""
    bundle, *_ = app.bundles.put_bundle(new_id(time()), content, create_only=True)
    warn_if_name_taken(app, bundle["slug"])
    return bundle


def _set_enabled(ctx: click.Context, place: ToolReference, on: bool, as_json: bool) -> None:
    bundles = open_app(ctx).bundles
    bundle = find_bundle(bundles, place.bundle)
    change, name = {"isEnabled": on}, bundle["slug"]
    if place.tool is None:
        changed, _ = bundles.patch_bundle(bundle["id"], change)
    elif place.version is None:
        tool = find_tool(bundles, bundle, place)
        versions = [one["version"] for one in switch_versions(bundles, bundle["id"], tool["slug"], change)]
        changed = bundles.get_tool(bundle["id"], tool["slug"], versions[0])[0] | {"versions": versions}
        name = f"{name}/{tool['slug']}" + (f" with all its versions ({', '.join(versions)})" if versions[1:] else "")
    else:
        tool = find_tool(bundles, bundle, place)
        changed, _ = bundles.patch_tool(bundle["id"], tool["slug"], tool["version"], change)
        name = f"{name}/{tool['slug']}@{tool['version']}"
    why, other = changed.get("disabledReason"), changed.get("takesOver")
    words = f"switched on, but {why}" if on and why else "switched on" if on else "switched off"
    instead = f" The name now refers to version {other}." if other else ""
    print_outcome(changed, f"{name} is {words}.{instead}", as_json)


def _delete_bundle(bundles: BundleService, bundle: Shown, with_tools: bool, yes: bool) -> None:
    slug, tools = bundle["slug"], list(all_tools(bundles, bundle["id"]))
    number = counted(len(tools), "tool")
    if tools and not with_tools:
        raise click.ClickException(
            f"{slug} has {number}. Switch it off (disable), or also delete its tools, permanently: --with-tools"
        )
    question = f"Delete the bundle {slug}, and {number} permanently?" if tools else f"Delete the bundle {slug}?"
    confirm(question, yes, "delete it", "deleted")
    for tool in tools:
        bundles.delete_tool(bundle["id"], tool["slug"], tool["version"])
    bundles.delete_bundle(bundle["id"])
    gone = f" and {number}" if tools else ""
    echo(printable(f"Deleted {slug}{gone}."))
    echo(printable(f"The bundle itself is kept for two days; to restore it: onetool bundles restore {slug}"))


# Editing, copying and renaming


def _read_changes(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    """Read `httpImpl.request.timeoutMs=5000` as a JSON Merge Patch. A value that is not JSON is text."""
    found: dict[str, Any] = {}
    for one in given:
        key, equals, text = one.partition("=")
        *above, last = key.split(".")
        if not equals or not all((*above, last)):
            raise click.BadParameter("write KEY=VALUE, like description=… or httpImpl.request.timeoutMs=5000.")
        inside = found
        for name in above:
            inside = inside.setdefault(name, {})
            if not isinstance(inside, dict):
                raise click.BadParameter(f"{key}: {name} is already set to a value.")
        try:
            inside[last] = json.loads(text)
        except ValueError:
            inside[last] = text
    return found


set_option = click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_read_changes,
    help="Change this key (dots for nested keys). VALUE is JSON or text; null removes the key. May be repeated.",
)
tool_argument = click.argument(
    "place", metavar="BUNDLE/TOOL[@VERSION]", type=ReferenceType(tool=True), shell_complete=complete_ref
)


@click.command()
@tool_argument
@click.argument("file", metavar="[FILE|-]", required=False, type=click.Path(allow_dash=True))
@click.option("--as", "version", metavar="VERSION", help="The new version; the next number by default.")
@set_option
@data_options
def edit(
    ctx: click.Context,
    place: ToolReference,
    file: str | None,
    version: str | None,
    changes: dict[str, Any],
    as_json: bool,
) -> None:
    """Edit a tool, and store it as a new version: with --set, from FILE, or in your editor."""
    if file and changes:
        raise click.UsageError("Give FILE or --set, not both.")
    app = open_app(ctx)
    bundle = find_bundle(app.bundles, place.bundle)
    tool = find_tool(app.bundles, bundle, place)
    version = version or next_version(app.bundles, bundle["id"], tool["slug"])
    _, content, *_ = copied(app.bundles, _place(tool), {"changes": changes})
    if file:
        content = read_data(file)
        if isinstance(content, dict):  # slug and version are ignored: FILE may be what `show --json` printed
            content = {key: one for key, one in content.items() if key not in ("slug", "version")}
    elif not changes:
        content = _in_editor(content)
    target = ToolReference(bundle["id"], tool["slug"], version)
    kept = put_tool(app, target, content, create=False)
    name = f"{bundle['slug']}/{kept['slug']}@{kept['version']}"
    print_outcome(kept, f"Stored as {name}; version {tool['version']} is unchanged.", as_json)


@click.command()
@tool_argument
@click.argument("target", metavar="BUNDLE/TOOL[@VERSION]", type=ReferenceType(tool=True), shell_complete=complete_ref)
@set_option
@create_option
@data_options
def copy(
    ctx: click.Context,
    place: ToolReference,
    target: ToolReference,
    changes: dict[str, Any],
    create: bool,
    as_json: bool,
) -> None:
    """Copy a tool to another bundle, slug or version. The version stays the same unless a new one is given."""
    app = open_app(ctx)
    tool = find_tool(app.bundles, find_bundle(app.bundles, place.bundle), place)
    _, content, *_ = copied(app.bundles, _place(tool), {"changes": changes})
    kept = put_tool(app, target._replace(version=target.version or tool["version"]), content, create)
    print_outcome(kept, f"Copied to {target.bundle}/{kept['slug']}@{kept['version']}.", as_json)


@click.command()
@tool_argument
@click.argument("new", metavar="TOOL[@VERSION]")
@data_options
def rename(ctx: click.Context, place: ToolReference, new: str, as_json: bool) -> None:
    """Give a tool another slug or version in its bundle. Its usage and its state (on or off) are kept."""
    app = open_app(ctx)
    bundle = find_bundle(app.bundles, place.bundle)
    tool = find_only_tool(app.bundles, bundle, place)
    wanted = parse_reference(new if "/" in new else f"{place.bundle}/{new}")
    if wanted.bundle not in (place.bundle, bundle["slug"], bundle["id"]):
        raise click.ClickException("A tool can only be renamed within its bundle; to move it: copy, then delete.")
    names = {"slug": wanted.tool or tool["slug"], **({"version": wanted.version} if wanted.version else {})}
    renamed = rename_tool(app.bundles, _place(tool), names)
    app.catalog.refresh_sync()  # its name in code has changed, too
    kept, _ = app.bundles.get_tool(*renamed)
    before = f"{bundle['slug']}/{tool['slug']}@{tool['version']}"
    print_outcome(kept, f"{before} is {bundle['slug']}/{kept['slug']}@{kept['version']} now.", as_json)


def _place(tool: Shown) -> Place:
    return tool["bundleID"], tool["slug"], tool["version"]


def _in_editor(content: dict[str, Any]) -> Any:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("Give --set KEY=VALUE or FILE. Your editor is opened only at a terminal.")
    text: str | None = json.dumps(content, indent=2, ensure_ascii=False)
    while True:
        text = click.edit(text, extension=".json")
        if text is None:
            raise click.ClickException("Nothing was changed in the editor, so nothing was stored.")
        try:
            return json.loads(text)
        except ValueError as error:
            print_note(f"It is not JSON: {error}")
            if not click.confirm("Edit it again?", default=True, err=True):
                raise click.ClickException("Nothing was stored.") from None


# Writing new tools to the store

FIRST_VERSION = "1"


def version_of(place: ToolReference, data: Any) -> str:
    """Return the named version, or the tool's own, or the first."""
    own = data.get("version") if isinstance(data, Mapping) else None
    return place.version or (own if isinstance(own, str) else None) or FIRST_VERSION


def put_tool(app: App, place: ToolReference, data: Any, create: bool) -> Shown:
    """Store a tool, with the checks of REST. With `create`, a missing bundle is made together with the tool."""
    from onetool.app.bundle_import import assemble

    bundles, version = app.bundles, version_of(place, data)
    if create and live_bundle(bundles, place.bundle) is None and bundles.store.bundle(place.bundle) is None:
        bundle, (tool,) = assemble({"slug": place.bundle}, [(str(place.tool), version, data)])
        bundles.check(tool)  # before the warning, which is only for a bundle that is made
        warn_if_name_taken(app, bundle.slug)
        bundles.put_all(bundle, [tool])
        app.catalog.refresh_sync()  # loads the tool, which has no name in code before
        return bundles.get_tool(bundle.id, tool.slug, tool.version)[0]
    home = find_bundle(bundles, place.bundle, otherwise="to create it with its first tool: --create")
    try:
        tool = bundles.put_tool(home["id"], str(place.tool), version, data)[0]
        app.catalog.refresh_sync()
        return bundles.get_tool(home["id"], tool["slug"], tool["version"])[0]
    except ConflictError:
        free = next_version(bundles, home["id"], str(place.tool))
        name = f"{home['slug']}/{place.tool}"
        message = f"{name}@{version} already exists and stays unchanged. Store yours as {name}@{free}"
        raise click.ClickException(message) from None


def check_tool(app: App, place: ToolReference, data: Any) -> dict[str, Any]:
    """Check a tool without storing it, and return what would be stored."""
    from onetool.app.bundle_import import assemble

    _, (tool,) = assemble({"slug": "draft"}, [(str(place.tool), version_of(place, data), data)])
    app.bundles.check(tool)
    return {key: value for key, value in shown(tool).items() if key not in KEPT}
