"""The handler runner, which runs one handler within its deadline and catches all exceptions. Async handlers run on the
event loop, others in a thread.

After the deadline, a handler that is still running continues, but its outcome is dropped. Time spent waiting for the
caller's answer does not count. Handlers of idempotent tools are retried after temporary failures.
"""

import asyncio
import random
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from functools import partial
from inspect import isawaitable
from types import NoneType
from typing import Any

from onetool.core.context import CallContext, current_call
from onetool.core.errors import BadArguments, RefusedArguments, ToolFailure, describe_error
from onetool.core.json_data import plain
from onetool.core.threads import MIN_WAIT, Outcome, ThreadJob, Threads


class Deadline:
    """A timer that calls `on_due` on the event loop, `grace` seconds after the deadline of a call."""

    __slots__ = ("_context", "_grace", "_loop", "_on_due", "timer")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, context: CallContext, on_due: Callable[[], None], grace: float = 0.0
    ) -> None:
        self._loop = loop
        self._context = context
        self._on_due = on_due
        self._grace = grace
        self.timer = loop.call_later(context.left() + grace, self._due)

    def _due(self) -> None:
        left = self._context.left() + self._grace
        if left <= 0 or self._context.pauses is None:  # timers may fire slightly early
            self._on_due()
        else:
            self.timer = self._loop.call_later(max(left, MIN_WAIT), self._due)


@asynccontextmanager
async def within_deadline(context: CallContext, grace: float = 0.0) -> AsyncGenerator[None]:
    """Raise TimeoutError inside of this context after the deadline of the call."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:
        deadline = Deadline(loop, context, lambda: limit.reschedule(loop.time()), grace)
        try:
            yield
        finally:
            deadline.timer.cancel()


# Running handlers

GRACE = 0.5  # seconds after the deadline in which the loop can report the timeout
# Options of a handler's task: start before the next iteration of the loop, where supported.
_TASK_OPTIONS: Mapping[str, Any] = {"eager_start": True} if sys.version_info >= (3, 12) else {}

PLAIN = frozenset((NoneType, bool, int, float, str, list, dict))  # types of most values, none of them awaitable


class HandlerRunner:
    def __init__(self) -> None:
        self._threads = Threads()
        self._abandoned: set[asyncio.Task[Any]] = set()  # keeps tasks from being garbage-collected

    async def run(self, context: CallContext) -> Outcome:
        """Run the handler until its deadline, with retries if allowed.

        In a thread without an event loop, this awaits a ThreadJob.
        """
        handler, args = context.spec.handler, context.call.args
        if handler is None:
            return None, ToolFailure(f"{context.spec.name} has no handler: it can be described but not run")
        loop = asyncio._get_running_loop()  # pyright: ignore[reportPrivateUsage] - the public one raises, which is slow
        while True:
            inside = copy_context()
            inside.run(current_call.set, context)
            start: Callable[[], Awaitable[Any]] = partial(handler, **args)
            outcome: Outcome | None = None
            if not context.spec.is_async:
                job = ThreadJob(self._threads, inside, plain_value, {"handler": handler, "args": args}, context.left)
                value, error = await (job if loop is None else self._threads.outcome(job))
                if isinstance(error, TimeoutError) and context.left() <= 0:
                    outcome = _too_late(context)
                elif error is not None or type(value) in PLAIN or not isawaitable(value):
                    outcome = value, error
                else:
                    start = lambda returned=value: returned  # noqa: E731
            if outcome is None:
                awaited = self._in_task(start, context, inside)
                outcome = _on_the_loop(awaited, context) if loop is None else await awaited
            if not context.retries or (pause := pause_before_retry(context, outcome)) is None:
                return outcome
            if loop is None:
                time.sleep(pause)  # noqa: ASYNC251 - this thread has no loop to hold up
            else:
                await asyncio.sleep(pause)

    async def _in_task(self, start: Callable[[], Awaitable[Any]], context: CallContext, inside: Context) -> Outcome:
        """Await an async handler in a task of its own, so that the deadline cancels only the handler.

        Handlers that never wait need no timer and, on Python 3.12 and later, no iteration of the loop.
        """
        loop = asyncio.get_running_loop()
        if loop.get_task_factory() is None:
            loop.set_task_factory(_contained_task)
        ended: asyncio.Future[Outcome] = loop.create_future()
        task = asyncio.Task(_report(start, ended), loop=loop, context=inside, **_TASK_OPTIONS)
        deadline: Deadline | None = None
        try:
            if not _TASK_OPTIONS:
                await asyncio.sleep(0)  # starts the task
            if not ended.done():
                deadline = Deadline(
                    loop, context, lambda: None if ended.done() else ended.set_result(_too_late(context))
                )
            return await ended
        finally:
            if deadline is not None:
                deadline.timer.cancel()
            if not task.done():
                self._abandoned.add(task)
                task.add_done_callback(self._abandoned.discard)
                task.cancel()
                # Detach the task, which was already reported as a timeout, so that asyncio.run does not wait for it.
                asyncio.tasks._unregister_task(task)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportAttributeAccessIssue]
                task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue]


def plain_value(handler: Callable[..., Any], args: Mapping[str, Any]) -> Any:
    """Call the handler and convert its value in the handler's thread: large values would block the loop."""
    value = handler(**args)
    return value if type(value) not in PLAIN and isawaitable(value) else plain(value)


