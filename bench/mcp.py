"""The MCP server beside its peers: FastMCP, the official SDK, and the least that could do. What counts are the ratios.

All take turns, over the same client, in revision 2026-07-28. Ours is as it is by default: with stats, and over HTTP
with its access log, which goes to a file. The peers have the same uvicorn, log nothing, and answer HTTP statelessly and
in plain JSON, which is the fastest that they can; "SDK by default" is the official one as it is without being told.
"""

import compileall
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import NamedTuple

import onetool
from bench.mcp_client import Message, listing
from bench.mcp_contenders import PEERS, ROOT, Home, Server, contenders
from bench.mcp_rows import NOTE, YARDSTICKS, Rivals, Spread, cells, columns, number, titled
from bench.table import OURS, Row, row, show
from bench.workload import megabytes

STARTS = 5
TURNS, CALLS, SECONDS = 5, 200, 0.4  # of calls one after the other: so many a turn, and no new one after that time
CONNECTIONS, LOADS, LOADED_S = (1, 16, 64), 3, 0.8
SETTLED_S = 3.0  # until a server has started all that it starts besides
REMEMBERED = (100, 1_000, 10_000)  # calls after which memory is measured; so many of a peer would take minutes
MANY_TOOLS = 1_000
CHARTED = "tools/call, 16 connections"


class Loaded(NamedTuple):
    """One turn under load."""

    rate: float
    p50: float
    p99: float


def run() -> Iterator[Row]:
    # An installed package is compiled by its installer; a checkout that was just edited is not.
    for folder in (Path(onetool.__file__).parent, ROOT / "bench"):
        compileall.compile_dir(str(folder), quiet=2)
    rivals = contenders()
    with Home() as home:
        yield from _starts(home, rivals)
        yield from _calls(home, rivals)
        yield from _loads(home, rivals)
        yield from _memory(home, rivals)
    if not PEERS.keys() & rivals.keys():
        print("  The peers are not installed; `make bench-peers` does that.")


# From nothing to the first list


def _starts(home: Home, rivals: Rivals) -> Iterator[Row]:
    which = {name: (one.title, name, 0, "run" if name == "onetool" else "direct") for name, one in rivals.items()}
    which = {name: one for name, one in which.items() if "stdio" in rivals[name].over}
    for menu in ("run", "direct"):
        which[f"many {menu}"] = (f"OneTool, {MANY_TOOLS:,} tools, menu {menu}", "onetool", MANY_TOOLS, menu)
    taken: dict[str, list[float]] = {key: [] for key in which}
    for _ in range(STARTS):
        for key, (_, name, tools, menu) in which.items():
            taken[key].append(_start(home, name, tools, menu))
    ours = median(taken["onetool"])
    aims = {"onetool": "under 0.3 s", "fastmcp": "over 8 ×"}
    rows = [
        [which[key][0], number(times, "s"), f"{median(times) / ours:.2f}", aims.get(key, "")]
        for key, times in taken.items()
    ]
    show(f"MCP: from nothing to the first tools/list over stdio, median of {STARTS}", ["", "s", "× ours", "aim"], rows)
    beside = titled({key: times for key, times in taken.items() if key in rivals}, rivals)
    yield row(
        "MCP: from nothing to tools/list over stdio", "s", beside, floors=YARDSTICKS, aim="8 × FastMCP", chart="start"
    )
    for menu in ("run", "direct"):
        yield row(f"the same with {MANY_TOOLS:,} tools, menu {menu}", "s", {OURS: taken[f"many {menu}"]})


def _start(home: Home, name: str, tools: int, menu: str) -> float:
    started = perf_counter()
    with Server(home, name, "stdio", tools, menu) as server:
        server.ask(listing())
        return perf_counter() - started


# Calls, one after the other


def _calls(home: Home, rivals: Rivals) -> Iterator[Row]:
    rows: list[list[str]] = []
    for menu, transport in product(("run", "direct"), ("stdio", "http")):
        asked = {
            name: message
            for name, one in rivals.items()
            if transport in one.over and (message := one.run if menu == "run" else one.add)
        }
        with _started(home, asked, transport, menu) as servers:
            taken = {name: sorted(times) for name, times in _times(servers, asked).items()}
        what = f"{'run(1+1)' if menu == 'run' else 'add(1, 1)'} over {'HTTP' if transport == 'http' else transport}"
        for mark, part in (("p50", 0.50), ("p99", 0.99)):
            found = {name: [times[round((len(times) - 1) * part)]] for name, times in taken.items()}
            rows.append([f"{what}, {mark}", *cells(found, rivals, "ms", lambda ours, theirs: theirs / ours)])
            chart = "speed" if mark == "p50" else ""
            yield row(f"MCP: {what}, {mark}", "ms", titled(found, rivals), floors=YARDSTICKS, chart=chart)
    title = f"MCP: calls, one after the other, ms over {TURNS} turns (aim: run 5 × faster)"
    show(title, columns(rivals, "× ours"), rows)
    print("  The floor is a bare loop over stdio and a Starlette echo over HTTP. It and the SDK run no code.")


def _times(servers: Mapping[str, Server], asked: Mapping[str, Message]) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {name: [] for name in servers}
    for name, server in servers.items():
        server.ask(asked[name])  # and this is right
        server.wire.times(asked[name], 50, 1.0)  # warm
    for _ in range(TURNS):
        for name, server in servers.items():
            taken[name] += server.wire.times(asked[name], CALLS, SECONDS)
    return taken


