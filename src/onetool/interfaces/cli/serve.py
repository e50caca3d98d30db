"""`onetool mcp` and `onetool serve`: start the MCP server on standard input and output, or the HTTP server."""

import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from threading import Thread
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.shell_completion import CompletionItem

from onetool.app import App
from onetool.config import Config
from onetool.config.model import BARE
from onetool.config.stateful import refuse_stateful_servers
from onetool.core.errors import ConfigError, OneToolError
from onetool.interfaces.cli.options import MENUS, allow_option, config_option, open_app
from onetool.interfaces.cli.output import echo, stdout
from onetool.services.logs import make_log_non_blocking
from onetool.sources.mcp_servers.settings import PlacedServer, pack_name

if TYPE_CHECKING:
    from onetool.interfaces.http.listen import BoundAddress

HOST_HELP = "The address to listen on. Default: as in the config, else 127.0.0.1."
DRAIN_HELP = "Seconds to keep accepting requests after SIGTERM. The default is 5 in a cluster, else 0."
PORT_HELP = "The port. Default: as in the config, else 8765. With 0, the system chooses."
MENU_HELP = "What clients see: run (one tool that runs code), search, or direct. Default: as in the config."
WATCH_HELP = "Reload everything when files change, not only settings."
NAME_HELP = "The name of the server after --. The default is the name of the package that the command starts."
OPEN_HELP = "Open the page in a browser, as its owner."
BARE_HELP = "Serve only the MCP server after --, under its own names: for one that keeps state, beside your replicas."
WORKERS_HELP = "The number of processes, to use several cores. The default is 1, or ONETOOL_WORKERS."


