"""`onetool tools …`: see the tools, look at one, call one, find one, hand them to a model."""

from typing import Any

import click

from onetool.core.spec import ToolSpec
from onetool.interfaces.cli.options import (
    allow_option,
    complete_provider,
    complete_tool,
    data_options,
    envelope_option,
    open_app,
    positive,
)
from onetool.interfaces.cli.output import counted, echo, print_json, print_table, wants_json


@click.group(no_args_is_help=True)
def tools() -> None:
    """List, inspect, call, search and export tools."""


@tools.command("list")
@allow_option
@data_options
@click.pass_context
def list_tools(ctx: click.Context, allowed: list[str] | None, as_json: bool) -> None:
    """List the tools: yours first, then the built-in ones."""
    app = open_app(ctx, allowed, packs=None)
    specs = app.tools(app.catalog.registry.allowing(allowed))
    if allowed is None:  # an allow-list has the registry's order
        specs = _yours_first(specs)
    if wants_json(as_json):
        print_json([spec.summary() for spec in specs])
        return
    print_table(counted(len(specs), "tool"), ("tool", "what it does"), ((spec.name, _in_short(spec)) for spec in specs))


@tools.command()
@click.argument("name", shell_complete=complete_tool)
@allow_option
@data_options
@click.pass_context
def info(ctx: click.Context, name: str, allowed: list[str] | None, as_json: bool) -> None:
    """Show one tool: its schemas, and its statistics."""
    app = open_app(ctx, allowed, packs=[name.partition(".")[0]])
    facts = app.info(name, app.catalog.registry.allowing(allowed))
    if facts is None:
        raise unknown_tool(name, app.catalog.registry.names(), app.catalog.why_missing(name))
    if wants_json(as_json):
        print_json(facts)
        return
    schemas = {key: facts.pop(key) for key in ("inputSchema", "outputSchema", "inferredOutput") if key in facts}
    print_table(name, ("", ""), facts.items())
    print_json({key: schema for key, schema in schemas.items() if schema is not None}, as_json=False)


@tools.command()
@click.argument("name", shell_complete=complete_tool)
@click.argument("pairs", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--args", "text", metavar="JSON", help="The arguments: JSON, @FILE, or - for standard input.")
@click.option("--timeout", type=float, callback=positive, metavar="SECONDS", help="The timeout of the call.")
@envelope_option
@allow_option
@data_options
@click.pass_context
def invoke(
    ctx: click.Context,
    name: str,
    pairs: tuple[str, ...],
    text: str | None,
    timeout: float | None,
    envelope: bool,
    allowed: list[str] | None,
    as_json: bool,
) -> None:
    """Call a tool. Arguments are KEY=VALUE, where VALUE is a text or JSON, or one JSON object in --args.

    Prints the value at a terminal, and the call with its result in a pipe. Exit codes: 0 for success, 1 for a failure
    of the tool, 2 for wrong usage.

    \b
    onetool tools invoke fs.list_dir path=. recursive=true
    onetool tools invoke fs.list_dir --args '{"path": ".", "recursive": true}'
    """
    from onetool.interfaces.cli.invoke import invoke_tool, print_outcome, read_args, read_pairs, split_pairs

    if pairs and text is not None:
        raise click.UsageError("Give the arguments as KEY=VALUE or in --args, not both.")
    given = split_pairs(pairs)
    args = read_args("{}" if text is None else text)
    app = open_app(ctx, allowed, packs=[name.partition(".")[0]] if given else ())
    if given:
        args = read_pairs(given, app.catalog.registry.get(app.catalog.real_name(name)))
    call, result = invoke_tool(app, name, args, timeout, app.catalog.registry.allowing(allowed))
    if envelope or wants_json(as_json):
        print_json({"call": call, "result": result.to_dict()}, as_json)
    else:
        print_outcome(app, result)
    ctx.exit(0 if result.ok else 1)


@tools.command()
@click.argument("query", nargs=-1, required=True)
@click.option(
    "--limit", type=click.IntRange(min=1), default=5, show_default=True, help="The maximum number of results."
)
@allow_option
@data_options
@click.pass_context
def search(ctx: click.Context, query: tuple[str, ...], limit: int, allowed: list[str] | None, as_json: bool) -> None:
    """Find tools by what they do."""
    app = open_app(ctx, allowed, packs=None)
    found = app.search(" ".join(query), limit, app.catalog.registry.allowing(allowed))
    if wants_json(as_json):
        print_json([{**spec.summary(), "score": score} for spec, score in found])
        return
    if not found:
        echo("Nothing found. Try other words, or: onetool tools list")
        return
    rows = ((spec.name, first_line(spec.description), f"{score:.2f}") for spec, score in found)
    print_table(f"{len(found)} found", ("tool", "what it does", "score"), rows)


@tools.command()
@click.option(
    "--provider",
    required=True,
    metavar="NAME",
    shell_complete=complete_provider,
    help="openai, ollama, gemini, anthropic or mcp.",
)
@click.option("--merge", is_flag=True, help="gemini: all declarations in one object.")
@allow_option
@data_options
@click.pass_context
def export(ctx: click.Context, provider: str, merge: bool, allowed: list[str] | None, as_json: bool) -> None:
    """Print the tools in the format of a model's API."""
    if merge and provider != "gemini":
        raise click.BadParameter(f"is for gemini; {provider} takes a list as it is.", param_hint="--merge")
    from onetool.core.errors import UnknownProviderError
    from onetool.formats import provider_tools

    try:
        app = open_app(ctx, allowed, packs=None)
        picked = app.catalog.registry.allowing(allowed)
        # All tools go in and the allow-list picks: a tool's exported name must not depend on which others are allowed.
        exported = provider_tools(app.tools(), provider, allowed=picked, merge=merge)
    except UnknownProviderError as error:
        raise click.BadParameter(str(error), param_hint="--provider") from None
    print_json(exported, as_json)


def unknown_tool(name: str, known: Any, why: object = None) -> click.ClickException:
    from onetool.core.text import or_rather

    near = f"; {why}" if why else or_rather(name, known) or "; see: onetool tools list"
    return click.ClickException(f"Tool not found: {name}{near}")


def _yours_first(specs: list[ToolSpec]) -> list[ToolSpec]:
    """Those that come with OneTool last; else in the same order."""
    from onetool.sources.packs import BuiltinFunctions

    built_in = frozenset(BuiltinFunctions())
    return sorted(specs, key=lambda spec: spec.name in built_in or (spec.pack == "ot" and spec.defined_in is None))


def _in_short(spec: ToolSpec) -> str:
    from onetool.core.signature import signature

    return f"{first_line(spec.description)}\n{signature(spec).removeprefix(spec.name)}"


def first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
