"""What somebody needs who has just started the server: the address, a client's snippet, the first call to try."""

import json
import re
from typing import NamedTuple

REVISION = "2026-07-28"
OWN_NAME = "$ONETOOL_TOKEN"  # where the token was written down as it is: a variable for the reader to set


class Facts(NamedTuple):
    """What there is to tell of a server."""

    url: str
    version: str
    menu: str
    tools: str  # how many, in words
    config: str  # the file in force, in words
    header: str | None  # the one with the token, when there is one


def bearer(shown: str) -> str:
    """The header as a shell fills it in, never with the token itself. `shown` is how the config writes that."""
    name = re.fullmatch(r"\$\{(\w+)\}", shown)
    return f"Authorization: Bearer {f'${name[1]}' if name else OWN_NAME}"


def claude_line(url: str, header: str | None) -> str:
    line = f"claude mcp add --transport http onetool {url}/mcp"
    return f"{line} --header '{_for_clients(header)}'" if header else line  # quoted: not the shell's to fill in


def json_snippet(url: str, header: str | None) -> str:
    """The form that most clients take."""
    server: dict[str, object] = {"type": "http", "url": f"{url}/mcp"}
    if header:
        name, _, value = _for_clients(header).partition(": ")
        server["headers"] = {name: value}
    return json.dumps({"mcpServers": {"onetool": server}})


def _for_clients(header: str) -> str:
    """With the variable as clients write it, who fill it in themselves: the token belongs into no file of theirs."""
    return re.sub(r"\$(\w+)", r"${\1}", header)


def first_call(url: str, header: str | None, menu: str) -> str:
    """A line for the shell that calls a tool; where there is no `run`, one that lists what there is."""
    about = {
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    method, params = "tools/list", {"_meta": about}
    headers = ["Content-Type: application/json", "Accept: application/json, text/event-stream"]
    headers.append(f"MCP-Protocol-Version: {REVISION}")
    if menu == "run":
        method, params = "tools/call", {"name": "run", "arguments": {"code": "time.now()"}, "_meta": about}
        headers.append("Mcp-Name: run")
    headers.append(f"Mcp-Method: {method}")
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    parts = [f"curl -sS {url}/mcp", *(f"-H '{one}'" for one in headers)]
    if header:
        parts.append(f'-H "{header}"')  # double quotes: the shell has to fill it in
    return " \\\n  ".join([*parts, f"-d '{body}'"])


def greeting(facts: Facts) -> str:
    url, header = facts.url, facts.header
    lines = [
        f"OneTool listens on {url} with {facts.tools}, by {facts.config}. Ctrl-C stops it.",
        "",
        "Connect a client:",
        f"  {claude_line(url, header)}",
        "or, in the config of most others:",
        f"  {json_snippet(url, header)}",
        "Or use the REST API, which is described at:",
        f"  {url}/docs",
        "",
        "The first call to try:",
        *(f"  {line}" for line in first_call(url, header, facts.menu).split("\n")),
        "",
    ]
    return "\n".join(lines)
