"""Where the running call stands: which tools it began with, and which of them it may use."""

from collections.abc import Collection

from onetool.core.context import current_call
from onetool.core.registry import Snapshot


def seen_from_here() -> tuple[Snapshot, Collection[str] | None]:
    """The catalogue that the running call belongs to, and the allow-list that it is under."""
    context = current_call.get()
    if context is None or context.environment is None:
        return Snapshot({}), None
    return context.tools or context.environment.snapshot(), context.allowed
