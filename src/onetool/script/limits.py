"""What one run may use. Every limit is on by default, and each says which config key sets it when it is hit."""

import msgspec

MEGABYTE = 1024 * 1024
ARGUMENT_BYTES = 16 * MEGABYTE  # that one tool call may be given


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float = 30.0  # of wall time, tool calls included
    memory_mb: int = 256
    calls: int = 1000
    output_bytes: int = MEGABYTE  # of what is printed, and of the result, each
    depth: int = 1000  # of functions that call each other
    workers: int = 8  # runs at the same time; the others wait in order


class LimitHit(Exception):  # noqa: N818 - not an error of ours: the code was stopped, and this says why
    """A run that is over because it used too much. Code in the sandbox can't catch it."""

    def __init__(self, reason: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.hint = hint

    def again(self) -> "LimitHit":
        """The same, to be raised once more."""
        return LimitHit(self.reason, str(self), self.hint)


def too_slow(limits: Limits) -> LimitHit:
    message = f"the run took longer than {limits.seconds:g} s"
    return LimitHit("timeout", message, "do less at once, gather slow calls, or raise run.timeout_s in the config")


def too_much_memory(limits: Limits) -> LimitHit:
    message = f"the code used more than {limits.memory_mb} MB"
    return LimitHit("memory", message, "handle the data in parts, or raise run.memory_mb in the config")


def too_many_calls(limits: Limits) -> LimitHit:
    message = f"more than {limits.calls} tool calls in one run"
    return LimitHit("calls", message, "do the work in several runs, or raise run.max_calls in the config")


def too_much_printed(limits: Limits) -> LimitHit:
    message = f"the code printed more than {limits.output_bytes} bytes"
    return LimitHit("output", message, "print less, or raise run.max_output_bytes in the config")


def too_large(most_bytes: int, what: str) -> LimitHit:
    message = f"{what} is larger than {most_bytes} bytes, has more than a million parts, or is nested too deep"
    return LimitHit("output", message, "keep to the part that matters; run.max_output_bytes sets the limit of a result")


def busy(limits: Limits, waited: float) -> LimitHit:
    message = f"no worker was free for {waited:g} s: {limits.workers} runs are under way, and others wait"
    return LimitHit("busy", message, "try again later, or raise run.workers in the config")


def cancelled() -> LimitHit:
    return LimitHit("cancelled", "the run was cancelled", "")
