"""`EventQueue`: events wait in memory until a thread writes them, in batches.

    queue = EventQueue("onetool-events", handle)
    queue.put(event, caller)     # only appends to a list, so calls never wait
    queue.flush()                # handle all queued events now, in this thread

Memory is limited. When a queue is full, the caller with the most events loses its newest, so that a flood from one
caller costs other callers no events. `lost` counts lost events by caller.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from sys import maxsize
from threading import Event, Lock, RLock, Thread, current_thread, get_ident
from time import sleep
from typing import Any, Generic, TypeVar

from onetool.core.trace import RecordSpan
from onetool.database import DatabaseError

log = logging.getLogger("onetool")
E = TypeVar("E")

GATHER_S = 0.05  # how long an event waits for more events
BATCH = 16  # events that the thread handles at once: meanwhile it holds the GIL, and calls wait
PAUSE_S = 0.0002  # between batches; `sleep(0)` would not let another thread take the GIL
RETRY_S = 1.0  # after a failure
IDLE_S = 10.0  # after which a thread without events ends
LAST_WAIT_S = 3.0  # for the thread, when the queue is closed
MAX_WAITING = 10_000  # events
MAX_BYTES = 64 * 1024**2  # of queued events
EVENT_BYTES = 1_000  # of an event without large values


class EventQueue(Generic[E]):
    """A thread-safe queue with a thread that handles its events.

    `handle` gets a deque and removes handled events from its left. After a DatabaseError, the remaining events stay.
    Only one thread at a time calls it. `after` is called in the thread of the queue after each batch, and returns the
    seconds until its next call; None means after the next event.
    """

    def __init__(
        self,
        name: str,
        handle: Callable[[deque[E]], None],
        after: Callable[[], float | None] = lambda: None,
        gather_s: float = GATHER_S,
    ) -> None:
        self.waiting: deque[tuple[E, str, int]] = deque()  # event, caller, size
        self.lost: Counter[str] = Counter()
        self._name = name
        self._handle = handle
        self._after = after
        self._gather_s = gather_s
        self.max_waiting = MAX_WAITING
        self._bytes = 0
        self._weights: Counter[str] | None = None  # bytes by caller, once the queue was full
        self._lock = RLock()  # a finalizer may interrupt the holder of the lock
        self._handling = Lock()
        self._handling_thread: int | None = None
        self._wake, self._closed = Event(), Event()
        self._is_woken = False  # `_wake` is set; asking it would cost each event a call
        self._thread: Thread | None = None

    def put(self, event: E, caller: str = "", size: int = 0) -> None:
        """Add an event. `size` is its number of bytes, if it may be large."""
        with self._lock:
            while len(self.waiting) >= self.max_waiting or self._bytes + size > MAX_BYTES:
                if not self._has_made_room(caller, size):
                    self.lost[caller] += 1
                    return
            self.waiting.append((event, caller, size))
            self._bytes += size
            if self._weights is not None:
                self._weights[caller] += EVENT_BYTES + size
            if not self._is_woken:
                self._is_woken = True
                self._wake.set()
                if self._thread is None:
                    self._start()

    def count_lost(self, caller: str) -> None:
        """Count an event that can't be written."""
        with self._lock:
            self.lost[caller] += 1

    def flush(self, last: E | None = None, timeout: float = -1, limit: int = maxsize) -> None:
        """Handle the queued events, then `last`, in this thread. Raises DatabaseError, and then drops `last`.

        `timeout` limits the wait for another thread that is handling events; -1 means no limit. At most `limit`
        events are handled, oldest first.
        """
        if self._handling_thread == get_ident() or not self._handling.acquire(timeout=timeout):
            return  # called by a handler, or timed out
        self._handling_thread = get_ident()
        with self._lock:
            taken = [self.waiting.popleft() for _ in range(min(limit, len(self.waiting)))]
            self._bytes -= sum(size for _, _, size in taken)  # events being handled count no longer
            self._weights = None
        events = deque(event for event, _, _ in taken)
        if last is not None:
            events.append(last)
        try:
            if events:
                self._handle(events)
        finally:
            if last is not None and events:
                events.pop()
            if events:
                self._put_back(events, taken[len(taken) - len(events) :])
            self._handling_thread = None
            self._handling.release()

    def _put_back(self, events: deque[E], taken: list[tuple[E, str, int]]) -> None:
        """Return unhandled events to the front of the queue. Newer events may now exceed its limits, and be lost."""
        with self._lock:
            newer = [*self.waiting]
            self.waiting.clear()
            self.waiting.extend((event, caller, size) for event, (_, caller, size) in zip(events, taken, strict=True))
            self._bytes, self._weights = sum(size for _, _, size in taken), None
            for one in newer:
                self.put(*one)

    def close(self) -> None:
        """Handle the queued events, and end the thread. The garbage collector may call this, even in that thread."""
        with self._lock:
            self._closed.set()
            if self._thread is not None:
                self._wake.set()
            thread = self._thread
        with suppress(DatabaseError):
            self.flush(timeout=LAST_WAIT_S)
        if thread is not None and thread is not current_thread():  # the database may be closed next
            thread.join(LAST_WAIT_S)

    def _has_made_room(self, caller: str, size: int) -> bool:
        """Drop some of the newest events of the caller with the most, unless that is `caller`."""
        if self._weights is None:
            self._weights = Counter()
            for _, whose, held in self.waiting:
                self._weights[whose] += EVENT_BYTES + held
        heaviest = max(self._weights, key=self._weights.__getitem__, default=caller)
        if self._weights[heaviest] <= self._weights[caller] + EVENT_BYTES + size:
            return False
        theirs = [index for index, (_, whose, _) in enumerate(self.waiting) if whose == heaviest]
        dropped = {*theirs[-max(1, len(theirs) // 20) :]}  # several at once: the search is slow
        kept = [one for index, one in enumerate(self.waiting) if index not in dropped]
        size = sum(self.waiting[index][2] for index in dropped)
        self.waiting.clear()
        self.waiting.extend(kept)
        self._bytes -= size
        self._weights[heaviest] -= len(dropped) * EVENT_BYTES + size
        self.lost[heaviest] += len(dropped)
        return True

    def _start(self) -> None:
        thread = Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # too many threads, or the process is about to end
            self._wake.clear()
            self._is_woken = False
        else:
            self._thread = thread

    def _handle_waiting(self) -> None:
        """Handle the events that wait now, in batches."""
        count = len(self.waiting)
        size = max(BATCH, count // BATCH)  # a flood is not slowed down by pauses
        for start in range(0, count, size):
            if start:
                sleep(PAUSE_S)
            self.flush(limit=size)

    def _run(self) -> None:
        gather_s, again = self._gather_s, None
        while True:
            is_woken = self._wake.wait(0 if self._closed.is_set() else IDLE_S if again is None else again)
            with self._lock:
                if not self._wake.is_set() and (self._closed.is_set() or (again is None and not is_woken)):
                    self._thread = None
                    return
            if is_woken:
                self._closed.wait(gather_s)
                self._wake.clear()
                self._is_woken = False  # after `clear`: an event in between is in the next batch
            try:
                self._handle_waiting()
                gather_s, again = self._gather_s, self._after()
            except Exception as error:  # the events are kept
                if not isinstance(error, DatabaseError):
                    log.exception("%s: a batch failed", self._name)
                gather_s = again = RETRY_S


class Recorder(EventQueue[tuple[Callable[..., Any], tuple[Any, ...]]]):
    """A queue of functions and their arguments, which its thread calls.

    `writers` later write what these functions collect. The argument of a writer is True for the last call. `observers`,
    such as metrics and traces, get each event once.
    """

    def __init__(self) -> None:
        super().__init__("onetool-events", _call_all, self._write)
        self.writers: list[Callable[[bool], float | None]] = []
        self.observers: list[Callable[[Any], None]] = []
        self.record_span: RecordSpan | None = None  # set where spans are sent to a collector

    def observe(self, event: Any) -> None:
        """Pass a call, run or request that has ended to all observers. Called in the thread of the queue."""
        for observer in tuple(self.observers):
            observer(event)

    def close(self) -> None:
        super().close()
        self._write(is_last=True)

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


def _call_all(events: deque[tuple[Callable[..., Any], tuple[Any, ...]]]) -> None:
    while events:
        handle, args = events.popleft()
        try:
            handle(*args)
        except (Exception, SystemExit):  # objects of a pack may raise anything, and must not end this thread
            log.exception("an event could not be recorded; the call is not affected")
