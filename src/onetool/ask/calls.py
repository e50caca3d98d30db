"""What a model wants called in one step: each call gets exactly one result, in the order of the calls.

Calls run one after another. Neighbours run at the same time where their tools say that they may (`parallel`, `pure`).
A call of a pure tool that has been made in this session is not made again.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from onetool.ask.events import CallEnded, CallStarted
from onetool.ask.messages import Call, Result
from onetool.ask.sessions import Session, same
from onetool.ask.toolset import Toolset
from onetool.ask.words import marked
from onetool.core.call import ServerResult, ToolCall, ToolError, ToolResult
from onetool.core.ids import new_id
from onetool.core.spec import ToolSpec

SOURCE = "ask"
MOST_KEPT = 16 * 1024  # bytes of a value that is kept for another time
SHOWN = 200  # characters of what is no JSON
STOPPED = "The call was stopped before it ended. What it has done is not known."
NOT_BEGUN = "The call was not made: the person stopped before."

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Given(NamedTuple):
    """What came of a call, and how a model reads it."""

    result: ToolResult
    content: str
    is_cached: bool = False


class Hands(Protocol):
    """Whoever carries calls out. Nothing that a tool or a model does makes `call` raise."""

    toolset: Toolset
    denied: list[str]  # tools that nobody let run

    def spec(self, name: str) -> ToolSpec | None:
        """The tool of that name, if the model may call it."""
        ...

    async def call(self, call: ToolCall) -> ToolResult: ...

    async def content(self, result: ToolResult) -> str:
        """What a model reads of it: all, or how it begins and where the rest is."""
        ...

    def masked(self, name: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments of a call without those that are secret."""
        ...

    def clean(self, value: Any) -> Any:
        """Data without known secrets: a provider may have sent one back to us."""
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


def shown(call: Call, hands: Hands) -> ToolCall:
    """The call as people may see it, and as it is kept."""
    return ToolCall(call.id, call.name, hands.clean(hands.masked(call.name, call.args)), SOURCE)


async def carried_out(
    calls: Sequence[Call], hands: Hands, session: Session
) -> AsyncGenerator[CallStarted | CallEnded, None]:
    """Carry them out, and write each result into the session: also when somebody stops it in the middle."""
    waiting = list(calls)
    tasks: dict[str, asyncio.Task[Given]] = {}  # by the id of the call
    try:
        for group in _groups(calls, hands):
            for call in group:
                yield CallStarted(call=shown(call, hands))
            tasks |= _begun(group, hands, session)
            for call in group:
                given = await tasks[call.id]
                session.append(_result(call, given, hands.spec(call.name)))
                waiting.pop(0)
                yield CallEnded(call=shown(call, hands), result=given.result, is_cached=given.is_cached)
    finally:
        await _ended(tasks.values())
        for call in waiting:
            task = tasks.get(call.id)
            if task is not None and not task.cancelled() and task.exception() is None:
                session.append(_result(call, task.result(), hands.spec(call.name)))
            else:
                words = NOT_BEGUN if task is None else STOPPED
                session.append(Result(call=call.id, name=call.name, ok=False, content=marked(words)))


def _groups(calls: Sequence[Call], hands: Hands) -> Iterator[list[Call]]:
    """Those that may run at the same time: neighbours whose tools say so. All others are alone."""
    together: list[Call] = []
    for call in calls:
        spec = hands.spec(call.name)
        if spec is None or spec.parallel or spec.pure:  # no tool: nothing runs
            together.append(call)
            continue
        if together:
            yield together
            together = []
        yield [call]
    if together:
        yield together


def _begun(group: list[Call], hands: Hands, session: Session) -> "dict[str, asyncio.Task[Given]]":
    under_way: dict[str, asyncio.Task[Given]] = {}
    tasks: dict[str, asyncio.Task[Given]] = {}
    for call in group:
        spec = hands.spec(call.name)
        key = same(call.name, call.args) if spec is not None and spec.pure and call.malformed is None else None
        task = under_way.get(key) if key else None
        if task is None:
            task = asyncio.create_task(_given(call, spec, hands, session))
        if key:
            under_way[key] = task
        tasks[call.id] = task
    return tasks


async def _given(call: Call, spec: ToolSpec | None, hands: Hands, session: Session) -> Given:
    meta = {"tool": call.name, "source": SOURCE, "duration_ms": 0.0}
    value = session.cached(call.name, call.args) if spec is not None and spec.pure else UNSET
    if call.malformed is not None:
        result = ToolResult(ok=False, error=_not_json(call), meta=meta)
    elif value is not UNSET:
        result = ToolResult(ok=True, data=value, meta={**meta, "cached": True})
    else:
        called = await hands.call(ToolCall(call.id, call.name, call.args, SOURCE))
        result = called.cleaned(hands.clean)  # it stands in the session, where also what the model sent is masked
    content = marked(await hands.content(result))
    return Given(result.plain() if isinstance(result, ServerResult) else result, content, "cached" in result.meta)


def _not_json(call: Call) -> ToolError:
    text = call.malformed or ""
    excerpt = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
    return ToolError(
        code="invalid_args",
        message=f"the arguments of {call.name} are no JSON object: {excerpt}",
        reason="malformed",
        hints=("send one JSON object with the arguments by name, complete and with all quotes escaped",),
    )


def _result(call: Call, given: Given, spec: ToolSpec | None) -> Result:
    keeps = spec is not None and spec.pure and given.result.ok and not given.is_cached and _is_small(given.result.data)
    value: Any | UnsetType = given.result.data if keeps else UNSET
    return Result(call=call.id, name=call.name, ok=given.result.ok, content=given.content, value=value)


def _is_small(value: Any) -> bool:
    try:
        return len(msgspec.json.encode(value)) <= MOST_KEPT
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False


async def _ended(tasks: "Iterable[asyncio.Task[Given]]") -> None:
    """Stop those that are still under way, and wait until they have."""
    left = [task for task in tasks if not task.done()]
    for task in left:
        task.cancel()
    if left:
        await asyncio.gather(*left, return_exceptions=True)
