"""`onetool run`: runs code over all tools in the sandbox, once or line by line (`-i`).

The result goes to standard output, what the code prints to standard error. With `-i`, variables persist from line to
line.
"""

import ast
import asyncio
import signal
import sys
from codeop import CommandCompiler
from collections.abc import Collection
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
from onetool.interfaces.cli.person import LineEditor, let_tools_ask
from onetool.script.names import completions

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.core.call import ToolError
    from onetool.script.engine import CodeSession
    from onetool.script.run_result import RunResult


@click.command()
@click.argument("code", required=False)
@click.option("--file", "-f", metavar="FILE", help="Run the code in this file.")
@click.option("--full", is_flag=True, help="Print a large result in full instead of storing it.")
@click.option("--interactive", "-i", is_flag=True, help="Start an interactive session, with history and completion.")
@click.option("--yaml", "as_yaml", is_flag=True, help="Print YAML, as on a terminal.")
@envelope_option
@allow_option
@data_options
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
    if interactive:
        if code is not None or file is not None:
            raise click.UsageError("An interactive session takes no code: type it there.")
        app = open_app(ctx, allowed)
        repl(app, app.catalog.registry.allowing(allowed))
        return
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
        raise click.UsageError("Give the code: onetool run 'time.now()'. `-i` starts an interactive session.")
    return code


# `onetool run -i`: line by line, with history and completion.

WELCOME = "Code here runs in the sandbox and can call your tools. Tab completes, Ctrl-C stops the code, Ctrl-D leaves."
LEAVING = ("exit", "quit", "exit()", "quit()")
GONE = "All variables are lost: the session was restarted."
INDENT = "    "
DELIMITERS = " \t\n()[]{},=+-*/%:;<>!&|^~@\"'"


def repl(app: "App", allowed: Collection[str] | None) -> None:
    snapshot = app.catalog.registry.snapshot()
    session = app.runtime.engine.session(snapshot, allowed, source="cli")
    names = app.runtime.engine.names(snapshot)
    editor = LineEditor(
        app.config.home / "run_history", lambda line: completions(line, names, session.known), DELIMITERS, INDENT
    )
    if editor.is_live:
        click.echo(WELCOME, err=True)
    try:
        with asyncio.Runner() as runner:
            while (text := _read_statement(editor)) is not None:
                word = text.strip()
                if (
                    word in LEAVING and word.removesuffix("()") not in session.known
                ):  # unless the user defined this name
                    break
                if word:
                    _run_statement(app, runner, session, text)
    finally:
        session.close()
        editor.save()


def _run_statement(app: "App", runner: asyncio.Runner, session: "CodeSession", text: str) -> None:
    had_names = bool(session.known)
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # so that Ctrl-C does not end the workers that start now
    try:
        session.open()
    finally:
        signal.signal(signal.SIGINT, handler)
    try:
        result = runner.run(session.run(text, print_live))
    except KeyboardInterrupt:
        click.echo(f"Stopped. {GONE}" if had_names and session.is_fresh else "Stopped.", err=True)
        return
    if result.error_with_calls is not None:
        print_error(result.error_with_calls)
        if had_names and session.is_fresh:
            click.echo(f"  {GONE}", err=True)
    else:
        print_value(app, result, full=True)


def _read_statement(editor: LineEditor) -> str | None:
    """Read one statement, over as many lines as it takes. Return None at the end."""
    lines: list[str] = []
    brings_own = False  # a pasted line has its own indentation
    while True:
        try:
            indent = "" if brings_own else _indent_after(lines)
            line = editor.read("... " if lines else ">>> ", indent)
            editor.remember(line)
            editor.keep(line)
            if indent and line.removeprefix(indent)[:1] in (" ", "\t") and line.strip():
                line, brings_own = line.removeprefix(indent), True
            lines.append(line if line.strip() else "")
        except EOFError:
            if sys.stdin.isatty():
                click.echo(err=True)
            return "\n".join(lines) if lines else None
        except KeyboardInterrupt:
            click.echo(err=True)
            return ""
        text = "\n".join(lines)
        if _is_complete(text):
            return text


def _indent_after(lines: list[str]) -> str:
    """Return the indentation of the next line: more than the last line's after a colon, less where a block ends."""
    if not lines:
        return ""
    last = lines[-1]
    indent = last[: len(last) - len(last.lstrip())]
    if last.rstrip().endswith(":"):
        return indent + INDENT
    ends = last.split()[:1] and last.split()[0] in ("return", "pass", "break", "continue", "raise")
    return indent.removesuffix(INDENT) if ends else indent


def _is_complete(text: str) -> bool:
    """Return whether the statement is complete; syntax errors are left to the sandbox."""
    first, *rest = text.split("\n")
    if text.startswith("```"):
        return len(rest) > 0 and rest[-1].startswith("```")
    if text.startswith("$"):  # its parameters are on the same line, or on further lines up to an empty line
        return "=" in first or (len(rest) > 0 and not rest[-1].strip())
    compiler = CommandCompiler()
    compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        return compiler(text) is not None
    except (SyntaxError, ValueError, OverflowError):
        return True
