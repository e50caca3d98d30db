"""WorkerPool: worker processes kept warm, and WorkerSession, the exclusive use of one of them.

A worker has an empty environment, no files and no network: it can compute, print, and ask for a tool. A worker that is
given back is reset in the background and used again only when the reset is done.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple

from onetool.sandbox import (
    CodeError,
    CodeSyntaxError,
    ProtocolError,
    SandboxError,
    TypeCheckError,
    WorkerError,
    WorkerStartError,
    messages,
)
from onetool.sandbox.messages import (
    RESET,
    Answer,
    Complete,
    FunctionCall,
    Ok,
    OsCall,
    Print,
    WorkerLimits,
    WorkerQuestion,
    configure,
    read_event,
)
from onetool.sandbox.process import WorkerProcess, binary
from onetool.services.child_reaper import ChildReaper

OnPrint = Callable[[str, str], None]
"""Called with a stream's name and what code has printed there."""


class WorkerSession:
    """`feed` code, then answer its questions by `resume`, until one is Complete, or an exception comes.

    One thread at a time feeds and answers; any thread may `kill`.
    """

    def __init__(self, worker: WorkerProcess) -> None:
        self._worker = worker
        self._lock = Lock()
        self._released = False
        self._printed: OnPrint = lambda _stream, _text: None
        self.is_idle = True  # no code is under way
        self.pid = worker.pid
        self.futures: dict[str, Collection[tuple[int, int]]] = {}  # of each feed: the calls that get a future, by place

    @property
    def next_feed(self) -> str:
        """What the worker will call the next piece of code in its tracebacks."""
        return f"<python-input-{len(self.futures)}>"

    def feed(
        self,
        code: str,
        inputs: Mapping[str, Any],
        printed: OnPrint,
        futures: Collection[tuple[int, int]] = (),
        check_types: bool = True,
    ) -> WorkerQuestion:
        """Run code with these names bound. TypeCheckError where a session that checks types refuses it."""
        self._printed = printed
        name = self.next_feed
        self.futures[name] = futures
        try:
            return self._exchange(messages.feed(code, inputs, check_types))
        except (TypeCheckError, CodeSyntaxError) as error:
            if isinstance(error, TypeCheckError) or all(line.filename != name for line in error.trace):
                del self.futures[name]  # the worker does not count what it refused before it was parsed
            raise

    def resume(self, question: FunctionCall | OsCall, answer: Answer) -> WorkerQuestion:
        return self._exchange(messages.resume_call(question.call_id, answer))

    def resume_name(self, value: Any) -> WorkerQuestion:
        """None: there is nothing of that name."""
        return self._exchange(messages.NAME_UNDEFINED if value is None else messages.resume_name(value))

    def resume_futures(self, answers: Mapping[int, Answer]) -> WorkerQuestion:
        return self._exchange(messages.resume_futures(answers))

    def kill(self) -> None:
        """End the worker now, unless it was given back: then it may serve another session."""
        with self._lock:
            if not self._released:
                self._worker.kill()

    @property
    def has_ended(self) -> bool:
        return self._released or self._worker.has_ended

    def release(self) -> None:
        with self._lock:
            self._released = True

    def _exchange(self, request: bytes) -> WorkerQuestion:
        """Send a request and return the next event."""
        worker = self._worker
        if self._released:
            raise WorkerError("the session is over")
        self.is_idle = False
        worker.send(request)
        if worker.unacknowledged:
            worker.acknowledged()
        try:
            event = read_event(worker.receive())
            while isinstance(event, Print):
                for stream, text in event.segments:
                    self._printed(stream, text)
                event = read_event(worker.receive())
        except (CodeError, TypeCheckError):
            self.is_idle = True
            raise
        if isinstance(event, Ok):
            raise ProtocolError("Ok, where an answer was wanted")
        self.is_idle = isinstance(event, Complete)
        return event


# Workers


MOST_SESSIONS = 1000  # after which a worker is replaced: whatever it kept, it kept long enough
START_SECONDS = 0.005  # about what starting a worker takes; no longer is another one's reset waited for
RESET_SECONDS = 10.0  # after which a worker that is not through with its reset is ended


class IdleWorker(NamedTuple):
    """A worker that was given back, and when."""

    worker: WorkerProcess
    since: float


class WorkerPool:
    """Worker processes for sessions. They start with the first session and end with `close`."""

    def __init__(self, limits: WorkerLimits, most_frame_bytes: int) -> None:
        self._limits = limits
        self._usual = configure(limits)
        self._most_frame_bytes = most_frame_bytes
        self._lock = Lock()
        self._idle: list[IdleWorker] = []  # the last was given back last
        self._busy = 0
        self._closing = False
        self._path = ""
        self._reaper = ChildReaper()

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
                self._release(worker, usable)
        finally:
            self._close_if_idle()

    def close(self) -> None:
        """End the workers; where some are busy, when the last of them is done."""
        with self._lock:
            self._closing = True
            if self._busy:
                return
            idle, self._idle = self._idle, []
        for worker, _ in idle:
            worker.close()
        self._reaper.close()

    def _worker(self) -> WorkerProcess:
        """One that is reset, else a new one. Only the one that was given back last is waited for, and not for long."""
        resetting: list[IdleWorker] = []
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

    def _last_idle(self) -> IdleWorker | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _started(self) -> WorkerProcess:
        try:
            self._path = self._path or binary()
            worker = WorkerProcess(self._path, self._most_frame_bytes)
        except OSError as error:
            raise WorkerStartError(f"the sandbox does not start: {error}") from None
        self._reaper.add(worker.pid)
        try:
            worker.send_ahead(self._usual)
        except SandboxError:
            self._end(worker)
            raise
        return worker

    def _release(self, worker: WorkerProcess, usable: bool) -> None:
        worker.sessions += 1
        if usable and worker.sessions < MOST_SESSIONS and not worker.has_unread and not worker.has_ended:
            with suppress(SandboxError):
                worker.send_ahead(RESET, self._usual)
                with self._lock:
                    self._idle.append(IdleWorker(worker, monotonic()))
                return
        self._end(worker)

    def _end(self, worker: WorkerProcess) -> None:
        self._reaper.forget(worker.pid)  # before its number can be another one's
        worker.close()

    def _close_if_idle(self) -> None:
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
