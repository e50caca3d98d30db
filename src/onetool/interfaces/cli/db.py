"""`onetool db …`: the database that several machines share: its state, its tables, moving a folder into it and back.

No tools are loaded for it. Progress goes to standard error.
"""

import os
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from onetool.interfaces.cli.options import data_options, find_here
from onetool.interfaces.cli.output import (
    counted,
    echo,
    print_json,
    print_table,
    printable,
    show_progress,
    wants_json,
)

if TYPE_CHECKING:
    from onetool.config import Config
    from onetool.database import Database
    from onetool.database.moving import Moved

MOST_LEFT = 20  # that are listed for a person
NO_KEY = "not encrypted for other replicas: cluster.key is not set here ({}); set it, and run `onetool db init` again"


@click.group(invoke_without_command=True)
@data_options
@click.pass_context
def db(ctx: click.Context, as_json: bool) -> None:
    """Set up the database that several machines share.

    Alone, it shows how the database of the config is: whether it is reached, what is missing, what is in it, and
    which replicas use it.
    """
    if ctx.invoked_subcommand is not None:
        return
    config = _config(ctx)
    try:
        with _reached(config) as database:
            shown = _state(database, config)
    except UnreachedError as error:
        if wants_json(as_json):
            print_json({"reachable": False, "problem": error.problem, "hint": error.hint})
            ctx.exit(1)
        raise
    if wants_json(as_json):
        print_json({"reachable": True, **shown})
    else:
        _print_state(shown)


# Tables


@db.command()
@data_options
@click.pass_context
def init(ctx: click.Context, as_json: bool) -> None:
    """Check that the database is reached, and make its tables.

    After `cluster.key` was added, it also encrypts with it what this machine has kept in the database before.
    """
    from onetool.app.database_state import database_state
    from onetool.app.documents import seal_anew
    from onetool.database.migrations import migrate

    config = _config(ctx)
    with _reached(config) as database:
        done = migrate(database)
        state = database_state(database, config)
        sealed = seal_anew(database, config)
    cluster = config.cluster
    warning = None if cluster is None or cluster.has_key else NO_KEY.format(str(cluster.shared))
    if wants_json(as_json):
        more = {} if warning is None else {"warning": warning}
        print_json({"server": state.server, "tables": state.tables, "done": done, "sealed": sealed, **more})
        return
    made = f"Made: {', '.join(done)}." if done else "All of them were there: nothing was to do."
    echo(f"PostgreSQL {state.server} is reached, and has {counted(state.tables, 'table')} of OneTool.\n{made}")
    if sealed:
        echo(f"{counted(sealed, 'document')} that only this machine could read: encrypted with cluster.key now.")
    if warning is not None:
        echo(printable(f"{warning[0].upper()}{warning[1:]}."))
    echo("Next: `onetool db import` copies what the folder has, `onetool serve` uses the database.")


@db.command()
@data_options
@click.pass_context
def migrate(ctx: click.Context, as_json: bool) -> None:
    """Run the migrations that are missing. `onetool serve` does it, too, when it starts."""
    from onetool.database.migrations import migrate

    with _reached(_config(ctx)) as database:
        done = migrate(database)
    if wants_json(as_json):
        print_json({"done": done})
    else:
        echo(f"Done: {', '.join(done)}." if done else "Nothing to do: no migration is missing.")


# Moving


@db.command("import")
@click.option("--force", is_flag=True, help="Replace what is in the database under the same name.")
@data_options
@click.pass_context
def import_command(ctx: click.Context, force: bool, as_json: bool) -> None:
    """Copy what the folder of the config has into the database.

    Files stay as they are. It can be done again: what is in the database already stays. Stop servers that use the
    folder before. Exit code 1 if something could not be copied.
    """
    from onetool.app.audit import noted_command
    from onetool.app.database_move import import_home
    from onetool.database.migrations import migrate
    from onetool.database.moving import MoveOptions

    config = _config(ctx)
    with _reached(config) as database:
        migrate(database)  # with the table of the audit log
        with noted_command(config, "db import"):
            options = MoveOptions(force=force, config=config)
            found = list(import_home(config.home, database, options, _tell))
    _print_moved(found, as_json, f"Copied from {config.home} into the database")
    ctx.exit(1 if any(moved.left for _, moved in found) else 0)


