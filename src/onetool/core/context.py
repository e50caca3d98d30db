"""The call that is running now, for code that a handler calls without passing anything on.

The executor sets it around every handler; the SDK reads it. A context variable and not a global: two calls at once
each see their own, also in threads, and code outside of any call sees none.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from time import monotonic
from typing import Any, Protocol

import msgspec

from onetool.core.call import ToolCall, ToolResult
from onetool.core.caller import Pauses, current_caller
from onetool.core.errors import ToolFailure
from onetool.core.registry import Snapshot
from onetool.core.spec import ToolSpec

Progress = Callable[[float, float | None, str | None], None]
"""Told how far a call has come: done, of how many (if known), and what it is doing."""

Gate = Callable[[ToolCall, ToolSpec], Awaitable[ToolFailure | None]]
"""Asked before a call is carried out that could be, where somebody wants to be: None lets it pass."""


class Calls(Protocol):
    """A way to call other tools: the executor."""

    async def execute(self, call: ToolCall, allowed: Collection[str] | None = None) -> ToolResult: ...

    def execute_blocking(self, call: ToolCall, allowed: Collection[str] | None = None) -> ToolResult: ...


class Environment(Protocol):
    """What the app lends to running tools: the settings and secrets of their packs, and the other tools."""

    def settings(self, pack: str) -> Mapping[str, Any]: ...

    def secret(self, name: str) -> str | None: ...

    def redact(self, value: Any, sent: Any = None) -> Any: ...

    def snapshot(self) -> Snapshot: ...

    @property
    def calls(self) -> Calls: ...


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    """One call under way: which tool, asked by whom, until when, and what it may reach."""

    spec: ToolSpec
    call: ToolCall
    environment: Environment | None = None
    tools: Snapshot | None = None  # the catalogue that its caller began with, where that is not the one of now
    chain: tuple[str, ...] = ()  # the tools that called each other until here, this one last
    seconds: float = float("inf")  # how long it may take …
    deadline: float = float("inf")  # … and until when that is, on the clock of time.monotonic
    pauses: Pauses | None = None  # time that does not count; none where there is nobody to wait for
    allowed: Collection[str] | None = None
    progress: Progress | None = None
    run: str | None = None  # the id of the run that this is, if it is one: what its code calls is counted to it
    gate: Gate | None = None  # of a run: what its code calls has to pass; not what tools call in their turn
    loop: Any = None  # the event loop that async tools of this chain of calls run on

    def left(self) -> float:
        """Seconds until its time is up."""
        paused = 0.0 if self.pauses is None else self.pauses.waited()
        return self.deadline + paused - monotonic()


current_call: ContextVar[CallContext | None] = ContextVar("onetool_current_call", default=None)


def pauses_inside(outer: CallContext | None) -> Pauses | None:
    """For a new call: of its own, if there is a caller that it may have to wait for."""
    if outer is not None:
        return None if outer.pauses is None else Pauses(outer.pauses)
    return None if current_caller.get() is None else Pauses()


def waiting() -> AbstractContextManager[None]:
    """While a running call waits for its caller: its time does not count."""
    context = current_call.get()
    return nullcontext() if context is None or context.pauses is None else context.pauses
