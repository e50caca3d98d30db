"""A list of mistakes for a person: each with its place, what is wrong, and what to do."""

import os
from collections.abc import Sequence

import click

from onetool.core.errors import Mistake
from onetool.interfaces.cli.output import counted, echo, printable


def print_mistakes(summary: str, mistakes: Sequence[Mistake]) -> None:
    echo(summary)
    if not mistakes:
        echo(click.style("Nothing is wrong.", fg="green"))
        return
    for mistake in mistakes:
        colour = "red" if mistake.severity == "error" else "yellow"
        echo()
        # The place on a line of its own: it can be copied, and many terminals open it on a click.
        echo(click.style(mistake.severity, fg=colour, bold=True) + f"  {_place(mistake)}")
        for line in (f"{mistake.key}: {mistake.message}" if mistake.key else mistake.message, mistake.hint):
            if line:
                echo(f"  {printable(line)}")
    echo(f"\n{counted(len(mistakes), 'thing')} to look at.")


def _place(mistake: Mistake) -> str:
    if mistake.file is None:
        return ""
    shown = os.path.relpath(mistake.file) if os.path.isabs(mistake.file) else mistake.file
    shown = mistake.file if shown.startswith("..") else shown
    return f"{shown}:{mistake.line}" if mistake.line else shown
