"""The events of a question, in order. The last event is `Done`, unless an AskError is raised.

Over HTTP, the tag of each class is the name of the event.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from onetool.ask.messages import Usage
from onetool.core.call import ToolCall, ToolResult


class _Event(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type"):
    """Base class for events."""


class Started(_Event, frozen=True, kw_only=True, tag="started"):
    """The start: the session is open and the model is chosen, but nothing has been sent."""

    session_id: str
    is_new: bool
    provider: str
    model: str


class Text(_Event, frozen=True, kw_only=True, tag="text"):
    """A piece of the model's text. `step` counts from 1; text in a step with tool calls is not the answer."""

    text: str
    step: int


class Thinking(_Event, frozen=True, kw_only=True, tag="thinking"):
    text: str
    step: int


class CallStarted(_Event, frozen=True, kw_only=True, tag="call"):
    """The start of a tool call. Secrets in the arguments are masked."""

    call: ToolCall


class CallEnded(_Event, frozen=True, kw_only=True, tag="result"):
    call: ToolCall
    result: ToolResult
    is_cached: bool = False


class Notice(_Event, frozen=True, kw_only=True, tag="notice"):
    """Other information: a retry, omitted older messages, the step limit."""

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
    """The outcome of one question. All members are always present."""

    answer: Annotated[str | None, Meta(description="null if there is none.")]
    tool_calls: Annotated[tuple[ToolCall, ...], Meta(description="The calls made by the model, in order.")] = ()
    tool_results: Annotated[tuple[Executed, ...], Meta(description="The calls with their results, in order.")] = ()
    tool_error: Annotated[ToolProblem | None, Meta(description="The first call that failed.")] = None
    session_context_updated: Annotated[bool, Meta(description="Whether the session has new tool results.")] = False
    session_id: Annotated[str | None, Meta(description="For the next question.")] = None
    provider: str | None = None
    model: str | None = None
    usage: Usage = Usage()
    steps: Annotated[int, Meta(description="How often the model was asked.")] = 0
    stop: Annotated[str | None, Meta(description="Why the model stopped: end, length, refused, other.")] = None
    limit_reached: Annotated[bool, Meta(description="maxSteps was reached.")] = False
    denied: Annotated[tuple[str, ...], Meta(description="Tools whose calls were not approved.")] = ()
    hints: Annotated[tuple[str, ...], Meta(description="What to do about an error.")] = ()
    error: Annotated[Mapping[str, Any] | None, Meta(description="Why there is no answer.")] = None


class Done(_Event, frozen=True, kw_only=True, tag="answer"):
    answer: Answer


Event = Started | Text | Thinking | CallStarted | CallEnded | Notice | Done
