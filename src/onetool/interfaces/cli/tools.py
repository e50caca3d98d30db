"""`onetool tools …`: lists, inspects, calls, searches and exports tools.

Listing tools must start fast: modules that only a call needs are imported by the functions of `invoke`.
"""

import re
import sys
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from json import JSONDecodeError
from pathlib import Path
from typing import Any
from uuid import uuid4

import click
import msgspec

from onetool.app import App
from onetool.core.call import ToolCall, ToolError, ToolResult
from onetool.core.json_data import StrictJsonError, strict_decoder
from onetool.core.mismatch import expected_types
from onetool.core.model_providers import PROVIDERS
from onetool.core.redaction import mask_arguments
from onetool.core.signature import is_text, kinds_of, signature, takes_others
from onetool.core.spec import ToolSpec
from onetool.core.text import MAX_NAME, did_you_mean, or_rather
from onetool.interfaces.cli.options import (
    OneOf,
    allow_option,
    complete_tool,
    data_options,
    envelope_option,
    open_app,
    positive,
)
from onetool.interfaces.cli.output import (
    counted,
    echo,
    print_json,
    print_note,
    print_table,
    show_progress,
    wants_json,
)
from onetool.sources.packs import BuiltinFunctions


@click.group(no_args_is_help=True)
def tools() -> None:
    """List, inspect, call, search and export tools."""


@tools.command("list")
@allow_option
@data_options
def list_tools(ctx: click.Context, allowed: list[str] | None, as_json: bool) -> None:
    """List the tools: yours first, then the built-in ones."""
    app = open_app(ctx, allowed, packs=None)
    specs = app.tools(app.catalog.registry.allowing(allowed))
    if allowed is None:  # an allow-list has the registry's order
        built_in = frozenset(BuiltinFunctions())
        specs = sorted(specs, key=lambda spec: 2 if _is_own(spec) else spec.name in built_in)
    if wants_json(as_json):
        print_json([spec.summary() for spec in specs])
        return
    from onetool.core.tool_lines import first_sentence
    from onetool.script.names import ScriptNames

    spellings = ScriptNames(app.catalog.current_snapshot()).spellings()
    rows: list[tuple[str, str]] = []
    folded = [spec for spec in specs if allowed is None and _is_own(spec)]
    for spec in specs[: len(specs) - len(folded)]:
        effect = f" [{spec.effect}]" if spec.effect else ""
        call = signature(spec, word := spellings[spec.name])
        call = call.removeprefix(word) if word == spec.name else call
        about = f"{first_sentence(spec.description)}\n{call}{effect}"
        rows.append((spec.name, about))
    if folded:
        about = f"{counted(len(folded), 'tool')} for code and models, which find and call the others"
        rows.append(("ot.*", f"{about}\nto list them: onetool tools list --tool-allow 'ot.*'"))
    print_table(counted(len(specs), "tool"), ("tool", "description"), rows)


def _is_own(spec: ToolSpec) -> bool:
    """Return whether this is a built-in `ot` tool."""
    return spec.pack == "ot" and spec.defined_in is None


@tools.command()
@click.argument("name", shell_complete=complete_tool)
@allow_option
@data_options
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
    if pairs and text is not None:
        raise click.UsageError("Give the arguments as KEY=VALUE or in --args, not both.")
    given = split_pairs(pairs)
    args = read_args("{}" if text is None else text)
    app = open_app(ctx, allowed, packs=[name.partition(".")[0]] if given else ())
    if given:
        args = read_pairs(given, app.catalog.registry.get(app.catalog.real_name(name)))
    call, result = invoke_tool(app, name, args, timeout, app.catalog.registry.allowing(allowed))
    if result.error is not None:
        result = msgspec.structs.replace(result, error=_with_commands(result.error, str(result.meta.get("tool"))))
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
def search(ctx: click.Context, query: tuple[str, ...], limit: int, allowed: list[str] | None, as_json: bool) -> None:
    """Find tools by what they do."""
    app = open_app(ctx, allowed, packs=None)
    # Scores are not shown: they alone don't decide the order (tools about tools come last).
    found = [spec for spec, _ in app.search(" ".join(query), limit, app.catalog.registry.allowing(allowed))]
    if wants_json(as_json):
        print_json([spec.summary() for spec in found])
        return
    if not found:
        echo("Nothing found. Try other words, or: onetool tools list")
        return
    from onetool.core.tool_lines import first_sentence

    rows = ((spec.name, first_sentence(spec.description)) for spec in found)
    print_table(f"{len(found)} found", ("tool", "description"), rows)


@tools.command()
@click.option("--provider", required=True, type=OneOf((*PROVIDERS, "mcp")), help="The provider whose format to print.")
@click.option("--merge", is_flag=True, help="gemini: all declarations in one object.")
@allow_option
@data_options
def export(ctx: click.Context, provider: str, merge: bool, allowed: list[str] | None, as_json: bool) -> None:
    """Print the tools in the format of a model's API."""
    if merge and provider != "gemini":
        raise click.BadParameter(f"is for gemini; {provider} takes a list as it is.", param_hint="--merge")
    from onetool.formats import provider_tools

    app = open_app(ctx, allowed, packs=None)
    picked = app.catalog.registry.allowing(allowed)
    # Export all tools, then apply the allow-list: a tool's exported name must not depend on it.
    print_json(provider_tools(app.tools(), provider, allowed=picked, merge=merge), as_json)


