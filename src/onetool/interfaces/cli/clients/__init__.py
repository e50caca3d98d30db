"""`onetool init --client`: prints the entry that an MCP client needs, or adds it to the client's config.

An entry is added by the client's own command where there is a safe one, and otherwise by rewriting the client's file: a
file of plain JSON, or TOML that gets a further table. Nothing else is edited, and the entry is printed instead.
`onetool.config.known_clients` describes the clients.
"""

import base64
import json
import os
import re
import shutil
import subprocess
import tomllib
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import msgspec

from onetool.app.own_server import own_command, served_at
from onetool.config import Found, find, load_config
from onetool.config.client_files import EditError, JsoncError, put_file, read_json, read_plain_json
from onetool.config.find import user_config, user_home
from onetool.config.known_clients import CLIENTS, KnownClient, OneToolEntry, dump_json, json_snippet, toml_snippet
from onetool.core.text import visible
from onetool.interfaces.cli.options import refuse_link_out

COMMAND_TIMEOUT_S = 60.0  # of a client's own command


class SetupOptions(msgspec.Struct, frozen=True, kw_only=True):
    client: str
    folder: Path
    name: str
    config: str | None = None  # the value of --config
    write: bool = False
    user: bool = False
    http: bool = False
    url: str | None = None
    force: bool = False


def set_up_client(options: SetupOptions) -> None:
    """Print the entry and where it belongs, or write it there."""
    client, folder = CLIENTS[options.client], _absolute(options.folder)
    if options.http and not client.takes_urls:
        raise click.UsageError(f"{client.title} takes no URL in its file: leave out --http, and it starts onetool mcp.")
    if client.project_file is None:
        options = msgspec.structs.replace(options, user=True)
    try:
        url_server = served_at(options.url, load_config(_found(options))) if options.http else None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--http") from None
    server = url_server or _own_server(options, client, folder)
    file = client.user_file(user_home(os.environ), os.environ)
    if client.project_file is not None and not options.user:
        file = folder / client.project_file
    if options.write:
        if not options.user:
            refuse_link_out(file, folder)
        _write(options, client, server, file)
        return
    # Only the entry goes to standard output, which can be redirected to a file.
    more = "" if options.user else "; --user is for all your projects"
    click.echo(f"For {client.title}, into {file} (--write puts it there{more}):\n", err=True)
    click.echo(client.snippet(options.name, server, file), nl=False)
    click.echo("", err=True)
    _print_remarks(options, client, server, err=True)


def _own_server(options: SetupOptions, client: KnownClient, folder: Path) -> OneToolEntry:
    """Return the command, with --config if the server would not find the config by itself."""
    command, *first = own_command()
    config = _found(options).config  # a given path is relative to the current folder, not to FOLDER
    named = [] if config is None else _named_config(options, client, folder, _absolute(config))
    if client.project_file is None:
        command = shutil.which(command) or command  # the client has another PATH than the shell
    elif not options.user:
        command = _in_project(command, client, folder)
    return OneToolEntry(command=command, args=(*first, "mcp", *named))


def _found(options: SetupOptions) -> Found:
    named = options.config is not None or os.environ.get("ONETOOL_CONFIG")
    return find(options.config, cwd=None if named else _absolute(options.folder))


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # without `..`, but with links


def _named_config(options: SetupOptions, client: KnownClient, folder: Path, config: Path) -> list[str]:
    """Return the config argument. A project's file is shared, so it may only name files in the project."""
    own = user_config()
    found = find(env={**os.environ, "ONETOOL_CONFIG": ""}, cwd=folder).config
    if config == found and (config == own or (client.starts_in_project and not options.user)):
        return []
    if options.user:
        return ["--config", str(config)]
    return ["--config", _in_project(str(config), client, folder, climb=config == found, relative=True)]


def _in_project(path: str, client: KnownClient, folder: Path, *, climb: bool = False, relative: bool = False) -> str:
    """Return a path with the client's variable for the project's folder, if it is inside (or above, for `climb`).

    Without such a variable, only a `relative` path helps: clients start servers in the folder where they were started.
    """
    if not os.path.isabs(path) or not (climb or Path(path).is_relative_to(folder)):
        return path
    within = Path(os.path.relpath(path, folder)).as_posix()
    if client.project_folder:
        return f"{client.project_folder}/{within}"
    return within if relative else path


