"""The process that loads a server with one request of any kind: so many kept connections, one under way on each.

Told on standard input what to do, a JSON object a line; answers with the rate and the latencies.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import NamedTuple

from bench.mcp_contenders import ROOT
from bench.mcp_load import AT_MOST, Client, Load


class Loaded(NamedTuple):
    """One turn: how many requests, how many a second, and seconds that one took."""

    requests: int
    rate: float
    p50: float
    p99: float


Loading = Callable[[int, bytes, int, float], Loaded]
"""Of a port, a request, how many connections, and for how long."""


@contextmanager
def load_client() -> Iterator[Loading]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.bundles_load"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    sink, source = process.stdin, process.stdout

    def load(port: int, request: bytes, connections: int, seconds: float) -> Loaded:
        wanted = {"port": port, "request": request.decode("latin-1"), "connections": connections, "seconds": seconds}
        sink.write(json.dumps(wanted) + "\n")
        sink.flush()
        answer = source.readline()
        if not answer:
            sys.exit("the load client has ended; it says why above")
        return Loaded(**json.loads(answer))

    try:
        yield load
    finally:
        process.terminate()
        process.wait()
        sink.close()
        source.close()


async def measured(port: int, request: str, connections: int, seconds: float) -> dict[str, float]:
    load = Load(request.encode("latin-1"), connections)
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
    many = len(times)
    return {"requests": many, "rate": many / took, "p50": times[many // 2], "p99": times[round((many - 1) * 0.99)]}


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