def unknown_tool(name: str, known: Any, why: object = None) -> click.ClickException:
    near = f"; {why}" if why else or_rather(name, known) or "; see: onetool tools list"
    return click.ClickException(f"Tool not found: {name:.{MAX_NAME}}{near}")


# `invoke`: reading the arguments and making the call

_wrong = partial(click.BadParameter, param_hint="KEY=VALUE")


def invoke_tool(
    app: App, name: str, args: dict[str, Any], timeout: float | None, allowed: Collection[str] | None
) -> tuple[dict[str, Any], ToolResult]:
    """Call a tool. Returns the call as JSON types, with secret arguments masked, and the result."""
    import asyncio

    from onetool.core.lenient import recorded_call
    from onetool.interfaces.cli.person import let_tools_ask

    call = ToolCall(id=uuid4().hex, name=name, args=args, source="cli", timeout=timeout)
    let_tools_ask()
    result = asyncio.run(app.call(call, allowed, show_progress if sys.stderr.isatty() else None))
    spec = app.catalog.registry.get(name)
    call = recorded_call(call, spec)
    shown = {
        "id": call.id,
        "name": call.name,
        "args": mask_arguments(call.args, spec.secrets) if spec else call.args,
        "source": call.source,
    }
    return app.runtime.redact(msgspec.to_builtins(shown), args), result


def print_outcome(app: App, result: ToolResult) -> None:
    """Print the whole value as `run` shows it, or the error."""
    from onetool.interfaces.cli.run import print_error, print_value
    from onetool.script.run_result import RunResult

    for warning in result.meta.get("warnings", ()):
        print_note(f"Warning: {warning}")
    if result.error is not None:
        print_error(result.error)
    else:
        of_ot = str(result.meta.get("tool")).startswith("ot.")
        print_value(app, RunResult(ok=True, data=result.data, flow=of_ot), full=True)


def _with_commands(error: ToolError, name: str) -> ToolError:
    """Return the error with commands in place of the hints for code, such as a signature."""
    hints = [hint for hint in error.hints if not _PYTHON.match(hint)]
    if error.code == "invalid_args":
        hints.append(f"onetool tools info {name}")
    elif error.code == "tool_not_found":
        hints = []  # names of tools that the message has, too
    return msgspec.structs.replace(error, hints=tuple(hints))


_PYTHON = re.compile(r"[\w.]+\(")


def split_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """Split `key=value` pairs. Raises BadParameter for a repeated key."""
    given: dict[str, str] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise _wrong(f"{pair!r} is not an argument: write KEY=VALUE, like path=.")
        if key in given:
            raise _wrong(f"{key} is given twice; give it once.")
        given[key] = value
    return given


def read_pairs(given: Mapping[str, str], spec: ToolSpec | None) -> dict[str, Any]:
    """Parse the arguments: text where the tool's schema says string, else JSON. Without a tool, keep them as text."""
    if spec is None:  # the call reports the unknown tool
        return dict(given)
    properties: Mapping[str, Any] = spec.input_schema.get("properties") or {}
    args: dict[str, Any] = {}
    for key, value in given.items():
        if key not in properties and not takes_others(spec) and not spec.lenient:
            known = did_you_mean(key, properties) or f"it takes {', '.join(spec.order) or 'none'}."
            raise _wrong(f"{spec.name} has no argument {key[:MAX_NAME]!r}; {known}")
        wants_text = is_text(key, spec)
        args[key] = value
        if not wants_text:
            try:
                args[key] = strict_decoder().decode(value)
            except ValueError as error:
                if wants_text is False and spec.prepare is None and not spec.lenient:
                    kinds = kinds_of(key, spec) or set()
                    why = f", which is not JSON ({error})" if "array" in kinds or "object" in kinds else ""
                    raise _wrong(f"{key}: expected {expected_types(kinds)}, got {value[:60]!r}{why}.") from None
    return args


def read_args(text: str) -> dict[str, Any]:
    """Parse --args: JSON itself, `@file`, or `-` for standard input."""
    from onetool.interfaces.cli.inputs import STDIN, read_input, shown_name

    wrong = partial(click.BadParameter, param_hint="--args")
    where, source = "it", text
    if text == STDIN or text.startswith("@"):
        name = text if text == STDIN else str(Path(text[1:]))
        where, source = shown_name(name), read_input(name, wrong, wrong)
    try:
        args = strict_decoder().decode(source)
    except JSONDecodeError as error:
        lines = source.splitlines()
        line = lines[error.lineno - 1] if error.lineno <= len(lines) else ""  # the error may be after the last line
        start = max(0, error.colno - 31)
        pointer = f"\n  {line[start : start + 60]}\n  {' ' * (error.colno - 1 - start)}^" if line else ""
        message = f"{where} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.{pointer}"
        raise wrong(message) from None
    except StrictJsonError as error:
        raise wrong(f"{where} {error}.") from None
    except RecursionError:
        raise wrong(f"{where} is nested too deep.") from None
    except ValueError as error:  # an integer with thousands of digits
        raise wrong(f"{where} can't be read: {error}.") from None
    if not isinstance(args, dict):
        raise wrong(f'{where} is not an object; write the arguments by name, like {{"path": "."}}.')
    return args
