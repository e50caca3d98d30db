"""`onetool trust`: shows what a project's folder says, or how that has changed, and stores that the user trusts it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from onetool.config.file_checks import owner_and_mode
from onetool.config.find import FOLDER, own_folder, owned_config, project_here, trust_store, user_config, user_home
from onetool.config.pin import WARN, Seen, see, with_notes
from onetool.config.trust import Pin, TrustStore, Untrusted, is_strict, news, pin_of, trust_folder, trust_renewed
from onetool.core.errors import ConfigError
from onetool.core.text import shown_line, visible
from onetool.interfaces.cli.output import confirm, echo, is_interactive, print_json, print_table, styled, wants_json


@click.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--list", "lists", is_flag=True, help="List the trusted folders.")
@click.option("--revoke", is_flag=True, help="Stop trusting PATH.")
@click.option("--owner", is_flag=True, help="Accept the owner and the permissions of PATH.")
@click.option("--json", "as_json", is_flag=True, help="With --list: print JSON and nothing else.")
def trust(path: Path | None, yes: bool, lists: bool, revoke: bool, owner: bool, as_json: bool) -> None:
    """Trust a project's folder: PATH, or the current one.

    OneTool uses the config, packs, bundles and servers of a project only if you trust it. This shows what its config
    says, with the programs that its servers would start. If that changes later, you are asked again and see the
    difference. Your answers are kept in ~/.onetool/trust.json.
    """
    store = trust_store()
    if lists:
        rows: list[dict[str, Any]] = [
            {"folder": folder, "kind": kind, "at": one.get("at"), "lines": len(one.get("lines") or ())}
            for kind, kept in (("folder", store.folders), ("owner", store.owners))
            for folder, one in sorted(kept.items())
        ]
        if wants_json(as_json):
            print_json(rows)
        elif rows:
            cells = [(visible(row["folder"]), row["kind"], row["lines"], row["at"]) for row in rows]
            print_table("Trusted", ("folder", "kind", "lines", "since"), cells)
        else:
            echo("Nothing is trusted except your own ~/.onetool, and configs that you name with --config.")
    elif owner:
        _accept_owner(path, store, revoke, yes)
    elif revoke:
        _forget("folders", os.path.realpath(_folder(path, must_exist=False)), store)
        click.echo("Running servers keep what they have loaded until they are restarted.", err=True)
    else:
        _trust(_folder(path), store, yes)


def _trust(folder: Path, store: TrustStore, yes: bool) -> None:
    if os.path.realpath(folder) == os.path.realpath(own_folder()):
        raise click.ClickException(visible(f"{folder} is your own folder, and needs no trust."))
    config = owned_config(folder, user_home(os.environ), store)
    echo(visible(f"Folder: {folder}"))
    seen = _print_seen(folder, config, store)
    confirm("Trust it?", yes, "trust it", "changed")
    while not yes and seen.compared() != see(folder, config).compared():
        echo("The folder has changed in the meantime. Now:")
        seen = _print_seen(folder, config, store)
        confirm("Trust it?", yes, "trust it", "changed")
    store_trust(folder, seen)
    click.echo(visible(f"{folder} is trusted. To undo this: onetool trust --revoke"), err=True)


def _print_seen(folder: Path, config: Path | None, store: TrustStore, *, err: bool = False) -> Seen:
    """Print what a folder says, or what is new about that, on standard error if `err`."""
    seen = see(folder, config)
    lines = list(describe(seen, pin_of(store.folder(folder)), folder))
    if config is None and user_config().is_file():
        lines.append("The folder has no config: its packs run with yours, and can read all of your secrets.")
    for line in lines:
        click.echo(line, err=True) if err else echo(line)
    return seen


def _accept_owner(path: Path | None, store: TrustStore, revoke: bool, yes: bool) -> None:
    """Accept a path's owner and mode, like git's safe.directory."""
    if path is None:
        raise click.UsageError("--owner needs a path: onetool trust --owner PATH.")
    real = os.path.realpath(path)
    if revoke:
        _forget("owners", real, store)
        return
    try:
        how = owner_and_mode(Path(real))
    except OSError as error:
        raise click.ClickException(visible(f"{path}: {error.strerror}.")) from None
    others = ", and others can write to it" if how["writable"] else ""
    echo(visible(f"{real} belongs to user {how['uid']}{others}."))
    if not is_interactive():
        yes = True  # naming the path is the answer
    confirm("Treat its files as if they were yours?", yes, "trust it", "changed")
    how["at"] = datetime.now(UTC).isoformat(timespec="seconds")
    _change(store, lambda content: content["owners"].__setitem__(real, how))
    click.echo(
        visible(f"Files in {real} now count as yours. This does not trust the folder: see onetool trust."), err=True
    )


def _forget(part: str, real: str, store: TrustStore) -> None:
    if real not in (store.folders if part == "folders" else store.owners):
        raise click.ClickException(visible(f"{real} is not trusted; see: onetool trust --list"))
    _change(store, lambda content: content[part].pop(real, None))
    click.echo(visible(f"{real} is no longer trusted."), err=True)


def _folder(path: Path | None, must_exist: bool = True) -> Path:
    """Return a project's `.onetool` folder: `path`, the one in `path`, or the one found from the current folder."""
    if path is None:
        found = project_here()
        if found is None:
            message = "Nothing to trust here: no .onetool folder with a config or packs, here or in a parent folder."
            raise click.ClickException(message)
        return found
    folder = path.absolute() if path.name == FOLDER else path.absolute() / FOLDER
    if must_exist and not folder.is_dir():
        raise click.ClickException(visible(f"Nothing to trust: {folder} is not a folder."))
    return folder