def _write(options: SetupOptions, client: KnownClient, server: OneToolEntry, file: Path) -> None:
    """Add the entry by the client's own command, or to its file. If neither is safe, print the entry and fail."""
    entry = client.entry(server)
    try:
        there = _entry_in(file, client.section, options.name)
        if there is not None and all(there.get(key) == value for key, value in entry.items()):
            click.echo(f"{file} already has this entry for {options.name}.")
        elif there is not None and not options.force:
            raise EditError(
                f"it has another server called {options.name}: --force replaces it, --name sets another name"
            )
        elif options.user and shutil.which((command := client.add_command(options.name, server) or [""])[0]):
            if there is not None and client.removal:  # the other commands replace an entry
                _run([*client.removal, options.name])
            _run(command)
            click.echo(f"Added {options.name} to {client.title}: {visible(' '.join(command))}")
        else:
            put = _put_toml if file.suffix == ".toml" else _put_json
            change = partial(put, section=client.section, name=options.name, entry=entry)
            put_file(file, change, private=options.user)
            click.echo(f"Wrote {options.name} into {file}.")
    except (EditError, JsoncError) as refusal:
        click.echo(client.snippet(options.name, server, file), nl=False)
        raise click.ClickException(f"{file} was not changed: {refusal}. The entry to add is above.") from None
    except OSError as error:
        raise click.ClickException(f"Can't write {file}: {error.strerror}.") from None
    _print_remarks(options, client, server, err=False)


def _entry_in(file: Path, section: str, name: str) -> dict[str, Any] | None:
    """Return the entry of this name in a client's file; None if there is none. Raises JsoncError and EditError."""
    from onetool.config.server_import.translate import text_of

    text = text_of(file) if file.exists() else ""
    try:
        data = (tomllib.loads(text) if file.suffix == ".toml" else read_json(text)) if text.strip() else {}
    except tomllib.TOMLDecodeError as error:
        raise EditError(f"it is not TOML: {error}") from None
    servers = data.get(section, {}) if isinstance(data, dict) else None
    if not isinstance(servers, dict):
        raise EditError("it does not contain an object" if servers is None else f"{section} in it is not an object")
    there = servers.get(name)
    return there if there is None or isinstance(there, dict) else {}


def _run(command: list[str]) -> None:
    """Run a client's own command. Raises EditError."""
    try:
        done = subprocess.run(  # noqa: S603 - the client's own command, without a shell
            command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EditError(f"{command[0]} did not run: {error}") from None
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        raise EditError(visible(f"{' '.join(command[:3])} failed: {lines[-1]}"))


def _put_json(text: str, section: str, name: str, entry: dict[str, Any]) -> str:
    """Return the text of a JSON file with the entry. Raises EditError for a file with comments, which would be lost."""
    if not text.strip():
        return json_snippet(section, name, entry)
    try:
        data = read_plain_json(text)
    except JsoncError:
        raise EditError("it has comments or trailing commas, which would be lost") from None
    data.setdefault(section, {})[name] = entry
    indent = re.search(r'\n([ \t]+)"', text)
    new = dump_json(data, indent[1] if indent else "  ") + ("\n" if text.endswith("\n") else "")
    return new.replace("\n", "\r\n") if "\r\n" in text else new


def _put_toml(text: str, section: str, name: str, entry: dict[str, Any]) -> str:
    """Return the text of a TOML file with a further table. Raises EditError if that is impossible."""
    before = tomllib.loads(text)
    if name in before.get(section, {}):
        raise EditError("replace its table by hand")
    newline = "\r\n" if "\r\n" in text else "\n"
    table = toml_snippet(section, name, entry).replace("\n", newline)
    new = text.rstrip("\r\n") + newline * 2 + table if text.strip() else table
    try:
        after = tomllib.loads(new)
    except tomllib.TOMLDecodeError:  # the table is there, or the section is an inline table
        after = None
    if after != {**before, section: {**before.get(section, {}), name: entry}}:
        raise EditError("its layout can't be edited automatically")
    return new


def _print_remarks(options: SetupOptions, client: KnownClient, server: OneToolEntry, *, err: bool) -> None:
    """Print remarks on the entry, and the next step."""
    if server.url:
        click.echo(f"It calls {server.url}: start that server with onetool serve.", err=err)
    if server.token:
        click.echo(f"{client.title} takes the token from the environment variable {server.token}.", err=err)
    if options.client == "cursor":
        click.echo(f"Or open this link: {_cursor_link(options.name, client.entry(server))}", err=err)
    local = [path for path in (server.command, *server.args) if os.path.isabs(path)]
    if local and not options.user:
        click.echo(f"{', '.join(local)}: exists only on this machine; change it before you share the file.", err=err)
    click.echo(f"Next: {client.then_user if options.user else client.then_project}", err=err)


def _cursor_link(name: str, entry: dict[str, Any]) -> str:
    """Return the link with which Cursor adds a server for all projects: https://cursor.com/docs/context/mcp"""
    config = base64.b64encode(json.dumps({key: value for key, value in entry.items() if key != "type"}).encode())
    return f"cursor://anysphere.cursor-deeplink/mcp/install?name={quote(name)}&config={quote(config.decode())}"
