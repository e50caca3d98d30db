"""WorkerPool: worker processes kept warm, and WorkerSession, the exclusive use of a worker.

A worker has an empty environment, no files and no network: it can compute, print, and call tools. One thread at a
time uses its two pipes; any thread may kill it. A released worker is reset in the background and used again only when
the reset is done.
"""

import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple

from onetool.core.system import enlarge_pipes
from onetool.sandbox import (
    CodeError,
    CodeSyntaxError,
    MessageTooLargeError,
    OutOfMemoryError,
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
from onetool.services.child_reaper import ChildReaper

# One worker process

OUT_OF_MEMORY = 65  # exit status of a worker that ran out of memory
LARGE = 64 * 1024  # bytes of a message
PIPE_BYTES = 1024 * 1024
HEADER = 4  # bytes with the length of the message that follows
END_SECONDS = 1.0  # for a worker to end by itself after its pipes were closed or it was killed
CONTENT = {0x12: "the input of a tool", 0x32: "the result"}  # content of a message by its first byte


def binary() -> str:
    """Return the path of the program that `pydantic-monty-runtime` installs. Raise FileNotFoundError without it."""
    name = "monty"
    if given := os.environ.get("MONTY_BIN"):
        return given
    # Usually the program is beside the interpreter, and sysconfig need not be loaded
    if sys.executable and (beside := Path(sys.executable).parent / name).is_file():
        return str(beside)
    import sysconfig

    for scheme in (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")):
        if (found := Path(sysconfig.get_path("scripts", scheme)) / name).is_file():
            return str(found)
    if found := shutil.which(name):
        return found
    raise FileNotFoundError("the sandbox's program `monty` is not installed: pip install pydantic-monty-runtime")


class WorkerProcess:
    def __init__(self, path: str, most_frame_bytes: int) -> None:
        self._popen = subprocess.Popen(  # noqa: S603 - our own program, without a shell
            [path, "subprocess"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # errors are sent as events
            env={},
            bufsize=0,
            process_group=0,  # Ctrl-C in the terminal does not reach it
        )
        self._pipes: tuple[Any, Any] = (self._popen.stdin, self._popen.stdout)
        self._stdin, self._stdout = (pipe.fileno() for pipe in self._pipes)
        enlarge_pipes(self._stdin, self._stdout, size=PIPE_BYTES)
        self._buffer = b""
        self._most_frame_bytes = most_frame_bytes
        self._lock = Lock()
        self._killed = False
        self.pid = self._popen.pid
        self.sessions = 0  # sessions served
        self.unacknowledged = 0  # requests sent ahead

    def send(self, *requests: bytes) -> None:
        try:
            for request in requests:
                size = len(request).to_bytes(HEADER, "little")
                for data in (size + request,) if len(request) < LARGE else (size, request):  # avoids a copy
                    sent = os.write(self._stdin, data)
                    while sent < len(data):
                        sent += os.write(self._stdin, memoryview(data)[sent:])
        except OSError:  # the worker has ended
            raise self._exit_reason() from None

    def send_ahead(self, *requests: bytes) -> None:
        """Send requests that are answered with Ok, without waiting for the answers."""
        self.send(*requests)
        self.unacknowledged += len(requests)

    def receive(self) -> bytes:
        """Wait for the next message."""
        while (missing := self._missing()) > 0:
            if len(self._buffer) <= HEADER:
                self._buffer += self._read(65_536)
                continue
            received, self._buffer = self._buffer[HEADER:], b""
            data = bytearray(len(received) + missing)  # one buffer: one per piece would take longer than reading it
            data[: len(received)] = received
            view, read = memoryview(data), len(received)
            while read < len(data):
                try:
                    count = self._pipes[1].readinto(view[read:])
                except (OSError, ValueError):  # the pipe was closed
                    count = 0
                if not count:
                    raise self._exit_reason()
                read += count
            return bytes(data)
        return self._next_frame()

    def acknowledged(self, seconds: float | None = None) -> bool:
        """Wait until all requests sent ahead are done, for at most `seconds`. Return whether they are."""
        until = None if seconds is None else monotonic() + seconds
        while self.unacknowledged:
            if self._missing() > 0:
                if until is not None:
                    poll = select.poll()
                    poll.register(self._stdout, select.POLLIN)
                    if not poll.poll(max(0.0, until - monotonic()) * 1000):
                        return False
                self._buffer += self._read(65_536)
            elif isinstance(read_event(self._next_frame()), Ok):
                self.unacknowledged -= 1
            else:
                raise ProtocolError("another answer than Ok")
        return True

    def kill(self) -> None:
        """Kill the worker immediately. Any thread may call this, any number of times."""
        with self._lock:
            if not self._killed:
                self._killed = True
                self._popen.kill()

    @property
    def is_reusable(self) -> bool:
        """Whether the worker runs, has sent nothing but its answers, and has not served too many sessions."""
        return self.sessions < MAX_SESSIONS and not self._buffer and not self.has_ended

    @property
    def has_ended(self) -> bool:
        with self._lock:  # the process ID may be reused once the process was waited for
            return self._killed or self._popen.poll() is not None

    def close(self) -> None:
        """Kill the worker, and release all its resources."""
        self.kill()
        # A thread with an unfinished tool may still use the worker, and the file descriptors will soon be reused.
        self._stdin = self._stdout = -1
        for pipe in self._pipes:
            pipe.close()
        with self._lock:
            self._popen.wait()

    def _missing(self) -> int:
        """Return the minimum number of bytes missing from the next message."""
        have = self._buffer
        if len(have) < HEADER:
            return HEADER - len(have)
        size = int.from_bytes(have[:HEADER], "little")
        if size > self._most_frame_bytes:
            if len(have) == HEADER:
                return 1
            # The rest is not read, so its size costs nothing.
            self.kill()
            raise MessageTooLargeError(CONTENT.get(have[HEADER], "the code's output or error"), self._most_frame_bytes)
        return size + HEADER - len(have)

    def _next_frame(self) -> bytes:
        end = HEADER + int.from_bytes(self._buffer[:HEADER], "little")
        frame, self._buffer = self._buffer[HEADER:end], self._buffer[end:]
        return frame

    def _read(self, most: int) -> bytes:
        try:
            data = os.read(self._stdout, most)
        except OSError:
            data = b""
        if not data:
            raise self._exit_reason()
        return data

    def _exit_reason(self) -> WorkerError:
        with suppress(subprocess.TimeoutExpired):
            if self._popen.wait(END_SECONDS) == OUT_OF_MEMORY:
                return OutOfMemoryError()
        return WorkerError()


# The use of one worker

OnPrint = Callable[[str, str], None]
"""Called with the name of a stream and the printed text."""


class WorkerSession:
    """The exclusive use of a worker: `feed` code, then `resume` with answers, until it is Complete or raises.

    One thread at a time feeds and answers; any thread may `kill`.
    """

    def __init__(self, worker: WorkerProcess) -> None:
        self._worker = worker
        self._lock = Lock()
        self._released = False
        self._printed: OnPrint = lambda _stream, _text: None
        self.is_idle = True  # no code is running
        self.pid = worker.pid
        self._feeds = 0

    @property
    def next_feed(self) -> str:
        """The name of the next piece of code in the worker's tracebacks."""
        return f"<python-input-{self._feeds}>"

    def feed(
        self,
        code: str,
        inputs: Mapping[str, Any],
        printed: OnPrint,
        check_types: bool = True,
    ) -> WorkerQuestion:
        """Run code with these names bound. Raise TypeCheckError if the session's type check fails."""
        self._printed = printed
        name = self.next_feed
        self._feeds += 1
        try:
            return self._exchange(messages.feed(code, inputs, check_types))
        except (TypeCheckError, CodeSyntaxError) as error:
            if isinstance(error, TypeCheckError) or all(line.filename != name for line in error.trace):
                self._feeds -= 1  # the worker does not count code refused before parsing
            raise

    def resume(self, question: FunctionCall | OsCall, answer: Answer) -> WorkerQuestion:
        return self._exchange(messages.resume_call(question.call_id, answer))

    def resume_name(self, value: Any) -> WorkerQuestion:
        """Bind the looked-up name to this value; None means that it is undefined."""
        return self._exchange(messages.NAME_UNDEFINED if value is None else messages.resume_name(value))

    def resume_futures(self, answers: Mapping[int, Answer]) -> WorkerQuestion:
        return self._exchange(messages.resume_futures(answers))

    def kill(self) -> None:
        """Kill the worker immediately, unless it was released and may serve another session."""
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

MAX_SESSIONS = 1000  # after which a worker is replaced, which bounds leaks
START_SECONDS = 0.005  # about the time to start a worker; waiting longer for a reset isn't worthwhile
RESET_SECONDS = 10.0  # after which a worker that is still resetting is ended


class IdleWorker(NamedTuple):
    """A released worker, and the time of its release."""

    worker: WorkerProcess
    since: float


class WorkerPool:
    """A pool of worker processes for sessions. They start with the first session and end with `close`."""

    def __init__(self, limits: WorkerLimits, most_frame_bytes: int) -> None:
        self._limits = limits
        self._usual = configure(limits)
        self._most_frame_bytes = most_frame_bytes
        self._lock = Lock()
        self._idle: list[IdleWorker] = []  # most recently released last
        self._busy = 0
        self._closing = False
        self._path = ""
        self._reaper = ChildReaper()

    @contextmanager
    def session(self, stubs: str | None = None) -> Iterator[WorkerSession]:
        """Open a session in a worker without state from earlier sessions. `stubs` turn type checks on."""
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
            with self._lock:
                self._busy -= 1
            if self._closing:
                self.close()

    def close(self) -> None:
        """End the workers; if some are busy, end them when the last session is over."""
        with self._lock:
            self._closing = True
            if self._busy:
                return
            idle, self._idle = self._idle, []
        for worker, _ in idle:
            worker.close()
        self._reaper.close()

    def _worker(self) -> WorkerProcess:
        """Return an idle worker that is reset, else a new one. Waits briefly for the one released last."""
        resetting: list[IdleWorker] = []
        seconds = START_SECONDS
        found: WorkerProcess | None = None
        while found is None:
            with self._lock:
                if not self._idle:
                    break
                idle = self._idle.pop()
            try:
                ready = idle.worker.acknowledged(seconds)
            except SandboxError:  # the worker has ended, or violates the protocol
                ready = None
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
        if usable and worker.is_reusable:
            with suppress(SandboxError):
                worker.send_ahead(RESET, self._usual)
                with self._lock:
                    self._idle.append(IdleWorker(worker, monotonic()))
                return
        self._end(worker)

    def _end(self, worker: WorkerProcess) -> None:
        self._reaper.forget(worker.pid)  # before the process ID can be reused
        worker.close()
