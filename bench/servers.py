"""Other people's servers behind us, beside the official SDK's client and FastMCP's proxy. What counts are the ratios.

All take turns, each in a process of its own, with the same SDK and the same servers: one that the SDK makes of a
function, and a bare one, where what is between is all there is. Ours is as it is by default. FastMCP's proxy is as its
guide has it, and over a connection that is kept, which is its fastest.
"""

import compileall
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any, NamedTuple

import onetool
from bench.mcp_client import Message, NoReply, as_line, listing
from bench.mcp_contenders import ONETOOL, PEERS_PYTHON, ROOT, Home, Process
from bench.mcp_rows import NOTE, number
from bench.servers_stage import Block, Blocks, Harness
from bench.table import OURS, Row, row, show

Rounds = dict[str, list[float]]

TURNS, CALLS, SECONDS = 15, 100, 0.3  # of calls one after the other: so many a turn, and no new one after that time
WARM, WARM_S = 200, 1.0
STARTS, FIRST_STARTS = 11, 3
SERVERS = 20
SLOWEST = 1.0  # seconds; the others take a twentieth of it, two twentieths, and so on
MANY_SERVERS, MANY_TOOLS = 50, 2_000
LOOK_S = 0.02  # between two looks whether all tools are there
PATIENCE = 60.0

ALONE = "SDK client"
TITLES = {"sdk": ALONE, "onetool": "OneTool", "fastmcp": "FastMCP", "fastmcp-kept": "FastMCP, kept"}


def run() -> Iterator[Row]:
    # An installed package is compiled by its installer; a checkout that was just edited is not.
    for folder in (Path(onetool.__file__).parent, ROOT / "bench"):
        compileall.compile_dir(str(folder), quiet=2)
    with Home() as home:
        harness = Harness(home.path)
        yield from _calls(harness)
        yield from _through(harness)
        yield from _first_starts(harness)
        yield from _second_starts(harness)
    if not PEERS_PYTHON.exists():
        print("  The peers are not installed; `make bench-peers` does that.")


# Calls, one after the other


WHICH = [("sdk", "stdio"), ("sdk", "http"), ("bare", "stdio"), ("bare", "http")]


def _calls(harness: Harness) -> Iterator[Row]:
    kinds = [kind for kind in TITLES if "fastmcp" not in kind or PEERS_PYTHON.exists()]
    rows: list[list[str]] = []
    for which, transport in WHICH:
        with harness.server(which, transport) as block, ExitStack() as stack:
            callers = {kind: stack.enter_context(harness.caller(kind, {"up": block})) for kind in kinds}
            taken = _in_turns(callers)
        rows.append([_title(which, transport), *_cells(taken, "sdk")])
        ours_first = {TITLES[kind]: taken[kind] for kind in sorted(kinds, key=lambda kind: kind != "onetool")}
        aim = f"1.3 × the {ALONE}"
        yield row(
            f"a call of another server's tool, {_title(which, transport)}", "ms", ours_first, floors=[ALONE], aim=aim
        )
    title = f"Servers: a call of add(1, 1), ms, median of {TURNS} turns (aim: OneTool under 1.3 × the SDK's client)"
    show(title, _columns([TITLES[kind] for kind in kinds]), rows)


def _through(harness: Harness) -> Iterator[Row]:
    rows: list[list[str]] = []
    for which, transport in WHICH:
        with harness.server(which, transport) as block, ExitStack() as stack:
            ways = {ALONE: block, "onetool mcp": harness.gateway({"up": block})}
            if PEERS_PYTHON.exists():
                ways["FastMCP"] = harness.peer_gateway({"up": block})
            callers = {way: stack.enter_context(harness.caller("sdk", {"up": block})) for way, block in ways.items()}
            taken = _in_turns(callers)
        rows.append([_title(which, transport), *_cells(taken, ALONE)])
        turns = {OURS: taken["onetool mcp"], **{way: of for way, of in taken.items() if way != "onetool mcp"}}
        chart = "speed" if (which, transport) == ("sdk", "http") else ""
        what = f"a call through a gateway, {_title(which, transport)}"
        yield row(what, "ms", turns, floors=[ALONE], chart=chart)
    columns = [ALONE, "onetool mcp", *(["FastMCP"] if PEERS_PYTHON.exists() else [])]
    title = f"Servers: the same by the SDK's client over stdio through a gateway, ms, median of {TURNS} turns"
    show(title, _columns(columns), rows)
    print(NOTE)


def _title(which: str, transport: str) -> str:
    return f"{'SDK MCPServer' if which == 'sdk' else 'bare server'} over {'HTTP' if transport == 'http' else transport}"


