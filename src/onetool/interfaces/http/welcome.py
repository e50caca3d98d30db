"""The texts that tell how to connect a client: printed when the server starts, and at `/` for clients like curl."""

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

if TYPE_CHECKING:
    from onetool.core.spec import ToolSpec

DEFAULT_VARIABLE = "$ONETOOL_TOKEN"  # where the token was written down as it is: a variable for the reader to set

TOKENS = "http.token in its config, or one that `onetool tokens add` makes"


class ServerFacts(NamedTuple):
    """What the welcome texts say of a server."""

    own_url: str  # where it listens
    url: str  # where clients reach it
    tools: str  # how many, in words
    config: str  # the file in force, in words
    header: str | None  # the one with the token, when there is one
    first: str | None  # the tool to try first


def bearer_header(shown: str = "") -> str:
    """The Authorization header with a shell variable for the token. `shown` is how the config writes it, if it does."""
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
    reached = [] if url == facts.own_url else [f"Clients reach it at {url}, as http.url says."]
    lines = [
        f"OneTool listens on {facts.own_url} with {facts.tools}, by {facts.config}. Ctrl-C stops it.",
        *reached,
        "",
        "The page for people:",
        f"  {url}/",
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


def connect_text(url: str, needs_token: bool) -> str:
    """What everybody may know who reaches the server: nothing of its tools and of its config."""
    header = bearer_header() if needs_token else None
    token = [f"All of it needs a token of this server: {TOKENS}."] if needs_token else []
    lines = [
        "OneTool runs here. A browser shows the page at this address.",
        *token,
        "",
        "Connect a client:",
        f"  {claude_command(url, header)}",
        "or, in the config of most others:",
        f"  {json_snippet(url, header)}",
        "The REST API is described at:",
        f"  {url}/docs",
        "List the tools:",
        f"  {first_call(url, header, None)}",
        "",
    ]
    return "\n".join(lines)
