"""The executor, which runs a ToolCall and returns a ToolResult.

Each call is looked up, checked against the allow-list, prepared, validated, run within its deadline, validated again
(its output) and recorded. Every interface (`run`, the command line, REST, MCP, `ask`, other tools) calls the executor,
and only the executor turns a value or an exception into a result.
"""

import asyncio
import logging
from asyncio import _get_running_loop  # pyright: ignore[reportPrivateUsage] - the public one raises, which is slow
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from itertools import product
from time import monotonic, perf_counter
from traceback import format_exception
from typing import Any, Protocol, cast

from msgspec import UNSET
from msgspec.structs import replace

from onetool.core.call import (
    Code,
    LongFailure,
    Pauses,
    ServerResult,
    ToolCall,
    ToolError,
    ToolResult,
    WrongArgument,
    current_caller,
    is_seconds,
    wrong_arguments,
)
from onetool.core.context import (
    SENT_TO,
    STARTUP,
    UPSTREAM,
    CallContext,
    CallEvent,
    Environment,
    Gate,
    Journal,
    Progress,
    Recorder,
    ToolLookup,
    current_call,
)
from onetool.core.errors import (
    MAX_WHOLE_MESSAGE,
    BadArguments,
    Need,
    OneToolError,
    SchemaError,
    ToolFailure,
    describe_error,
    message_of,
    raised_at,
)
from onetool.core.json_data import AnsweredValue, ServerAnswer, ServerFailure
from onetool.core.lenient import recorded_call, taken
from onetool.core.principal import allowed_by_both, current_address, current_principal
from onetool.core.redaction import mask_values, secret_values
from onetool.core.registry import Snapshot
from onetool.core.running import TRIES, HandlerRunner
from onetool.core.schema import MAX_PROBLEMS
from onetool.core.signature import signature
from onetool.core.spec import ToolSpec
from onetool.core.text import nearest
from onetool.core.trace import current_trace, new_span_id


class CallRefused(Exception):  # noqa: N818 - carries a result, is never seen outside of the executor
    """The failure of a call. `sent` returns the server's original answer, if there is one."""

    def __init__(self, code: Code, message: str, **more: Any) -> None:
        super().__init__(message)
        self.error = ToolError(code=code, message=message, **more)
        self.sent: Callable[[], ServerAnswer] | None = None


DEFAULT_TIMEOUT = 8.0
MAX_CHAIN = 16  # of nested tools
MISSING_DEPENDENCY = (ImportError, FileNotFoundError)  # raised for a missing library or command
MAX_TIMEOUT = 10.0**9  # seconds that event loops and threads can handle

log = logging.getLogger("onetool.executor")


class Redact(Protocol):
    """A function that masks the secrets in `value`, except those that the reader sent (`sent`)."""

    def __call__(self, value: Any, sent: Any = None) -> Any: ...


