"""`onetool trust`: what a project's folder would run, dial and read, and a person's word that it may."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onetool.interfaces.cli.output import echo, print_json, print_table, wants_json
from onetool.interfaces.cli.trusting import described, is_anybody_there, remember, visible

if TYPE_CHECKING:
    from onetool.config.reach import Reach
    from onetool.config.trust_store import Store


@click.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--list", "lists", is_flag=True, help="List what is trusted.")
@click.option("--revoke", is_flag=True, help="Trust it no longer.")
@click.option("--owner", is_flag=True, help="Accept the owner of PATH, and who can write it, as they are.")
@click.option("--json", "as_json", is_flag=True, help="With --list: print JSON and nothing else.")
def trust(path: Path | None, yes: bool, lists: bool, revoke: bool, owner: bool, as_json: bool) -> None:
    """Trust the folder of a project, PATH or the one we are in.

    Its config, packs, bundles and servers are used once it is. Shows what it would run, dial and read, and which
    secrets it names; what it reaches beyond that later waits until this is said again. Kept in ~/.onetool/trust.json.
    """
    from onetool.config.find import trust_store

    store = trust_store()
    if lists:
        _list(store, as_json)
    elif owner:
        _accept(path, store, revoke, yes)
    elif revoke:
        _revoke(path, store)
    else:
        _trust(_folder(path), store, yes)


def _trust(folder: Path, store: "Store", yes: bool) -> None:
    from onetool.config.find import NAME, own_folder, user_home
    from onetool.config.owners import must_be_ours
    from onetool.config.reach import reach_of

    if os.path.realpath(folder) == os.path.realpath(own_folder()):
        raise click.ClickException(visible(f"{folder} is your own, and needs no trust."))
    config = folder / NAME if (folder / NAME).is_file() else None
    must_be_ours([folder, *([config] if config else [])], user_home(os.environ), store.owners)
    echo(visible(f"Folder: {folder}"))
    reach = _shown(folder, config, store)
    _confirm("Trust it?", yes)
    while not yes and not reach.is_like(reach_of(folder, config)):
        echo("It has changed meanwhile. It is like this now:")
        reach = _shown(folder, config, store)
        _confirm("Trust it?", yes)
    remember(folder, reach)
    click.echo(visible(f"{folder} is trusted. onetool trust --revoke takes that back."), err=True)


def _shown(folder: Path, config: Path | None, store: "Store") -> "Reach":
    from onetool.config.reach import reach_of

    reach = reach_of(folder, config)
    for line in described(reach, store.folder(folder)):
        echo(line)
    return reach


def _accept(path: Path | None, store: "Store", revoke: bool, yes: bool) -> None:
    """As git's safe.directory does."""
    from datetime import UTC, datetime

    from onetool.config.owners import how_it_is

    if path is None:
        raise click.UsageError("say whose: onetool trust --owner PATH.")
    real = os.path.realpath(path)
    if revoke:
        _forget("owners", real, store)
        return
    try:
        how = how_it_is(Path(real))
    except OSError as error:
        raise click.ClickException(visible(f"{path}: {error.strerror}.")) from None
    others = ", and others can write it" if how["writable"] else ""
    echo(visible(f"{real} belongs to user {how['uid']}{others}."))
    if not is_anybody_there():
        yes = True  # the path was named, which says it all
    _confirm("Count files there as if they were yours?", yes)
    how["at"] = datetime.now(UTC).isoformat(timespec="seconds")
    _change(store, lambda content: content["owners"].__setitem__(real, how))
    click.echo(visible(f"Files in {real} count. Whether it is trusted is another question: onetool trust."), err=True)


def _revoke(path: Path | None, store: "Store") -> None:
    _forget("folders", os.path.realpath(_folder(path, must_exist=False)), store)


def _forget(part: str, real: str, store: "Store") -> None:
    if real not in (store.folders if part == "folders" else store.owners):
        raise click.ClickException(visible(f"{real} is not trusted; see: onetool trust --list"))
    _change(store, lambda content: content[part].pop(real, None))
    click.echo(visible(f"{real} is trusted no longer."), err=True)


def _list(store: "Store", as_json: bool) -> None:
    rows: list[dict[str, Any]] = [
        {"folder": folder, "kind": kind, "at": one.get("at"), "reaches": len(one.get("reaches") or ())}
        for kind, kept in (("folder", store.folders), ("owner", store.owners))
        for folder, one in sorted(kept.items())
    ]
    if wants_json(as_json):
        print_json(rows)
    elif rows:
        cells = [(visible(row["folder"]), row["kind"], row["reaches"], row["at"]) for row in rows]
        print_table("Trusted", ("folder", "kind", "reaches", "since"), cells)
    else:
        echo("Nothing is trusted but your own ~/.onetool, and what you name with --config.")


def _folder(path: Path | None, must_exist: bool = True) -> Path:
    """The `.onetool` of a project: named, or by its project, or the one that is found from here."""
    from onetool.config.find import FOLDER, project_here

    if path is None:
        found = project_here()
        if found is None:
            raise click.ClickException("there is no folder of a project here, so that there is nothing to trust.")
        return found
    folder = path.absolute() if path.name == FOLDER else path.absolute() / FOLDER
    if must_exist and not folder.is_dir():
        raise click.ClickException(visible(f"{folder} is no folder, so that there is nothing to trust."))
    return folder


def _confirm(question: str, yes: bool) -> None:
    if yes:
        return
    if not is_anybody_there():
        raise click.UsageError("nobody is there to ask: say --yes to trust it.")
    if not click.confirm(question, err=True):
        raise click.ClickException("nothing was changed.")


def _change(store: "Store", change: Any) -> None:
    try:
        store.change(change)
    except OSError as error:
        raise click.ClickException(visible(f"it could not be remembered: {error}")) from None
