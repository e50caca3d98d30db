"""CallEvidence: the tools that a caller has called with success count a little more in that caller's searches."""

from collections import OrderedDict
from math import log2
from threading import Lock

MAX_CALLERS, MAX_TOOLS = 64, 256  # the least recent are forgotten
ONCE, MAX_EVIDENCE = 0.01, 0.03  # what one call counts, and any number of them: a fair match has 0.5

Counts = OrderedDict[str, int]


class CallEvidence:
    """Counts of successful calls by caller and tool.

    They decide between tools that fit alike, and nothing else. They are kept in memory only, and for their caller only.
    """

    def __init__(self) -> None:
        self._called: OrderedDict[str, Counts] = OrderedDict()
        self._lock = Lock()

    def record(self, caller: str, tool: str) -> None:
        """Note a call that succeeded."""
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
        """Tool -> what is added to its score."""
        with self._lock:
            counts = dict(self._called.get(caller, ()))
        return {tool: min(ONCE * log2(1 + count), MAX_EVIDENCE) for tool, count in counts.items()}
