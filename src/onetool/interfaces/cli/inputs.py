"""Reads what a user passes to a command: the bytes of a file, of standard input or of a URL, and JSON or YAML data.

Standard input may be a pipe that nobody will ever write to: an editor or a scheduler can keep one open. At a terminal
the user is told that the command waits; without one, data must arrive within some seconds unless it was asked for by
name.
"""

import errno
import os
import select
import stat
import sys
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from onetool.interfaces.cli.output import printable

if TYPE_CHECKING:
    from onetool.app import App


MOST_BYTES = 64 * 1024**2  # who takes it has limits of its own
STDIN = "-"
SECONDS = 60.0


def is_url(name: str) -> bool:
    return name.lower().startswith(("http://", "https://"))


def read_bytes(name: str) -> bytes:
    """The bytes of a file, or of standard input."""
    try:
        if name == STDIN:
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with _opened_regular_file(name) as stream:
                data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise click.ClickException(printable(f"can't read {name}: {error.strerror}.")) from None
    if len(data) > MOST_BYTES:
        raise click.ClickException(printable(f"{shown_name(name)} is larger than {MOST_BYTES // 1024**2} MiB."))
    return data


def _opened_regular_file(name: str) -> BinaryIO:
    """Open a regular file; pipes and devices might block. Its type is only certain once it is open."""
    handle = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise click.ClickException(printable(f"{name} is no regular file. What comes out of a pipe is read as -"))


def read_text(name: str) -> str:
    try:
        return read_bytes(name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.ClickException(printable(f"{shown_name(name)} is not UTF-8 (byte {error.start}).")) from None


def read_data(name: str) -> Any:
    """JSON (comments allowed) or YAML, by its first character."""
    from onetool.interfaces.cli.clients.jsonc import JsoncError
    from onetool.interfaces.cli.servers import translate

    text = read_text(name)
    try:
        return translate.read_data(text, ".json" if text.lstrip()[:1] in ("{", "[", "/") else ".yaml")
    except JsoncError as why:
        raise click.ClickException(printable(f"{shown_name(name)}: {why}.")) from None


def fetch_url(app: "App", address: str) -> bytes:
    """Download a URL from an allowed host with the HTTP tools' client."""
    import asyncio

    from onetool.core.errors import ToolFailure
    from onetool.http.url import HttpRequest, parse_url

    outside = app.runtime.http_context
    try:
        headers = [("Accept", "application/json, application/yaml, application/zip, */*;q=0.5")]
        request = HttpRequest("GET", parse_url(address), headers, b"")
        answer = asyncio.run(outside.client.send(request, outside.hosts, timeout=SECONDS, max_bytes=MOST_BYTES))
    except ToolFailure as failure:
        raise click.ClickException(printable("\n".join([f"{address}: {failure}", *failure.hints]))) from None
    if 300 <= answer.status < 400 and (elsewhere := answer.headers.get("location")):
        raise click.ClickException(printable(f"{address} leads elsewhere: import {elsewhere}, if you trust that."))
    if answer.status != 200:
        raise click.ClickException(printable(f"{address} answers with the status {answer.status}."))
    return answer.body


def shown_name(name: str) -> str:
    return "standard input" if name == STDIN else name


# Standard input


PATIENCE = 5.0  # seconds, with nobody there
QUIET = 1.5  # seconds, before a person is told


def is_piped() -> bool:
    """Whether it is a pipe, a socket or a file. A terminal is for typing, and /dev/null has nothing."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # there is none
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def has_input() -> bool:
    """Whether standard input has data or has ended."""
    if not sys.stderr.isatty():
        return _ready(PATIENCE)
    if not _ready(QUIET):
        click.echo("Reading standard input, until it ends …", err=True)
    return True


def print_prompt(what: str) -> None:
    """Tell the user at the terminal that input is expected."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        click.echo(f"Type {what}; Ctrl-D ends it.", err=True)


def read(most: int) -> bytes:
    """All bytes of standard input, but at most one more than `most`."""
    return sys.stdin.buffer.read(most + 1)


def _ready(seconds: float) -> bool:
    try:
        return bool(select.select([sys.stdin.fileno()], [], [], seconds)[0])
    except (OSError, ValueError):  # not every system can tell
        return True
