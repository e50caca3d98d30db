"""Threads for handlers that block.

Not a ThreadPoolExecutor: its threads are joined when the process ends, so that one stuck tool would keep the whole
process from ending, and its size is fixed, so that a few stuck tools would stop all others. These are daemons, start
when none is idle, and leave when there is nothing to do.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX, Lock, Thread
from typing import Any

MOST_THREADS = 256
IDLE_SECONDS = 30.0

Job = Callable[[], None]
Outcome = tuple[Any, BaseException | None]  # a pair, since a future refuses to hold StopIteration as its exception


class Threads:
    """`await threads.run(function, args)`: the value, or what it raised. Stopping to wait leaves the thread behind."""

    def __init__(self, most: int = MOST_THREADS) -> None:
        self._most = most
        self._lock = Lock()
        self._idle: list[SimpleQueue[Job]] = []
        self._waiting: deque[Job] = deque()
        self._count = 0

    async def run(self, function: Callable[..., Any], args: Mapping[str, Any]) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        context = copy_context()

        def job() -> None:
            if not future.cancelled():  # else nobody waits any more, and it has not begun
                _hand_over(loop, future, _outcome(context, function, args))

        self._submit(job)
        return _value(await future)

    def run_blocking(
        self, context: Context, function: Callable[..., Any], args: Mapping[str, Any], seconds: float
    ) -> Any:
        """The same for a caller that is itself in a thread; TimeoutError when it takes longer than that.

        Never kept waiting for a free thread: its caller may be holding the last one.
        """
        box: SimpleQueue[Outcome] = SimpleQueue()
        self._submit(lambda: box.put(_outcome(context, function, args)), at_once=True)
        try:
            outcome = box.get(timeout=min(max(seconds, 0), TIMEOUT_MAX))
        except Empty:
            raise TimeoutError from None
        return _value(outcome)

    def _submit(self, job: Job, at_once: bool = False) -> None:
        with self._lock:
            if self._idle:
                self._idle.pop().put(job)
            elif at_once or self._count < self._most:
                self._count += 1
                inbox: SimpleQueue[Job] = SimpleQueue()
                inbox.put(job)
                Thread(target=self._work, args=(inbox,), name="onetool-handler", daemon=True).start()
            else:
                self._waiting.append(job)

    def _work(self, inbox: SimpleQueue[Job]) -> None:
        job: Job | None = inbox.get()
        while job is not None:
            job()
            job = self._next_job(inbox)

    def _next_job(self, inbox: SimpleQueue[Job]) -> Job | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._idle.append(inbox)
        try:
            return inbox.get(timeout=IDLE_SECONDS)
        except Empty:
            return self._leave(inbox)

    def _leave(self, inbox: SimpleQueue[Job]) -> Job | None:
        with self._lock:
            if inbox in self._idle:
                self._idle.remove(inbox)
                self._count -= 1
                return None
        return inbox.get()  # a job came in at the last moment


def _outcome(context: Context, function: Callable[..., Any], args: Mapping[str, Any]) -> Outcome:
    try:
        return context.run(function, **args), None
    except BaseException as error:  # noqa: BLE001 - a handler's SystemExit must not end this thread silently
        return None, error


def _value(outcome: Outcome) -> Any:
    value, error = outcome
    if error is not None:
        raise error
    return value


def _hand_over(loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Outcome]", outcome: Outcome) -> None:
    def settle() -> None:
        if not future.done():
            future.set_result(outcome)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        return  # the loop has closed: nobody waits
