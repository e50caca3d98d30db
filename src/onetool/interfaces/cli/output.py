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
    """Standard output, once it is claimed for data alone."""

    stream: TextIO | None = None


def claim_stdout() -> None:
    """Reserve standard output for results; what tools print goes to standard error.

    By file descriptor, so that a tool's child processes and compiled libraries are covered too; and for good, since
    a tool that was given up may still be printing.
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
    """Return whether colours are off: by NO_COLOR (https://no-color.org), or in a simple terminal."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def styled(text: str, **style: Any) -> str:
    """`click.style`, unless colours are off."""
    return text if is_plain() else click.style(text, **style)


def wants_json(as_json: bool) -> bool:
    return as_json or not stdout().isatty()


def print_json(data: Any, as_json: bool = True) -> None:
    """JSON, with colour where a person looks at it."""
    text = to_json(data)
    if wants_json(as_json):
        print_text(text)
        return
    _console().print_json(text)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Rows under headings; without headings where there are none to give."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(columns))
    for index, column in enumerate(columns):
        table.add_column(column, style=None if index else "bold cyan", no_wrap=not index, overflow="fold")
    for row in rows:
        # Text, not markup: a description in square brackets, or with escape codes, is shown and not obeyed.
        table.add_row(*(Text(printable(cell)) for cell in row))
    _console().print(table)


def _console() -> "Console":
    from rich.console import Console

    return Console(file=stdout(), color_system=None if is_plain() else "auto")


def to_json(data: Any) -> str:
    """JSON by msgspec, or by the standard library for values that msgspec refuses (huge numbers, lone surrogates)."""
    try:
        return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
    except (TypeError, ValueError, OverflowError):
        import json

        sys.set_int_max_str_digits(0)  # a number may be as long as it likes
        return json.dumps(data, indent=2, default=str)


def print_text(text: str) -> None:
    """JSON, or a text alone, for a program. What the encoding of this output lacks is escaped, as JSON does it."""
    encoding = stdout().encoding or "utf-8"
    codecs.register_error("json", _escaped)
    echo(text.encode(encoding, "json").decode(encoding))


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    import json

    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def printable(value: Any) -> str:
    """Text that can't do anything to a terminal."""
    text = "" if value is None else str(value)
    return "".join(char if char.isprintable() or char == "\n" else "�" for char in text)


# Mistakes


def is_interactive() -> bool:
    """Return whether somebody is there to be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, yes: bool, to_do: str, done: str) -> None:
    """Ask first, unless --yes was said. Raises if the answer is no, or nobody is there."""
    if yes:
        return
    if not is_interactive():
        raise click.UsageError(f"there is no terminal to ask at: say --yes to {to_do}.")
    if not click.confirm(printable(question), err=True):
        raise click.ClickException(f"nothing was {done}.")


def warn_if_short(name: str, value: str) -> None:
    """Warn when a secret is stored that is too short to be masked reliably."""
    if is_too_short(value):
        click.echo(
            f"Warning: {name} has fewer than {UNMISTAKABLE} characters, so it can't be masked reliably.", err=True
        )


def tell_running_servers(file: "Path", *, is_code: bool = False) -> None:
    """Say on standard error when a running server uses a change of this file. `is_code`: it starts a program."""
    way = "SIGHUP or ot.reload()"
    when = f"reads it by itself; {RELOAD_NOTE} ({way})"
    if is_code:
        when = f"starts it after a reload ({way}), and by itself only with `watch: true`"
    click.echo(printable(f"A running server that uses {file} {when}."), err=True)


def print_mistakes(summary: str, mistakes: Sequence[Mistake]) -> None:
    echo(summary)
    if not mistakes:
        echo(click.style("Nothing is wrong.", fg="green"))
        return
    for mistake in mistakes:
        colour = "red" if mistake.severity == "error" else "yellow"
        file = mistake.file or ""
        shown = os.path.relpath(file) if os.path.isabs(file) else file
        place = file if shown.startswith("..") else shown
        place += f":{mistake.line}" if file and mistake.line else ""
        echo()
        # The place on a line of its own: it can be copied, and many terminals open it on a click.
        echo(click.style(mistake.severity, fg=colour, bold=True) + f"  {place}")
        for line in (f"{mistake.key}: {mistake.message}" if mistake.key else mistake.message, mistake.hint):
            if line:
                echo(f"  {printable(line)}")
    echo(f"\n{counted(len(mistakes), 'thing')} to look at.")


# Progress


def show_progress(done: float, total: float | None, message: str | None) -> None:
    """Print progress on one line; the next report overwrites it."""
    share = f"{done:g}/{total:g}" if total else f"{done:g}"
    click.echo(f"\r\x1b[K{share} {printable(message)}", err=True, nl=bool(total and done >= total))
