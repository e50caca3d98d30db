"""The sandbox: Monty's worker processes, kept warm, one for each run at a time.

The only module that starts processes for `run`. A worker has an empty environment, no files and no network; it can
compute, print, and ask us for a tool. It is killed when a run is stopped, and after every limit that was hit.
"""

import os
import signal
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import inf
from threading import Lock
from typing import Any

from pydantic_monty import Monty, MontySession, MontyTypingError

from onetool.script.limits import MEGABYTE, Limits
from onetool.script.places import Span
from onetool.services.watch import Watch

CHECKOUTS = 1000  # runs after which a worker is replaced: whatever it kept, it kept long enough
UNBOUNDED = 2**31 - 1  # questions are counted by whoever answers them: of each piece of code, not of a whole session


class Sandbox:
    """A pool of workers. Starts with the first run, ends with `close`."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = Lock()
        self._pool: Monty | None = None
        self._busy = 0
        self._closing = False
        self._watch = Watch()

    @contextmanager
    def worker(self, **more: Any) -> "Iterator[Worker]":
        """A fresh session in a worker of its own, which nothing that ran before has touched."""
        with self._lock:
            self._busy += 1
        try:
            with self._checked_out(**more) as session:
                worker = Worker(session)
                self._watch.over(worker.pid)
                try:
                    yield worker
                finally:
                    worker.release()
        finally:
            self._left()

    def _checked_out(self, **more: Any) -> MontySession:
        limits = self._limits
        return self._started().checkout(
            limits={
                "max_feed_duration_secs": limits.seconds,
                "max_memory": limits.memory_mb * MEGABYTE,
                "max_recursion_depth": limits.depth,
                "max_suspensions": UNBOUNDED,
            },
            os_policy={"sleep_system_max": inf},  # it ends with our deadline, and sleeps side by side don't add up
            print_flush_interval=0.1,
            **more,
        )

    def _started(self) -> Monty:
        with self._lock:
            if self._pool is None:
                # No deadline and no queue of its own: ours also count the time of tool calls, and are fair.
                pool = Monty(
                    min_processes=1,
                    max_processes=1024,
                    max_checkouts_per_worker=CHECKOUTS,
                    feed_duration_limit_grace=None,
                    turn_duration_limit_grace=None,
                )
                self._pool = pool.__enter__()
            return self._pool

    def _left(self) -> None:
        with self._lock:
            self._busy -= 1
        if self._closing:
            self.close()

    def close(self) -> None:
        """End the workers; where some are busy, when the last of them is done."""
        with self._lock:
            self._closing = True
            if self._busy:
                return
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.__exit__(None, None, None)
        self._watch.close()


class Worker:
    """One worker process while a run has it."""

    def __init__(self, session: MontySession) -> None:
        self._session = session
        self._lock = Lock()
        self.futures: dict[str, Collection[Span]] = {}  # of each feed, by the name that the sandbox gives it
        self.pid = session.worker_pid  # asked for now: while code runs it is not told
        self._process: int | None = self.pid

    def start(
        self, code: str, inputs: Mapping[str, Any], printed: Any, futures: Collection[Span] = (), checked: bool = True
    ) -> Any:
        """Feed code; what comes back is a question of the code, or its end. `checked`: by its type checker."""
        feed = self.next_feed
        self.futures[feed] = futures
        try:
            return self._session.feed_start(
                code, inputs=dict(inputs), print_callback=printed, skip_type_check=not checked
            )
        except MontyTypingError:
            del self.futures[feed]  # what was refused is not counted
            raise

    @property
    def next_feed(self) -> str:
        """What the sandbox will call the next piece of code."""
        return f"<python-input-{len(self.futures)}>"

    def kill(self) -> None:
        """End the process now, whatever it does. From any thread, any number of times."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)

    @property
    def is_gone(self) -> bool:
        return self._process is None

    def release(self) -> None:
        """The process is not ours any more: from here on it may serve another run."""
        with self._lock:
            self._process = None
