"""`run`: read -> expand -> check -> execute in the sandbox. The way of one script, start to end."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextvars import copy_context
from time import monotonic, perf_counter
from typing import Any
from uuid import uuid4

from onetool.core.call import ToolCall, ToolError
from onetool.core.context import CallContext, Environment, Progress, current_call
from onetool.core.executor import Executor
from onetool.core.registry import Snapshot
from onetool.core.spec import ToolSpec
from onetool.core.threads import Threads
from onetool.script.check import check, words
from onetool.script.drive import Drive, Tools
from onetool.script.failures import failure
from onetool.script.limits import LimitHit, Limits, too_slow
from onetool.script.names import Names
from onetool.script.outcome import RunResult
from onetool.script.prepare import MODULES, Prepared, prepare
from onetool.script.reading import ScriptError, read
from onetool.script.sandbox import Sandbox
from onetool.script.scan import Scan
from onetool.script.turnstile import Turnstile

GRACE = 0.25  # seconds that the sandbox gets to say itself where its time ran out
RUN = ToolSpec(name="run", description="Run code over all tools.", hidden=True)
CANCELLED = LimitHit("cancelled", "the run was cancelled", "")


class Engine:
    """Runs scripts against a catalogue. Keeps workers warm between runs, and nothing else."""

    def __init__(
        self,
        limits: Limits,
        executor: Executor,
        environment: Environment | None = None,
        aliases: Mapping[str, str] | None = None,
        redact: Callable[[Any], Any] | None = None,
    ) -> None:
        self._limits = limits
        self._executor = executor
        self._environment = environment
        self._aliases = aliases or {}
        self._redact = redact or (lambda value: value)
        self._sandbox = Sandbox(limits)
        self._threads = Threads()
        self._turns = Turnstile(limits.workers)
        self._tools: Tools | None = None

    async def run(
        self,
        text: str,
        catalogue: Snapshot,
        *,
        allowed: Collection[str] | None = None,
        source: str = "run",
        progress: Progress | None = None,
        live: Callable[[str], None] | None = None,
    ) -> RunResult:
        """Run the code in a text. Never raises for what the code does; being cancelled is the only way out."""
        started = perf_counter()
        tools = self._tools_of(catalogue)
        try:
            code = read(text)
            prepared = self._prepared(code, tools.names, allowed)
        except _Refused as refused:
            return self._result(started, error=refused.error)
        except ScriptError as error:
            return self._result(started, error=ToolError(code="invalid_args", message=str(error), reason="syntax"))
        if (
            current_call.get() is not None
        ):  # a tool that runs code holds a turn already: waiting for one more may be for ever
            return await self._run(code, prepared, tools, self._context(allowed, source, progress), live, started)
        async with self._turns.turn():
            return await self._run(code, prepared, tools, self._context(allowed, source, progress), live, started)

    def close(self) -> None:
        self._sandbox.close()

    def names(self, catalogue: Snapshot) -> Names:
        return self._tools_of(catalogue).names

    def _tools_of(self, catalogue: Snapshot) -> Tools:
        tools = self._tools
        if tools is None or tools.names.catalogue is not catalogue:
            tools = self._tools = Tools(Names(catalogue, self._aliases))
        return tools

    def _prepared(self, code: str, names: Names, allowed: Collection[str] | None) -> Prepared:
        scan = Scan(code)
        findings = check(scan, names, MODULES, allowed)
        if findings:
            message, hints = words(findings, names)
            raise _Refused(ToolError(code="invalid_args", message=message, reason="check", hints=hints))
        return prepare(scan, names)

    def _context(self, allowed: Collection[str] | None, source: str, progress: Progress | None) -> CallContext:
        """What the tools of this run inherit: its deadline, its allow-list, its progress. A run is a call, too."""
        outer = current_call.get()
        deadline = monotonic() + self._limits.seconds
        if outer is not None:
            deadline = min(deadline, outer.deadline)
            allowed = outer.allowed if allowed is None else allowed
        return CallContext(
            spec=RUN,
            call=ToolCall(uuid4().hex, "run", {}, source),
            environment=self._environment,
            chain=(*outer.chain, "run") if outer else ("run",),
            seconds=self._limits.seconds,
            deadline=deadline,
            allowed=allowed,
            progress=progress or (outer.progress if outer else None),
            loop=asyncio.get_running_loop(),
        )

    async def _run(
        self,
        code: str,
        prepared: Prepared,
        tools: Tools,
        context: CallContext,
        live: Callable[[str], None] | None,
        started: float,
    ) -> RunResult:
        drive = Drive(tools, self._executor, context, self._limits, live)
        work = self._threads.run(self._feed, {"drive": drive, "prepared": prepared, "tools": tools, "context": context})
        try:
            async with asyncio.timeout(max(0.0, context.deadline - monotonic()) + GRACE):
                value = await work
        except TimeoutError:
            drive.stop(too_slow(self._limits))
            error = failure(drive.stopped_by or too_slow(self._limits), code, tools.names, self._limits, {})
        except asyncio.CancelledError:
            drive.stop(CANCELLED)
            raise
        except Exception as raised:  # noqa: BLE001 - whatever ended the run is told as its error
            error = failure(drive.stopped_by or raised, code, tools.names, self._limits, drive.failures)
        else:
            return self._result(started, drive, value=value)
        return self._result(started, drive, error=error)

    def _feed(self, drive: Drive, prepared: Prepared, tools: Tools, context: CallContext) -> Any:
        """In a thread: from a fresh worker to the value."""
        copied = copy_context()
        copied.run(current_call.set, context)
        with self._sandbox.worker() as worker:
            feeds = 0
            try:
                if prepared.prelude:
                    worker.start(prepared.prelude, {}, drive.printed)
                    feeds = 1
                inputs = {word: tools.value(word) for word in prepared.words}
                futures = {f"<python-input-{feeds}>": prepared.futures}
                return copied.run(drive.run, worker, prepared.code, inputs, futures)
            except BaseException as error:
                if _spoils(error):
                    worker.kill()
                raise

    def _result(
        self, started: float, drive: Drive | None = None, *, value: Any = None, error: ToolError | None = None
    ) -> RunResult:
        meta = {"calls": drive.calls if drive else 0, "duration_ms": round((perf_counter() - started) * 1000, 3)}
        printed = self._redact(drive.printed.text) if drive else ""
        if error is not None:
            return RunResult(ok=False, error=error, meta=meta, printed=printed)
        return RunResult(ok=True, data=self._redact(value), meta=meta, printed=printed)


class _Refused(Exception):  # noqa: N818 - carries an error, is never seen outside
    def __init__(self, error: ToolError) -> None:
        super().__init__(error.message)
        self.error = error


def _spoils(error: BaseException) -> bool:
    """Whether a worker that this happened in should not be used again: its memory is full, or its state unknown."""
    return isinstance(error, LimitHit) or any(word in str(error) for word in ("MemoryError", "limit exceeded"))
