"""What code prints: kept up to a limit, and shown to whoever listens. When it goes over, the run is stopped."""

from collections.abc import Callable

from onetool.script.limits import LimitHit, Limits, too_much_printed

Live = Callable[[str], None]
"""Told what code prints, as it prints it: in the run's thread, and perhaps for a moment after the run was stopped."""


class Printed:
    """Called by the sandbox with each piece of text."""

    def __init__(self, limits: Limits, live: Live | None, stop: Callable[[LimitHit], None]) -> None:
        self._limits = limits
        self._live = live
        self._stop = stop
        self._parts: list[str] = []
        self._left = limits.output_bytes
        self.broken: Exception | None = None  # what the listener raised

    def __call__(self, _stream: str, text: str) -> None:
        data = text.encode(errors="replace")
        over = len(data) > self._left
        kept = data[: self._left].decode(errors="ignore") if over else text
        self._left = max(0, self._left - len(data))
        if kept:
            self._parts.append(kept)
            self._show(kept)
        if over:
            self._stop(too_much_printed(self._limits))

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def _show(self, text: str) -> None:
        if self._live is None:
            return
        try:
            self._live(text)
        except Exception as error:  # noqa: BLE001 - not the code's fault: it is told to whoever listens, not to the code
            self._live, self.broken = None, error
            self._stop(LimitHit("cancelled", "nobody listens any more", ""))
