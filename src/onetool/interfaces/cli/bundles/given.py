"""What somebody gives: the bytes of a file, of standard input or of a URL; data in JSON or YAML."""

import errno
import os
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
    """Of a file, or of standard input."""
    try:
        if name == STDIN:
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with _regular(name) as stream:
                data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise click.ClickException(printable(f"can't read {name}: {error.strerror}.")) from None
    if len(data) > MOST_BYTES:
        raise click.ClickException(printable(f"{named(name)} is larger than {MOST_BYTES // 1024**2} MiB."))
    return data


def _regular(name: str) -> BinaryIO:
    """Of anything else nobody knows whether it begins or ends. Which it is, is seen for sure only once it is open."""
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
        raise click.ClickException(printable(f"{named(name)} is not UTF-8 (byte {error.start}).")) from None


def read_data(name: str) -> Any:
    """JSON, also with comments, or YAML: what it begins with says which."""
    from onetool.interfaces.cli.clients.json_text import Unreadable
    from onetool.interfaces.cli.importing import reading

    text = read_text(name)
    try:
        return reading.read_data(text, ".json" if text.lstrip()[:1] in ("{", "[", "/") else ".yaml")
    except Unreadable as why:
        raise click.ClickException(printable(f"{named(name)}: {why}.")) from None


def fetch(app: "App", address: str) -> bytes:
    """What a URL gives, from a host that is allowed; by the client of HTTP tools."""
    import asyncio

    from onetool.core.errors import ToolFailure
    from onetool.handlers.http.outgoing import Outgoing
    from onetool.handlers.http.url import parse_url

    outside = app.outside
    try:
        headers = [("Accept", "application/json, application/yaml, application/zip, */*;q=0.5")]
        outgoing = Outgoing("GET", parse_url(address), headers, b"")
        answer = asyncio.run(outside.client.send(outgoing, outside.hosts, timeout=SECONDS, max_bytes=MOST_BYTES))
    except ToolFailure as failure:
        raise click.ClickException(printable("\n".join([f"{address}: {failure}", *failure.hints]))) from None
    if 300 <= answer.status < 400 and (elsewhere := answer.headers.get("location")):
        raise click.ClickException(printable(f"{address} leads elsewhere: import {elsewhere}, if you trust that."))
    if answer.status != 200:
        raise click.ClickException(printable(f"{address} answers with the status {answer.status}."))
    return answer.body


def named(name: str) -> str:
    return "standard input" if name == STDIN else name
