"""What a model pays in tokens: the menu, finding two tools among 527 of real servers, and calling them.

The tools are those of 70 real MCP servers; the tasks are twenty, each with two calls, in plain words. Every contender
is asked over stdio as it is by default. A request counts as the model writes it, an answer to a search as it comes.
Answers of the tools themselves are left out: they are the same for all. The vocabulary is o200k.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any, NamedTuple

from bench.mcp_client import calling, listing
from bench.mcp_contenders import ONETOOL, PEERS_PYTHON, ROOT, Home, Process, Server
from bench.table import OURS, Row, row, show
from bench.tokens_ways import WAYS, Request, Task, Way

DATA = ROOT / "tests" / "data"
TOOLS, TASKS = DATA / "livemcp.json", DATA / "two_call_tasks.json"
AIM = 1_500
THINKING_S = 10  # before its first question, when the search is loaded: tokens must not depend on a busy machine
PACK_SIZES = (2, 2, 3, 3, 4, 4, 5)  # 23 tools
AIMS = {"run": "500", "search": "650"}  # of menus
MENUS, SIZES = ("run", "search", "direct"), (10, 527, 10_000)


class Spent(NamedTuple):
    """On one task. `found` is how many of its tools the answers had."""

    menu: int
    look: int
    call: int
    found: int

    @property
    def whole(self) -> int:
        return self.menu + self.look + self.call


def run() -> Iterator[Row]:
    yield from _menus()
    yield from two_call_tasks()
    yield from lookups()


# The menu


def _menus() -> Iterator[Row]:
    """With tools made for it: how it grows."""
    taken: dict[tuple[str, str], list[int]] = {}
    described: list[int] = []  # the description of `run`
    which = [("onetool", menu) for menu in MENUS] + [("fastmcp", "direct")] * PEERS_PYTHON.exists()
    with Home() as home:
        for (name, menu), size in product(which, SIZES):
            if name == "fastmcp" and size == SIZES[-1]:
                continue  # it takes minutes to list so many
            with Server(home, name, "stdio", size, menu) as server:
                tools = list(all_tools(server))
            taken.setdefault((name, menu), []).append(tokens(for_a_model(tools)))
            if menu == "run":
                described.append(tokens(tools[0]["description"]))
    titles = {key: f"OneTool, menu {key[1]}" if key[0] == "onetool" else "FastMCP, every tool" for key in taken}
    cells = [[titles[key], *(f"{count:,}" for count in counts)] for key, counts in taken.items()]
    cells.append(["OneTool, description of run", *(f"{count:,}" for count in described)])
    cells = [[*line, *["–"] * (1 + len(SIZES) - len(line))] for line in cells]
    show("What the menu costs a model", ["tokens (o200k)", *(f"{size:,} tools" for size in SIZES)], cells)
    for (at, size), menu in product(enumerate(SIZES), MENUS):
        turns = {OURS: [taken["onetool", menu][at]]}
        if theirs := taken.get(("fastmcp", "direct"), [])[at : at + 1]:
            turns["FastMCP"] = theirs
        what = f"tokens: menu {menu}, {size:,} tools{' and our own' if menu == 'direct' else ''}"
        yield row(what, "tokens", turns, aim=AIMS.get(menu, ""))
    for count, size in zip(described, SIZES, strict=True):
        yield row(f"tokens: description of run, {size:,} tools", "tokens", {OURS: [count]}, aim="500")


# The tasks


def two_call_tasks() -> Iterator[Row]:
    tasks = json.loads(TASKS.read_text())
    with TemporaryDirectory() as folder:
        spent = {way: spent_on(way, tasks, Path(folder)) for way in _ways()}
    rows: list[list[str]] = []
    for way, of_tasks in spent.items():
        parts = [median(getattr(one, part) for one in of_tasks) for part in ("menu", "look", "call", "whole")]
        most = max(one.whole for one in of_tasks)
        found = sum(one.found for one in of_tasks)
        rows.append([way.title, *(f"{part:,.0f}" for part in (*parts, most)), f"{found} of {2 * len(tasks)}"])
    columns = ["tokens (o200k)", "menu", "finding", "calling", "in all", "at the most", "found"]
    show(f"A task of two calls over 527 tools, medians of {len(tasks)} tasks (aim: {AIM:,} in all)", columns, rows)
    yield from _reported({way.title: of_tasks for way, of_tasks in spent.items()}, len(tasks))


def _reported(spent: Mapping[str, Sequence[Spent]], tasks: int) -> Iterator[Row]:
    peers = {name: [one.whole for one in of_tasks] for name, of_tasks in spent.items() if "OneTool" not in name}
    for name in [name for name in spent if name not in peers]:
        what = f"tokens: a task of two calls over 527 tools, {name.removeprefix('OneTool, ')}"
        ours = {OURS: [one.whole for one in spent[name]]}
        if "direct" in name:  # for few tools: there is nothing to search
            yield row(what, "tokens", ours | {other: of for other, of in peers.items() if "every" in other})
        else:
            yield row(what, "tokens", ours | peers, aim=f"{AIM:,}", chart="tokens")
    looking = {name: [sum(one.found for one in of_tasks)] for name, of_tasks in spent.items() if "direct" not in name}
    ours = {OURS: looking.pop("OneTool, menu run")}
    others = {name: found for name, found in looking.items() if "every" not in name and "OneTool" not in name}
    yield row(f"tokens: tools found at the first search, of {2 * tasks}", "tools", {**ours, **others}, more=True)


def _ways() -> list[Way]:
    return [way for way in WAYS if way.server == "onetool" or PEERS_PYTHON.exists()]


def spent_on(way: Way, tasks: Sequence[Task], folder: Path) -> list[Spent]:
    with _started(way, folder) as server:
        menu = tokens(for_a_model(all_tools(server)))
        sleep(THINKING_S)
        return [_of_task(way, task, server, menu) for task in tasks]


def _of_task(way: Way, task: Task, server: Process, menu: int) -> Spent:
    answers = [(request, _text(server, request)) for request in way.look(task)]
    found = sum(told(way.spelled(one["tool"]), answers) for one in task["calls"]) if answers else len(task["calls"])
    look = sum(_written(request) + tokens(text) for request, text in answers)
    return Spent(menu, look, sum(map(_written, way.call(task))), found)


def told(name: str, answers: Sequence[tuple[Request, str]]) -> bool:
    """By an answer to a request that did not name it: one that asks for a known tool's schema finds nothing."""
    return any(name in text and name not in str(request.arguments) for request, text in answers)


