"""Workers, kept warm, each for one session at a time. The only module that starts processes for `run`.

A worker has an empty environment, no files and no network: it can compute, print, and ask us for a tool. What is given
back is reset while nobody waits, and is handed on only when that is done.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from time import monotonic
from typing import NamedTuple

from onetool.sandbox.errors import SandboxError, WorkerStartError
from onetool.sandbox.messages import RESET, WorkerLimits, configure
from onetool.sandbox.process import WorkerProcess, binary
from onetool.sandbox.session import WorkerSession
from onetool.services.watch import Watch

MOST_SESSIONS = 1000  # after which a worker is replaced: whatever it kept, it kept long enough
START_SECONDS = 0.005  # about what starting a worker takes; no longer is another one's reset waited for
RESET_SECONDS = 10.0  # after which a worker that is not through with its reset is ended


class Idle(NamedTuple):
    """A worker that was given back, and when."""

    worker: WorkerProcess
    since: float


class Pool:
    """Starts with the first session, ends with `close`."""

    def __init__(self, limits: WorkerLimits, most_frame_bytes: int) -> None:
        self._limits = limits
        self._usual = configure(limits)
        self._most_frame_bytes = most_frame_bytes
        self._lock = Lock()
        self._idle: list[Idle] = []  # the last was given back last
        self._busy = 0
        self._closing = False
        self._path = ""
        self._watch = Watch()

    @contextmanager
    def session(self, stubs: str | None = None) -> Iterator[WorkerSession]:
        """A session in a worker of its own, in which nothing is left of earlier ones. `stubs` turn type checks on."""
        with self._lock:
            self._busy += 1
        try:
            worker, usable = self._worker(), False
            try:
                if stubs is not None:
                    worker.send_ahead(RESET, configure(self._limits, stubs))
                session = WorkerSession(worker)
                try:
                    yield session
                finally:
                    session.release()
                    usable = session.is_idle
            finally:
                self._give_back(worker, usable)
        finally:
            self._left()

    def close(self) -> None:
        """End the workers; where some are busy, when the last of them is done."""
        with self._lock:
            self._closing = True
            if self._busy:
                return
            idle, self._idle = self._idle, []
        for worker, _ in idle:
            worker.close()
        self._watch.close()

    def _worker(self) -> WorkerProcess:
        """One that is reset, else a new one. Only the one that was given back last is waited for, and not for long."""
        resetting: list[Idle] = []
        seconds = START_SECONDS
        found: WorkerProcess | None = None
        while found is None and (idle := self._last_idle()) is not None:
            ready = _is_reset(idle.worker, seconds)
            if ready:
                found = idle.worker
            elif ready is None or monotonic() - idle.since > RESET_SECONDS:
                self._end(idle.worker)
            else:
                resetting.append(idle)
            seconds = 0.0
        with self._lock:
            self._idle[:0] = reversed(resetting)
        return found or self._started()

    def _last_idle(self) -> Idle | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _started(self) -> WorkerProcess:
        try:
            self._path = self._path or binary()
            worker = WorkerProcess(self._path, self._most_frame_bytes)
        except OSError as error:
            raise WorkerStartError(f"the sandbox does not start: {error}") from None
        self._watch.over(worker.pid)
        try:
            worker.send_ahead(self._usual)
        except SandboxError:
            self._end(worker)
            raise
        return worker

    def _give_back(self, worker: WorkerProcess, usable: bool) -> None:
        worker.sessions += 1
        if usable and worker.sessions < MOST_SESSIONS and not worker.has_unread and not worker.is_gone:
            with suppress(SandboxError):
                worker.send_ahead(RESET, self._usual)
                with self._lock:
                    self._idle.append(Idle(worker, monotonic()))
                return
        self._end(worker)

    def _end(self, worker: WorkerProcess) -> None:
        self._watch.forget(worker.pid)  # before its number can be another one's
        worker.close()

    def _left(self) -> None:
        with self._lock:
            self._busy -= 1
        if self._closing:
            self.close()


def _is_reset(worker: WorkerProcess, seconds: float) -> bool | None:
    """Whether its reset is done, after so long at most. None where it has ended, or answers nonsense."""
    try:
        return worker.acknowledged(seconds)
    except SandboxError:
        return None
