"""Runs the tool calls that a model makes in one step: each call gets one result, in the order of the calls.

Calls run one after another; neighbours that only read run at the same time. A call of a pure tool that was already made
in this session is not made again.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from onetool.ask.messages import Call, CallEnded, CallStarted, Result, Toolset, UserCall
from onetool.ask.prompt_texts import mark_as_data
from onetool.ask.sessions import ChatSession, call_key
from onetool.core.call import ServerResult, ToolCall, ToolError, ToolResult, new_id
from onetool.core.spec import ToolSpec

SOURCE = "ask"
LARGEST_CACHED = 16 * 1024  # bytes of a value that is kept for another time
LONGEST_EXCERPT = 200  # characters of what is no JSON
STOPPED = "The call was stopped before it ended. What it has done is not known."
NOT_STARTED = "The call was not made: the person stopped before."

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class CallOutcome(NamedTuple):
    """The result of a call, and the text that the model reads."""

    result: ToolResult
    content: str
    is_cached: bool = False


class ToolBackend(Protocol):
    """Runs tools for a model. `call` never raises, whatever a tool or a model does."""

    toolset: Toolset
    denied: list[str]  # tools that were not approved
    not_run: set[str]  # ids of calls that were not approved, also because nobody waits for that any more

    def spec(self, name: str) -> ToolSpec | None:
        """The tool of that name, if the model may call it."""
        ...

    async def call(self, call: ToolCall) -> ToolResult: ...

    async def content(self, result: ToolResult) -> str:
        """The text for the model: the whole result, or its beginning and where the rest is."""
        ...

    def masked(self, name: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments of a call without those that are secret."""
        ...

    def clean(self, value: Any) -> Any:
        """The data with known secrets masked: a provider may have sent one back."""
        ...

    def kept(self, name: str, args: Mapping[str, Any], value: Any) -> Any:
        """What a call with these arguments gave, without those that are secret: a tool may repeat them."""
        ...


def with_ids(calls: Iterable[Call], taken: set[str]) -> tuple[Call, ...]:
    """The calls, each with an id that no other call of the session has: results are matched by that alone."""
    named: list[Call] = []
    for call in calls:
        id = call.id if _ID.fullmatch(call.id) and call.id not in taken else _new_id(taken)
        taken.add(id)
        named.append(msgspec.structs.replace(call, id=id))
    return tuple(named)


def _new_id(taken: set[str]) -> str:
    """Nine letters and digits: one of the APIs takes nothing else."""
    while (id := f"c{new_id().replace('-', '')[-8:]}") in taken:
        pass
    return id


def public_call(call: Call, backend: ToolBackend) -> ToolCall:
    """The call without secrets, for people and for the session."""
    return ToolCall(call.id, call.name, backend.clean(backend.masked(call.name, call.args)), SOURCE)


async def run_calls(
    calls: Sequence[Call], backend: ToolBackend, session: ChatSession
) -> AsyncGenerator[CallStarted | CallEnded, None]:
    """Run the calls, and write each result to the session, also if it is stopped halfway."""
    waiting = list(calls)
    tasks: dict[str, asyncio.Task[CallOutcome]] = {}  # by the id of the call
    try:
        for group in _groups(calls, backend):
            for call in group:
                yield CallStarted(call=public_call(call, backend))
            tasks |= _start_group(group, backend, session)
            for call in group:
                given = await tasks[call.id]
                session.append(_result_message(call, given, backend))
                waiting.pop(0)
                yield CallEnded(call=public_call(call, backend), result=given.result, is_cached=given.is_cached)
    finally:
        await _stop_all(tasks.values())
        for call in waiting:
            task = tasks.get(call.id)
            if task is not None and not task.cancelled() and task.exception() is None:
                session.append(_result_message(call, task.result(), backend))
            else:
                not_run = task is None or call.id in backend.not_run
                content = mark_as_data(NOT_STARTED if not_run else STOPPED)
                session.append(Result(call=call.id, name=call.name, ok=False, content=content, not_run=not_run))