async def _report(start: Callable[[], Awaitable[Any]], ended: "asyncio.Future[Outcome]") -> None:
    """Await a handler and catch all exceptions, including SystemExit and KeyboardInterrupt."""
    try:
        outcome = plain(await start()), None
    except BaseException as error:  # noqa: BLE001 - whatever a handler raises is an outcome
        if not ended.done():
            ended.set_result((None, error))
    else:
        if not ended.done():
            ended.set_result(outcome)


# Retries within the deadline of the call

FIRST_PAUSE = 0.1  # maximum seconds before the second attempt; doubles for each further one …
MAX_PAUSE = 2.0  # … up to this
TRIES = "tries"  # in the meta of a result, if more than one
FINAL_REASONS = frozenset(("cancelled", "denied", "not_found", "rate_limited", "recursion", "too_large"))


def pause_before_retry(context: CallContext, outcome: Outcome) -> float | None:
    """Return the seconds until the next attempt, and count the attempt; None if there is none."""
    number, error = context.notes.get(TRIES, 1), outcome[1]
    if number > context.retries or not isinstance(error, Exception):
        return None
    if isinstance(error, BadArguments | RefusedArguments) or not getattr(error, "again", True):
        return None
    if isinstance(error, ToolFailure) and error.reason in FINAL_REASONS:
        return None
    pause = min(FIRST_PAUSE * 2 ** (number - 1), MAX_PAUSE) * random.uniform(0.5, 1)  # noqa: S311 - no secret
    if pause >= context.left():
        return None
    context.notes[TRIES] = number + 1
    return pause


def _on_the_loop(work: Coroutine[Any, Any, Outcome], context: CallContext) -> Outcome:
    """Run an async handler on the event loop of the outermost call, which owns the resources that handlers share."""
    if context.loop is None or not context.loop.is_running():
        return asyncio.run(work)
    future = asyncio.run_coroutine_threadsafe(work, context.loop)
    try:
        while True:
            try:
                return future.result(context.left() + GRACE)
            except TimeoutError:
                if future.done() or context.left() + GRACE <= 0:
                    raise
    except BaseException as error:  # noqa: BLE001 - the loop may end, or be blocked, while we wait
        future.cancel()
        return _too_late(context) if context.left() <= 0 else (None, error)


def _contained_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> "asyncio.Task[Any]":
    """Create a task that turns SystemExit, which would end the loop and the process, into a failure.

    Used as a task factory.
    """
    if current_call.get() is not None and asyncio.iscoroutine(work):
        work = _contained(work)
    return asyncio.Task(work, loop=loop, **options)


async def _contained(work: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise ToolFailure(describe_error(error)) from error


def _too_late(context: CallContext) -> Outcome:
    message = f"{context.spec.name} did not respond within {context.seconds:g} s"
    hints = ["the tool's author can raise the limit: @tool(timeout=…), or timeout in its definition"]
    if isinstance(context.call.timeout, int | float):  # the caller set this limit
        hints = []
    return None, ToolFailure(message, reason="timeout", hints=hints)
