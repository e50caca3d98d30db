"""`onetool db …`: shows, migrates and copies `state.db`, or the database that several machines share.

No tools are loaded. Progress goes to standard error.
"""

import logging
import os
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from onetool.app.access import token_store
from onetool.app.database import open_database, open_state_file, state_file
from onetool.app.database_copy import Place, copy_state, count_stores, has_state, open_export, open_place
from onetool.app.database_state import database_state, explain, file_state
from onetool.app.documents import documents_in, seal_anew
from onetool.cluster.report import alive_replicas
from onetool.config import Config, load_config
from onetool.database import Database, DatabaseError
from onetool.database.migrations import migrate as run_migrations
from onetool.database.migrations import require_tables
from onetool.database.moving import Moved
from onetool.database.restoring import is_sound, set_aside
from onetool.database.restoring import restore as restore_file
from onetool.interfaces.cli.options import data_options, find_here, noted
from onetool.interfaces.cli.output import (
    counted,
    echo,
    print_json,
    print_outcome,
    print_table,
    printable,
    show_progress,
    wants_json,
)
from onetool.services.access_tokens import LOSS_FIX

MAX_LISTED = 20  # items not copied, at a terminal
READABLE = "Logins, keys and sessions in the copy are readable and can be used by anyone who reads it. Keep it private."
NO_KEY = "not encrypted for other replicas: cluster.key is not set here ({}); set it, and run `onetool db init` again"