class Executor:
    """An executor of calls against a registry. `timeout` and `retries` are defaults for tools that set none.

    `retries` applies only to idempotent local tools: a server's claim that its tools are idempotent is not trusted.
    """

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
        *,
        tools: ToolLookup | None = None,
        gate: Gate | None = None,
        for_tool: bool = False,
    ) -> ToolResult:
        """Run the call. Failures of the tool never raise; only cancellation does.

        `allowed` is this caller's allow-list. `progress` receives the tool's progress. `tools` is the caller's
        snapshot, for callers that a reload must not affect. A valid call has to pass the `gate`. With `for_tool` the
        caller is a function of a pack, and the value isn't masked until that tool returns.
        """
        tools = self._registry if tools is None else tools
        spec = tools.get(call.name)
        if spec is not None and "arguments" not in spec.__dict__:
            spec.compile()  # before the deadline starts
        started = perf_counter()
        context, data, error, sent, findings = None, None, None, None, ()
        try:
            context = self._context(call, spec, tools, allowed, progress, gate is not None, for_tool)
            if self._journal is not None and (first := self._journal(call)) is not None:
                await self._write_journal(context, first)
            if context.spec.prepare is not None:
                context = await self._prepared(context)
            _ = context.spec.output  # an invalid output schema is reported before the handler runs
            if problems := context.spec.arguments.check(context.call.args):
                context, findings = _accepted(context, problems)
            refused = None if gate is None else await _ask_gate(gate, context)
            value, raised = await self._runner.run(context) if refused is None else (None, refused)
            data, sent = self._checked(context, value, raised, findings, for_tool)
        except CallRefused as failed:
            error, sent = failed.error, failed.sent
        except SchemaError as failed:
            error = ToolError(code="execution_error", message=f"{call.name} has an unusable schema: {failed}")
        except asyncio.CancelledError:
            error = ToolError(code="execution_error", message="cancelled by the caller", reason="cancelled")
            self._finish(call, spec, context, started, None, error, None, for_tool)
            raise
        return self._finish(call, spec, context, started, data, error, sent, for_tool)

    def _context(
        self,
        call: ToolCall,
        spec: ToolSpec | None,
        tools: ToolLookup,
        allowed: Collection[str] | None,
        progress: Progress | None,
        is_gated: bool,
        for_tool: bool,
    ) -> CallContext:
        """Return the context of the handler. A call made by a running tool inherits its allow-list and deadline.

        An allow-list can only narrow another one.
        """
        outer = current_call.get()
        if allowed is not None or self._allowed is not None:
            allowed = allowed_by_both(allowed, self._allowed)
        if outer is not None and outer.allowed is not None:
            allowed = allowed_by_both(allowed, outer.allowed)
        if spec is None:
            raise _not_found(call.name, tools.names(), allowed)
        if not spec.enabled or (allowed is not None and spec.name not in allowed):
            raise _denied(spec, allowed)
        seconds = spec.timeout or self._timeout
        if call.timeout is not UNSET and call.timeout is not None:
            seconds = call.timeout
            if not is_seconds(seconds):
                raise CallRefused("invalid_args", f"timeout: expected a number of seconds above 0, got {seconds!r:.40}")
        left, chain, loop, pauses = min(seconds, MAX_TIMEOUT), (call.name,), _get_running_loop(), None
        if outer is not None:
            chain, loop, left = (*outer.chain, call.name), loop or outer.loop, min(left, outer.left())
            if len(chain) > MAX_CHAIN:
                message = f"tool calls are nested too deep: {' -> '.join(chain)}"
                raise CallRefused("execution_error", message, reason="recursion")
            if left <= 0:
                message = f"the deadline of {outer.call.name}, the calling tool, has passed"
                raise CallRefused("execution_error", message, reason="timeout")
            pauses = None if outer.pauses is None else Pauses(outer.pauses)
        elif current_caller.get() is not None:
            pauses = Pauses()
        retries = spec.retries
        if retries is None:
            retries = self._retries if spec.idempotent and spec.source == "local" else 0
        return CallContext(
            spec=spec,
            call=call,
            environment=self._environment,
            tools=tools if type(tools) is Snapshot else None,  # a registry is always current
            chain=chain,
            seconds=seconds,
            deadline=monotonic() + left,
            pauses=Pauses() if pauses is None and is_gated else pauses,
            allowed=allowed,
            outer_args=outer.call.args if outer and for_tool else None,
            progress=progress or (outer.progress if outer else None),
            loop=loop,
            retries=retries,
            span=new_span_id() if (trace := current_trace.get()) is not None and trace.record_span is not None else "",
        )

    async def _write_journal(self, context: CallContext, first: Callable[[], None]) -> None:
        """Write the record that is required before the call. Raises CallRefused on failure."""
        spec = ToolSpec(name=context.spec.name, description="", handler=first)
        _, raised = await self._runner.run(replace(context, spec=spec, call=replace(context.call, args={}), retries=0))
        if raised is not None:
            raise self._failure(context.call, context.spec, raised)

    async def _prepared(self, context: CallContext) -> CallContext:
        """Run the tool's pre-processors within the call's deadline. Return the context with the new arguments."""
        call, spec = context.call, context.spec
        is_named = isinstance(call.args, Mapping)  # pyright: ignore[reportUnnecessaryIsInstance] - from outside
        if is_named and (problems := spec.arguments.long_names(call.args)):
            raise _invalid(spec, problems)
        value, raised = await self._runner.run(
            replace(context, spec=spec.prepare, call=replace(call, args={"args": call.args}))
        )
        if raised is None and isinstance(value, Mapping):
            return replace(context, call=replace(call, args=cast(Mapping[str, Any], value)))
        step, hints, reason = "preProcessors", (), None
        if isinstance(raised, ToolFailure):
            why, hints, reason = message_of(raised), raised.hints, raised.reason
            step = getattr(raised, "argument", None) or step
        else:
            why = "returned no arguments" if raised is None else describe_error(raised)
        wrong = WrongArgument(path=step, expected="", got=why)
        message = f"{wrong_arguments(spec.name)} {wrong}"
        raise CallRefused("invalid_args", message, reason=_plain_text(reason), hints=_texts(hints), details=(wrong,))

    def _checked(
        self,
        context: CallContext,
        value: Any,
        raised: BaseException | None,
        findings: tuple[str, ...],
        for_tool: bool,
    ) -> tuple[Any, Callable[[], ServerAnswer] | None]:
        """Return the handler's value, masked unless it is for another tool, and the server's original answer.

        Raises CallRefused if the handler failed or the output does not match its schema.
        """
        call, spec = context.call, context.spec
        if raised is None:
            answer, value = (value.sent, value.value) if type(value) is AnsweredValue else (None, value)
            try:
                is_empty = value is None and context.notes.get(UPSTREAM, {}).get("size") == 0
                if not is_empty and spec.output is not None and (problems := spec.output.check(value)):
                    if not spec.output_may_differ:
                        listed = "; ".join(map(str, problems))
                        message = f"returned a value that does not match its output schema: {listed}"
                        raise ToolFailure(message, reason="output_invalid")
                    self._warn_of_mismatch(context, problems)
                if self._redact is not None and not for_tool:
                    value = self._redact(value, call.args)
                return value, None if answer is None else partial(self._masked, answer, call)
            except Exception as failure:  # noqa: BLE001 - the caller always gets a result
                raised = failure
        if isinstance(raised, ServerFailure):
            raised.hints = findings  # the server may have refused these arguments
        refused = self._failure(call, spec, raised)
        if isinstance(raised, ServerFailure):
            refused.sent = partial(self._masked, raised.sent, call, spec)
        if (tries := context.notes.get(TRIES, 1)) > 1:
            refused.error = replace(refused.error, message=f"{refused.error.message} (tried {tries} times)")
        raise refused

    def _warn_of_mismatch(self, context: CallContext, problems: list[WrongArgument]) -> None:
        """Warn that a value differs from its output schema."""
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        warning = f"{context.spec.name} returned a value that differs from its document: {problems[0]}{more}"
        if self._redact is not None:
            warning = self._redact(warning, context.call.args)
        context.notes["warnings"] = [*context.notes.get("warnings", ()), warning]

    def _masked(self, sent: ServerAnswer, call: ToolCall, failed: ToolSpec | None = None) -> ServerAnswer:
        """Return a server's answer without secrets and, if the tool failed, without the secrets in the arguments."""
        if failed is not None:
            passed = [*secret_values(call.args, failed.secrets)]
            return ServerAnswer(*self._without_secrets([*sent], passed, call.args))
        return sent if self._redact is None else ServerAnswer(*self._redact([*sent], call.args))

    def _failure(self, call: ToolCall, spec: ToolSpec, error: BaseException) -> CallRefused:
        if log.isEnabledFor(logging.DEBUG):
            passed = [*secret_values(call.args, spec.secrets)]
            log.debug("%s failed\n%s", spec.name, self._without_secrets("".join(format_exception(error)), passed))
        if isinstance(error, BadArguments):
            message = f"{wrong_arguments(spec.name)} {message_of(error, MAX_WHOLE_MESSAGE)}"
            hints, details = (*_texts(error.hints), signature(spec)), ()
            if error.argument is not None:
                pointer = "/" + error.argument.replace("~", "~0").replace("/", "~1")
                details = (WrongArgument(path=error.argument, expected="", got=message_of(error), pointer=pointer),)
            return CallRefused("invalid_args", message, reason=_plain_text(error.reason), hints=hints, details=details)
        if isinstance(error, ToolFailure):
            message = message_of(error, MAX_WHOLE_MESSAGE) or "it failed"
            needs = tuple(one for one in error.needs if type(one) is Need)
            return CallRefused(
                "execution_error", message, reason=_plain_text(error.reason), hints=_texts(error.hints), needs=needs
            )
        if isinstance(error, OneToolError) and hasattr(error, "reason"):
            # For example, the database is unavailable: pointing at a line of the tool would mislead.
            return CallRefused(
                "execution_error", describe_error(error), reason=_plain_text(getattr(error, "reason", None))
            )
        installs = tuple(
            need.install for need in spec.requires if need.install and isinstance(error, MISSING_DEPENDENCY)
        )
        message = describe_error(error, most=MAX_WHOLE_MESSAGE)
        return CallRefused("execution_error", message, hints=(*installs, *raised_at(error)))

    def _without_secrets(self, value: Any, passed: list[str], sent: Any = None) -> Any:
        """Mask the secrets of the app and those in `passed`, in text or data.

        Secrets in `sent`, the caller's own data, stay visible: a mask would confirm a guess.
        """
        if self._redact is not None:
            # The app's secrets come first: masking a passed part of such a secret would break it up.
            value = self._redact(value, sent)
            passed = [*passed, *(self._redact(secret, sent) for secret in passed)]
        return mask_values(value, passed)

    def _finish(
        self,
        call: ToolCall,
        spec: ToolSpec | None,
        context: CallContext | None,
        started: float,
        data: Any,
        error: ToolError | None,
        sent: Callable[[], ServerAnswer] | None,
        for_tool: bool,
    ) -> ToolResult:
        """Record the call and return its result.

        Time spent waiting for the caller, or for a server to start, is not part of the duration.
        """
        call = call if context is None else context.call
        waited = 0.0 if context is None or context.pauses is None else context.pauses.waited()
        if context is not None and STARTUP in context.notes:
            waited += context.notes[STARTUP] / 1000
        elapsed = round((perf_counter() - started - waited) * 1000, 3)
        passed: list[str] = []
        if error is not None:
            call = recorded_call(call, spec)
            passed = [*secret_values(call.args, spec.secrets if spec else frozenset())]
        if self._recorders:
            outer, caller, trace = current_call.get(), current_caller.get(), current_trace.get()
            event = CallEvent.of(
                call,
                self._redact(data) if for_tool and self._redact is not None else data,
                error and error.cleaned(lambda texts: self._without_secrets(texts, passed)).shortened(),
                spec,
                elapsed,
                client="" if caller is None else getattr(caller, "client_name", ""),
                run=None if outer is None else outer.run,
                principal=current_principal.get(),
                address=current_address.get(),
                trace=trace,
                span="" if context is None else context.span,
                hosts=() if context is None else tuple(context.notes.get(SENT_TO, ())),
                parent=outer.span if outer is not None else "" if trace is None else trace.span_id,
            )
            events = [event]
            if call.called_via is not UNSET:  # count `ot.call` too, but as one call of the run
                nothing: dict[str, Any] = {"spec": None, "args": b"{}", "bytes_in": 0, "bytes_out": 0, "value": None}
                events.append(replace(event, tool=call.called_via, run=None, is_wrapper=True, **nothing))
            for record, one in product(self._recorders, events):
                try:
                    record(one)
                except Exception:
                    log.exception("a recorder failed; the call is not affected")
        whole = ""
        if error is not None:
            error = error.cleaned(lambda texts: self._without_secrets(texts, passed, call.args))
            whole, error = error.message, error.shortened()
        notes: Mapping[str, Any] = {} if context is None else context.notes
        meta: dict[str, Any] = {"tool": call.name, "source": call.source, "duration_ms": elapsed, **notes}
        if sent is not None:
            return ServerResult(ok=error is None, data=data, error=error, meta=meta, sent=sent)
        if error is not None and error.message != whole:
            return LongFailure(ok=False, error=error, meta=meta, text=whole)
        return ToolResult(ok=error is None, data=data, error=error, meta=meta)


