"""execute(call) -> ToolResult: the one place where a value or an exception becomes a result.

The way of a call: find -> allow -> validate -> run within a deadline -> validate the output -> record. Every door
(code in `run`, the command line, REST, MCP, `ask`, other tools) comes through here.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from inspect import isawaitable
from time import perf_counter
from typing import Any, Protocol, cast

from onetool.core.call import Code, ToolCall, ToolError, ToolResult
from onetool.core.context import CallContext, Environment, current_call
from onetool.core.errors import BadArguments, SchemaError, ToolFailure
from onetool.core.event import CallEvent, Recorder
from onetool.core.nearest import nearest
from onetool.core.plain import plain
from onetool.core.secrecy import MASK, masked
from onetool.core.signature import signature
from onetool.core.spec import ToolSpec
from onetool.core.threads import Threads

DEFAULT_TIMEOUT = 8.0
LONGEST_MESSAGE = 2_000

log = logging.getLogger("onetool.executor")


class Tools(Protocol):
    """What the executor needs of a registry, or of a snapshot of one."""

    def get(self, name: str) -> ToolSpec | None: ...

    def names(self) -> Collection[str]: ...


class _Fails(Exception):  # noqa: N818 - carries a result, is never seen outside
    def __init__(self, code: Code, message: str, **more: Any) -> None:
        super().__init__(message)
        self.error = ToolError(code=code, message=message, **more)


class Executor:
    """Runs calls against a registry."""

    def __init__(
        self,
        registry: Tools,
        *,
        allowed: Iterable[str] | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        environment: Environment | None = None,
        recorders: Iterable[Recorder] = (),
        redact: Callable[[str], str] | None = None,
    ) -> None:
        self._registry = registry
        self._allowed = None if allowed is None else frozenset(allowed)
        self._timeout = timeout
        self._environment = environment
        self._recorders = tuple(recorders)
        self._redact = redact
        self._threads = Threads()
        self._left_behind: set[asyncio.Task[Any]] = set()  # a task that nobody holds may vanish in mid-flight

    async def execute(self, call: ToolCall, allowed: Collection[str] | None = None) -> ToolResult:
        """Carry the call out. Never raises for what a tool does; being cancelled is the only way out but a result.

        `allowed` is this caller's allow-list, where it has one of its own.
        """
        spec = self._registry.get(call.name)
        if spec is not None:
            _prepare(spec)
        started = perf_counter()
        try:
            spec_to_run = self._permitted(call.name, spec, self._allowed if allowed is None else allowed)
            data = await self._carry_out(call, spec_to_run)
        except _Fails as failed:
            return self._finish(call, spec, started, error=failed.error)
        except asyncio.CancelledError:
            error = ToolError(code="execution_error", message="cancelled by the caller", reason="cancelled")
            self._finish(call, spec, started, error=error)
            raise
        return self._finish(call, spec, started, data=data)

    def _permitted(self, name: str, spec: ToolSpec | None, allowed: Collection[str] | None) -> ToolSpec:
        if spec is None:
            raise self._not_found(name, allowed)
        if allowed is not None and name not in allowed:
            raise _Fails("tool_not_found", f"Tool not allowed here: {name}", reason="denied")
        if not spec.enabled:
            raise _Fails("tool_not_found", f"Tool is switched off: {name}", reason="denied")
        return spec

    def _not_found(self, name: str, allowed: Collection[str] | None) -> _Fails:
        known = self._registry.names()
        near = nearest(name, known if allowed is None else [one for one in known if one in allowed])
        suffix = f"; did you mean {' or '.join(near)}?" if near else ""
        return _Fails("tool_not_found", f"Tool not found: {name}{suffix}", hints=tuple(near))

    async def _carry_out(self, call: ToolCall, spec: ToolSpec) -> Any:
        self._validate(call, spec)
        value, error = await self._run_within_deadline(call, spec)
        if error is None:
            try:
                value = plain(value)
                self._validate_output(spec, value)
                return value
            except ToolFailure as failure:
                error = failure
        raise self._failure(call, spec, error)

    def _validate(self, call: ToolCall, spec: ToolSpec) -> None:
        try:
            problems = spec.arguments.check(call.args)
        except SchemaError as error:
            raise _Fails("execution_error", f"{spec.name} has an unusable schema: {error}") from None
        if problems:
            listed = "; ".join(map(str, problems))
            message = f"Invalid arguments for {spec.name}: {listed}"
            raise _Fails("invalid_args", message, hints=(signature(spec),), details=tuple(problems))

    async def _run_within_deadline(self, call: ToolCall, spec: ToolSpec) -> tuple[Any, BaseException | None]:
        """Wait for the handler as long as it may take and no longer, whether or not it heeds being cancelled."""
        seconds = next(t for t in (call.timeout, spec.timeout, self._timeout) if t is not None)
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._invoke(call, spec))
        ended: asyncio.Future[None] = loop.create_future()
        task.add_done_callback(lambda _: None if ended.done() else ended.set_result(None))
        alarm = loop.call_later(seconds, lambda: None if ended.done() else ended.set_result(None))
        try:
            await ended
        finally:
            alarm.cancel()
            if not task.done():
                self._abandon(task)
        if task.done():
            return task.result()
        return None, ToolFailure(f"{spec.name} took longer than {seconds:g} s and was stopped", reason="timeout")

    async def _invoke(self, call: ToolCall, spec: ToolSpec) -> tuple[Any, BaseException | None]:
        """Run the handler, with the call as its context. Everything that it raises is caught: the process lives."""
        current_call.set(CallContext(spec, call, self._environment))
        try:
            if spec.handler is None:
                raise ToolFailure(f"{spec.name} has no handler: it can be described but not run")
            if spec.is_async:
                return await spec.handler(**call.args), None
            value = await self._threads.run(spec.handler, call.args)
            return (await value if isawaitable(value) else value), None
        except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt of a handler included
            return None, error

    def _abandon(self, task: "asyncio.Task[Any]") -> None:
        self._left_behind.add(task)
        task.add_done_callback(self._left_behind.discard)
        task.cancel()

    def _validate_output(self, spec: ToolSpec, value: Any) -> None:
        if spec.output is not None and (problems := spec.output.check(value)):
            listed = "; ".join(map(str, problems))
            raise ToolFailure(f"returned what its output schema does not allow: {listed}", reason="output_invalid")

    def _failure(self, call: ToolCall, spec: ToolSpec, error: BaseException) -> _Fails:
        log.debug("%s failed", spec.name, exc_info=error)
        if isinstance(error, ToolFailure):
            code: Code = "invalid_args" if isinstance(error, BadArguments) else "execution_error"
            return _Fails(code, self._clean(str(error), call, spec), reason=error.reason, hints=error.hints)
        return _Fails("execution_error", self._clean(_words(error), call, spec))

    def _clean(self, message: str, call: ToolCall, spec: ToolSpec) -> str:
        """A message without secrets: neither the app's nor those that were passed as arguments."""
        for name in spec.secrets:
            value = call.args.get(name)
            if isinstance(value, str) and value:
                message = message.replace(value, MASK)
        if self._redact is not None:
            message = self._redact(message)
        return message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 1] + "…"

    def _finish(
        self, call: ToolCall, spec: ToolSpec | None, started: float, *, data: Any = None, error: ToolError | None = None
    ) -> ToolResult:
        elapsed = round((perf_counter() - started) * 1000, 3)
        if self._recorders:
            self._record(call, spec, elapsed, error)
        meta = {"tool": call.name, "source": call.source, "duration_ms": elapsed}
        return ToolResult(ok=error is None, data=data, error=error, meta=meta)

    def _record(self, call: ToolCall, spec: ToolSpec | None, elapsed: float, error: ToolError | None) -> None:
        event = CallEvent(
            tool=call.name,
            call_id=call.id,
            source=call.source,
            ok=error is None,
            duration_ms=elapsed,
            error=error,
            # Of an unknown tool nobody knows which arguments are secret, so none is shown.
            args=masked(call.args, spec.secrets) if spec and isinstance(call.args, dict) else {},
        )
        for record in self._recorders:
            try:
                record(event)
            except Exception:
                log.exception("a recorder failed; the call itself is not touched by that")


def _prepare(spec: ToolSpec) -> None:
    """Compile before the clock starts: the first call is not slower than the others. A bad schema is told later."""
    with suppress(SchemaError):
        _ = spec.arguments, spec.output


def _words(error: BaseException) -> str:
    """An exception as one line. Its own text may be missing, huge or broken."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the failure
        text = ""
    if isinstance(error, SystemExit):
        return f"the tool tried to end the process (SystemExit: {text})"
    name = type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        inner = cast(tuple[BaseException, ...], error.exceptions)  # pyright: ignore[reportUnknownMemberType]
        text += ": " + "; ".join(map(_words, inner[:5]))
    return f"{name}: {text}" if text else name
