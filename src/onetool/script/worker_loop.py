"""WorkerLoop: feeds one piece of code to a worker and answers its questions until it ends.

The loop is a coroutine in its own thread (`Threads.drive`). A question is a tool call, a name lookup or a sleep; all
other OS calls are refused. Awaited calls are answered with a future and run concurrently on the event loop; all others
are answered with their value. A blocking tool runs in the run's own thread; if it exceeds its deadline, the run
continues in another thread. One queue receives the answers of all futures, and stopping the run wakes its thread
through the same queue.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from threading import TIMEOUT_MAX, Event, Lock
from typing import Any, cast

from msgspec import UNSET, UnsetType

from onetool.core.call import ToolCall, ToolError, ToolResult
from onetool.core.context import CallContext, CallTool, Gate
from onetool.core.errors import ToolFailure, cut
from onetool.core.paginator import Paginator, PagingError
from onetool.core.registry import Snapshot
from onetool.core.signature import arguments_by_name, takes_others
from onetool.core.spec import ToolSpec
from onetool.core.text import MAX_NAME, MAX_UNKNOWN, or_rather
from onetool.sandbox import (
    MessageTooLargeError,
    NeverAwaitedError,
    SandboxError,
    TooLargeError,
    TypeCheckError,
)
from onetool.sandbox.messages import (
    Answer,
    Complete,
    FunctionCall,
    NameLookup,
    NotHandled,
    OsCall,
    Pending,
    Raised,
    ResolveFutures,
    Returned,
    WorkerQuestion,
)
from onetool.sandbox.pool import OnPrint, WorkerSession
from onetool.script.check import CodeFinding
from onetool.script.names import ALL, CALL, LANGUAGE, SandboxTools
from onetool.script.parse import Span
from onetool.script.pending_futures import CancelWork, PendingFutures, Work
from onetool.script.rewrite import PreparedCode
from onetool.script.run_result import (
    ARGUMENT_BYTES,
    CallLog,
    LimitError,
    RunLimits,
    too_large,
    too_many_calls,
    too_slow,
)
from onetool.script.slots import Slot
from onetool.script.type_stubs import type_findings

MAX_REMEMBERED = 8
SLOT = -2  # not the number of any call

# Exceptions for the code
EXCEPTION_BY_REASON = {"timeout": "TimeoutError", "denied": "PermissionError", "not_found": "FileNotFoundError"}
PER_CALL = 4  # questions that one tool call may need: a name, an attribute, the call, its future
SPARE = 1000  # further questions
MAX_WARNINGS = 20  # shown to the caller


class WrongTypesError(Exception):
    """The type checker found invalid calls of our tools; nothing has run."""

    def __init__(self, found: list[CodeFinding]) -> None:
        super().__init__()
        self.findings = found


class WorkerLoop:
    """A loop that runs one piece of code in a worker and answers its questions. `stop` ends it from any thread."""

    def __init__(
        self,
        tools: SandboxTools,
        call_tool: CallTool,
        context: CallContext,
        limits: RunLimits,
        variables: Mapping[str, Any] | None = None,
        slot: Slot | None = None,
    ) -> None:
        self._slot = slot
        self._tools = tools
        self._variables = variables or {}
        self._call_tool = call_tool
        self._context = context
        self._limits = limits
        self._session: WorkerSession | None = None
        self._lock = Lock()
        self._stopped = Event()
        self._pending = PendingFutures(context.loop)
        self._futures: Collection[Span] = ()
        self._questions = 0
        self.stopped_by: LimitError | None = None
        self.failures: dict[str, ToolError] = {}
        self.whole_messages: dict[str, str] = {}  # of the last failures with long messages
        self.returned: dict[str, Any] = {}  # the last values of some tools, for errors that list their keys
        self.made = CallLog(tools.names.catalogue)
        self.calls = 0
        self.warnings: list[str] = []  # of its calls, for the reader of the result
        self.ended = False  # the code has ended, even if its value is invalid
        self.feed = ""  # the name of this run's code in the sandbox's tracebacks

    async def run(self, session: WorkerSession, prepared: PreparedCode, printed: OnPrint) -> Any:
        """Return the value of the code's last expression as plain data.

        Raise LimitError and errors from the sandbox.
        """
        with self._lock:
            self._session = session
        self._raise_if_stopped()
        self._futures = prepared.futures
        try:
            question = self._start(session, prepared, printed)
            while not isinstance(question, Complete):
                self._raise_if_stopped()
                question = await self._answer_question(session, question)
            self.ended = True
            try:
                return question.value(self._limits.output_bytes, self._raise_if_stopped)
            except TooLargeError:
                raise too_large(self._limits.output_bytes, "the result") from None
        except MessageTooLargeError as error:
            raise too_large(error.limit, error.what) from None
        except (LimitError, SandboxError) as error:
            question = None  # kept errors must not keep the objects of these frames alive
            error.__context__ = None
            raise error.with_traceback(None) from None
        finally:
            self._pending.stop()  # calls that were not awaited

    def stop(self, why: LimitError) -> None:
        """End the run now: kill the worker and cancel its pending calls. The first reason is reported."""
        with self._lock:
            if self.stopped_by is None:
                self.stopped_by = why
            session = self._session
        self._stopped.set()
        if session is not None:
            session.kill()
        self._pending.stop()

    def _start(self, session: WorkerSession, prepared: PreparedCode, printed: OnPrint) -> WorkerQuestion:
        if prepared.prelude:
            session.feed(prepared.prelude, {}, printed, check_types=False)
        inputs = {name: self._tools.value(word) for name, word in prepared.words.items()} | dict(self._variables)
        self.feed = session.next_feed
        try:
            return session.feed(prepared.code, inputs, printed)
        except TooLargeError:
            raise too_large(ARGUMENT_BYTES, "the input of the code") from None
        except TypeCheckError as error:
            if found := type_findings(error.diagnostics, self._tools.names):
                self.ended = True
                raise WrongTypesError(found) from None
        # The findings are not about our tools, so they are ignored.
        return session.feed(prepared.code, inputs, printed, check_types=False)

    def _raise_if_stopped(self) -> None:
        """Raise if the run was stopped. The exception is always new, since a shared one would keep its frames alive."""
        if self.stopped_by is not None:
            raise self.stopped_by.again()

    async def _answer_question(self, session: WorkerSession, question: WorkerQuestion) -> WorkerQuestion:
        self._questions += 1
        if self._questions > self._limits.calls * PER_CALL + SPARE:
            self.stop(too_many_calls(self._limits))
            self._raise_if_stopped()
        match question:
            case FunctionCall():
                answer = await self._call(question)
            case NameLookup():
                tools, id, name = self._tools, question.object_id, question.name
                return session.resume_name(tools.member(id, name) if id else tools.value(name))
            case ResolveFutures():
                return session.resume_futures(self._finished(question.call_ids))
            case OsCall():
                answer = self._os_call(question)
            case Complete():
                raise AssertionError("code that has ended asks no questions")
        self._raise_if_stopped()  # while the tool ran
        return session.resume(question, answer)

    def _os_call(self, question: OsCall) -> Answer:
        """Answer an OS call of the code: only sleeping is allowed."""
        if not question.is_sleep:
            return NotHandled()
        if question.is_async:
            loop, seconds = self._context.loop, max(0.0, question.seconds)
            work: Work = lambda answered: loop.call_later(seconds, answered, Returned(None)).cancel  # noqa: E731
            self._pending.begin(question.call_id, work)
            return Pending()
        # A sleep beyond the deadline is stopped at the deadline.
        self._stopped.wait(min(max(0.0, question.seconds), TIMEOUT_MAX))
        self._raise_if_stopped()
        return Returned(None)

    # Tools

    async def _call(self, question: FunctionCall) -> Answer:
        name = self._tools.dotted(question.object_id, question.name)
        spec = self._tools.names.tool(name)
        if spec is None and (pack := name.removesuffix(".__call__")) != name:
            return Raised("TypeError", f"{pack} is a pack; call one of its tools: {pack}.tool(…)")
        if spec is None:
            return Raised("NameError", f"name {cut(name, MAX_NAME)!r} is not defined")
        gate, is_future = self._context.gate, False
        if self._futures:
            position = question.position
            is_future = position.filename == self.feed and (position.start, position.end) in self._futures
        number = 0 if spec is ALL else self._count_call()  # the pages are counted instead
        self._raise_if_stopped()
        try:
            args = self._arguments(spec, question)
            if spec is ALL:
                self._pending.begin(question.call_id, self._execute_all(*self._all_pages(args), gate))
                return Pending() if is_future else self._value_of(question.call_id)
            call = self._tool_call(spec, args, number)
        except (TypeError, ValueError) as error:
            is_type = isinstance(error, TypeError | NeverAwaitedError)
            return Raised("TypeError" if is_type else "ValueError", str(error))
        self._begin(call)
        if is_future:
            self._pending.begin(question.call_id, self._execute(call, gate))
            return Pending()
        catalogue = self._tools.names.catalogue
        called = catalogue.get(call.name)  # ot.call names another tool
        if gate is not None or (called is not None and called.is_async):
            self._pending.begin(question.call_id, self._execute(call, gate))
            return self._value_of(question.call_id)
        if self._slot is not None:
            self._slot.wait(True)
        result = await self._called(call, catalogue)  # nothing needs the event loop
        self._reclaim_slot()
        return self._answer(call, result)

    async def _called(self, call: ToolCall, catalogue: Snapshot, gate: Gate | None = None) -> ToolResult:
        if call.called_via is UNSET:
            return await self._call_tool(call, tools=catalogue, gate=gate)
        from onetool.sdk import LogSpan  # rarely needed

        result = None
        with suppress(ToolFailure), LogSpan(call.called_via, tool=call.name):
            result = await self._call_tool(call, tools=catalogue, gate=gate)
            if result.error is not None:  # the span has failed, too
                raise ToolFailure(result.error.message)
        return cast(ToolResult, result)

    def _count_call(self) -> int:
        """Count a call and return its number. Stop the run if there are too many."""
        with self._lock:
            self.calls += 1
            number = self.calls
        if number > self._limits.calls:
            self.stop(too_many_calls(self._limits))
        return number

    def _begin(self, call: ToolCall) -> None:
        self.made.began(call)
        if (watch := self._context.watch) is not None:
            watch.began(call)

    def _arguments(self, spec: ToolSpec, question: FunctionCall) -> dict[str, Any]:
        """Return the arguments. Raise TypeError and ValueError, which code can catch, if they are invalid."""
        count, most = len(question.named), len(spec.order)
        if count > most + MAX_UNKNOWN and spec is not CALL and not takes_others(spec):
            raise TypeError(f"{spec.name} takes at most {most} arguments, got {count:,}")
        try:
            given, named = question.arguments(ARGUMENT_BYTES, self._raise_if_stopped)
        except TooLargeError:
            raise too_large(ARGUMENT_BYTES, f"the input of {spec.name}") from None
        return arguments_by_name(spec, given, named)

    def _tool_call(self, spec: ToolSpec, args: dict[str, Any], number: int) -> ToolCall:
        name, called_via = spec.name, UNSET
        if spec is CALL:  # the call is that of the tool it names
            name, inner = args.pop("name", None), args.pop("args", None) or {}
            if not isinstance(name, str) or not isinstance(inner, dict):
                raise TypeError('ot.call takes the name of a tool and its arguments: ot.call("pack.tool", {"key": 1})')
            args = {**inner, **args}
            meant = None if name in self._tools.names.catalogue else self._tools.names.tool(name)
            name, called_via = name if meant is None else meant.name, CALL.name
        return self._new_call(number, name, args, called_via)

    def _new_call(self, number: int, name: str, args: dict[str, Any], called_via: str | UnsetType = UNSET) -> ToolCall:
        context = self._context.call
        return ToolCall(f"{context.id}/{number}", name, args, context.source, called_via=called_via)

    def _all_pages(self, args: dict[str, Any]) -> tuple[str, Paginator]:
        """Return the name of the tool passed to `ot.all`, and its paginator."""
        given, inner, limit, key = (args.pop(name, None) for name in ("tool", "args", "limit", "key"))
        names = self._tools.names
        spec = (names.tool(given) or names.catalogue.get(given)) if isinstance(given, str) else None
        if spec is None and isinstance(given, str):
            every, allowed = names.catalogue.names(), self._context.allowed
            near = or_rather(given, every if allowed is None else [one for one in every if one in allowed])
            raise TypeError(f"ot.all: there is no tool {cut(repr(given), MAX_NAME)}{near}")
        if spec is None or spec in LANGUAGE or not isinstance(inner or {}, dict):
            shown = cut(repr(given), MAX_NAME)
            raise TypeError(f"ot.all takes a tool and its arguments, ot.all(pack.tool, key=value), and not {shown}")
        if not isinstance(limit, int | None) or (limit is not None and limit < 1) or not isinstance(key, str | None):
            raise TypeError("ot.all: limit must be an integer of at least 1, and key a string")
        return spec.name, Paginator(spec, {**(inner or {}), **args}, limit, key)

    def _execute_all(self, name: str, pages: Paginator, gate: Gate | None) -> Work:
        """Return the work that calls a tool on the loop page by page. Each page is a call of its own."""

        async def execute(answered: Callable[[Answer], None]) -> None:
            while pages.next_args is not None:
                number = self._count_call()
                if self.stopped_by is not None:
                    return
                call = self._new_call(number, name, pages.next_args)
                self._begin(call)
                result = await self._call_tool(call, tools=self._tools.names.catalogue, gate=gate)
                answer = self._answer(call, result)
                if not isinstance(answer, Returned):
                    answered(answer)
                    return
                try:
                    pages.add(result.data)
                except PagingError as error:
                    answered(Raised("ValueError", str(error)))
                    return
            answered(Returned(pages.items))

        return lambda answered: self._context.loop.create_task(execute(answered)).cancel

    def _execute(self, call: ToolCall, gate: Gate | None) -> Work:
        """Return the work that runs the call on the loop, after passing the gate, if any."""
        catalogue = self._tools.names.catalogue

        async def execute(answered: Callable[[Answer], None]) -> None:
            answered(self._answer(call, await self._called(call, catalogue, gate)))

        return lambda answered: self._context.loop.create_task(execute(answered)).cancel

    def _value_of(self, number: int) -> Answer:
        return self._finished([number])[number]

    def _finished(self, wanted: list[int]) -> dict[int, Answer]:
        """Wait for at least one answer, and return those that have arrived."""
        if self._slot is not None:
            self._slot.wait(True)
        found = self._pending.answers(wanted)
        self._reclaim_slot()
        self._raise_if_stopped()
        return found

    def _reclaim_slot(self) -> None:
        """Record that the code no longer waits for answers. If the run has lost its slot, wait for a slot."""
        if self._slot is not None and not self._slot.wait(False):
            self._pending.begin(SLOT, partial(self._take_slot, self._slot))
            self._pending.answers([SLOT])

    def _take_slot(self, slot: Slot, answered: Callable[[Answer], None]) -> CancelWork:
        ticket = slot.take()

        async def wait() -> None:
            with self._context.pauses or nullcontext():  # not counted as run time, like the wait for the first slot
                await asyncio.wrap_future(ticket)
            answered(Returned(None))

        return self._context.loop.create_task(wait()).cancel

    def _answer(self, call: ToolCall, result: ToolResult) -> Answer:
        if (watch := self._context.watch) is not None:
            watch.ended(call, result)
        self.warnings += [one for one in result.meta.get("warnings", ()) if len(self.warnings) < MAX_WARNINGS]
        if result.error is None:
            self.made.ended(call, result)
            if isinstance(result.data, dict | list):
                _remember(self.returned, call.name, result.data)
            return Returned(result.data)
        if result.error.reason == "timeout" and self._context.left() <= 0:
            self.stop(too_slow(self._limits))  # the time of the run is up, not only that of the tool
        else:
            self.made.ended(call, result)
        self.failures[result.raised] = result.error
        if whole := result.whole_message:
            _remember(self.whole_messages, result.raised, whole)
        kind = EXCEPTION_BY_REASON.get(result.error.reason or "", "RuntimeError")
        if result.error.code == "invalid_args":
            kind = "ValueError"
        elif result.error.code == "tool_not_found" and result.error.reason is None:
            kind = "LookupError"
        return Raised(kind, result.raised)


def _remember(values: dict[str, Any], key: str, value: Any) -> None:
    """Add a value, and forget the oldest if there are too many."""
    if key not in values and len(values) >= MAX_REMEMBERED:
        del values[next(iter(values))]
    values[key] = value
