"""`Selector` takes a part of a response by JMESPath, within bounds of time, steps and size.

An expression is short, and yet it can make much of little: `[@,@]|[@,@]|…` doubles its data with every step. What it
makes is counted wherever it is walked through.
"""

import asyncio
from typing import Any

from onetool.core.errors import ToolFailure, cut
from onetool.http.errors import Redact, quoted

LONGEST = 4_000  # characters
LARGE = 64 * 1024  # bytes of an answer: the loop does not wait for the rest of them


class SelectorError(ValueError):
    """An expression that is none."""


class Selector:
    """Compiled once. `await selector.of(data, size)` gives the part; ToolFailure where it takes too long."""

    _WHAT, _DATA = "selector", "the answer"  # in messages

    def __init__(self, text: str) -> None:
        import jmespath
        from jmespath.exceptions import JMESPathError

        if len(text) > LONGEST:
            raise SelectorError(f"it has more than {LONGEST:,} characters")
        try:
            self.tree = jmespath.compile(text).parsed
        except (JMESPathError, RecursionError, ValueError) as error:
            raise SelectorError(" ".join(str(error).split()) or "it is nested too deep") from None
        self._check_functions(self.tree)
        self._text = text

    async def of(self, data: Any, size: int, redact: Redact = lambda value: value) -> Any:
        """`redact` is for messages: some of them show data."""
        if size <= LARGE:
            return self.now(data, redact)
        return await asyncio.get_running_loop().run_in_executor(None, self.now, data, redact)

    def now(self, data: Any, redact: Redact = lambda value: value) -> Any:
        from jmespath.exceptions import JMESPathError

        from onetool.http.jmespath_bounds import Interpreter, SelectionTooLargeError, count

        try:
            value = Interpreter().visit(self.tree, data)
            count(value)
            return value
        except SelectionTooLargeError as error:
            raise self._failure(str(error)) from None
        except RecursionError:
            raise self._failure("it is nested too deep") from None
        except (JMESPathError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise self._failure(quoted(str(error), redact, 300)) from None

    def _failure(self, why: str) -> ToolFailure:
        return ToolFailure(
            f"the {self._WHAT} {cut(self._text, 80)!r} can't be applied to {self._DATA}: {why}",
            reason="output_invalid",
        )

    def _check_functions(self, node: Any) -> None:
        """Refuse unknown functions before the first call."""
        from jmespath.functions import Functions

        table = Functions.FUNCTION_TABLE
        waiting = [node]
        while waiting:
            one = waiting.pop()
            if not isinstance(one, dict):
                continue
            if one.get("type") == "function_expression" and one["value"] not in table:
                raise SelectorError(f"there is no function {one['value']}(); there are {', '.join(sorted(table))}")
            waiting += one.get("children") or ()
