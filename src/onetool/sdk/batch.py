"""`batch_execute`: one function over many items at once; what came of each, in the order of the items.

An item that fails is an outcome like any other, and one that hangs ends with the call's time: neither loses the batch.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from inspect import iscoroutine, iscoroutinefunction
from itertools import count, islice
from threading import TIMEOUT_MAX, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

from onetool.core.context import current_call
from onetool.core.errors import ToolFailure, describe_error, message_of
from onetool.core.json_data import plain
from onetool.sdk.context import PackMethod, is_on_event_loop, report_progress

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future
    from queue import SimpleQueue

WORKERS = 8
TITLE = "=== {label} ==="
SEPARATOR = "\n\n"
MARGIN = 0.25  # seconds before the call's deadline, so that what is there still reaches the caller

Pair = tuple[Any, str]
Outcome = tuple[Any, BaseException | None]
"""The value, or what was raised instead."""

_UNFINISHED: Outcome = (None, ToolFailure("not finished when the time was up", reason="timeout"))


def normalize_items(items: Iterable[Any]) -> list[Pair]:
    """Each item with a label: `"a"` becomes `("a", "a")`, and a pair of an item and its label stays as it is.

    A list of two counts as a pair too: JSON has no tuples. What is no pair is labelled by its text.
    """
    if isinstance(items, str | bytes):
        raise TypeError("items must be a list of items; for a single one write [item]")
    return [_pair(item) for item in items]


def batch_execute(
    items: Iterable[Any],
    func: Callable[[Any], Any],
    max_workers: int | None = None,
    *,
    as_dict: bool = False,
    executor: "Executor | None" = None,
    title: str = TITLE,
    separator: str = SEPARATOR,
) -> Any:
    """Call `func` with every item, several at once, and give back all outcomes in the items' order.

    As text: a section for each item, headed by its label; what is not text is shown as JSON, and a failure as
    `Error: …`. With `as_dict=True`: the values by label, a failure as `{"error": …}`. A label that comes again is
    numbered: `a`, `a (2)`.

    An async `func` makes this awaitable in async code; elsewhere the result is simply returned. Any other function is
    waited for on the spot: where that would hold up an event loop, write `await asyncio.to_thread(batch_execute, …)`.

    Args:
        items: What to work on; see `normalize_items` for how to label them.
        func: Called with one item. It sees the call that is running: `get_config`, `call_tool` and the rest work.
        max_workers: How many run at once: 8 if not said, or as many as the executor takes.
        as_dict: Give data instead of text.
        executor: Any `concurrent.futures.Executor` to run in. In another process there is no running call.
        title: The heading of a section; `{label}` stands for the label.
        separator: What stands between two sections.
    """
    if max_workers is not None and max_workers < 1:
        raise ValueError(f"max_workers must be at least 1, not {max_workers}")
    pairs = _told_apart(normalize_items(items))
    shape = partial(_as_dict, pairs) if as_dict else partial(_as_text, _headings(pairs, title), separator)
    most = max_workers or (WORKERS if executor is None else max(len(pairs), 1))

    def blocking() -> Any:
        return shape(_in_workers(pairs, func, most, executor or _Daemons()))

    async def on_the_loop() -> Any:
        return shape(await _on_the_loop(pairs, func, most))

    if not _is_async(func):
        return blocking()
    import asyncio

    if _loop_runs_here():
        return on_the_loop() if executor is None else asyncio.to_thread(blocking)
    return asyncio.run(on_the_loop()) if executor is None else blocking()


# Input


def _pair(item: Any) -> Pair:
    match item:
        case (value, str(label)):
            return value, label
        case _:
            return item, str(item)


def _told_apart(pairs: list[Pair]) -> list[Pair]:
    """The same with no label twice: both outcomes are kept, also as a dict."""
    numbers: dict[str, int] = {}
    told_apart: list[Pair] = []
    for item, label in pairs:
        unique = label
        while unique in numbers:
            numbers[label] += 1
            unique = f"{label} ({numbers[label]})"
        numbers[unique] = 1
        told_apart.append((item, unique))
    return told_apart


def _is_async(func: Callable[..., Any]) -> bool:
    if isinstance(func, PackMethod):  # a tool of another pack is awaited on a loop, and just returns elsewhere
        return is_on_event_loop()
    return iscoroutinefunction(func) or iscoroutinefunction(getattr(func, "__call__", None))  # noqa: B004


def _loop_runs_here() -> bool:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# Execution


class _Daemons:
    """A thread for every item. Not a ThreadPoolExecutor: the process waits for its threads before it ends."""

    def submit(self, fn: Callable[[Any], Any], item: Any, /) -> "Future[Any]":
        from concurrent.futures import Future

        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()  # it has begun: who gives up may leave it, but not cancel it

        def work() -> None:
            try:
                value = fn(item)
            except BaseException as error:  # noqa: BLE001 - whatever it raises is the item's outcome
                future.set_exception(error)
            else:
                future.set_result(value)

        Thread(target=work, name="onetool-batch", daemon=True).start()
        return future


class _Job:
    """A function that brings the caller's context variables with it, as long as it stays in this process.

    A context can't be pickled, so that a pool of other processes gets the bare function.
    """

    def __init__(self, func: Callable[[Any], Any], context: Context | None = None) -> None:
        self._func = func
        self._context = context

    def __call__(self, item: Any) -> Any:
        return self._context.run(self._call, item) if self._context is not None else self._call(item)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Job, (self._func,)

    def _call(self, item: Any) -> Any:
        value = self._func(item)
        if not iscoroutine(value):
            return value
        import asyncio

        return asyncio.run(value)


def _in_workers(pairs: list[Pair], func: Callable[[Any], Any], most: int, pool: "Executor | _Daemons") -> list[Outcome]:
    """Start the first few, and another one whenever one ends, until all have ended or the time is up."""
    from queue import Empty, SimpleQueue

    ended: SimpleQueue[tuple[int, Future[Any]]] = SimpleQueue()
    waiting = iter(enumerate(item for item, _ in pairs))
    futures = [_start(pool, func, index, item, ended) for index, item in islice(waiting, most)]
    outcomes = [_UNFINISHED] * len(pairs)
    report, give_up = _reporter(pairs), _give_up_at()
    try:
        for _ in pairs:
            index, future = ended.get(timeout=_seconds_until(give_up))
            outcomes[index] = _outcome(future)
            report(index)
            futures += [_start(pool, func, index, item, ended) for index, item in islice(waiting, 1)]
    except Empty:
        pass  # what has not ended keeps its outcome: unfinished
    finally:
        for future in futures:
            future.cancel()  # those that a pool has not begun yet
    return outcomes


def _start(
    pool: "Executor | _Daemons",
    func: Callable[[Any], Any],
    index: int,
    item: Any,
    ended: "SimpleQueue[tuple[int, Future[Any]]]",
) -> "Future[Any]":
    try:
        future = pool.submit(_Job(func, copy_context()), item)
    except Exception as error:  # noqa: BLE001 - a pool that is closed or broken, or no thread to be had
        from concurrent.futures import Future

        future = Future[Any]()
        future.set_exception(error)
    future.add_done_callback(lambda future: ended.put((index, future)))
    return future


def _outcome(future: "Future[Any]") -> Outcome:
    if future.cancelled():
        return None, ToolFailure("cancelled", reason="cancelled")
    error = future.exception()
    return (future.result(), None) if error is None else (None, error)


async def _on_the_loop(pairs: list[Pair], func: Callable[[Any], Any], most: int) -> list[Outcome]:
    """A task for every item, of which only so many pass at once, until all have ended or the time is up."""
    import asyncio

    slots = asyncio.Semaphore(most)
    report, give_up = _reporter(pairs), _give_up_at()

    async def one(index: int, item: Any) -> Outcome:
        async with slots:
            try:
                outcome = await func(item), None
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 - SystemExit of one item would end the whole loop
                outcome = None, error
        report(index)
        return outcome

    tasks = [asyncio.create_task(one(index, item)) for index, (item, _) in enumerate(pairs)]
    try:
        if tasks:
            await asyncio.wait(tasks, timeout=_seconds_until(give_up))
        return [_task_outcome(task) for task in tasks]
    finally:
        for task in tasks:
            task.cancel()


def _task_outcome(task: Any) -> Outcome:
    if task.cancelled():
        return None, ToolFailure("cancelled", reason="cancelled")
    return task.result() if task.done() else _UNFINISHED


def _reporter(pairs: list[Pair]) -> Callable[[int], None]:
    """Returns a function that reports the progress of the running call after each item."""
    ended = count(1)

    def report(index: int) -> None:
        with suppress(Exception):  # who only watches must not break the work
            report_progress(next(ended), len(pairs), pairs[index][1])

    return report


def _give_up_at() -> float:
    context = current_call.get()
    return context.deadline - min(MARGIN, context.seconds / 10) if context else float("inf")


def _seconds_until(moment: float) -> float | None:
    return None if moment == float("inf") else min(max(moment - monotonic(), 0), TIMEOUT_MAX)


# Output


def _as_dict(pairs: list[Pair], outcomes: list[Outcome]) -> dict[str, Any]:
    return {
        label: value if error is None else {"error": _words(error)}
        for (_, label), (value, error) in zip(pairs, outcomes, strict=True)
    }


def _as_text(headings: list[str], separator: str, outcomes: list[Outcome]) -> str:
    sections = zip(headings, outcomes, strict=True)
    return separator.join(f"{heading}\n{_body(*outcome)}" for heading, outcome in sections)


def _headings(pairs: list[Pair], title: str) -> list[str]:
    return [title.format(label=" ".join(label.split())) for _, label in pairs]


def _body(value: Any, error: BaseException | None) -> str:
    if isinstance(value, str):
        return value
    if error is None:
        import json

        try:
            return json.dumps(plain(value), indent=2, ensure_ascii=False)
        except ToolFailure as failure:
            error = failure
    return f"Error: {_words(error)}"


def _words(error: BaseException) -> str:
    """A failure on purpose speaks for itself; of any other the type is worth knowing."""
    return (message_of(error) if isinstance(error, ToolFailure) else "") or describe_error(error)
