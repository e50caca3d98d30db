"""One feed of code through a worker: the code asks, we answer, until it ends.

Runs in a thread of its own. A question is a tool to call, a name to look up, a sleep; everything else that code may
want of a machine is refused. Calls whose value is awaited are answered with a future and run side by side on the
event loop; all others are answered with their value.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from threading import Event, Lock
from time import monotonic
from typing import Any

from pydantic_monty import (
    ClassInstance,
    FunctionSnapshot,
    FutureSnapshot,
    MontyComplete,
    MontyTypingError,
    NameLookupSnapshot,
)

from onetool.core.arguments import by_name
from onetool.core.call import ToolCall, ToolError, ToolResult
from onetool.core.context import CallContext
from onetool.core.executor import Executor
from onetool.core.spec import ToolSpec
from onetool.script.awaits import Span
from onetool.script.check import Finding
from onetool.script.limits import LimitHit, Limits, too_large, too_many_calls, too_much_printed
from onetool.script.names import CALL, Names
from onetool.script.prepare import Prepared
from onetool.script.sandbox import Worker
from onetool.script.typecheck import findings
from onetool.script.underway import Answer, UnderWay
from onetool.script.values import Crossing, NeverAwaited, TooLarge

Snapshot = FunctionSnapshot | NameLookupSnapshot | FutureSnapshot | MontyComplete

SLEEPS = {"system.sleep", "time.sleep", "system.async_sleep", "asyncio.sleep"}
# What code sees when a tool fails: exceptions that it can catch by what went wrong.
EXCEPTIONS = {"timeout": "TimeoutError", "denied": "PermissionError", "not_found": "FileNotFoundError"}
ARGUMENT_BYTES = 16 * 1024 * 1024  # that one tool call may be given


class Tools:
    """The tools that a run can reach, as the sandbox needs them. Made once per catalogue, shared by its runs."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._objects: dict[str, ClassInstance] = {}
        self._packs: dict[Any, str] = {}

    def value(self, word: str) -> Any:
        """What a name stands for in the sandbox: a pack, or a function. None when it is neither."""
        if word in self.names.functions:
            return _function(word)
        if (pack := self.names.pack(word)) is None:
            return None
        if word not in self._objects:
            # A class of its own, named like the pack: it is what the sandbox says when an attribute is missing.
            shown = f"<pack {word}: {', '.join(pack.tools)}>"
            self._objects[word] = ClassInstance(type(word, (), {"__str__": lambda _: shown})())
            self._packs[self._objects[word].id] = pack.word
        return self._objects[word]

    def dotted(self, receiver: Any, name: str) -> str:
        """The name of what was called or asked for, with its pack before it."""
        return f"{self._packs[receiver]}.{name}" if receiver in self._packs else name


def _function(name: str) -> Callable[..., Any]:
    def stub(*_: Any, **__: Any) -> None:
        raise AssertionError("the sandbox asks for a tool by its name; nothing is called here")

    stub.__name__ = stub.__qualname__ = name
    return stub


class WrongTypes(Exception):  # noqa: N818 - carries findings
    """The type checker is sure that calls of our tools are wrong; nothing has run."""

    def __init__(self, found: list[Finding]) -> None:
        super().__init__()
        self.findings = found


class Printed:
    """What the code prints, up to a limit; and when it goes over that, the run is stopped."""

    def __init__(self, limits: Limits, live: Callable[[str], None] | None, stop: Callable[[LimitHit], None]) -> None:
        self._limits = limits
        self._live = live
        self._stop = stop
        self._parts: list[str] = []
        self._left = limits.output_bytes

    def __call__(self, _stream: str, text: str) -> None:
        size = len(text.encode(errors="replace"))
        kept = text if size <= self._left else text[: self._left]
        over = size > self._left
        self._left = max(0, self._left - size)
        if kept:
            self._parts.append(kept)
            if self._live is not None:
                self._live(kept)
        if over:
            self._stop(too_much_printed(self._limits))

    @property
    def text(self) -> str:
        return "".join(self._parts)


