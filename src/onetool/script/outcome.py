"""What came of a run: a result like any tool's, and what the code printed on its way."""

from collections.abc import Callable
from typing import Any, Self

import msgspec

from onetool.core.call import ToolResult


class RunResult(ToolResult, frozen=True, kw_only=True):
    """`data` is the value of the last expression; `meta` has run (its id), calls (made by the code) and duration_ms."""

    printed: str = ""

    def cleaned(self, clean: Callable[[Any], Any]) -> Self:
        return msgspec.structs.replace(super().cleaned(clean), printed=clean(self.printed))
