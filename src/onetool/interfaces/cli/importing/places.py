"""Where clients keep their MCP servers on this machine. Looks whether files are there; opens none."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from onetool.interfaces.cli.clients.known import CLIENTS, Env, settings_folder


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A client's files: in the project, and for the user; the nearer ones first."""

    title: str
    project: tuple[str, ...] = ()
    user: Callable[[Path, Env], tuple[Path, ...]]


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is there. In the user's own files the project is wherever we are."""

    client: str
    file: Path


def _known(name: str, *more_of_project: str) -> Place:
    client = CLIENTS[name]
    return Place(
        title=client.title,
        project=(*filter(None, (client.project_file,)), *more_of_project),
        user=lambda home, env: (client.user_file(home, env),),
    )


def _in_settings(*parts: str) -> Callable[[Path, Env], tuple[Path, ...]]:
    return lambda home, env: (settings_folder(home, env).joinpath(*parts),)


def _in_home(*files: str) -> Callable[[Path, Env], tuple[Path, ...]]:
    return lambda home, _env: tuple(home.joinpath(*file.split("/")) for file in files)


def _vscode(home: Path, env: Env) -> tuple[Path, ...]:
    own = CLIENTS["vscode"].user_file(home, env)
    return own, own.with_name("settings.json")  # where it kept them before


def _zed(home: Path, env: Env) -> tuple[Path, ...]:
    if sys.platform == "win32":
        return (settings_folder(home, env) / "Zed" / "settings.json",)
    return (Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "zed" / "settings.json",)


def _opencode(home: Path, env: Env) -> tuple[Path, ...]:
    folder = Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
    return folder / "opencode.json", folder / "opencode.jsonc"


PLACES = {
    "claude-code": _known("claude-code"),
    "claude-desktop": _known("claude-desktop"),
    "cursor": _known("cursor"),
    "vscode": Place(title="VS Code", project=(".vscode/mcp.json", ".vscode/settings.json"), user=_vscode),
    "windsurf": Place(title="Windsurf", user=_in_home(".codeium/windsurf/mcp_config.json")),
    "codex": _known("codex"),
    "gemini": _known("gemini"),
    "zed": Place(title="Zed", project=(".zed/settings.json",), user=_zed),
    "cline": Place(
        title="Cline",
        user=_in_settings("Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
    ),
    "kiro": Place(title="Kiro", project=(".kiro/settings/mcp.json",), user=_in_home(".kiro/settings/mcp.json")),
    "lmstudio": Place(title="LM Studio", user=_in_home(".lmstudio/mcp.json")),
    "copilot": Place(title="Copilot CLI", user=_in_home(".copilot/mcp-config.json")),
    "opencode": Place(title="opencode", project=("opencode.json", "opencode.jsonc"), user=_opencode),
}


def files_of(client: str, folder: Path, home: Path, env: Env) -> list[Path]:
    """Every file that this client may have, for a project in this folder."""
    place = PLACES[client]
    return list(dict.fromkeys([*(folder / file for file in place.project), *place.user(home, env)]))


def spots(folder: Path, home: Path, env: Env) -> Iterator[Spot]:
    """The files that are there, client by client."""
    for client in PLACES:
        for file in files_of(client, folder, home, env):
            if file.exists():
                yield Spot(client=client, file=file)
