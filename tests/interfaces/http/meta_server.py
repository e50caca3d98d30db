"""An MCP server of the official SDK that says which trace context it got in `_meta`: over stdio, or in a thread.

with meta_server() as url: ...
"""

import socket
from contextlib import contextmanager
from threading import Thread
from time import sleep

import uvicorn
from mcp import MCPError
from mcp.server.mcpserver import Context, MCPServer


def build():
    server = MCPServer("meta")

    @server.tool()
    async def meta(text: str, ctx: Context) -> dict[str, str]:
        """Return what is in `_meta`."""
        return {name: str(value) for name, value in (ctx.request_context.meta or {}).items()}

    @server.tool()
    async def fail(text: str) -> str:
        """Fail, in the server's own words."""
        raise ValueError(text)

    @server.tool()
    async def refuse(code: str, text: str) -> str:
        """Answer with an error of the protocol, and with any code."""
        raise MCPError(int(code), text)

    @server.prompt()
    async def greet(name: str) -> str:
        """Greet."""
        return f"Hello {name}"

    @server.resource("note://one")
    async def note() -> str:
        """Return a note."""
        return "noted"

    return server


@contextmanager
def meta_server():
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(build().streamable_http_app(), log_level="critical", lifespan="on", ws="none")
    )
    thread = Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    finally:
        server.should_exit = server.force_exit = True
        thread.join(10)


if __name__ == "__main__":
    build().run()