class Drive:
    """Answers the questions of one piece of code. `stop` ends it from any thread."""

    def __init__(
        self,
        tools: Tools,
        executor: Executor,
        context: CallContext,
        limits: Limits,
        live: Callable[[str], None] | None = None,
    ) -> None:
        self._tools = tools
        self._executor = executor
        self._context = context
        self._limits = limits
        self._worker: Worker | None = None
        self._lock = Lock()
        self._stopped = Event()
        self._under_way = UnderWay(context.loop)
        self._futures: Mapping[str, Collection[Span]] = {}
        self.stopped_by: LimitHit | None = None
        self.failures: dict[str, ToolError] = {}
        self.calls = 0
        self.feed = ""  # what the sandbox calls the code of this run, in its tracebacks
        self.printed = Printed(limits, live, self.stop)

    def run(self, worker: Worker, prepared: Prepared) -> Any:
        """The value of the code's last expression, as plain data. Raises LimitHit, or what the sandbox raises."""
        with self._lock:
            self._worker = worker
        self._raise_if_stopped()
        self._futures = worker.futures
        try:
            question = self._start(worker, prepared)
            while not isinstance(question, MontyComplete):
                self._raise_if_stopped()
                question = self._answered(question)
            self._raise_if_stopped()
            return self._plain(question.output, "the result", self._limits.output_bytes)
        except NeverAwaited:
            raise NeverAwaited("the result holds a tool call that was never awaited") from None
        finally:
            self._under_way.stop()  # what nobody awaited

    @property
    def names(self) -> Names:
        return self._tools.names

    def _start(self, worker: Worker, prepared: Prepared) -> Snapshot:
        if prepared.prelude:
            worker.start(prepared.prelude, {}, self.printed, checked=False)
        inputs = {name: self._tools.value(word) for name, word in prepared.words.items()}
        self.feed = worker.next_feed
        try:
            return worker.start(prepared.code, inputs, self.printed, prepared.futures)
        except MontyTypingError as error:
            if found := findings(error.display(), self._tools.names):
                raise WrongTypes(found) from None
        # It complained of other things than our tools: that is the code's own business.
        return worker.start(prepared.code, inputs, self.printed, prepared.futures, checked=False)

    def stop(self, why: LimitHit) -> None:
        """End it now: the worker is killed, the calls under way are cancelled. The first reason is the one told."""
        with self._lock:
            if self.stopped_by is None:
                self.stopped_by = why
            worker = self._worker
        self._stopped.set()
        if worker is not None:
            worker.kill()
        self._under_way.stop()

    def _raise_if_stopped(self) -> None:
        if self.stopped_by is not None:
            raise self.stopped_by

    def _answered(self, question: Snapshot) -> Snapshot:
        if isinstance(question, FunctionSnapshot):
            if question.is_os_function:
                return self._machine(question)
            return question.resume(self._call(question))
        if isinstance(question, NameLookupSnapshot):
            return self._name(question)
        if isinstance(question, FutureSnapshot):
            return question.resume(self._finished(question.pending_call_ids))
        raise AssertionError(f"a question that there is not: {question!r}")

    # Names

    def _name(self, question: NameLookupSnapshot) -> Snapshot:
        name = self._tools.dotted(question.object_id, question.variable_name)
        value = self._tools.value(name) if question.object_id is None else None
        if value is None and self._tools.names.tool(name) is not None:
            value = _function(name)
        return question.resume() if value is None else question.resume(value=value)

    # What code wants of the machine: it may sleep, and that is all

    def _machine(self, question: FunctionSnapshot) -> Snapshot:
        if question.function_name not in SLEEPS:
            return question.resume_not_handled()
        seconds = float(question.args[0]) if question.args else 0.0
        if "async" in question.function_name:
            return question.resume(self._later(question, _slept(seconds)))
        self._stopped.wait(max(0.0, min(seconds, self._context.deadline - monotonic())))
        self._raise_if_stopped()
        return question.resume({"return_value": None})

    # Tools

    def _call(self, question: FunctionSnapshot) -> Answer:
        name = self._tools.dotted(question.object_id, str(question.function_name))
        spec = self._tools.names.tool(name)
        if spec is None:
            return _raised("NameError", f"name {name!r} is not defined")
        self.calls += 1
        if self.calls > self._limits.calls:
            self.stop(too_many_calls(self._limits))
            self._raise_if_stopped()
        try:
            args = by_name(spec, question.args, question.kwargs)
            call = self._tool_call(spec, self._plain(args, f"what {name} was given", ARGUMENT_BYTES))
        except (TypeError, NeverAwaited) as error:
            return _raised("TypeError", str(error))
        position = question.position
        if (position.start, position.end) in self._futures.get(position.filename, ()):
            return self._later(question, self._executed(call))
        return self._at_once(question, call)

    def _tool_call(self, spec: ToolSpec, args: dict[str, Any]) -> ToolCall:
        """`ot.call` is how code says a name that it can't say: the call is that of the tool which it names."""
        name = spec.name
        if spec is CALL:
            name, inner = args.pop("name", None), args.pop("args", None) or {}
            if not isinstance(name, str) or not isinstance(inner, dict):
                raise TypeError('ot.call takes the name of a tool and its arguments: ot.call("pack.tool", {"key": 1})')
            args = {**inner, **args}
        return ToolCall(f"{self._context.call.id}/{self.calls}", name, args, self._context.call.source)

    def _plain(self, value: Any, what: str, most_bytes: int) -> Any:
        try:
            return Crossing(most_bytes).plain(value)
        except TooLarge:
            raise too_large(most_bytes, what) from None

    def _at_once(self, question: FunctionSnapshot, call: ToolCall) -> Answer:
        catalogue = self._tools.names.catalogue
        spec = catalogue.get(call.name)
        if spec is None or not spec.is_async:  # this thread is as good as any
            return self._answer(self._executor.execute_blocking(call, tools=catalogue))
        self._under_way.begin(question.call_id, self._executed(call))
        return self._finished([question.call_id])[question.call_id]

    async def _executed(self, call: ToolCall) -> Answer:
        return self._answer(await self._executor.execute(call, tools=self._tools.names.catalogue))

    def _later(self, question: FunctionSnapshot, work: Coroutine[Any, Any, Answer]) -> Answer:
        self._under_way.begin(question.call_id, work)
        return {"future": ...}

    def _finished(self, wanted: list[int]) -> dict[int, Answer]:
        """The answers that are there, once there is one."""
        found = self._under_way.answers(wanted)
        self._raise_if_stopped()
        return found

    def _answer(self, result: ToolResult) -> Answer:
        if result.error is None:
            return {"return_value": result.data}
        self.failures[result.error.message] = result.error
        return _raised(_exception_for(result.error), result.error.message)


async def _slept(seconds: float) -> Answer:
    await asyncio.sleep(seconds)
    return {"return_value": None}


def _raised(kind: str, message: str) -> Answer:
    return {"exc_type": kind, "message": message}


def _exception_for(error: ToolError) -> str:
    if error.code == "invalid_args":
        return "ValueError"
    if error.code == "tool_not_found" and error.reason is None:
        return "LookupError"
    return EXCEPTIONS.get(error.reason or "", "RuntimeError")
