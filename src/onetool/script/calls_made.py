"""CallsMade: what the calls of a run came to, for whoever reads why it failed: done, failed, and not known."""

from collections import Counter
from collections.abc import Iterable
from threading import Lock

from onetool.core.call import ToolCall, ToolResult
from onetool.core.context import ToolLookup, shown_args
from onetool.core.errors import cut
from onetool.core.signature import as_identifier

MAX_BYTES = {"done": 700, "failed": 700, "not known": 500}  # under 2 KB together
MAX_NOTED = 20  # calls of which the arguments are kept
MAX_VALUE, MAX_ARGS, MAX_MESSAGE = 40, 120, 100  # characters

Made = dict[str, str]
"""What is told, by one of three words."""


class CallsMade:
    """Told of every call of a run, in any thread. `tools` are the catalogue of the run."""

    def __init__(self, tools: ToolLookup) -> None:
        self._tools = tools
        self._lock = Lock()
        self._done = Counter[str]()
        self._failed = Counter[str]()
        self._failures: list[str] = []
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
            self._failed[call.name] += 1
            if len(self._failures) < MAX_NOTED:
                message = cut(" ".join(result.error.message.split()), MAX_MESSAGE)
                self._failures.append(f"{self._shown(call)}: {message}")

    def summary(self) -> Made:
        """Return the three lists; those without a call are left out. Tools that change something come first."""
        with self._lock:
            names = sorted(self._done, key=lambda name: (spec := self._tools.get(name)) is not None and spec.read_only)
            running = [self._shown(call) for call in [*self._running.values()][:MAX_NOTED]]
            lists = {
                "done": _list("done", (f"{name} ×{self._done[name]}" for name in names), len(names)),
                "failed": _list("failed", self._failures, self._failed.total()),
                "not known": _list("not known", running, len(self._running)),
            }
        return {word: told for word, told in lists.items() if told}

    def names(self) -> str:
        """Return the same without arguments, for a record that has no values."""
        with self._lock:
            running = Counter(call.name for call in self._running.values())
            both = (("done", self._done), ("failed", self._failed), ("not known", running))
            lists = {word: _list(word, (f"{name} ×{some[name]}" for name in some), len(some)) for word, some in both}
        return "; ".join(made_lines({word: told for word, told in lists.items() if told}))

    def _shown(self, call: ToolCall) -> str:
        args = shown_args(call, self._tools.get(call.name))
        parts = (f"{as_identifier(name)}={cut(repr(value), MAX_VALUE)}" for name, value in args.items())
        return f"{call.name}({cut(', '.join(parts), MAX_ARGS)})"


def _list(word: str, parts: Iterable[str], count: int) -> str:
    """Return the parts that fit, and the number of the others."""
    shown: list[str] = []
    left = MAX_BYTES[word]
    for part in parts:
        left -= len(part.encode(errors="replace")) + 2
        if left < 0:
            break
        shown.append(part)
    more = f"… and {count - len(shown)} more" if count > len(shown) else ""
    return ", ".join([*shown, *([more] if more else [])])


def made_lines(made: Made) -> tuple[str, ...]:
    return tuple(f"{word}: {told}" for word, told in made.items())
