"""The API behind the HTTP tools: one answer to everything, as fast as can be. Says on standard output where it is."""

import asyncio
import json
from typing import Any

BODY = json.dumps(
    {"city": "Kyiv", "celsius": 21, "hours": [{"hour": hour, "sky": "clear"} for hour in range(8)]}
).encode()
REPLY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY


class Answering(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(REPLY * data.count(b"\r\n\r\n"))


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0, backlog=2048)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        from uvloop import new_event_loop
    except ImportError:
        new_event_loop = None
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve())
