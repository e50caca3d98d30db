"""Replicas on one PostgreSQL: CPU for a request with 1, 2 and 3 of them, forwarding, how soon all find a new tool, and
how many statements the database gets.

Each replica gets the same load, whatever their number: what grows is what they cost each other. The database, the
replicas and the load share this machine's cores, so CPU time is measured, and not requests a second.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Any

import httpx

from bench.table import OURS, Row, row, show

PATIENCE_S = 60.0
ROUNDS = 5
SECONDS = 4.0  # of load, in each round
IDLE_S = 60.0  # for counting statements without requests
REQUESTS = 200  # for counting their statements
RATE = 100  # requests a second for each replica
KEY = "0123456789abcdef0123456789abcdef"
TOKEN = "a-token-of-all-the-replicas-0123456789"  # a replica lets nobody in without one
BEARER = {"Authorization": f"Bearer {TOKEN}"}
BUNDLE = "01890a5d-ac96-774b-bcce-b302099a8057"
PACK = '''
"""A tool that does nothing."""


async def nothing() -> int:
    """Nothing."""
    return 0
'''
TOOL = {
    "type": "script",
    "displayName": "Double",
    "description": "Doubles a number.",
    "argSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    "scriptImpl": {"code": "2 * n"},
}


def run() -> Iterator[Row]:
    from tests.postgres import PostgresServer

    with TemporaryDirectory() as folder, ExitStack() as stack:
        server = PostgresServer.start(Path(folder) / "postgres")
        if server is None:
            print("  cluster: no PostgreSQL can be started here")
            return
        stack.callback(server.stop)
        yield from _measured(Path(folder), server, stack)


def _measured(folder: Path, server: Any, stack: ExitStack) -> Iterator[Row]:
    replicas = [Replica(folder / f"r{number}", server.url) for number in range(3)]
    cpu: dict[int, list[float]] = {1: [], 2: [], 3: []}
    running: list[Replica] = []
    for count, new in enumerate(replicas, 1):
        stack.enter_context(new)
        running.append(new)
        _cpu_per_request(running)  # warm
        cpu[count] = [_cpu_per_request(running) for _ in range(ROUNDS)]
    show(
        f"CPU for a call over REST, {RATE}/s for each replica, medians of {ROUNDS} × {SECONDS:g} s",
        ["replicas", "µs"],
        [[str(count), f"{median(times) * 1e6:.0f}"] for count, times in cpu.items()],
    )
    for count in (2, 3):
        what = f"CPU for a call, {count} replicas at equal load each"
        yield row(what, "µs", {OURS: cpu[count], "1 replica": cpu[1]}, floors=["1 replica"], aim="within 15 %")
    yield from _forwarding(replicas[0], replicas[1])
    yield from _visible(replicas[0], replicas[1])
    yield from _statements(server, replicas)


def _statements(server: Any, replicas: list["Replica"]) -> Iterator[Row]:
    """Statements of replicas that have nothing to do, and of requests. After `_visible`: there are tools."""
    with server.counted() as counted, httpx.Client(timeout=PATIENCE_S, headers=BEARER) as client:
        sleep(SECONDS)  # what the load before has left is written
        before, began = counted(), perf_counter()
        sleep(IDLE_S)
        idle = (counted() - before) / (perf_counter() - began)
        yield row("statements a second of an idle replica", "", {OURS: [idle / len(replicas)]}, aim="4")
        paths = {"search": "/tools/tools/search?q=word1number", "list": "/tools/tools"}
        for name, path in paths.items():
            client.get(f"{replicas[0].url}{path}").raise_for_status()
            before, began = counted(), perf_counter()
            for _ in range(REQUESTS):
                client.get(f"{replicas[0].url}{path}").raise_for_status()
            own = counted() - before - idle * (perf_counter() - began)
            yield row(f"statements of a request: {name}", "", {OURS: [own / REQUESTS]}, aim="2")


class Replica:
    def __init__(self, folder: Path, database: str) -> None:
        folder.mkdir()
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        (folder / "idle.py").write_text(PACK)
        self._config = folder / "onetool.yaml"
        self._config.write_text(
            f'database: {database}\ncluster: {{address: "127.0.0.1:{self.port}", key: {KEY}}}\n'
            f"http: {{port: {self.port}, token: {TOKEN}}}\npacks: [idle.py]\n"
        )
        self._environment = {**os.environ, "ONETOOL_HOME": str(folder / "home")}

    def __enter__(self) -> "Replica":
        command = [sys.executable, "-m", "onetool", "serve", "--config", str(self._config)]
        quiet: Any = subprocess.DEVNULL
        self._process = subprocess.Popen(command, env=self._environment, stdout=quiet, stderr=quiet)
        until = perf_counter() + PATIENCE_S
        while not self._is_ready():
            if perf_counter() > until or self._process.poll() is not None:
                raise RuntimeError("a replica did not start")
            sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def cpu(self) -> float:
        """Seconds that the process has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _cpu_per_request(replicas: list[Replica]) -> float:
    before = sum(one.cpu() for one in replicas)
    done = asyncio.run(_load(replicas))
    return (sum(one.cpu() for one in replicas) - before) / done


