"""Executor: runs a ToolCall and returns a ToolResult.

Each call is looked up, checked against the allow-list, prepared, validated, run within its deadline, validated again
(its output) and recorded. Every interface (`run`, the command line, REST, MCP, `ask`, other tools) calls the executor,
and only the executor turns a value or an exception into a result.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from time import monotonic, perf_counter
from traceback import format_exception
from typing import Any, Protocol, cast

from msgspec.structs import replace

from onetool.core.call import (
    Code,
    Pauses,
    ServerResult,
    ToolCall,
    ToolError,
    ToolResult,
    WrongArgument,
    client_name,
    is_seconds,
    wrong_arguments,
)
from onetool.core.context import (
    CallContext,
    CallEvent,
    Environment,
    Gate,
    Journal,
    Progress,
    Recorder,
    current_call,
    pauses_within,
)
from onetool.core.errors import (
    BadArguments,
    OneToolError,
    SchemaError,
    ToolFailure,
    describe_error,
    message_of,
    raised_at,
)
from onetool.core.json_data import AnsweredValue, ServerAnswer, ServerFailure
from onetool.core.lenient import Taken, check_names, taken
from onetool.core.principal import Principal, allowed_by_both, current_address, current_principal
from onetool.core.redaction import mask_values, secret_values
from onetool.core.registry import Snapshot
from onetool.core.running import TRIES, HandlerRunner, HandlerTask
from onetool.core.schema import MOST_PROBLEMS
from onetool.core.signature import signature
from onetool.core.spec import ToolSpec
from onetool.core.text import nearest
from onetool.core.threads import Outcome


class CallRefused(Exception):  # noqa: N818 - carries a result, is never seen outside of the executor
    def __init__(self, code: Code, message: str, **more: Any) -> None:
        super().__init__(message)
        self.error = ToolError(code=code, message=message, **more)


def not_found(name: str, known: Collection[str], allowed: Collection[str] | None) -> CallRefused:
    near = nearest(name, known if allowed is None else [one for one in known if one in allowed])
    suffix = f"; did you mean {' or '.join(near)}?" if near else ""
    return CallRefused("tool_not_found", f"Tool not found: {name:.200}{suffix}", hints=tuple(near))


def check_allowed(spec: ToolSpec, allowed: Collection[str] | None) -> None:
    """Raises CallRefused if the allow-list does not name the tool."""
    if allowed is not None and spec.name not in allowed:
        raise CallRefused("tool_not_found", f"Tool not allowed here: {spec.name}", reason="denied")
    if not spec.enabled:
        hints = (spec.off,) if spec.off else ()
        raise CallRefused("tool_not_found", f"Tool is switched off: {spec.name}", reason="denied", hints=hints)


DEFAULT_TIMEOUT = 8.0
DEEPEST_CHAIN = 16  # tools that call each other
MISSING_DEPENDENCY = (ImportError, FileNotFoundError)  # what a library or command that is not there looks like
LONGEST_TIMEOUT = 10.0**9  # seconds; what loops and threads can count

log = logging.getLogger("onetool.executor")


Cancel = Callable[[], None]


class ToolLookup(Protocol):
    """What the executor needs of a registry, or of a snapshot of one."""

    def get(self, name: str) -> ToolSpec | None: ...

    def names(self) -> Collection[str]: ...


class Redact(Protocol):
    """Masks the secrets in some data, except those that its reader sent itself."""

    def __call__(self, value: Any, sent: Any = None) -> Any: ...


class Executor:
    """Runs calls against a registry. `timeout` and `retries` are for tools that do not say; see `_retries_of`."""

    def __init__(
        self,
        registry: ToolLookup,
        *,
        allowed: Iterable[str] | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        retries: int = 0,
        environment: Environment | None = None,
        recorders: Iterable[Recorder] = (),
        redact: Redact | None = None,
        journal: Journal | None = None,
    ) -> None:
        if not is_seconds(timeout):
            raise ValueError(f"timeout: expected a number of seconds above 0, got {timeout!r}")
        self._registry = registry
        self._allowed = None if allowed is None else frozenset(allowed)
        self._timeout = timeout
        self._retries = retries
        self._environment = environment
        self._recorders = tuple(recorders)
        self._redact = redact
        self._journal = journal
        self._runner = HandlerRunner()

    async def execute(
        self,
        call: ToolCall,
        allowed: Collection[str] | None = None,
        progress: Progress | None = None,
        tools: ToolLookup | None = None,
        gate: Gate | None = None,
        for_tool: bool = False,
    ) -> ToolResult:
        """Run the call. Never raises for what a tool does; only cancelling it raises.

        `allowed` is this caller's allow-list, where it has one of its own; `progress` is told how far the tool is;
        `tools` are those that this caller began with, where a reload in between must not matter. A call that is all
        right has to pass the `gate`. With `for_tool` the caller is a function of a pack, and its value isn't masked:
        that happens when the calling tool returns.
        """
        steps = self._steps(
            call, tools, allowed, progress, asyncio.get_running_loop(), is_gated=gate is not None, for_tool=for_tool
        )
        try:
            context = next(steps)
            while context.prepares:
                context = steps.send(await self._runner.run(context))
            refused = None if gate is None else await _ask_gate(gate, context)
            steps.send(await self._runner.run(context) if refused is None else (None, refused))
        except StopIteration as end:
            return end.value
        except asyncio.CancelledError:
            with suppress(StopIteration):
                steps.send((None, ToolFailure("cancelled by the caller", reason="cancelled")))
            raise
        raise AssertionError("the generator has ended")

    def begin(self, call: ToolCall, done: Callable[[ToolResult], None], tools: ToolLookup | None = None) -> Cancel:
        """Start the call and report its result to a callback. Returns a function that cancels it."""
        steps = self._steps(call, tools, None, None, asyncio.get_running_loop())
        flight: HandlerTask | None = None

        def go_on(outcome: Outcome | None) -> None:
            nonlocal flight
            try:
                context = next(steps) if outcome is None else steps.send(outcome)
            except StopIteration as end:
                flight = None
                done(end.value)
            else:
                flight = self._runner.start(context, go_on)

        go_on(None)
        return lambda: None if flight is None else flight.cancel()

    def execute_blocking(
        self,
        call: ToolCall,
        allowed: Collection[str] | None = None,
        tools: ToolLookup | None = None,
        for_tool: bool = False,
    ) -> ToolResult:
        """Run the call for a caller that is not async: a tool in a thread that calls another one."""
        outer = current_call.get()
        steps = self._steps(call, tools, allowed, None, outer.loop if outer else None, for_tool=for_tool)
        try:
            context = next(steps)
            while True:
                context = steps.send(self._runner.run_blocking(context))
        except StopIteration as end:
            return end.value

    def _steps(
        self,
        call: ToolCall,
        tools: ToolLookup | None,
        allowed: Collection[str] | None,
        progress: Progress | None,
        loop: asyncio.AbstractEventLoop | None,
        *,
        is_gated: bool = False,
        for_tool: bool = False,
    ) -> Generator[CallContext, Outcome, ToolResult]:
        """The steps of a call as a generator: it yields where a handler runs, and is sent the outcome.

        That is the tool's own handler. Before it come the entry in the journal and the one that prepares its arguments,
        where there are such.
        """
        tools = self._registry if tools is None else tools
        spec = tools.get(call.name)
        if spec is not None and "arguments" not in spec.__dict__:
            spec.compile()  # before the deadline starts
        started = perf_counter()
        origin = _origin()
        data, error, sent, given, notes = None, None, None, None, {}
        call, problems = check_names(call, spec)
        try:
            context = self._context(call, spec, tools, allowed, progress, loop, is_gated, for_tool)
            notes = context.notes
            if problems:
                raise _invalid(context.spec, problems)
            if self._journal is not None and (first := self._journal(call)) is not None:
                _, raised = yield _journaling(context, first)
                if raised is not None:
                    raise self._failure(call, context.spec, raised)
            if context.spec.prepare is not None:
                call = replace(call, args=_prepared((yield _preparing(context)), context.spec))
                context = replace(context, call=call)
            if (given := self._validated(call, context.spec)) is not None:
                call = replace(call, args=given.args)
                context = replace(context, call=call)
                notes |= {"warnings": [*given.warnings]} if given.warnings else {}
            value, raised = yield context
            if context.pauses is not None:
                started += context.pauses.waited()  # for a person's answer: that does not count as the tool's time
            if isinstance(raised, ServerFailure):
                sent = partial(self._masked, raised.sent, call, context.spec)
                raised.hints = () if given is None else _finding(context.spec, given.findings)
            answer = value.sent if type(value) is AnsweredValue else None
            data = self._checked_output(context, value if answer is None else value.value, raised, for_tool)
            if answer is not None:
                sent = partial(self._masked, answer, call)
        except CallRefused as failed:
            error = failed.error
        return self._finish(call, spec, started, origin, data, error, sent, notes, for_tool)

    def _context(
        self,
        call: ToolCall,
        spec: ToolSpec | None,
        tools: ToolLookup,
        allowed: Collection[str] | None,
        progress: Progress | None,
        loop: asyncio.AbstractEventLoop | None,
        is_gated: bool,
        for_tool: bool,
    ) -> CallContext:
        """The context of the handler. A call made by a running tool inherits its allow-list and deadline.

        An allow-list can only narrow another one.
        """
        outer = current_call.get()
        if allowed is not None or self._allowed is not None:
            allowed = allowed_by_both(allowed, self._allowed)
        if outer:
            allowed = allowed_by_both(allowed, outer.allowed)
        if spec is None:
            raise not_found(call.name, tools.names(), allowed)
        check_allowed(spec, allowed)
        chain = (*outer.chain, call.name) if outer else (call.name,)
        if len(chain) > DEEPEST_CHAIN:
            raise CallRefused(
                "execution_error", f"tools call each other too deep: {' -> '.join(chain)}", reason="recursion"
            )
        seconds = call.own_timeout if call.own_timeout is not None else spec.timeout or self._timeout
        if not is_seconds(seconds):
            raise CallRefused("invalid_args", f"timeout: expected a number of seconds above 0, got {seconds!r:.40}")
        left = min(seconds, LONGEST_TIMEOUT)
        if outer:
            left = min(left, outer.left())
            if left <= 0:
                message = f"the time of {outer.call.name}, which calls it, is up"
                raise CallRefused("execution_error", message, reason="timeout")
        return CallContext(
            spec=spec,
            call=call,
            environment=self._environment,
            tools=tools if type(tools) is Snapshot else None,  # a registry is the one of now
            chain=chain,
            seconds=seconds,
            deadline=monotonic() + left,
            pauses=pauses_within(outer) or (Pauses() if is_gated else None),
            allowed=allowed,
            outer_args=outer.call.args if outer and for_tool else None,
            progress=progress or (outer.progress if outer else None),
            loop=loop,
            retries=self._retries_of(spec),
        )

    def _retries_of(self, spec: ToolSpec) -> int:
        """Its own, or the default for tools that say that they may be repeated. What a server says is not enough."""
        if spec.retries is not None:
            return spec.retries
        return self._retries if spec.idempotent and spec.source == "local" else 0

    def _validated(self, call: ToolCall, spec: ToolSpec) -> Taken | None:
        """Return what a lenient tool gets, whose server decides about it; None if the arguments are all right."""
        try:
            _ = spec.output  # so that a bad one is told before anything has run
            if not (problems := spec.arguments.check(call.args)):
                return None
            given = taken(spec, call.args, problems)
        except SchemaError as error:
            raise CallRefused("execution_error", f"{spec.name} has an unusable schema: {error}") from None
        if not given.problems or (spec.lenient and isinstance(call.args, Mapping)):  # pyright: ignore[reportUnnecessaryIsInstance] - from outside
            return given
        raise _invalid(spec, given.problems)

    def _checked_output(self, context: CallContext, value: Any, raised: BaseException | None, for_tool: bool) -> Any:
        """Return the handler's value, masked unless it is for another tool. Raises CallRefused if it failed."""
        if raised is None:
            try:
                output = context.spec.output
                if output is not None and (problems := output.check(value)):
                    raise _output_failure(problems)
                return value if self._redact is None or for_tool else self._redact(value, context.call.args)
            except Exception as failure:  # noqa: BLE001 - whoever waits for a result gets one
                raised = failure
        refused = self._failure(context.call, context.spec, raised)
        if (tries := context.notes.get(TRIES, 1)) > 1:
            refused.error = replace(refused.error, message=f"{refused.error.message} (tried {tries} times)")
        raise refused

    def _masked(self, sent: ServerAnswer, call: ToolCall, failed: ToolSpec | None = None) -> ServerAnswer:
        """Return an answer as it was sent, without secrets; also without those of the arguments, if the tool failed."""
        if failed is not None:
            passed = [*secret_values(call.args, failed.secrets)]
            return ServerAnswer(*self._without_secrets([*sent], passed, call.args))
        return sent if self._redact is None else ServerAnswer(*self._redact([*sent], call.args))

    def _failure(self, call: ToolCall, spec: ToolSpec, error: BaseException) -> CallRefused:
        if log.isEnabledFor(logging.DEBUG):
            passed = [*secret_values(call.args, spec.secrets)]
            log.debug("%s failed\n%s", spec.name, self._without_secrets("".join(format_exception(error)), passed))
        if isinstance(error, BadArguments):
            message = f"{wrong_arguments(spec.name)} {message_of(error)}"
            hints = (*_texts(error.hints), signature(spec))
            return CallRefused(
                "invalid_args", message, reason=_text(error.reason), hints=hints, details=_details(error)
            )
        if isinstance(error, ToolFailure):
            message = message_of(error) or "it failed"
            return CallRefused("execution_error", message, reason=_text(error.reason), hints=_texts(error.hints))
        if isinstance(error, OneToolError) and hasattr(error, "reason"):
            # Such as that the database is away: no line of the tool is to blame.
            return CallRefused("execution_error", describe_error(error), reason=_text(getattr(error, "reason", None)))
        installs = tuple(
            need.install for need in spec.requires if need.install and isinstance(error, MISSING_DEPENDENCY)
        )
        return CallRefused("execution_error", describe_error(error), hints=(*installs, *raised_at(error)))

    def _without_secrets(self, value: Any, passed: list[str], sent: Any = None) -> Any:
        """Mask the secrets of the app, and those that were passed as arguments, in text or data.

        For the caller, `sent` is what it sent itself. That is not masked: a mask would confirm a guess.
        """
        if self._redact is not None:
            # The app's come first: a part of one that was passed as an argument must not break it up.
            value = self._redact(value, sent)
            passed = [*passed, *(self._redact(secret, sent) for secret in passed)]
        return mask_values(value, passed)

    def _finish(
        self,
        call: ToolCall,
        spec: ToolSpec | None,
        started: float,
        origin: "_Origin",
        data: Any,
        error: ToolError | None,
        sent: Callable[[], ServerAnswer] | None,
        notes: dict[str, Any],
        for_tool: bool,
    ) -> ToolResult:
        elapsed = round((perf_counter() - started) * 1000, 3)
        passed = [] if error is None else [*secret_values(call.args, spec.secrets if spec else frozenset())]
        if self._recorders:
            recorded_error = error and error.cleaned(lambda texts: self._without_secrets(texts, passed))
            value = self._redact(data) if for_tool and self._redact is not None else data
            event = CallEvent.of(call, value, recorded_error, spec, elapsed, *origin)
            for record in self._recorders:
                try:
                    record(event)
                except Exception:
                    log.exception("a recorder failed; the call is not affected")
        if error is not None:
            error = error.cleaned(lambda texts: self._without_secrets(texts, passed, call.args))
        meta: dict[str, Any] = {"tool": call.name, "source": call.source, "duration_ms": elapsed, **notes}
        if sent is not None:
            return ServerResult(ok=error is None, data=data, error=error, meta=meta, sent=sent)
        return ToolResult(ok=error is None, data=data, error=error, meta=meta)