@db.command("export")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--inside-roots", is_flag=True, help="Allow a folder below fs.roots, where tools read files.")
@data_options
@click.pass_context
def export_command(ctx: click.Context, folder: Path, inside_roots: bool, as_json: bool) -> None:
    """Copy what the database has into an empty folder, outside of fs.roots: onetool db export ../onetool-home.

    Config, packs and secrets are not in it. To use the folder, remove `database` from the config and set ONETOOL_HOME
    to the folder. It holds keys and sessions, so its file .onetool-state closes it to tools wherever it lies.
    """
    from onetool.app.audit import noted_command
    from onetool.app.database_move import export_home
    from onetool.app.database_state import alive_replicas
    from onetool.database.migrations import require_tables
    from onetool.database.moving import MoveOptions

    config = _config(ctx)
    target = Path(os.path.realpath(folder))
    below = next((root for root in config.fs.roots if target.is_relative_to(os.path.realpath(root))), None)
    if below is not None and not inside_roots:
        raise click.ClickException(
            f"{folder} is below {below}, a folder of fs.roots, where tools read files.\n"
            "Name a folder outside of fs.roots, or add --inside-roots."
        )
    with _reached(config) as database:
        require_tables(database)
        if running := len(alive_replicas(database, config)):
            what = "what it changes" if running == 1 else "what they change"
            are = "is" if running == 1 else "are"
            warning = f"{counted(running, 'replica')} {are} running: {what} now is not in the export"
            click.echo(f"warning: {warning}", err=True)
        with noted_command(config, "db export"):
            found = list(export_home(database, folder.absolute(), MoveOptions(config=config), _tell))
    _print_moved(found, as_json, f"Copied from the database into {folder.absolute()}")
    ctx.exit(1 if any(moved.left for _, moved in found) else 0)


def _tell(store: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        show_progress(done, total, store)


def _print_moved(found: "Iterable[tuple[str, Moved]]", as_json: bool, title: str) -> None:
    rows = [{"store": name, **msgspec.to_builtins(moved)} for name, moved in found]
    if wants_json(as_json):
        print_json({"stores": rows})
        return
    cells = [(row["store"], f"{row['moved']:,}", f"{row['same']:,}", f"{len(row['left']):,}") for row in rows]
    print_table(title, ("store", "copied", "there before", "left"), cells)
    left = [one for row in rows for one in row["left"]]
    for one in left[:MOST_LEFT]:
        echo(printable(f"left: {one['what']}: {one['why']}"))
    if len(left) > MOST_LEFT:
        echo(f"… and {len(left) - MOST_LEFT:,} more: --json has all of them.")
    if any(one["is_conflict"] for one in left):
        echo("Something else is in the database under these names. --force replaces it.")


# The state


def _state(database: "Database", config: "Config") -> dict[str, Any]:
    from onetool.app.database_move import count_stores
    from onetool.app.database_state import database_state

    state = database_state(database, config)
    return {**msgspec.to_builtins(state), "stores": None if state.missing else count_stores(database)}


def _print_state(shown: dict[str, Any]) -> None:
    lines = [("PostgreSQL", f"{shown['server']}, reached"), ("tables", f"{shown['tables']:,}")]
    missing = ", ".join(shown["missing"])
    lines.append(("missing", f"{missing}: onetool db migrate" if missing else "nothing"))
    lines += [(f"rows of {name}", f"{count:,}") for name, count in (shown["stores"] or {}).items()]
    print_table("Database", ("", ""), lines)
    print_replicas(shown["replicas"])


def print_replicas(replicas: "Iterable[dict[str, Any]]") -> None:
    """Those that are alive."""
    rows = [(one["id"], one["address"], one["version"], one["since"], _remark(one)) for one in replicas]
    if rows:
        print_table(counted(len(rows), "replica"), ("id", "address", "version", "since", ""), rows)


def _remark(replica: dict[str, Any]) -> str:
    if replica["has_other_key"]:
        return "has another cluster.key"
    if replica["same_address"]:
        return f"has the address of {replica['same_address']}"
    return "ends" if replica["is_draining"] else ""


# The database


class UnreachedError(click.ClickException):
    """The database can't be used now; said with what to do about it."""

    def __init__(self, problem: str, hint: str | None) -> None:
        super().__init__(printable(f"{problem}\n{hint[0].upper()}{hint[1:]}." if hint else problem))
        self.problem, self.hint = problem, hint


@contextmanager
def _reached(config: "Config") -> "Generator[Database]":
    """The database of the config, without any tables being made. What goes wrong with it is told in words."""
    import logging

    from onetool.app.database import open_database
    from onetool.app.database_state import explain
    from onetool.database import DatabaseError

    if config.database is None:
        place = f"{config.path} has" if config.path else "there is no config, and so"
        raise click.ClickException(
            f"{place} no database: everything is in files below {config.home}. For several machines, add\n"
            "database: ${DATABASE_URL}    # postgresql://user:password@host/name"
        )
    logging.getLogger("onetool.database").setLevel(logging.CRITICAL)  # it would say the same again
    database = open_database(config)
    try:
        yield database
    except DatabaseError as error:
        raise UnreachedError(*explain(error)) from None
    finally:
        database.close()


def _config(ctx: click.Context) -> "Config":
    from onetool.config import load_config

    found = find_here(ctx)
    config = load_config(found)
    if config.database is None and found.untrusted is not None:
        raise click.ClickException(f"the config in {found.untrusted.folder} is not used, as the line above says.")
    return config
