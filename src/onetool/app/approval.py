"""Whether a model's call may run: tools that change nothing always may; of all others somebody decides."""

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Literal

from onetool.core.call import ToolCall
from onetool.core.errors import ToolFailure
from onetool.core.spec import ToolSpec

Approve = Literal["always", "never"] | Callable[[ToolCall, ToolSpec], Awaitable[bool] | bool]

CALL = "ot.call"
ALLOWING = "--approve always (command line), approve: always (HTTP, Python) lets such calls run"
GO_ON = "do not try it again: go on without it, or say in your answer what you wanted to do"


class Approval:
    """`denied` are the tools that were not let run, in order."""

    def __init__(self, approve: Approve) -> None:
        self._approve: Approve = approve
        self.denied: list[str] = []

    async def gate(self, call: ToolCall, spec: ToolSpec) -> ToolFailure | None:
        """What the executor asks before it runs a tool: why not, for the model to read."""
        if spec.read_only or spec.pure or self._approve == "always":
            return None
        is_denied = True
        if spec.name == CALL:  # it is read as the tool that it names; here it names itself, which hides that tool
            return ToolFailure("ot.call can't call ot.call: name the tool itself", reason="denied")
        try:
            is_denied = self._approve == "never" or not await _said(self._approve(call, spec))
        finally:  # who fails to say yes has not said it
            if is_denied:
                self.denied.append(spec.name)
        return ToolFailure(self._words(spec), reason="denied", hints=[GO_ON]) if is_denied else None

    def _words(self, spec: ToolSpec) -> str:
        if self._approve == "never":
            return f"{spec.name} may change things, and nobody has allowed that here"
        return f"the person did not allow this call of {spec.name}"


async def _said(answer: Awaitable[bool] | bool) -> bool:
    return await answer if isawaitable(answer) else answer
