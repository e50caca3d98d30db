"""`onetool bundles add`, `add-curl` and `save`: make a tool from a file, a curl command or code.

Secrets of a curl command are stored like those of `onetool auth set`, never in the tool. Variables that code uses
without assigning them become the tool's arguments.
"""

import ast
import json
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import click

from onetool.app import App
from onetool.app.findings import requirements_of
from onetool.config import find, load_secrets
from onetool.core.schema import CompiledSchema
from onetool.core.text import or_rather
from onetool.interfaces.cli.bundles.change import check_tool, create_option, put_tool
from onetool.interfaces.cli.bundles.references import (
    ReferenceType,
    ToolReference,
    allow_hosts_option,
    allowing,
    complete_ref,
    print_requirements,
)
from onetool.interfaces.cli.inputs import STDIN, read_data, read_text
from onetool.interfaces.cli.options import data_options, open_app
from onetool.interfaces.cli.output import print_json, print_note, print_outcome, warn_if_short
from onetool.script.names import BUILTINS, ScriptNames
from onetool.script.parse import CodeScan, read

ANY = "any"
KINDS = ("string", "integer", "number", "boolean", "array", "object")
TYPES = {
    **dict(zip(("str", "int", "float", "bool", "list", "dict"), KINDS, strict=True)),
    **{one: one for one in KINDS},
}
_DATA_METHODS = frozenset(name for kind in (str, list, dict, int, float, bytes) for name in dir(kind))


class Argument(NamedTuple):
    """An argument that `--arg` describes: NAME, NAME:TYPE or NAME:TYPE=DEFAULT."""

    name: str
    schema: dict[str, Any]

    @property
    def is_required(self) -> bool:
        return "default" not in self.schema


def read_argument(text: str) -> Argument:
    """Parse a description. Raises ValueError."""
    typed, equals, default = text.partition("=")
    name, colon, kind = typed.partition(":")
    if not name.isidentifier():
        raise ValueError(f"{name!r} can't be a name in code; write NAME:TYPE, or NAME:TYPE=DEFAULT")
    if colon and kind != ANY and kind not in TYPES:
        raise ValueError(f"{kind!r} is not a type (expected {', '.join(KINDS)} or {ANY})")
    schema: dict[str, Any] = {"type": TYPES[kind]} if kind in TYPES else {}
    if equals:
        schema["default"] = _default(default, schema)
    return Argument(name, schema)


