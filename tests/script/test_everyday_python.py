"""Everyday Python runs: the 164 functions of HumanEval with their tests, as models write them. See data/humaneval."""

import asyncio
import json
from pathlib import Path

import pytest

from onetool.app import App

FILE = Path(__file__).parent.parent / "data" / "humaneval" / "tasks.jsonl"
TASKS = [json.loads(line) for line in FILE.read_text().splitlines()]


@pytest.fixture
def run_codes(tmp_path):
    """Runs many texts, and gives their results: the only place that knows what runs them."""
    config = tmp_path / "onetool.yaml"
    config.write_text("stats: {enabled: false}\n")

    async def run_all(codes):
        async with App.open(config) as app:
            return [await app.run(code) for code in codes]

    return lambda codes: asyncio.run(run_all(codes))


@pytest.mark.long
def test_humaneval(run_codes):
    assert len(TASKS) == 164
    results = run_codes([f"{task['code']}\n{task['test']}\ncheck({task['entry_point']})\n'done'" for task in TASKS])
    failed = {
        f"{task['task_id']} {task['entry_point']}": result.error.message if result.error else result.data
        for task, result in zip(TASKS, results, strict=True)
        if not result.ok or result.data != "done"
    }
    assert failed == {}


def test_a_wrong_solution_is_noticed(run_codes):
    """The tests of the tasks do test: a solution that gives nothing fails nearly all of them."""
    stub = "\ndef {0}(*args):\n    return None\n"
    results = run_codes(
        [
            f"{task['code']}{stub.format(task['entry_point'])}{task['test']}\ncheck({task['entry_point']})"
            for task in TASKS
        ]
    )
    noticed = sum(not result.ok for result in results)
    assert noticed > 160
