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
Outcome = tuple[Any, BaseException | None]
"""The value, or what was raised instead: a pair, since a future refuses to hold StopIteration as its exception."""


class _Worker:
    """One thread and what it does."""

    def __init__(self) -> None:
        self.inbox: SimpleQueue[Job] = SimpleQueue()
        self.lost = False  # nobody waits for what it does any more: it ends when it has done it


class Threads:
    """`await threads.run(function, args)`: the value, or what it raised.

    Stopping to wait leaves the thread behind: it counts no more, so that tools that hang do not use up the others'
    threads, and it ends by itself when its tool does.
    """

    def __init__(self, most: int = MOST_THREADS) -> None:
        self._most = most
        self._lock = Lock()
        self._idle: list[_Worker] = []
        self._waiting: deque[Job] = deque()
        self._busy: dict[int, _Worker] = {}
        self._count = 0

    async def run(self, function: Callable[..., Any], args: Mapping[str, Any]) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        context = copy_context()

        def job() -> None:
            _hand_over(loop, future, _outcome(context, function, args))

        self._submit(job)
        try:
            return _value(await future)
        except asyncio.CancelledError:
            self._leave_behind(job)
            raise

    def run_blocking(
        self, context: Context, function: Callable[..., Any], args: Mapping[str, Any], left: Callable[[], float]
    ) -> Any:
        """The same for a caller that is itself in a thread; TimeoutError when there are no seconds left.

        Never kept waiting for a free thread: its caller may be holding the last one.
        """
        box: SimpleQueue[Outcome] = SimpleQueue()

        def job() -> None:
            box.put(_outcome(context, function, args))

        self._submit(job, at_once=True)
        while (seconds := left()) > 0:
            try:
                return _value(box.get(timeout=min(seconds, TIMEOUT_MAX)))
            except Empty:
                continue  # there may be more time by now
        self._leave_behind(job)
        raise TimeoutError

    def _submit(self, job: Job, at_once: bool = False) -> None:
        with self._lock:
            if self._idle:
                self._hand_to(self._idle.pop(), job)
            elif at_once or self._count < self._most:
                self._start(_Worker(), job)
            else:
                self._waiting.append(job)

    def _start(self, worker: _Worker, job: Job) -> None:
        self._hand_to(worker, job)
        try:
            Thread(target=self._work, args=(worker,), name="onetool-handler", daemon=True).start()
        except RuntimeError:  # the system has no thread left for us
            self._busy.pop(id(job))
            raise
        self._count += 1

    def _hand_to(self, worker: _Worker, job: Job) -> None:
        self._busy[id(job)] = worker
        worker.inbox.put(job)

    def _leave_behind(self, job: Job) -> None:
        with self._lock:
            if job in self._waiting:
                self._waiting.remove(job)
            worker = self._busy.pop(id(job), None)
            if worker is None:
                return
            worker.lost = True
            self._count -= 1
            if self._waiting:  # its place is free for whoever waits
                self._start(_Worker(), self._waiting.popleft())

    def _work(self, worker: _Worker) -> None:
        job: Job | None = worker.inbox.get()
        while job is not None:
            job()
            job = self._next_job(worker, job)

    def _next_job(self, worker: _Worker, done: Job) -> Job | None:
        with self._lock:
            self._busy.pop(id(done), None)
            if worker.lost:
                return None
            if self._waiting:
                job = self._waiting.popleft()
                self._busy[id(job)] = worker
                return job
            self._idle.append(worker)
        try:
            return worker.inbox.get(timeout=IDLE_SECONDS)
        except Empty:
            return self._retire(worker)

    def _retire(self, worker: _Worker) -> Job | None:
        with self._lock:
            if worker in self._idle:
                self._idle.remove(worker)
                self._count -= 1
                return None
        return worker.inbox.get()  # a job came in at the last moment


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
