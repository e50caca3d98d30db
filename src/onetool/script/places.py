"""Where things stand in code, in bytes: as the sandbox tells places, and as code is edited."""

import ast
from typing import NamedTuple

Span = tuple[int, int]


class Places:
    """The places of nodes in some code. Lines are measured when the first of them is asked for."""

    def __init__(self, code: str) -> None:
        self._code = code
        self._starts: list[int] = []

    def of(self, node: ast.expr | ast.stmt) -> Span:
        if not self._starts:
            self._starts = [0]
            for line in self._code.encode().split(b"\n"):
                self._starts.append(self._starts[-1] + len(line) + 1)
        end_line = node.end_lineno or node.lineno
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[end_line - 1] + (node.end_col_offset or 0)


class Edit(NamedTuple):
    """What stands from start to end becomes this text."""

    start: int
    end: int
    text: str


def edited(code: str, edits: list[Edit]) -> str:
    data, parts, at = code.encode(), list[bytes](), 0
    for edit in sorted(edits):
        parts += (data[at : edit.start], edit.text.encode())
        at = edit.end
    return b"".join((*parts, data[at:])).decode()
