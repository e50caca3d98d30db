"""Whoever is at the other end of a call, where it can be talked to while the call runs: a client of ours, a terminal.

A handler may ask: the person, the model behind the client, or which folders the client works in. How a question
travels is the interface's business; what it is, is said here. Time spent waiting for an answer counts for nobody.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Any, Literal, Protocol

import msgspec

from onetool.core.errors import ToolFailure

Level = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the caller. `key` distinguishes the questions of one call."""

    key: str


class ForPerson(Question, frozen=True, kw_only=True):
    """A form: a message, and the schema of the object that is wanted. The answer is that object."""

    message: str
    schema: Mapping[str, Any]


class ForModel(Question, frozen=True, kw_only=True):
    """Messages for the model behind the client. The answer is its text."""

    messages: tuple[Mapping[str, Any], ...]
    max_tokens: int
    system: str | None = None


class ForRoots(Question, frozen=True, kw_only=True):
    """Which folders and files the client works on. The answer is a list of them."""


class CannotAsk(ToolFailure):
    """The caller has no way to answer such a question. `capability` is what it lacks."""

    def __init__(self, capability: str, message: str) -> None:
        super().__init__(message, reason="cannot_ask")
        self.capability = capability


class Declined(ToolFailure):
    """The person said no, or nothing."""

    def __init__(self, action: str) -> None:
        super().__init__(f"the person {'declined' if action == 'decline' else 'cancelled'}", reason="declined")
        self.action = action


class Pauses:
    """The total time that a call has waited for its caller. Updated on the event loop, read by any thread.

    A call that waits holds up those that called it, so that the clocks of all of these stand still; what runs beside it
    goes on. Who holds something that others could use meanwhile is told when a pause begins (True) and ends (False).
    """

    __slots__ = ("_callbacks", "_depth", "_outer", "_since", "_total")

    def __init__(self, outer: "Pauses | None" = None) -> None:
        self._outer = outer
        self._total = self._since = 0.0
        self._depth = 0
        self._callbacks: list[Callable[[bool], None]] = []

    def waited(self) -> float:
        return self._total + (monotonic() - self._since if self._depth else 0.0)

    @contextmanager
    def notifying(self, callback: Callable[[bool], None]) -> Generator[None]:
        """Call the function when pauses begin and end, within this context."""
        self._callbacks.append(callback)
        if self._depth:
            callback(True)
        try:
            yield
        finally:
            self._callbacks.remove(callback)
            if self._depth:
                callback(False)

    def __enter__(self) -> None:
        if self._depth == 0:
            self._since = monotonic()
            for callback in self._callbacks:
                callback(True)
        self._depth += 1
        if self._outer is not None:
            self._outer.__enter__()

    def __exit__(self, *_: object) -> None:
        if self._outer is not None:
            self._outer.__exit__()
        if self._depth == 1:
            self._total, self._since = self._total + monotonic() - self._since, monotonic()  # before it counts no more
        self._depth -= 1
        if self._depth == 0:
            for callback in self._callbacks:
                callback(False)


class Caller(Protocol):
    """What a running call can do with the one who made it."""

    def can(self, what: str) -> bool:
        """Whether it has a capability: elicitation, sampling, roots, or an extension by its id."""
        ...

    def lacks(self, error: CannotAsk) -> None:
        """Records a capability that a tool wanted and the caller lacks, for the reply."""
        ...

    def log(self, level: Level, data: Any, logger: str | None) -> None: ...

    async def ask(self, question: Question) -> Any:
        """The answer. Raises CannotAsk, Declined, or another ToolFailure."""
        ...


current_caller: ContextVar[Caller | None] = ContextVar("onetool_current_caller", default=None)


def client_name() -> str:
    """The client's own name; empty for people, Python code, and clients that did not give one."""
    caller = current_caller.get()
    return "" if caller is None else getattr(caller, "client_name", "")
