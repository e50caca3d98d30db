"""`onetool mcp`: the MCP server on standard input and output."""

import os
import sys

import click

from onetool.interfaces.cli.options import (
    allow_option,
    config_option,
    ignore_hang_up,
    menu_option,
    open_app,
    watch_option,
)
from onetool.interfaces.cli.output import stdout


@click.command()
@menu_option
@allow_option
@watch_option
@config_option
@click.pass_context
def mcp(ctx: click.Context, menu: str | None, allowed: list[str] | None, watch: bool) -> None:
    """Serve all tools to an MCP client, on standard input and output.

    Started by the client: see `onetool init --client`. Ends when the client closes its end. SIGHUP reloads.
    """
    import asyncio
    import gc

    ignore_hang_up()
    if sys.stdin.isatty():
        click.echo("This is for an MCP client to start; it waits for messages. Ctrl-D ends it.", err=True)
    source = _claim_stdin()
    app = open_app(ctx, allowed)
    app.watches = watch
    from onetool.interfaces.mcp.service import Service
    from onetool.interfaces.mcp.stdio import serve
    from onetool.interfaces.patient_log import make_log_patient
    from onetool.interfaces.watchdog import Watchdog

    async def run() -> None:
        service, dog = Service(app, menu, allowed), Watchdog()
        try:
            await serve(service, source, stdout().fileno(), app.warm)
        finally:
            service.close()
            dog.close()

    make_log_patient()  # not every client reads what a server has to say beside the protocol
    gc.freeze()  # what was made until here stays; from now on garbage is collected as usual
    gc.set_threshold(700, 10, 10)
    asyncio.run(run())


def _claim_stdin() -> int:
    """The client's messages are ours alone: what a tool reads, or a command that it starts, is empty."""
    source = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return source