def _written(request: Request) -> int:
    return tokens(json.dumps(request._asdict(), ensure_ascii=False))


def _text(server: Process, request: Request) -> str:
    result = server.ask(calling(request.name, request.arguments))
    text = "\n".join(block["text"] for block in result["content"])
    if result.get("isError"):
        raise RuntimeError(f"{request} got {text}")
    return text


@contextmanager
def _started(way: Way, folder: Path) -> Iterator[Process]:
    if way.server == "onetool":
        home = folder / way.menu
        home.mkdir()
        (home / "onetool.yaml").write_text(json.dumps({"tools": declared()}))
        command = [ONETOOL, "mcp", "--config", str(home / "onetool.yaml"), "--menu", way.menu]
        env = {"ONETOOL_HOME": str(home), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    else:
        command = [str(PEERS_PYTHON), "-m", "bench.tokens_peers", way.menu, str(TOOLS)]
        env = {"PYTHONPATH": str(ROOT)}
    with Process(command, folder, env) as server:
        yield server


def declared() -> list[dict[str, Any]]:
    """The real tools, as a config has them."""
    return [
        {
            "name": one["name"],
            "description": one["description"] or one["name"],
            "type": "function",
            "handler": "mock",
            "parameters": one["inputSchema"],
            "implementation": {"type": "mock", "mock_response": {}},
        }
        for one in json.loads(TOOLS.read_text())["tools"]
    ]


# Looking up whole packs


def lookups() -> Iterator[Row]:
    """What it costs to read how the tools of seven packs are called, without the menu."""
    packs = seven_packs()
    names = [name for of_pack in packs.values() for name in of_pack]
    found: dict[str, tuple[int, int]] = {}
    with TemporaryDirectory() as folder:
        for way in _ways():
            if way.lookup is None:
                continue
            with _started(way, Path(folder)) as server:
                sleep(THINKING_S)
                answers = [(request, _text(server, request)) for request in way.lookup(packs)]
            said = "\n".join(text for _, text in answers)
            spent = sum(_written(request) + tokens(text) for request, text in answers)
            found[way.title] = spent, sum(way.spelled(name) in said for name in names)
    what = f"{len(names)} tools in {len(packs)} packs among 550"
    rows = [[title, f"{spent:,}", f"{told} of {len(names)}"] for title, (spent, told) in found.items()]
    show(f"Looking up {what}", ["tokens (o200k)", "spent", "found"], rows)
    peers = {title: [spent] for title, (spent, _) in found.items() if "OneTool" not in title}
    for title in (title for title in found if title not in peers):
        menu = title.removeprefix("OneTool, ")
        yield row(f"tokens: looking up {what}, {menu}", "tokens", {OURS: [found[title][0]], **peers})


def seven_packs() -> dict[str, list[str]]:
    """Return seven packs of real servers that have 23 tools together."""
    packs: dict[str, list[str]] = {}
    for one in json.loads(TOOLS.read_text())["tools"]:
        packs.setdefault(one["name"].partition(".")[0], []).append(one["name"])
    chosen: dict[str, list[str]] = {}
    for size in PACK_SIZES:
        pack = next(pack for pack, names in packs.items() if len(names) == size and pack not in chosen)
        chosen[pack] = packs[pack]
    return chosen


# Counting


def tokens(text: str) -> int:
    from rs_bpe.bpe import openai

    return openai.o200k_base().count(text)


def all_tools(server: Process) -> Iterator[Mapping[str, Any]]:
    cursor = None
    while True:
        result = server.ask(listing(cursor))
        yield from result["tools"]
        cursor = result.get("nextCursor")
        if not cursor:
            return


def for_a_model(tools: Iterable[Mapping[str, Any]]) -> str:
    """As clients hand them on."""
    shown = [{key: tool.get(key) for key in ("name", "description", "inputSchema")} for tool in tools]
    return json.dumps(shown, ensure_ascii=False)
