"""A session: pieces of code, fed one after the other to a worker that remembers their names."""

from collections.abc import Callable, Collection, Mapping
from threading import Lock
from typing import Any

from onetool.sandbox import messages
from onetool.sandbox.errors import CodeError, CodeSyntaxError, ProtocolError, TypeCheckError, WorkerError
from onetool.sandbox.messages import (
    Answer,
    Complete,
    FunctionCall,
    Ok,
    OsCall,
    Print,
    Question,
    read_event,
)
from onetool.sandbox.process import WorkerProcess

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
    ) -> Question:
        """Run code with these names bound. TypeCheckError where a session that checks types refuses it."""
        self._printed = printed
        name = self.next_feed
        self.futures[name] = futures
        try:
            return self._turn(messages.feed(code, inputs, check_types))
        except (TypeCheckError, CodeSyntaxError) as error:
            if isinstance(error, TypeCheckError) or all(line.filename != name for line in error.trace):
                del self.futures[name]  # the worker does not count what it refused before it was parsed
            raise

    def resume(self, question: FunctionCall | OsCall, answer: Answer) -> Question:
        return self._turn(messages.resume_call(question.call_id, answer))

    def resume_name(self, value: Any) -> Question:
        """None: there is nothing of that name."""
        return self._turn(messages.NAME_UNDEFINED if value is None else messages.resume_name(value))

    def resume_futures(self, answers: Mapping[int, Answer]) -> Question:
        return self._turn(messages.resume_futures(answers))

    def kill(self) -> None:
        """End the worker now, unless it was given back: then it may serve another session."""
        with self._lock:
            if not self._released:
                self._worker.kill()

    @property
    def is_gone(self) -> bool:
        return self._released or self._worker.is_gone

    def release(self) -> None:
        with self._lock:
            self._released = True

    def _turn(self, request: bytes) -> Question:
        """Send it, and wait for what comes of it."""
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
