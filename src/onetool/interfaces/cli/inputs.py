"""Reads what a user passes to a command: the bytes of a file, of standard input or of a URL, and JSON or YAML data.

Standard input may be a pipe without a writer: an editor or a scheduler can keep one open. At a terminal, a line says
that the command waits. Elsewhere, data must arrive within some seconds, unless `-` asks for it.
"""

import errno
import os
import select
import stat
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import click

from onetool.core.errors import OneToolError
from onetool.core.os_files import MAX_INPUT_BYTES, NO_WAIT, PLAIN

if TYPE_CHECKING:
    from onetool.app import App

STDIN = "-"
MAX_TEXT_BYTES = 4 * 1024 * 1024  # of code, and of arguments

Wrong = Callable[[str], click.ClickException]
"""A function that makes an error from a message."""


def is_url(name: str) -> bool:
    return name.lower().startswith(("http://", "https://"))


def read_bytes(name: str) -> bytes:
    return _read_bounded(name, MAX_INPUT_BYTES, click.ClickException, click.ClickException, only_regular=True)


def read_text(name: str) -> str:
    return _decoded(read_bytes(name), name, click.ClickException)


def read_input(name: str, wrong: Wrong, unreadable: Wrong = click.UsageError) -> str:
    """Return the text of any file, or of standard input: at most MAX_TEXT_BYTES, in UTF-8."""
    return _decoded(_read_bounded(name, MAX_TEXT_BYTES, wrong, unreadable), name, wrong)


def _read_bounded(name: str, limit: int, wrong: Wrong, unreadable: Wrong, only_regular: bool = False) -> bytes:
    try:
        if name == STDIN:
            data = read(limit)
        else:
            refusal = click.ClickException(f"{name} is not a regular file. To read from a pipe, use -")
            with open_regular_file(name, refusal) if only_regular else open(name, "rb") as stream:
                data = stream.read(limit + 1)
    except OSError as error:
        raise unreadable(f"can't read {name}: {error.strerror}.") from None
    if len(data) > limit:
        raise wrong(f"{shown_name(name)} is larger than {limit // 1024**2} MiB.")
    return data


def _decoded(data: bytes, name: str, wrong: Wrong) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise wrong(f"{shown_name(name)} is not UTF-8 (byte {error.start}).") from None


def open_regular_file(name: str, refusal: Exception) -> BinaryIO:
    """Open a regular file. Raises `refusal` for pipes and devices, which might block.

    The type of a file is only certain once it is open.
    """
    handle = os.open(name, os.O_RDONLY | NO_WAIT | PLAIN)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise refusal


def read_data(name: str) -> Any:
    """Parse JSON (comments allowed) or YAML; the first character decides which."""
    from onetool.config.client_files import JsoncError
    from onetool.config.server_import import translate

    text = read_text(name)
    try:
        return translate.read_data(text, ".json" if text.lstrip()[:1] in ("{", "[", "/") else ".yaml")
    except JsoncError as why:
        raise click.ClickException(f"{shown_name(name)}: {why}.") from None


def fetch_url(app: "App", address: str) -> bytes:
    """Download a URL from an allowed host with the HTTP tools' client."""
    import asyncio

    from onetool.app.bundle_import import fetch_document

    try:
        return asyncio.run(fetch_document(app, address))
    except OneToolError as error:
        raise click.ClickException(str(error)) from None


def shown_name(name: str) -> str:
    return "standard input" if name == STDIN else name


# Standard input

INPUT_TIMEOUT = 5.0  # seconds, without a terminal
QUIET = 1.5  # seconds, until a line says that the command waits


def is_piped() -> bool:
    """Return whether standard input is a pipe, a socket or a file: not a terminal or /dev/null."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # no standard input
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def has_input() -> bool:
    """Return whether standard input has data or has ended."""
    if not sys.stderr.isatty():
        return has_data(sys.stdin, INPUT_TIMEOUT)
    if not has_data(sys.stdin, QUIET):
        click.echo("Reading standard input, until it ends …", err=True)
    return True


def print_prompt(what: str) -> None:
    """Tell the user at the terminal that input is expected."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        click.echo(f"Type {what}; Ctrl-D ends it.", err=True)


def read(limit: int) -> bytes:
    """Return standard input, up to one byte more than `limit`."""
    return sys.stdin.buffer.read(limit + 1)


def has_data(source: TextIO | int, seconds: float) -> bool:
    """Wait for at most `seconds`, and return whether a stream or descriptor has something to read."""
    try:
        return bool(select.select([source], [], [], seconds)[0])
    except (OSError, ValueError):  # not every system supports this, and not every stream has a descriptor
        return True
