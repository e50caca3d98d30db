"""What to do next, for the reader: which hosts to allow, which secrets to set. On standard error, beside the data."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from onetool.interfaces.cli.bundles.needs import Needs, written
from onetool.interfaces.cli.output import echo, print_json, printable, wants_json

if TYPE_CHECKING:
    from onetool.app import App

F = TypeVar("F", bound=Callable[..., Any])


def say(text: str) -> None:
    click.echo(printable(text), err=True)


def tell_or_print(data: Any, text: str, as_json: bool) -> None:
    """What was done: in words on a terminal, as data for a program."""
    if wants_json(as_json):
        print_json(data)
    else:
        echo(printable(text))


def say_if_taken(app: "App", slug: str) -> None:
    """Of a bundle that is new: its name in code may stand for something else already."""
    from onetool.sources.bundles.names import code_name

    name = code_name(slug)
    if any(one.partition(".")[0] == name for one in app.registry.names()):
        what = "tool" if name in app.registry else "pack"
        shadowed = f"in code that is what {name} stands for, and not the bundle"
        say(f"warning: {name} is a {what} already: {shadowed}. Take another slug, like my-{slug}")


def allow_hosts_option(command: F) -> F:
    help = "Allow the hosts that its tools call: they are written into allowedHosts of the config."
    return click.option("--allow", is_flag=True, help=help)(command)


def allowing(ctx: click.Context, needs: Needs) -> Needs:
    """Allow the hosts that are not; what is needed then. Each that was allowed is told."""
    from onetool.interfaces.cli.hosts import allow_hosts, config_for_hosts, read_host

    closed = [one.host for one in needs.hosts if one.entry is not None]
    if not closed:
        return needs
    target = config_for_hosts(ctx)
    for host in allow_hosts(target, map(read_host, closed)):
        say(f"Allowed {host} in {target.file}.")
    allowed = (one._replace(allowed=True, entry=None) if one.entry else one for one in needs.hosts)
    return needs._replace(hosts=tuple(allowed))


def say_needs(app: "App", needs: Needs) -> None:
    """Each as a line that can be pasted."""
    if entries := needs.closed():
        say(f"To let the tools call their host{'s' if len(entries) > 1 else ''}, write in {_config(app)}:")
        say(f"  {hosts_line(app, entries)}")
        say(f"which this does: onetool hosts allow {' '.join(one.host for one in needs.hosts if one.entry)}")
    if names := needs.unset():
        say("Secrets to set:" if len(names) > 1 else "Secret to set:")
        for name in names:
            say(f"  onetool auth set {name}")


def hosts_line(app: "App", entries: Sequence[str]) -> str:
    """The whole key: what is allowed already stays so."""
    there = [written(one.host, one.allow_private) for one in app.config.allowed_hosts]
    return f"allowedHosts: [{', '.join(dict.fromkeys([*there, *entries]))}]"


def _config(app: "App") -> str:
    """The file in force; where there is none, the one beside the bundles: with another they are not seen."""
    if app.config.path is not None:
        return str(app.config.path)
    from onetool.config.find import FOLDER, NAME, user_home

    return f"{user_home(os.environ) / FOLDER / NAME} (a new file)"
