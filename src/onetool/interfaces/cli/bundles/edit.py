"""`onetool bundles edit`, `copy` and `rename`: a new version of a tool, a copy of it, another name for it.

What is stored as a version stays as it is: an edit makes another version.
"""

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from onetool.interfaces.cli.bundles.change import create_option, put_tool
from onetool.interfaces.cli.bundles.references import (
    ReferenceType,
    ToolReference,
    complete_ref,
    find_bundle,
    find_only_tool,
    find_tool,
    next_version,
    parse_reference,
)
from onetool.interfaces.cli.bundles.requirements import print_outcome
from onetool.interfaces.cli.inputs import read_data
from onetool.interfaces.cli.options import data_options, open_app
from onetool.interfaces.cli.output import printable

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.sources.bundles.editing import Place
    from onetool.sources.bundles.service import Shown


def _read_changes(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    """`httpImpl.request.timeoutMs=5000` -> a JSON Merge Patch. A value that is no JSON is a text."""
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
                raise click.BadParameter(printable(f"{key}: {name} is set to a value already."))
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
    help="Change this key; dots lead into it, VALUE is JSON or a text, null removes it. Can be given again.",
)
source_argument = click.argument(
    "place", metavar="BUNDLE/TOOL[@VERSION]", type=ReferenceType(tool=True), shell_complete=complete_ref
)


@click.command()
@source_argument
@click.argument("file", metavar="[FILE|-]", required=False, type=click.Path(allow_dash=True))
@click.option("--as", "version", metavar="VERSION", help="The version that it becomes; the next number by default.")
@set_option
@data_options
@click.pass_context
def edit(
    ctx: click.Context,
    place: ToolReference,
    file: str | None,
    version: str | None,
    changes: dict[str, Any],
    as_json: bool,
) -> None:
    """Edit a tool, and keep that as a new version: with --set, from FILE, or in your editor."""
    if file and changes:
        raise click.UsageError("say FILE or --set, not both.")
    app = open_app(ctx)
    bundle, tool = _found(app, place)
    version = version or next_version(app.bundles, bundle["id"], tool["slug"])
    content = _content(app, _place(tool), changes)
    if file:
        content = _without_place(read_data(file))
    elif not changes:
        content = _in_editor(content)
    target = ToolReference(bundle["id"], tool["slug"], version)
    kept = put_tool(app, target, content, create=False)
    name = f"{bundle['slug']}/{kept['slug']}@{kept['version']}"
    print_outcome(kept, f"Kept as {name}; {tool['version']} stays as it was.", as_json)


@click.command()
@source_argument
@click.argument("target", metavar="BUNDLE/TOOL[@VERSION]", type=ReferenceType(tool=True), shell_complete=complete_ref)
@set_option
@create_option
@data_options
@click.pass_context
def copy(
    ctx: click.Context,
    place: ToolReference,
    target: ToolReference,
    changes: dict[str, Any],
    create: bool,
    as_json: bool,
) -> None:
    """Copy a tool to another bundle, slug or version. The version stays the same, unless another one is said."""
    app = open_app(ctx)
    _, tool = _found(app, place)
    content = _content(app, _place(tool), changes)
    kept = put_tool(app, target._replace(version=target.version or tool["version"]), content, create)
    print_outcome(kept, f"Copied to {target.bundle}/{kept['slug']}@{kept['version']}.", as_json)


@click.command()
@source_argument
@click.argument("new", metavar="TOOL[@VERSION]")
@data_options
@click.pass_context
def rename(ctx: click.Context, place: ToolReference, new: str, as_json: bool) -> None:
    """Give a tool another slug or version in its bundle. It stays the same tool, with its usage and its switch."""
    from onetool.sources.bundles.editing import rename_tool

    app = open_app(ctx)
    bundle = find_bundle(app.bundles, place.bundle)
    tool = find_only_tool(app.bundles, bundle, place)
    wanted = parse_reference(new if "/" in new else f"{place.bundle}/{new}")
    if wanted.bundle not in (place.bundle, bundle["slug"], bundle["id"]):
        raise click.ClickException("a tool is renamed in its bundle; to put it elsewhere: copy, then delete.")
    names = {"slug": wanted.tool or tool["slug"], **({"version": wanted.version} if wanted.version else {})}
    _, kept, _ = rename_tool(app.bundles, _place(tool), names)
    before = f"{bundle['slug']}/{tool['slug']}@{tool['version']}"
    print_outcome(kept, f"{before} is {bundle['slug']}/{kept['slug']}@{kept['version']} now.", as_json)


def _found(app: "App", place: ToolReference) -> "tuple[Shown, Shown]":
    bundle = find_bundle(app.bundles, place.bundle)
    return bundle, find_tool(app.bundles, bundle, place)


def _place(tool: "Shown") -> "Place":
    return tool["bundleID"], tool["slug"], tool["version"]


def _content(app: "App", place: "Place", changes: dict[str, Any]) -> dict[str, Any]:
    from onetool.sources.bundles.editing import copied

    return copied(app.bundles, place, {"changes": changes})[1]


def _without_place(data: Any) -> Any:
    """What a file says of its own place does not count: it may be what `show --json` printed."""
    return {key: one for key, one in data.items() if key not in ("slug", "version")} if isinstance(data, dict) else data


def _in_editor(content: dict[str, Any]) -> Any:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("say what changes: --set KEY=VALUE, or FILE. At a terminal your editor is opened.")
    text: str | None = json.dumps(content, indent=2, ensure_ascii=False)
    while True:
        text = click.edit(text, extension=".json")
        if text is None:
            raise click.ClickException("nothing was changed in the editor, so that nothing was kept.")
        try:
            return json.loads(text)
        except ValueError as error:
            click.echo(printable(f"It is not JSON: {error}"), err=True)
            if not click.confirm("Edit it again?", default=True, err=True):
                raise click.ClickException("nothing was kept.") from None
