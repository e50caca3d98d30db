"""`onetool bundles add` and `add-curl`: a tool out of a file, or out of a command that works already."""

import shlex

import click

from onetool.interfaces.cli.bundles.given import STDIN, read_data, read_text
from onetool.interfaces.cli.bundles.keeping import apart, kept, secrets_of
from onetool.interfaces.cli.bundles.needs import needs_of
from onetool.interfaces.cli.bundles.places import Place, PlaceType, complete_place
from onetool.interfaces.cli.bundles.telling import allow_hosts_option, allowing, say, say_needs, tell_or_print
from onetool.interfaces.cli.bundles.whole import check_tool, create_option, put_tool
from onetool.interfaces.cli.options import data_options, open_app
from onetool.interfaces.cli.output import print_json

tool_argument = click.argument(
    "place", metavar="BUNDLE/TOOL[@VERSION]", type=PlaceType(tool=True), shell_complete=complete_place
)


@click.command()
@tool_argument
@click.argument("file", metavar="FILE|-", type=click.Path(allow_dash=True))
@create_option
@allow_hosts_option
@data_options
@click.pass_context
def add(ctx: click.Context, place: Place, file: str, create: bool, allow: bool, as_json: bool) -> None:
    """Add a tool that stands in a file, in JSON or YAML, as REST takes it. The first VERSION is 1."""
    app = open_app(ctx)
    tool = put_tool(app, place, read_data(file), create)
    tell_or_print(tool, f"Added {place.bundle}/{tool['slug']}@{tool['version']}.", as_json)
    needs = needs_of(app, [tool])
    say_needs(app, allowing(ctx, needs) if allow else needs)


@click.command("add-curl")
@tool_argument
@click.argument("command", metavar="COMMAND|-", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--description", help="What it does.")
@create_option
@allow_hosts_option
@click.option("--dry-run", is_flag=True, help="Print the tool, and keep nothing.")
@data_options
@click.pass_context
def add_curl(
    ctx: click.Context,
    place: Place,
    command: tuple[str, ...],
    description: str | None,
    create: bool,
    allow: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make a tool of a curl command: in quotes, or - for standard input. It is not run.

    What may differ from call to call becomes arguments. Credentials go into the secrets file, and only their names
    into the tool.
    """
    from onetool.sources.bundles.curl import from_curl

    app, known = open_app(ctx), secrets_of(ctx)
    text = read_text(STDIN) if command == (STDIN,) else command[0] if len(command) == 1 else shlex.join(command)
    found = from_curl(text)
    given = {name: value for name, value in found.secrets.items() if value is not None}
    tool, secrets = apart(found.tool, given, known)
    words = str(place.tool).replace("-", " ")
    tool["displayName"] = f"{words[:1].upper()}{words[1:]}"
    if description is not None:
        tool["description"] = description
    for note in found.notes:
        say(note)
    if dry_run:
        print_json(check_tool(app, place, tool), as_json)
        if secrets:
            say(f"Would be kept with the other secrets: {', '.join(secrets)}")
        return
    if secrets:
        say(f"Its credentials become secrets: {', '.join(secrets)}")
    with kept(known, secrets):
        added = put_tool(app, place, tool, create)
    name = f"{place.bundle}/{added['slug']}@{added['version']}"
    arguments = ", ".join(added["argSchema"].get("properties") or ()) or "no arguments"
    tell_or_print(added, f"Added {name}, with {arguments}. Look at it: onetool bundles show {name}", as_json)
    needs = needs_of(app, [added])
    needs = needs._replace(secrets=tuple(one for one in needs.secrets if one.name not in secrets))
    say_needs(app, allowing(ctx, needs) if allow else needs)
