"""The texts that say how to connect clients to a server: one for the start, and one at `/` for clients such as curl."""

import json
import re
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple
from urllib.parse import quote

from onetool.core.principal import Role
from onetool.core.registry import LazyTool, as_spec
from onetool.core.spec import ToolSpec

DEFAULT_VARIABLE = "$ONETOOL_TOKEN"  # if the config has the literal token: a variable that the reader sets
TOKENS = "http.token of its config, or a token created with `onetool tokens add`"


class ServerFacts(NamedTuple):
    """The facts about a server in the welcome text."""

    listens: str  # the address in words
    own_url: str  # the URL for this machine
    url: str  # the URL for clients
    tools: str  # their number in words
    config: str  # the config file in words
    header: str | None  # the header with the token, if there is one
    first: str | None  # the tool to try first
    link_role: Role | None = None  # the role that links of `onetool page` give; None if there are no links


def bearer_header(shown: str = "") -> str:
    """Return the Authorization header with a shell variable for the token. `shown` is the text in the config."""
    name = re.fullmatch(r"\$\{(\w+)\}", shown)
    return f"Authorization: Bearer {f'${name[1]}' if name else DEFAULT_VARIABLE}"


def claude_command(url: str, header: str | None) -> str:
    line = f"claude mcp add --transport http onetool {url}/mcp"
    return f"{line} --header '{_as_client_variable(header)}'" if header else line  # quoted: the client expands it


def json_snippet(url: str, header: str | None) -> str:
    """Return the JSON that most clients accept in their config."""
    server: dict[str, object] = {"type": "http", "url": f"{url}/mcp"}
    if header:
        name, _, value = _as_client_variable(header).partition(": ")
        server["headers"] = {name: value}
    return json.dumps({"mcpServers": {"onetool": server}})


def _as_client_variable(header: str) -> str:
    """Return the header with the client's variable syntax `${NAME}`, so that the token is not in the client's file."""
    return re.sub(r"\$(\w+)", r"${\1}", header)


FIRST = "time.now"
MAX_TRIED = 500  # tools to try: with 100,000 it would take seconds


def first_tool(tools: Iterable[ToolSpec | LazyTool]) -> str | None:
    """Return the name of a tool that needs no arguments and changes nothing."""
    found = None
    for tool in islice(tools, MAX_TRIED):
        if found is None or tool.name == FIRST:
            spec = as_spec(tool)
            if not spec.input_schema.get("required") and (spec.read_only or spec.pure):
                found = tool.name
        if found == FIRST:
            break
    return found


def first_call(url: str, header: str | None, tool: str | None) -> str:
    """Return a curl command that calls a tool, or lists the tools if `tool` is None."""
    line = f"curl {url}/tools/tools" if tool is None else f"curl -X POST {url}/call/{quote(tool, safe='')}"
    return line if header is None else f'{line} -H "{header}"'  # double quotes, so that the shell expands it


def _client_lines(url: str, header: str | None) -> tuple[str, ...]:
    config = ("or, in the config of most other clients:", f"  {json_snippet(url, header)}")
    return ("Connect a client:", f"  {claude_command(url, header)}", *config)


def greeting(facts: ServerFacts) -> str:
    url, header = facts.url, facts.header
    reached = [] if url == facts.own_url else [f"Clients reach it at {url}, as http.url says."]
    role = facts.link_role
    owner = [f"  onetool page prints a link that opens it as its owner, with the role {role}."] if role else []
    lines = [
        f"OneTool listens on {facts.listens} with {facts.tools}, from {facts.config}. Ctrl-C stops it.",
        *reached,
        "",
        "Open the page in a browser:",
        f"  {url}/",
        *owner,
        *_client_lines(url, header),
        "Or use the REST API, which is described at:",
        f"  {url}/openapi.json",
        "",
        "Try a first call:",
        f"  {first_call(url, header, facts.first)}",
        "",
    ]
    return "\n".join(lines)


def connect_text(url: str, needs_token: bool) -> str:
    """Return the public text, which reveals nothing about the tools and the config."""
    header = bearer_header() if needs_token else None
    token = [f"Everything here requires a token of this server: {TOKENS}."] if needs_token else []
    lines = [
        "This is OneTool. Open this address in a browser to see the page.",
        *token,
        "",
        *_client_lines(url, header),
        "The REST API is described at:",
        f"  {url}/openapi.json",
        "List the tools:",
        f"  {first_call(url, header, None)}",
        "",
    ]
    return "\n".join(lines)
