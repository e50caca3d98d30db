"""A session: code that goes on where the last piece left off, in one worker. For the interactive command.

`run` itself always starts empty; here names stay until the session ends, or a limit ends its worker.
"""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, ExitStack, nullcontext

from onetool.core.context import CallContext
from onetool.sandbox.session import WorkerSession
from onetool.script.course import Course
from onetool.script.outcome import RunResult
from onetool.script.prepare import Prepared
from onetool.script.printed import Live


class Session:
    """`await session.run(text)`, again and again; one at a time. `close` gives the worker back."""

    def __init__(
        self,
        begin: Callable[[str, Collection[str]], Course],
        worker: Callable[[], AbstractContextManager[WorkerSession]],
        context: Callable[[], CallContext],
    ) -> None:
        self._begin = begin
        self._fresh_worker = worker
        self._context = context
        self._stack = ExitStack()
        self._worker: WorkerSession | None = None
        self.known: set[str] = set()  # names that the code has defined so far

    async def run(self, text: str, live: Live | None = None) -> RunResult:
        course = self._begin(text, self.known)
        prepared = await course.prepared()
        if isinstance(prepared, RunResult):
            return prepared
        try:
            result = await course.driven(prepared, self._lent, self._context(), live)
        finally:  # also where it was stopped from outside
            if self._worker is None or self._worker.is_gone or not self._worker.is_idle:
                self.close()
            elif course.scan is not None:
                self.known.update(course.scan.bound, course.scan.imported)
        return result

    @property
    def is_fresh(self) -> bool:
        return self._worker is None

    def open(self) -> WorkerSession:
        """The worker; a fresh one, if there is none. The next run would get it, too."""
        if self._worker is None:
            self._worker = self._stack.enter_context(self._fresh_worker())
        return self._worker

    def close(self) -> None:
        """Back to the beginning: the names are forgotten."""
        self._stack.close()
        self._worker = None
        self.known.clear()

    def _lent(self, _prepared: Prepared) -> AbstractContextManager[WorkerSession]:
        return nullcontext(self.open())
