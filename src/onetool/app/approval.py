"""Whether a model's call may run: tools that change nothing always may; of all others somebody decides."""

from collections.abc import Awaitable, Callable
from typing import Literal

from onetool.core.call import ToolCall, ToolError
from onetool.core.spec import ToolSpec

Approve = Literal["always", "never"] | Callable[[ToolCall, ToolSpec], Awaitable[bool]]

ALLOWING = "--approve always (command line), approve: always (HTTP, Python) lets such calls run"


class Approval:
    """`denied` are the tools that were not let run, in order."""

    def __init__(self, approve: Approve) -> None:
        self._approve: Approve = approve
        self.denied: list[str] = []

    async def refusal(self, call: ToolCall, spec: ToolSpec | None) -> ToolError | None:
        """Why it may not run, for the model to read; None lets it pass. What is not there is told by others."""
        if spec is None or spec.read_only or spec.pure or self._approve == "always":
            return None
        if self._approve != "never" and await self._approve(call, spec):
            return None
        self.denied.append(spec.name)
        return ToolError(code="execution_error", reason="denied", message=self._words(spec), hints=(GO_ON,))

    def _words(self, spec: ToolSpec) -> str:
        if self._approve == "never":
            return f"{spec.name} may change things, and nobody has allowed that here"
        return f"the person did not allow this call of {spec.name}"


GO_ON = "do not try it again: go on without it, or say in your answer what you wanted to do"
