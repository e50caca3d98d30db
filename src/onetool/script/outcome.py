"""What came of a run: a result like any tool's, and what the code printed on its way."""

from onetool.core.call import ToolResult


class RunResult(ToolResult, frozen=True, kw_only=True):
    """`data` is the value of the last expression; `meta` has run (its id), calls (made by the code) and duration_ms."""

    printed: str = ""
