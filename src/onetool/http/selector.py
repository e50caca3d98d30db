"""`Selector` takes a part of a response by JMESPath, within bounds of time, steps and size.

An expression is short, and yet it can make much of little: `[@,@]|[@,@]|…` doubles its data with every step. What it
makes is counted wherever it is walked through.
"""

import asyncio
from collections.abc import Callable
from functools import cache
from math import isfinite
from time import monotonic
from typing import Any

from onetool.core.errors import ToolFailure, cut
from onetool.http.decoding import DEEPEST, levels
from onetool.http.errors import Redact, quoted

LONGEST = 4_000  # characters
SECONDS = 2.0
MOST_STEPS = 2_000_000
MOST_PARTS = 2_000_000
LONGEST_TEXT = 16 * 1024**2
LARGE = 64 * 1024  # bytes of an answer: the loop does not wait for the rest of them


class SelectorError(ValueError):
    """An expression that is none."""


class _TooMuchError(Exception):
    pass


class Selector:
    """Compiled once. `await selector.of(data, size)` gives the part; ToolFailure where it takes too long."""

    def __init__(self, text: str) -> None:
        import jmespath
        from jmespath.exceptions import JMESPathError

        if len(text) > LONGEST:
            raise SelectorError(f"it has more than {LONGEST:,} characters")
        try:
            self._tree = jmespath.compile(text).parsed
        except (JMESPathError, RecursionError, ValueError) as error:
            raise SelectorError(" ".join(str(error).split()) or "it is nested too deep") from None
        self._check_functions(self._tree)
        self._text = text

    async def of(self, data: Any, size: int, redact: Redact = lambda value: value) -> Any:
        """`redact` is for messages: some of them show data."""
        if size <= LARGE:
            return self.now(data, redact)
        return await asyncio.get_running_loop().run_in_executor(None, self.now, data, redact)

    def now(self, data: Any, redact: Redact = lambda value: value) -> Any:
        from jmespath.exceptions import JMESPathError

        try:
            value = _interpreter()().visit(self._tree, data)
            count(value)
            return value
        except _TooMuchError as error:
            raise self._failure(str(error)) from None
        except RecursionError:
            raise self._failure("it is nested too deep") from None
        except (JMESPathError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise self._failure(quoted(str(error), redact, 300)) from None

    def _failure(self, why: str) -> ToolFailure:
        return ToolFailure(
            f"the selector {cut(self._text, 80)!r} can't be applied to the answer: {why}",
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


def count(value: Any) -> None:
    """Whether it can be walked through. What is in it several times counts several times."""
    seen = 0
    for deep, level in enumerate(levels(value), 1):
        seen += sum(map(len, level))
        if seen > MOST_PARTS:
            raise _TooMuchError(f"it makes more than {MOST_PARTS:,} parts of it")
        if deep > DEEPEST:
            raise _TooMuchError(f"what it makes is nested too deep: more than {DEEPEST} levels")


@cache
def _interpreter() -> Callable[[], Any]:
    """The library's interpreter with bounds. Its class can only be made when the library is there."""
    from jmespath.functions import Functions, signature
    from jmespath.visitor import Options, TreeInterpreter

    class Bounded(Functions):
        """Those functions that walk through data, or make much of little."""

        @signature({"types": ["array", "string"]}, {"types": []})
        def _func_contains(self, subject: Any, search: Any) -> bool:
            if isinstance(search, list | dict):
                count(subject)
            among: Any = subject
            return search in among if isinstance(search, str) or not isinstance(among, str) else False

        @signature({"types": []})
        def _func_to_string(self, arg: Any) -> Any:
            count(arg)
            return _short(Functions._func_to_string(self, arg))  # pyright: ignore[reportAttributeAccessIssue]

        @signature({"types": ["string"]}, {"types": ["array-string"]})
        def _func_join(self, separator: str, array: list[str]) -> str:
            if len(separator) * len(array) + sum(map(len, array)) > LONGEST_TEXT:
                raise _TooMuchError(f"it makes a text of more than {LONGEST_TEXT:,} characters")
            return separator.join(array)

    class Interpreter(TreeInterpreter):
        def __init__(self) -> None:
            super().__init__(Options(custom_functions=Bounded()))
            self._steps = 0
            self._until = monotonic() + SECONDS
            self._visits: dict[str, Any] = {}

        def visit(self, node: Any, value: Any = None) -> Any:
            self._steps += 1
            if self._steps > MOST_STEPS or monotonic() > self._until:  # each time: one step may sort a million
                raise _TooMuchError(f"it takes more than {SECONDS:g} s or {MOST_STEPS:,} steps")
            kind = node["type"]
            visit = self._visits.get(kind)
            if visit is None:
                visit = self._visits[kind] = getattr(self, f"visit_{kind}")
            return visit(node, value)

        def visit_function_expression(self, node: Any, value: Any) -> Any:
            made = super().visit_function_expression(node, value)
            if isinstance(made, float) and not isfinite(made):
                raise _TooMuchError(f"{node['value']}() makes a number that JSON does not have: {made}")
            return made

        def visit_comparator(self, node: Any, value: Any) -> Any:
            sides = [self.visit(child, value) for child in node["children"]]
            for side in sides:
                if isinstance(side, list | dict):
                    count(side)
            literals: Any = [{"type": "literal", "value": side, "children": []} for side in sides]
            compared: Any = {**node, "children": literals}
            return super().visit_comparator(compared, value)

    return Interpreter


def _short(text: str) -> str:
    if len(text) > LONGEST_TEXT:
        raise _TooMuchError(f"it makes a text of more than {LONGEST_TEXT:,} characters")
    return text