def _invalid(spec: ToolSpec, problems: list[WrongArgument]) -> CallRefused:
    message, *hints = _finding(spec, problems)
    return CallRefused("invalid_args", message, hints=tuple(hints), details=tuple(problems))


def _finding(spec: ToolSpec, problems: list[WrongArgument]) -> tuple[str, ...]:
    """Return what is wrong with the arguments of a call, and the signature of the tool; nothing without problems."""
    more = "; and more" if len(problems) >= MOST_PROBLEMS else ""
    listed = "; ".join(map(str, problems))
    return (f"{wrong_arguments(spec.name)} {listed}{more}", signature(spec)) if problems else ()


def _output_failure(problems: Iterable[WrongArgument]) -> ToolFailure:
    listed = "; ".join(map(str, problems))
    return ToolFailure(f"returned what its output schema does not allow: {listed}", reason="output_invalid")


PREPARING = "preProcessors"


def _preparing(context: CallContext) -> CallContext:
    """The context of the handler that makes the arguments. It has the deadline and the allow-list of the call."""
    args = {"args": context.call.args}
    return replace(context, spec=context.spec.prepare, call=replace(context.call, args=args), prepares=True)


def _journaling(context: CallContext, first: Callable[[], None]) -> CallContext:
    """The context of what has to be written down before the call."""
    spec = ToolSpec(name=context.spec.name, description="", handler=first)
    return replace(context, spec=spec, call=replace(context.call, args={}), retries=0, prepares=True)