def _not_found(name: str, known: Collection[str], allowed: Collection[str] | None) -> CallRefused:
    near = nearest(name, known if allowed is None else [one for one in known if one in allowed])
    suffix = f"; did you mean {' or '.join(near)}?" if near else ""
    return CallRefused("tool_not_found", f"Tool not found: {name:.200}{suffix}", hints=tuple(near))


def _denied(spec: ToolSpec, allowed: Collection[str] | None) -> CallRefused:
    if allowed is not None and spec.name not in allowed:
        return CallRefused("tool_not_found", f"Tool not allowed here: {spec.name}", reason="denied")
    hints = (spec.off,) if spec.off else ()
    return CallRefused("tool_not_found", f"Tool is switched off: {spec.name}", reason="denied", hints=hints)


def _accepted(context: CallContext, problems: list[WrongArgument]) -> tuple[CallContext, tuple[str, ...]]:
    """Return the context with the arguments for a lenient tool, and a description of what is wrong with them.

    Raises CallRefused for wrong arguments to other tools.
    """
    call, spec = context.call, context.spec
    given = taken(spec, call.args, problems)
    if given.problems and not (spec.lenient and isinstance(call.args, Mapping)):  # pyright: ignore[reportUnnecessaryIsInstance] - from outside
        raise _invalid(spec, given.problems)
    if given.warnings:
        context.notes["warnings"] = [*given.warnings]
    return replace(context, call=replace(call, args=given.args)), _finding(spec, given.findings)


