"""What a client is to start, or to call: a command that works from anywhere, or the url of `onetool serve`."""

import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from onetool.config import Config

TOKEN = "ONETOOL_TOKEN"  # noqa: S105 - the name of the variable, not a token
LOOPBACK = ("127.0.0.1", "::1", "localhost")
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where a server listens is not where one calls it


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """One way to OneTool. `token` names the environment variable that has it: an entry never holds a secret."""

    command: str = ""
    args: tuple[str, ...] = ()
    url: str = ""
    token: str | None = None


def own_command() -> tuple[str, ...]:
    """How to start this very OneTool from any folder: its name if everybody's PATH has it, else its absolute path."""
    script = next(_scripts(), None)
    if script is None:  # run from its source, say
        return sys.executable, "-m", "onetool"
    on_path = shutil.which("onetool", path=_path_without_this_environment())
    if on_path and os.path.samefile(on_path, script):
        return ("onetool",)
    return (str(script.absolute()),)


def _scripts() -> Iterator[Path]:
    """The script that runs now, else the one that was installed with us."""
    suffixes = (".exe", "") if os.name == "nt" else ("",)
    for start in (Path(sys.argv[0]), Path(sysconfig.get_path("scripts"), "onetool")):
        for suffix in suffixes:
            script = start.with_name(start.name + suffix)
            if start.name == "onetool" and script.is_file():
                yield script


def _path_without_this_environment() -> str:
    """The PATH of a client: one that is not started from the shell where this environment is active."""
    own = os.path.realpath(sysconfig.get_path("scripts")) if sys.prefix != sys.base_prefix else None
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if os.path.realpath(folder) != own)


def served(url: str | None, config: Config) -> Server:
    """The server at this url, or at the address that the config says. ValueError says what is wrong with the url."""
    if url is None:
        if config.http.port == 0:
            raise ValueError("the config lets the system choose the port; say the url: --http URL.")
        host = EVERYWHERE.get(config.http.host, config.http.host)
        url = f"http://{f'[{host}]' if ':' in host else host}:{config.http.port}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError(f"{url!r} is no url like http://127.0.0.1:8765/mcp.")
    if "@" in parts.netloc:
        raise ValueError(f"a password has no place in a client's file: keep a token in the environment, as {TOKEN}.")
    if parts.path in ("", "/"):
        parts = parts._replace(path="/mcp")
    guarded = config.http.token is not None or parts.hostname not in LOOPBACK
    return Server(url=parts.geturl(), token=_variable_of(config) if guarded else None)


def _variable_of(config: Config) -> str:
    """The variable that the config's token comes from; a token that stands there itself gets the usual name."""
    named = re.fullmatch(r"\$\{(\w+)\}", getattr(config.http.token, "shown", ""))
    return named[1] if named else TOKEN