async def run_user_call(
    call: ToolCall, run: Callable[[ToolCall], Awaitable[ToolResult]], backend: ToolBackend, session: ChatSession
) -> ToolResult:
    """A call that the person makes: it and its result are written to the session, also if it is stopped halfway."""
    args = backend.clean(backend.masked(call.name, call.args))
    try:
        result = await run(call)
        content = await backend.content(result.cleaned(_kept_by(call.name, call.args, backend)))
    except asyncio.CancelledError:
        session.append(UserCall(name=call.name, args=args, ok=False, content=mark_as_data(STOPPED)))
        raise
    session.append(UserCall(name=call.name, args=args, ok=result.ok, content=mark_as_data(content)))
    return result


def _kept_by(name: str, args: Mapping[str, Any], backend: ToolBackend) -> Callable[[Any], Any]:
    """Makes of what a call gave what stands in the session, where also what the model or the person sent is masked."""
    return lambda value: backend.kept(name, args, backend.clean(value))


def _groups(calls: Sequence[Call], backend: ToolBackend) -> Iterator[list[Call]]:
    """Those that may run at the same time: neighbours whose tools say so. All others are alone."""
    together: list[Call] = []
    for call in calls:
        spec = backend.spec(call.name)
        if spec is None or spec.parallel or spec.pure:  # no tool: nothing runs
            together.append(call)
            continue
        if together:
            yield together
            together = []
        yield [call]
    if together:
        yield together


def _start_group(
    group: list[Call], backend: ToolBackend, session: ChatSession
) -> "dict[str, asyncio.Task[CallOutcome]]":
    running: dict[str, asyncio.Task[CallOutcome]] = {}
    tasks: dict[str, asyncio.Task[CallOutcome]] = {}
    for call in group:
        spec = backend.spec(call.name)
        key = call_key(call.name, call.args) if spec is not None and spec.pure and call.malformed is None else None
        task = running.get(key) if key else None
        if task is None:
            task = asyncio.create_task(_run_call(call, spec, backend, session))
        if key:
            running[key] = task
        tasks[call.id] = task
    return tasks


async def _run_call(call: Call, spec: ToolSpec | None, backend: ToolBackend, session: ChatSession) -> CallOutcome:
    meta = {"tool": call.name, "source": SOURCE, "duration_ms": 0.0}
    value = session.cached(call.name, call.args) if spec is not None and spec.pure else UNSET
    if call.malformed is not None:
        result = ToolResult(ok=False, error=_malformed_error(call), meta=meta)
    elif value is not UNSET:
        result = ToolResult(ok=True, data=value, meta={**meta, "cached": True})
    else:
        called = await backend.call(ToolCall(call.id, call.name, call.args, SOURCE))
        result = called.cleaned(_kept_by(call.name, call.args, backend))
    content = mark_as_data(await backend.content(result))
    return CallOutcome(result.plain() if isinstance(result, ServerResult) else result, content, "cached" in result.meta)


def _malformed_error(call: Call) -> ToolError:
    text = call.malformed or ""
    excerpt = text if len(text) <= LONGEST_EXCERPT else f"{text[:LONGEST_EXCERPT]}…"
    return ToolError(
        code="invalid_args",
        message=f"the arguments of {call.name} are no JSON object: {excerpt}",
        reason="malformed",
        hints=("send one JSON object with the arguments by name, complete and with all quotes escaped",),
    )


def _result_message(call: Call, given: CallOutcome, backend: ToolBackend) -> Result:
    spec, result = backend.spec(call.name), given.result
    keeps = spec is not None and spec.pure and result.ok and not given.is_cached and _is_small(result.data)
    value: Any | UnsetType = result.data if keeps else UNSET
    not_run = not result.ok and call.id in backend.not_run
    return Result(call=call.id, name=call.name, ok=result.ok, content=given.content, value=value, not_run=not_run)


def _is_small(value: Any) -> bool:
    try:
        return len(msgspec.json.encode(value)) <= LARGEST_CACHED
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False


async def _stop_all(tasks: "Iterable[asyncio.Task[CallOutcome]]") -> None:
    """Stop those that are still under way, and wait until they have."""
    left = [task for task in tasks if not task.done()]
    for task in left:
        task.cancel()
    if left:
        await asyncio.gather(*left, return_exceptions=True)
