"""HandlerRunner: runs one handler within its deadline and catches whatever it raises.

Async handlers run on the event loop, others in a thread. Waiting ends with the deadline even if the handler goes on;
its outcome is then dropped. Time spent waiting for an answer of the caller does not count. A handler that may be
repeated is, after a failure that another try may mend.
"""

import asyncio
import random
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from contextvars import copy_context
from inspect import isawaitable
from typing import Any

from onetool.core.context import CallContext, current_call
from onetool.core.errors import BadArguments, RefusedArguments, ToolFailure, describe_error
from onetool.core.json_data import plain
from onetool.core.threads import Outcome, Threads

SHORTEST_WAIT = 0.05  # seconds between two looks, while somebody is being waited for


class Deadline:
    """Calls back on the event loop when the time of a call is up, `grace` seconds after its deadline."""

    __slots__ = ("_context", "_grace", "_loop", "_on_due", "_timer")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, context: CallContext, on_due: Callable[[], None], grace: float = 0.0
    ) -> None:
        self._loop = loop
        self._context = context
        self._on_due = on_due
        self._grace = grace
        self._timer = loop.call_later(context.left() + grace, self._due)

    def cancel(self) -> None:
        self._timer.cancel()

    def _due(self) -> None:
        left = self._context.left() + self._grace
        if left <= 0 or self._context.pauses is None:  # timers may be early by a hair
            self._on_due()
        else:
            self._timer = self._loop.call_later(max(left, SHORTEST_WAIT), self._due)


@asynccontextmanager
async def within_deadline(context: CallContext, grace: float = 0.0) -> AsyncGenerator[None]:
    """A context manager that raises TimeoutError when the time of the call is up."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:
        deadline = Deadline(loop, context, lambda: limit.reschedule(loop.time()), grace)
        try:
            yield
        finally:
            deadline.cancel()


# Running handlers


OnOutcome = Callable[[Outcome], None]

GRACE = 0.5  # seconds beyond its deadline that a loop gets to tell that it is over
EAGER = sys.version_info >= (3, 12)  # whether a task can begin before the next turn of the loop
# Options of a task that runs a handler. It needs no factory that contains SystemExit: `_invoke` catches that.
_EAGER: Mapping[str, Any] = {"eager_start": True}
_LAZY: Mapping[str, Any] = {}


class HandlerRunner:
    """Runs handlers for an Executor."""

    def __init__(self) -> None:
        self._threads = Threads()
        self._abandoned: set[asyncio.Task[Any]] = set()  # a task that nobody holds may vanish in mid-flight

    async def run(self, context: CallContext) -> Outcome:
        """Run the handler and wait for it until the deadline."""
        ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        # Whoever waits may have been cancelled a moment ago: then nobody is to be told.
        handler_task = self.start(context, lambda outcome: None if ended.done() else ended.set_result(outcome), EAGER)
        if ended.done():
            return ended.result()
        try:
            return await ended
        except BaseException:  # nobody waits any more
            handler_task.abandon()
            raise

    def start(self, context: CallContext, on_outcome: OnOutcome, eager: bool = False) -> "HandlerTask":
        """Start the handler on the loop; report its outcome when it ends or its deadline passes.

        An `eager` one runs at once as far as it gets without waiting. If that is all of it, its outcome is reported
        before this returns: it needs no timer, and no turn of the loop.
        """
        loop = asyncio.get_running_loop()
        if loop.get_task_factory() is None:
            loop.set_task_factory(_contained_task)
        handler_task = HandlerTask(context, on_outcome, self._abandon)
        work = self._invoke(context, handler_task.finish)
        handler_task.task = asyncio.Task(work, loop=loop, **(_EAGER if eager else _LAZY))
        if not handler_task.task.done():
            handler_task.deadline = Deadline(loop, context, handler_task.too_late)
        return handler_task

    def run_blocking(self, context: CallContext) -> Outcome:
        """Run the handler and block the calling thread until it ends or its deadline passes."""
        if context.spec.is_async:
            return _on_the_loop(self.run(context), context)
        outcome = self._try_blocking(context)
        while context.retries and (pause := pause_before_retry(context, outcome)) is not None:
            time.sleep(pause)
            outcome = self._try_blocking(context)
        return outcome

    def _try_blocking(self, context: CallContext) -> Outcome:
        inside = copy_context()
        inside.run(current_call.set, context)
        try:
            handler = _plain_handler(context)
            value = self._threads.run_blocking(inside, handler, context.call.args, context.left)
        except TimeoutError as error:
            return (None, error) if context.left() > 0 else _too_late(context)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is an outcome
            return None, error
        return _on_the_loop(_awaited(value, context), context) if isawaitable(value) else (value, None)

    async def _invoke(self, context: CallContext, on_outcome: OnOutcome) -> None:
        """Run the handler within the call's context and catch everything that it raises."""
        current_call.set(context)
        outcome = await self._try(context)
        while context.retries and (pause := pause_before_retry(context, outcome)) is not None:
            try:
                await asyncio.sleep(pause)
            except asyncio.CancelledError as error:
                outcome = None, error
                break
            outcome = await self._try(context)
        # Told from here and not by the task's own end: that would take one more turn of the loop.
        on_outcome(outcome)

    async def _try(self, context: CallContext) -> Outcome:
        try:
            if context.spec.is_async:
                value = plain(await _handler(context)(**context.call.args))
            else:
                value = await self._threads.run(_plain_handler(context), context.call.args)
                value = plain(await value) if isawaitable(value) else value
        except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt of a handler included
            return None, error
        return value, None

    def _abandon(self, task: "asyncio.Task[Any]") -> None:
        """Cancel the task and detach it, so that asyncio.run does not wait for it at its end."""
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)
        task.cancel()
        asyncio.tasks._unregister_task(task)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportAttributeAccessIssue]
        task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue] - told as a time-out already


