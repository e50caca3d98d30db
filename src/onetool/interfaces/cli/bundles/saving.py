"""`onetool bundles save`: code that was tried with `run` becomes a tool."""

import ast
from typing import TYPE_CHECKING, Any

import click

from onetool.interfaces.cli.bundles.arguments import Argument, arg_schema, open_names, read_argument
from onetool.interfaces.cli.bundles.given import read_text
from onetool.interfaces.cli.bundles.places import Place, PlaceType, complete_place
from onetool.interfaces.cli.bundles.telling import say, tell_or_print
from onetool.interfaces.cli.bundles.whole import check_tool, create_option, put_tool
from onetool.interfaces.cli.options import data_options, open_app
from onetool.interfaces.cli.output import print_json

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.script.scan import Scan


def _arguments(_ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, Argument]:
    try:
        return {one.name: one for one in map(read_argument, given)}
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


@click.command()
@click.argument("place", metavar="BUNDLE/TOOL[@VERSION]", type=PlaceType(tool=True), shell_complete=complete_place)
@click.argument("file", metavar="FILE|-", type=click.Path(allow_dash=True))
@click.option(
    "--arg",
    "given",
    multiple=True,
    metavar="NAME:TYPE[=DEFAULT]",
    callback=_arguments,
    help="The type of an argument (string, integer, number, boolean, array, object, any); can be given again.",
)
@click.option("--description", default="", help="What it does; the code's docstring by default.")
@create_option
@click.option("--dry-run", is_flag=True, help="Check it and print the tool, and keep nothing.")
@data_options
@click.pass_context
def save(
    ctx: click.Context,
    place: Place,
    file: str,
    given: dict[str, Argument],
    description: str,
    create: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Keep code as a tool: names that it uses, and that nobody gives a value, become its arguments."""
    app = open_app(ctx)
    tool = script_tool(app, read_text(file), given, description)
    if dry_run:
        print_json(check_tool(app, place, tool), as_json)
        _say_what_it_lacks(tool)
        return
    kept = put_tool(app, place, tool, create)
    name = f"{place.bundle}/{kept['slug']}@{kept['version']}"
    takes = ", ".join(kept["argSchema"]["properties"]) or "no arguments"
    tell_or_print(kept, f"Kept as {name}, with {takes}. Look at it: onetool bundles show {name}", as_json)
    _say_what_it_lacks(tool)


def script_tool(app: "App", text: str, given: dict[str, Argument], description: str = "") -> dict[str, Any]:
    """As PUT takes it. Whether the code can run is checked there."""
    from onetool.script.reading import read
    from onetool.script.scan import Scan

    code = read(text)
    scan = Scan(code)
    _check_given(scan, given)
    found = open_names(scan, app.engine.names(app.registry.snapshot()))
    return {
        "type": "script",
        "description": description or (ast.get_docstring(scan.tree) if scan.tree else None) or "",
        "argSchema": arg_schema(found, given),
        "scriptImpl": {"code": code},
    }


def _say_what_it_lacks(tool: dict[str, Any]) -> None:
    if vague := [name for name, schema in tool["argSchema"]["properties"].items() if not schema]:
        say(f"Arguments of any type: {', '.join(vague)}. To say more: --arg {vague[0]}:string")
    if not tool["description"]:
        say("It has no description, so that no model will know what it is for; --description gives it one.")


def _check_given(scan: "Scan", given: dict[str, Argument]) -> None:
    for name in given:
        if name not in scan.used and scan.tree is not None and not scan.makes_names:
            from onetool.core.nearest import or_rather

            near = or_rather(name, scan.used) or "."
            raise click.BadParameter(f"the code does not use {name}{near}", param_hint="--arg")
