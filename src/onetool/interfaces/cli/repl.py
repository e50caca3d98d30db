"""`onetool run -i`: line by line, with history and completion. Names stay from one line to the next."""

import ast
import asyncio
import os
import signal
import sys
from codeop import CommandCompiler
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onetool.core.private_file import private
from onetool.interfaces.cli.run import print_error, print_live, print_value

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.script.names import Names
    from onetool.script.session import Session

MOST_HISTORY = 1000
WELCOME = "Code over your tools, in the sandbox. Tab completes, Ctrl-C stops what runs, exit or Ctrl-D leaves."
LEAVING = ("exit", "quit", "exit()", "quit()")
GONE = "What was defined is gone: the session starts anew."
INDENT = "    "


def repl(app: "App", allowed: list[str] | None) -> None:
    snapshot = app.registry.snapshot()
    session = app.engine.session(snapshot, allowed, source="cli")
    history = _set_up_readline(app.engine.names(snapshot), session, app.config.home / "run_history")
    if sys.stdin.isatty():
        click.echo(WELCOME, err=True)
    try:
        with asyncio.Runner() as runner:
            while (text := _read()) is not None and not _leaves(text, session):
                if text.strip():
                    _run(app, runner, session, text)
    finally:
        session.close()
        if history is not None:
            _save(history)


def _run(app: "App", runner: asyncio.Runner, session: "Session", text: str) -> None:
    had_names = bool(session.known)
    with _deaf_to_interrupts():
        session.open()
    try:
        result = runner.run(session.run(text, print_live))
    except KeyboardInterrupt:
        click.echo(f"Stopped. {GONE}" if had_names and session.is_fresh else "Stopped.", err=True)
        return
    if result.error is not None:
        print_error(result.error)
        if had_names and session.is_fresh:
            click.echo(f"  {GONE}", err=True)
    else:
        print_value(app, result, full=True)


def _leaves(text: str, session: "Session") -> bool:
    """Whether it is a word for leaving, and no name of the person's own."""
    word = text.strip()
    return word in LEAVING and word.removesuffix("()") not in session.known


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Ctrl-C reaches all processes of a terminal. A worker that starts in here does not hear it: names stay."""
    heard = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, heard)


def _read() -> str | None:
    """One statement, over as many lines as it takes; None at the end."""
    lines: list[str] = []
    brings_own = False  # what is typed, or pasted, has its indentation with it
    while True:
        try:
            indent = "" if brings_own else _indent_after(lines)
            line = _line("... " if lines else ">>> ", indent)
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
        if _is_whole(text):
            return text


def _indent_after(lines: list[str]) -> str:
    """How the next line of a block begins: as the last one, deeper behind a colon, less deep where a block ends."""
    if not lines:
        return ""
    last = lines[-1]
    begun = last[: len(last) - len(last.lstrip())]
    if last.rstrip().endswith(":"):
        return begun + INDENT
    ends = last.split()[:1] and last.split()[0] in ("return", "pass", "break", "continue", "raise")
    return begun.removesuffix(INDENT) if ends else begun


def _line(prompt: str, indent: str = "") -> str:
    """A prompt is for people; and `input` would write it to standard output, which is for results."""
    if not sys.stdin.isatty():
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")
    with _begun_with(indent):
        return input(prompt)


@contextmanager
def _begun_with(indent: str) -> Iterator[None]:
    """The line stands there with this in it, as if it had been typed; where Python was built with readline."""
    try:
        import readline
    except ImportError:
        yield
        return
    readline.set_startup_hook((lambda: readline.insert_text(indent)) if indent else None)
    try:
        yield
    finally:
        readline.set_startup_hook(None)


def _is_whole(text: str) -> bool:
    """Whether nothing more is to come. What this Python can't parse is the sandbox's to judge."""
    first, *rest = text.split("\n")
    if text.startswith("```"):
        return len(rest) > 0 and rest[-1].startswith("```")
    if text.startswith("$"):  # with its parameters on the same line, or on the next ones, up to an empty one
        return "=" in first or (len(rest) > 0 and not rest[-1].strip())
    compiler = CommandCompiler()
    compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        return compiler(text) is not None
    except (SyntaxError, ValueError, OverflowError):
        return True


def _set_up_readline(names: "Names", session: "Session", history: Path) -> Path | None:
    """History and completion, where there is a terminal and Python was built with them."""
    if not sys.stdin.isatty():
        return None
    try:
        import readline
    except ImportError:
        return None
    from onetool.script.completion import completions

    found: list[str] = []

    def complete(_word: str, state: int) -> str | None:
        if state == 0:
            line = readline.get_line_buffer()[: readline.get_endidx()]
            if not line.strip():
                readline.insert_text(INDENT)
                return None
            found[:] = completions(line, names, session.known)
        return found[state] if state < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n()[]{},=+-*/%:;<>!&|^~@\"'")
    readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")
    with suppress(OSError):  # there is none yet, or it can't be read: then there is no history
        readline.read_history_file(history)
    return history


def _save(history: Path) -> None:
    import readline

    try:
        history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(private(history, os.O_WRONLY | os.O_CREAT))  # what somebody typed may hold secrets
        readline.set_history_length(MOST_HISTORY)
        readline.write_history_file(history)
    except OSError as error:
        click.echo(f"The history could not be saved: {error}", err=True)
