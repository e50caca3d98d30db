"""`onetool init --client`: prints the entry that an MCP client needs, or writes it to the client's file.

One server is added to a client's JSON or TOML file, which keeps its comments, order and layout. The new text is parsed
before it is written, and the file is replaced atomically. `onetool.config.known_clients` describes the clients: where
their files are, and how a server is written.
"""

import json
import os
import re
import shutil
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from onetool.app.own_server import own_command, served_at
from onetool.config import Found, find, load_config
from onetool.config.client_files import EditError, JsoncDocument, JsoncError, Value, put_file, read_json
from onetool.config.find import user_config, user_home
from onetool.config.known_clients import CLIENTS, KnownClient, OneToolEntry, dump_json, json_snippet, toml_snippet
from onetool.interfaces.cli.options import refuse_link_out


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
    put = put_toml if file.suffix == ".toml" else put_json
    change = partial(put, section=client.section, name=options.name, entry=client.entry(server), force=options.force)
    try:
        written = put_file(file, change, private=options.user)
    except OSError as error:
        raise click.ClickException(f"Can't write {file}: {error.strerror}.") from None
    except EditError as refusal:
        click.echo(client.snippet(options.name, server, file), nl=False)
        raise click.ClickException(f"{file} was not changed: {refusal}. The entry to add is above.") from None
    click.echo(
        f"Wrote {options.name} into {file}." if written else f"{file} already has this entry for {options.name}."
    )
    _print_remarks(options, client, server, err=False)


def _print_remarks(options: SetupOptions, client: KnownClient, server: OneToolEntry, *, err: bool) -> None:
    """Print remarks on the entry, and the next step."""
    if server.url:
        click.echo(f"It calls {server.url}: start that server with onetool serve.", err=err)
    if server.token:
        click.echo(f"{client.title} takes the token from the environment variable {server.token}.", err=err)
    local = [path for path in (server.command, *server.args) if os.path.isabs(path)]
    if local and not options.user:
        click.echo(f"{', '.join(local)}: exists only on this machine; change it before you share the file.", err=err)
    click.echo(f"Next: {client.then_user if options.user else client.then_project}", err=err)


def name_taken(name: str) -> EditError:
    return EditError(f"it has another server called {name}: --force replaces it, --name sets another name")


# JSON files


def put_json(text: str, section: str, name: str, entry: dict[str, Any], *, force: bool) -> str:
    """Return the text with the entry, which may be present already. Raises EditError if that is impossible."""
    if not text.strip():
        return json_snippet(section, name, entry)
    try:
        before = read_json(text)
    except JsoncError as error:
        raise EditError(f"it is not JSON: {error}") from None
    new, replaced = _json_changed(text, before.root, section, name, entry, force)
    if new != text:
        _check_json(before, new, replaced, {section: {name: entry}})
    return new


def _json_changed(
    text: str, root: Value, section: str, name: str, entry: dict[str, Any], force: bool
) -> tuple[str, Value | None]:
    """Return the new text, and the value that it replaces in the old text."""
    if root.members is None:
        raise EditError("it does not contain an object")
    servers = root.members.get(section)
    if servers is None:
        return _json_added(text, root, root, section, {name: entry}), None
    if servers.members is None:
        raise EditError(f"{section} in it is not an object")
    there = servers.members.get(name)
    if there is None:
        return _json_added(text, root, servers, name, entry), None
    if there.data == entry:
        return text, None
    if not force:
        raise name_taken(name)
    layout = _Layout(text, root)
    value = layout.indented(entry, layout.indent_at(there.start), _line_of_value(text, there))
    return text[: there.start] + value + text[there.end :], there


def _json_added(text: str, root: Value, target: Value, key: str, data: dict[str, Any]) -> str:
    """Return the text with a member added at the end of an object."""
    layout = _Layout(text, root)
    members = list((target.members or {}).values())
    close = target.end - 1
    after = members[-1].end if members else target.filled
    comma = "," if members and not target.comma else ""
    many_lines = not members or _line_of_value(text, target)
    if many_lines:
        indent = layout.indent_of_members(target)
        gap = text[target.filled : close]
        space, end = layout.newline + indent, gap if "\n" in gap else layout.newline + layout.indent_at(target.start)
    else:
        indent, space, end = "", " ", text[target.filled : close]
    member = f"{json.dumps(key)}: {layout.indented(data, indent, many_lines)}"
    return text[:after] + comma + text[after : target.filled] + space + member + end + text[close:]


