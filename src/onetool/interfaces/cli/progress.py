"""How far a tool has come, on one line of the terminal."""

import click

from onetool.interfaces.cli.output import printable


def show_progress(done: float, total: float | None, message: str | None) -> None:
    """The next report overwrites it."""
    share = f"{done:g}/{total:g}" if total else f"{done:g}"
    click.echo(f"\r\x1b[K{share} {printable(message)}", err=True, nl=bool(total and done >= total))