@click.group(invoke_without_command=True)
@data_options
def db(ctx: click.Context, as_json: bool) -> None:
    """Show and copy what OneTool has stored; set up a database that several machines share.

    Without a command, it shows what is stored and where: in state.db, or in the config's database with its replicas.
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
        if "file" in shown:
            lines = [("file", shown["file"]), ("size", f"{shown['bytes']:,} bytes"), ("schema", str(shown["schema"]))]
            if not shown["exists"]:
                lines[1:] = [("size", "0 bytes: created when something is first stored")]
        else:
            lines = [("PostgreSQL", f"{shown['server']}, connected"), ("tables", f"{shown['tables']:,}")]
            missing = ", ".join(shown["missing"])
            lines.append(("missing", f"{missing}: onetool db migrate" if missing else "nothing"))
        if loss := shown["lost_tokens"]:
            lines.append(("problem", f"{loss}: {LOSS_FIX}"))
        counts = (shown["stores"] or {}).items()
        lines += [(name, "can't be read" if count is None else f"{count:,}") for name, count in counts]
        print_table("Database", ("", ""), lines)
        print_replicas(shown.get("replicas", ()))


# Tables


@db.command()
@data_options
def init(ctx: click.Context, as_json: bool) -> None:
    """Check that the database can be reached, and create its tables. Without a database, create state.db.

    If `cluster.key` is new, it also encrypts the documents that this machine stored in the database before.
    """
    config = _config(ctx)
    if config.database is None:
        _print_file(config, as_json, makes=True)
        return
    with _reached(config) as database:
        done = run_migrations(database)
        state = database_state(database)
        sealed = seal_anew(database, config)
    shared = None if config.cluster is None or config.cluster.has_key else config.cluster.shared
    warning = None if shared is None else NO_KEY.format(str(shared))
    if wants_json(as_json):
        more = {} if warning is None else {"warning": warning}
        print_json({"server": state.server, "tables": state.tables, "done": done, "sealed": sealed, **more})
        return
    made = f"Created: {', '.join(done)}." if done else "All of them already exist."
    echo(f"PostgreSQL {state.server} has {counted(state.tables, 'table')} of OneTool.\n{made}")
    if sealed:
        echo(f"{counted(sealed, 'document')} that only this machine could read: now encrypted with cluster.key.")
    if warning is not None:
        echo(printable(f"{warning[0].upper()}{warning[1:]}."))
    echo("Next: `onetool db import` copies the content of the folder; `onetool serve` uses the database.")


@db.command()
@data_options
def migrate(ctx: click.Context, as_json: bool) -> None:
    """Run the missing migrations. `onetool serve` also runs them when it starts.

    A state.db is migrated whenever it is opened.
    """
    config = _config(ctx)
    if config.database is None:
        _print_file(config, as_json)
        return
    with _reached(config) as database:
        done = run_migrations(database)
    text = f"Done: {', '.join(done)}." if done else "Nothing to do: all migrations have been applied."
    print_outcome({"done": done}, text, as_json)


@db.command()
@data_options
def rekey(ctx: click.Context, as_json: bool) -> None:
    """Encrypt with cluster.key all documents that are encrypted with one of cluster.accepted_keys."""
    config = _config(ctx)
    if config.database is None or config.cluster is None:
        raise click.ClickException("The config has no cluster, so there is no key to change.")
    config.cluster.require("key")
    with _reached(config) as database:
        sealed = seal_anew(database, config)
    text = f"{counted(sealed, 'document')} encrypted with cluster.key. No document needs an older key any more."
    print_outcome({"sealed": sealed}, text, as_json)


# Copies


def _make_required_log(config: Config) -> None:
    """Create the tables before an import if the audit log is required: the import is logged first."""
    if config.database is not None and config.audit.mode == "required":
        with _reached(config) as database:
            run_migrations(database)


@db.command("import")
@click.argument("source", metavar="[FOLDER|FILE]", type=click.Path(exists=True, path_type=Path), required=False)
@click.option("--force", is_flag=True, help="Replace existing entries of the same name.")
@data_options
@noted(prepare=_make_required_log)
def import_command(ctx: click.Context, source: Path | None, force: bool, as_json: bool) -> None:
    """Copy a backup into the database: an export, a copy of state.db, or the home of the config.

    First stop servers that use the source. The source stays unchanged, and the import can be repeated: entries that
    exist already stay. Exit code 1 if something could not be copied.
    """
    config = _config(ctx)
    place = Path(os.path.realpath(source or config.home))
    own = [os.path.realpath(config.home), os.path.realpath(state_file(config))]
    if config.database is None and str(place) in own:
        raise click.ClickException(
            f"This config already uses {place}. Name another folder (onetool db import FOLDER), or a "
            "database in the config:\ndatabase: ${DATABASE_URL}    # postgresql://user:password@host/name"
        )
    if source is not None and place.is_dir() and not has_state(place):
        raise click.ClickException(f"{source} contains neither state.db nor bundles: name a state folder or an export.")
    with _reached(config) as database, open_place(place, None if source else state_file(config)) as copied:
        if config.database is not None:
            run_migrations(database)
        found = list(copy_state(copied, _place(config, database), config, _tell, force=force))
    _print_moved(found, as_json, f"Copied from {place} into {database.describe()}")
    ctx.exit(1 if any(moved.left for _, moved in found) else 0)


@db.command("export")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--inside-roots", is_flag=True, help="Allow a folder below fs.roots, where tools read files.")
@data_options
@noted()
def export_command(ctx: click.Context, folder: Path, inside_roots: bool, as_json: bool) -> None:
    """Copy everything into an empty folder, outside of fs.roots: onetool db export ../onetool-home.

    The folder gets a state.db, and the bundles as files. Config, packs and secrets are not copied. Servers may keep
    running. To use the folder, remove `database` from the config and set ONETOOL_HOME to the folder; or copy it with
    `onetool db import FOLDER`. The folder holds keys and sessions, so its file .onetool-state closes it to tools.
    """
    config = _config(ctx)
    target = Path(os.path.realpath(folder))
    below = next((root for root in config.fs.roots if target.is_relative_to(os.path.realpath(root))), None)
    if below is not None and not inside_roots:
        raise click.ClickException(
            f"{folder} is below {below}, a folder of fs.roots, where tools read files.\n"
            "Name a folder outside of fs.roots, or add --inside-roots."
        )
    with _reached(config) as database:
        if config.database is not None:
            require_tables(database)
            if running := len(alive_replicas(database, config)):
                are = "is" if running == 1 else "are"
                warning = f"{counted(running, 'replica')} {are} running: a change made now may not be in the export"
                click.echo(f"warning: {warning}", err=True)
        with open_export(folder.absolute()) as place:
            found = list(copy_state(_place(config, database), place, config, _tell))
    _print_moved(found, as_json, f"Copied from {database.describe()} into {folder.absolute()}", READABLE)
    ctx.exit(1 if any(moved.left for _, moved in found) else 0)


@db.command()
@click.option("--empty", is_flag=True, help="Start anew: save nothing.")
@data_options
def restore(ctx: click.Context, empty: bool, as_json: bool) -> None:
    """Save what can be read of a damaged state.db in a new one.

    First stop servers that use it. The damaged file is kept as state.db.damaged-DATE. A server that had tokens stays
    closed until it has one again.
    """
    config = _config(ctx)
    file = state_file(config)
    if config.database is not None:
        raise click.ClickException("The config has a database: restore a backup with the tools of PostgreSQL.")
    if not file.exists():
        raise click.ClickException(f"{file} does not exist: copy a backup with `onetool db import FILE`.")
    if not empty and is_sound(file):
        raise click.ClickException(f"{file} is not damaged. To start anew, add --empty.")
    try:
        kept, found = (set_aside(file), []) if empty else restore_file(file)
    except OSError as error:
        raise click.ClickException(f"{file} can't be replaced: {error.strerror or error}") from None
    if wants_json(as_json):
        print_json({"kept": str(kept), "kinds": msgspec.to_builtins(found)})
        return
    echo(f"The damaged file is kept as {kept}.")
    rows = [(one.kind, f"{one.saved:,}", "unknown" if one.lost is None else f"{one.lost:,}") for one in found]
    if rows:
        print_table("Restored", ("kind", "saved", "lost"), rows)
    else:
        echo(f"{'Nothing was saved' if empty else 'Nothing of it can be read'}: {file} begins anew.")


def _place(config: Config, database: Database) -> Place:
    return Place(database, config.home if config.database is None else None)


def _tell(store: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        show_progress(done, total, store)


def _print_moved(found: Iterable[tuple[str, Moved]], as_json: bool, title: str, remark: str | None = None) -> None:
    rows = [{"store": name, **msgspec.to_builtins(moved)} for name, moved in found]
    if wants_json(as_json):
        print_json({"stores": rows, **({"remark": remark} if remark else {})})
        return
    remarks = [*(one for row in rows for one in row["remarks"]), *([remark] if remark else [])]
    cells = [(row["store"], f"{row['moved']:,}", f"{row['same']:,}", f"{len(row['left']):,}") for row in rows]
    print_table(title, ("store", "copied", "already there", "left"), cells)
    left = [one for row in rows for one in row["left"]]
    for one in left[:MAX_LISTED]:
        echo(printable(f"left: {one['what']}: {one['why']}"))
    if len(left) > MAX_LISTED:
        echo(f"… and {len(left) - MAX_LISTED:,} more: --json has all of them.")
    if any(one["is_conflict"] for one in left):
        echo("Other entries exist under these names. --force replaces them.")
    for one in remarks:
        echo(one)


# The state


def _state(database: Database, config: Config) -> dict[str, Any]:
    tokens = token_store(config, documents_in(database, "tokens", config, "never"))
    if config.database is None:
        state = {**msgspec.to_builtins(file_state(database)), "lost_tokens": tokens.loss}
        return {**state, "stores": count_stores(database, config)}
    state = database_state(database)
    replicas = () if state.missing else alive_replicas(database, config)
    stores = None if state.missing else count_stores(database, config)
    loss = None if state.missing else tokens.loss
    more = {"lost_tokens": loss, "replicas": msgspec.to_builtins(replicas), "stores": stores}
    return {**msgspec.to_builtins(state), **more}


def _print_file(config: Config, as_json: bool, *, makes: bool = False) -> None:
    """Report the state of `state.db`; opening it creates its tables. `makes` creates the file."""
    with _reached(config) as database:
        if makes:
            database.write(lambda work: None)
        state = file_state(database)
    text = f"{state.file} does not exist yet: it is created when something is first stored."
    if state.exists:
        text = f"{state.file} is up to date (schema {state.schema})."
    print_outcome(msgspec.to_builtins(state), text, as_json)


def print_replicas(replicas: Iterable[dict[str, Any]]) -> None:
    rows: list[tuple[Any, ...]] = []
    for one in replicas:
        remark = "ends" if one["is_draining"] else ""
        if one["has_other_key"]:
            remark = "has another cluster.key"
        rows.append((one["id"], one["address"], one["version"], one["since"], remark))
    if rows:
        print_table(counted(len(rows), "replica"), ("id", "address", "version", "since", ""), rows)


# The database


class UnreachedError(click.ClickException):
    """An error about a database that can't be used now, with a hint."""

    def __init__(self, problem: str, hint: str | None) -> None:
        super().__init__(printable(f"{problem}\n{hint[0].upper()}{hint[1:]}." if hint else problem))
        self.problem, self.hint = problem, hint


@contextmanager
def _reached(config: Config) -> Generator[Database]:
    """Open the config's database, without creating tables, or `state.db`. Raises UnreachedError."""
    logging.getLogger("onetool.database").setLevel(logging.CRITICAL)  # it would repeat the error
    database = open_state_file(config) if config.database is None else open_database(config)
    try:
        yield database
    except DatabaseError as error:
        raise UnreachedError(*explain(error)) from None
    finally:
        database.close()


def _config(ctx: click.Context) -> Config:
    found = find_here(ctx)
    config = load_config(found)
    if config.database is None and found.untrusted is not None:
        raise click.ClickException(f"The config in {found.untrusted.folder} is not used, as the line above says.")
    return config
