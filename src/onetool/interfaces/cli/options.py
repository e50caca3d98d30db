"""Options that commands share, their checks, and the app that commands open."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

import click
from msgspec.structs import replace

from onetool.app import App
from onetool.app.journal import noted_command
from onetool.config import Config, Found, find, load_config
from onetool.config.file_checks import is_inside
from onetool.config.model import ServerSettings
from onetool.core.errors import ConfigError, Mistake, OneToolError
from onetool.core.file_facts import digest_of
from onetool.core.principal import is_pattern
from onetool.core.text import did_you_mean, or_rather
from onetool.interfaces.cli.output import claim_stdout, printable

REPORTED = "onetool.untrusted"  # in a command's context: the untrusted folder was reported
MENUS = ("run", "search", "direct")  # a test compares them with the config's

PRINTED = "config"  # the key of the warnings that were printed last

F = TypeVar("F", bound=Callable[..., Any])


class OneOf(click.Choice[str]):
    """A choice that suggests the nearest value."""

    def get_invalid_choice_message(self, value: object, ctx: click.Context | None) -> str:
        rather = did_you_mean(str(value), map(str, self.choices))
        return " ".join(filter(None, (super().get_invalid_choice_message(value, ctx), rather and rather.capitalize())))


def data_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every command that prints data, and pass the context."""
    as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
    return config_option(as_json(command))


def config_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option for the config, and pass the context."""

    def keep(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
        if value is not None:
            ctx.find_root().obj = value

    option = click.option("--config", metavar="FILE", expose_value=False, callback=keep, help="The config to use.")
    return option(click.pass_context(command))


envelope_option = click.option(
    "--envelope", is_flag=True, help="Print the whole object with result, errors and times, also on failure."
)


def open_app(
    ctx: click.Context,
    allowed: list[str] | None = None,
    packs: Iterable[str] | None = (),
    *,
    imports: bool = True,
    watch: bool = False,
    makes_tables: bool = False,
    servers: Mapping[str, ServerSettings] | None = None,
) -> App:
    """Open the app with the selected config. Prints new warnings about it, and names in the allow-list that match
    nothing.

    Afterwards, the tools of `packs` (of all packs if None) are known: servers that were never connected are connected.
    Without `imports`, no pack is run: for commands that call no tool. `makes_tables` is for servers only. `servers` are
    added to the config's.
    """
    trust_log, config_log = logging.getLogger("onetool.trust"), logging.getLogger("onetool.config")
    found = find_here(ctx)
    claim_stdout()
    trust_log.disabled = True  # `find_here` has reported the folder
    is_short, logs_warnings = ctx.command.name not in ("serve", "mcp"), config_log.isEnabledFor(logging.WARNING)
    if is_short:  # also for servers that connect later
        config_log.disabled = True
        ctx.call_on_close(partial(setattr, config_log, "disabled", False))
    try:
        opened = App.open(found, imports=imports, watch=watch, makes_tables=makes_tables, servers=servers)
        app = ctx.with_resource(opened)
    finally:
        trust_log.disabled = False
    if makes_tables:
        app.require_state()
    if is_short and logs_warnings and (warnings := (*app.config.warnings, *app.catalog.warnings)):
        _print_new_warnings(app, warnings)
    if app.servers is not None:
        named = {name.partition(".")[0] for name in allowed or ()}
        knows_all = packs is not None and not any(map(is_pattern, named))
        app.catalog.wait_for_servers_sync({*(packs or ()), *named} if knows_all else None)
    warn_unmatched("--tool-allow", app, allowed or ())
    return app


def _print_new_warnings(app: App, warnings: Sequence[Mistake]) -> None:
    """Print the warnings about the config, in short and once: again only after a change of its files."""
    from onetool.database import DatabaseError  # slow, and few configs have warnings

    files = filter(None, (app.config.path, *app.config.include))
    state = sha256("\n".join([*map(str, warnings), *map(digest_of, files)]).encode()).digest()
    try:
        printed = app.runtime.documents("warnings")
        if printed.read(PRINTED) == state:
            return
        printed.write(PRINTED, state)
    except (DatabaseError, ConfigError):  # the command says so if it needs the database
        pass
    for warning in warnings:
        click.echo(f"warning: {printable(replace(warning, hint=None))}", err=True)
    click.echo("  These warnings are not repeated; to see them in full: onetool check", err=True)


def warn_unmatched(option: str, app: App, names: Iterable[str]) -> None:
    """Warn about each name and pattern that matches no tool, and suggest the nearest."""
    registry = app.catalog.registry
    for name in registry.unmatched(names):
        known = [f"{pack}.*" for pack in registry.packs()] if is_pattern(name) else registry.names()
        message = f"warning: {option} matches no tool: {printable(name)}{or_rather(name, known)}"
        click.echo(message, err=True)


def find_here(ctx: click.Context) -> Found:
    """Return the current config. Reports an untrusted folder once; at a terminal the user is asked to trust it."""
    root = ctx.find_root()
    found = find(root.obj)
    if found.untrusted is None or REPORTED in root.meta:
        return found
    root.meta[REPORTED] = True
    from onetool.interfaces.cli.trust import offer_trust

    while found.untrusted is not None and offer_trust(found.untrusted):
        found = find(root.obj)  # the folder may have changed during the question
    return found


def noted(
    *, waits: bool = True, unless: str = "", prepare: Callable[[Config], None] = lambda config: None
) -> Callable[[F], F]:
    """Record a command in the audit log, with its argument `name`, and whether it was refused.

    For commands that change or copy state; changes to files, by a command or an editor, aren't recorded. `waits` is
    passed to `noted_command`. With the option `unless`, the command changes nothing. `prepare` is called first.
    """

    def decorate(command: F) -> F:
        @wraps(command)
        def run(ctx: click.Context, **params: Any) -> None:
            if params.get(unless):
                return command(ctx, **params)
            what = " ".join([*ctx.command_path.split()[1:], params.get("name", "")]).strip()
            config = load_config(find_here(ctx))
            prepare(config)
            with noted_command(config, what, waits=waits, typos=(click.UsageError,)):
                try:
                    command(ctx, **params)
                except click.exceptions.Exit as end:
                    if end.exit_code != 0:
                        raise
                except Exception:
                    # If the state can't be used, the log would repeat the error.
                    logging.getLogger("onetool.journal").setLevel(logging.CRITICAL)
                    raise

        return cast("F", run)

    return decorate


def completion(
    names: Callable[[str | None], Iterable[str]],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Make a completion from a function that returns names for the given config. Errors mean that there are none."""

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        try:
            return [name for name in names(ctx.find_root().params.get("config")) if name.startswith(incomplete)]
        except OneToolError:
            return []

    return complete


