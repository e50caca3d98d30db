"""`onetool hosts …`: manages the hosts that HTTP tools may call, `allowedHosts` in the config."""

from functools import partial
from typing import TYPE_CHECKING

import click

from onetool.config import load_config
from onetool.config.find import user_config
from onetool.core.text import or_rather
from onetool.interfaces.cli.options import config_option, data_options, find_here
from onetool.interfaces.cli.output import counted, echo, print_json, print_table, printable, wants_json

if TYPE_CHECKING:
    from onetool.config.server_import import ConfigTarget

NONE = "No host is allowed, so HTTP tools can't call any. Allow one: onetool hosts allow api.example.com"


@click.group(no_args_is_help=True)
def hosts() -> None:
    """Manage hosts that HTTP tools may call."""


@hosts.command()
@click.argument("names", metavar="HOST...", nargs=-1, required=True)
@click.option("--private", is_flag=True, help="Let the name resolve to addresses of this machine or its network.")
@config_option
def allow(ctx: click.Context, names: tuple[str, ...], private: bool) -> None:
    """Allow hosts. Each is a name such as api.example.com, localhost:9000 or *.example.com, or a URL.

    Names of this machine and its network may resolve to private addresses. Other names may do so only with --private.
    """
    from onetool.app.grants import allow_hosts

    wanted = [(host, private or is_private) for host, is_private in map(host_argument, names)]
    target = config_for_hosts(ctx)
    new = allow_hosts(target, wanted)
    for host, _ in wanted:
        click.echo(printable(f"Allowed {host} in {target.file}." if host in new else f"{host} is allowed already."))


@hosts.command("list")
@data_options
def list_hosts(ctx: click.Context, as_json: bool) -> None:
    """List the allowed hosts."""
    found = [{"host": one.host, "allowPrivate": one.allow_private} for one in load_config(find_here(ctx)).allowed_hosts]
    if wants_json(as_json):
        print_json(found)
    elif not found:
        echo(NONE)
    else:
        rows = [(one["host"], "private addresses, too" if one["allowPrivate"] else "") for one in found]
        print_table(counted(len(rows), "host"), ("host", ""), rows)


@hosts.command()
@click.argument("names", metavar="HOST...", nargs=-1, required=True)
@config_option
def remove(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Remove hosts from the config. Tools can't call them any more."""
    from onetool.config.edit import drop_host

    target = config_for_hosts(ctx)
    there = {one.host.lower(): one.host for one in target.config.allowed_hosts}
    for name in names:
        if name.lower() not in there:
            rather = or_rather(name, there.values()) or "; see: onetool hosts list"
            raise click.ClickException(f"{name} is not among the allowed hosts{rather}")
    for name in names:
        before = target.text()
        target.write(partial(drop_host, host=name))
        if target.text() == before:
            raise click.ClickException(f"{name} is defined in a file that the config includes: remove it there.")
        click.echo(printable(f"Removed {name} from {target.file}."))


def host_argument(text: str) -> tuple[str, bool]:
    """Parse a host. Raises BadParameter."""
    from onetool.app.grants import read_host

    try:
        return read_host(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", param_hint="HOST") from None


def config_for_hosts(ctx: click.Context) -> "ConfigTarget":
    """Return the config in use; without one, the user's own, next to which the bundles are stored."""
    from onetool.config.server_import import ConfigTarget

    return ConfigTarget(ctx.find_root().obj, new=user_config())
