"""Prints results: tables, colours and highlighted JSON at a terminal, plain JSON for a program."""

import codecs
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import click
import msgspec

from onetool.core.errors import Mistake
from onetool.services.secrets import RELOAD_NOTE, UNMISTAKABLE, is_too_short

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console


class _Stdout:
    """The standard output that is reserved for results."""

    stream: TextIO | None = None


def claim_stdout() -> None:
    """Reserve standard output for results; what tools print goes to standard error.

    The file descriptor is redirected, so that child processes and compiled libraries are covered too. It is not
    restored: an abandoned tool may still be printing.
    """
    if _Stdout.stream is None:
        sys.stdout.flush()
        _Stdout.stream = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)
        os.dup2(2, 1)


def stdout() -> TextIO:
    return _Stdout.stream or sys.stdout


def echo(text: str = "") -> None:
    click.echo(text, file=stdout(), color=False if is_plain() else None)


def is_plain() -> bool:
    """Return whether colours are off, because of NO_COLOR (https://no-color.org) or a simple terminal."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def styled(text: str, **style: Any) -> str:
    """Apply `click.style` unless colours are off."""
    return text if is_plain() else click.style(text, **style)


def wants_json(as_json: bool) -> bool:
    return as_json or not stdout().isatty()


def print_json(data: Any, as_json: bool = True) -> None:
    """Print JSON, with colours at a terminal."""
    text = to_json(data)
    if wants_json(as_json):
        print_text(text)
        return
    _console().print_json(text)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows under headings; without headings if all of them are empty."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(columns))
    for index, column in enumerate(columns):
        table.add_column(column, style=None if index else "bold cyan", no_wrap=not index, overflow="fold")
    for row in rows:
        # Text, not markup: square brackets and escape codes in a description are shown, not interpreted.
        table.add_row(*(Text(printable(cell)) for cell in row))
    _console().print(table)


def _console() -> "Console":
    from rich.console import Console

    return Console(file=stdout(), color_system=None if is_plain() else "auto")


def print_note(text: Any) -> None:
    """Print a line for the user on standard error."""
    click.echo(printable(text), err=True)


def print_outcome(data: Any, text: str, as_json: bool) -> None:
    """Print what was done: as text at a terminal, as data for a program."""
    if wants_json(as_json):
        print_json(data)
    else:
        echo(printable(text))


def to_json(data: Any) -> str:
    """Encode as JSON, with the standard library if msgspec refuses a value (a huge number, a lone surrogate)."""
    try:
        return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
    except (TypeError, ValueError, OverflowError):
        import json

        sys.set_int_max_str_digits(0)  # numbers may have any length
        return json.dumps(data, indent=2, default=str)


def print_text(text: str) -> None:
    """Print JSON or text for a program. Characters that the output's encoding lacks are escaped as in JSON."""
    import json

    def escape(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        return json.dumps(error.object[error.start : error.end])[1:-1], error.end

    encoding = stdout().encoding or "utf-8"
    codecs.register_error("json", escape)
    echo(text.encode(encoding, "json").decode(encoding))


def counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def printable(value: Any) -> str:
    """Return the value as text without control characters."""
    text = "" if value is None else str(value)
    return "".join(char if char.isprintable() or char == "\n" else "�" for char in text)


# Questions and mistakes


def is_interactive() -> bool:
    """Return whether there is a user to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, yes: bool, to_do: str, done: str) -> None:
    """Ask the question unless `yes`. Raises if the answer is no, or there is no terminal."""
    if yes:
        return
    if not is_interactive():
        raise click.UsageError(f"There is no terminal to ask at: use --yes to {to_do}.")
    if not click.confirm(printable(question), err=True):
        raise click.ClickException(f"Nothing was {done}.")


def warn_if_short(name: str, value: str) -> None:
    """Warn about a secret that is too short to be masked reliably."""
    if is_too_short(value):
        print_note(f"Warning: {name} has fewer than {UNMISTAKABLE} characters, so it can't be masked reliably.")


def tell_running_servers(file: "Path", *, is_code: bool = False) -> None:
    """Print when running servers will use a change to this file. `is_code` means that the change starts a program."""
    reload = "SIGHUP or ot.reload()"
    when = f"reads it by itself; {RELOAD_NOTE} ({reload})"
    if is_code:
        when = f"starts new commands after a reload ({reload}), or by itself if it was started with --watch"
    print_note(f"A running server that uses {file} {when}.")


def print_mistakes(summary: str, mistakes: Sequence[Mistake]) -> None:
    echo(summary)
    if not mistakes:
        echo(click.style("No problems found.", fg="green"))
        return
    for mistake in mistakes:
        colour = "red" if mistake.severity == "error" else "yellow"
        file = mistake.file or ""
        shown = os.path.relpath(file) if os.path.isabs(file) else file
        place = file if shown.startswith("..") else shown
        place += f":{mistake.line}" if file and mistake.line else ""
        echo()
        # The place has its own line: it can be copied, and many terminals open it on a click.
        echo(click.style(mistake.severity, fg=colour, bold=True) + f"  {place}")
        for line in (f"{mistake.key}: {mistake.message}" if mistake.key else mistake.message, mistake.hint):
            if line:
                echo(f"  {printable(line)}")
    echo(f"\n{counted(len(mistakes), 'finding')}.")


# Progress


def show_progress(done: float, total: float | None, message: str | None) -> None:
    """Print progress on one line; the next report overwrites it."""
    share = f"{done:g}/{total:g}" if total else f"{done:g}"
    click.echo(f"\r\x1b[K{share} {printable(message)}", err=True, nl=bool(total and done >= total))
