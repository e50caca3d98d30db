"""What happens while a question is being answered, in order. The last event is `Done`, unless an AskError is raised.

Over HTTP each is an event of the name that stands as its tag.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from onetool.ask.messages import Usage
from onetool.core.call import ToolCall, ToolResult


class _Event(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type"):
    """One thing that happened."""


class Started(_Event, frozen=True, kw_only=True, tag="started"):
    """The session is open and the model is known; nothing has been sent yet."""

    session_id: str
    is_new: bool
    provider: str
    model: str


class Text(_Event, frozen=True, kw_only=True, tag="text"):
    """A piece of what the model says. `step` counts from 1: what it says before it calls tools is not its answer."""

    text: str
    step: int


class Thinking(_Event, frozen=True, kw_only=True, tag="thinking"):
    text: str
    step: int


class CallStarted(_Event, frozen=True, kw_only=True, tag="call"):
    """A tool is about to be called. Secrets among the arguments are masked."""

    call: ToolCall


class CallEnded(_Event, frozen=True, kw_only=True, tag="result"):
    call: ToolCall
    result: ToolResult
    is_cached: bool = False


class Notice(_Event, frozen=True, kw_only=True, tag="notice"):
    """By the way: a retry, older messages that were left out, the step limit."""

    text: str


class ToolProblem(msgspec.Struct, frozen=True, kw_only=True):
    """The first call that failed."""

    tool: str
    code: str
    message: str


class Executed(msgspec.Struct, frozen=True, kw_only=True):
    call: ToolCall
    result: ToolResult


class Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What came of one question. The members are always all there."""

    answer: str | None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[Executed, ...] = ()  # one for each call, in the order of the calls
    tool_error: ToolProblem | None = None
    session_context_updated: bool = False  # whether tool results were written into the session
    session_id: str | None = None
    provider: str | None = None
    model: str | None = None
    usage: Usage = Usage()
    steps: int = 0  # how often the model was asked
    stop: str | None = None  # why the model stopped
    limit_reached: bool = False  # max_steps
    denied: tuple[str, ...] = ()  # tools that were not let run
    hints: tuple[str, ...] = ()  # what to do about that
    error: Mapping[str, Any] | None = None  # {reason, message, hints}, where there is no answer


class Done(_Event, frozen=True, kw_only=True, tag="answer"):
    answer: Answer


Event = Started | Text | Thinking | CallStarted | CallEnded | Notice | Done