async def _load(replicas: list[Replica]) -> int:
    """The same rate for each of them; how many requests there were."""
    found = await asyncio.gather(*(_steady(one.url) for one in replicas))
    return sum(found)


async def _steady(url: str) -> int:
    done, began = 0, perf_counter()
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S, headers=BEARER) as client:
        while (now := perf_counter() - began) < SECONDS:
            if done > now * RATE:
                await asyncio.sleep(done / RATE - now)
                continue
            (await client.post("/call/idle.nothing", json={})).raise_for_status()
            done += 1
    return done


def _forwarding(owner: Replica, other: Replica) -> Iterator[Row]:
    """Requests about a task: at the replica that runs it, and at another one, which forwards them."""
    direct, forwarded = [], []
    with httpx.Client(headers=BEARER, timeout=PATIENCE_S) as client:
        task = _task(owner)
        for _ in range(ROUNDS):
            for one, times in ((owner, direct), (other, forwarded)):
                before = owner.cpu() + other.cpu()
                for _ in range(REQUESTS):
                    message, headers = _message("tasks/get", taskId=task), _headers("tasks/get", task)
                    answer = client.post(f"{one.url}/mcp", json=message, headers=headers)
                    if "result" not in answer.json():
                        raise RuntimeError(answer.text[:300])
                times.append((owner.cpu() + other.cpu() - before) / REQUESTS)
    yield row(
        "CPU for a request that another replica forwards",
        "ms",
        {OURS: forwarded, "at its owner": direct},
        floors=["at its owner"],
        aim="0.2 ms more",
    )


def _task(replica: Replica) -> str:
    """A call that goes on as a task."""
    params = {"name": "run", "arguments": {"code": "import time\ntime.sleep(25)"}}
    message = _message("tools/call", **params)
    answer = httpx.post(f"{replica.url}/mcp", json=message, headers=_headers("tools/call", "run"), timeout=PATIENCE_S)
    return answer.json()["result"]["taskId"]


def _message(method: str, **params: Any) -> dict[str, Any]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}


def _headers(method: str, name: str = "") -> dict[str, str]:
    found = {
        **BEARER,
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
    }
    return {**found, "Mcp-Name": name} if name else found


def _visible(first: Replica, second: Replica) -> Iterator[Row]:
    """From the beginning of a PUT at one replica until a search at another finds it."""
    puts, found = [], []
    with httpx.Client(timeout=PATIENCE_S, headers=BEARER) as client:
        made = client.put(
            f"{first.url}/tools/bundles/{BUNDLE}", json={"slug": "sums", "displayName": "Sums", "description": "Sums."}
        )
        made.raise_for_status()
        for number in range(ROUNDS * 10):
            word = f"word{number}number"
            began = perf_counter()
            path = f"/tools/bundles/{BUNDLE}/tools/{word}/version/v1"
            client.put(f"{first.url}{path}", json={**TOOL, "displayName": word}).raise_for_status()
            puts.append(perf_counter() - began)
            while word not in client.get(f"{second.url}/tools/tools/search", params={"q": word}).text:
                pass
            found.append(perf_counter() - began)
    yield row("PUT of a tool", "ms", {OURS: puts})
    yield row("PUT of a tool until another replica's search finds it", "ms", {OURS: found, "PUT": puts}, floors=["PUT"])


def _free_port() -> int:
    import socket

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]
