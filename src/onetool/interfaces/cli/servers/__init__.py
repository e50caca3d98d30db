"""`onetool servers`: tests the configured MCP servers. Most other commands are operations.

edit   import and add: servers in the config file (`onetool.config.server_import`)
"""

from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from onetool.app.operations.servers import no_servers, problem_lines
from onetool.interfaces.cli.operations import add_to
from onetool.interfaces.cli.options import data_options, open_app
from onetool.interfaces.cli.output import counted, echo, print_json, print_note, print_table, printable, wants_json
from onetool.interfaces.cli.servers.edit import add, complete_server, import_servers, unknown_server

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.sources.mcp_servers.servers import Servers, ServerStatus

LOG_LINES = 10  # lines of a server that failed
PROGRESS_SECONDS = 3.0  # between two lines about a server that is slow to start
COLOURS = {"connected": "green", "disconnected": "red", "connecting": "yellow"}


@click.group(no_args_is_help=True)
def servers() -> None:
    """Manage MCP servers whose tools you use."""


for command in (import_servers, add):
    servers.add_command(command)
add_to(servers, "server_config")


@servers.command()
@click.argument("name", required=False, shell_complete=complete_server)
@data_options
def test(ctx: click.Context, name: str | None, as_json: bool) -> None:
    """Connect to one server, or to all of them. Shows what each offers. The exit code is 1 if one can't be reached."""
    app = open_app(ctx, imports=False)
    if app.servers is None:
        if name is not None:
            raise click.ClickException(f"There is no server {printable(name)}. {no_servers(app)}")
        _print_none(app, as_json)
        return
    found = _tested(app, app.servers, name)
    if wants_json(as_json):
        print_json(found if name is None else found[0])
    else:
        for result in found:
            state = click.style(result["state"], fg=COLOURS.get(result["state"]), bold=True)
            took = "" if result["state"] == "disabled" else f" in {result['seconds']:.2f} s"
            echo(f"{printable(result['name'])}: {state}{took}  {printable(result['version'] or '')}")
            echo(f"  {printable(result['target'])}")
            if result["error"]:
                echo(click.style(printable(f"  {result['error']}").replace("\n", "\n  "), fg="yellow"))
            for line in result["log"]:
                echo(f"  | {printable(line)}")
            if result["tools"]:
                rows = [(tool["name"], tool["description"]) for tool in result["tools"]]
                print_table(counted(len(rows), "tool"), ("tool", "description"), rows)
    wanted = [one for one in found if name is not None or one["state"] != "disabled"]
    ctx.exit(0 if all(one["ok"] for one in wanted) else 1)


# Helpers


def _run(work: Any) -> Any:
    import asyncio

    return asyncio.run(work)


def _named(app: "App", name: str) -> "Servers":
    """Return the servers. Raises ClickException if none of them has this name."""
    if app.servers is None or name not in app.servers.names():
        raise unknown_server(name, [] if app.servers is None else app.servers.names())
    return app.servers


def _status(known: "Servers", name: str) -> "ServerStatus":
    return next(status for status in known.statuses() if status.name == name)


def _tested(app: "App", known: "Servers", name: str | None) -> list[dict[str, Any]]:
    """Connect the servers in parallel, and time each. Prints the slow ones."""
    import asyncio

    names = known.names() if name is None else [name]
    for one in names:
        _named(app, one)
    waiting = dict.fromkeys(names)

    async def timed(one: str) -> float:
        began = monotonic()
        await known.wait_connected([one])
        del waiting[one]
        return round(monotonic() - began, 3)

    async def print_progress() -> None:
        began, positions = monotonic(), {one: known.log_after(one, "", 1)[1] for one in names}
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            for one in waiting:
                lines, positions[one] = known.log_after(one, positions[one], 1)
                last = f": {lines[0]}" if lines else ""
                print_note(f"{one}: still starting after {monotonic() - began:.0f} s{last}")

    async def all_of_them() -> list[float]:
        progress = asyncio.create_task(print_progress())
        try:
            return await asyncio.gather(*map(timed, names))
        finally:
            progress.cancel()

    return [_result(app, known, one, seconds) for one, seconds in zip(names, _run(all_of_them()), strict=True)]


def _result(app: "App", known: "Servers", name: str, seconds: float) -> dict[str, Any]:
    status = _status(known, name)
    is_up = status.state == "connected"
    specs = [spec for spec in app.catalog.registry if spec.source == f"proxy:{name}"] if is_up else []
    return {
        "name": name,
        "ok": is_up and not status.refused,
        "state": status.state,
        "seconds": seconds,
        "transport": status.transport,
        "target": status.target,
        "version": status.version,
        "error": problem_lines(status) or None,
        "tools": [{"name": spec.name, "description": spec.description.strip().partition("\n")[0]} for spec in specs],
        "log": [] if is_up else known.log_lines(name, LOG_LINES),
    }


def _print_none(app: "App", as_json: bool) -> None:
    if wants_json(as_json):
        print_json([])
        click.echo(no_servers(app), err=True)
    else:
        echo(no_servers(app))
