"""`run`: scripts against a catalogue, so many at a time, in workers that are kept warm."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from time import monotonic
from typing import TYPE_CHECKING, Any

from onetool.core.allowed import both
from onetool.core.call import ToolCall, ToolError
from onetool.core.caller import Pauses
from onetool.core.context import CallContext, Environment, Gate, Progress, current_call, pauses_inside
from onetool.core.event import RunEvent, RunRecorder
from onetool.core.executor import Executor
from onetool.core.ids import new_id
from onetool.core.registry import Snapshot
from onetool.core.spec import ToolSpec
from onetool.core.threads import Threads
from onetool.sandbox.messages import WorkerLimits
from onetool.sandbox.pool import Pool
from onetool.sandbox.session import WorkerSession
from onetool.script.course import Course, Setting
from onetool.script.limits import ARGUMENT_BYTES, MEGABYTE, Limits, busy
from onetool.script.names import Names
from onetool.script.outcome import RunResult
from onetool.script.prepare import Prepared
from onetool.script.printed import Live
from onetool.script.session import Session
from onetool.script.tools import Tools
from onetool.script.turnstile import Turnstile
from onetool.script.typecheck import stubs

if TYPE_CHECKING:
    from onetool.script.snippets import SnippetLike

log = logging.getLogger("onetool.run")

NODES_BYTES = 16 * MEGABYTE  # that a message may need beside the values in it
PATIENCE = 60.0  # seconds to wait for a free worker
CANCELLED = ToolError(code="execution_error", message="cancelled by the caller", reason="cancelled")
RUN = ToolSpec(name="run", description="Run code over all tools.", hidden=True)


class Room:
    """Where scripts run: workers, threads, and so many at a time. It may outlive the engine that began with it.

    A reload makes another engine, but whoever can have things reloaded must not get more workers by that.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.sandbox = Pool(
            WorkerLimits(limits.seconds, limits.memory_mb, limits.depth),
            most_frame_bytes=max(limits.output_bytes, ARGUMENT_BYTES) + NODES_BYTES,
        )
        self.threads = Threads()
        self.turns: dict[int, Turnstile] = {}

    def close(self) -> None:
        self.sandbox.close()


