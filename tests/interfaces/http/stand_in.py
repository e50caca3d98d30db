"""`onetool` with a stand-in for the MCP side: a route whose behaviour the tests choose by the request's query.

python stand_in.py serve --port 0

echo (the default)   the size of the body, the principal
wait=SECONDS         answers after that time
file=NAME            answers when that file is there
stream               events until it is told to stop, or the client leaves
flood                writes until the client leaves
gone                 waits until the client leaves
early                answers before it has read the body
fail                 raises
late_fail            raises when the answer has begun
swallow              catches everything that happens while it reads
log=TEXT             TEXT goes into the log line

The file `began` gets a character for each request.
"""

import asyncio
import json
import os
import sys
import types
from pathlib import Path
from urllib.parse import parse_qsl


class StandIn:
    def __init__(self, app=None, menu=None, allowed=None, shared=None):
        self.app, self.menu = app, menu
        self.stopping = asyncio.Event()

    async def __call__(self, scope, receive, send):
        asked = dict(parse_qsl(scope["query_string"].decode(), keep_blank_values=True))
        scope["log"]["rpc"] = asked.get("log", next(iter(asked), "echo"))
        with open("began", "a") as file:
            file.write(".")
        if "early" in asked:
            await answer(send, {"early": True})
        elif "gone" in asked:
            await left(receive)
        elif "fail" in asked:
            raise RuntimeError("the stand-in failed with sesame-token in its message")
        elif "stream" in asked:
            await self.stream(send)
        elif "flood" in asked:
            await begin(send, b"application/octet-stream")
            gone = asyncio.ensure_future(left(receive))
            while not gone.done():
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
                await asyncio.sleep(0)
        elif "late_fail" in asked:
            await begin(send, b"text/plain")
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
            raise RuntimeError("late")
        else:
            await self.echo(scope, receive, send, asked)

    async def echo(self, scope, receive, send, asked):
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect" and "swallow" not in asked:
                return
            size, more = size + len(message.get("body", b"")), message.get("more_body", False)
        await asyncio.sleep(float(asked.get("wait", 0)))
        while "file" in asked and not os.path.exists(asked["file"]):
            await asyncio.sleep(0.01)
        await answer(send, {"size": size, "principal": scope["principal"].name, "menu": self.menu})

    async def stream(self, send):
        await begin(send, b"text/event-stream")
        while not self.stopping.is_set():
            await send({"type": "http.response.body", "body": b"data: x\n\n", "more_body": True})
            try:
                await asyncio.wait_for(self.stopping.wait(), 0.1)
            except TimeoutError:
                continue
        await send({"type": "http.response.body", "body": b"data: end\n\n"})

    def start(self):
        """There is nothing to start."""

    async def stop(self):
        self.stopping.set()

    async def reload(self):
        self.app.reload()


async def left(receive):
    """Wait until the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def begin(send, kind):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})


async def answer(send, data):
    body = json.dumps(data).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def with_limits(shutdown_timeout_s=None, head_s=None, keep_alive_s=None):
    """Other limits than people get, so that tests need not wait for them."""
    from onetool.interfaces.http import heads, server

    if shutdown_timeout_s is not None:
        server.serve.__kwdefaults__["shutdown_timeout_s"] = shutdown_timeout_s
    heads.HEAD_S = head_s or heads.HEAD_S
    server.KEEP_ALIVE_S = keep_alive_s or server.KEEP_ALIVE_S


if __name__ == "__main__":
    sys.path = [entry for entry in sys.path if entry != str(Path(__file__).parent)]
    module = types.ModuleType("onetool.interfaces.mcp.http")
    module.McpHttpApp = StandIn
    sys.modules["onetool.interfaces.mcp.http"] = module
    for name in ("serve", "mount"):  # a process that has imported everything has them already
        if imported := sys.modules.get(f"onetool.interfaces.http.{name}"):
            imported.McpHttpApp = StandIn
    with_limits(**json.loads(os.environ.get("STAND_IN_LIMITS", "{}")))
    from onetool.__main__ import main

    main()
