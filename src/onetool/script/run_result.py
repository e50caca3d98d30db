"""RunResult, the outcome of a run; RunLimits, its limits; CallLog, the outcomes of its calls.

All limits are on by default, and their errors name the config keys.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Any, Self

import msgspec

from onetool.core.call import ToolCall, ToolError, ToolResult
from onetool.core.context import ToolLookup, shown_args
from onetool.core.errors import cut
from onetool.core.limits import MIB
from onetool.core.signature import as_identifier

ARGUMENT_BYTES = 16 * MIB  # the arguments of one tool call


class RunLimits(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float = 30.0  # of wall time, including tool calls
    memory_mb: int = 256
    calls: int = 1000
    output_bytes: int = MIB  # of printed output, and of the result, each
    depth: int = 1000  # nested function calls
    workers: int = 8  # concurrent runs; the others wait in order


class LimitError(Exception):
    """A run ended because it exceeded a limit. Code in the sandbox can't catch this."""

    def __init__(self, reason: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.hint = hint

    def again(self) -> "LimitError":
        """Return a copy to raise."""
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


def too_large(max_bytes: int, what: str) -> LimitError:
    message = f"{what} is larger than {max_bytes} bytes, has more than a million parts, or is nested too deep"
    return LimitError("output", message, "return only what matters; run.max_output_bytes sets the limit of a result")


def busy(limits: RunLimits, waited: float) -> LimitError:
    message = f"no worker was free for {waited:g} s: {limits.workers} runs are in progress, and others wait"
    return LimitError("busy", message, "try again later, or raise run.workers in the config")


def cancelled() -> LimitError:
    return LimitError("cancelled", "the run was cancelled", "")


# The outcomes of the calls, for readers of an error

MAX_BYTES = {"done": 700, "failed": 700, "not known": 500}  # under 2 KB together
MAX_NOTED = 20  # calls whose arguments are kept
MAX_VALUE, MAX_ARGS, MAX_MESSAGE = 40, 120, 100  # characters

Made = dict[str, str]
"""Texts about the calls, by one of three outcomes."""


class CallLog:
    """A log of the calls of a run, from any thread. `tools` are the catalogue of the run."""

    def __init__(self, tools: ToolLookup) -> None:
        self._tools = tools
        self._lock = Lock()
        self._done = Counter[str]()
        self._failed = Counter[str]()
        self._failures: list[str] = []
        self._timed_out = Counter[str]()  # their effect isn't known
        self._timeouts: list[str] = []
        self._running: dict[str, ToolCall] = {}

    def began(self, call: ToolCall) -> None:
        with self._lock:
            self._running[call.id] = call

    def ended(self, call: ToolCall, result: ToolResult) -> None:
        with self._lock:
            self._running.pop(call.id, None)
            if result.error is None:
                self._done[call.name] += 1
                return
            has_answer = result.error.reason != "timeout"
            counts, texts = (self._failed, self._failures) if has_answer else (self._timed_out, self._timeouts)
            counts[call.name] += 1
            if len(texts) < MAX_NOTED:
                texts.append(f"{self._call_text(call)}: {_one_line(result.error.message)}")

    def only_ot(self) -> bool:
        """Return whether all calls that gave a value were calls of `ot`, and there was one."""
        with self._lock:
            return bool(self._done) and all(name.startswith("ot.") for name in self._done)

    def counts(self) -> str:
        with self._lock:
            unknown = len(self._running) + self._timed_out.total()
            return f"calls done: {self._done.total()}, failed: {self._failed.total()}, not known: {unknown}"

    def summary(self) -> Made:
        """Return the calls by outcome, without empty outcomes. Tools that change something come first."""
        with self._lock:
            only_read = {name for name in self._done if (spec := self._tools.get(name)) is not None and spec.read_only}
            names = sorted(self._done, key=only_read.__contains__)
            running = [self._call_text(call) for call in [*self._running.values()][:MAX_NOTED]]
            unknown = len(self._running) + self._timed_out.total()
            return _made(
                {
                    "done": ((f"{name} ×{self._done[name]}" for name in names), len(names)),
                    "failed": (self._failures, self._failed.total()),
                    "not known": ([*running, *self._timeouts], unknown),
                }
            )

    def names(self) -> str:
        """Return the calls by outcome without arguments, for records without values."""
        with self._lock:
            unknown = Counter(call.name for call in self._running.values()) + self._timed_out
            counters = {"done": self._done, "failed": self._failed, "not known": unknown}
            made = _made(
                {
                    outcome: ((f"{name} ×{count}" for name, count in counter.items()), len(counter))
                    for outcome, counter in counters.items()
                }
            )
        return "; ".join(made_lines(made))

    def _call_text(self, call: ToolCall) -> str:
        args = shown_args(call, self._tools.get(call.name))
        parts = (f"{as_identifier(name)}={cut(repr(value), MAX_VALUE)}" for name, value in args.items())
        return f"{call.name}({cut(', '.join(parts), MAX_ARGS)})"


def _one_line(message: str) -> str:
    return cut(" ".join(message.split()), MAX_MESSAGE)


def _made(outcomes: Mapping[str, tuple[Iterable[str], int]]) -> Made:
    """Return, for each outcome with calls, the lines that fit and the number of the others."""
    made: Made = {}
    for outcome, (texts, count) in outcomes.items():
        shown: list[str] = []
        left = MAX_BYTES[outcome]
        for text in texts:
            left -= len(text.encode(errors="replace")) + 2
            if left < 0:
                break
            shown.append(text)
        if count > len(shown):
            shown.append(f"… and {count - len(shown)} more")
        if shown:
            made[outcome] = ", ".join(shown)
    return made


def made_lines(made: Made) -> tuple[str, ...]:
    return tuple(f"{word}: {text}" for word, text in made.items())


# The result


class RunResult(ToolResult, frozen=True, kw_only=True):
    """The result of a run. `data` is the value of the last expression. `meta` has run (its ID), calls (made by the
    code), duration_ms, and for a failure `place` (in the text, if known) and `made` (which calls were done, failed, or
    may have been done). With `flow`, as for data of `ot`, lists of objects are shown with one line for each object.
    """

    printed: str = ""
    flow: bool = False

    @property
    def error_with_calls(self) -> ToolError | None:
        """The error for its reader: the hints include the outcomes of the calls."""
        made: Made = self.meta.get("made", {})
        if self.error is None or not made:
            return self.error
        if "failed" in made:  # the last failure is usually the error itself
            made = {**made, "failed": made["failed"].removesuffix(f": {_one_line(self.error.message)}")}
        return msgspec.structs.replace(self.error, hints=(*self.error.hints, *made_lines(made)))

    def cleaned(self, clean: Callable[[Any], Any]) -> Self:
        return msgspec.structs.replace(super().cleaned(clean), printed=clean(self.printed))

    def to_dict(self) -> dict[str, Any]:
        return {key: value for key, value in super().to_dict().items() if key != "flow"}


OnPrinted = Callable[[str], None]
"""Called with printed text, in the run's thread, and perhaps for a moment after the run was stopped."""
