"""Threads for handlers that block, and an event loop in a thread for callers without a usable loop.

This is not a ThreadPoolExecutor: its threads are joined when the process ends, so that one stuck tool would keep the
process alive, and its size is fixed, so that a few stuck tools would stop all others. These threads are daemons, start
when none is idle, and end when there is nothing to do.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context, copy_context
from math import inf
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX, Lock, RLock, Thread
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from onetool.core.fair_shares import FairShares
from onetool.core.principal import current_principal

T = TypeVar("T")
MAX_THREADS = 256
IDLE_SECONDS = 30.0
MIN_WAIT = 0.05  # minimum seconds between checks of a deadline that moves during pauses

Job = Callable[[], None]
Outcome = tuple[Any, BaseException | None]
"""The value and the exception. A pair, because futures don't accept StopIteration as their exception."""


class ThreadJob(NamedTuple):
    """A function to run within a context, with a time limit (`left`).

    Awaited by coroutines in threads without an event loop: `run_blocking` and `Threads.drive` send the outcome.
    """

    threads: "Threads"
    context: Context
    function: Callable[..., Any]
    args: Mapping[str, Any]
    left: Callable[[], float] = lambda: inf

    def __await__(self) -> "Generator[ThreadJob, Outcome, Outcome]":
        return (yield self)

    def run(self) -> Outcome:
        try:
            return self.context.run(self.function, **self.args), None
        except BaseException as error:  # noqa: BLE001 - a handler's SystemExit must not end this thread silently
            return None, error


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in this thread, which has no event loop. Its jobs run in other threads."""
    outcome = None
    try:
        while isinstance(job := work.send(outcome), ThreadJob):
            outcome = job.threads.outcome_blocking(job)
    except StopIteration as end:
        return end.value
    work.close()
    raise RuntimeError("can't wait for an event loop in a thread without one")


class _Worker:
    def __init__(self) -> None:
        self.inbox: SimpleQueue[Job] = SimpleQueue()
        self.caller = ""  # of its current job
        self.lost = False  # abandoned: the thread ends after its current job


class Threads:
    """A pool of threads: `await threads.run(function, args)` returns the value or raises. Callers have fair shares.

    After a timeout, the thread no longer counts, so that tools that hang don't use up the pool. The thread ends when
    the tool does.
    """

    def __init__(self, most: int = MAX_THREADS) -> None:
        self._lock = Lock()
        self._idle: list[_Worker] = []
        self._busy: dict[int, _Worker] = {}
        self._shares: FairShares[Job] = FairShares(most)

    async def run(self, function: Callable[..., Any], args: Mapping[str, Any]) -> Any:
        value, error = await self.outcome(ThreadJob(self, copy_context(), function, args))
        if error is not None:
            raise error
        return value

    async def outcome(self, job: ThreadJob) -> Outcome:
        """Run the job in a thread. The outcome is a TimeoutError when no time is left."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()

        def settle(outcome: Outcome) -> None:
            if not future.done():
                future.set_result(outcome)

        def turn() -> None:
            outcome = job.run()
            try:  # noqa: SIM105 - for every call of a tool that blocks
                loop.call_soon_threadsafe(settle, outcome)
            except RuntimeError:  # the loop has closed: nobody waits
                pass

        try:
            self.submit(turn)
        except RuntimeError as error:  # the system has no thread left for us
            return None, error
        seconds = job.left()
        timer = None if seconds == inf else loop.call_later(seconds, self._look, loop, future, turn, job.left)
        try:
            return await future
        except asyncio.CancelledError:
            self.abandon(turn)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _look(
        self, loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Outcome]", job: Job, left: Callable[[], float]
    ) -> None:
        """Stop waiting for a job after its deadline, unless the deadline has moved."""
        if future.done():
            return
        if (seconds := left()) > 0:
            loop.call_later(max(seconds, MIN_WAIT), self._look, loop, future, job, left)
        else:
            self.abandon(job)
            future.set_result((None, TimeoutError()))

    async def drive(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and the jobs that it awaits in a thread. If a job times out, the coroutine continues in
        another thread.
        """
        driven = _DrivenWork(self, work)
        self.submit(driven)
        try:
            value, error = await driven.ended
        except asyncio.CancelledError:
            if not self.abandon(driven):
                work.close()  # not started
            raise
        if error is not None:
            raise error
        return value

    def outcome_blocking(self, job: ThreadJob) -> Outcome:
        """Run the job in a thread for a caller that is itself in a thread.

        Never waits for a free thread, because the caller may be using the last one.
        """
        box: SimpleQueue[Outcome] = SimpleQueue()

        def turn() -> None:
            box.put(job.run())

        try:
            self.submit(turn, at_once=True)
        except RuntimeError as error:  # the system has no thread left for us
            return None, error
        while (seconds := job.left()) > 0:
            try:
                return box.get(timeout=min(seconds, TIMEOUT_MAX))
            except Empty:
                continue  # the deadline may have moved
        self.abandon(turn)
        return None, TimeoutError()

    def submit(self, job: Job, at_once: bool = False) -> None:
        caller = current_principal.get().caller
        with self._lock:
            if at_once:
                self._shares.held[caller] += 1
            elif not self._shares.take(caller):
                self._shares.wait(caller, job)
                return
            self._start(caller, job)

    def _start(self, caller: str, job: Job) -> None:
        """Start a job, which has its place, in an idle or a new thread."""
        is_new = not self._idle
        worker = self._busy[id(job)] = _Worker() if is_new else self._idle.pop()
        worker.caller = caller
        worker.inbox.put(job)
        try:
            if is_new:
                Thread(target=self._work, args=(worker,), name="onetool-handler", daemon=True).start()
        except RuntimeError:  # the system has no thread left for us
            self._busy.pop(id(job))
            self._shares.give_back(caller)
            raise

    def abandon(self, job: Job) -> bool:
        """Stop waiting for a job. Return False if the job had not started and was removed."""
        with self._lock:
            if any(self._shares.stop_waiting(caller, job) for caller in [*self._shares.waiting]):
                return False
            worker = self._busy.pop(id(job), None)
            if worker is None:
                return True
            worker.lost = True
            self._shares.give_back(worker.caller)
            if (found := self._shares.next()) is not None:  # start the next job in its place
                try:
                    self._start(*found)
                except RuntimeError:  # no thread available: the next idle worker takes the job
                    self._shares.wait(*found)
        return True

    def _work(self, worker: _Worker) -> None:
        job: Job | None = worker.inbox.get()
        while job is not None:
            job()
            job = self._next_job(worker, job)

    def _next_job(self, worker: _Worker, done: Job) -> Job | None:
        with self._lock:
            if worker.lost:
                return None
            self._busy.pop(id(done), None)
            self._shares.give_back(worker.caller)
            if (found := self._shares.next()) is not None:
                worker.caller, job = found
                self._busy[id(job)] = worker
                return job
            self._idle.append(worker)
        try:
            return worker.inbox.get(timeout=IDLE_SECONDS)
        except Empty:
            with self._lock:
                if worker in self._idle:
                    self._idle.remove(worker)
                    return None
        return worker.inbox.get()  # a job came in at the last moment


class _DrivenWork:
    """A coroutine in a thread. If a job exceeds its deadline, the coroutine continues in another thread."""

    def __init__(self, threads: Threads, work: Coroutine[Any, Any, Any]) -> None:
        self._threads = threads
        self._work = work
        self._context = copy_context()
        self._loop = asyncio.get_running_loop()
        self._lock = Lock()
        self._job: ThreadJob | None = None  # running in the coroutine's thread
        self._look_at = inf  # when the loop checks the job's deadline
        self._timer: asyncio.TimerHandle | None = None
        self.ended: asyncio.Future[Outcome] = self._loop.create_future()
        self._outcome: Outcome | None = None  # of the job that the coroutine awaits

    def __call__(self) -> None:
        """Run the coroutine in the current thread until it ends or a job times out."""
        outcome = self._outcome
        try:
            while True:
                self._job = job = self._context.run(self._work.send, outcome)
                seconds = job.left()
                if (until := monotonic() + seconds) < self._look_at:  # rare: most jobs have the same time limit
                    self._look_at = until
                    self._tell_loop(self._look_in, seconds)
                outcome = job.run()
                with self._lock:
                    if self._job is not job:  # timed out
                        return
                    self._job = None
        except StopIteration as end:
            self._tell_loop(self._end, (end.value, None))
        except BaseException as error:  # noqa: BLE001 - for whoever waits
            self._tell_loop(self._end, (None, error))

    def _tell_loop(self, what: Callable[[Any], None], value: Any) -> None:
        with suppress(RuntimeError):  # the loop has closed: nobody waits
            self._loop.call_soon_threadsafe(what, value)

    def _look_in(self, seconds: float) -> None:
        self._look_at = monotonic() + seconds
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """Continue without the job after its deadline, unless the deadline has moved."""
        self._look_at = inf  # jobs that start from now on schedule a new check
        with self._lock:
            job = self._job
            seconds = 0.0 if job is None else job.left()
            if seconds <= 0:
                self._job = None
        if seconds > 0:
            self._look_in(max(seconds, MIN_WAIT))
        elif job is not None:
            self._threads.abandon(self)
            self._outcome = None, TimeoutError()
            try:
                self._threads.submit(self, at_once=True)
            except RuntimeError as error:  # the system has no thread left for us
                self._end((None, error))

    def _end(self, outcome: Outcome) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.ended.done():
            self.ended.set_result(outcome)


# An event loop in its own thread

CLOSE_SECONDS = 1.0  # seconds for cancelled tasks to end


async def _all_cancelled() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    late = (await asyncio.wait(others, timeout=CLOSE_SECONDS))[1] if others else ()
    if not late:  # generators of tasks that ignore cancellation can't be closed
        await asyncio.get_running_loop().shutdown_asyncgens()


def run_later(seconds: float, work: Callable[[], object]) -> None:
    """Run a function in the running loop's executor after a delay, unless the loop has ended."""
    loop = asyncio.get_running_loop()

    def begin() -> None:
        with suppress(RuntimeError):  # the executor is closed: the loop is ending
            loop.run_in_executor(None, work)

    loop.call_later(seconds, begin)


class LoopThread:
    """An event loop in another thread, started on first use."""

    def __init__(self, name: str = "onetool-loop") -> None:
        self._name = name
        self._lock = RLock()  # a finalizer may call `close`
        self._loop: asyncio.AbstractEventLoop | None = None

    def run_sync(self, work: Coroutine[Any, Any, T]) -> T:
        if asyncio._get_running_loop() is not None and asyncio._get_running_loop() is self._loop:  # pyright: ignore[reportPrivateUsage]
            work.close()
            raise RuntimeError("can't block on the loop that is running this code: await the async method instead")
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:  # Ctrl-C reaches only the waiting thread
            future.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        with self._lock:  # `close` ends everything that was submitted before
            return asyncio.run_coroutine_threadsafe(work, self._started())

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine on the loop and await it on the caller's loop. Cancellation works in both directions."""
        here = asyncio.get_running_loop()
        done: asyncio.Future[T] = here.create_future()
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            tasks.append(there.create_task(work))
            tasks[0].add_done_callback(ended)

        def ended(task: "asyncio.Task[T]") -> None:
            _ = task.cancelled() or task.exception()  # else asyncio logs it if nobody is waiting
            with suppress(RuntimeError):  # the caller's loop has ended
                here.call_soon_threadsafe(settle, task)

        def settle(task: "asyncio.Task[T]") -> None:
            if task.cancelled():
                done.cancel()
            elif (error := task.exception()) is not None:
                _ = done.done() or done.set_exception(error)
            elif not done.done():
                done.set_result(task.result())

        # Faster than run_coroutine_threadsafe with wrap_future, which needs two futures and their locks.
        try:
            with self._lock:
                there = self._started()
                there.call_soon_threadsafe(begin)
        except RuntimeError:  # the loop or the interpreter has ended
            work.close()
            raise
        try:
            return await done
        except asyncio.CancelledError:
            with suppress(RuntimeError):
                there.call_soon_threadsafe(lambda: tasks[0].cancel())
            raise

    def close(self) -> None:
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            asyncio.run_coroutine_threadsafe(_all_cancelled(), loop).result()
            loop.call_soon_threadsafe(loop.stop)

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            Thread(target=self._serve, args=(self._loop,), name=self._name, daemon=True).start()
        return self._loop

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        loop.run_until_complete(_all_cancelled())  # threads may have started tasks since `close`
        loop.close()
