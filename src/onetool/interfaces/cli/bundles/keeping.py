"""Secrets that came with a tool: kept with the other ones, as `onetool auth set` keeps them; never beside the tool."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from onetool.interfaces.cli.output import printable

if TYPE_CHECKING:
    from onetool.services.secrets import Secrets


def secrets_of(ctx: click.Context) -> "Secrets":
    from onetool.config import find, load_secrets

    return load_secrets(find(ctx.find_root().obj))


def apart(tool: Any, found: Mapping[str, str], known: "Secrets") -> tuple[Any, dict[str, str]]:
    """The tool and its secrets, under names that are free: one that is set to something else belongs to others."""
    names: dict[str, str] = {}
    for name, value in found.items():
        free, number = name, 1
        while (there := known.get(free)) is not None and there != value:
            number += 1
            free = f"{name}_{number}"
        names[name] = free
    other = {f"${{{name}}}": f"${{{free}}}" for name, free in names.items() if free != name}
    return _replaced(tool, other), {names[name]: value for name, value in found.items()}


@contextmanager
def kept(known: "Secrets", secrets: Mapping[str, str]) -> Iterator[None]:
    """Those that are not there yet; gone again if what needs them does not come to be."""
    from onetool.interfaces.cli.auth import check
    from onetool.services.secret_file import drop_secret, put_secret

    new = {name: value for name, value in secrets.items() if known.get(name) != value}
    file = known.file
    if not new:
        yield
        return
    if file is None:
        raise click.ClickException("the secrets stand in the config itself; move them to a file: secrets: secrets.yaml")
    done: list[str] = []
    try:
        for name, value in new.items():
            if not value.strip() or not value.isprintable():
                raise click.ClickException(f"{name}: a secret is one line of text; nothing was kept.")
            put_secret(file, name, value, partial(check, name, value))
            done.append(name)
        yield
    except BaseException as error:
        for name in done:
            with suppress(OSError, ValueError):
                drop_secret(file, name, partial(check, name, None))
        if isinstance(error, OSError | ValueError):
            raise click.ClickException(printable(f"nothing was kept in {file}: {error}")) from None
        raise
    click.echo(printable(f"Kept in {file}: {', '.join(new)}"), err=True)


def _replaced(value: Any, other: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for before, after in other.items():
            value = value.replace(before, after)
        return value
    if isinstance(value, dict):
        return {key: _replaced(one, other) for key, one in value.items()}
    return [_replaced(one, other) for one in value] if isinstance(value, list) else value
