"""Prints what tools of bundles need before they can be called (secrets, hosts, functions)."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from onetool.interfaces.cli.output import echo, print_json, printable, wants_json

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.app.findings import Requirements


# Hints on standard error


F = TypeVar("F", bound=Callable[..., Any])


def print_note(text: str) -> None:
    click.echo(printable(text), err=True)


def print_outcome(data: Any, text: str, as_json: bool) -> None:
    """What was done: in words on a terminal, as data for a program."""
    if wants_json(as_json):
        print_json(data)
    else:
        echo(printable(text))


def warn_if_name_taken(app: "App", slug: str) -> None:
    """Warn if the name of a new bundle already means something else in code."""
    from onetool.app.bundle_import import name_taken

    if taken := name_taken(app, slug):
        print_note(f"warning: {taken}")


def allow_hosts_option(command: F) -> F:
    help = "Allow the hosts that its tools call: adds them to allowedHosts in the config."
    return click.option("--allow", is_flag=True, help=help)(command)


def allowing(ctx: click.Context, needs: "Requirements") -> "Requirements":
    """Allow the missing hosts, print each of them, and return what is still needed."""
    from onetool.interfaces.cli.hosts import allow_hosts, config_for_hosts, read_host

    closed = [one.host for one in needs.hosts if one.entry is not None]
    if not closed:
        return needs
    target = config_for_hosts(ctx)
    for host in allow_hosts(target, map(read_host, closed)):
        print_note(f"Allowed {host} in {target.file}.")
    allowed = (one._replace(allowed=True, entry=None) if one.entry else one for one in needs.hosts)
    return needs._replace(hosts=tuple(allowed))


def print_requirements(app: "App", needs: "Requirements") -> None:
    """Each as a line that can be pasted."""
    if entries := needs.closed():
        print_note(f"To let the tools call their host{'s' if len(entries) > 1 else ''}, write in {_config_file(app)}:")
        print_note(f"  {hosts_line(app, entries)}")
        print_note(f"which this does: onetool hosts allow {' '.join(one.host for one in needs.hosts if one.entry)}")
    if names := needs.unset():
        print_note("Secrets to set:" if len(names) > 1 else "Secret to set:")
        for name in names:
            print_note(f"  onetool auth set {name}")


def hosts_line(app: "App", entries: Sequence[str]) -> str:
    """The complete `allowedHosts` line, with the existing entries."""
    from onetool.http.allowed_hosts import host_entry

    there = [host_entry(one.host, one.allow_private) for one in app.config.allowed_hosts]
    return f"allowedHosts: [{', '.join(dict.fromkeys([*there, *entries]))}]"


def _config_file(app: "App") -> str:
    """The file in force; where there is none, the one beside the bundles: with another they are not seen."""
    if app.config.path is not None:
        return str(app.config.path)
    from onetool.config.find import FOLDER, NAME, user_home

    return f"{user_home(os.environ) / FOLDER / NAME} (a new file)"
