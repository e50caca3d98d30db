"""Options that many commands take, and the app that they open."""

import signal
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from onetool.interfaces.cli.output import claim_stdout

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.config import Found

TOLD = "onetool.untrusted"  # in the context of a command: the person was told
MENUS = ("run", "search", "direct")  # a test holds them against the config's own

F = TypeVar("F", bound=Callable[..., Any])


def data_options(command: F) -> F:
    """What every command that prints data takes."""
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")(command)
    return config_option(command)


def config_option(command: F) -> F:
    return click.option(
        "--config", metavar="FILE", expose_value=False, callback=_keep_config, help="The config to use."
    )(command)


def envelope_option(command: F) -> F:
    help = "Print the whole object with result, errors and times, also on failure."
    return click.option("--envelope", is_flag=True, help=help)(command)


def allow_option(command: F) -> F:
    return click.option(
        "--tool-allow",
        "allowed",
        metavar="NAMES",
        callback=_names,
        shell_complete=complete_tool,
        help="Allow only these tools: names, separated by commas.",
    )(command)


def menu_option(command: F) -> F:
    """What MCP clients are shown."""
    help = "What clients see: run (one tool that runs code), search, or direct. The default is the config's."
    return click.option("--menu", type=click.Choice(MENUS), help=help)(command)


def watch_option(command: F) -> F:
    """For servers: to read files again when they change."""
    return click.option("--watch", is_flag=True, help="Reload when the config, its packs or prompts change.")(command)


def ignore_hang_up() -> None:
    """Ignore SIGHUP until the server can handle it as a reload."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def open_app(
    ctx: click.Context,
    allowed: list[str] | None = None,
    packs: Iterable[str] | None = (),
    *,
    imports: bool = True,
    watch: bool = False,
) -> "App":
    """The app for the config that was asked for. Warns about names in the allow-list that match nothing.

    `packs` are those whose tools have to be known; None is all. Servers that were never connected are connected for
    that. Without `imports` no pack is run: for commands that call no tool.
    """
    import logging

    from onetool.app import App

    trust_log = logging.getLogger("onetool.trust")
    found = find_here(ctx)
    claim_stdout()
    trust_log.disabled = True  # it has been told, in words for a person
    app = ctx.with_resource(App.open(found, imports=imports, watch=watch))
    trust_log.disabled = False
    if app.servers is not None:
        named = {name.partition(".")[0] for name in allowed or ()}
        app.catalog.wait_for_servers_sync(None if packs is None else {*packs, *named})
    registry = app.catalog.registry
    for name in registry.unmatched(allowed or ()):
        from onetool.core.text import or_rather

        click.echo(f"warning: --tool-allow names no tool: {name}{or_rather(name, registry.names())}", err=True)
    return app


def find_here(ctx: click.Context) -> "Found":
    """The config in force. Reports an untrusted folder once; at a terminal the user is asked to trust it."""
    from onetool.config import find

    root = ctx.find_root()
    found = find(root.obj)
    if found.untrusted is None or TOLD in root.meta:
        return found
    root.meta[TOLD] = True
    from onetool.interfaces.cli.trust import offer_trust

    while found.untrusted is not None and offer_trust(found.untrusted):
        found = find(root.obj)  # it may have changed during the question
    return found


def complete_tool(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Tool names, for the shell's completion. Packs are parsed, not imported."""
    from onetool.app import App
    from onetool.core.errors import OneToolError

    before, comma, incomplete = incomplete.rpartition(",")  # a list of names goes on after each comma
    try:
        with App.open(ctx.find_root().params.get("config"), imports=False) as app:
            names = [spec.name for spec in app.tools()]
    except OneToolError:
        return []
    # Names that begin so; if there are none, names that have it somewhere (`read` for fs.read_file).
    found = [name for name in names if name.startswith(incomplete)] or [name for name in names if incomplete in name]
    return [before + comma + name for name in found]


def complete_provider(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from onetool.formats import PROVIDERS

    return [name for name in PROVIDERS if name.startswith(incomplete)]


def positive(_ctx: click.Context, _param: click.Parameter, value: float | None) -> float | None:
    if value is not None and not value > 0:  # so that `nan` is refused too
        raise click.BadParameter(f"expected a number of seconds above 0, got {value:g}.")
    return value


def _keep_config(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.find_root().obj = value


def _names(_ctx: click.Context, _param: click.Parameter, value: str | None) -> list[str] | None:
    if value is None:
        return None
    names = [name.strip() for name in value.split(",") if name.strip()]
    if not names:
        raise click.BadParameter("it is empty, which would allow nothing; leave it out to allow every tool.")
    return names
