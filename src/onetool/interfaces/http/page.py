"""What a browser sees at `/`: that OneTool runs here, and how to connect to it. One file, nothing from elsewhere."""

from collections.abc import Callable
from html import escape

from onetool.interfaces.asgi import Asgi, Receive, Scope, Send, respond
from onetool.interfaces.http.greeting import Facts, claude_line, first_call, json_snippet

# No script, nothing loaded, no frame around it: there is nothing here that an enemy's page could use.
SAFE = [
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]
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
The REST API is described at <a href="/docs">/docs</a>.</p>
<h2>Connect Claude Code</h2>
<pre>{claude}</pre>
<h2>Other clients</h2>
<pre>{snippet}</pre>
<h2>The first call to try</h2>
<pre>{call}</pre>
"""


def page(facts: Callable[[], Facts]) -> Asgi:
    """The route."""

    async def show(_scope: Scope, _receive: Receive, send: Send) -> None:
        now = facts()
        parts = {
            "url": now.url,
            "version": now.version,
            "tools": now.tools,
            "claude": claude_line(now.url, now.header),
            "snippet": json_snippet(now.url, now.header),
            "call": first_call(now.url, now.header, now.menu),
        }
        text = PAGE.format_map({name: escape(part) for name, part in parts.items()})
        await respond(send, 200, text.encode(), b"text/html; charset=utf-8", SAFE)

    return show