# Many connections


def _loads(home: Home, rivals: Rivals) -> Iterator[Row]:
    over_http = {name: one.add for name, one in rivals.items() if "http" in one.over and one.add}
    with _started(home, over_http, "http", "direct") as servers, _load_client() as load:
        shown = len(servers["onetool"].ask(listing())["tools"])
        asked = {
            "tools/call": over_http,
            f"tools/list of {shown}": dict.fromkeys(over_http, listing()),
        }
        found = {
            f"{what}, {connections} connection{'s' if connections > 1 else ''}": _loaded(
                servers, messages, connections, load
            )
            for (what, messages), connections in product(asked.items(), CONNECTIONS)
        }
    rates = [
        [what, *cells(_of(turns, "rate"), rivals, "/s", lambda ours, theirs: ours / theirs)]
        for what, turns in found.items()
    ]
    aim = "aim: 5 × the SDK, over 0.5 × bare Starlette"
    show(f"MCP: requests a second on /mcp, median of {LOADS} turns ({aim})", columns(rivals, "ours ×"), rates)
    waits = [
        [f"{what}, {mark}", *cells(_of(turns, mark), rivals, "ms", lambda ours, theirs: theirs / ours)]
        for what, turns in found.items()
        for mark in ("p50", "p99")
    ]
    show("MCP: how long a request took meanwhile, ms", columns(rivals, "× ours"), waits)
    print(NOTE)
    for what, turns in found.items():
        rates, slowest = titled(_of(turns, "rate"), rivals), titled(_of(turns, "p99"), rivals)
        chart = "speed" if what == CHARTED else ""
        yield row(f"MCP: {what}", "/s", rates, floors=YARDSTICKS, more=True, aim="5 × the SDK", chart=chart)
        yield row(f"MCP: {what}, p99", "ms", slowest, floors=YARDSTICKS)


def _of(turns: Mapping[str, list[Loaded]], field: str) -> dict[str, Spread]:
    return {name: [getattr(one, field) for one in of_one] for name, of_one in turns.items()}


def _loaded(
    servers: Mapping[str, Server], asked: Mapping[str, Message], connections: int, load: Callable[..., Loaded]
) -> dict[str, list[Loaded]]:
    taken: dict[str, list[Loaded]] = {name: [] for name in servers}
    for _ in range(LOADS):
        for name, server in servers.items():
            taken[name].append(load(server.port, asked[name], connections, LOADED_S))
    return taken


@contextmanager
def _load_client() -> Iterator[Callable[..., Loaded]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.mcp_load"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    sink, source = process.stdin, process.stdout

    def load(port: int, message: Message, connections: int, seconds: float) -> Loaded:
        wanted = {"port": port, "message": message, "connections": connections, "seconds": seconds}
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


# Memory


def _memory(home: Home, rivals: Rivals) -> Iterator[Row]:
    rows: list[list[str]] = []
    taken: dict[str, dict[str, list[float]]] = {"stdio": {}, "http": {}}
    for name, transport in product(("onetool", "fastmcp"), ("stdio", "http")):
        if name not in rivals:
            continue
        message = rivals[name].run
        assert message
        most = REMEMBERED[-1] if name == "onetool" else REMEMBERED[1]
        with Server(home, name, transport) as server:
            taken[transport][name] = list(_sizes(server, message, most))
        sizes = [f"{size:.1f}" for size in taken[transport][name]]
        padded = [*sizes, *["–"] * (len(REMEMBERED) - len(sizes))]
        rows.append([f"{rivals[name].title} over {'HTTP' if transport == 'http' else transport}", *padded])
    head = ["MB of the server and its workers", *(f"after {calls:,}" for calls in REMEMBERED)]
    show("MCP: memory after so many run(1+1) (aim: no growth)", head, rows)
    first, middle, last = (f"after {calls:,}" for calls in REMEMBERED)
    for transport, of_all in taken.items():
        what = f"MCP: memory over {'HTTP' if transport == 'http' else transport}"
        yield row(f"{what} {middle} runs", "MB", titled({name: [of[1]] for name, of in of_all.items()}, rivals))
        ours = of_all["onetool"]
        yield row(f"{what} {last} runs", "MB", {OURS: [ours[2]], first: [ours[0]]}, floors=[first], aim="no growth")


def _sizes(server: Server, message: Message, most: int) -> Iterator[float]:
    data = server.wire.encoded(message)
    server.ask(message)
    sleep(SETTLED_S)
    for calls in range(1, most + 1):
        server.wire.reply(data)
        if calls in REMEMBERED:
            yield megabytes(server.process.pid)


# All together


@contextmanager
def _started(home: Home, names: Iterable[str], transport: str, menu: str) -> Iterator[dict[str, Server]]:
    """All at once. The peers show as many tools as ours, which has some of its own."""
    with ExitStack() as stack:
        ours = stack.enter_context(Server(home, "onetool", transport, menu=menu))
        others = len(ours.ask(listing())["tools"]) - 1 if menu == "direct" else 0
        servers = {"onetool": ours}
        for name in names:
            if name != "onetool":
                servers[name] = stack.enter_context(Server(home, name, transport, others, menu))
        yield servers