def _line_of_value(text: str, value: Value) -> bool:
    return "\n" in text[value.start : value.end]


class _Layout:
    """The layout of a file: its line ends and indentation."""

    def __init__(self, text: str, root: Value) -> None:
        self.text = text
        self.newline = "\r\n" if "\r\n" in text else "\n"
        first = re.search(r"\n([ \t]+)\"", text[root.start : root.end])
        self.unit = first[1] if first else "  "

    def indent_at(self, place: int) -> str:
        """Return the indentation of the line at this place."""
        line = self.text[self.text.rfind("\n", 0, place) + 1 : place]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def indent_of_members(self, target: Value) -> str:
        inside = self.text[target.start : target.end]
        first = re.match(r"\{\s*\n([ \t]*)\"", inside)
        return first[1] if first else self.indent_at(target.start) + self.unit

    def indented(self, data: dict[str, Any], indent: str, many_lines: bool) -> str:
        if not many_lines:
            return json.dumps(data, ensure_ascii=False)
        return dump_json(data, self.unit).replace("\n", self.newline + indent)


def _check_json(before: JsoncDocument, new: str, replaced: Value | None, added: dict[str, dict[str, Any]]) -> None:
    """Check that the new text has the old data plus the entry, and all comments outside of the replaced value."""
    ((section, servers),) = added.items()
    expected = {**before.root.data, section: {**before.root.data.get(section, {}), **servers}}
    gone = range(replaced.start, replaced.end) if replaced else range(0)
    comments = [comment for place, comment in before.comments if place not in gone]
    try:
        after = read_json(new)
    except JsoncError:
        after = None
    if after is None or after.root.data != expected or [comment for _, comment in after.comments] != comments:
        raise EditError("its layout can't be edited automatically")


# TOML files


def put_toml(text: str, section: str, name: str, entry: dict[str, Any], *, force: bool) -> str:
    """Return the text with the entry, which may be present already. Raises EditError if that is impossible."""
    try:
        before = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise EditError(f"it is not TOML: {error}") from None
    servers = before.get(section, {})
    if not isinstance(servers, dict):
        raise EditError(f"{section} in it is not a table")
    if servers.get(name) == entry:
        return text
    if name in servers and not force:
        raise name_taken(name)
    newline = "\r\n" if "\r\n" in text else "\n"
    table = toml_snippet(section, name, entry).replace("\n", newline)
    if name in servers:
        new = _toml_replaced(text, section, name, table)
    else:
        new = text.rstrip("\r\n") + newline * 2 + table if text.strip() else table
    try:
        after = tomllib.loads(new)
    except tomllib.TOMLDecodeError:
        after = None
    if after != {**before, section: {**servers, name: entry}}:
        raise EditError("its layout can't be edited automatically")
    return new


def _toml_replaced(text: str, section: str, name: str, table: str) -> str:
    """Replace the lines of the table and of its subtables, but not the comments above the next header."""
    lines = text.splitlines(keepends=True)
    own = re.compile(rf"\s*\[\s*{_toml_key(section)}\s*\.\s*{_toml_key(name)}\s*[.\]]")
    headers = [at for at, line in enumerate(lines) if re.match(r"\s*\[", line)]
    start = next((at for at in headers if own.match(lines[at])), None)
    if start is None:
        raise EditError("its layout can't be edited automatically")
    end = next((at for at in headers if at > start and not own.match(lines[at])), len(lines))
    while end > start + 1 and re.match(r"\s*(#.*)?$", lines[end - 1]):
        end -= 1
    return "".join([*lines[:start], table, *lines[end:]])


def _toml_key(key: str) -> str:
    return rf"[\"']?{re.escape(key)}[\"']?"
