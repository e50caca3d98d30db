"""Replicas on one PostgreSQL: CPU for a request with 1, 2 and 3 of them, a task read at another one, how soon all find
a new tool, and how many statements the database gets.

Each replica gets the same load, whatever their number. The database, the replicas and the load share this machine's
cores, so CPU time is measured, and not requests a second.
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
from tests.postgres import PostgresServer, free_port

from bench.table import OURS, Row, row, show

PATIENCE_S = 60.0
ROUNDS = 7
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
    with TemporaryDirectory() as folder, ExitStack() as stack:
        server = PostgresServer.start(Path(folder) / "postgres")
        if server is None:
            print("  cluster: no PostgreSQL can be started here")
            return
        stack.callback(server.stop)
        yield from _measured(Path(folder), server, stack)


def _measured(folder: Path, server: PostgresServer, stack: ExitStack) -> Iterator[Row]:
    replicas = [Replica(folder / f"r{number}", server.url) for number in range(3)]
    apart = [Replica(folder / f"a{number}", server.new_schema()) for number in range(3)]
    for one in (*replicas, *apart):
        stack.enter_context(one)
    yield from _calls(replicas, apart)
    yield from _answering(replicas[0], replicas[1])
    yield from _visible(replicas[0], replicas[1])
    for one in apart:
        one.stop()
    yield from _statements(server, replicas)


def _calls(replicas: list["Replica"], apart: list["Replica"]) -> Iterator[Row]:
    """Each round tries all numbers, because the machine drifts. More processes at work make each other slower by
    themselves: servers of which each has a database of its own show how much.
    """
    sets = [(count, some[:count]) for count in (1, 2, 3) for some in (replicas, apart)]
    times: list[list[float]] = [[] for _ in sets]
    for number in range(1 + ROUNDS):
        for (_, some), found in zip(sets, times, strict=True):
            cpu = _cpu_per_request(some)
            if number:  # the first one is for warming up
                found.append(cpu)
    show(
        f"CPU for a call over REST, {RATE}/s for each replica, medians of {ROUNDS} × {SECONDS:g} s, in µs",
        ["replicas", "of one database", "of one each"],
        [
            [str(count), *(f"{median(found) * 1e6:.0f}" for found in times[index : index + 2])]
            for index, (count, _) in enumerate(sets)
            if not index % 2
        ],
    )
    for index in (2, 4):
        count, nothing = sets[index][0], f"{sets[index][0]} that share nothing"
        turns = {OURS: times[index], "1 replica": times[0], nothing: times[index + 1]}
        what = f"CPU for a call, {count} replicas at equal load each"
        yield row(what, "µs", turns, floors=["1 replica", nothing], aim="within 15 %")


def _statements(server: PostgresServer, replicas: list["Replica"]) -> Iterator[Row]:
    """Statements of replicas that have nothing to do, and of requests. After `_visible`: there are tools."""
    with server.counted() as counted, httpx.Client(timeout=PATIENCE_S, headers=BEARER) as client:
        sleep(SECONDS)  # what the load before has left is written
        before, began = counted(), perf_counter()
        sleep(IDLE_S)
        idle = (counted() - before) / (perf_counter() - began)
        yield row("statements a second of an idle replica", "", {OURS: [idle / len(replicas)]}, aim="4")
        paths = {"search": "/tools/tools/search?q=word1number", "list": "/tools/tools"}
        for name, path in paths.items():
            found: list[float] = []
            for _ in range(REQUESTS):  # most of them have no statement of others in between
                before = counted()
                client.get(f"{replicas[0].url}{path}").raise_for_status()
                found.append(counted() - before)
            yield row(f"statements of a request: {name}", "", {OURS: found}, aim="2")


class Replica:
    def __init__(self, folder: Path, database: str) -> None:
        folder.mkdir()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        (folder / "idle.py").write_text(PACK)
        self._config = folder / "onetool.yaml"
        self._config.write_text(
            f"database: {database}\ncluster: {{key: {KEY}}}\n"
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
        self.stop()

    def stop(self) -> None:
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


def _answering(owner: Replica, other: Replica) -> Iterator[Row]:
    """Requests about a task: at the replica that runs it, and at another one, which reads its row."""
    direct, elsewhere = [], []
    with httpx.Client(headers=BEARER, timeout=PATIENCE_S) as client:
        task = _task(owner)
        for _ in range(ROUNDS):
            for one, times in ((owner, direct), (other, elsewhere)):
                before = owner.cpu() + other.cpu()
                for _ in range(REQUESTS):
                    message, headers = _message("tasks/get", taskId=task), _headers("tasks/get", task)
                    answer = client.post(f"{one.url}/mcp", json=message, headers=headers)
                    if "result" not in answer.json():
                        raise RuntimeError(answer.text[:300])
                times.append((owner.cpu() + other.cpu() - before) / REQUESTS)
    yield row(
        "CPU for a request that comes to another replica",
        "ms",
        {OURS: elsewhere, "at its owner": direct},
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
