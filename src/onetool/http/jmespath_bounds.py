"""A JMESPath interpreter with limits on time, steps and size. Imports the library, so import it only where needed."""

from math import isfinite
from time import monotonic
from typing import Any

from jmespath.functions import Functions, signature
from jmespath.visitor import Options, TreeInterpreter

from onetool.http.body import MAX_DEPTH, levels

SECONDS = 2.0
MAX_STEPS = 2_000_000
MAX_PARTS = 2_000_000
MAX_TEXT = 16 * 1024**2


class SelectionTooLargeError(Exception):
    """The result of an expression, or the time it takes, is over a limit."""


def count(value: Any) -> None:
    """Raise SelectionTooLargeError if the data is too large. A value that occurs several times counts several times."""
    seen = 0
    for deep, level in enumerate(levels(value), 1):
        seen += sum(map(len, level))
        if seen > MAX_PARTS:
            raise SelectionTooLargeError(f"its result has more than {MAX_PARTS:,} parts")
        if deep > MAX_DEPTH:
            raise SelectionTooLargeError(f"its result is nested too deep: more than {MAX_DEPTH} levels")


class Bounded(Functions):
    """The functions that walk through data, or whose result can be much larger than their arguments."""

    @signature({"types": ["array", "string"]}, {"types": []})
    def _func_contains(self, subject: Any, search: Any) -> bool:
        if isinstance(search, list | dict):
            count(subject)
        among: Any = subject
        return search in among if isinstance(search, str) or not isinstance(among, str) else False

    @signature({"types": []})
    def _func_to_string(self, arg: Any) -> Any:
        count(arg)
        text: str = Functions._func_to_string(self, arg)  # pyright: ignore[reportAttributeAccessIssue]
        _check_text(len(text))
        return text

    @signature({"types": ["string"]}, {"types": ["array-string"]})
    def _func_join(self, separator: str, array: list[str]) -> str:
        _check_text(len(separator) * len(array) + sum(map(len, array)))
        return separator.join(array)


class Interpreter(TreeInterpreter):
    def __init__(self) -> None:
        super().__init__(Options(custom_functions=Bounded()))
        self._steps = 0
        self._until = monotonic() + SECONDS
        self._visits: dict[str, Any] = {}

    def visit(self, node: Any, value: Any = None) -> Any:
        self._steps += 1
        if self._steps > MAX_STEPS or monotonic() > self._until:  # each time: one step may sort a million
            raise SelectionTooLargeError(f"it takes more than {SECONDS:g} s or {MAX_STEPS:,} steps")
        kind = node["type"]
        visit = self._visits.get(kind)
        if visit is None:
            visit = self._visits[kind] = getattr(self, f"visit_{kind}")
        return visit(node, value)

    def visit_function_expression(self, node: Any, value: Any) -> Any:
        result = super().visit_function_expression(node, value)
        if isinstance(result, float) and not isfinite(result):
            raise SelectionTooLargeError(f"{node['value']}() returns a number that JSON does not have: {result}")
        return result

    def visit_comparator(self, node: Any, value: Any) -> Any:
        sides = [self.visit(child, value) for child in node["children"]]
        for side in sides:
            if isinstance(side, list | dict):
                count(side)
        literals: Any = [{"type": "literal", "value": side, "children": []} for side in sides]
        compared: Any = {**node, "children": literals}
        return super().visit_comparator(compared, value)


def _check_text(size: int) -> None:
    if size > MAX_TEXT:
        raise SelectionTooLargeError(f"its result has a string of more than {MAX_TEXT:,} characters")
