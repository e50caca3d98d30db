"""MCP servers that several processes must not start, because each would have its own memory."""

import shlex
from typing import TYPE_CHECKING

from onetool.core.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from onetool.config.model import Config


def stateful_servers(config: "Config") -> list[Mistake]:
    """Return an error for each server that every replica or worker would start, each with a memory of its own."""
    file = str(config.path) if config.path else None
    message = "each replica and worker would start this server, and each of these processes has its own memory"
    return [
        Mistake(message=message, file=file, key=f"servers.{name}", hint=_ways_out(server.command_line))
        for name, server in config.servers.items()
        if server.enabled and server.command is not None and not server.replicate
    ]


def refuse_stateful_servers(config: "Config") -> None:
    """Raise ConfigError if the config has servers that several processes must not start."""
    if mistakes := stateful_servers(config):
        raise ConfigError(mistakes)


def _ways_out(command_line: tuple[str, ...]) -> str:
    return (
        "if they need no common memory, set `replicate: true` for the server; otherwise start it once, with a "
        f"config without cluster (`onetool serve --bare -- {shlex.join(command_line)}`), and use its url here"
    )