class Engine:
    """Runs scripts. Keeps workers warm between them, and nothing else."""

    def __init__(
        self,
        limits: Limits,
        executor: Executor,
        environment: Environment | None = None,
        aliases: Mapping[str, str] | None = None,
        snippets: "Mapping[str, SnippetLike] | None" = None,
        typecheck: bool = False,
        recorders: Iterable[RunRecorder] = (),
        room: Room | None = None,
    ) -> None:
        self._recorders = tuple(recorders)
        self._limits = limits
        self._environment = environment
        self._aliases = aliases or {}
        self._typecheck = typecheck
        self._room = room or Room(limits)
        self._sandbox = self._room.sandbox
        self._tools: Tools | None = None
        self._setting = Setting(
            limits=limits,
            executor=executor,
            threads=self._room.threads,
            snippets=snippets or {},
        )

    async def run(
        self,
        text: str,
        catalogue: Snapshot,
        *,
        allowed: Collection[str] | None = None,
        source: str = "run",
        progress: Progress | None = None,
        live: Live | None = None,
        variables: Mapping[str, Any] | None = None,
        gate: Gate | None = None,
    ) -> RunResult:
        """Run the code in a text. Never raises for what the code does; being cancelled is the only way out.

        Code that a tool has run is a part of that tool's call: it has no id, and nobody is told of it. `variables` are
        names that the code finds bound. What it calls has to pass the `gate`, where there is one.
        """
        outer = current_call.get()
        allowed = both(allowed, outer.allowed if outer else None)
        tools = self._tools_of(catalogue)
        course = Course(self._setting, tools, text, allowed, run=None if outer else new_id(), variables=variables)
        error: ToolError | None = CANCELLED
        try:
            result = await self._gone(
                course, tools, lambda: self._context(allowed, source, progress, course.run, gate), live
            )
            error = result.error
        finally:
            if course.run is not None and self._recorders:
                self._record(course.event(course.run, source, error))
        return result

    async def _gone(
        self,
        course: Course,
        tools: Tools,
        begin: Callable[[], CallContext],
        live: Live | None,
    ) -> RunResult:
        """All of its way, from the text to the result. Its time begins when it has its turn."""
        prepared = await course.prepared()
        if isinstance(prepared, RunResult):
            return prepared
        turnstile = self._turnstile(current_call.get())
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(PATIENCE):
                    await held.enter_async_context(turnstile.turn())
            except TimeoutError:
                return course.refused(busy(self._limits, PATIENCE))
            context = begin()
            with nullcontext() if context.pauses is None else context.pauses.telling(turnstile.lend):
                return await course.driven(prepared, lambda code: self._worker(code, tools.names), context, live)

    def check(self, text: str, catalogue: Snapshot, known: Collection[str]) -> ToolError | None:
        """What is wrong with code that somebody wants to keep, if anything is. `known` are its variables."""
        return Course(self._setting, self._tools_of(catalogue), text, None, known).checked()

    def session(self, catalogue: Snapshot, allowed: Collection[str] | None = None, source: str = "run") -> Session:
        """For a person who goes on where the last line left off. Everybody else starts empty."""
        tools = self._tools_of(catalogue)
        return Session(
            begin=lambda text, known: Course(self._setting, tools, text, allowed, known),
            worker=self._sandbox.session,
            context=lambda: self._context(allowed, source, None),
        )

    def names(self, catalogue: Snapshot) -> Names:
        """What the tools are called in code."""
        return self._tools_of(catalogue).names

    def warm(self) -> None:
        """Start a worker before anybody needs one."""
        with self._sandbox.session():
            pass

    def close(self) -> None:
        self._room.close()

    def _tools_of(self, catalogue: Snapshot) -> Tools:
        tools = self._tools
        if tools is None or tools.names.catalogue is not catalogue:
            tools = self._tools = Tools(Names(catalogue, self._aliases))
        return tools

    def _turnstile(self, outer: CallContext | None) -> Turnstile:
        """One for each level of runs inside of runs: nobody who waits holds what another one waits for."""
        level = outer.chain.count(RUN.name) if outer else 0
        return self._room.turns.setdefault(level, Turnstile(self._limits.workers))

    def _worker(self, prepared: Prepared, names: Names) -> AbstractContextManager[WorkerSession]:
        """A fresh worker for this code."""
        if not self._typecheck:
            return self._sandbox.session()
        declared = stubs(names, set(prepared.words.values()))
        return self._sandbox.session(declared)

    def _record(self, event: RunEvent) -> None:
        for record in self._recorders:
            try:
                record(event)
            except Exception:
                log.exception("a recorder failed; the run itself is not touched by that")

    def _context(
        self,
        allowed: Collection[str] | None,
        source: str,
        progress: Progress | None,
        run: str | None = None,
        gate: Gate | None = None,
    ) -> CallContext:
        """What the tools of this run inherit: its deadline, its allow-list, its progress. A run is a call, too."""
        outer = current_call.get()
        left = min(self._limits.seconds, outer.left()) if outer else self._limits.seconds
        return CallContext(
            spec=RUN,
            call=ToolCall(run or new_id(), RUN.name, {}, source),
            run=run,
            environment=self._environment,
            chain=(*outer.chain, RUN.name) if outer else (RUN.name,),
            seconds=self._limits.seconds,
            deadline=monotonic() + left,
            pauses=pauses_inside(outer) or (None if gate is None else Pauses()),
            allowed=allowed,
            progress=progress or (outer.progress if outer else None),
            loop=asyncio.get_running_loop(),
            gate=gate,
        )
