"""`onetool serve`: the HTTP server. What it says about itself goes to standard output, its log to standard error."""

import signal
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import click

from onetool.core.errors import ConfigError, Mistake
from onetool.interfaces.cli.options import config_option, open_app
from onetool.interfaces.cli.output import echo

if TYPE_CHECKING:
    from onetool.app import App

HOST = "Where to listen. 127.0.0.1, unless the config says something else."
PORT = "Which port. 8765, unless the config says something else; 0 lets the system choose."
MENU = "What clients see: run (one tool that runs code), search (find and call), direct (every tool)."


@click.command()
@click.option("--host", metavar="HOST", help=HOST)
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help=PORT)
@click.option("--menu", type=click.Choice(("run", "search", "direct")), help=MENU)
@config_option
@click.pass_context
def serve(ctx: click.Context, host: str | None, port: int | None, menu: str | None) -> None:
    """Serve MCP over HTTP, at /mcp, until Ctrl-C or SIGTERM.

    It listens on this machine only. Any other host needs a token: http.token in the config.
    """
    signal.signal(signal.SIGTERM, _leave)  # while it starts and while it closes; in between the server has its own
    if host == "":
        raise click.BadParameter("it is empty; leave it out to listen on this machine only.", param_hint="--host")
    app = open_app(ctx)
    http = app.config.http
    if _serve(app, host or http.host, http.port if port is None else port, menu) == signal.SIGINT:
        raise KeyboardInterrupt


def _serve(app: "App", host: str, port: int, menu: str | None) -> int:
    """Returns the signal that ended it."""
    from onetool.interfaces.http import access
    from onetool.interfaces.http.greeting import greeting
    from onetool.interfaces.http.listen import is_loopback, listen, resolve
    from onetool.interfaces.http.patient_log import make_log_patient
    from onetool.interfaces.http.routes import facts_of, reload_site, site_of
    from onetool.interfaces.http.server import serve as serve_site
    from onetool.interfaces.mcp.http import McpOverHttp

    addresses = resolve(host)
    if app.config.http.token is None and not is_loopback(address for _, address in addresses):
        raise _without_token(app, host)
    place = listen(host, port, addresses)
    make_log_patient()
    access.log.setLevel("INFO" if app.config.http.access_log else "CRITICAL")
    mcp = McpOverHttp(app, menu=menu)
    site = site_of(app, place, mcp, menu)

    def started() -> None:
        with suppress(OSError):  # whoever started us may not be listening
            echo(greeting(facts_of(app, place, menu)))

    return serve_site(site, place, started=started, reload=partial(reload_site, app, place, site, mcp))


def _without_token(app: "App", host: str) -> ConfigError:
    message = f"a server on {host} can be reached from other machines, so it needs a token"
    hint = "set http: {token: ${ONETOOL_TOKEN}} and keep a long random value: onetool auth set ONETOOL_TOKEN"
    file = str(app.config.path) if app.config.path else None
    return ConfigError([Mistake(message=message, file=file, key="http.token", hint=hint)])


def _leave(_signal: int, _frame: object) -> NoReturn:
    sys.exit(0)
