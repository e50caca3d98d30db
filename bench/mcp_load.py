"""The process that loads an HTTP server: so many kept connections, one request under way on each.

Told on standard input what to do, a JSON object a line; answers with the rate and the latencies.
"""

import asyncio
import json
import sys
from time import perf_counter
from typing import Any

from bench.mcp_client import as_post, end_of_reply

AT_MOST = 30.0  # seconds for the last replies


class Load:
    """One measurement: the request, until when, and what came of it."""

    def __init__(self, request: bytes, connections: int) -> None:
        self.request = request
        self.until = float("inf")
        self.times: list[float] = []
        self.ended = 0
        self.connections = connections
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def leave(self, error: Exception | None = None) -> None:
        self.ended += 1
        if error is not None and not self.done.done():
            self.done.set_exception(error)
        elif self.ended == self.connections and not self.done.done():
            self.done.set_result(None)


class Client(asyncio.Protocol):
    """One connection: a reply, the next request."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._come = b""
        self._started = 0.0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def go(self) -> None:
        self._started = perf_counter()
        self._transport.write(self._load.request)

    def data_received(self, data: bytes) -> None:
        come = self._come + data if self._come else data
        try:
            end = end_of_reply(come)
        except ValueError as error:
            self._load.leave(error)
            self._transport.close()
            return
        if end is None or len(come) < end[1]:
            self._come = come
            return
        self._come = b""
        now = perf_counter()
        self._load.times.append(now - self._started)
        if now >= self._load.until:
            self._load.leave()
            return
        self._started = now
        self._transport.write(self._load.request)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._load.done.done():
            self._load.leave(ConnectionError(f"the server has closed a connection: {exc}"))


async def measured(port: int, message: dict[str, Any], connections: int, seconds: float) -> dict[str, float]:
    load = Load(as_post(message, port), connections)
    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(lambda: Client(load), "127.0.0.1", port) for _ in range(connections)]
    started = perf_counter()
    load.until = started + seconds
    for _, client in made:
        client.go()
    async with asyncio.timeout(seconds + AT_MOST):
        await load.done
    took = perf_counter() - started
    for transport, _ in made:
        transport.close()
    times = sorted(load.times)
    last = len(times) - 1
    return {"rate": len(times) / took, "p50": times[last // 2], "p99": times[round(last * 0.99)]}


def main() -> None:
    try:
        from uvloop import new_event_loop
    except ImportError:
        new_event_loop = None
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        for line in sys.stdin:
            print(json.dumps(runner.run(measured(**json.loads(line)))), flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
