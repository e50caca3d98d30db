"""`onetool run`: code over all tools, in the sandbox. The result goes to standard output, what it prints does not."""

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from onetool.interfaces.cli.options import allow_option, data_options, envelope_option, open_app
from onetool.interfaces.cli.output import echo, print_json, print_text, printable, stdout, styled, to_json
from onetool.interfaces.cli.person import let_tools_ask
from onetool.interfaces.cli.progress import show_progress

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.core.call import ToolError
    from onetool.script.outcome import RunResult

MOST_BYTES = 4 * 1024 * 1024


@click.command()
@click.argument("code", required=False)
@click.option("--file", "-f", metavar="FILE", help="Run the code in this file.")
@click.option("--full", is_flag=True, help="Print all of a large result, instead of storing it behind a handle.")
@click.option("--interactive", "-i", is_flag=True, help="Read and run line by line, with history and completion.")
@click.option("--yaml", "as_yaml", is_flag=True, help="Print YAML, as on a terminal.")
@envelope_option
@allow_option
@data_options
@click.pass_context
def run(
    ctx: click.Context,
    code: str | None,
    file: str | None,
    full: bool,
    interactive: bool,
    as_yaml: bool,
    envelope: bool,
    allowed: list[str] | None,
    as_json: bool,
) -> None:
    """Run CODE over all tools, in the sandbox. `-` reads it from standard input.

    The value of the last expression is printed: on a terminal as YAML, in a pipe as JSON, where a text alone stands as
    it is. Exit code 0 when it went well, 1 when it failed, 2 for wrong usage.

    \b
    onetool run 'time.now()["iso"]'
    onetool run 'import asyncio
    await asyncio.gather(*[tools.echo(message=word) for word in ("one", "two")])'
    """
    if as_json and as_yaml:
        raise click.UsageError("Give --json or --yaml, not both.")
    if interactive:
        if code is not None or file is not None:
            raise click.UsageError("An interactive session takes no code: type it there.")
        from onetool.interfaces.cli.repl import repl

        repl(open_app(ctx, allowed), allowed)
        return
    text = _code(code, file)
    app = open_app(ctx, allowed)
    let_tools_ask()
    result = asyncio.run(_run(app, text, allowed))
    if envelope:
        print_envelope(result.to_dict(), as_yaml, as_json)
        app.replied(result, [result.to_dict()])
    elif result.error is not None:
        print_error(result.error)
        app.replied(result, [result.printed, result.error.message])
    elif as_json or not (as_yaml or stdout().isatty()):
        app.replied(result, [result.printed, print_data(result.to_dict()["data"], as_json)])
    else:
        app.replied(result, [result.printed, print_value(app, result, full)])
    ctx.exit(0 if result.ok else 1)


async def _run(app: "App", code: str, allowed: list[str] | None) -> "RunResult":
    progress = show_progress if sys.stderr.isatty() else None
    return await app.run(code, allowed, source="cli", live=print_live, progress=progress)


def print_live(text: str) -> None:
    """What the code prints, as it prints it. On standard error: standard output is for the result."""
    click.echo(printable(text) if sys.stderr.isatty() else text, err=True, nl=False)


def print_value(app: "App", result: "RunResult", full: bool) -> str:
    """The value alone: what was printed has been seen already. Gives what was shown."""
    if result.data is None:
        return ""
    text = app.reply(replace(result, printed=""), whole=full).text
    echo(printable(text) if stdout().isatty() else text)
    return text


def print_data(value: Any, as_json: bool) -> str:
    """The value for a program: JSON. A text is printed bare, and None not at all, unless JSON was asked for."""
    if value is None and not as_json:
        return ""
    text = value if isinstance(value, str) and not as_json else to_json(value)
    print_text(text)
    return text


def print_envelope(whole: dict[str, Any], as_yaml: bool, as_json: bool) -> None:
    """All that came of it."""
    if as_yaml:
        from onetool.script.render import render

        text = render(whole)
        echo(printable(text) if stdout().isatty() else text)
    else:
        print_json(whole, as_json)


def print_error(error: "ToolError") -> None:
    from onetool.script.reply import error_text

    first, _, rest = printable(error_text(error)).partition(" ")
    click.echo(f"{styled(first, fg='red')} {rest}", err=True)


def _code(code: str | None, file: str | None) -> str:
    if code is not None and file is not None:
        raise click.UsageError("Give CODE or --file, not both.")
    if file is not None:
        try:
            with open(file, "rb") as stream:
                return _decoded(stream.read(MOST_BYTES + 1), file)
        except OSError as error:
            raise click.BadParameter(f"can't read {file}: {error.strerror}.", param_hint="--file") from None
    if code == "-" or (code is None and not sys.stdin.isatty()):
        return _decoded(sys.stdin.buffer.read(MOST_BYTES + 1), "standard input")
    if code is None:
        raise click.UsageError("Give the code: onetool run 'time.now()'. `-i` starts an interactive session.")
    return code


def _decoded(data: bytes, where: str) -> str:
    if len(data) > MOST_BYTES:
        raise click.UsageError(f"{where} is larger than {MOST_BYTES // 1024**2} MiB.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{where} is not UTF-8 (byte {error.start}).") from None
