"""`RateLimiter`, which counts the calls of each limited tool in the last minute, shared by all processes.

A window is named after the place of the tool, so that deleting and storing a tool again doesn't reset the count.
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
LIMITED = "rate_limited"  # the reason of a refused call


class RateLimiter:
    """A limit on the calls of each tool per minute. Without `windows`, each process counts separately."""

    def __init__(self, windows: Callable[[], SharedWindows] | None = None) -> None:
        self._windows = windows or cache(partial(SharedWindows, None))

    def take(self, tool: str, per_minute: int) -> None:
        """Count a call and record the remaining calls in its meta. Raises ToolFailure (rate_limited) if none remain.

        This may wait for another process: on an event loop, use `take_async`.
        """
        _admit(self._windows().take(f"calls of {tool}", per_minute, WINDOW_S), per_minute)

    async def take_async(self, tool: str, per_minute: int) -> None:
        """Count a call like `take`, on an event loop."""
        _admit(await self._windows().take_async(f"calls of {tool}", per_minute, WINDOW_S), per_minute)


def is_counted() -> bool:
    """Return whether the running call was counted already: retries don't count."""
    context = current_call.get()
    return context is not None and NOTE in context.notes


def refuse_limited(result: ToolResult) -> None:
    """Raise RateLimitError, with the time to wait, if a call failed because of its limit."""
    if result.error is not None and result.error.reason == LIMITED and (left := result.meta.get(NOTE)):
        raise RateLimitError(result.error.message, left)


def _admit(count: WindowCount, per_minute: int) -> None:
    # Windows move by whole seconds, so that a call may be possible one second later than stated.
    reset_s = min(max(1, math.ceil(count.reset_s if count.wait is None else count.wait)), WINDOW_S)
    note_call(NOTE, {"limit": per_minute, "remaining": max(0, per_minute - count.used), "reset_s": reset_s})
    if count.wait is not None:
        times = "once" if per_minute == 1 else f"{per_minute:,} times"
        raise ToolFailure(
            f"the limit of calls is reached: {times} a minute (limits.maxCallsPerMinute)",
            reason=LIMITED,
            hints=(f"try again in {reset_s} s",),
        )