def complete_tool(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete tool names."""
    return _beginning(incomplete, _known_tools(ctx))


def complete_tools(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete tool names and patterns of packs, even after a comma."""
    before, comma, incomplete = incomplete.rpartition(",")
    names = _known_tools(ctx)
    packs = dict.fromkeys(f"{name.partition('.')[0]}.*" for name in names if "." in name)
    return [before + comma + name for name in _beginning(incomplete, [*packs, *names])]


def _known_tools(ctx: click.Context) -> list[str]:
    """Return the names of all tools. Packs are parsed, not imported."""
    try:
        with App.open(ctx.find_root().params.get("config"), imports=False, makes_tables=False) as app:
            return [spec.name for spec in app.tools()]
    except OneToolError:
        return []


def _beginning(incomplete: str, names: list[str]) -> list[str]:
    """Return the names that start with `incomplete`, else the names that contain it (`read` for fs.read_file)."""
    return [name for name in names if name.startswith(incomplete)] or [name for name in names if incomplete in name]


def positive(_ctx: click.Context, _param: click.Parameter, value: float | None) -> float | None:
    if value is not None and not value > 0:  # so that `nan` is refused too
        raise click.BadParameter(f"expected a number of seconds above 0, got {value:g}.")
    return value


def split_names(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> list[str] | None:
    """Return the names of an option that may be repeated, each time with several names."""
    if not values:
        return None
    names = [name.strip() for value in values for name in value.split(",") if name.strip()]
    if not names:
        raise click.BadParameter("Must not be empty. Leave it out to allow every tool.")
    return names


allow_option = click.option(
    "--tool-allow",
    "allowed",
    metavar="NAMES",
    multiple=True,
    callback=split_names,
    shell_complete=complete_tools,
    help="Allow only these tools: names and patterns (time.*), separated by commas.",
)


def refuse_link_out(file: Path, folder: Path) -> None:
    """Raise ClickException if a symbolic link leads this file out of the project's folder."""
    if not is_inside(file, folder):
        raise click.ClickException(f"{file} leads out of {folder} through a symbolic link; remove the link.")
