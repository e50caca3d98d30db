"""`onetool run`: runs code over all tools in the sandbox.

The result goes to standard output, what the code prints to standard error.
"""

import asyncio
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from onetool.interfaces.cli.inputs import STDIN, read_input
from onetool.interfaces.cli.options import allow_option, data_options, envelope_option, open_app
from onetool.interfaces.cli.output import (
    echo,
    print_json,
    print_note,
    print_text,
    printable,
    show_progress,
    stdout,
    styled,
    to_json,
)
from onetool.interfaces.cli.person import let_tools_ask

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.core.call import ToolError
    from onetool.script.run_result import RunResult


@click.command()
@click.argument("code", required=False)
@click.option("--file", "-f", metavar="FILE", help="Run the code in this file.")
@click.option("--full", is_flag=True, help="Print a large result in full instead of storing it.")
@click.option("--yaml", "as_yaml", is_flag=True, help="Print YAML, as on a terminal.")
@envelope_option
@allow_option
@data_options
def run(
    ctx: click.Context,
    code: str | None,
    file: str | None,
    full: bool,
    as_yaml: bool,
    envelope: bool,
    allowed: list[str] | None,
    as_json: bool,
) -> None:
    """Run CODE, which can call every tool, in the sandbox. `-` reads the code from standard input.

    Prints the value of the last expression: YAML at a terminal, JSON in a pipe. In a pipe, text is printed as is.
    Exit codes: 0 for success, 1 for failure, 2 for wrong usage.

    \b
    onetool run 'time.now()["iso"]'
    onetool run 'import asyncio
    await asyncio.gather(*[tools.echo(message=word) for word in ("one", "two")])'
    """
    if as_json and as_yaml:
        raise click.UsageError("Give --json or --yaml, not both.")
    text = _code(code, file)
    app = open_app(ctx, allowed)
    let_tools_ask()
    progress = show_progress if sys.stderr.isatty() else None
    permitted = app.catalog.registry.allowing(allowed)
    result = asyncio.run(app.run(text, permitted, source="cli", live=print_live, progress=progress))
    for warning in result.meta.get("warnings", ()):
        print_note(f"Warning: {warning}")
    if envelope:
        print_envelope(result.to_dict(), as_yaml, as_json)
        app.runtime.record_reply(result, [result.to_dict()])
    elif result.error_with_calls is not None:
        print_error(result.error_with_calls)
        app.runtime.record_reply(result, [result.printed, result.error_with_calls.message])
    elif as_json or not (as_yaml or stdout().isatty()):
        app.runtime.record_reply(result, [result.printed, print_data(result.to_dict()["data"], as_json)])
    else:
        app.runtime.record_reply(result, [result.printed, print_value(app, result, full)])
    ctx.exit(0 if result.ok else 1)


def print_live(text: str) -> None:
    """Print the code's output on standard error; standard output is for the result."""
    click.echo(printable(text) if sys.stderr.isatty() else text, err=True, nl=False)


def print_value(app: "App", result: "RunResult", full: bool) -> str:
    """Print the value and return what was printed."""
    if result.data is None:
        return ""
    text = app.reply(replace(result, printed=""), whole=full).text
    echo(printable(text) if stdout().isatty() else text)
    return text


def print_data(value: Any, as_json: bool) -> str:
    """Print the value as JSON for a program. Unless `as_json`, text is printed bare, and None not at all."""
    if value is None and not as_json:
        return ""
    text = value if isinstance(value, str) and not as_json else to_json(value)
    print_text(text)
    return text


def print_envelope(whole: dict[str, Any], as_yaml: bool, as_json: bool) -> None:
    """Print the whole result: its value or error, and its metadata."""
    if as_yaml:
        from onetool.script.render import render

        text = render(whole)
        echo(printable(text) if stdout().isatty() else text)
    else:
        print_json(whole, as_json)


def print_error(error: "ToolError") -> None:
    from onetool.script.render import error_text

    first, _, rest = printable(error_text(error)).partition(" ")
    click.echo(f"{styled(first, fg='red')} {rest}", err=True)


def _code(code: str | None, file: str | None) -> str:
    if code is not None and file is not None:
        raise click.UsageError("Give CODE or --file, not both.")
    if file is not None:
        return read_input(file, click.UsageError, partial(click.BadParameter, param_hint="--file"))
    if code == STDIN or (code is None and not sys.stdin.isatty()):
        return read_input(STDIN, click.UsageError)
    if code is None:
        raise click.UsageError("Give the code: onetool run 'time.now()'.")
    return code
