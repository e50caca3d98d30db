"""OneTool's own entry in a client's file: a command that works from any folder, or the URL of `onetool serve`."""

import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from onetool.app.access import needs_credential, open_token_store
from onetool.config import Config
from onetool.config.find import user_config, user_home
from onetool.config.known_clients import CLIENTS, OneToolEntry
from onetool.http.url import LOOPBACK

TOKEN = "ONETOOL_TOKEN"  # noqa: S105 - the name of the variable, not a token
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - listening addresses -> addresses to call


def own_command() -> tuple[str, ...]:
    """Return the command that starts this OneTool: its name if it is on every PATH, else its absolute path."""
    script = next(_scripts(), None)
    if script is None:  # for example, run from its source
        return sys.executable, "-P", "-m", "onetool"  # -P ignores a folder `onetool` in the current folder
    # A client has another PATH, because it doesn't run in a shell where this environment is active.
    own = os.path.realpath(sysconfig.get_path("scripts")) if sys.prefix != sys.base_prefix else None
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    path = os.pathsep.join(folder for folder in folders if os.path.realpath(folder) != own)
    on_path = shutil.which("onetool", path=path)
    if on_path and os.path.samefile(on_path, script):
        return ("onetool",)
    return (str(script.absolute()),)


class ClientEntry(msgspec.Struct, frozen=True, kw_only=True):
    """OneTool's entry for the config file of an MCP client."""

    client: Annotated[str, Meta(description="The client's name for `onetool init --client`.")]
    title: str
    file: Annotated[str, Meta(description="The client's config file of the user, below the home folder.")]
    entry: Annotated[str, Meta(description="What `onetool init --client` writes: JSON, or TOML for a .toml file.")]
    token: Annotated[str | None, Meta(description="The environment variable from which the client reads the token.")]


def client_entries(config: Config, url: str | None, with_commands: bool) -> list[ClientEntry]:
    """Return the entries of all clients for the server at this URL.

    Clients that don't support URLs get a command with paths of this machine, only if `with_commands`. Raises
    ValueError.
    """
    served, home = served_at(url, config), user_home(os.environ)
    command, *first = own_command()
    named = [] if config.path in (None, user_config()) else ["--config", str(config.path)]
    started = OneToolEntry(command=shutil.which(command) or command, args=(*first, "mcp", *named))
    found: list[ClientEntry] = []
    for name, client in CLIENTS.items():
        if client.takes_urls or with_commands:
            file = client.user_file(home, os.environ)
            server = served if client.takes_urls else started
            shown = f"~/{file.relative_to(home).as_posix()}" if file.is_relative_to(home) else file.name
            text = client.snippet("onetool", server, file)
            found.append(ClientEntry(client=name, title=client.title, file=shown, entry=text, token=server.token))
    return found


def _scripts() -> Iterator[Path]:
    """Yield the running script, then the installed script."""
    for start in (Path(sys.argv[0]), Path(sysconfig.get_path("scripts"), "onetool")):
        if start.name == "onetool" and start.is_file():
            yield start


def served_at(url: str | None, config: Config) -> OneToolEntry:
    """Return the server at this URL, or at the address in the config. Raises ValueError for an invalid URL."""
    if url is None:
        if config.http.port == 0:
            raise ValueError("The config sets http.port to 0, so the URL is unknown. Specify it.")
        host = EVERYWHERE.get(config.http.host, config.http.host)
        url = f"http://{f'[{host}]' if ':' in host else host}:{config.http.port}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError(f"Invalid URL: {url!r} (expected, for example, http://127.0.0.1:8765/mcp).")
    if "@" in parts.netloc:
        raise ValueError(f"The URL contains a password. Put a token into the environment variable {TOKEN} instead.")
    if parts.path in ("", "/"):
        parts = parts._replace(path="/mcp")
    with open_token_store(config) as store:
        guarded = needs_credential(config.http, store) or parts.hostname not in LOOPBACK
    # The variable that the config's token comes from; a literal token gets the usual name.
    named = re.fullmatch(r"\$\{(\w+)\}", getattr(config.http.token, "shown", ""))
    variable = named[1] if named else TOKEN
    return OneToolEntry(url=parts.geturl(), token=variable if guarded else None)
