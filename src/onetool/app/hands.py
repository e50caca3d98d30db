"""What carries out the calls of a model that was asked: each tool by itself, or code over all of them."""

import asyncio
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from onetool.app.approval import CALL
from onetool.app.run_tool import run_tool
from onetool.ask.calls import SOURCE
from onetool.ask.toolset import Toolset
from onetool.core.call import ServerResult, ToolCall, ToolError, ToolResult
from onetool.core.secrecy import masked
from onetool.core.signature import signature
from onetool.core.spec import ToolSpec
from onetool.script.outcome import RunResult

if TYPE_CHECKING:
    from onetool.app.app import App
    from onetool.app.approval import Approval

RESULT = "ot.result"

asked_inside: ContextVar[int] = ContextVar("onetool_asked_inside", default=0)
"""How many questions to models are under way around the running call: a tool may ask one, too."""


@contextmanager
def one_deeper() -> Generator[None]:
    before = asked_inside.set(asked_inside.get() + 1)
    try:
        yield
    finally:
        asked_inside.reset(before)


class NoHands:
    """For a model that is to have no tools."""

    def __init__(self, app: "App") -> None:
        self.toolset = Toolset(others=app.registry.snapshot().list())
        self.clean = app.redact
        self.denied: list[str] = []

    def spec(self, name: str) -> ToolSpec | None:
        return None

    def masked(self, name: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
        return masked(args)

    async def call(self, call: ToolCall) -> ToolResult:
        """It calls nevertheless."""
        error = ToolError(code="tool_not_found", message="there are no tools in this conversation", reason="denied")
        return _failed(call, error)

    async def content(self, result: ToolResult) -> str:
        return "" if result.error is None else result.error.message


class EachTool:
    """Every visible tool, under its own name."""

    def __init__(self, app: "App", toolset: Toolset, allowed: Collection[str] | None, approval: "Approval") -> None:
        self._app = app
        self._allowed = allowed
        self._approval = approval
        self._specs = {spec.name: spec for spec in toolset.specs}
        self.toolset = toolset
        self.denied = approval.denied
        self.clean = app.redact

    def spec(self, name: str) -> ToolSpec | None:
        return self._specs.get(name) or self._specs.get(self._app.real_name(name))

    def masked(self, name: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
        spec = self.spec(name)
        if spec is None or (meant := _named(spec, args)) is None:
            known = spec or self._app.registry.get(name)  # also of one that may not be called
            return masked(args, known.secrets if known else frozenset())
        return {"name": meant[0], "args": self.masked(*meant)}

    async def call(self, call: ToolCall) -> ToolResult:
        spec = self.spec(call.name)
        if spec is None:  # what a model does not see it can't call; the result tells it what it may have meant
            return await self._app.call(call, self._specs.keys())
        with one_deeper():
            if (meant := _named(spec, call.args)) is not None:
                call = replace(call, name=meant[0], args=meant[1])
            return await self._app.call(call, self._allowed, gate=self._approval.gate)

    async def content(self, result: ToolResult) -> str:
        ran = RunResult(ok=result.ok, data=_for_model(result), error=result.error, meta=result.meta)
        return (await asyncio.to_thread(self._app.reply, ran, read_on=self._read_on)).text

    def _read_on(self, handle: str, offset: int) -> str:
        if RESULT not in self._specs:
            return "nothing here: ot.result is not among your tools; ask for less"
        return f'the tool {RESULT}, with {{"handle": "{handle}", "offset": {offset}}}'


class ByCode:
    """One tool, `run`, whose code reaches all others. Each call that the code makes is decided by itself."""

    def __init__(self, app: "App", allowed: Collection[str] | None, approval: "Approval") -> None:
        listing = run_tool(app, allowed)
        self._app = app
        self._allowed = allowed
        self._approval = approval
        self._spec = ToolSpec(
            name=listing["name"], description=listing["description"], input_schema=listing["inputSchema"]
        )
        self.toolset = Toolset([self._spec], others=app.registry.snapshot().list())
        self.denied = approval.denied
        self.clean = app.redact

    def spec(self, name: str) -> ToolSpec | None:
        return self._spec if name == self._spec.name else None

    def masked(self, name: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
        return masked(args)

    async def call(self, call: ToolCall) -> ToolResult:
        code = call.args.get("code")
        if self._allowed is not None and call.name in self._app.registry and call.name not in self._allowed:
            return await self._app.call(call, self._allowed)  # which refuses it, and says why
        if call.name != self._spec.name:
            message = f"Tool not found: {call.name:.200}; there is one tool, run: its code can call all others"
            return _failed(call, ToolError(code="tool_not_found", message=message, hints=(signature(self._spec),)))
        if not isinstance(code, str) or len(call.args) > 1:
            message = "Invalid arguments for run: expected one, code, the text of a program"
            return _failed(call, ToolError(code="invalid_args", message=message, hints=(signature(self._spec),)))
        with one_deeper():
            return await self._app.run(code, self._allowed, source=SOURCE, gate=self._approval.gate)

    async def content(self, result: ToolResult) -> str:
        ran = result if isinstance(result, RunResult) else RunResult(ok=result.ok, error=result.error)
        reply = await asyncio.to_thread(self._app.reply, ran)
        self._app.replied(ran, [reply.text])
        return reply.text or "(nothing was printed, and the last line has no value)"


def _for_model(result: ToolResult) -> Any:
    """The value; of somebody else's server the text that it sent for models, where that is all that it sent."""
    content = result.sent().content if isinstance(result, ServerResult) else []
    if not content or any(block["type"] != "text" for block in content):
        return result.data
    return "\n".join(block["text"] for block in content)


def _named(spec: ToolSpec, args: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """`ot.call` stands for the tool that it names: that one is decided about, and its secrets are not shown."""
    name, inner = args.get("name"), args.get("args") or {}
    if (
        spec.name != CALL
        or args.keys() - {"name", "args"}
        or not isinstance(name, str)
        or not isinstance(inner, Mapping)
    ):
        return None
    return name, inner


def _failed(call: ToolCall, error: ToolError) -> ToolResult:
    return ToolResult(ok=False, error=error, meta={"tool": call.name, "source": call.source, "duration_ms": 0.0})
