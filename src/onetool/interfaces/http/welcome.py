"""The texts that tell how to connect a client: printed when the server starts, and shown as a web page at `/`."""

import json
import re
from collections.abc import Callable, Iterable
from html import escape
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from onetool.interfaces.asgi import SECURITY_HEADERS, Asgi, Receive, Scope, Send, respond

if TYPE_CHECKING:
    from onetool.core.spec import ToolSpec

DEFAULT_VARIABLE = "$ONETOOL_TOKEN"  # where the token was written down as it is: a variable for the reader to set


class ServerFacts(NamedTuple):
    """What the welcome texts say of a server."""

    url: str
    version: str
    tools: str  # how many, in words
    config: str  # the file in force, in words
    header: str | None  # the one with the token, when there is one
    first: str | None  # the tool to try first


def bearer_header(shown: str) -> str:
    """The Authorization header with a shell variable for the token. `shown` is how the config writes the token."""
    name = re.fullmatch(r"\$\{(\w+)\}", shown)
    return f"Authorization: Bearer {f'${name[1]}' if name else DEFAULT_VARIABLE}"


def claude_command(url: str, header: str | None) -> str:
    line = f"claude mcp add --transport http onetool {url}/mcp"
    return f"{line} --header '{_as_client_variable(header)}'" if header else line  # quoted: not the shell's to fill in


def json_snippet(url: str, header: str | None) -> str:
    """The JSON that most clients take in their config."""
    server: dict[str, object] = {"type": "http", "url": f"{url}/mcp"}
    if header:
        name, _, value = _as_client_variable(header).partition(": ")
        server["headers"] = {name: value}
    return json.dumps({"mcpServers": {"onetool": server}})


def _as_client_variable(header: str) -> str:
    """The header with `${NAME}`, as clients write variables, so that the token is in no file of theirs."""
    return re.sub(r"\$(\w+)", r"${\1}", header)


FIRST = "time.now"


def first_tool(tools: "Iterable[ToolSpec]") -> str | None:
    """One that needs no arguments and changes nothing."""
    harmless = [spec.name for spec in tools if not spec.input_schema.get("required") and (spec.read_only or spec.pure)]
    return FIRST if FIRST in harmless else harmless[0] if harmless else None


def first_call(url: str, header: str | None, tool: str | None) -> str:
    """One line for curl that calls a tool; where none can be tried, one that lists them."""
    line = f"curl {url}/tools/tools" if tool is None else f"curl -X POST {url}/call/{quote(tool, safe='')}"
    return line if header is None else f'{line} -H "{header}"'  # double quotes: the shell has to fill it in


def greeting(facts: ServerFacts) -> str:
    url, header = facts.url, facts.header
    lines = [
        f"OneTool listens on {url} with {facts.tools}, by {facts.config}. Ctrl-C stops it.",
        "",
        "Connect a client:",
        f"  {claude_command(url, header)}",
        "or, in the config of most others:",
        f"  {json_snippet(url, header)}",
        "Or use the REST API, which is described at:",
        f"  {url}/docs",
        "",
        "The first call to try:",
        f"  {first_call(url, header, facts.first)}",
        "",
    ]
    return "\n".join(lines)


# The page at `/`


PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>OneTool</title>
<style>
:root {{ color-scheme: light dark; --ink: #1d1f23; --paper: #fcfcfa; --soft: #f0efea; --line: #d9d7cf }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e6e4de; --paper: #17181b; --soft: #222429; --line: #3a3d44 }}
}}
body {{ font: 16px/1.6 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 46rem; margin: 3rem auto; padding: 0 1.25rem }}
h1 {{ font-size: 1.6rem; margin: 0 0 .5rem }} h2 {{ font-size: 1rem; margin: 2rem 0 .5rem }}
pre {{ background: var(--soft); border: 1px solid var(--line); border-radius: 6px; padding: .75rem 1rem;
  font: 13px/1.5 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere }}
code {{ font-family: ui-monospace, monospace; font-size: .95em }}
</style>
<h1>OneTool runs here</h1>
<p>Version {version}, with {tools}. MCP clients connect to <code>{url}/mcp</code>.
The REST API is described at <a href="{root}/docs">{root}/docs</a>.</p>
<h2>Connect Claude Code</h2>
<pre>{claude}</pre>
<h2>Other clients</h2>
<pre>{snippet}</pre>
<h2>The first call to try</h2>
<pre>{call}</pre>
"""


def welcome_page(facts: Callable[[Scope], ServerFacts]) -> Asgi:
    """The route."""

    async def show(scope: Scope, _receive: Receive, send: Send) -> None:
        now = facts(scope)
        parts = {
            "url": now.url,
            "root": quote(scope.get("root_path", "")),
            "version": now.version,
            "tools": now.tools,
            "claude": claude_command(now.url, now.header),
            "snippet": json_snippet(now.url, now.header),
            "call": first_call(now.url, now.header, now.first),
        }
        text = PAGE.format_map({name: escape(part) for name, part in parts.items()})
        await respond(send, 200, text.encode(), b"text/html; charset=utf-8", SECURITY_HEADERS)

    return show
