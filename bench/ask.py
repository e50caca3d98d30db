"""`ask`: how long until the first request is on its way, and what a task of ten calls costs in tokens.

The time is from the start of the process to the arrival of its request at a server on loopback. The tokens are those of
the bodies that arrive there, counted with the vocabulary o200k.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from bench.ask_model import ScriptedModel, calls, says
from bench.table import OURS, Row, row, show
from onetool import App, ToolSpec
from onetool.formats import ProviderNames

ROUNDS = 11
AIM = 5
STEPS = 10
TOOLS = Path(__file__).parent.parent / "tests" / "data" / "livemcp.json"
ONETOOL = str(Path(sys.executable).with_name("onetool"))
SDKS = ("openai", "anthropic", "google.genai", "ollama")
REQUEST = """
from openai import OpenAI
OpenAI(base_url={url!r}, api_key="k", max_retries=0).chat.completions.create(
    model="script", messages=[{{"role": "user", "content": "Hello"}}]
)
"""


def run() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        yield from _first_request(Path(folder))
        yield from _tokens(Path(folder))


def _first_request(folder: Path) -> Iterator[Row]:
    with ScriptedModel(lambda _: says("Hello.")) as model:
        (folder / "onetool.yaml").write_text(_config(model.url))
        ours = [ONETOOL, "ask", "--config", str(folder / "onetool.yaml"), "Hello"]
        contenders: dict[str, tuple[list[str], bool]] = {
            "onetool ask, to its first request": (ours, True),
            "openai's SDK, to its first request": ([sys.executable, "-c", REQUEST.format(url=model.url)], True),
            **{f"import {name}": ([sys.executable, "-c", f"import {name}"], False) for name in SDKS},
            "python -c pass": ([sys.executable, "-c", "pass"], False),
        }
        taken: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(ROUNDS):
            for name, (command, sends) in contenders.items():
                taken[name].append(_seconds(command, folder, model if sends else None))
    first = median(taken["onetool ask, to its first request"])
    rows = [
        [
            name,
            f"{median(times) * 1000:.0f}",
            f"{median(times) / first:.1f}",
            f"{AIM}" if "import openai" in name else "",
        ]
        for name, times in taken.items()
    ]
    show(f"From nothing to the first request, median of {ROUNDS}", ["", "ms", "× ours", "aim"], rows)
    ours, *others = taken
    turns = {OURS: taken[ours], **{name: taken[name] for name in others}}
    yield row("ask: to its first request", "ms", turns, floors=others[-1:], aim=f"{AIM} × import openai", chart="start")


def _seconds(command: list[str], folder: Path, model: ScriptedModel | None) -> float:
    """Until it has ended; or with a model, until its request has arrived there."""
    env = {**os.environ, "HOME": str(folder), "OPENAI_API_KEY": "k"}
    started = perf_counter()
    subprocess.run(command, cwd=folder, env=env, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return (perf_counter() if model is None else model.arrivals.get(timeout=10)) - started


def _config(url: str) -> str:
    return f'ask: {{provider: openai, model: script, base_url: "{url}", context_tokens: 1000000}}\n'


# Tokens


def _tokens(folder: Path) -> Iterator[Row]:
    rows: list[list[str]] = []
    for count in (10, 100, 527):
        tools = _declared(count)
        spent = {
            "direct": _spent(folder, tools, "direct", _one_by_one),
            "run, a run for each call": _spent(folder, tools, "run", _run_by_run),
            "run, one run for all": _spent(folder, tools, "run", _all_at_once),
        }
        direct = {"OneTool, menu direct": [spent["direct"][1]]}
        for name, (requests, tokens) in spent.items():
            share = f"{tokens / spent['direct'][1]:.3f}"
            rows.append([f"{count} tools, {name}", f"{requests}", f"{tokens:,}", share])
            if name != "direct":
                what = f"ask: {STEPS} calls of {count} tools by {name}"
                yield row(what, "tokens", {OURS: [tokens], **direct}, floors=direct)
    show(f"A task of {STEPS} calls: tokens sent to the model", ["", "requests", "tokens", "× direct"], rows)


def _declared(count: int) -> list[dict[str, Any]]:
    """Real tools, with answers made up."""
    found = json.loads(TOOLS.read_text())["tools"][:count]
    return [
        {
            "name": one["name"],
            "description": one["description"] or one["name"],
            "type": "function",
            "handler": "mock",
            "parameters": {"type": "object", "additionalProperties": True, **one["inputSchema"], "required": []},
            "implementation": {"type": "mock", "mock_response": {"found": number, "text": "a few words of an answer"}},
        }
        for number, one in enumerate(found)
    ]


def _spent(
    folder: Path, tools: list[dict[str, Any]], menu: str, script: Callable[[int, list[str]], Any]
) -> tuple[int, int]:
    """How many requests it took, and how many tokens these had."""
    from rs_bpe.bpe import openai  # pyright: ignore[reportMissingTypeStubs]

    vocabulary: Any = openai.o200k_base()
    names = [tool["name"] for tool in tools[:STEPS]]

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        step = sum(message["role"] == "assistant" for message in body["messages"])
        return script(step, names)

    with ScriptedModel(answer) as model:
        home = Path(tempfile.mkdtemp(dir=folder))
        config = f"{_config(model.url)}tools: {json.dumps(tools)}\nsecrets: {{OPENAI_API_KEY: key-for-measuring}}\n"
        (home / "onetool.yaml").write_text(config)
        with App.open(home / "onetool.yaml") as app:
            asyncio.run(_asked(app, menu))
        return len(model.bodies), sum(len(vocabulary.encode(body.decode())) for body in model.bodies)


async def _asked(app: App, menu: str) -> None:
    answer = await app.ask("Find all ten.", menu=menu, approve="always", stream=False, max_steps=STEPS + 2)
    failed = [one.result.error for one in answer.tool_results if not one.result.ok]
    if answer.answer != "Found." or failed:
        raise RuntimeError(f"the task was not done: {answer.answer} {failed[:1]}")


def _one_by_one(step: int, names: list[str]) -> dict[str, Any]:
    spelled = ProviderNames([ToolSpec(name=name, description="") for name in names], "openai")
    return calls(spelled.to_provider(names[step]), {}, step) if step < STEPS else says("Found.")


def _run_by_run(step: int, names: list[str]) -> dict[str, Any]:
    """It has to look the tools up first."""
    if step == 0:
        return calls("run", {"code": _help(names)}, step)
    return calls("run", {"code": _called(names[step - 1])}, step) if step <= STEPS else says("Found.")


def _all_at_once(step: int, names: list[str]) -> dict[str, Any]:
    if step == 0:
        return calls("run", {"code": _help(names)}, step)
    return calls("run", {"code": f"[{', '.join(map(_called, names))}]"}, step) if step == 1 else says("Found.")


def _help(names: list[str]) -> str:
    return f"[ot.signature(name) for name in {names!r}]"


def _called(name: str) -> str:
    return f'ot.call("{name}", {{}})'
