"""`onetool servers`: shows, tests and logs in to the configured MCP servers.

edit   import, add, rename, remove, enable and disable: servers in the config file (`onetool.config.server_import`)
"""

from time import monotonic
from typing import TYPE_CHECKING, Any

import click
import msgspec

from onetool.interfaces.cli.options import config_option, data_options, noted, open_app
from onetool.interfaces.cli.output import counted, echo, print_json, print_note, print_table, printable, wants_json
from onetool.interfaces.cli.servers.edit import (
    add,
    complete_server,
    disable,
    enable,
    import_servers,
    remove,
    rename,
    server_argument,
    unknown_server,
)

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.sources.mcp_servers.servers import Servers, ServerStatus

NO_SERVERS = "No servers are configured. Add one: onetool servers import, or onetool servers add NAME -- COMMAND"
LOG_LINES = 10  # lines of a server that failed
PROGRESS_SECONDS = 3.0  # between two lines about a server that is slow to start
COLOURS = {"connected": "green", "disconnected": "red", "connecting": "yellow"}


@click.group(no_args_is_help=True)
def servers() -> None:
    """Manage MCP servers whose tools you use."""


for command in (import_servers, add, rename, remove, enable, disable):
    servers.add_command(command)


@servers.command("list")
@click.option("--no-connect", is_flag=True, help="Do not connect: show the state of the last connection.")
@data_options
def list_servers(ctx: click.Context, no_connect: bool, as_json: bool) -> None:
    """List the servers with their state and tools. Also shows which tools have changed."""
    app = open_app(ctx, imports=False)
    if app.servers is None:
        _print_none(app, as_json)
        return
    if not no_connect:
        _run(app.servers.wait_connected())
    statuses = app.servers.statuses()
    if wants_json(as_json):
        print_json([msgspec.to_builtins(status) for status in statuses])
        return
    rows = [
        (one.name, "refused" if one.refused else one.state, one.transport, one.tools, one.version, _problem_lines(one))
        for one in statuses
    ]
    print_table(counted(len(rows), "server"), ("server", "state", "transport", "tools", "version", "problem"), rows)


@servers.command()
@click.argument("name", required=False, shell_complete=complete_server)
@data_options
def test(ctx: click.Context, name: str | None, as_json: bool) -> None:
    """Connect to one server, or to all of them. Shows what each offers. The exit code is 1 if one can't be reached."""
    app = open_app(ctx, imports=False)
    if app.servers is None:
        if name is not None:
            raise click.ClickException(f"There is no server {printable(name)}. {_no_servers(app)}")
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


@servers.command()
@server_argument
@click.option("--lines", type=click.IntRange(min=1), default=50, show_default=True, help="The number of last lines.")
@data_options
def logs(ctx: click.Context, name: str, lines: int, as_json: bool) -> None:
    """Show the log of a server. The log has its standard error, and when it was started and lost."""
    found = _named(open_app(ctx, imports=False), name).log_lines(name, lines)
    if wants_json(as_json):
        print_json(found)
        return
    for line in found:
        echo(printable(line))
    if not found:
        echo(f"{name} has no log yet. Start it: onetool servers test {name}")


@servers.command()
@server_argument
@data_options
def changes(ctx: click.Context, name: str, as_json: bool) -> None:
    """Show changes to tools since their approval."""
    known = _connected_now(ctx, name)
    differences = known.differences(name)
    if wants_json(as_json):
        print_json([{"tool": tool, "lines": lines} for tool, lines in differences.items()])
        return
    _print_differences(differences)
    if differences:
        echo(f"To approve the current tools: onetool servers approve {name}")
    else:
        echo(f"{name} has not changed.")


@servers.command()
@server_argument
@data_options
@noted()
def approve(ctx: click.Context, name: str, as_json: bool) -> None:
    """Approve the current tools of a server. Needed after one of them has changed."""
    known = _connected_now(ctx, name)
    differences = known.differences(name)
    changes = known.approve(name)
    if wants_json(as_json):
        print_json(changes)
        return
    _print_differences(differences)
    tools = counted(_status(known, name).tools, "tool")
    echo(f"Approved {name} with {tools}." if changes else f"{name} has not changed: {tools}.")


@servers.command()
@server_argument
@config_option
@noted()
def login(ctx: click.Context, name: str) -> None:
    """Log in to a server in the browser. The login is kept."""
    known = _named(open_app(ctx, imports=False), name)
    scopes = _run(known.login(name, say=lambda text: click.echo(text, err=True)))
    rights = f", with {scopes}" if scopes else ""
    print_note(f"Logged in to {name}{rights}. Next: onetool servers test {name}")


@servers.command()
@server_argument
@config_option
@noted()
def logout(ctx: click.Context, name: str) -> None:
    """Forget the login to a server."""
    if not _named(open_app(ctx, imports=False), name).logout(name):
        raise click.ClickException(f"There is no login to {name}.")
    click.echo(f"Deleted the login to {name}.", err=True)


# Helpers


def _connected_now(ctx: click.Context, name: str) -> "Servers":
    """Connect a server, and return the servers with its current tools."""
    known = _named(open_app(ctx, imports=False), name)
    _run(known.wait_connected([name]))
    status = _status(known, name)
    if status.state not in ("connected", "disabled") and not status.changed:
        raise click.ClickException(f"{name} can't be reached, so its changes can't be shown: {status.error}")
    return known


def _print_differences(differences: dict[str, list[str]]) -> None:
    for tool, lines in differences.items():
        echo(click.style(printable(tool), bold=True))
        for line in lines:
            colour = {"-": "red", "+": "green"}.get(line[:1])
            echo(click.style(f"  {printable(line)}", fg=colour))


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
        "error": _problem_lines(status) or None,
        "tools": [{"name": spec.name, "description": spec.description.strip().partition("\n")[0]} for spec in specs],
        "log": [] if is_up else known.log_lines(name, LOG_LINES),
    }


def _problem_lines(status: "ServerStatus") -> str:
    lines = [status.error] if status.error else []
    if status.state == "disabled":
        lines.append("it is switched off in the config")
    if status.changed:
        lines.append(f"changed: {', '.join(status.changed)}")
        lines.append(f"look at them, then: onetool servers approve {status.name}")
    if status.warning:
        lines.append(status.warning)
    return "\n".join(lines)


def _no_servers(app: "App") -> str:
    if app.untrusted is not None:
        return f"This folder's servers are not in use: run {app.untrusted.command}"
    return NO_SERVERS


def _print_none(app: "App", as_json: bool) -> None:
    if wants_json(as_json):
        print_json([])
        click.echo(_no_servers(app), err=True)
    else:
        echo(_no_servers(app))
