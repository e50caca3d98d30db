"""`onetool init --client`: prints the entry that an MCP client needs, or writes it to the client's file.

known        each client: where its files are, and how it writes a server
edit_files   adds an entry to a JSON or TOML file and changes nothing else in it
"""

import os
import shutil
from functools import partial
from pathlib import Path

import click
import msgspec

from onetool.config import Found, find, load_config
from onetool.config.client_files import EditError, put_file
from onetool.config.find import FOLDER, NAME, user_home
from onetool.interfaces.cli.clients.edit_files import json_snippet, put_json, put_toml, toml_snippet
from onetool.interfaces.cli.clients.known import CLIENTS, KnownClient, OwnServer, own_command, served_at

# `onetool init --client …`: show the entry that a client needs, or put it into the client's file.


class SetupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `init --client`."""

    client: str
    folder: Path
    name: str
    config: str | None = None  # as --config says it
    write: bool = False
    user: bool = False
    http: bool = False
    url: str | None = None
    force: bool = False


def set_up_client(options: SetupOptions) -> None:
    """Print the entry and where it belongs; or write it there."""
    client, folder = CLIENTS[options.client], _absolute(options.folder)
    if options.http and not client.takes_urls:
        raise click.UsageError(f"{client.title} takes no URL in its file: leave --http out, and it starts onetool mcp.")
    if client.project_file is None:
        options = msgspec.structs.replace(options, user=True)
    server = _server_name(options) if options.http else _own_server(options, client, folder)
    file = client.user_file(user_home(os.environ), os.environ)
    if client.project_file is not None and not options.user:
        file = folder / client.project_file
    if options.write:
        _write(options, client, server, file)
    else:
        _show(options, client, server, file)


def _server_name(options: SetupOptions) -> OwnServer:
    try:
        return served_at(options.url, load_config(_found(options)))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--http") from None


def _own_server(options: SetupOptions, client: KnownClient, folder: Path) -> OwnServer:
    """The command with the config that is in force, where the server would not find it by itself."""
    command, *first = own_command()
    config = _config(options)
    named = [] if config is None else _named_config(options, client, folder, config)
    if client.project_file is None:
        command = shutil.which(command) or command  # it is started from no shell, and so with another PATH
    elif not options.user:
        command = _in_project(command, client, folder)
    return OwnServer(command=command, args=(*first, "mcp", *named))


def _config(options: SetupOptions) -> Path | None:
    """The config in force for FOLDER. One that was named is named from where we are, not from there."""
    config = _found(options).config
    return config and _absolute(config)


def _found(options: SetupOptions) -> Found:
    named = options.config is not None or os.environ.get("ONETOOL_CONFIG")
    return find(options.config, cwd=None if named else _absolute(options.folder))


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # without its `..`; links stay what they are


def _named_config(options: SetupOptions, client: KnownClient, folder: Path, config: Path) -> list[str]:
    """The config argument. A project's file is shared, so it may only name files in the project."""
    own = user_home(os.environ) / FOLDER / NAME
    found = find(env={**os.environ, "ONETOOL_CONFIG": ""}, cwd=folder).config
    if config == found and (config == own or (client.starts_in_project and not options.user)):
        return []
    if options.user:
        return ["--config", str(config)]
    return ["--config", _in_project(str(config), client, folder, climb=config == found, relative=True)]


def _in_project(path: str, client: KnownClient, folder: Path, *, climb: bool = False, relative: bool = False) -> str:
    """A path in the client's own words for the project's folder, if it is in there (or above, for `climb`).

    Without such words only a `relative` path will do: clients start servers in the folder where they were started.
    """
    if not os.path.isabs(path) or not (climb or Path(path).is_relative_to(folder)):
        return path
    within = Path(os.path.relpath(path, folder)).as_posix()
    if client.project_folder:
        return f"{client.project_folder}/{within}"
    return within if relative else path


def _snippet(options: SetupOptions, client: KnownClient, server: OwnServer, file: Path) -> str:
    dump = toml_snippet if file.suffix == ".toml" else json_snippet
    return dump(client.section, options.name, client.entry(server))


def _show(options: SetupOptions, client: KnownClient, server: OwnServer, file: Path) -> None:
    """The entry alone on standard output: it can be sent into a file. Everything about it goes to standard error."""
    more = "" if options.user else "; --user is for all your projects"
    click.echo(f"For {client.title}, into {file} (--write puts it there{more}):\n", err=True)
    click.echo(_snippet(options, client, server, file), nl=False)
    click.echo("", err=True)
    _tell(options, client, server, err=True)


def _write(options: SetupOptions, client: KnownClient, server: OwnServer, file: Path) -> None:
    put = put_toml if file.suffix == ".toml" else put_json
    change = partial(put, section=client.section, name=options.name, entry=client.entry(server), force=options.force)
    try:
        written = put_file(file, change, private=options.user)
    except OSError as error:
        raise click.ClickException(f"can't write {file}: {error.strerror}.") from None
    except EditError as refusal:
        click.echo(_snippet(options, client, server, file), nl=False)
        raise click.ClickException(f"{file} stays as it is: {refusal}. The entry to put in stands above.") from None
    click.echo(f"Wrote {options.name} into {file}." if written else f"{file} has {options.name} already, just so.")
    _tell(options, client, server, err=False)


def _tell(options: SetupOptions, client: KnownClient, server: OwnServer, *, err: bool) -> None:
    """What else there is to know, and to do."""
    if server.url:
        click.echo(f"It calls {server.url}: start that with onetool serve.", err=err)
    if server.token:
        click.echo(f"{client.title} takes the token from the environment variable {server.token}.", err=err)
    local = [path for path in (server.command, *server.args) if os.path.isabs(path)]
    if local and not options.user:
        click.echo(f"Only on this machine there is {', '.join(local)}: mind that before you share the file.", err=err)
    click.echo(f"Next: {client.then_user if options.user else client.then_project}", err=err)
