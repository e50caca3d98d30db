"""`RateLimiter` counts the calls of each limited tool over the last minute, together with all processes of the state.

A window is named after the place of the tool, so that a tool that was deleted and put again goes on counting.
"""

import math
from collections.abc import Callable
from functools import cache, partial

from onetool.core.call import ToolResult
from onetool.core.context import current_call, note_call
from onetool.core.errors import ToolFailure
from onetool.database.shared_rates import SharedWindows, WindowCount
from onetool.sources.bundles.errors import RateLimitError

WINDOW_S = 60
NOTE = "rate_limit"  # in the meta of a result
LIMITED = "rate_limited"  # the reason of a call that was one too many


class RateLimiter:
    """Limits calls per minute, per tool. Without `windows`, each process counts for itself."""

    def __init__(self, windows: Callable[[], SharedWindows] | None = None) -> None:
        self._windows = windows or cache(partial(SharedWindows, None))

    def take(self, tool: str, per_minute: int) -> None:
        """Count a call, and note in its meta how many are left. Raises ToolFailure (rate_limited) if none are.

        This may wait for another process: on an event loop, use `take_async`.
        """
        _admit(self._windows().take(f"calls of {tool}", per_minute, WINDOW_S), per_minute)

    async def take_async(self, tool: str, per_minute: int) -> None:
        """Do the same as `take` on an event loop."""
        _admit(await self._windows().take_async(f"calls of {tool}", per_minute, WINDOW_S), per_minute)


def is_counted() -> bool:
    """Return whether the running call has been counted: it may be tried several times, and is one call."""
    context = current_call.get()
    return context is not None and NOTE in context.notes


def refuse_limited(result: ToolResult) -> None:
    """Raise RateLimitError, with the time to wait, where a failed call was one too many."""
    if result.error is not None and result.error.reason == LIMITED and (left := result.meta.get(NOTE)):
        raise RateLimitError(result.error.message, left)


def _admit(found: WindowCount, per_minute: int) -> None:
    # Windows move by whole seconds, so that there may be room a second later than we say.
    reset_s = min(max(1, math.ceil(found.reset_s if found.wait is None else found.wait)), WINDOW_S)
    note_call(NOTE, {"limit": per_minute, "remaining": max(0, per_minute - found.used), "reset_s": reset_s})
    if found.wait is not None:
        times = "once" if per_minute == 1 else f"{per_minute:,} times"
        raise ToolFailure(
            f"it may be called {times} a minute (limits.maxCallsPerMinute), and has been",
            reason=LIMITED,
            hints=(f"try again in {reset_s} s",),
        )
