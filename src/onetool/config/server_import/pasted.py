"""Reads a pasted command line or URL as a server block."""

import re
import shlex
from typing import Any

# Words of a command line that tell how to run a program, not which one.
_RUNNERS = re.compile(
    r"(npx|bunx|uvx?|pnpm|yarn|npm|node|bun|deno|docker|podman|python[\d.]*|dlx|exec|run|tool)(\.\w+)?"
)


def read_pasted(text: str) -> dict[str, dict[str, Any]] | None:
    """Return one server block by a suggested name; None if the text is neither a command line nor a URL.

    Raises ValueError for an unbalanced quote.
    """
    text = re.sub(r"\\\r?\n", " ", text)
    if "\n" in text or text[:1] in ("", "{", "[", '"', "#") or re.match(r"[\w.\"-]+\s*[:=](\s|$)", text):
        return None
    if re.match(r"https?://\S+$", text, re.IGNORECASE):
        host = re.sub(r"^(www|api|mcp)\.", "", re.split(r"[/:?#]", text.partition("://")[2].rpartition("@")[2])[0])
        return {host.split(".")[0] or "server": {"url": text}}
    words = shlex.split(text)
    env: dict[str, str] = {}
    while words and re.match(r"[A-Za-z_]\w*=", words[0]):
        name, _, env[name] = words.pop(0).partition("=")
    if not words:
        return None
    known = (one for one in words if not one.startswith("-") and not _RUNNERS.fullmatch(one.rpartition("/")[2]))
    name = re.sub(r"@[\w.^~-]*$|\.\w+$", "", re.split(r"[/\\]", next(known, words[0]))[-1])
    name = re.sub(r"^(mcp-)?(server|mcp)-|-(mcp-)?(server|mcp)$", "", name) or "server"
    return {name: {"command": words[0], "args": words[1:], "env": env}}
