"""`onetool servers import` and `add`: add servers to the config file; no server is started.

No message contains a value that may be a secret, except with --project, which shows the project's servers in full.
"""

import os
import re
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from onetool.config import find, load_config
from onetool.config.client_files import JsoncError
from onetool.config.file_checks import is_inside
from onetool.config.find import place_of, user_home
from onetool.core.text import or_rather, shown_line, visible
from onetool.interfaces.cli.options import completion, data_options
from onetool.interfaces.cli.output import (
    confirm,
    counted,
    echo,
    print_json,
    print_note,
    print_table,
    printable,
    tell_running_servers,
    wants_json,
)

if TYPE_CHECKING:
    from onetool.config.server_import import ConfigTarget, ServerImportPlan
    from onetool.config.server_import.translate import ClientServers


@completion
def complete_client(_config: str | None) -> Iterable[str]:
    from onetool.config.known_clients import CLIENT_FILES

    return CLIENT_FILES


@completion
def complete_server(config: str | None) -> Iterable[str]:
    return load_config(find(config)).servers


@click.command("import")
@click.argument("file", required=False)
@click.option(
    "--from", "client", metavar="CLIENT", shell_complete=complete_client, help="Read the files of this client."
)
@click.option("--project", is_flag=True, help="With --from: also read the client's files in this folder, and ask.")
@click.option("--yes", is_flag=True, help="With --project: do not ask.")
@click.option("--only", multiple=True, metavar="NAME", help="Only this server. May be repeated.")
@click.option("--replace", is_flag=True, help="Replace servers of the same name instead of keeping them.")
@click.option("--dry-run", is_flag=True, help="Print what would be added, but write nothing.")
@data_options
def import_servers(
    ctx: click.Context,
    file: str | None,
    client: str | None,
    project: bool,
    yes: bool,
    only: tuple[str, ...],
    replace: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Import the MCP servers of another client. They come from FILE (`-` is standard input), or from the files of
    CLIENT.

    Without either, it lists the clients on this machine. Only your own files of CLIENT are read; --project also reads
    those of the project in this folder. Secrets go into the secrets file. No server is started.
    """
    if file and client:
        raise click.UsageError("Give FILE or --from CLIENT, not both.")
    if project and not client:
        raise click.UsageError("--project needs a client: add --from CLIENT.")
    if not file and not client:
        _list_clients(as_json)
        return
    from onetool.config.server_import import ConfigTarget, Planner

    target = ConfigTarget(ctx.find_root().obj)
    ask = _ask_for_secret if not dry_run else lambda *_: None
    planner = Planner(target, replace=replace, only=only, ask=ask, whole=project)
    found = [_read_file(file, target)] if file else _read_client(client or "", project)
    for one in found:
        planner.add(one)
    names = [name for one in found for name in one.servers]
    for name in only:
        if name not in names:
            known = or_rather(name, names) or f"; known: {', '.join(names)}"
            raise click.BadParameter(f"there is no server {name}{known}.", param_hint="--only")
    plan = planner.done()
    if dry_run:
        print_draft(plan, as_json)
    else:
        _show_seen(plan, target)
        if project and plan.from_project:
            confirm("Import these servers?", yes, "import them", "imported")
        write_plan(target, plan, as_json)
    ctx.exit(1 if plan.failed and not plan.servers else 0)


@click.command()
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--url", help="The URL of a server that is running.")
@click.option("--sse", is_flag=True, help="With --url: use the old transport, SSE.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="With --url: a header for every request."
)
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="An environment variable for the server.")
@click.option("--cwd", metavar="FOLDER", help="The folder to start it in.")
@click.option("--replace", is_flag=True, help="Replace a server of the same name.")
@click.option("--dry-run", is_flag=True, help="Print what would be added, but write nothing.")
@data_options
def add(
    ctx: click.Context,
    name: str,
    command: tuple[str, ...],
    url: str | None,
    sse: bool,
    headers: tuple[str, ...],
    env: tuple[str, ...],
    cwd: str | None,
    replace: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Add an MCP server to the config. Either NAME -- COMMAND ARGS…, or NAME --url URL.

    Secrets go into the secrets file. The server is not started.
    """
    if bool(command) == bool(url):
        raise click.UsageError("Give a command after --, or --url URL.")
    if (headers or sse) and not url:
        raise click.UsageError("--header and --sse are for servers with --url.")
    from onetool.config.server_import import ConfigTarget, Planner
    from onetool.config.server_import.translate import ClientServers

    block: dict[str, Any] = {"url": url, **({"type": "sse"} if sse else {})} if url else {"command": list(command)}
    block |= {"headers": _pairs(headers, "--header"), "env": _pairs(env, "--env"), "cwd": cwd}
    target = ConfigTarget(ctx.find_root().obj)
    if name in target.servers and not replace:
        raise click.ClickException(f"A server {name} already exists; --replace replaces it.")
    planner = Planner(target, replace=replace, ask=_ask_for_secret if not dry_run else lambda *_: None)
    planner.add(ClientServers(file=Path("the command line"), folder=Path.cwd(), servers={name: block}))
    plan = planner.done()
    if plan.skipped:
        raise click.ClickException(f"{name} was not added: {plan.skipped[name]}.")
    if dry_run:
        print_draft(plan, as_json)
    else:
        write_plan(target, plan, as_json)


def unknown_server(name: str, known: Any) -> click.ClickException:
    message = f"There is no server {printable(name)}{or_rather(name, known) or '; see: onetool servers list'}"
    return click.ClickException(message)


# Reading what to import


def _list_clients(as_json: bool) -> None:
    """Print the clients found on this machine and their servers; unreadable files are reported."""
    from onetool.config.known_clients import CLIENT_FILES, existing_files
    from onetool.config.server_import.translate import read_servers

    rows: list[dict[str, Any]] = []
    for spot in existing_files(Path.cwd(), user_home(os.environ), os.environ):
        row = {"client": spot.client, "file": str(spot.file), "servers": [], "error": None, "project": spot.in_project}
        try:
            row["servers"] = list(read_servers(spot.file, Path.cwd()).servers)
        except JsoncError as why:
            row["error"] = str(why)
        if row["servers"] or row["error"]:
            rows.append(row)
    if wants_json(as_json):
        print_json(rows)
        return
    if not rows:
        titles = ", ".join(place.title for place in CLIENT_FILES.values())
        echo(f"No servers of another client were found here. Looked for: {titles}.")
        echo("From any other file: onetool servers import FILE")
        return
    cells = [(row["client"], row["error"] or ", ".join(row["servers"]), shown_path(Path(row["file"]))) for row in rows]
    print_table("Servers of other clients", ("client", "servers", "file"), cells)
    for line in dict.fromkeys(
        f"onetool servers import --from {row['client']}{' --project' if row['project'] else ''}"
        for row in rows
        if row["servers"]
    ):
        echo(line)


def _read_file(file: str, target: "ConfigTarget") -> "ClientServers":
    if file == "-":
        from onetool.config.server_import.translate import MAX_BYTES, decoded, read_data, servers_in

        try:
            text = decoded(sys.stdin.buffer.read(MAX_BYTES + 1))
            found = servers_in(read_data(text, ""), Path("-"), Path.cwd())
        except JsoncError as why:
            raise click.ClickException(f"Nothing was imported from standard input: {why}.") from None
    else:
        folder = Path(os.path.abspath(file)).parent
        # .vscode/mcp.json refers to the folder above
        found = _read_servers(Path(file), folder.parent if folder.name.startswith(".") else folder)
        in_project = target.is_project and is_inside(Path(file), place_of(target.file.absolute()))
        found = msgspec.structs.replace(found, in_project=in_project)
    if not found.servers:
        raise click.ClickException(f"Nothing was imported from {file}: it has no servers.")
    return found


def _read_servers(file: Path, folder: Path) -> "ClientServers":
    from onetool.config.server_import.translate import read_servers

    try:
        return read_servers(file, folder)
    except JsoncError as why:
        raise click.ClickException(f"Nothing was imported from {file}: {why}.") from None


def _read_client(client: str, project: bool) -> "list[ClientServers]":
    """Return the servers in the user's own files, then with `project` those in the files of this folder."""
    from onetool.config.known_clients import CLIENT_FILES, possible_files

    if client not in CLIENT_FILES:
        known = or_rather(client, CLIENT_FILES) or f"; known are {', '.join(CLIENT_FILES)}"
        raise click.BadParameter(f"{client!r} is not a known client{known}.", param_hint="--from")
    files = possible_files(client, Path.cwd(), user_home(os.environ), os.environ)
    wanted = [one for one in files if project or not one.in_project]
    found = [
        msgspec.structs.replace(_read_servers(one.file, Path.cwd()), in_project=one.in_project)
        for one in wanted
        if one.file.exists()
    ]
    if not any(one.servers for one in found):
        looked = ", ".join(shown_path(one.file) for one in wanted)
        left = [shown_path(one.file) for one in files if one not in wanted and one.file.exists()]
        more = f" Not read without --project: {', '.join(left)}." if left else ""
        raise click.ClickException(f"{CLIENT_FILES[client].title} has no servers here; read: {looked}.{more}")
    return found


def _pairs(given: tuple[str, ...], option: str) -> dict[str, str]:
    """Parse NAME=VALUE options; errors never repeat the value."""
    # A header may be written as for curl: `Name: value`.
    colon = re.compile(r"[\w-]+:\s")
    pairs = [one.partition(":" if option == "--header" and colon.match(one) else "=") for one in given]
    if any(not name or not equals for name, equals, _ in pairs):
        raise click.BadParameter("write NAME=VALUE.", param_hint=option)
    return {name: value.strip() if option == "--header" else value for name, _, value in pairs}


def _ask_for_secret(server: str, secret: str) -> str | None:
    """Ask the user for a secret, if there is a terminal."""
    if not sys.stdin.isatty() or not sys.stderr.isatty():
        return None
    question = printable(f"{server} needs the secret {secret} (empty: set it later)")
    value = click.prompt(question, hide_input=True, err=True, default="", show_default=False)
    return value if value.strip() and value.isprintable() else None


# Writing and reporting


def _show_seen(plan: "ServerImportPlan", target: "ConfigTarget") -> None:
    """Print every server in full, on standard error."""
    from onetool.interfaces.cli.trust import shown_detail

    before = ""
    for one in plan.seen:
        replaced = ", replacing the existing one" if one.name in target.servers else ""
        fate = f"to be imported{replaced}" if one.taken else "not imported, because another file defines the same name"
        if (heading := f"From {shown_path(one.file)}, {fate}:") != before:
            click.echo(visible(heading), err=True)
        before = heading
        click.echo(f"  {shown_line(one.name)}:", err=True)
        for detail in target.details(one.name, one.block):
            click.echo(f"      {shown_detail(detail)}", err=True)


def write_plan(target: "ConfigTarget", plan: "ServerImportPlan", as_json: bool) -> None:
    from onetool.config.edit import put_servers

    if plan.servers:
        target.write(partial(put_servers, servers=plan.servers), plan.secrets, renew=not plan.from_project)
        tell_running_servers(target.file, is_code=any("command" in block for block in plan.servers.values()))
    if as_json:
        print_json({"file": str(target.file), **_plan_facts(plan)})
        return
    if plan.servers:
        names = ", ".join(plan.servers)
        echo(printable(f"Wrote {counted(len(plan.servers), 'server')} into {shown_path(target.file)}: {names}."))
    else:
        echo(f"{shown_path(target.file)} is unchanged: there is nothing to add.")
    if plan.secrets:
        secrets = counted(len(plan.secrets), "secret")
        echo(f"Stored {secrets} in {shown_path(target.secrets.file or target.file)}: {', '.join(plan.secrets)}.")
    _print_plan(plan, err=False)
    if plan.servers:
        echo(f"Next: onetool {'trust' if plan.from_project and target.is_project else 'servers test'}")


def print_draft(plan: "ServerImportPlan", as_json: bool) -> None:
    """Print the YAML alone on standard output; everything about it goes to standard error."""
    from onetool.config.edit import servers_yaml

    if as_json:
        print_json({"config": {"servers": plan.servers}, **_plan_facts(plan)})
        return
    if plan.servers:
        echo(servers_yaml(plan.servers).rstrip("\n"))
    if plan.secrets:
        click.echo(f"These would be stored as secrets: {', '.join(plan.secrets)}.", err=True)
    _print_plan(plan, err=True)


def _print_plan(plan: "ServerImportPlan", *, err: bool) -> None:
    lines = [f"Left out {name}: {why}." for name, why in plan.skipped.items()]
    if plan.kept:
        lines.append(f"Already in the config, and unchanged: {', '.join(plan.kept)} (--replace replaces them).")
    for line in (*lines, *(f"Note: {note}." for note in plan.notes)):
        print_note(line) if err else echo(printable(line))


def _plan_facts(plan: "ServerImportPlan") -> dict[str, Any]:
    return {
        "servers": list(plan.servers),
        "kept": plan.kept,
        "skipped": plan.skipped,
        "secrets": list(plan.secrets),
        "notes": plan.notes,
    }


def shown_path(file: Path) -> str:
    """Return a path relative to the current folder, or to ~, if it is below."""
    for start, sign in ((Path.cwd(), ""), (Path.home(), "~/")):
        if file.is_relative_to(start):
            return sign + str(file.relative_to(start))
    return str(file)
