"""Engine: runs scripts against a catalogue of tools, a limited number at a time, in worker processes kept warm."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from onetool.core.call import Pauses, ToolCall, ToolError, current_caller, new_id
from onetool.core.context import (
    CallContext,
    CallTool,
    CallWatch,
    Environment,
    Gate,
    Progress,
    RunJournal,
    RunRecorder,
    current_call,
)
from onetool.core.errors import ToolFailure
from onetool.core.limits import MIB
from onetool.core.principal import allowed_by_both
from onetool.core.registry import Snapshot
from onetool.core.spec import ToolSpec
from onetool.core.threads import Threads
from onetool.core.trace import current_trace, new_span_id
from onetool.sandbox.messages import WorkerLimits
from onetool.sandbox.pool import WorkerPool, WorkerSession
from onetool.script.names import SandboxTools, ScriptNames
from onetool.script.parse import CodeReport
from onetool.script.pipeline import Pipeline, PipelineSettings
from onetool.script.rewrite import PreparedCode
from onetool.script.run_result import ARGUMENT_BYTES, OnPrinted, RunLimits, RunResult, busy
from onetool.script.slots import Slots
from onetool.script.type_stubs import type_stubs

if TYPE_CHECKING:
    from onetool.script.render import StoreText
    from onetool.script.snippets import SnippetLike


log = logging.getLogger("onetool.run")
NODES_BYTES = 16 * MIB  # overhead of a message beyond its values
QUEUE_SECONDS = 60.0  # seconds to wait for a free worker
CANCELLED = ToolError(code="execution_error", message="cancelled by the caller", reason="cancelled")
RUN = ToolSpec(name="run", description="Run code over all tools.", hidden=True)


class SharedWorkers:
    """The workers, threads and concurrency limits shared by engines; they survive a reload.

    Otherwise, callers that can trigger reloads could get more workers with each new engine.
    """

    def __init__(self, limits: RunLimits) -> None:
        self.limits = limits
        self.sandbox = WorkerPool(
            WorkerLimits(limits.seconds, limits.memory_mb, limits.depth),
            most_frame_bytes=max(limits.output_bytes, ARGUMENT_BYTES) + NODES_BYTES,
        )
        self.threads = Threads()
        self.slots: dict[int, Slots] = {}

    def close(self) -> None:
        self.sandbox.close()

    def usage(self) -> dict[str, int]:
        """Return the number of slots, of running runs, and of waiting runs."""
        counted = [one.usage() for one in tuple(self.slots.values())]
        running, waiting = (sum(numbers) for numbers in zip((0, 0), *counted, strict=True))
        return {"slots": self.limits.workers, "running": running, "waiting": waiting}


class Engine:
    """The engine for scripts. Its only state between runs is its warm workers."""

    def __init__(
        self,
        limits: RunLimits,
        call_tool: CallTool,
        environment: Environment | None = None,
        aliases: Mapping[str, str] | None = None,
        snippets: "Mapping[str, SnippetLike] | None" = None,
        typecheck: bool = False,
        recorders: Iterable[RunRecorder] = (),
        journal: RunJournal | None = None,
        workers: SharedWorkers | None = None,
        store: "StoreText | None" = None,
    ) -> None:
        self._recorders = tuple(recorders)
        self._journal = journal
        self._limits = limits
        self._environment = environment
        self._aliases = aliases or {}
        self._typecheck = typecheck
        self._workers = workers or SharedWorkers(limits)
        self.sandbox = self._workers.sandbox
        self._tools: SandboxTools | None = None
        self.settings = PipelineSettings(
            limits=limits,
            call_tool=call_tool,
            threads=self._workers.threads,
            snippets=snippets or {},
            store=store,
        )

    async def run(
        self,
        text: str,
        catalogue: Snapshot,
        *,
        allowed: Collection[str] | None = None,
        source: str = "run",
        progress: Progress | None = None,
        live: OnPrinted | None = None,
        variables: Mapping[str, Any] | None = None,
        gate: Gate | None = None,
        watch: CallWatch | None = None,
    ) -> RunResult:
        """Run the code in `text`. Never raises for errors in the code, only when cancelled.

        Code run by a tool is part of that tool's call: it has no ID and is not recorded. `variables` are names bound
        before the code begins. Its tool calls have to pass the `gate`, if any, and are reported to the `watch`.
        """
        outer = current_call.get()
        if allowed is not None or outer is not None:
            allowed = allowed_by_both(allowed, outer.allowed if outer else None)
        tools = self.tools_of(catalogue)
        pipeline = Pipeline(self.settings, tools, text, allowed, None if outer else new_id(), variables)
        error: ToolError | None = CANCELLED
        try:
            begin = partial(self.context, allowed, source, progress, pipeline.run, gate, watch)
            result = note = None
            if pipeline.run is not None and self._journal is not None:
                note = self._journal(pipeline.event(pipeline.run, source, None))
            if note is not None:
                try:
                    await asyncio.to_thread(note)
                except ToolFailure as failure:  # nothing has run
                    result = pipeline.refusal_result(failure)
            if result is None:
                result = await self._run_pipeline(pipeline, tools, begin, live)
            error = result.error
        finally:
            if error is CANCELLED and pipeline.made:
                log.warning("The run %s was cancelled; %s", pipeline.run, pipeline.made_names)
            if pipeline.run is not None and self._recorders:
                event = pipeline.event(pipeline.run, source, error)
                for record in self._recorders:
                    try:
                        record(event)
                    except Exception:
                        log.exception("a recorder failed; the run is not affected")
        return result

    async def _run_pipeline(
        self,
        pipeline: Pipeline,
        tools: SandboxTools,
        begin: Callable[[], CallContext],
        live: OnPrinted | None,
    ) -> RunResult:
        """Run the whole pipeline. The time limit begins when the run gets its slot."""
        prepared = await pipeline.prepare()
        if isinstance(prepared, RunResult):
            return prepared
        slots = self._slots_for(current_call.get())
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(QUEUE_SECONDS):
                    slot = await held.enter_async_context(slots.slot())
            except TimeoutError:
                return pipeline.refusal_result(busy(self._limits, QUEUE_SECONDS))
            context = begin()
            with nullcontext() if context.pauses is None else context.pauses.notifying(slot.pause):
                return await pipeline.execute(prepared, partial(self._worker, tools.names), context, live, slot)

    def check(self, text: str, catalogue: Snapshot, variables: Collection[str]) -> ToolError | None:
        """Return the error in code that is to be stored, if any. `variables` are the names bound for it."""
        known = dict.fromkeys(variables)
        return Pipeline(self.settings, self.tools_of(catalogue), text, variables=known).check()

    def report(
        self, text: str, catalogue: Snapshot, allowed: Collection[str] | None, variables: Mapping[str, Any]
    ) -> CodeReport:
        """Return all errors in the code, and the tools that it calls. Runs nothing."""
        return Pipeline(self.settings, self.tools_of(catalogue), text, allowed, variables=variables).report()

    def names(self, catalogue: Snapshot) -> ScriptNames:
        """Return the names of the tools in code."""
        return self.tools_of(catalogue).names

    def warm(self) -> None:
        """Start a worker before it is needed."""
        with self.sandbox.session():
            pass

    def close(self) -> None:
        self._workers.close()

    def tools_of(self, catalogue: Snapshot) -> SandboxTools:
        tools = self._tools
        if tools is None or tools.names.catalogue is not catalogue:
            tools = self._tools = SandboxTools(ScriptNames(catalogue, self._aliases))
        return tools

    def _slots_for(self, outer: CallContext | None) -> Slots:
        """Return the slots for this level of nested runs. Separate slots per level avoid deadlocks."""
        level = outer.chain.count(RUN.name) if outer else 0
        slots = self._workers.slots
        return slots.get(level) or slots.setdefault(level, Slots(self._limits.workers))

    def _worker(self, names: ScriptNames, prepared: PreparedCode) -> AbstractContextManager[WorkerSession]:
        return self.sandbox.session(type_stubs(names, set(prepared.words.values())) if self._typecheck else None)

    def context(
        self,
        allowed: Collection[str] | None,
        source: str,
        progress: Progress | None,
        run: str | None = None,
        gate: Gate | None = None,
        watch: CallWatch | None = None,
    ) -> CallContext:
        """Return the context that tool calls of this run inherit: deadline, allow-list, progress. A run is a
        call, too.
        """
        outer = current_call.get()
        left = min(self._limits.seconds, outer.left()) if outer else self._limits.seconds
        pauses = Pauses(outer.pauses) if outer and outer.pauses else None
        if pauses is None and (gate is not None or (outer is None and current_caller.get() is not None)):
            pauses = Pauses()  # the run may wait for the user
        return CallContext(
            spec=RUN,
            call=ToolCall(run or new_id(), RUN.name, {}, source),
            run=run,
            environment=self._environment,
            chain=(*outer.chain, RUN.name) if outer else (RUN.name,),
            seconds=self._limits.seconds,
            deadline=monotonic() + left,
            pauses=pauses,
            allowed=allowed,
            progress=progress or (outer.progress if outer else None),
            loop=asyncio.get_running_loop(),
            gate=gate,
            watch=watch,
            span=new_span_id() if (trace := current_trace.get()) is not None and trace.record_span is not None else "",
        )
