"""RunResult, the outcome of a run; RunLimits, what a run may use; and the output that code prints.

Every limit is on by default, and the error of each names the config key that sets it.
"""

from collections.abc import Callable
from typing import Any, Self

import msgspec

from onetool.core.call import ToolError, ToolResult
from onetool.script.calls_made import Made, made_lines

MEGABYTE = 1024 * 1024
ARGUMENT_BYTES = 16 * MEGABYTE  # that one tool call may be given


class RunLimits(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float = 30.0  # of wall time, tool calls included
    memory_mb: int = 256
    calls: int = 1000
    output_bytes: int = MEGABYTE  # of what is printed, and of the result, each
    depth: int = 1000  # of functions that call each other
    workers: int = 8  # runs at the same time; the others wait in order


class LimitError(Exception):
    """A run that is over because it used too much. Code in the sandbox can't catch it."""

    def __init__(self, reason: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.hint = hint

    def again(self) -> "LimitError":
        """Return the same, to be raised once more."""
        return LimitError(self.reason, str(self), self.hint)


def too_slow(limits: RunLimits) -> LimitError:
    message = f"the run took longer than {limits.seconds:g} s"
    return LimitError("timeout", message, "do less at once, gather slow calls, or raise run.timeout_s in the config")


def too_much_memory(limits: RunLimits) -> LimitError:
    message = f"the code used more than {limits.memory_mb} MB"
    return LimitError("memory", message, "handle the data in parts, or raise run.memory_mb in the config")


def too_many_calls(limits: RunLimits) -> LimitError:
    message = f"more than {limits.calls} tool calls in one run"
    return LimitError("calls", message, "do the work in several runs, or raise run.max_calls in the config")


def too_much_printed(limits: RunLimits) -> LimitError:
    message = f"the code printed more than {limits.output_bytes} bytes"
    return LimitError("output", message, "print less, or raise run.max_output_bytes in the config")


def too_large(most_bytes: int, what: str) -> LimitError:
    message = f"{what} is larger than {most_bytes} bytes, has more than a million parts, or is nested too deep"
    return LimitError(
        "output", message, "keep to the part that matters; run.max_output_bytes sets the limit of a result"
    )


def busy(limits: RunLimits, waited: float) -> LimitError:
    message = f"no worker was free for {waited:g} s: {limits.workers} runs are under way, and others wait"
    return LimitError("busy", message, "try again later, or raise run.workers in the config")


def cancelled() -> LimitError:
    return LimitError("cancelled", "the run was cancelled", "")


# The result


class RunResult(ToolResult, frozen=True, kw_only=True):
    """`data` is the value of the last expression; `meta` has run (its id), calls (made by the code), duration_ms,
    and of a failure `place`, where in the text, if that is known, and `made`: which calls were done, failed, or may
    have been done."""

    printed: str = ""

    @property
    def told_error(self) -> ToolError | None:
        """The error for whoever reads it: its hints also say what the calls came to."""
        made: Made = self.meta.get("made", {})
        if self.error is None or not made:
            return self.error
        return msgspec.structs.replace(self.error, hints=(*self.error.hints, *made_lines(made)))

    def cleaned(self, clean: Callable[[Any], Any]) -> Self:
        return msgspec.structs.replace(super().cleaned(clean), printed=clean(self.printed))


OnPrinted = Callable[[str], None]
"""Told what code prints, as it prints it: in the run's thread, and perhaps for a moment after the run was stopped."""
