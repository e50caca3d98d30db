"""A session: code that goes on where the last piece left off, in one worker. For the interactive command.

`run` itself always starts empty; here names stay until the session ends, or a limit ends its worker.
"""

from collections.abc import Collection
from contextlib import ExitStack, nullcontext

from onetool.script.drive import Tools
from onetool.script.engine import Engine, Live, Refused, Run
from onetool.script.outcome import RunResult
from onetool.script.prepare import Prepared
from onetool.script.sandbox import Worker


class Session:
    """`await session.run(text)`, again and again; one at a time. `close` gives the worker back."""

    def __init__(self, engine: Engine, tools: Tools, allowed: Collection[str] | None) -> None:
        self._engine = engine
        self._tools = tools
        self._allowed = allowed
        self._stack = ExitStack()
        self._worker: Worker | None = None
        self.known: set[str] = set()  # names that the code has defined so far

    async def run(self, text: str, live: Live | None = None) -> RunResult:
        run = Run(self._tools, self._engine.snippets, text)
        try:
            prepared = run.prepared(self._allowed, self.known)
        except Refused as refused:
            return self._engine.result(run, error=refused.error)
        context = self._engine.context(self._allowed, "cli", None)
        worker = self._lent(prepared)
        try:
            result = await self._engine.driven(run, prepared, context, live, nullcontext(worker))
        except BaseException:  # stopped from outside: its worker is gone
            self.close()
            raise
        if worker.is_gone:
            self.close()
        elif run.scan is not None:
            self.known.update(run.scan.bound, run.scan.imported)
        return result

    @property
    def is_fresh(self) -> bool:
        return self._worker is None

    def close(self) -> None:
        """Back to the beginning: the names are forgotten."""
        self._stack.close()
        self._worker = None
        self.known.clear()

    def _lent(self, prepared: Prepared) -> Worker:
        if self._worker is None:
            self._worker = self._stack.enter_context(self._engine.worker(prepared, self._tools.names))
        return self._worker
