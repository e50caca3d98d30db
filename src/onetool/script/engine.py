"""`run`: read -> expand -> check -> execute in the sandbox. The way of one script, start to end."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from contextvars import copy_context
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from onetool.core.call import ToolCall, ToolError
from onetool.core.context import CallContext, Environment, Progress, current_call
from onetool.core.executor import Executor
from onetool.core.registry import Snapshot
from onetool.core.spec import ToolSpec
from onetool.core.threads import Threads
from onetool.script.check import Finding, check, words
from onetool.script.drive import Drive, Tools, WrongTypes
from onetool.script.failures import Scene, failure
from onetool.script.imports import MODULES
from onetool.script.limits import LimitHit, Limits, too_slow
from onetool.script.names import Names
from onetool.script.outcome import RunResult
from onetool.script.prepare import Prepared, prepare
from onetool.script.reading import ScriptError, read
from onetool.script.sandbox import Sandbox, Worker
from onetool.script.scan import Scan
from onetool.script.turnstile import Turnstile
from onetool.script.typecheck import stubs

if TYPE_CHECKING:
    from onetool.script.session import Session
    from onetool.script.snippets import SnippetLike

GRACE = 0.25  # seconds that the sandbox gets to say itself where its time ran out
LONG = 20_000  # characters of code: a few milliseconds
RUN = ToolSpec(name="run", description="Run code over all tools.", hidden=True)
CANCELLED = LimitHit("cancelled", "the run was cancelled", "")

Live = Callable[[str], None]
"""Told what code prints, as it prints it."""


class Engine:
    """Runs scripts against a catalogue. Keeps workers warm between runs, and nothing else."""

    def __init__(
        self,
        limits: Limits,
        executor: Executor,
        environment: Environment | None = None,
        aliases: Mapping[str, str] | None = None,
        snippets: "Mapping[str, SnippetLike] | None" = None,
        redact: Callable[[Any], Any] | None = None,
        typecheck: bool = False,
    ) -> None:
        self._limits = limits
        self._executor = executor
        self._environment = environment
        self._aliases = aliases or {}
        self.snippets = snippets or {}
        self._redact = redact or (lambda value: value)
        self._typecheck = typecheck
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
        live: Live | None = None,
    ) -> RunResult:
        """Run the code in a text. Never raises for what the code does; being cancelled is the only way out."""
        run = Run(self.tools(catalogue), self.snippets, text)
        try:
            # Reading a lot of code takes a while; the loop has others to serve.
            if len(text) > LONG:
                prepared = await self._threads.run(run.prepared, {"allowed": allowed})
            else:
                prepared = run.prepared(allowed)
        except Refused as refused:
            return self.result(run, error=refused.error)
        if current_call.get() is not None:  # part of a run, which has a turn: to wait for another may be for ever
            return await self.driven(run, prepared, self.context(allowed, source, progress), live)
        async with self._turns.turn():
            return await self.driven(run, prepared, self.context(allowed, source, progress), live)

    def names(self, catalogue: Snapshot) -> Names:
        """What the tools are called in code."""
        return self.tools(catalogue).names

    def session(self, catalogue: Snapshot, allowed: Collection[str] | None = None) -> "Session":
        """For a person who goes on where the last line left off. Everybody else starts empty."""
        from onetool.script.session import Session

        return Session(self, self.tools(catalogue), allowed)

    def close(self) -> None:
        self._sandbox.close()

    def tools(self, catalogue: Snapshot) -> Tools:
        tools = self._tools
        if tools is None or tools.names.catalogue is not catalogue:
            tools = self._tools = Tools(Names(catalogue, self._aliases))
        return tools

    def context(self, allowed: Collection[str] | None, source: str, progress: Progress | None) -> CallContext:
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

    def worker(self, prepared: Prepared, names: Names) -> AbstractContextManager[Worker]:
        """A fresh worker for this code."""
        if not self._typecheck:
            return self._sandbox.worker()
        declared = stubs(names, set(prepared.words.values()))
        return self._sandbox.worker(type_check=True, type_check_stubs=declared, type_check_format="json")

    async def driven(
        self,
        run: "Run",
        prepared: Prepared,
        context: CallContext,
        live: Live | None,
        worker: AbstractContextManager[Worker] | None = None,
    ) -> RunResult:
        """Drive the code in a thread, until it ends, or its time does; in a fresh worker, or in one that is lent."""
        drive = Drive(run.tools, self._executor, context, self._limits, live)
        try:
            async with asyncio.timeout(max(0.0, context.deadline - monotonic()) + GRACE):
                workers = worker or self.worker(prepared, run.tools.names)
                job = {"workers": workers, "drive": drive, "prepared": prepared, "context": context}
                value = await self._threads.run(_feed, job)
        except TimeoutError:
            drive.stop(too_slow(self._limits))
            error: BaseException = too_slow(self._limits)
        except asyncio.CancelledError:
            drive.stop(CANCELLED)
            raise
        except Exception as raised:  # noqa: BLE001 - whatever ended the run is told as its error
            error = raised
        else:
            return self.result(run, drive, value=value)
        return self.result(run, drive, error=self._told(drive.stopped_by or error, run, drive))

    def _told(self, error: BaseException, run: "Run", drive: Drive) -> ToolError:
        if isinstance(error, WrongTypes):
            return _refusal(error.findings, run.tools.names)
        return failure(error, Scene(run.code, drive.feed, run.tools.names, self._limits, drive.failures))

    def result(
        self, run: "Run", drive: Drive | None = None, *, value: Any = None, error: ToolError | None = None
    ) -> RunResult:
        elapsed = round((perf_counter() - run.started) * 1000, 3)
        meta = {"calls": drive.calls if drive else 0, "duration_ms": elapsed}
        printed = self._redact(drive.printed.text) if drive else ""
        if error is not None:
            return RunResult(ok=False, error=error, meta=meta, printed=printed)
        return RunResult(ok=True, data=self._redact(value), meta=meta, printed=printed)


class Run:
    """One text on its way to become a result."""

    def __init__(self, tools: Tools, snippets: "Mapping[str, SnippetLike]", text: str) -> None:
        self.started = perf_counter()
        self.tools = tools
        self._snippets = snippets
        self.code = text
        self.scan: Scan | None = None

    def prepared(self, allowed: Collection[str] | None, known: Collection[str] = ()) -> Prepared:
        """What to feed. Refused when something is wrong with it, before anything has run.

        `known` are names that code before this one has defined.
        """
        try:
            self.code = self._read(self.code)
        except ScriptError as error:
            raise Refused(ToolError(code="invalid_args", message=str(error), reason="syntax")) from None
        self.scan = scan = Scan(self.code)
        scan.bound.update(known)
        if found := check(scan, self.tools.names, MODULES, allowed):
            raise Refused(_refusal(found, self.tools.names))
        return prepare(scan, self.tools.names)

    def _read(self, text: str) -> str:
        code = read(text)
        if not code.lstrip().startswith("$"):  # no Python does
            return code
        from onetool.script.snippets import SnippetError, expand

        try:
            return read(expand(code, self._snippets))
        except SnippetError as error:
            raise ScriptError(str(error)) from None


class Refused(Exception):  # noqa: N818 - carries an error, is never seen outside
    def __init__(self, error: ToolError) -> None:
        super().__init__(error.message)
        self.error = error


def _feed(workers: AbstractContextManager[Worker], drive: Drive, prepared: Prepared, context: CallContext) -> Any:
    """In a thread: from a worker to the value."""
    inside = copy_context()
    inside.run(current_call.set, context)
    with workers as worker:
        try:
            return inside.run(drive.run, worker, prepared)
        except BaseException as error:
            if _spoils(error):
                worker.kill()
            raise


def _refusal(found: list[Finding], names: Names) -> ToolError:
    message, hints = words(found, names)
    return ToolError(code="invalid_args", message=message, reason="check", hints=hints)


def _spoils(error: BaseException) -> bool:
    """Whether a worker that this happened in should not be used again: its memory is full, or its state unknown."""
    return isinstance(error, LimitHit) or any(word in str(error) for word in ("MemoryError", "limit exceeded"))
