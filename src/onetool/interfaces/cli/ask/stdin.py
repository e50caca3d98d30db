"""Standard input, for a command that may be given something there and need not be. It is never waited for in vain.

A pipe may be one that nobody will ever write to: an editor, a scheduler or a program that starts us keeps it open. Who
sits at a terminal is told that we wait, and can end it. With nobody there, something has to come within some seconds,
if it was not asked for by name.
"""

import os
import select
import stat
import sys

import click

PATIENCE = 5.0  # seconds, with nobody there
QUIET = 1.5  # seconds, before a person is told


def is_piped() -> bool:
    """Whether it is a pipe, a socket or a file. A terminal is for typing, and /dev/null has nothing."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # there is none
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def comes() -> bool:
    """Whether anything comes, be it the end: then it can be read."""
    if not sys.stderr.isatty():
        return _ready(PATIENCE)
    if not _ready(QUIET):
        click.echo("Reading standard input, until it ends …", err=True)
    return True


def invite(what: str) -> None:
    """Who sits there sees that it is their turn."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        click.echo(f"Type {what}; Ctrl-D ends it.", err=True)


def read(most: int) -> bytes:
    """All of it, but no more than one byte over `most`."""
    return sys.stdin.buffer.read(most + 1)


def _ready(seconds: float) -> bool:
    try:
        return bool(select.select([sys.stdin.fileno()], [], [], seconds)[0])
    except (OSError, ValueError):  # not every system can tell
        return True