def _in_turns(callers: Mapping[str, Process]) -> Rounds:
    """The median of each turn. Every second one goes the other way round, so that none is always after the same."""
    for caller in callers.values():
        _times(caller, WARM, WARM_S)
    taken: Rounds = {name: [] for name in callers}
    for turn in range(TURNS):
        for name in list(callers)[:: -1 if turn % 2 else 1]:
            taken[name].append(median(_times(callers[name], CALLS, SECONDS)))
    return taken


def _times(caller: Process, calls: int, seconds: float) -> list[float]:
    return _answer(caller, as_line({"calls": calls, "seconds": seconds}))


def _answer(caller: Process, asked: bytes = b"") -> Any:
    try:
        return json.loads(caller.wire.reply(asked))
    except (NoReply, OSError) as error:
        sys.exit(f"{error} {caller.last_words()}")


def _cells(taken: Rounds, floor: str) -> list[str]:
    """Each with its ratio to the floor: the median of those of the turns, since the machine drifts."""
    cells = [number(taken[floor], "ms")]
    for name, times in taken.items():
        if name != floor:
            ratio = median(one / least for one, least in zip(times, taken[floor], strict=True))
            cells += [number(times, "ms"), f"{ratio:.2f}"]
    return cells


def _columns(titles: Sequence[str]) -> list[str]:
    return ["", titles[0], *(column for title in titles[1:] for column in (title, "×"))]


# A first start, with nothing remembered


ALONE_TOO, IN_TURN = "the slowest alone", f"{SERVERS} one after the other"
AIMS = {f"onetool mcp, {SERVERS}": "near 1"}


class Start(NamedTuple):
    """Seconds from nothing: to the first answer to tools/list, and to the one with all tools in it."""

    first: float
    whole: float


def _first_starts(harness: Harness) -> Iterator[Row]:
    taken: dict[str, list[Start]] = {}
    slow = {"s": harness.bare("stdio", seconds=SLOWEST)}
    every = {f"s{n}": harness.bare("stdio", seconds=SLOWEST * n / SERVERS) for n in range(1, SERVERS + 1)}
    for _ in range(FIRST_STARTS):
        for name, start in _all_starts(harness, slow, every):
            taken.setdefault(name, []).append(start)
    taken |= {name: [start] for name, start in _sums(harness, every)}
    whole = {name: median(start.whole for start in starts) for name, starts in taken.items()}
    rows: list[list[str]] = []
    for name, starts in taken.items():
        kind = name.partition(",")[0]
        seconds = [number([start[part] for start in starts], "s") for part in range(2)]
        ratios = [whole[name] / whole[f"{kind}, {ALONE_TOO}"], whole[name] / whole[f"SDK clients, {IN_TURN}"]]
        rows.append([name, *seconds, *(f"{ratio:.2f}" for ratio in ratios), AIMS.get(name, "")])
    title = f"Servers: from nothing to the tools of {SERVERS} that take {SLOWEST / SERVERS:g} to {SLOWEST:g} s to start"
    columns = ["", "first list, s", "all listed, s", "× the slowest", "× the sum", "aim"]
    show(f"{title}, median of {FIRST_STARTS}, the sums once", columns, rows)
    print("  With a client of 2025, which shakes hands first, FastMCP's proxy connects one server after the other.")
    names = {OURS: "onetool mcp", "FastMCP": "FastMCP", "SDK clients": "SDK clients"}
    for told in ("", ", a client of 2025"):
        what = f"{SERVERS}{told}"
        turns = {
            title: [start.whole for start in taken[f"{kind}, {what}"]]
            for title, kind in names.items()
            if f"{kind}, {what}" in taken
        }
        started = f"from nothing to the tools of {SERVERS} servers{told}"
        yield row(started, "s", turns, floors=["SDK clients"], chart="start")


def _all_starts(harness: Harness, slow: Blocks, every: Blocks) -> Iterator[tuple[str, Start]]:
    for what, blocks in ((ALONE_TOO, slow), (f"{SERVERS}", every)):
        yield f"onetool mcp, {what}", _listed(harness, harness.gateway(blocks), blocks)
        yield f"SDK clients, {what}", _connected(harness, "sdk-at-once", blocks)
        if PEERS_PYTHON.exists():
            yield f"FastMCP, {what}", _listed(harness, harness.peer_gateway(blocks), blocks)
    yield f"onetool mcp, {SERVERS}, a client of 2025", _listed(harness, harness.gateway(every), every, handshake=True)
    if PEERS_PYTHON.exists():
        mounted = harness.peer_gateway(every, "serve-fastmcp-mounted")
        yield f"FastMCP, {SERVERS} mounted one by one", _listed(harness, mounted, every)