def _prepared(outcome: Outcome, spec: ToolSpec) -> Mapping[str, Any]:
    """The arguments as they were made. Where that failed, they are wrong: nothing has run yet."""
    value, raised = outcome
    if raised is None and isinstance(value, Mapping):
        return cast(Mapping[str, Any], value)
    step, hints, reason = PREPARING, (), None
    if isinstance(raised, ToolFailure):
        why, hints, reason = message_of(raised), raised.hints, raised.reason
        step = getattr(raised, "argument", None) or step
    else:
        why = "gave no arguments" if raised is None else describe_error(raised)
    wrong = WrongArgument(path=step, expected="", got=why)
    message = f"{wrong_arguments(spec.name)} {wrong}"
    raise CallRefused("invalid_args", message, reason=_text(reason), hints=_texts(hints), details=(wrong,))


async def _ask_gate(gate: Gate, context: CallContext) -> ToolFailure | None:
    """The gate's answer. Waiting for it does not count; a gate that fails has refused."""
    try:
        with context.pauses or nullcontext():
            return await gate(context.call, context.spec)
    except Exception as error:  # noqa: BLE001 - somebody else's function
        return ToolFailure(f"nobody could allow it: {describe_error(error)}", reason="denied")


_Origin = tuple[str, str | None, Principal, str]  # the client, the run whose code calls, who calls, and from where


def _origin() -> _Origin:
    """Where a call comes from, read when it begins: it may end in another context."""
    outer = current_call.get()
    return client_name(), outer.run if outer else None, current_principal.get(), current_address.get()


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - a handler may give anything
        return type(value).__name__


def _details(error: BadArguments) -> tuple[WrongArgument, ...]:
    if error.argument is None:
        return ()
    pointer = "/" + error.argument.replace("~", "~0").replace("/", "~1")
    return (WrongArgument(path=error.argument, expected="", got=message_of(error), pointer=pointer),)


def _texts(values: Any) -> tuple[str, ...]:
    """Hints as a handler gave them: it may have given anything."""
    listed = cast(list[Any], values) if isinstance(values, list | tuple) else [values]
    return tuple(text for value in listed if (text := _text(value)))
