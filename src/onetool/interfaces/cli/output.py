"""Printing: tables, colour and highlighted JSON for a person at a terminal; JSON and nothing else for a program."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
import msgspec


@contextmanager
def quiet_stdout() -> Iterator[None]:
    """Send whatever tools print to standard error: standard output carries data, and nothing else.

    By file descriptor, so that a tool's child processes and compiled libraries are covered too.
    """
    sys.stdout.flush()
    ours = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(ours, 1)
        os.close(ours)


def wants_json(as_json: bool) -> bool:
    return as_json or not sys.stdout.isatty()


def print_json(data: Any, as_json: bool = True) -> None:
    """JSON, with colour where a person looks at it."""
    text = to_json(data)
    if wants_json(as_json):
        click.echo(text)
        return
    from rich.console import Console

    Console().print_json(text)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Rows under headings; without headings where there are none to give."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(columns))
    for index, column in enumerate(columns):
        table.add_column(column, style=None if index else "bold cyan", no_wrap=not index, overflow="fold")
    for row in rows:
        # Text, not markup: a description in square brackets, or with escape codes, is shown and not obeyed.
        table.add_row(*(Text(printable(cell)) for cell in row))
    Console().print(table)


def to_json(data: Any) -> str:
    """msgspec is fast and loaded anyway; what it refuses (huge numbers, lone surrogates) the standard library takes."""
    try:
        return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
    except (TypeError, ValueError, OverflowError):
        import json

        return json.dumps(data, indent=2, default=str)


def counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def printable(value: Any) -> str:
    """Text that can't do anything to a terminal."""
    text = "" if value is None else str(value)
    return "".join(char if char.isprintable() or char == "\n" else "�" for char in text)