def _sums(harness: Harness, every: Blocks) -> Iterator[tuple[str, Start]]:
    """Those that wait for one after the other: long, and once is enough."""
    yield f"SDK clients, {IN_TURN}", _connected(harness, "sdk-in-turn", every)
    if PEERS_PYTHON.exists():
        gateway = harness.peer_gateway(every)
        yield f"FastMCP, {SERVERS}, a client of 2025", _listed(harness, gateway, every, handshake=True)


def _listed(harness: Harness, gateway: Block, blocks: Blocks, handshake: bool = False) -> Start:
    began = perf_counter()
    with harness.process(gateway) as server:
        if handshake:
            _shake_hands(server)
        names = _names(server, handshake)
        first = perf_counter() - began
        while sum(name.endswith("add") for name in names) < len(blocks):
            if perf_counter() - began > PATIENCE:
                sys.exit(f"not all of {len(blocks)} servers are there: {names}; {server.last_words()}")
            sleep(LOOK_S)
            names = _names(server, handshake)
        return Start(first, perf_counter() - began)


def _shake_hands(server: Process) -> None:
    who = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    _result(server, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": who})
    assert server.process.stdin
    os.write(server.process.stdin.fileno(), as_line({"jsonrpc": "2.0", "method": "notifications/initialized"}))


def _names(server: Process, handshake: bool) -> list[str]:
    """On every page."""
    names: list[str] = []
    cursor = None
    while True:
        asked: Message = listing(cursor)
        if handshake:
            del asked["params"]["_meta"]  # who asks, and by which revision, was said before
        result = _result(server, asked)
        names += [tool["name"] for tool in result["tools"]]
        cursor = result.get("nextCursor")
        if not cursor:
            return names


def _result(server: Process, asked: Message) -> Any:
    """What is told besides, such as that there are other tools now, is passed over."""
    data = as_line(asked)
    while True:
        for line in server.wire.reply(data).splitlines():
            told = json.loads(line)
            if "error" in told:
                sys.exit(f"{asked} got {told} {server.last_words()}")
            if "result" in told:
                return told["result"]
        data = b""


def _connected(harness: Harness, kind: str, blocks: Blocks) -> Start:
    began = perf_counter()
    with harness.caller(kind, blocks) as caller:
        told = _answer(caller)
        taken = perf_counter() - began
    assert told == {"tools": len(blocks)}, told
    return Start(taken, taken)


# A second start, when their tools are remembered


def _second_starts(harness: Harness) -> Iterator[Row]:
    few = {f"s{n}": harness.bare("stdio") for n in range(SERVERS)}
    many = {f"s{n}": harness.bare("stdio", MANY_TOOLS // MANY_SERVERS - 1) for n in range(MANY_SERVERS)}
    which = {"no servers": {}, f"{SERVERS} servers": few, f"{MANY_SERVERS} servers, {MANY_TOOLS:,} tools": many}
    homes = {name: harness.home() for name in which}
    for name, blocks in which.items():
        harness.gateway(blocks, homes[name])
        _tools_list(homes[name])  # the first one asks them
    before = harness.started
    lists = {name: list[float]() for name in which}
    for _, name in product(range(STARTS), which):
        lists[name].append(_tools_list(homes[name]))
    assert harness.started == before, "a server was started to list what is known of it"
    menus = {name: list[float]() for name in which}
    for _, name in product(range(STARTS), which):
        menus[name].append(_listed(harness, harness.gateway(which[name], homes[name]), which[name]).whole)
    rows = [[name, *_ratio(lists, name), *_ratio(menus, name)] for name in which]
    columns = ["", "onetool tools list, s", "×", "onetool mcp, all listed, s", "×"]
    show(f"Servers: a second start, median of {STARTS} (aim: no process, near 1)", columns, rows)
    print("  `tools list` has started none of them; `mcp` starts them when it has begun to listen.")
    none, *others = which
    for name, (what, taken) in product(others, {"onetool tools list": lists, "onetool mcp": menus}.items()):
        turns = {OURS: taken[name], none: taken[none]}
        yield row(f"{what}, a second start with {name}", "s", turns, floors=[none])


def _ratio(taken: Rounds, name: str) -> list[str]:
    return [number(taken[name], "s"), f"{median(taken[name]) / median(taken['no servers']):.2f}"]


def _tools_list(home: Path) -> float:
    env = {"HOME": str(home), "PATH": "", "ONETOOL_HOME": str(home)}
    command = [ONETOOL, "tools", "list", "--config", str(home / "onetool.yaml")]
    began = perf_counter()
    subprocess.run(command, cwd=home, env=env, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
    return perf_counter() - began
