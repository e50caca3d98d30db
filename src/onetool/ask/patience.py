"""How long a streamed answer is listened to: until it begins, while it goes on, and after it is complete."""

import asyncio

from onetool.ask.providers import Reader

SILENCE = 120.0  # seconds without a byte, once an answer has begun: before that a model may think as long as it likes
AFTERWARDS = 3.0  # seconds in all for what may follow an answer that is complete: how many tokens it took …
ENDING = 0.1  # … and for the end of the body, where nothing may follow: then the connection can be used again


class Patience:
    """With one answer. `until` is the loop's time at which it has to be there."""

    def __init__(self, reader: Reader, silence: float, until: float) -> None:
        self._reader, self._silence, self._until = reader, silence, until
        self._now = asyncio.get_running_loop().time
        self._ends = until
        self._begun = self._was_complete = False

    def seconds(self) -> float | None:
        """How long there may be nothing now; None is until the end."""
        if self._reader.is_complete:
            return self._ends - self._now()
        return self._silence if self._begun else None

    @property
    def is_over(self) -> bool:
        """Also where there always is something at hand, so that nobody ever waits."""
        return self._now() >= self._ends

    def heard(self, more: bool) -> None:
        """An event came. `more`: it had more of the answer in it. Some complete theirs with every piece."""
        self._begun = True
        if self._reader.has_ended:
            self._ends = min(self._ends, self._now() + ENDING)
        elif self._reader.is_complete and (more or not self._was_complete):
            self._was_complete = True
            self._ends = min(self._until, self._now() + AFTERWARDS)
