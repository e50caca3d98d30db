"""Other people's servers behind us, beside the official SDK's client alone and FastMCP's proxy. What counts are the ratios.

All take turns, each in a process of its own, with the same SDK and the same servers: one that the SDK makes of a
function, and a bare one, where what is between is all there is. Ours is as it is by default. FastMCP's proxy is as its
guide has it, and over a connection that is kept, which is its fastest.
"""

import compileall
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any, NamedTuple

import onetool
from bench.mcp_client import NoReply, as_line, listing
from bench.mcp_contenders import ONETOOL, PEERS_PYTHON, ROOT, Home, Process
from bench.mcp_rows import NOTE, number
from bench.table import show

Block = dict[str, Any]
Blocks = dict[str, Block]
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


def run() -> None:
    # An installed package is compiled by its installer; a checkout that was just edited is not.
    for folder in (Path(onetool.__file__).parent, ROOT / "bench"):
        compileall.compile_dir(str(folder), quiet=2)
    with Home() as home:
        bench = Bench(home.path)
        _calls(bench)
        _through(bench)
        _first_starts(bench)
        _second_starts(bench)
    if not PEERS_PYTHON.exists():
        print("  The peers are not installed; `make bench-peers` does that.")


class Bench:
    """The folder, and commands and blocks for what is started in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tally = folder / "tally"
        self.tally.touch()
        self._numbers = count()

    @property
    def started(self) -> int:
        """How many bare servers were, by anybody."""
        return len(self.tally.read_text().splitlines())

    def bare(self, transport: str, tools: int = 0, seconds: float = 0.0) -> Block:
        script = str(ROOT / "bench" / "servers_bare.py")
        return {"command": sys.executable, "args": ["-I", script, transport, f"{tools}", f"{seconds}", f"{self.tally}"]}

    @contextmanager
    def server(self, kind: str, transport: str) -> Iterator[Block]:
        """The block for one: its command, or the url of one that runs."""
        block = self.bare(transport)
        if kind == "sdk":
            args = ["-m", "bench.mcp_peers", "sdk-functions", transport, "0"]
            block = {"command": sys.executable, "args": args, "env": {"PYTHONPATH": str(ROOT)}}
        if transport == "stdio":
            yield block
            return
        with Process([block["command"], *block["args"]], self.folder, block.get("env", {}), "http") as server:
            yield {"url": f"http://127.0.0.1:{server.port}/mcp"}

    def caller(self, kind: str, blocks: Blocks) -> Process:
        python = str(PEERS_PYTHON) if "fastmcp" in kind else sys.executable
        command = [python, "-m", "bench.servers_callers", kind, json.dumps(blocks)]
        return Process(command, self.folder, {"PYTHONPATH": str(ROOT), "ONETOOL_HOME": str(self.home())})

    def home(self) -> Path:
        """Where nothing is remembered yet."""
        home = self.folder / f"home-{next(self._numbers)}"
        home.mkdir()
        return home

    def gateway(self, blocks: Blocks, home: Path | None = None) -> Block:
        """`onetool mcp` before those servers."""
        home = home or self.home()
        config = home / "onetool.yaml"
        config.write_text(json.dumps({"servers": blocks}))
        args = ["mcp", "--config", str(config), "--menu", "direct"]
        return {"command": ONETOOL, "args": args, "env": {"ONETOOL_HOME": str(home)}}

    def peer_gateway(self, blocks: Blocks, kind: str = "serve-fastmcp") -> Block:
        args = ["-m", "bench.servers_callers", kind, json.dumps(blocks)]
        return {
            "command": str(PEERS_PYTHON),
            "args": args,
            "env": {"PYTHONPATH": str(ROOT), "FASTMCP_LOG_LEVEL": "ERROR"},
        }

    def process(self, block: Block) -> Process:
        return Process([block["command"], *block["args"]], self.folder, block["env"])


# Calls, one after the other


WHICH = [("sdk", "stdio"), ("sdk", "http"), ("bare", "stdio"), ("bare", "http")]


def _calls(bench: Bench) -> None:
    kinds = [kind for kind in TITLES if "fastmcp" not in kind or PEERS_PYTHON.exists()]
    rows: list[list[str]] = []
    for which, transport in WHICH:
        with bench.server(which, transport) as block, ExitStack() as stack:
            callers = {kind: stack.enter_context(bench.caller(kind, {"up": block})) for kind in kinds}
            rows.append([_title(which, transport), *_cells(_in_turns(callers), "sdk")])
    title = f"Servers: a call of add(1, 1), ms, median of {TURNS} turns (aim: OneTool under 1.3 × the SDK's client)"
    show(title, _columns([TITLES[kind] for kind in kinds]), rows)


def _through(bench: Bench) -> None:
    rows: list[list[str]] = []
    for which, transport in WHICH:
        with bench.server(which, transport) as block, ExitStack() as stack:
            ways = {ALONE: block, "onetool mcp": bench.gateway({"up": block})}
            if PEERS_PYTHON.exists():
                ways["FastMCP"] = bench.peer_gateway({"up": block})
            callers = {way: stack.enter_context(bench.caller("sdk", {"up": block})) for way, block in ways.items()}
            rows.append([_title(which, transport), *_cells(_in_turns(callers), ALONE)])
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


class Start(NamedTuple):
    """Seconds from nothing: to the first answer to tools/list, and to the one with all tools in it."""

    first: float
    whole: float


def _first_starts(bench: Bench) -> None:
    all_of_them = {f"s{n}": bench.bare("stdio", seconds=SLOWEST * n / SERVERS) for n in range(1, SERVERS + 1)}
    slowest = {"s": bench.bare("stdio", seconds=SLOWEST)}
    taken: dict[str, list[Start]] = {}
    for _ in range(FIRST_STARTS):
        for name, start in _all_starts(bench, slowest, all_of_them):
            taken.setdefault(name, []).append(start)
    rows: list[list[str]] = []
    for name, starts in taken.items():
        alone = taken[name.split(",")[0] + ", the slowest alone"]
        ratio = median(one.whole for one in starts) / median(one.whole for one in alone)
        first = number([one.first for one in starts], "s")
        rows.append([name, first, number([one.whole for one in starts], "s"), f"{ratio:.2f}", AIMS.get(name, "")])
    title = (
        f"Servers: from nothing to the tools of {SERVERS} that need {SLOWEST / SERVERS:g} … {SLOWEST:g} s each to start"
    )
    show(f"{title}, median of {FIRST_STARTS}", ["", "first list, s", "all listed, s", "× alone", "aim"], rows)
    print(
        f"  What they need takes {sum(SLOWEST * n / SERVERS for n in range(1, SERVERS + 1)):g} s one after the other."
    )


AIMS = {f"onetool mcp, {SERVERS}": "near 1"}


def _all_starts(bench: Bench, slowest: Blocks, all_of_them: Blocks) -> Iterator[tuple[str, Start]]:
    for what, blocks in (("the slowest alone", slowest), (f"{SERVERS}", all_of_them)):
        yield f"onetool mcp, {what}", _listed(bench.gateway(blocks), bench, blocks)
        yield f"SDK clients, {what}", _connected(bench, "sdk-at-once", blocks)
        if PEERS_PYTHON.exists():
            yield f"FastMCP, {what}", _listed(bench.peer_gateway(blocks), bench, blocks)
    yield f"SDK clients, {SERVERS} one after the other", _connected(bench, "sdk-in-turn", all_of_them)
    if PEERS_PYTHON.exists():
        mounted = bench.peer_gateway(all_of_them, "serve-fastmcp-mounted")
        yield f"FastMCP, {SERVERS} mounted one by one", _listed(mounted, bench, all_of_them)


def _listed(block: Block, bench: Bench, blocks: Blocks) -> Start:
    began = perf_counter()
    with bench.process(block) as server:
        names = _names(server)
        first = perf_counter() - began
        while sum(name.endswith("add") for name in names) < len(blocks):
            if perf_counter() - began > PATIENCE:
                sys.exit(f"not all of {len(blocks)} servers are there: {names}; {server.last_words()}")
            sleep(LOOK_S)
            names = _names(server)
        return Start(first, perf_counter() - began)


def _connected(bench: Bench, kind: str, blocks: Blocks) -> Start:
    began = perf_counter()
    with bench.caller(kind, blocks) as caller:
        told = _answer(caller)
        taken = perf_counter() - began
    assert told == {"tools": len(blocks)}, told
    return Start(taken, taken)


def _names(server: Process) -> list[str]:
    names: list[str] = []
    cursor = None
    while True:
        result = server.ask(listing(cursor))
        names += [tool["name"] for tool in result["tools"]]
        cursor = result.get("nextCursor")
        if not cursor:
            return names


# A second start, when their tools are remembered


def _second_starts(bench: Bench) -> None:
    few = {f"s{n}": bench.bare("stdio") for n in range(SERVERS)}
    many = {f"s{n}": bench.bare("stdio", MANY_TOOLS // MANY_SERVERS - 1) for n in range(MANY_SERVERS)}
    which = {"no servers": {}, f"{SERVERS} servers": few, f"{MANY_SERVERS} servers, {MANY_TOOLS:,} tools": many}
    homes = {name: bench.home() for name in which}
    lists, menus = Rounds(), Rounds()
    for name, blocks in which.items():
        bench.gateway(blocks, homes[name])
        _tools_list(bench, homes[name])  # the first one asks them
    before = bench.started
    for _ in range(STARTS):
        for name in which:
            lists.setdefault(name, []).append(_tools_list(bench, homes[name]))
    assert bench.started == before, "a server was started to list what is known of it"
    for _ in range(STARTS):
        for name, blocks in which.items():
            start = _listed(bench.gateway(blocks, homes[name]), bench, blocks)
            menus.setdefault(name, []).append(start.first)
    rows = [[name, *_ratio(lists, name), *_ratio(menus, name)] for name in which]
    show(
        f"Servers: a second start, median of {STARTS}",
        ["", "onetool tools list, s", "×", "onetool mcp, first list, s", "×"],
        rows,
    )
    print("  `tools list` started no server; `mcp` does so when it has begun to listen.")


def _ratio(taken: Rounds, name: str) -> list[str]:
    return [number(taken[name], "s"), f"{median(taken[name]) / median(taken['no servers']):.2f}"]


def _tools_list(bench: Bench, home: Path) -> float:
    env = {"HOME": str(home), "PATH": "", "ONETOOL_HOME": str(home)}
    command = [ONETOOL, "tools", "list", "--config", str(home / "onetool.yaml")]
    began = perf_counter()
    subprocess.run(command, cwd=home, env=env, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
    return perf_counter() - began
