"""The order of a conversation: who speaks after whom, and the pieces of a reply in their order.

Many servers, and the chat templates of many models, refuse two messages of a person in a row. Anthropic and Gemini want
thoughts and signatures back in the order in which they came.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from onetool.ask.messages import Assistant, Call, Message, User
from onetool.ask.providers.reading import with_files


def merge_turns(messages: Iterable[Message]) -> Iterator[Message]:
    """The messages without blank replies; what a person said several times in a row is one."""
    asked: User | None = None
    for message in messages:
        if isinstance(message, User):
            asked = message if asked is None else _merged(asked, message)
        elif not is_blank(message):
            if asked is not None:
                yield asked
                asked = None
            yield message
    if asked is not None:
        yield asked


def is_blank(message: Message) -> bool:
    """Whether a reply has neither text nor calls."""
    return isinstance(message, Assistant) and not message.calls and not message.text.strip()


def _merged(first: User, second: User) -> User:
    texts = filter(None, (with_files(first), with_files(second)))
    pictures = (file for file in (*first.files, *second.files) if file.data is not None)
    return User(text="\n\n".join(texts), files=tuple(pictures))


# Pieces of a reply in their order, with signatures (Anthropic, Gemini)


Piece = tuple[str | Call | None, Mapping[str, Any]]
"""A text, a call or neither, and what was kept of it."""

LEFT_OUT_TEXT = "(What was said before is left out.)"
"""Stands first where a conversation would begin with the model's own words: both APIs want a person's there."""


def pieces_in_order(message: Assistant, order: Any) -> list[Piece] | None:
    """The pieces of a message as they came. None where this is not, or no longer, the message that `order` is of."""
    pieces: list[Piece] = []
    calls = iter(message.calls)
    at = 0
    for kept in order if isinstance(order, list | tuple) else ():
        if not isinstance(kept, Mapping):
            return None
        length, gap = kept.get("text"), kept.get("gap")
        if isinstance(gap, int) and gap >= 0:
            at += gap
        elif isinstance(length, int) and length >= 0:
            pieces.append((message.text[at : at + length], kept))
            at += length
        elif "call" in kept:
            if (call := next(calls, None)) is None:
                return None
            pieces.append((call, kept))
        else:
            pieces.append((None, kept))
    return pieces if at == len(message.text) and next(calls, None) is None else None


def default_order(message: Assistant) -> list[Piece]:
    """A text, then calls: what a message is where nothing was kept."""
    return [(message.text, {}), *((call, {}) for call in message.calls)]