# Further tries of a handler that may be repeated, within the deadline of its call.


FIRST_PAUSE = 0.1  # seconds at most before the second try; twice as many before the next one …
LONGEST_PAUSE = 2.0  # … up to this
TRIES = "tries"  # in the meta of a result, where there was more than one
FINAL_REASONS = frozenset(("cancelled", "denied", "not_found", "rate_limited", "recursion", "too_large"))


def pause_before_retry(context: CallContext, outcome: Outcome) -> float | None:
    """Seconds until the next try, which is counted; None if there is none."""
    number = context.notes.get(TRIES, 1)
    if number > context.retries or not may_succeed_later(outcome[1]):
        return None
    pause = min(FIRST_PAUSE * 2 ** (number - 1), LONGEST_PAUSE) * random.uniform(0.5, 1)  # noqa: S311 - no secret
    if pause >= context.left():
        return None
    context.notes[TRIES] = number + 1
    return pause


def may_succeed_later(error: BaseException | None) -> bool:
    """Whether another try may mend it. `again` is the error's own word for that, where it has one."""
    if not isinstance(error, Exception) or isinstance(error, BadArguments | RefusedArguments):
        return False
    if isinstance(error, ToolFailure) and error.reason in FINAL_REASONS:
        return False
    return bool(getattr(error, "again", True))


class HandlerTask:
    """A running handler. Its outcome is reported once: by the handler, its deadline, or a cancellation."""

    __slots__ = ("_abandon", "_context", "_on_outcome", "deadline", "task")

    def __init__(
        self, context: CallContext, on_outcome: OnOutcome, abandon: Callable[["asyncio.Task[Any]"], None]
    ) -> None:
        self._context = context
        self._on_outcome: OnOutcome | None = on_outcome
        self._abandon = abandon
        self.task: asyncio.Task[Any] | None = None
        self.deadline: Deadline | None = None

    def finish(self, outcome: Outcome) -> None:
        on_outcome = self._on_outcome
        self.abandon(has_ended=True)
        if on_outcome is not None:
            on_outcome(outcome)

    def too_late(self) -> None:
        on_outcome = self._on_outcome
        self.abandon()
        if on_outcome is not None:
            on_outcome(_too_late(self._context))

    def cancel(self) -> None:
        on_outcome = self._on_outcome
        self.abandon()
        if on_outcome is not None:
            on_outcome((None, ToolFailure("cancelled by the caller", reason="cancelled")))

    def abandon(self, has_ended: bool = False) -> None:
        """Report nothing from now on; a handler that is still running is abandoned."""
        self._on_outcome = None
        deadline, task = self.deadline, self.task
        self.deadline = self.task = None  # they hold us, and so nobody has to look for cycles
        if deadline is not None:
            deadline.cancel()
        if not has_ended and task is not None and not task.done():
            self._abandon(task)


def _handler(context: CallContext) -> Any:
    if context.spec.handler is None:
        raise ToolFailure(f"{context.spec.name} has no handler: it can be described but not run")
    return context.spec.handler


def _on_the_loop(work: Coroutine[Any, Any, Outcome], context: CallContext) -> Outcome:
    """Run an async handler on the event loop of the outermost call, where what handlers share lives."""
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


def _plain_handler(context: CallContext) -> Callable[..., Any]:
    """The handler, with its value made plain while still in its thread: a large one must not hold up the loop."""
    handler = _handler(context)

    def run(**args: Any) -> Any:
        value = handler(**args)
        return value if isawaitable(value) else plain(value)

    return run


def _contained_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> "asyncio.Task[Any]":
    """A task factory that contains SystemExit, which would otherwise end the loop and the process."""
    if current_call.get() is not None and asyncio.iscoroutine(work):
        work = _contained(work)
    return asyncio.Task(work, loop=loop, **options)


async def _contained(work: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise ToolFailure(describe_error(error)) from error


async def _awaited(value: Awaitable[Any], context: CallContext) -> Outcome:
    try:
        async with within_deadline(context):
            return plain(await value), None
    except TimeoutError as error:
        return (None, error) if context.left() > 0 else _too_late(context)
    except BaseException as error:  # noqa: BLE001 - whatever a handler raises is an outcome
        return None, error


def _too_late(context: CallContext) -> Outcome:
    message = f"{context.spec.name} gave no answer within {context.seconds:g} s"
    # Whoever set the limit for this call knows what to do about it.
    more = "who defines it can give it more: @tool(timeout=…), or timeout in its definition"
    return None, ToolFailure(message, reason="timeout", hints=[] if context.call.own_timeout is not None else [more])
