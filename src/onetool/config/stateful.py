"""MCP servers that several processes must not start, because each would have its own memory."""

import re
import shlex
from typing import TYPE_CHECKING

from onetool.core.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from onetool.config.model import Config
    from onetool.sources.mcp_servers.settings import ServerSettings


def stateful_servers(config: "Config") -> list[Mistake]:
    """Return an error for each server that every replica or worker would start, each with a memory of its own."""
    file = str(config.path) if config.path else None
    message = "each replica and worker would start this server, and each of these processes has its own memory"
    return [
        Mistake(message=message, file=file, key=f"servers.{name}", hint=_ways_out(server, config))
        for name, server in config.servers.items()
        if server.enabled and server.command is not None and not server.replicate
    ]


def refuse_stateful_servers(config: "Config") -> None:
    """Raise ConfigError if the config has servers that several processes must not start."""
    if mistakes := stateful_servers(config):
        raise ConfigError(mistakes)


def _ways_out(server: "ServerSettings", config: "Config") -> str:
    environment = ["env", *(f"{name}=…" for name in server.env)] if server.env else []
    command = " ".join([*environment, *map(_shell_word, server.command_line)])
    other_config = "" if config.cluster is None else ", with a config without cluster"
    return (
        f"if they need no common memory, set `replicate: true` for the server; otherwise start it once{other_config} "
        f"(`onetool serve --bare --port PORT -- {command}`), and use its url here: `url: http://HOST:PORT/mcp`"
    )


def _shell_word(word: str) -> str:
    """Quote a word of the config for a shell, which is to replace its ${NAME}: `serve` takes the words literally."""
    if "${" not in word:
        return shlex.quote(word)
    return '"{}"'.format(re.sub(r'(["\\`])', r"\\\1", word))
