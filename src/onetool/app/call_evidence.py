"""CallEvidence: ranks tools that a caller has called successfully a little higher in that caller's searches."""

from collections import OrderedDict
from math import log2
from threading import Lock

MAX_CALLERS, MAX_TOOLS = 64, 256  # the least recently used are dropped
ONCE, MAX_EVIDENCE = 0.01, 0.03  # score for one call, and maximum for any number of calls; a fair match scores 0.5

Counts = OrderedDict[str, int]


class CallEvidence:
    """Counts of successful calls by caller and tool.

    They only decide between tools that match equally well. They stay in memory and affect only their caller's searches.
    """

    def __init__(self) -> None:
        self._called: OrderedDict[str, Counts] = OrderedDict()
        self._lock = Lock()

    def record(self, caller: str, tool: str) -> None:
        """Count a successful call."""
        with self._lock:
            counts = self._called.setdefault(caller, Counts())
            counts[tool] = counts.get(tool, 0) + 1
            counts.move_to_end(tool)
            self._called.move_to_end(caller)
            if len(counts) > MAX_TOOLS:
                counts.popitem(last=False)
            if len(self._called) > MAX_CALLERS:
                self._called.popitem(last=False)

    def of(self, caller: str) -> dict[str, float]:
        """Return the amount to add to each tool's score."""
        with self._lock:
            counts = dict(self._called.get(caller, ()))
        return {tool: min(ONCE * log2(1 + count), MAX_EVIDENCE) for tool, count in counts.items()}
