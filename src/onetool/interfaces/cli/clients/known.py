"""The clients that we know: where each keeps its MCP servers, and how it writes one down."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from onetool.interfaces.cli.clients.server import Server

Env = Mapping[str, str]


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """One client. Its files are JSON unless their name says otherwise."""

    title: str
    project_file: str | None  # below the project's folder; None: it knows no projects
    user_file: Callable[[Path, Env], Path]  # of this home, in this environment
    section: str = "mcpServers"
    typed: tuple[str, ...] = ()  # the transports whose entries say their type
    variable: str | None = "${%s}"  # an environment variable in a text; None where texts are taken as they are
    project_folder: str | None = None  # its word for the open project's folder, in commands and arguments
    takes_urls: bool = True  # in its file; else it only starts commands
    starts_in_project: bool = True  # so that the server finds the project's config by itself
    then_project: str = ""
    then_user: str

    def entry(self, server: Server) -> dict[str, Any]:
        """The server as this client writes it."""
        kind = "http" if server.url else "stdio"
        start = {"type": kind} if kind in self.typed else {}
        if not server.url:
            return {**start, "command": server.command, "args": list(server.args)}
        return {**start, "url": server.url, **self._token(server.token)}

    def _token(self, name: str | None) -> dict[str, Any]:
        if name is None:
            return {}
        if self.variable is None:
            return {"bearer_token_env_var": name}
        return {"headers": {"Authorization": f"Bearer {self.variable % name}"}}


def _below(*parts: str, moved_by: str | None = None, moved: tuple[str, ...] = ()) -> Callable[[Path, Env], Path]:
    """A file below the user's home; or `moved` below the folder that an environment variable names."""

    def file(home: Path, env: Env) -> Path:
        folder = env.get(moved_by) if moved_by else None
        return Path(folder, *moved) if folder else home.joinpath(*parts)

    return file


def settings_folder(home: Path, env: Env, system: str = sys.platform) -> Path:
    """Where this system's programs keep their settings."""
    if system == "win32":
        return Path(env["APPDATA"]) if env.get("APPDATA") else home / "AppData" / "Roaming"
    if system == "darwin":
        return home / "Library" / "Application Support"
    return Path(env["XDG_CONFIG_HOME"]) if env.get("XDG_CONFIG_HOME") else home / ".config"


def _vscode_user(home: Path, env: Env, system: str = sys.platform) -> Path:
    return settings_folder(home, env, system) / "Code" / "User" / "mcp.json"


def _claude_desktop_user(home: Path, env: Env) -> Path:
    return settings_folder(home, env) / "Claude" / "claude_desktop_config.json"


CLIENTS = {
    "claude-code": Client(
        title="Claude Code",
        project_file=".mcp.json",
        user_file=_below(".claude.json", moved_by="CLAUDE_CONFIG_DIR", moved=(".claude.json",)),
        typed=("http",),
        then_project="start claude in that folder and approve the server; /mcp shows it.",
        then_user="claude mcp list shows it.",
    ),
    "claude-desktop": Client(
        title="Claude Desktop",
        project_file=None,
        user_file=_claude_desktop_user,
        takes_urls=False,
        starts_in_project=False,
        then_user="quit Claude Desktop and start it again; the server is in its settings, under Developer.",
    ),
    "cursor": Client(
        title="Cursor",
        project_file=".cursor/mcp.json",
        user_file=_below(".cursor", "mcp.json"),
        typed=("stdio",),
        variable="${env:%s}",
        project_folder="${workspaceFolder}",
        starts_in_project=False,  # it does not say where, and servers were seen to start in the user's home
        then_project="open the folder in Cursor and turn the server on in its settings, under MCP.",
        then_user="turn the server on in Cursor's settings, under MCP.",
    ),
    "vscode": Client(
        title="VS Code",
        project_file=".vscode/mcp.json",
        user_file=_vscode_user,
        section="servers",
        typed=("stdio", "http"),
        variable="${env:%s}",
        project_folder="${workspaceFolder}",
        then_project="open that file in VS Code and press Start above the entry, or run the command MCP: List Servers.",
        then_user="run the command MCP: List Servers in VS Code.",
    ),
    "codex": Client(
        title="Codex",
        project_file=".codex/config.toml",
        user_file=_below(".codex", "config.toml", moved_by="CODEX_HOME", moved=("config.toml",)),
        section="mcp_servers",
        variable=None,
        then_project="codex mcp list shows it, once Codex trusts that folder: start codex there and say so.",
        then_user="codex mcp list shows it.",
    ),
    "gemini": Client(
        title="Gemini CLI",
        project_file=".gemini/settings.json",
        user_file=_below(".gemini", "settings.json", moved_by="GEMINI_CLI_HOME", moved=(".gemini", "settings.json")),
        typed=("http",),
        then_project="gemini mcp list shows it, once Gemini CLI trusts that folder: start gemini there and say so.",
        then_user="gemini mcp list shows it, in folders that Gemini CLI trusts.",
    ),
}
