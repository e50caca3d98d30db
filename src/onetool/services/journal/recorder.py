"""`Recorder`: functions wait in memory until a thread calls them, off the path of the calls that they record.

    recorder = Recorder()
    recorder.put(handle, event)     # only appends to a list
    recorder.flush()                # calls all waiting functions now, in this thread

The thread gives up the interpreter's lock (the GIL) every half a millisecond at the latest, so that calls don't wait
for it. Memory is limited: when the queue is full, new functions are dropped, and counted in `lost`.
"""

import logging
from collections import deque
from collections.abc import Callable
from threading import Event, Lock, RLock, Thread, current_thread, get_ident
from time import perf_counter, sleep
from typing import Any

from onetool.core.trace import RecordSpan

log = logging.getLogger("onetool")

GATHER_S = 0.05  # how long an event waits for more events
HELD_S = 0.0003  # after which the thread lets others have the GIL, once the current function has returned
PAUSE_S = 0.0002  # for which it sleeps then; `sleep(0)` would not let another thread take the GIL
RETRY_S = 1.0  # after a failure
IDLE_S = 10.0  # after which a thread without events ends
LAST_WAIT_S = 3.0  # for the thread, when the recorder is closed
MAX_WAITING = 10_000  # events
MAX_BYTES = 64 * 1024**2  # of waiting events

Handle = Callable[..., Any]
Write = Callable[[bool], float | None]


class Recorder:
    """A thread-safe queue of functions and their arguments, which its thread calls.

    `writers` later write what these functions collect: they return the seconds until their next call, and get True at
    the last one. `observers`, such as metrics and traces, get each event once.
    """

    def __init__(self) -> None:
        self.waiting: deque[tuple[int, Handle, tuple[Any, ...]]] = deque()  # with their sizes in bytes
        self.lost = 0
        self.writers: list[Write] = []
        self.observers: list[Callable[[Any], None]] = []
        self.record_span: RecordSpan | None = None  # set where spans are sent to a collector
        self._bytes = 0
        self._lock = RLock()  # a finalizer may interrupt the holder of the lock
        self._handling = Lock()
        self._handling_thread: int | None = None
        self._wake, self._closed = Event(), Event()
        self._is_woken = False  # `_wake` is set; asking it would cost each event a call
        self._thread: Thread | None = None

    def put(self, handle: Handle, *args: Any, size: int = 0) -> None:
        """Call `handle` soon. `size` is the number of bytes that its arguments hold, if they may be large."""
        with self._lock:
            if len(self.waiting) >= MAX_WAITING or self._bytes + size > MAX_BYTES:
                self.lost += 1
                return
            self.waiting.append((size, handle, args))
            self._bytes += size
            if not self._is_woken:
                self.wake()

    def wake(self) -> None:
        """Let the thread look for work soon, although nothing waits."""
        with self._lock:
            self._is_woken = True
            self._wake.set()
            if self._thread is None:
                self._start()

    def flush(self, timeout: float = -1) -> None:
        """Call the waiting functions in this thread.

        `timeout` limits the wait for another thread that does the same; -1 means no limit.
        """
        if self._handling_thread == get_ident() or not self._handling.acquire(timeout=timeout):
            return  # called by one of the functions, or timed out
        self._handling_thread = get_ident()
        try:
            count, since = len(self.waiting), perf_counter()
            for _ in range(count):
                self._handle_next()
                if perf_counter() - since > HELD_S:
                    sleep(PAUSE_S)
                    since = perf_counter()
        finally:
            self._handling_thread = None
            self._handling.release()

    def observe(self, event: Any) -> None:
        """Pass a call, run or request that has ended to all observers. Called in the thread of the queue."""
        for observer in tuple(self.observers):
            observer(event)

    def close(self) -> None:
        """Call the waiting functions and the writers, and end the thread.

        The garbage collector may call this, even in that thread.
        """
        with self._lock:
            self._closed.set()
            if self._thread is not None:
                self._wake.set()
            thread = self._thread
        self.flush(timeout=LAST_WAIT_S)
        if thread is not None and thread is not current_thread():  # the database may be closed next
            thread.join(LAST_WAIT_S)
        self._write(is_last=True)

    def _handle_next(self) -> None:
        with self._lock:
            size, handle, args = self.waiting.popleft()
            self._bytes -= size
        try:
            handle(*args)
        except (Exception, SystemExit):  # objects of a pack may raise anything, and must not end this thread
            log.exception("an event could not be recorded; the call is not affected")

    def _write(self, is_last: bool = False) -> float | None:
        """Call each writer, and return the seconds until one of them wants to be called again."""
        waits: list[float | None] = []
        for write in tuple(self.writers):
            try:
                waits.append(write(is_last))
            except Exception:
                log.exception("events could not be written")
                waits.append(RETRY_S)
        return min((wait for wait in waits if wait is not None), default=None)

    def _start(self) -> None:
        thread = Thread(target=self._run, name="onetool-events", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # too many threads, or the process is about to end
            self._wake.clear()
            self._is_woken = False
        else:
            self._thread = thread

    def _run(self) -> None:
        again = None
        while True:
            is_woken = self._wake.wait(0 if self._closed.is_set() else IDLE_S if again is None else again)
            with self._lock:
                if not self._wake.is_set() and (self._closed.is_set() or (again is None and not is_woken)):
                    self._thread = None
                    return
            if is_woken:
                self._closed.wait(GATHER_S)
                self._wake.clear()
                self._is_woken = False  # after `clear`: an event in between is in the next batch
            self.flush()
            again = self._write()
