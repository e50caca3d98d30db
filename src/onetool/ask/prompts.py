"""Builds the prompt of each step: instructions, tools, and as many messages as fit into the model's context window.

The oldest turns are omitted first, and always completely. Token counts are estimates (`core/text.py`), since each model
counts differently.
"""

import asyncio
import json
from collections.abc import Sequence

import msgspec

from onetool.ask.errors import AskError, ModelError
from onetool.ask.messages import (
    LAST_STEP_TEXT,
    USER_CALL_TEXT,
    Assistant,
    ModelPrompt,
    Result,
    SessionMessage,
    Toolset,
    User,
    UserCall,
    mark_as_data,
    on_one_line,
    system_prompt,
    unmark,
)
from onetool.ask.model_client import ModelClient
from onetool.ask.sessions import ChatSession
from onetool.core.text import count_tokens, cut_to_tokens

A_MESSAGE = 4  # tokens around each message
A_CALL = 8
A_PICTURE = 1_500
MARKS = 24  # tokens of the tags around a result
MIN_RESULT = 64  # minimum tokens of a shortened result
MAX_COUNTED = 50_000  # strings with cached counts

UNKNOWN_WINDOW = 32_768
# The documented context windows of text models by family, without options that must be requested or cost more.
# Self-hosted models are not listed: their host sets the window.
WINDOWS = {
    "claude-": 200_000,
    "gemini-": 1_048_576,
    "gpt-3.5-turbo": 16_385,
    "gpt-4": 8_192,
    "gpt-4-32k": 32_768,
    "gpt-4-turbo": 128_000,
    "gpt-4o": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-5": 272_000,  # of 400,000; the rest is for the answer
    "gpt-5-chat": 128_000,
    "gpt-5.1-chat": 128_000,
    "gpt-5.2-chat": 128_000,
    "o1": 200_000,
    "o1-mini": 128_000,
    "o1-preview": 128_000,
    "o3": 200_000,
    "o4-mini": 200_000,
}

_counted: dict[tuple[int, int], int] = {}


def window_of(provider: str, model: str) -> int:
    """Return the context window of a model by name, such as `gpt-4o-mini`, `openai/gpt-4o` or `models/gemini-x`."""
    if provider == "ollama":  # the request sets the window, whatever the model supports
        return UNKNOWN_WINDOW
    name = model.lower().removeprefix("ft:").rpartition("/")[2]
    known = [family for family in WINDOWS if name.startswith(family)]
    return WINDOWS[max(known, key=len)] if known else UNKNOWN_WINDOW


def without_abandoned(messages: Sequence[SessionMessage]) -> list[SessionMessage]:
    """Return the messages without questions that were followed by another question instead of an answer."""
    kept: list[SessionMessage] = []
    asked_next = False
    for message in reversed(messages):
        if not (isinstance(message, User) and asked_next):
            kept.append(message)
        if not isinstance(message, UserCall):  # a call between two questions is not an answer
            asked_next = isinstance(message, User)
    return kept[::-1]


def as_question(call: UserCall) -> User:
    """Return a call by the user as a user message, with the result marked as data."""
    args = json.dumps(call.args, ensure_ascii=False, default=str)
    return User(text=USER_CALL_TEXT.format(name=on_one_line(call.name), args=args, content=call.content))


def fit_messages(
    messages: Sequence[SessionMessage], most: int, *, other: int = 0
) -> tuple[list[SessionMessage], int, int]:
    """Return the newest messages that fit into `most` minus `other` tokens, how many were omitted, and their tokens.

    The messages begin with a question. The last turn always stays; if it is too long, its oldest results are shortened.
    Raises AskError (too_long).
    """
    limit = most - other
    start, used, size = len(messages), 0, 0  # start and tokens of the kept turns; tokens of the current turn
    for place in reversed(range(len(messages))):
        message = messages[place]
        size += _message_tokens(message)
        if isinstance(message, User | UserCall):
            if used and used + size > limit:
                break
            start, used, size = place, used + size, 0
        elif used and used + size > limit:
            break
    kept = list(messages[start:])
    for place, message in enumerate(kept):  # shorten the oldest results first, each only as needed
        if used <= limit:
            break
        if isinstance(message, Result):
            before = _message_tokens(message)
            shorter = _shorter(message, before - (used - limit))
            if (after := _message_tokens(shorter)) < before:
                kept[place] = shorter
                used += after - before
    if used > limit:
        beside = f", including about {other:,} for the instructions and tools" if other else ""
        hints = ["ask a shorter question, or attach less", "choose a model with a larger context window (--model)"]
        if other > most // 2:
            hints.append("show the model fewer tools (--tool-allow), or only `run` (--menu run)")
        hints.append("set ask.context_tokens in the config if the model's window is larger")
        message = f"too long for the model: about {used + other:,} tokens{beside}, but it takes {most:,}"
        raise AskError(message, "too_long", hints)
    return kept, start, used


def _shorter(result: Result, most: int) -> Result:
    text, word = unmark(result.content)
    note = f"\n[… the result has {len(text):,} characters; the rest does not fit into the model's window]"
    keep = max(MIN_RESULT, most - A_MESSAGE - _tokens(result.name) - _tokens(note) - (MARKS if word else 0) - 1)
    # Cut characters first, since counting tokens is slow: a token has at most four characters.
    text = cut_to_tokens(text[: 4 * keep + 4], keep)
    return msgspec.structs.replace(result, content=mark_as_data(text + note, word) if word else text + note)


