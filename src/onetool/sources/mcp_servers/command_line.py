"""Create the settings of a server from a command line, and name the server after the package that it starts."""

import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePath

from onetool.core.errors import ConfigError, Mistake
from onetool.core.text import lazy_pattern
from onetool.services.secrets import Secret
from onetool.sources.mcp_servers.program import find_program, python_module
from onetool.sources.mcp_servers.settings import PlacedServer

# Programs that run a package, an image or a script.
RUNNERS = [
    runner.split()
    for runner in (
        *("npx", "npm exec", "npm x", "pnpx", "pnpm dlx", "yarn dlx", "bunx", "bun x", "bun run", "bun", "deno run"),
        *("node", "uvx", "uv tool run", "uv run", "pipx run", "python", "docker run", "podman run", "env", "cmd /c"),
    )
]
VALUED_OPTIONS = {
    *("-p", "--package", "-c", "--call", "-w", "--workspace", "-r", "--require", "--import", "--loader", "--env-file"),
    *("--from", "--with", "--with-editable", "--with-requirements", "--python", "--spec", "--directory", "--project"),
    *("--extra", "--group", "--index", "--index-url", "--default-index", "--extra-index-url"),
}
CONTAINER_SWITCHES = {  # switches of `docker run`; its other options take a value
    *("-i", "-t", "-d", "-it", "-ti", "-P", "-q", "--rm", "--init", "--interactive", "--tty", "--detach", "--quiet"),
    *("--privileged", "--read-only", "--publish-all", "--no-healthcheck", "--oom-kill-disable"),
}
COMMON_NAMES = {"index", "main", "server", "app", "cli", "dist", "build", "src", "lib", "bin", "out", "", ".", ".."}

_PYTHON = lazy_pattern(r"(?:python|pypy)[\d.]*|py")
_SCRIPT = lazy_pattern(r"(.+)\.(?:py|[cm]?[jt]s|sh|exe|cmd|bat|git)")
_VERSION = lazy_pattern(r"(?<=.)(?:[@:\[<>=~!#]).*")
_ASSIGNMENT = lazy_pattern(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)")
_NAME = lazy_pattern(r"[A-Za-z][A-Za-z0-9_-]*")


def server_of(words: Sequence[str], name: str | None = None, is_bare: bool = False) -> dict[str, PlacedServer]:
    """Return the settings of the server that this command line starts in the current folder, by server name.

    `env NAME=value …` sets environment variables. Raises ConfigError if the program is not found.
    """
    words, env = list(words), dict[str, Secret]()
    if words[:1] == ["env"]:
        del words[0]
        while words and (assignment := _ASSIGNMENT.fullmatch(words[0])):
            env[assignment[1]] = Secret(assignment[2])
            del words[0]
    if not words or not words[0]:
        raise ConfigError([Mistake(message="There is no command after --", hint="such as: -- uvx mcp-server-time")])
    folder = Path.cwd()
    program = find_program(words[0], env.get("PATH", os.environ.get("PATH")), str(folder))
    if program is None or not os.path.exists(program):
        raise ConfigError([Mistake(message=f"There is no program {words[0]!r}", hint="install it, or write its path")])
    name = package_name(words) if name is None else name
    if not _NAME.fullmatch(name):
        hint = "use letters, digits, _ and -, with a letter first: --name NAME"
        raise ConfigError([Mistake(message=f"Invalid name of a server: {name!r}", hint=hint)])
    args = tuple(Secret(word, shown=word) for word in words[1:])  # literal: ${…} is not one of our secrets
    return {name: PlacedServer(command=words[0], args=args, env=env, cwd=folder, is_bare=is_bare)}


def package_name(words: Sequence[str]) -> str:
    """Return the name of the package, module, image or script that a command line starts, as an identifier."""
    if (module := python_module(words)) is not None:
        return _identifier(module[0])
    program = PurePath(words[0]).stem
    started = ["python" if _PYTHON.fullmatch(program) else program, *_operands(words[1:], False)]
    runner = next((one for one in RUNNERS if started[: len(one)] == one), None)
    operands = [] if runner is None else _operands(started[len(runner) :], runner[0] in ("docker", "podman"))
    if operands:
        return package_name(operands)
    # The last meaningful part of a path, package or image, without version and suffix
    parts = re.split(r"[/\\]", words[0])
    names = [_VERSION.sub("", script[1] if (script := _SCRIPT.fullmatch(part)) else part) for part in parts]
    return _identifier(next((name for name in reversed(names) if name.lower() not in COMMON_NAMES), names[-1]))


def _operands(words: Sequence[str], is_container: bool) -> Sequence[str]:
    """Return the arguments after the options of a runner."""
    at = 0
    while at < len(words) and (words[at].startswith("-") or _ASSIGNMENT.fullmatch(words[at])):
        is_bare = words[at].startswith("-") and "=" not in words[at]
        has_value = words[at] not in CONTAINER_SWITCHES if is_container else words[at] in VALUED_OPTIONS
        at += 2 if is_bare and has_value else 1
    return words[at:]


def _identifier(text: str) -> str:
    name = re.sub(r"\W+", "_", text.removesuffix(".__main__"), flags=re.ASCII).strip("_").lower()
    return name if name[:1].isalpha() else f"mcp_{name}".rstrip("_")
