"""Batches: order, failures, hangs, both kinds of functions."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from types import SimpleNamespace

import pytest
from helpers import calls, executor_for, forever, run, until_async

from onetool import ToolCall, ToolSpec
from onetool.core import threads
from onetool.core.context import CallContext, current_call
from onetool.core.errors import ToolFailure
from onetool.sdk import batch
from onetool.sdk.batch import batch_execute, normalize_items
from onetool.sdk.context import get_config

here = ContextVar("here", default="nowhere")


async def upper(text):
    await asyncio.sleep(0)
    return text.upper()


class Crowd:
    """A function that passes only in groups of `size`, and remembers how many of it ran at once."""

    def __init__(self, size):
        self.now = self.most = 0
        self.lock = threading.Lock()
        self.together = threading.Barrier(size)

    def __call__(self, item):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.together.wait(10)
        with self.lock:
            self.now -= 1
        return item


# Items


def test_a_pair_may_be_a_list_since_json_has_no_tuples():
    assert normalize_items([["a", "Label A"]]) == [("a", "Label A")]


def test_what_is_no_pair_is_labelled_by_its_text():
    assert normalize_items([1, (2.5, 3.5), ("a", "b", "c"), {"k": 1}, None]) == [
        (1, "1"),
        ((2.5, 3.5), "(2.5, 3.5)"),
        (("a", "b", "c"), "('a', 'b', 'c')"),
        ({"k": 1}, "{'k': 1}"),
        (None, "None"),
    ]


def test_items_may_be_any_iterable_but_a_text():
    assert normalize_items(letter for letter in "ab") == [("a", "a"), ("b", "b")]
    with pytest.raises(TypeError, match=r"write \[item\]"):
        normalize_items("ab")


def test_no_items_no_sections():
    assert batch_execute([], str) == ""
    assert batch_execute([], str, as_dict=True) == {}
    assert batch_execute([], upper) == ""


# What comes out


def test_the_order_is_that_of_the_items_whoever_ends_first():
    def slow_first(number):
        time.sleep(0.05 if number == 0 else 0)
        return number

    assert list(batch_execute(range(5), slow_first, as_dict=True).values()) == [0, 1, 2, 3, 4]


def test_values_that_are_not_text_are_shown_as_json():
    @dataclass
    class Point:
        x: int

    values = {"dict": {"é": [1, None]}, "none": None, "model": Point(3), "number": 1.5}
    sections = batch_execute(values, values.__getitem__).split("\n\n")
    assert [section.split("\n", 1)[0] for section in sections] == [f"=== {name} ===" for name in values]
    bodies = [json.loads(section.split("\n", 1)[1]) for section in sections]
    assert bodies == [{"é": [1, None]}, None, {"x": 3}, 1.5]
    assert "é" in sections[0]


def test_title_and_separator_can_be_chosen():
    assert batch_execute(["a", "b"], str.upper, title="## {label}", separator="\n---\n") == "## a\nA\n---\n## b\nB"


def test_a_wrong_title_is_told_before_anything_runs():
    ran = []
    with pytest.raises(KeyError):
        batch_execute(["a"], ran.append, title="{lable}")
    assert not ran


def test_a_heading_is_one_line():
    assert batch_execute([("a", "two\nlines")], str) == "=== two lines ===\na"


def test_one_failing_item_is_a_section_and_not_a_lost_batch():
    def fails(item):
        if item == "b":
            raise ValueError("no b here")
        if item == "c":
            raise ToolFailure("c is on purpose")
        if item == "d":
            raise KeyError
        return item

    assert batch_execute(["a", "b", "c", "d"], fails) == (
        "=== a ===\na\n\n=== b ===\nError: ValueError: no b here\n\n=== c ===\nError: c is on purpose\n\n"
        "=== d ===\nError: KeyError"
    )
    assert batch_execute(["a", "b"], fails, as_dict=True) == {"a": "a", "b": {"error": "ValueError: no b here"}}


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), StopIteration(), GeneratorExit()])
@pytest.mark.parametrize("is_async", [False, True])
def test_not_even_an_item_that_wants_to_end_the_process_loses_the_batch(raised, is_async):
    def fails(item):
        if item == "b":
            raise raised
        return item

    async def fails_async(item):
        return fails(item)

    result = batch_execute(["a", "b", "c"], fails_async if is_async else fails, as_dict=True)
    assert (result["a"], result["c"]) == ("a", "c")
    assert "error" in result["b"]


def test_an_error_that_cannot_be_told_is_told_by_its_type():
    class MuteError(Exception):
        def __str__(self):
            raise RuntimeError

    def fails(_):
        raise MuteError

    assert batch_execute(["a"], fails) == "=== a ===\nError: MuteError"


def test_a_value_that_is_no_data_is_a_failed_item():
    text = batch_execute(["a", "b"], lambda item: object() if item == "a" else item)
    assert text.startswith("=== a ===\nError: returned something that is not data")
    assert text.endswith("=== b ===\nb")


def test_duplicate_labels_keep_both():
    items = [(1, "a"), (2, "a"), (3, "a (2)"), (4, "a")]
    assert batch_execute(items, int, as_dict=True) == {"a": 1, "a (2)": 2, "a (2) (2)": 3, "a (3)": 4}
    assert batch_execute(items[:2], int) == "=== a ===\n1\n\n=== a (2) ===\n2"


@pytest.mark.long
def test_many_equal_labels_are_told_apart_quickly():
    with calls(2_000_000):
        assert len(batch_execute(["same"] * 5_000, upper, as_dict=True)) == 5_000


# How many at once


def test_eight_at_once_if_nothing_is_said():
    crowd = Crowd(8)
    assert list(batch_execute(range(24), crowd, as_dict=True).values()) == list(range(24))
    assert crowd.most <= 8


@pytest.mark.parametrize("number", [0, -1])
def test_no_workers_at_all_is_a_mistake(number):
    with pytest.raises(ValueError, match="max_workers"):
        batch_execute(["a"], str, number)


# Async functions


def test_an_async_function_is_awaited_in_async_code():
    async def main():
        return await batch_execute(["a", "b"], upper)

    assert asyncio.run(main()) == "=== a ===\nA\n\n=== b ===\nB"


def test_an_async_function_just_returns_in_other_code():
    assert batch_execute(["a", "b"], upper) == "=== a ===\nA\n\n=== b ===\nB"
    assert batch_execute(["a"], partial(upper)) == "=== a ===\nA"


def test_another_function_just_returns_in_async_code_as_well():
    async def main():
        return batch_execute(["a"], str.upper)

    assert asyncio.run(main()) == "=== a ===\nA"


def test_a_plain_function_that_gives_a_coroutine_works_too():
    assert batch_execute(["a"], lambda item: upper(item)) == "=== a ===\nA"


def test_an_object_with_an_async_call_is_an_async_function():
    class Upper:
        async def __call__(self, text):
            return await upper(text)

    assert batch_execute(["a"], Upper()) == "=== a ===\nA"


def test_async_items_run_at_once_but_not_more_than_allowed():
    now = most = 0

    async def work(_):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1

    batch_execute(range(10), work, max_workers=3)
    assert most == 3


def test_a_cancelled_batch_cancels_its_items():
    began, cancelled = [], []

    async def hang(item):
        began.append(item)
        try:
            await forever()
        except asyncio.CancelledError:
            cancelled.append(item)
            raise

    async def main():
        task = asyncio.create_task(batch_execute(["a", "b"], hang))
        await until_async(lambda: len(began) == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_async(lambda: len(cancelled) == 2)

    asyncio.run(main())
    assert cancelled == ["a", "b"]


def test_an_item_that_cancels_itself_is_one_failed_item():
    async def fails(item):
        if item == "a":
            raise asyncio.CancelledError
        return item

    assert batch_execute(["a", "b"], fails, as_dict=True) == {"a": {"error": "cancelled"}, "b": "b"}


# Executors


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_an_executor_is_refused_with_what_to_use(pool):
    with pool(1) as executor, pytest.raises(TypeError) as refused:
        batch_execute(["a"], str.upper, executor=executor)
    assert str(refused.value) == (
        "batch_execute() no longer takes executor=. Use max_workers=N for N threads, "
        "or your pool in func: lambda item: pool.submit(work, item).result()"
    )


def test_a_pool_of_processes_in_the_function():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        text = batch_execute(["a", "b"], lambda item: pool.submit(str.upper, item).result())
    assert text == "=== a ===\nA\n\n=== b ===\nB"


# Inside of a call


class Environment:
    calls = None

    def settings(self, pack):
        return {"unit": "C"}

    def secret(self, name):
        return None


@pytest.mark.parametrize("is_async", [False, True])
def test_the_running_call_is_visible_in_the_workers(is_async):
    async def work_async(_):
        return get_config()["unit"]

    func = work_async if is_async else lambda _: get_config()["unit"]
    work = lambda: batch_execute(["a", "b"], func, as_dict=True)  # noqa: E731
    result = run(executor_for(work, environment=Environment()))
    assert result.data == {"a": "C", "b": "C"}


def test_what_one_item_sets_another_does_not_see():
    def work(item):
        before = here.get()
        here.set(item)
        return before

    here.set("outside")
    values = batch_execute(["a", "b", "c"], work, max_workers=1, as_dict=True).values()
    assert set(values) == {"outside"}
    assert here.get() == "outside"


@pytest.mark.parametrize("is_async", [False, True])
def test_progress_is_reported(is_async):
    told = []
    func = upper if is_async else str.upper
    executor = executor_for(lambda: batch_execute(["a", "b", ("c", "See")], func, max_workers=1))
    call = ToolCall(id="1", name="t", source="test")
    result = asyncio.run(executor.execute(call, progress=lambda *step: told.append(step)))
    assert result.ok
    assert told == [(1, 3, "a"), (2, 3, "b"), (3, 3, "See")]


def test_a_failing_progress_bar_breaks_nothing():
    def progress(*_):
        raise RuntimeError

    executor = executor_for(lambda: batch_execute(["a"], str))
    result = asyncio.run(executor.execute(ToolCall(id="1", name="t", source="test"), progress=progress))
    assert result.data == "=== a ===\na"


def with_a_deadline(seconds, function):
    """Call it as a tool that may take so long."""
    context = CallContext(
        spec=ToolSpec(name="t", description="d"),
        call=ToolCall(id="1", name="t"),
        seconds=seconds,
        deadline=time.monotonic() + seconds,
    )
    inside = copy_context()
    inside.run(current_call.set, context)
    return inside.run(function)


@pytest.mark.parametrize("kind", ["threads", "async", "async in threads"])
def test_a_hanging_item_does_not_lose_the_others(kind):
    stop, ended = threading.Event(), []

    def hangs(item):
        if item == "hangs":
            stop.wait(20)
            ended.append(item)
        return item

    async def hangs_async(item):
        if item == "hangs":
            await forever()
        return item

    async def hangs_in_thread(item):
        return await asyncio.to_thread(hangs, item)  # which the end of a loop waits for

    func = {"threads": hangs, "async": hangs_async, "async in threads": hangs_in_thread}[kind]
    work = partial(batch_execute, ["a", "hangs", "b"], func, max_workers=2, as_dict=True)
    result = with_a_deadline(1, work)
    assert ended == []  # it still hangs
    stop.set()
    assert result == {"a": "a", "hangs": {"error": "not finished before the deadline"}, "b": "b"}


@pytest.mark.parametrize("seconds", [float("inf"), 1e300])
def test_a_call_may_have_all_the_time_in_the_world(seconds):
    assert with_a_deadline(seconds, lambda: batch_execute(["a"], str)) == "=== a ===\na"
    assert with_a_deadline(seconds, lambda: batch_execute(["a"], upper)) == "=== a ===\nA"


def test_a_hang_does_not_keep_the_process_alive(tmp_path):
    program = (
        "import sys, threading, time\n"
        "from onetool.sdk.batch import batch_execute\n"
        "work = lambda: batch_execute(['a', 'b'], lambda _: time.sleep(60))\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "time.sleep(0.3)\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=30)


def test_a_thread_that_cannot_start_fails_its_item(monkeypatch):
    def no_thread(**_):
        raise RuntimeError("can't start new thread")

    batch._threads.cache_clear()  # no idle thread of another batch
    monkeypatch.setattr(threads, "Thread", lambda **_: SimpleNamespace(start=no_thread))
    assert batch_execute(["a"], str) == "=== a ===\nError: RuntimeError: can't start new thread"


def test_importing_the_helpers_loads_nothing_heavy():
    program = (
        "import sys\n"
        "from onetool.sdk import batch, context, http as clients, http, requirements\n"
        "heavy = {'asyncio', 'concurrent.futures', 'httpx', 'importlib.metadata', 'json', 'logging', 'subprocess'}\n"
        "print(*heavy & set(sys.modules))\n"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert loaded.stdout.split() == []
