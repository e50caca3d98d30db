"""Calls of a bundle's tools over REST, a python one and an HTTP one, beside FastMCP doing the same.

All take turns on the same machine, with the same API behind the HTTP tool and the same load before all of them. FastMCP
makes its HTTP tool of an OpenAPI document, and answers statelessly and in plain JSON, which is its fastest; "by hand"
are two Starlette routes with httpx2 that check nothing. Ours over MCP is there as FastMCP knows no other way in.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.bundles_client import Rest, request, tool_at
from bench.bundles_load import Loading, load_client
from bench.bundles_made import ADDING, bundle_id, http_tool, write_home
from bench.bundles_stage import Serving, peer, processor_seconds, upstream
from bench.mcp_client import as_post, calling
from bench.mcp_contenders import PEERS_PYTHON, Process
from bench.mcp_rows import number
from bench.table import Row, row, show

CONNECTIONS, TURNS, SECONDS = (1, 16, 64), 5, 0.8
WARM_S = 0.3
FORECAST = {"city": "Kyiv", "days": 3}
SUM = {"a": 1, "b": 1}
KINDS = ("python", "http")
TITLES = {"onetool": "OneTool", "fastmcp": "FastMCP", "mcp": "OneTool over MCP", "bare": "by hand"}
BUNDLE = bundle_id(1)


class Contender(NamedTuple):
    """Where it is, its process, and what it is asked: of each kind of tool the whole request."""

    port: int
    pid: int
    asked: Mapping[str, bytes]


def invokes(place: Path) -> Iterator[Row]:
    with ExitStack() as stack:
        api = stack.enter_context(upstream(place)).port
        ours = stack.enter_context(Serving(home_for_calls(place, api), menu="direct"))
        put_tools(ours.rest, api)
        contenders = {"onetool": _rest(ours), "mcp": _mcp(ours, "weather__")}
        if PEERS_PYTHON.exists():
            contenders["fastmcp"] = _mcp(stack.enter_context(peer("fastmcp", place, api)))
        contenders["bare"] = _by_hand(stack.enter_context(peer("bare", place, api)))
        contenders = {name: contenders[name] for name in TITLES if name in contenders}
        for one in contenders.values():
            _check(one)
        load = stack.enter_context(load_client())
        most = load(api, request(api, "GET", "/v1/Kyiv?days=3"), CONNECTIONS[-1], SECONDS).rate
        found = {(kind, many): _loaded(contenders, kind, many, load) for kind in KINDS for many in CONNECTIONS}
        _show(found, contenders)
    print(f"  The load reaches {most:,.0f} a second on the API behind; the API itself is in every HTTP number.")
    if "fastmcp" not in contenders:
        print("  The peers are not installed; `make bench-peers` does that.")
    yield from _reported(found)


def home_for_calls(place: Path, api: int) -> Path:
    home = place / "calls"
    write_home(home, 0, api)
    return home


def put_tools(rest: Rest, api: int) -> None:
    rest.ask("PUT", f"/tools/bundles/{BUNDLE}", {"slug": "weather"})
    rest.ask("PUT", tool_at(BUNDLE, "add"), ADDING)
    args = {"city": {"type": "string"}, "days": {"type": "integer"}}
    tool = http_tool(f"http://127.0.0.1:{api}/v1/${{city}}?days=${{days}}", args)
    rest.ask("PUT", tool_at(BUNDLE, "forecast"), {**tool, "outputSchema": {"type": "object"}})


def requests_to(port: int) -> dict[str, bytes]:
    """Of ours, over REST."""
    asked = {"python": ("add", SUM), "http": ("forecast", FORECAST)}
    return {
        kind: request(port, "POST", f"{tool_at(BUNDLE, slug)}/invoke", {"args": args})
        for kind, (slug, args) in asked.items()
    }


def _rest(server: Process) -> Contender:
    return Contender(server.port, server.process.pid, requests_to(server.port))


def _mcp(server: Process, before: str = "") -> Contender:
    asked = {"python": calling(f"{before}add", SUM), "http": calling(f"{before}forecast", FORECAST)}
    posts = {kind: as_post(message, server.port) for kind, message in asked.items()}
    return Contender(server.port, server.process.pid, posts)


def _by_hand(server: Process) -> Contender:
    asked = {"python": ("/add", SUM), "http": ("/forecast", FORECAST)}
    posts = {kind: request(server.port, "POST", at, {"args": args}) for kind, (at, args) in asked.items()}
    return Contender(server.port, server.process.pid, posts)


def _check(one: Contender) -> None:
    """That it answers what is asked; this also warms up."""
    rest = Rest(one.port)
    for kind, word in (("python", '"2"'), ("http", "Kyiv")):
        text = json.dumps(json.loads(rest.send(one.asked[kind])))
        assert word in text or f": {word.strip(chr(34))}" in text, f"{one.asked[kind]!r} got {text}"
        assert '"isError": true' not in text, text
    rest.close()


class Turn(NamedTuple):
    rate: float
    p50: float
    p99: float
    cpu: float  # seconds of the server's for one call


Turns = dict[str, list[Turn]]
Found = dict[tuple[str, int], Turns]


def _loaded(contenders: Mapping[str, Contender], kind: str, many: int, load: Loading) -> Turns:
    taken: Turns = {name: [] for name in contenders}
    for one in contenders.values():
        load(one.port, one.asked[kind], many, WARM_S)
    for turn in range(TURNS):
        for name in list(contenders)[:: -1 if turn % 2 else 1]:
            taken[name].append(_turn(contenders[name], kind, many, load))
    return taken


def _turn(one: Contender, kind: str, many: int, load: Loading) -> Turn:
    before = processor_seconds(one.pid)
    loaded = load(one.port, one.asked[kind], many, SECONDS)
    used = processor_seconds(one.pid) - before
    return Turn(loaded.rate, loaded.p50, loaded.p99, used / loaded.requests)


def _show(found: Found, contenders: Mapping[str, Contender]) -> None:
    others = [name for name in contenders if name != "onetool"]
    rates = [[_title(*which), *_cells(turns, "rate", others)] for which, turns in found.items()]
    aim = f"requests a second, median of {TURNS} turns of {SECONDS:g} s (aim: 3 × FastMCP)"
    show(f"Bundles: invoke, {aim}", _columns(others, "ours ×"), rates)
    busy = [[_title(*which), *_cells(turns, "cpu", others)] for which, turns in found.items()]
    show("Bundles: what an invoke costs the server of the processor, ms", _columns(others, "× ours"), busy)
    waits = [
        [f"{_title(*which)}, {mark}", *_cells(turns, mark, others)]
        for which, turns in found.items()
        for mark in ("p50", "p99")
    ]
    show("Bundles: how long an invoke took meanwhile, ms", _columns(others, "× ours"), waits)


def _reported(found: Found) -> Iterator[Row]:
    floors = [TITLES["bare"], TITLES["mcp"]]
    for (kind, many), turns in found.items():
        for field, unit in (("rate", "/s"), ("p99", "ms")):
            taken = {TITLES[name]: [getattr(one, field) for one in of] for name, of in turns.items()}
            chart = "speed" if (field, many) == ("rate", 16) else ""
            told = f"REST: invoke, {_title(kind, many)}{'' if field == 'rate' else ', p99'}"
            yield row(told, unit, taken, floors=floors, more=field == "rate", chart=chart)


def _columns(others: list[str], ratio: str) -> list[str]:
    return ["", TITLES["onetool"], *(one for name in others for one in (TITLES[name], ratio))]


def _title(kind: str, many: int) -> str:
    return f"{'python' if kind == 'python' else 'HTTP'} tool, {many} connection{'s' if many > 1 else ''}"


def _cells(turns: Turns, field: str, others: list[str]) -> list[str]:
    """Each with its ratio to ours: the median of those of the turns, since the machine drifts."""
    unit = "/s" if field == "rate" else "ms"
    ours = [getattr(one, field) for one in turns["onetool"]]
    cells = [number(ours, unit)]
    for name in others:
        theirs = [getattr(one, field) for one in turns[name]]
        pairs = zip(ours, theirs, strict=True)
        ratio = median(mine / other if field == "rate" else other / mine for mine, other in pairs)
        cells += [number(theirs, unit), f"{ratio:.2f}"]
    return cells
