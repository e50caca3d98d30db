"""`onetool serve`: the HTTP server. What it says about itself goes to standard output, its log to standard error."""

import signal
import sys
from contextlib import suppress
from typing import NoReturn

import click

from onetool.interfaces.cli.options import (
    allow_option,
    config_option,
    ignore_hang_up,
    menu_option,
    open_app,
    watch_option,
)
from onetool.interfaces.cli.output import echo, stdout

HOST = "Where to listen. 127.0.0.1, unless the config says something else."
PORT = "Which port. 8765, unless the config says something else; 0 lets the system choose."


@click.command()
@click.option("--host", metavar="HOST", help=HOST)
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help=PORT)
@menu_option
@allow_option
@watch_option
@config_option
@click.pass_context
def serve(
    ctx: click.Context, host: str | None, port: int | None, menu: str | None, allowed: list[str] | None, watch: bool
) -> None:
    """Serve MCP over HTTP, at /mcp, until Ctrl-C or SIGTERM. SIGHUP reloads.

    It listens on this machine only. Any other host needs a token: http.token in the config.
    """
    ignore_hang_up()
    signal.signal(signal.SIGTERM, _leave)  # while it starts
    if host == "":
        raise click.BadParameter("it is empty; leave it out to listen on this machine only.", param_hint="--host")
    app = open_app(ctx, allowed)
    app.watches = watch
    from onetool.interfaces.http.start import serve_app

    http = app.config.http
    port = http.port if port is None else port
    ended_by = serve_app(app, host or http.host, port, menu=menu, allowed=allowed, say=_say)
    signal.signal(signal.SIGTERM, _leave)  # while it closes; the server had its own, and took it away
    if ended_by == signal.SIGINT:
        raise KeyboardInterrupt


def _say(text: str) -> None:
    """Headlines stand out on a terminal; the rest is for copying."""
    if stdout().isatty():
        first, *rest = text.splitlines()
        lines = (line if line.startswith(" ") else click.style(line, bold=True) for line in rest)
        text = "\n".join((click.style(first, fg="green", bold=True), *lines))
    with suppress(OSError):  # whoever started us may not be listening
        echo(text)


def _leave(_signal: int, _frame: object) -> NoReturn:
    sys.exit(0)