def unbound_names(scan: CodeScan, names: ScriptNames) -> list[str]:
    """Return the names that code uses without assigning or calling them, in order of first use."""
    nodes = ast.walk(scan.tree) if scan.tree else ()
    loaded = [node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    found = sorted(loaded, key=lambda node: (node.lineno, node.col_offset))
    called = {call.func.id for call in scan.calls if isinstance(call.func, ast.Name)}
    return [
        name for name in dict.fromkeys(node.id for node in found) if name not in called and _unbound(name, scan, names)
    ]


def arg_schema(open: Iterable[str], given: Mapping[str, Argument]) -> dict[str, Any]:
    """Return the schema: first the described arguments in their order, then the others, of any type."""
    properties = {argument.name: argument.schema for argument in given.values()}
    properties |= {name: {} for name in open if name not in given}
    required = [name for name in properties if name not in given or given[name].is_required]
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _unbound(name: str, scan: CodeScan, names: ScriptNames) -> bool:
    from onetool.script.rewrite import MODULES

    if name in scan.bound or name in scan.imported or name in BUILTINS or name in names:
        return False
    used_for = {node.attr for node in scan.attributes if isinstance(node.value, ast.Name) and node.value.id == name}
    # `text.upper()` is a method of data; `brve.search()` means a missing pack, `json.dumps` a missing import.
    return used_for <= _DATA_METHODS and not (used_for and name in MODULES)


def _default(text: str, schema: Mapping[str, Any]) -> Any:
    if schema.get("type") == "string":
        return text
    try:
        value = json.loads(text)
    except ValueError:
        if schema:
            raise ValueError(f"the default {text!r} is not JSON, like 5, true or [1, 2]") from None
        return text
    if problems := CompiledSchema({"properties": {"default": schema}}).check({"default": value}):
        raise ValueError("; ".join(map(str, problems)))
    return value


# add, add-curl

tool_argument = click.argument(
    "place", metavar="BUNDLE/TOOL[@VERSION]", type=ReferenceType(tool=True), shell_complete=complete_ref
)


@click.command()
@tool_argument
@click.argument("file", metavar="FILE|-", type=click.Path(allow_dash=True))
@create_option
@allow_hosts_option
@data_options
def add(ctx: click.Context, place: ToolReference, file: str, create: bool, allow: bool, as_json: bool) -> None:
    """Add a tool from a file (JSON or YAML). The content is the same as in the REST API. The default VERSION is 1."""
    app = open_app(ctx)
    tool = put_tool(app, place, read_data(file), create)
    print_outcome(tool, f"Added {place.bundle}/{tool['slug']}@{tool['version']}.", as_json)
    needs = requirements_of(app.runtime, [tool])
    print_requirements(app, allowing(ctx, needs) if allow else needs)


@click.command("add-curl")
@tool_argument
@click.argument("command", metavar="COMMAND|-", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--description", help="What it does.")
@create_option
@allow_hosts_option
@click.option("--dry-run", is_flag=True, help="Print the tool, but do not store it.")
@data_options
def add_curl(
    ctx: click.Context,
    place: ToolReference,
    command: tuple[str, ...],
    description: str | None,
    create: bool,
    allow: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make a tool from a curl command. The command is given in quotes, or `-` reads it from standard input. It is not
    run.

    Values that may differ from call to call become arguments. Credentials go into the secrets file, and only their
    names into the tool.
    """
    from onetool.app.bundle_import import read_curl, secrets_stored

    app, known = open_app(ctx), load_secrets(find(ctx.find_root().obj))
    text = read_text(STDIN) if command == (STDIN,) else command[0] if len(command) == 1 else shlex.join(command)
    tool, secrets, notes, host, _ = read_curl(text, str(place.tool), description, known)
    for note in notes:
        print_note(note)
    if dry_run:
        print_json(check_tool(app, place, tool), as_json)
        if secrets:
            print_note(f"Would be stored with the other secrets: {', '.join(secrets)}")
        return
    if secrets:
        print_note(f"Its credentials become secrets: {', '.join(secrets)}")
    with secrets_stored(known, secrets, host) as kept:
        added = put_tool(app, place, tool, create)
    if kept:
        print_note(f"Stored in {known.file}, for {host} only: {', '.join(kept)}")
        for one in kept:
            warn_if_short(one, secrets[one])
    name = f"{place.bundle}/{added['slug']}@{added['version']}"
    arguments = ", ".join(added["argSchema"].get("properties") or ()) or "no arguments"
    print_outcome(added, f"Added {name}, with {arguments}. Look at it: onetool bundles show {name}", as_json)
    needs = requirements_of(app.runtime, [added])
    needs = needs._replace(secrets=tuple(one for one in needs.secrets if one.name not in secrets))
    print_requirements(app, allowing(ctx, needs) if allow else needs)


# save


def _parse_arguments(_ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, Argument]:
    try:
        return {one.name: one for one in map(read_argument, given)}
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


@click.command()
@click.argument("place", metavar="BUNDLE/TOOL[@VERSION]", type=ReferenceType(tool=True), shell_complete=complete_ref)
@click.argument("file", metavar="FILE|-", type=click.Path(allow_dash=True))
@click.option(
    "--arg",
    "given",
    multiple=True,
    metavar="NAME:TYPE[=DEFAULT]",
    callback=_parse_arguments,
    help="The type of an argument (string, integer, number, boolean, array, object, any). May be repeated.",
)
@click.option("--description", default="", help="What it does; the code's docstring by default.")
@create_option
@click.option("--dry-run", is_flag=True, help="Check and print the tool, but do not store it.")
@data_options
def save(
    ctx: click.Context,
    place: ToolReference,
    file: str,
    given: dict[str, Argument],
    description: str,
    create: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Store code as a tool. Names that the code uses but does not define become its arguments."""
    app = open_app(ctx)
    tool = script_tool(app, read_text(file), given, description)
    if dry_run:
        print_json(check_tool(app, place, tool), as_json)
        _note_missing(tool)
        return
    kept = put_tool(app, place, tool, create)
    name = f"{place.bundle}/{kept['slug']}@{kept['version']}"
    takes = ", ".join(kept["argSchema"]["properties"]) or "no arguments"
    print_outcome(kept, f"Stored as {name}, with {takes}. Look at it: onetool bundles show {name}", as_json)
    _note_missing(tool)


def script_tool(app: App, text: str, given: dict[str, Argument], description: str = "") -> dict[str, Any]:
    """Return the tool in the form that the REST API accepts. The REST API checks whether the code can run."""
    code = read(text)
    scan = CodeScan(code)
    for name in given:
        if name not in scan.used and scan.tree is not None and not scan.makes_names:
            near = or_rather(name, scan.used) or "."
            raise click.BadParameter(f"the code does not use {name}{near}", param_hint="--arg")
    found = unbound_names(scan, app.runtime.engine.names(app.catalog.registry.snapshot()))
    return {
        "type": "script",
        "description": description or (ast.get_docstring(scan.tree) if scan.tree else None) or "",
        "argSchema": arg_schema(found, given),
        "scriptImpl": {"code": code},
    }


def _note_missing(tool: dict[str, Any]) -> None:
    if vague := [name for name, schema in tool["argSchema"]["properties"].items() if not schema]:
        print_note(f"Arguments of any type: {', '.join(vague)}. To set a type: --arg {vague[0]}:string")
    if not tool["description"]:
        print_note("It has no description, so models can't know what it is for. Add one with --description.")
