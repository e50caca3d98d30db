"""The MCP clients that OneTool knows: where each stores its servers, and how it writes an entry.

`CLIENTS` can be given OneTool as a server; `CLIENT_FILES` are the files that servers are imported from.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from onetool.core.system import settings_folder


class OneToolEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A way to reach OneTool. `token` names an environment variable: an entry never contains a secret."""

    command: str = ""
    args: tuple[str, ...] = ()
    url: str = ""
    token: str | None = None


# The clients

Env = Mapping[str, str]


class KnownClient(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP client. Its files are JSON unless their name says otherwise."""

    title: str
    project_file: str | None  # below the project's folder; None if the client has no projects
    user_file: Callable[[Path, Env], Path]  # for this home, in this environment
    section: str = "mcpServers"
    typed: tuple[str, ...] = ()  # the transports whose entries have a `type`
    variable: str | None = "${%s}"  # format of an environment variable in a string; None if strings are literal
    project_folder: str | None = None  # its variable for the open project's folder, in commands and arguments
    takes_urls: bool = True  # in its file; otherwise it only starts commands
    starts_in_project: bool = True  # so that the server finds the project's config itself
    command: tuple[str, ...] = ()  # the client's own command that adds a server for the user: see `add_command`
    removal: tuple[str, ...] = ()  # its command that removes one first, if adding would not replace it
    then_project: str = ""
    then_user: str

    def add_command(self, name: str, server: OneToolEntry) -> list[str] | None:
        """Return the client's own command that adds the entry for all projects; None if it has none."""
        if not self.command:
            return None
        if self.command[0] == "code":
            return [*self.command, json.dumps({"name": name, **self.entry(server)})]
        if not server.url:
            return [*self.command, name, "--", server.command, *server.args]
        if self.command[0] == "codex":
            token = ["--bearer-token-env-var", server.token] if server.token else []
            return [*self.command, name, "--url", server.url, *token]
        headers: dict[str, str] = self.entry(server).get("headers", {})
        more = [word for key, value in headers.items() for word in ("--header", f"{key}: {value}")]
        return [*self.command, "--transport", "http", name, server.url, *more]

    def entry(self, server: OneToolEntry) -> dict[str, Any]:
        kind = "http" if server.url else "stdio"
        start = {"type": kind} if kind in self.typed else {}
        if not server.url:
            return {**start, "command": server.command, "args": list(server.args)}
        entry: dict[str, Any] = {**start, "url": server.url}
        if server.token is not None and self.variable is None:
            entry["bearer_token_env_var"] = server.token
        elif server.token is not None and self.variable is not None:
            entry["headers"] = {"Authorization": f"Bearer {self.variable % server.token}"}
        return entry

    def snippet(self, name: str, server: OneToolEntry, file: Path) -> str:
        """Return the entry as text of the client's file."""
        dump = toml_snippet if file.suffix == ".toml" else json_snippet
        return dump(self.section, name, self.entry(server))


def json_snippet(section: str, name: str, entry: dict[str, Any]) -> str:
    return dump_json({section: {name: entry}}, "  ") + "\n"


def toml_snippet(section: str, name: str, entry: dict[str, Any]) -> str:
    # JSON strings, and lists of them, are also valid TOML.
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()]
    return "\n".join([f"[{section}.{name}]", *lines, ""])


def dump_json(data: Any, unit: str, indent: str = "") -> str:
    """Format objects over several lines and lists on one, as in handwritten files."""
    if not isinstance(data, dict) or not data:
        return json.dumps(data, ensure_ascii=False)
    deeper = indent + unit
    members = [
        f"{deeper}{json.dumps(key, ensure_ascii=False)}: {dump_json(value, unit, deeper)}"
        for key, value in data.items()
    ]
    return "{\n" + ",\n".join(members) + f"\n{indent}}}"


def _below(*parts: str, moved_by: str | None = None, moved: tuple[str, ...] = ()) -> Callable[[Path, Env], Path]:
    """Return a function that locates a file below the user's home, or below the folder in a variable if `moved`."""

    def file(home: Path, env: Env) -> Path:
        folder = env.get(moved_by) if moved_by else None
        return Path(folder, *moved) if folder else home.joinpath(*parts)

    return file


def _vscode_user(home: Path, env: Env, system: str = sys.platform) -> Path:
    return settings_folder(home, env, system) / "Code" / "User" / "mcp.json"