def _message_tokens(message: SessionMessage) -> int:
    match message:
        case User():
            files = sum(
                A_MESSAGE + _tokens(file.name) + (A_PICTURE if file.text is None else _tokens(file.text))
                for file in message.files
            )
            return A_MESSAGE + _tokens(message.text) + files
        case Assistant():
            calls = sum(A_CALL + _tokens(call.name) + _json_tokens(call.args, call.kept) for call in message.calls)
            malformed = sum(_tokens(call.malformed or "") for call in message.calls)
            return A_MESSAGE + _tokens(message.text) + calls + malformed + _json_tokens(message.kept)
        case Result():
            return A_MESSAGE + _tokens(message.name) + _tokens(message.content)
        case UserCall():
            return A_MESSAGE + _tokens(as_question(message).text)


def _json_tokens(*parts: object) -> int:
    return sum(_tokens(json.dumps(part, ensure_ascii=False, default=str)) for part in parts if part)


def _tokens(text: str) -> int:
    """Return the number of tokens, cached by hash, since each step counts the same messages."""
    key = (hash(text), len(text))
    count = _counted.get(key)
    if count is None:
        if len(_counted) >= MAX_COUNTED:
            _counted.clear()
        count = _counted[key] = count_tokens(text)
    return count


# The prompt of each step

MUCH_TEXT = 100_000  # characters: counting their tokens takes tens of milliseconds
MAX_SHORTENED = 2  # how often a prompt is shortened if the model rejects it as too long
ANSWER_TOKENS = 32_000  # tokens reserved for an answer of unlimited length …
ANSWER_SHARE = 8  # … but at most this fraction of the window


def message_chars(message: SessionMessage) -> int:
    """Return the approximate number of characters of a message."""
    if isinstance(message, Result | UserCall):
        return len(message.content)
    if isinstance(message, User):
        return len(message.text) + sum(len(file.text or "") for file in message.files)
    return len(message.text) + sum(len(str(call.args)) for call in message.calls)


class AskTask(msgspec.Struct, frozen=True, kw_only=True):
    """A question, and the settings for its answer."""

    question: User
    system: str | None = None
    max_steps: int = 8
    stream: bool = True
    temperature: float | None = None
    max_tokens: int | None = None
    context_tokens: int | None = None


class PromptBuilder:
    """A builder of prompts for one question. The context window is from the config, the model's name or its errors."""

    def __init__(self, task: AskTask, model: ModelClient, toolset: Toolset, session: ChatSession) -> None:
        self._task = task
        self._model = model
        self._toolset = toolset
        self._session = session
        has_data = any(isinstance(one, UserCall) for one in session.messages)
        self._system = system_prompt(task.system, bool(toolset), has_data)
        self._window = task.context_tokens or window_of(model.provider, model.name)
        self._shorter = 0
        self._left_out = self._has_noted = 0  # messages

    async def build(self, may_call: bool) -> ModelPrompt:
        """Build the next prompt, in a thread if there is much to count."""
        if sum(map(message_chars, self._session.messages)) < MUCH_TEXT:
            return self._build(may_call)
        return await asyncio.to_thread(self._build, may_call)

    def notice(self) -> str | None:
        """Return a notice about omitted messages, once."""
        if self._left_out <= self._has_noted:
            return None
        self._has_noted = self._left_out
        return f"{self._left_out} older messages are left out: the model takes {self._window:,} tokens"

    def shorten(self, error: ModelError) -> bool:
        """Make the next prompts shorter if the error is `too_long`. Return whether to retry."""
        if error.reason != "too_long" or self._shorter == MAX_SHORTENED:
            return False
        self._shorter += 1
        self._window = min(error.window or self._window // 2, self._window * 4 // 5)
        return True

    def _build(self, may_call: bool) -> ModelPrompt:
        task, model = self._task, self._model
        shown = self._toolset.tokens(model.provider) if may_call else 0
        if shown > self._window * 3 // 4:
            count, takes = len(self._toolset.specs), f"{model.name} takes {self._window:,} in total"
            hints = [
                "--menu run shows the model one tool, which can call all others",
                "--tool-allow NAMES limits the tools",
                "ask.context_tokens in the config sets the model's window, if it is larger",
            ]
            raise AskError(f"{count} tools take about {shown:,} tokens, but {takes}", "too_long", hints)
        note = () if may_call else (User(text=LAST_STEP_TEXT),)  # not stored: the user did not write it
        limit = min(task.max_tokens or ANSWER_TOKENS, self._window // ANSWER_SHARE)
        other = count_tokens(self._system) + shown + sum(count_tokens(one.text) for one in note)
        fitting, self._left_out, used = fit_messages(
            without_abandoned(self._session.messages), self._window, other=other + limit
        )
        return ModelPrompt(
            model=model.name,
            messages=(*(as_question(one) if isinstance(one, UserCall) else one for one in fitting), *note),
            system=self._system,
            tools=self._toolset,
            may_call=may_call,
            temperature=task.temperature,
            max_tokens=task.max_tokens,
            context_tokens=task.context_tokens,
            tokens=used + other,
        )