def _invalid(spec: ToolSpec, problems: list[WrongArgument]) -> CallRefused:
    message, *hints = _finding(spec, problems)
    return CallRefused("invalid_args", message, hints=tuple(hints), details=tuple(problems))


def _finding(spec: ToolSpec, problems: list[WrongArgument]) -> tuple[str, ...]:
    """Return a message about wrong arguments and the tool's signature; an empty tuple if there are none."""
    more = "; and more" if len(problems) >= MAX_PROBLEMS else ""
    listed = "; ".join(map(str, problems))
    return (f"{wrong_arguments(spec.name)} {listed}{more}", signature(spec)) if problems else ()


async def _ask_gate(gate: Gate, context: CallContext) -> ToolFailure | None:
    """Return the gate's answer. The wait does not count; a gate that raises refuses the call."""
    try:
        with context.pauses or nullcontext():
            return await gate(context.call, context.spec)
    except Exception as error:  # noqa: BLE001 - somebody else's function
        return ToolFailure(f"The call could not be approved: {describe_error(error)}", reason="denied")


def _plain_text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return str.__str__(value)  # a plain str, because msgspec doesn't encode subclasses
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - a handler may give anything
        return type(value).__name__


def _texts(values: Any) -> tuple[str, ...]:
    """Return hints as strings. A handler may have passed anything."""
    listed = cast(list[Any], values) if isinstance(values, list | tuple) else [values]
    return tuple(text for value in listed if (text := _plain_text(value)))
