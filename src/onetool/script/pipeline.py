"""Pipeline: takes a text through read, expand, check, rewrite and run, to a RunResult."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec

from onetool.core.call import ToolError, client_name
from onetool.core.context import CallContext, CallTool, RunEvent, current_call
from onetool.core.errors import ToolFailure, shorten_message
from onetool.core.principal import current_address, current_principal
from onetool.core.running import within_deadline
from onetool.core.threads import Threads
from onetool.core.trace import Span, current_trace, new_span_id
from onetool.sandbox import CodeError, CodeSyntaxError, WorkerError
from onetool.sandbox.pool import WorkerSession
from onetool.script.check import CodeFinding, called_tools, check, findings_text
from onetool.script.failures import RunScene, failed_lines, failure, is_limit
from onetool.script.names import SandboxTools, rename_advice
from onetool.script.parse import (
    CodeFault,
    CodePlace,
    CodeReport,
    CodeScan,
    ScriptError,
    in_sent_text,
    place_of_lines,
    place_of_node,
    place_of_syntax_error,
    read,
    syntax_error,
    why_not,
)
from onetool.script.rewrite import MODULES, PreparedCode, prepare
from onetool.script.run_result import (
    LimitError,
    Made,
    OnPrinted,
    RunLimits,
    RunResult,
    cancelled,
    made_lines,
    too_much_printed,
    too_slow,
)
from onetool.script.slots import Slot
from onetool.script.worker_loop import WorkerLoop, WrongTypesError

if TYPE_CHECKING:
    from onetool.script.render import StoreText
    from onetool.script.snippets import SnippetLike

GRACE = 0.25  # seconds for the sandbox to report its own timeout, which names the line
MAX_PREPARED = 64  # cached scripts per catalogue: the same few run again and again
LONG_CODE = 2_000  # characters of code that are parsed on the loop: about a millisecond

OpenSession = Callable[[PreparedCode], AbstractContextManager[WorkerSession]]
"""Opens the session for some code."""


class PipelineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings shared by all pipelines of an engine."""

    limits: RunLimits
    call_tool: CallTool
    threads: Threads
    snippets: "Mapping[str, SnippetLike]"
    store: "StoreText | None" = None  # keeps messages of tools that are too long to show


class PrintedOutput:
    """The printed output of code, up to the limit."""

    def __init__(self, limits: RunLimits, live: OnPrinted | None, worker_loop: WorkerLoop) -> None:
        self._limits = limits
        self._live = live
        self._worker_loop = worker_loop
        self.parts: list[str] = []
        self._left = limits.output_bytes
        self.broken: Exception | None = None  # raised by the listener

    def __call__(self, _stream: str, text: str) -> None:
        data = text.encode(errors="replace")
        over = len(data) > self._left
        fitting = data[: self._left].decode(errors="ignore") if over else text
        self._left = max(0, self._left - len(data))
        if fitting:
            self.parts.append(fitting)
        if fitting and self._live is not None:
            try:
                self._live(fitting)
            except Exception as error:  # noqa: BLE001 - reported to the listener, because it is not the code's fault
                self._live, self.broken = None, error
                self._worker_loop.stop(LimitError("cancelled", "the reader of the output is gone", ""))
        if over:
            self._worker_loop.stop(too_much_printed(self._limits))


