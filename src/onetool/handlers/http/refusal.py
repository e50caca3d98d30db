"""A request that is not made: where it would go is not allowed, or is no place at all."""

from collections.abc import Iterable

from onetool.core.errors import ToolFailure


class Refusal(ToolFailure):
    """Nothing has been sent. `hints` say what to change in the config, where that would help."""

    def __init__(self, message: str, hints: Iterable[str] = ()) -> None:
        super().__init__(message, reason="denied", hints=hints)
