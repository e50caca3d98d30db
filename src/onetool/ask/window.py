"""As much of what was said as a model can take: the oldest turns are left out first, and always whole.

Tokens are estimated (core/tokens): every model counts in its own way, and none of them can be asked before.
"""

import json
from collections.abc import Sequence

import msgspec

from onetool.ask.errors import AskError
from onetool.ask.messages import Assistant, File, Message, Result, User
from onetool.ask.words import marked, unmarked
from onetool.core.tokens import cut_to, tokens

A_MESSAGE = 4  # what stands around each, in tokens
A_CALL = 8
A_PICTURE = 1_500
MARKS = 24  # around what a tool gave
SHORTEST = 64  # tokens of a result that stay, however little room there is
MOST_COUNTED = 50_000  # texts whose numbers are remembered

UNKNOWN = 32_768
# What a family's models for text read at most, as their maker says. Where more has to be asked for or costs more, it is
# what is read without. Models that people host themselves are not here: their window is what the host has set.
WINDOWS = {
    "claude-": 200_000,
    "gemini-": 1_048_576,
    "gpt-3.5-turbo": 16_385,
    "gpt-4": 8_192,
    "gpt-4-32k": 32_768,
    "gpt-4-turbo": 128_000,
    "gpt-4o": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-5": 272_000,  # of 400,000; the rest is for its answer
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
    """How many tokens the model takes, by its name: `gpt-4o-mini`, `openai/gpt-4o` and `models/gemini-x` are known."""
    if provider == "ollama":  # it serves with the window that it is told, whatever the model could take
        return UNKNOWN
    name = model.lower().removeprefix("ft:").rpartition("/")[2]
    known = [family for family in WINDOWS if name.startswith(family)]
    return WINDOWS[max(known, key=len)] if known else UNKNOWN


def answered(messages: Sequence[Message]) -> list[Message]:
    """All but the questions that were given up before the model said a word: whoever asks again means the new one."""
    following = [*messages[1:], None]
    return [
        one
        for one, next in zip(messages, following, strict=True)
        if not isinstance(one, User) or not isinstance(next, User)
    ]


def fit(messages: Sequence[Message], most: int, *, other: int = 0) -> tuple[list[Message], int, int]:
    """What fits into `most` tokens beside `other` (instructions, tools); how many messages were left out; its tokens.

    It begins with a question. The last turn always stays; where it is too long by itself, its oldest results are
    shortened. Raises AskError (too_long).
    """
    room = most - other
    start, used, size = len(messages), 0, 0  # of what stays; and of the turn that is being counted, from its end
    for place in reversed(range(len(messages))):
        message = messages[place]
        size += _size(message)
        if isinstance(message, User):
            if used and used + size > room:
                break
            start, used, size = place, used + size, 0
        elif used and used + size > room:
            break
    kept = list(messages[start:])
    if used > room:
        kept, used = _shortened(kept, used, room)
    if used > room:
        raise _too_long(used, most, other)
    return kept, start, used


def _shortened(messages: list[Message], used: int, room: int) -> tuple[list[Message], int]:
    """The oldest results first, and each by no more than is needed."""
    for place, message in enumerate(messages):
        if used <= room:
            break
        if isinstance(message, Result):
            before = _size(message)
            shorter = _shorter(message, before - (used - room))
            if (after := _size(shorter)) < before:
                messages[place] = shorter
                used += after - before
    return messages, used


def _shorter(result: Result, most: int) -> Result:
    text, word = unmarked(result.content)
    note = f"\n[… of {len(text):,} characters the rest is left out here: it does not fit into the model's window]"
    keep = max(SHORTEST, most - A_MESSAGE - _tokens(result.name) - _tokens(note) - (MARKS if word else 0) - 1)
    text = cut_to(text[: 4 * keep + 4], keep)  # a token is four characters at most, and counting takes long
    return msgspec.structs.replace(result, content=marked(text + note, word) if word else text + note)


def _size(message: Message) -> int:
    match message:
        case User():
            return A_MESSAGE + _tokens(message.text) + sum(map(_file_size, message.files))
        case Assistant():
            calls = sum(A_CALL + _tokens(call.name) + _json_size(call.args, call.kept) for call in message.calls)
            malformed = sum(_tokens(call.malformed or "") for call in message.calls)
            return A_MESSAGE + _tokens(message.text) + calls + malformed + _json_size(message.kept)
        case Result():
            return A_MESSAGE + _tokens(message.name) + _tokens(message.content)


def _file_size(file: File) -> int:
    return A_MESSAGE + _tokens(file.name) + (_tokens(file.text) if file.text is not None else A_PICTURE)


def _json_size(*parts: object) -> int:
    return sum(_tokens(json.dumps(part, ensure_ascii=False, default=str)) for part in parts if part)


def _tokens(text: str) -> int:
    """Counted once: the same messages are asked about at every step. Only numbers are kept, not the texts."""
    key = (hash(text), len(text))
    count = _counted.get(key)
    if count is None:
        if len(_counted) >= MOST_COUNTED:
            _counted.clear()
        count = _counted[key] = tokens(text)
    return count


def _too_long(used: int, most: int, other: int) -> AskError:
    beside = f", with about {other:,} for the instructions and tools" if other else ""
    hints = ["ask a shorter question, or attach less", "choose a model with a larger window (--model)"]
    if other > most // 2:
        hints.append("show it fewer tools (--tool-allow), or `run` alone (--menu run)")
    hints.append("set ask.context_tokens in the config, if the model takes more than that")
    total = used + other
    return AskError(f"too long for the model: about {total:,} tokens{beside}, and it takes {most:,}", "too_long", hints)
