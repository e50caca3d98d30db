"""`onetool init`: writes a starter config, or the entry for OneTool that an MCP client needs."""

import os
import re
from pathlib import Path

import click

from onetool.config.find import find, own_folder
from onetool.config.starter import starter_config
from onetool.core.os_files import write_new
from onetool.core.state_folders import IGNORE, IGNORED
from onetool.interfaces.cli.options import config_option, refuse_link_out
from onetool.interfaces.cli.trust import offer_trust, renew_trust

# Repeated here, so that `onetool init` need not load the clients.
CLIENTS = ("claude-code", "claude-desktop", "cursor", "vscode", "codex", "gemini")
NO_URL = ""  # --http by itself


@click.command()
@click.option("--client", type=click.Choice(CLIENTS), help="Set up this MCP client instead of writing a config.")
@click.option("--write", is_flag=True, help="Put the entry into the client's file instead of printing it.")
@click.option("--user", is_flag=True, help="Use the client's file for all projects, not the one in FOLDER.")
@click.option(
    "--http",
    "url",
    metavar="[URL]",
    is_flag=False,
    flag_value=NO_URL,
    help="Let the client call a running `onetool serve` instead of starting `onetool mcp`.",
)
@click.option("--name", default="onetool", show_default=True, help="The name of the entry.")
@click.option(
    "--force", is_flag=True, help="Replace an existing config; with --client, an existing entry of that name."
)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path())
@config_option
def init(
    ctx: click.Context,
    folder: Path,
    client: str | None,
    write: bool,
    user: bool,
    url: str | None,
    name: str,
    force: bool,
) -> None:
    """Write a config, or set up an MCP client. The config is FOLDER/.onetool/onetool.yaml; FOLDER is the current
    folder by default.
    """
    if client is None:
        given = {"--write": write, "--user": user, "--http": url is not None, "--name": name != "onetool"}
        for option in (option for option, is_given in given.items() if is_given):
            raise click.UsageError(f"{option} needs a client: --client {'|'.join(CLIENTS)}.")
        _write_starter(folder, force)
        return
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise click.BadParameter("a name has at most 64 letters, digits, - and _.", param_hint="--name")
    from onetool.interfaces.cli.clients import SetupOptions, set_up_client

    options = SetupOptions(
        client=client,
        folder=folder,
        name=name,
        config=ctx.find_root().obj,
        write=write,
        user=user,
        http=url is not None,
        url=url or None,
        force=force,
    )
    set_up_client(options)


def _write_starter(folder: Path, force: bool) -> None:
    file = folder / ".onetool" / "onetool.yaml"
    refuse_link_out(file, folder)
    if file.exists() and not force:
        raise click.ClickException(f"{file} already exists; --force replaces it.")
    try:
        with renew_trust(file):
            file.parent.mkdir(exist_ok=True)
            file.write_text(starter_config(), encoding="utf-8")
            write_new(file.with_name(IGNORE), IGNORED)
    except OSError as error:
        raise click.ClickException(f"Can't write {file}: {error.strerror}.") from None
    click.echo(f"Wrote {file}, the config of this folder and of those below it.")
    own = own_folder()
    if own != file.parent.absolute() and any((own / name).exists() for name in ("onetool.yaml", "bundles")):
        click.echo(
            f"Bundles, servers, secrets and hosts of {own} are not used in this folder, which now has its own config."
        )
    found = find(env={**os.environ, "ONETOOL_CONFIG": ""}, cwd=folder.absolute())
    is_trusted = found.untrusted is None or offer_trust(found.untrusted)  # not if the folder had packs before
    there = ("" if folder == Path() else f"cd {folder}, ") + ("" if is_trusted else "onetool trust, ")
    click.echo(f"Next: {there}onetool check, onetool tools list, onetool tools invoke weather.")
    click.echo(f"For an MCP client: onetool init --client {'|'.join(CLIENTS)} --write")