def serving_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that `serve` and `mcp` share, and pass the context."""
    for option in (
        config_option,
        click.option("--name", metavar="NAME", help=NAME_HELP),
        click.option("--watch", is_flag=True, help=WATCH_HELP),
        allow_option,
        click.option("--menu", type=click.Choice(MENUS), help=MENU_HELP),
    ):
        command = option(command)
    return command


class ServingCommand(click.Command):
    """A command that takes the command line of an MCP server after `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else None
        server = None if at is None else args[at + 1 :]
        try:
            rest = super().parse_args(ctx, args[:at])
        except click.UsageError as error:
            if at is not None or "unexpected extra argument" not in error.message:
                raise
            message = f"{error.message}. To serve an MCP server, put -- before its command."
            raise click.UsageError(message, ctx) from None
        ctx.params["server"] = server
        if ctx.params["name"] is not None and server is None and not ctx.resilient_parsing:
            raise click.UsageError("--name is for a server after --: onetool serve --name time -- uvx mcp-server-time")
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND [ARGS]...]"]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        server = ctx.params["server"]
        if server is None:
            return super().shell_complete(ctx, incomplete)
        runners = [] if server else [one for one in ("uvx", "npx", "python", "node") if one.startswith(incomplete)]
        return [CompletionItem(one) for one in runners] or [CompletionItem(incomplete, type="file")]


@click.command(cls=ServingCommand)
@click.option("--host", metavar="HOST", help=HOST_HELP)
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help=PORT_HELP)
@click.option(
    "--workers", type=click.IntRange(1, 64), metavar="N", default=1, envvar="ONETOOL_WORKERS", help=WORKERS_HELP
)
@click.option("--bare", is_flag=True, help=BARE_HELP)
@click.option("--open", "opens", is_flag=True, help=OPEN_HELP)
@click.option("--drain-s", type=click.FloatRange(0, 3600), metavar="N", envvar="ONETOOL_DRAIN_S", help=DRAIN_HELP)
@serving_options
def serve(
    ctx: click.Context,
    host: str | None,
    port: int | None,
    workers: int,
    bare: bool,
    opens: bool,
    drain_s: float | None,
    menu: str | None,
    allowed: list[str] | None,
    watch: bool,
    name: str | None,
    server: list[str] | None,
) -> None:
    """Serve MCP and REST over HTTP. Ctrl-C or SIGTERM stops the server; SIGHUP reloads.

    A command after `--` starts an MCP server to serve as well as those of the config. It is not stored.

    MCP is at /mcp. The server listens on this machine only. Any other host needs a credential: http.token or
    http.jwt in the config, or a token made by `onetool tokens add`.
    """
    _ignore_hang_up()
    early_stop = EarlyStop()
    if host == "":
        raise click.BadParameter("must not be empty; leave it out to listen on this machine only.", param_hint="--host")
    if bare and (server is None or menu is not None or workers > 1):
        message = "--bare serves one MCP server from one process, without --menu"
        raise click.UsageError(f"{message}: onetool serve --bare -- node server.js")
    servers = _servers_of(server, name, bare)
    order = None
    if workers > 1:
        from onetool.interfaces.http.workers import own_order

        if (order := own_order()) is None:
            _start_workers(ctx, host, port, workers, allowed, servers)
            return
    if bare:
        menu, allowed = BARE, allowed or [f"{pack_name(*one)}.*" for one in servers.items()]
    app = open_app(ctx, allowed, watch=watch, makes_tables=True, servers=servers)
    from onetool.interfaces.http.serve import serve_app

    if app.config.cluster is not None and app.config.database is not None:
        app.config.cluster.require("key")
    address = _bound(app, host, port) if order is None else order.address
    greet = _printer(app.config, address.url, servers, opens) if order is None or order.greets else lambda _text: None
    options = {"menu": menu, "allowed": allowed, "drain_s": drain_s}
    secret = None if order is None else order.secret
    ended_by = serve_app(app, address, print_line=early_stop.then(greet), worker_secret=secret, **options)
    early_stop.listen()  # while the app closes: the server has removed its own handler
    if ended_by == signal.SIGINT:
        raise KeyboardInterrupt


def _ignore_hang_up() -> None:
    """Ignore SIGHUP until the server can handle it as a reload."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _bound(app: App, host: str | None, port: int | None) -> "BoundAddress":
    from onetool.interfaces.http.serve import bind_address

    http = app.config.http
    return bind_address(app, host or http.host, http.port if port is None else port)


def _start_workers(
    ctx: click.Context,
    host: str | None,
    port: int | None,
    count: int,
    allowed: list[str] | None,
    servers: dict[str, PlacedServer],
) -> None:
    """Check the config without running any of it, bind the sockets, and serve on them with several processes."""
    from onetool.interfaces.http.workers import Workers

    app = open_app(ctx, allowed, imports=False, makes_tables=True, servers=servers)
    if app.config.cluster is not None:
        raise click.UsageError("A replica of a cluster has one worker: start a replica for each core instead.")
    refuse_stateful_servers(app.config)
    address = _bound(app, host, port)
    app.close()
    for name in ("onetool.serve", "onetool.watch"):
        logging.getLogger(name).setLevel(logging.INFO)
    if Workers(count, address, stdout().fileno()).run() == signal.SIGINT:
        raise KeyboardInterrupt


def _servers_of(words: list[str] | None, name: str | None, is_bare: bool = False) -> dict[str, PlacedServer]:
    """Return the server after `--`, if there is one."""
    if words is None:
        return {}
    from onetool.sources.mcp_servers.command_line import server_of

    try:
        return server_of(words, name, is_bare)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None


def _printer(config: Config, url: str, servers: dict[str, PlacedServer], opens: bool) -> Callable[[str], None]:
    """Return a function that prints the greeting, and the log file of the server after `--`.

    At a terminal, a link to the page comes first. With `opens`, a browser opens the link.
    """
    about = "".join(
        f"\n{name} is starting: its tools are {name}.…{' (over MCP without this prefix)' if server.is_bare else ''}, "
        f"its log is {config.home / 'servers' / f'{name}.log'}\n"
        for name, server in servers.items()
    )

    def print_all(greeting: str) -> None:
        from onetool.interfaces.cli.page import LINK_NOTE, new_link, open_in_browser

        is_shown, link = stdout().isatty(), None
        with suppress(OneToolError, OSError):  # the server also works without a link
            link = new_link(config, url) if is_shown or opens else None
        if opens and link is None:
            click.echo("--open: there is no link to this server. Open its page, and sign in with a token.", err=True)
        elif opens:  # a browser in the terminal runs until the user leaves it
            Thread(target=open_in_browser, args=(config, link), daemon=True).start()
        shown = f"{LINK_NOTE}\n  {link}\n" if link is not None and is_shown else ""
        text = f"{shown}{greeting}{about}"
        if stdout().isatty():
            first, *rest = text.splitlines()
            lines = (line if line.startswith(" ") else click.style(line, bold=True) for line in rest)
            text = "\n".join((click.style(first, fg="green", bold=True), *lines))
        with suppress(OSError):  # nobody may be reading our output
            echo(text)

    return print_all


class EarlyStop:
    """A SIGTERM handler that ends the process while the server, without its own handler, starts or closes."""

    def __init__(self) -> None:
        self._is_asked = False
        self.listen()

    def listen(self) -> None:
        signal.signal(signal.SIGTERM, self._exit)

    def _exit(self, _signal: int, _frame: object) -> NoReturn:
        self._is_asked = True
        sys.exit(0)

    def then(self, print_line: Callable[[str], None]) -> Callable[[str], None]:
        """Wrap `print_line` to stop a server whose start has swallowed the exit, as imports of C code may."""

        def started(text: str) -> None:
            if self._is_asked:
                os.kill(os.getpid(), signal.SIGTERM)
            else:
                print_line(text)

        return started


# `onetool mcp`: the MCP server on standard input and output.


@click.command(cls=ServingCommand)
@serving_options
def mcp(
    ctx: click.Context,
    menu: str | None,
    allowed: list[str] | None,
    watch: bool,
    name: str | None,
    server: list[str] | None,
) -> None:
    """Serve the tools to an MCP client over stdio.

    A command after `--` starts an MCP server to serve as well as those of the config. It is not stored.

    The client starts this command: see `onetool init --client`. The server stops when the client closes the pipe.
    SIGHUP reloads.
    """
    import asyncio
    import gc

    _ignore_hang_up()
    if sys.stdin.isatty():
        click.echo("MCP clients start this command; it waits for their messages. Ctrl-D ends it.", err=True)
    # Tools and their children must read nothing from standard input: move it to another descriptor.
    source = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    app = open_app(ctx, allowed, watch=watch, servers=_servers_of(server, name))
    app.follow_settings()
    from onetool.app.telemetry import start_telemetry
    from onetool.interfaces.mcp.service import Service
    from onetool.interfaces.mcp.stdio import serve
    from onetool.interfaces.watchdog import Watchdog

    def warm() -> None:
        app.runtime.warm()
        app.catalog.warm_search()

    async def run() -> None:
        with ExitStack() as at_end:
            if (end_telemetry := start_telemetry(app.config, app.runtime.recorder)) is not None:
                at_end.callback(end_telemetry)
            at_end.callback(Watchdog().close)
            service = Service(app, menu, allowed)
            at_end.callback(service.close)
            await serve(service, source, stdout().fileno(), warm)

    make_log_non_blocking()  # not every client reads standard error
    gc.freeze()  # objects made so far stay; from now on, garbage is collected as usual
    gc.set_threshold(700, 10, 10)
    asyncio.run(run())