def _change(store: TrustStore, change: Any) -> None:
    try:
        store.change(change)
    except OSError as error:
        raise click.ClickException(visible(f"The trust could not be stored: {error}")) from None


# The prompt for an untrusted folder


def offer_trust(untrusted: Untrusted) -> bool:
    """Report an untrusted folder and, at a terminal, ask to trust it. Returns whether it is trusted now."""
    click.echo(f"onetool: {visible(untrusted)}", err=True)
    if untrusted.mistake is not None or not is_interactive():
        return False
    try:
        seen = _print_seen(untrusted.folder, untrusted.config, trust_store(), err=True)
    except ConfigError as error:  # the command continues with the other config
        click.echo(visible(error), err=True)
        return False
    if not click.confirm("Trust this folder?", err=True):
        return False
    store_trust(untrusted.folder, seen)
    return True


def store_trust(folder: Path, seen: Seen) -> None:
    try:
        trust_folder(folder, seen, trust_store())
    except OSError as error:
        raise click.ClickException(visible(f"The trust could not be stored: {error}")) from None


@contextmanager
def renew_trust(file: Path, names: tuple[str, ...] = ()) -> Iterator[None]:
    """Keep a folder trusted while the user changes it: see `onetool.config.trust.trust_renewed`."""
    with trust_renewed(file.absolute(), trust_store(), own_folder(), names):
        yield


def describe(seen: Seen, pin: Pin | None, folder: Path) -> Iterator[str]:
    """Yield lines about what a folder says; if `pin` was trusted before, only about the difference."""
    if pin is None:
        yield "It says:"
        yield from (f"  {shown_detail(line)}" for line in seen.described())
    elif changes := news(pin, seen, folder, strict=is_strict(own_folder())):
        yield "Since you trusted it:"
        yield from (f"  {shown_detail(line)}" for line in with_notes(changes, seen.notes))
    else:
        yield "It has not changed since you trusted it."
    if names := [name for name in seen.names if pin is None or name not in pin.names]:
        yield f"It may read these secrets: {visible(', '.join(names))}"
    if pin is None and not seen.lines and not seen.pack_places:
        yield "  nothing: it has neither a config nor packs."


def shown_detail(text: str) -> str:
    """Return a detail of a line as it is printed: in red if it may decide which code runs."""
    return styled(shown_line(text), fg="red", bold=True) if text.startswith(WARN) else shown_line(text)
