"""`batch_execute`, which calls a function with many items in parallel and returns the outcomes in order.

Failures are outcomes like any other, and items that hang are abandoned at the call's deadline, so neither loses the
batch.
"""

import sys
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from contextvars import copy_context
from functools import cache, partial
from inspect import iscoroutine, iscoroutinefunction
from itertools import count
from threading import TIMEOUT_MAX, Thread
from time import monotonic
from typing import Any, TypeVar

from onetool.core.context import current_call
from onetool.core.errors import ToolFailure, describe_error
from onetool.core.json_data import plain
from onetool.sdk.context import PackMethod, is_on_event_loop, report_progress

T = TypeVar("T")
WORKERS = 8
MARGIN = 0.25  # seconds before the call's deadline, for returning the finished items

Outcome = tuple[Any, BaseException | None]  # the value, or the exception
_UNFINISHED: Outcome = (None, ToolFailure("not finished before the deadline", reason="timeout"))


def normalize_items(items: Iterable[Any]) -> list[tuple[Any, str]]:
    """Return each item with a label: `"a"` becomes `("a", "a")`, and pairs of an item and a label stay unchanged.

    Lists of two are pairs, too, because JSON has no tuples. Other items are labelled with `str`.
    """
    if isinstance(items, str | bytes):
        raise TypeError("items must be a list; for a single item write [item]")
    return [
        (item[0], item[1])
        if isinstance(item, tuple | list) and len(item) == 2 and isinstance(item[1], str)
        else (item, str(item))
        for item in items
    ]


def batch_execute(
    items: Iterable[Any],
    func: Callable[[Any], Any],
    max_workers: int | None = None,
    *,
    as_dict: bool = False,
    executor: None = None,
    title: str = "=== {label} ===",
    separator: str = "\n\n",
) -> Any:
    """Call `func` with every item, `max_workers` (8) at once, and return all outcomes in the items' order.

    By default, the outcome is a string with a section for each item, headed by its label (`title`). Values are shown as
    JSON unless they are strings, and failures as `Error: …`. With `as_dict=True`, the outcome is a dict of values by
    label, with failures as `{"error": …}`. Repeated labels are numbered: `a`, `a (2)`. `func` runs within the current
    call: `get_config`, `call_tool` etc. work.

    With an async `func`, await the result in async code; in sync code, it is returned directly. Other functions are
    called in threads, and `batch_execute` blocks: on an event loop, use `await asyncio.to_thread(batch_execute, …)`.
    """
    if executor is not None:  # accepted by earlier versions
        instead = "max_workers=N for N threads, or your pool in func: lambda item: pool.submit(work, item).result()"
        raise TypeError(f"batch_execute() no longer takes executor=. Use {instead}")
    if max_workers is not None and max_workers < 1:
        raise ValueError(f"max_workers must be at least 1, not {max_workers}")
    jobs: dict[str, Any] = {}  # by unique label: `a`, `a (2)`
    numbers: dict[str, int] = {}
    for item, label in normalize_items(items):
        unique = label
        while unique in jobs:
            numbers[label] = numbers.get(label, 1) + 1
            unique = f"{label} ({numbers[label]})"
        jobs[unique] = item
    headings = {label: title.format(label=" ".join(label.split())) for label in jobs}

    is_async = iscoroutinefunction(func) or iscoroutinefunction(getattr(func, "__call__", None))  # noqa: B004
    if isinstance(func, PackMethod):  # awaitable only on an event loop
        is_async = is_on_event_loop()
    call = func if is_async else partial(_in_thread, func)

    async def work() -> dict[str, Any] | str:
        outcomes = await _outcomes(jobs, call, max_workers or WORKERS)
        if not as_dict:
            return separator.join(f"{headings[label]}\n{_result_text(*outcome)}" for label, outcome in outcomes.items())
        failed = {
            label: {"error": describe_error(error)} for label, (_, error) in outcomes.items() if error is not None
        }
        return {label: value for label, (value, _) in outcomes.items()} | failed

    return work() if is_on_event_loop() and is_async else _in_own_loop(work())


def _in_own_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run the work on a new event loop and return the outcome immediately. The loop runs in a thread of its own,
    because closing it waits for items that hang in threads.
    """
    import asyncio
    from concurrent.futures import Future

    done: Future[T] = Future()

    async def run() -> None:
        try:
            done.set_result(await work)
        except BaseException as error:  # noqa: BLE001 - passed on to the waiting caller
            done.set_exception(error)

    Thread(target=copy_context().run, args=(asyncio.run, run()), name="onetool-batch", daemon=True).start()
    return done.result()


@cache
def _threads() -> Any:
    """Return the thread pool of all batches: daemon threads, so that hanging items don't keep the process alive."""
    from onetool.core.threads import Threads

    return Threads(sys.maxsize)  # with a shared limit, nested batches could block each other


async def _in_thread(func: Callable[[Any], Any], item: Any) -> Any:
    value = await _threads().run(partial(func, item), {})
    return await value if iscoroutine(value) else value


async def _outcomes(jobs: dict[str, Any], func: Callable[[Any], Any], limit: int) -> dict[str, Outcome]:
    """Run a task for every item, `limit` at once, until all have ended or the time is up."""
    import asyncio

    slots, outcomes, numbers = asyncio.Semaphore(limit), dict.fromkeys(jobs, _UNFINISHED), count(1)

    async def work(label: str, item: Any) -> None:
        async with slots:
            try:
                outcomes[label] = await func(item), None
            except asyncio.CancelledError:
                outcomes[label] = None, ToolFailure("cancelled", reason="cancelled")
                raise
            except BaseException as error:  # noqa: BLE001 - SystemExit of one item would end the whole loop
                outcomes[label] = None, error
        with suppress(Exception):  # a failing progress bar must not break the work
            report_progress(next(numbers), len(jobs), label)

    context, left = current_call.get(), None
    if context is not None:
        left = min(max(context.deadline - min(MARGIN, context.seconds / 10) - monotonic(), 0), TIMEOUT_MAX)
    tasks = [asyncio.create_task(work(label, item)) for label, item in jobs.items()]
    try:
        if tasks:
            await asyncio.wait(tasks, timeout=left)
        return dict(outcomes)
    finally:
        for task in tasks:
            task.cancel()


def _result_text(value: Any, error: BaseException | None) -> str:
    if isinstance(value, str):
        return value
    if error is None:
        import json

        try:
            return json.dumps(plain(value), indent=2, ensure_ascii=False)
        except ToolFailure as failure:
            error = failure
    return f"Error: {describe_error(error)}"
