"""`onetool hosts …`: which hosts HTTP tools may call, `allowedHosts` in the config."""

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onetool.config import load_config
from onetool.config.find import FOLDER, NAME, user_home
from onetool.core.text import or_rather
from onetool.http.errors import RequestRefusedError
from onetool.http.url import parse_url
from onetool.interfaces.cli.options import config_option, data_options, find_here
from onetool.interfaces.cli.output import counted, echo, print_json, print_table, printable, wants_json

if TYPE_CHECKING:
    from onetool.config.server_import import ConfigTarget

NONE = "No host is allowed, so that HTTP tools can call none. Allow one: onetool hosts allow api.example.com"


@click.group(no_args_is_help=True)
def hosts() -> None:
    """Manage hosts that HTTP tools may call."""


@hosts.command()
@click.argument("names", metavar="HOST...", nargs=-1, required=True)
@click.option("--private", is_flag=True, help="Also if the name resolves to an address of this machine or its network.")
@config_option
@click.pass_context
def allow(ctx: click.Context, names: tuple[str, ...], private: bool) -> None:
    """Allow hosts. Each is a name such as api.example.com, localhost:9000 or *.example.com, or a URL.

    Names of this machine and its network may resolve to private addresses. Other names may do so only with --private.
    """
    wanted = [(host, private or is_private) for host, is_private in map(read_host, names)]
    target = config_for_hosts(ctx)
    new = allow_hosts(target, wanted)
    for host, _ in wanted:
        click.echo(printable(f"Allowed {host} in {target.file}." if host in new else f"{host} is allowed already."))


@hosts.command("list")
@data_options
@click.pass_context
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
@click.pass_context
def remove(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Remove hosts from the config. Tools can't call them any more."""
    from onetool.config.edit import drop_host

    target = config_for_hosts(ctx)
    there = {one.host.lower(): one.host for one in target.config.allowed_hosts}
    for name in names:
        if name.lower() not in there:
            rather = or_rather(name, there.values()) or "; see: onetool hosts list"
            raise click.ClickException(printable(f"{name} is not among the allowed hosts{rather}"))
    for name in names:
        before = target.text()
        target.write(partial(drop_host, host=name))
        if target.text() == before:
            raise click.ClickException(printable(f"{name} stands in a file that the config includes: remove it there."))
        click.echo(printable(f"Removed {name} from {target.file}."))


def read_host(text: str) -> tuple[str, bool]:
    """Return a host as it was given, or that of a URL; and whether it is a name or an address of this network."""
    from onetool.http.allowed_hosts import is_private, read_entry

    try:
        if "://" in text:
            url = parse_url(text)
            return url.authority, is_private(url.host)
        pattern = read_entry(text)
    except (ValueError, RequestRefusedError) as error:
        raise click.BadParameter(printable(f"{error}."), param_hint="HOST") from None
    return text, not pattern.is_wildcard and is_private(pattern.host)


def config_for_hosts(ctx: click.Context) -> "ConfigTarget":
    """Return the config in force; where there is none, the person's own, which the bundles of this place lie beside."""
    from onetool.config.server_import import ConfigTarget

    return ConfigTarget(ctx.find_root().obj, new=Path(user_home(os.environ) / FOLDER / NAME))


def allow_hosts(target: "ConfigTarget", wanted: Iterable[tuple[str, bool]]) -> list[str]:
    """Write those that are not allowed yet; which these were."""
    from onetool.config.edit import put_host

    there = {(one.host.lower(), one.allow_private) for one in target.config.allowed_hosts}
    new: list[str] = []
    for host, private in dict(wanted).items():
        if {(host.lower(), private), (host.lower(), True)} & there:
            continue
        target.write(partial(put_host, host=host, private=private))
        new.append(host)
    return new
