"""What was left open is closed, on reading: every call has one result, right behind it and in the calls' order.

A call without a result may have done its work or not; the model is told so. A result without its call is left out.
"""

from collections.abc import Iterable
from typing import NamedTuple

from onetool.ask.messages import Assistant, Call, Message, Result

INTERRUPTED = (
    "This call was interrupted before its result was kept: its outcome is unknown. "
    "It may have done all, part or none of its work; look before it is called again."
)
UNDER_WAY = "This call is under way: there is no result yet."


class Said(NamedTuple):
    message: Message
    at: float


class _Open:
    """The calls of one message, and their results as they come."""

    def __init__(self, calls: Iterable[Call] = (), at: float = 0.0) -> None:
        self._calls = list(calls)
        self._at = at
        self._results: list[Said | None] = [None] * len(self._calls)
        self._waiting: dict[str, list[int]] = {}
        for place in reversed(range(len(self._calls))):
            self._waiting.setdefault(self._calls[place].id, []).append(place)

    def take(self, result: Result, at: float) -> None:
        places = self._waiting.get(result.call)
        if places:
            self._results[places.pop()] = Said(result, at)

    def closed(self, words: str = INTERRUPTED) -> Iterable[Said]:
        for call, result in zip(self._calls, self._results, strict=True):
            yield result or Said(Result(call=call.id, name=call.name, content=words, ok=False), self._at)


def mended(said: Iterable[Said], goes_on: bool = False) -> list[Said]:
    """`goes_on`: somebody is at it, so that the last calls may yet have their results."""
    whole: list[Said] = []
    under_way = _Open()
    for message, at in said:
        if isinstance(message, Result):
            under_way.take(message, at)
            continue
        whole += under_way.closed()
        whole.append(Said(message, at))
        under_way = _Open(message.calls, at) if isinstance(message, Assistant) else _Open()
    whole += under_way.closed(UNDER_WAY if goes_on else INTERRUPTED)
    return whole