CLIENTS = {
    "claude-code": KnownClient(
        title="Claude Code",
        project_file=".mcp.json",
        user_file=_below(".claude.json", moved_by="CLAUDE_CONFIG_DIR", moved=(".claude.json",)),
        typed=("http",),
        command=("claude", "mcp", "add", "--scope", "user"),
        removal=("claude", "mcp", "remove", "--scope", "user"),
        then_project="start claude in that folder and approve the server; /mcp shows it.",
        then_user="claude mcp list shows it.",
    ),
    "claude-desktop": KnownClient(
        title="Claude Desktop",
        project_file=None,
        user_file=lambda home, env: settings_folder(home, env) / "Claude" / "claude_desktop_config.json",
        takes_urls=False,
        starts_in_project=False,
        then_user="quit Claude Desktop and start it again; the server is in its settings, under Developer.",
    ),
    "cursor": KnownClient(
        title="Cursor",
        project_file=".cursor/mcp.json",
        user_file=_below(".cursor", "mcp.json"),
        typed=("stdio",),
        variable="${env:%s}",
        project_folder="${workspaceFolder}",
        starts_in_project=False,  # undocumented; servers were seen to start in the user's home
        then_project="open the folder in Cursor and turn the server on in its settings, under MCP.",
        then_user="turn the server on in Cursor's settings, under MCP.",
    ),
    "vscode": KnownClient(
        title="VS Code",
        project_file=".vscode/mcp.json",
        user_file=_vscode_user,
        section="servers",
        typed=("stdio", "http"),
        variable="${env:%s}",
        project_folder="${workspaceFolder}",
        command=("code", "--add-mcp"),
        then_project="open that file in VS Code and press Start above the entry, or run the command MCP: List Servers.",
        then_user="run the command MCP: List Servers in VS Code.",
    ),
    "codex": KnownClient(
        title="Codex",
        project_file=".codex/config.toml",
        user_file=_below(".codex", "config.toml", moved_by="CODEX_HOME", moved=("config.toml",)),
        section="mcp_servers",
        variable=None,
        command=("codex", "mcp", "add"),
        then_project="codex mcp list shows it, once Codex trusts that folder: start codex there and confirm it.",
        then_user="codex mcp list shows it.",
    ),
    # Without its command: `gemini mcp add` writes the values of all ${NAME} in the file, tokens included (0.61).
    "gemini": KnownClient(
        title="Gemini CLI",
        project_file=".gemini/settings.json",
        user_file=_below(".gemini", "settings.json", moved_by="GEMINI_CLI_HOME", moved=(".gemini", "settings.json")),
        typed=("http",),
        then_project="gemini mcp list shows it, once Gemini CLI trusts that folder: start gemini there and confirm it.",
        then_user="gemini mcp list shows it, in folders that Gemini CLI trusts.",
    ),
}


# Where servers can be imported from


class ClientFiles(msgspec.Struct, frozen=True, kw_only=True):
    """A client's files: in the project, and for the user."""

    title: str
    project: tuple[str, ...] = ()
    user: Callable[[Path, Env], tuple[Path, ...]]


class ClientFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a client reads: the user's own, or one that came with a project."""

    client: str
    file: Path
    in_project: bool


def _known(name: str) -> ClientFiles:
    client = CLIENTS[name]
    return ClientFiles(
        title=client.title,
        project=(client.project_file,) if client.project_file else (),
        user=lambda home, env: (client.user_file(home, env),),
    )


def _in_home(*files: str) -> Callable[[Path, Env], tuple[Path, ...]]:
    return lambda home, _env: tuple(home.joinpath(*file.split("/")) for file in files)


def _vscode(home: Path, env: Env) -> tuple[Path, ...]:
    own = _vscode_user(home, env)
    return own, own.with_name("settings.json")  # where older versions stored servers


def _zed(home: Path, env: Env) -> tuple[Path, ...]:
    return (Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "zed" / "settings.json",)


def _opencode(home: Path, env: Env) -> tuple[Path, ...]:
    folder = Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
    return folder / "opencode.json", folder / "opencode.jsonc"


CLIENT_FILES = {
    "claude-code": _known("claude-code"),
    "claude-desktop": _known("claude-desktop"),
    "cursor": _known("cursor"),
    "vscode": ClientFiles(title="VS Code", project=(".vscode/mcp.json", ".vscode/settings.json"), user=_vscode),
    "windsurf": ClientFiles(title="Windsurf", user=_in_home(".codeium/windsurf/mcp_config.json")),
    "codex": _known("codex"),
    "gemini": _known("gemini"),
    "zed": ClientFiles(title="Zed", project=(".zed/settings.json",), user=_zed),
    "cline": ClientFiles(
        title="Cline",
        user=lambda home, env: (
            settings_folder(home, env)
            / "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        ),
    ),
    "kiro": ClientFiles(title="Kiro", project=(".kiro/settings/mcp.json",), user=_in_home(".kiro/settings/mcp.json")),
    "lmstudio": ClientFiles(title="LM Studio", user=_in_home(".lmstudio/mcp.json")),
    "copilot": ClientFiles(title="Copilot CLI", user=_in_home(".copilot/mcp-config.json")),
    "opencode": ClientFiles(title="opencode", project=("opencode.json", "opencode.jsonc"), user=_opencode),
}


def possible_files(client: str, folder: Path, home: Path, env: Env) -> list[ClientFile]:
    """Return every file that this client may have: the user's own, then those of a project in this folder."""
    place = CLIENT_FILES[client]
    own = place.user(home, env)
    files = [*own, *(folder / file for file in place.project)]
    return [ClientFile(client=client, file=file, in_project=file not in own) for file in dict.fromkeys(files)]


def existing_files(folder: Path, home: Path, env: Env) -> Iterator[ClientFile]:
    """Yield the existing files, client by client."""
    for client in CLIENT_FILES:
        yield from (one for one in possible_files(client, folder, home, env) if one.file.exists())
