"""Replies whose pieces have an order, and bear signatures: Anthropic and Gemini want them back as they came.

Our own form of a message is one text and some calls. What is kept beside it says how these stood: of each text how long
it is, and of each gap that was put between two; of each call that there is one; signatures and thoughts in full.
"""

from collections.abc import Mapping
from typing import Any

from onetool.ask.messages import Assistant, Call

Piece = tuple[str | Call | None, Mapping[str, Any]]
"""A text, a call or neither, and what was kept of it."""

LEFT_OUT = "(What was said before is left out.)"
"""Stands first where a conversation would begin with the model's own words: both APIs want a person's there."""


def in_order(message: Assistant, order: Any) -> list[Piece] | None:
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


def usual_order(message: Assistant) -> list[Piece]:
    """A text, then calls: what a message is where nothing was kept."""
    return [(message.text, {}), *((call, {}) for call in message.calls)]