class Pipeline:
    """The processing of one text, through all steps to a result. Never raises for errors in the code."""

    def __init__(
        self,
        settings: PipelineSettings,
        tools: SandboxTools,
        text: str,
        allowed: Collection[str] | None = None,
        run: str | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> None:
        """Create a pipeline.

        `run` is the run's ID, if any. `variables` are names and values bound before the code begins.
        """
        self._settings = settings
        self._tools = tools
        self._allowed = allowed
        self._variables = variables or {}
        self._sent = text
        self._started = perf_counter()
        self._calls = 0  # made by the code, set when it has ended
        self._span = ""  # set when the code runs
        self._warnings: list[str] = []  # of the code's calls
        self.made: Made = {}  # outcomes of the code's calls, set if the run has failed
        self.made_names = ""  # the same without arguments, for the audit log if the caller can't be answered
        self._place: CodePlace | None = None  # of the error
        self.run = run
        self.code = text
        self.scan: CodeScan | None = None

    async def prepare(self) -> PreparedCode | RunResult:
        """Return the code to feed to the worker, or the error."""
        text = self.code
        key = "\0".join((text, *self._variables))  # code contains no NUL
        # Whether the result depends only on the text, the names of its variables and the catalogue.
        is_plain = self._allowed is None and len(text) <= LONG_CODE
        known = self._tools.prepared
        if is_plain and (cached := known.get(key)) is not None:
            self.code, prepared = cached
            return prepared
        try:
            if len(text) <= LONG_CODE:
                prepared = self._prepare()
            else:
                prepared = await self._settings.threads.run(self._prepare, {})  # parsing may take long
        except _Refused as refused:
            return self._result(error=refused.error)
        if is_plain and len(self.code) <= LONG_CODE:
            if len(known) >= MAX_PREPARED:
                known.pop(next(iter(known)), None)  # the oldest; another thread may have removed it already
            known[key] = self.code, prepared
        return prepared

    def check(self) -> ToolError | None:
        """Return the error in the code, if any. Runs nothing."""
        try:
            self._prepare()
        except _Refused as refused:
            return refused.error
        if self.scan is not None and self.scan.tree is None:
            return ToolError(code="invalid_args", message=why_not(self.code), reason="syntax")
        return None

    def report(self) -> CodeReport:
        """Return all errors in the code with their places, and the tools that it calls. Runs nothing."""
        try:
            self.code = self._read(self.code)
        except ScriptError as error:
            return CodeReport(errors=[CodeFault(message=str(error), line=1)])
        self.scan = scan = CodeScan(self.code)
        if scan.tree is None:
            if (error := syntax_error(self.code)) is None:  # too long for this Python's parser; the sandbox will try
                return CodeReport()
            place = self._sent_place(place_of_syntax_error(self.code, error))
            return CodeReport(errors=[CodeFault.at(f"SyntaxError: {error.msg}", place, error.lineno or 1)])
        scan.bound.update(self._variables.keys())
        names = self._tools.names
        findings = check(scan, names, MODULES, self._allowed)
        faults = [
            CodeFault.at(
                f"{finding.spec.name}: {finding.message}" if finding.spec else finding.message,
                self._sent_place(self._place_of(finding)),
                finding.line,
            )
            for finding in findings
        ]
        return CodeReport(errors=faults, calls=called_tools(scan, names, MODULES))

    def _place_of(self, finding: CodeFinding) -> CodePlace:
        return (
            place_of_lines(self.code, finding.line, finding.line)
            if finding.node is None
            else place_of_node(self.code, finding.node)
        )

    def _sent_place(self, place: CodePlace | None) -> CodePlace | None:
        return None if place is None else in_sent_text(self._sent, self.code, place)

    async def execute(
        self,
        prepared: PreparedCode,
        sessions: OpenSession,
        context: CallContext,
        live: OnPrinted | None = None,
        slot: Slot | None = None,
    ) -> RunResult:
        """Run the code in a thread, until it ends or its time is up."""
        settings, span = self._settings, self._begin_span(context)
        worker_loop = WorkerLoop(
            self._tools,
            settings.call_tool,
            context,
            settings.limits,
            self._variables,
            slot,
        )
        printed = PrintedOutput(settings.limits, live, worker_loop)
        driven = settings.threads.drive(_feed(sessions, worker_loop, prepared, printed, context, span))
        try:
            async with within_deadline(context, GRACE):
                try:
                    value = await driven
                finally:
                    self._calls, self._warnings = worker_loop.calls, [*dict.fromkeys(worker_loop.warnings)]
        except TimeoutError:
            worker_loop.stop(too_slow(settings.limits))
            error: BaseException = too_slow(settings.limits)
        except asyncio.CancelledError as stopped:
            worker_loop.stop(cancelled())
            self.made, self.made_names = worker_loop.made.summary(), worker_loop.made.names()
            for line in made_lines(self.made):  # for callers that can't be answered
                stopped.add_note(line)
            raise
        except Exception as raised:  # noqa: BLE001 - any error that ends the run is reported
            error = raised
        else:
            return self._result(printed, value=value, flow=worker_loop.made.only_ot())
        if printed.broken is not None:
            raise printed.broken
        self.made = worker_loop.made.summary()
        failure = self._failure(worker_loop.stopped_by or error, worker_loop)
        if isinstance(error, CodeError) and (whole := worker_loop.whole_messages.get(error.message)):
            failure = await self._with_handle(failure, whole)
        error.__traceback__ = None  # breaks a reference cycle that keeps the code's objects alive
        return self._result(printed, error=failure)

    async def _with_handle(self, failure: ToolError, whole: str) -> ToolError:
        """Store a tool's long message, and return the error with the call that reads it."""
        if self._settings.store is None:
            return failure
        from onetool.script.render import in_code

        try:
            stored = await asyncio.to_thread(self._settings.store, whole)
        except ToolFailure:  # the beginning and the end have to do
            return failure
        return msgspec.structs.replace(failure, message=shorten_message(whole, partial(in_code, stored.handle)))

    def _begin_span(self, context: CallContext) -> Span | None:
        """Start the sandbox span, the parent of the code's calls. Return None if spans aren't exported."""
        if (trace := current_trace.get()) is None or trace.record_span is None:
            return None
        if self.run is not None:
            self._span = parent = new_span_id()
        else:  # without an event of its own: it belongs to the tool's call
            parent = trace.span_id if (outer := current_call.get()) is None else outer.span
        return Span("sandbox", trace, trace.record_span, parent, context.span, is_client=False)

    def event(self, run: str, source: str, error: ToolError | None) -> RunEvent:
        """Return the event for recorders after the end of the run."""
        return RunEvent(
            id=run,
            source=source,
            client=client_name(),
            duration_ms=self._elapsed_ms(),
            code_bytes=len(self._sent.encode("utf-8", "replace")),
            code=self._sent,
            calls=self._calls,
            made=self.made_names,
            error=error,
            principal=current_principal.get(),
            address=current_address.get(),
            trace=(trace := current_trace.get()),
            span=self._span,
            parent=outer.span if (outer := current_call.get()) is not None else "" if trace is None else trace.span_id,
        )

    def refusal_result(self, why: LimitError | ToolFailure) -> RunResult:
        """Return the result of code that was refused before it ran."""
        hints = (why.hint,) if isinstance(why, LimitError) else why.hints
        return self._result(error=ToolError(code="execution_error", message=str(why), reason=why.reason, hints=hints))

    def _prepare(self) -> PreparedCode:
        try:
            self.code = self._read(self.code)
        except ScriptError as error:
            raise _Refused(ToolError(code="invalid_args", message=str(error), reason="syntax")) from None
        self.scan = scan = CodeScan(self.code)
        scan.bound.update(self._variables.keys())
        if findings := check(scan, self._tools.names, MODULES, self._allowed):
            raise _Refused(self._refusal(findings))
        return prepare(scan, self._tools.names)

    def _read(self, text: str) -> str:
        code = read(text)
        if code.lstrip().startswith("$"):  # never Python
            from onetool.script.snippets import SnippetError, expand, visible_snippets

            try:
                snippets = visible_snippets(self._settings.snippets, self._tools.names, self._allowed)
                code = read(expand(code, snippets))
            except SnippetError as error:
                raise ScriptError(str(error)) from None
        if not code.lstrip().startswith("+"):  # not always a call line, since Python can begin with a plus
            return code
        from onetool.script.call_lines import expand_call_line

        return expand_call_line(code, self._tools.names, self._allowed, self._variables)

    def _refusal(self, findings: list[CodeFinding]) -> ToolError:
        self._place = self._place_of(findings[0])
        message, hints = findings_text(findings, self._tools.names)
        if not hints:  # the missing name may be a tool's name that is not a Python identifier
            line = self.code.split("\n")[findings[0].line - 1]
            hints = rename_advice(line, self._tools.names, self._allowed)
        return ToolError(code="invalid_args", message=message, reason="check", hints=hints)

    def _failure(self, error: BaseException, worker_loop: WorkerLoop) -> ToolError:
        names = self._tools.names
        if isinstance(error, WrongTypesError):
            return self._refusal(error.findings)
        limits, loop = self._settings.limits, worker_loop
        scene = RunScene(self.code, loop.feed, names, limits, loop.failures, self._allowed, loop.returned)
        if (lines := failed_lines(error, scene)) is not None:
            self._place = place_of_lines(self.code, *lines)
        return failure(error, scene)

    def _result(
        self,
        printed: PrintedOutput | None = None,
        *,
        value: Any = None,
        error: ToolError | None = None,
        flow: bool = False,
    ) -> RunResult:
        """Return the caller's result. Nothing is masked here: secrets from tools were masked on their way to the code.

        Everything else derives from what the caller sent, and a mask would confirm a guessed secret.
        """
        meta: dict[str, Any] = {"run": self.run, "calls": self._calls, "duration_ms": self._elapsed_ms()}
        if self._warnings:
            meta["warnings"] = self._warnings
        if error is not None and self.made:
            meta["made"] = self.made
        if error is not None and (place := self._sent_place(self._place)) is not None:
            meta["place"] = msgspec.to_builtins(place)
        text = "".join(printed.parts) if printed else ""
        return RunResult(ok=error is None, data=value, error=error, meta=meta, printed=text, flow=flow)

    def _elapsed_ms(self) -> float:
        return round((perf_counter() - self._started) * 1000, 3)


class _Refused(Exception):  # noqa: N818 - carries an error, is never seen outside
    def __init__(self, error: ToolError) -> None:
        super().__init__(error.message)
        self.error = error


async def _feed(
    sessions: OpenSession,
    worker_loop: WorkerLoop,
    prepared: PreparedCode,
    printed: PrintedOutput,
    context: CallContext,
    span: Span | None,
) -> Any:
    """Open a session and run the code in it."""
    current_call.set(context)
    with span or nullcontext(), sessions(prepared) as session:
        try:
            return await worker_loop.run(session, prepared, printed)
        except BaseException as error:
            # Unless the code failed with its own error, its worker has hit a limit, or still waits for an answer.
            is_own = isinstance(error, CodeSyntaxError) or (isinstance(error, CodeError) and not is_limit(error))
            if isinstance(error, WorkerError) or not (worker_loop.ended or is_own):
                session.kill()
            raise
