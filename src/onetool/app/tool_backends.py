"""Executes the tool calls of a model, and decides which calls need approval.

The model has no tools, each tool by its own name, or the single tool `run`. Read-only tools always run; `approve`
decides about all others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import isawaitable
from typing import Any, Literal, Protocol

from msgspec.structs import replace

from onetool.app.catalog import ToolCatalog
from onetool.app.runtime import Runtime
from onetool.ask.loop import SOURCE
from onetool.ask.messages import Toolset
from onetool.core.call import ServerResult, ToolCall, ToolError, ToolResult
from onetool.core.context import CallWatch, Gate, kept_value
from onetool.core.errors import ToolFailure
from onetool.core.redaction import mask_arguments
from onetool.core.signature import signature
from onetool.core.spec import ToolSpec
from onetool.http.files import FindFile, attached_file
from onetool.script.run_result import RunResult

OT_RESULT = "ot.result"

ask_depth: ContextVar[int] = ContextVar("onetool_asked_inside", default=0)
"""The number of questions that enclose the running call: a tool may ask a model, too."""


@contextmanager
def nested_ask(attached: FindFile | None) -> Generator[None]:
    """Count a nested question, and let its tools send attached files, which `attached` finds by name."""
    before, files = ask_depth.set(ask_depth.get() + 1), attached_file.set(attached)
    try:
        yield
    finally:
        attached_file.reset(files)
        ask_depth.reset(before)


class ToolCaller(Protocol):
    """The part of the app that a model's calls need."""

    @property
    def runtime(self) -> Runtime: ...

    async def call(
        self, call: ToolCall, allowed: Collection[str] | None = None, *, gate: Gate | None = None
    ) -> ToolResult: ...

    async def run(
        self,
        code: str,
        allowed: Collection[str] | None = None,
        *,
        source: str = "run",
        gate: Gate | None = None,
        watch: CallWatch | None = None,
    ) -> RunResult: ...

    async def look_again(self) -> Runtime: ...


class _Backend:
    """Base class for backends, with the state that they share."""

    def __init__(self, caller: ToolCaller, catalog: ToolCatalog, toolset: Toolset, approval: "Approval") -> None:
        self._caller = caller
        self._catalog = catalog
        self._approval = approval
        self.toolset = toolset
        self.denied, self.not_run = approval.denied, approval.not_run

    def clean(self, value: Any) -> Any:
        return self._caller.runtime.redact(value)


class NoToolsBackend(_Backend):
    """A backend without tools."""

    def __init__(self, caller: ToolCaller, catalog: ToolCatalog) -> None:
        toolset = Toolset(others=catalog.registry.snapshot().listed())
        super().__init__(caller, catalog, toolset, Approval("never", catalog))

    def spec(self, name: str) -> ToolSpec | None:
        return None

    def masked(self, name: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
        return mask_arguments(args)

    def kept(self, name: str, args: Mapping[str, Any], value: Any) -> Any:
        return value

    async def call(self, call: ToolCall) -> ToolResult:
        """Return an error, because there are no tools."""
        error = ToolError(code="tool_not_found", message="there are no tools in this conversation", reason="denied")
        return _error_result(call, error)

    async def content(self, result: ToolResult) -> str:
        return "" if result.error is None else result.error.message


class DirectBackend(_Backend):
    """A backend with every visible tool under its own name."""

    def __init__(
        self,
        caller: ToolCaller,
        catalog: ToolCatalog,
        toolset: Toolset,
        allowed: Collection[str] | None,
        approval: "Approval",
        attached: FindFile,
    ) -> None:
        super().__init__(caller, catalog, toolset, approval)
        self._attached = attached
        self._allowed = allowed
        self._specs = {spec.name: spec for spec in toolset.specs}

    def spec(self, name: str) -> ToolSpec | None:
        return self._specs.get(name) or self._specs.get(self._catalog.real_name(name))

    def masked(self, name: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
        spec = self.spec(name)
        if spec is None or (target := _call_target(spec, args)) is None:
            known = spec or self._catalog.registry.get(name)  # includes tools that may not be called
            return mask_arguments(args, known.secrets if known else frozenset())
        return {"name": target[0], "args": self.masked(*target)}

    def kept(self, name: str, args: Mapping[str, Any], value: Any) -> Any:
        spec = self.spec(name)
        if spec is not None and (target := _call_target(spec, args)) is not None:
            return self.kept(*target, value)
        return kept_value(value, args, spec or self._catalog.registry.get(name))

    async def call(self, call: ToolCall) -> ToolResult:
        spec = self.spec(call.name)
        if spec is None:  # a model can't call tools that it doesn't see; the result suggests similar ones
            return await self._caller.call(call, self._specs.keys())
        with nested_ask(self._attached):
            if (target := _call_target(spec, call.args)) is not None:
                call = replace(call, name=target[0], args=target[1])
            return await self._caller.call(call, self._allowed, gate=self._approval.gate)

    async def content(self, result: ToolResult) -> str:
        content, data = result.sent().content if isinstance(result, ServerResult) else [], result.data
        if content and all(block["type"] == "text" for block in content):  # an MCP server sent only text
            data = "\n".join(block["text"] for block in content)
        of_ot = str(result.meta.get("tool")).startswith("ot.")
        ran = RunResult(ok=result.ok, data=data, error=result.error, meta=result.meta, flow=of_ot)
        return (await asyncio.to_thread(self._caller.runtime.reply, ran, read_on=self._read_on)).text

    def _read_on(self, handle: str, offset: int) -> str:
        if OT_RESULT not in self._specs:
            return "ot.result is not among your tools; request less data"
        return f'the tool {OT_RESULT}, with {{"handle": "{handle}", "offset": {offset}}}'


class RunBackend(_Backend):
    """A backend with one tool, `run`, whose code can call all others. Each of these calls needs its own approval."""

    def __init__(
        self,
        caller: ToolCaller,
        catalog: ToolCatalog,
        listing: Mapping[str, Any],
        allowed: Collection[str] | None,
        approval: "Approval",
        watch: CallWatch | None = None,
        attached: FindFile | None = None,
    ) -> None:
        """Create the backend. `listing` is from `describe.run_tool`; `watch` receives the calls of the code."""
        self._spec = ToolSpec(
            name=listing["name"], description=listing["description"], input_schema=listing["inputSchema"]
        )
        super().__init__(caller, catalog, Toolset([self._spec], others=catalog.registry.snapshot().listed()), approval)
        self._watch = watch
        self._attached = attached
        self._allowed = allowed

    def spec(self, name: str) -> ToolSpec | None:
        return self._spec if name == self._spec.name else None

    def masked(self, name: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
        return mask_arguments(args)

    def kept(self, name: str, args: Mapping[str, Any], value: Any) -> Any:
        """Return the value unchanged: code can't contain secrets that the model doesn't know."""
        return value

    async def call(self, call: ToolCall) -> ToolResult:
        code = call.args.get("code")
        if self._allowed is not None and call.name in self._catalog.registry and call.name not in self._allowed:
            return await self._caller.call(call, self._allowed)  # refuses it and explains why
        if call.name != self._spec.name:
            message = f"Tool not found: {call.name:.200}; there is one tool, run: its code can call all others"
            return _error_result(
                call, ToolError(code="tool_not_found", message=message, hints=(signature(self._spec),))
            )
        if not isinstance(code, str) or len(call.args) > 1:
            message = "Invalid arguments for run: expected one argument, code, with the text of a program"
            return _error_result(call, ToolError(code="invalid_args", message=message, hints=(signature(self._spec),)))
        with nested_ask(self._attached):
            return await self._caller.run(
                code, self._allowed, source=SOURCE, gate=self._approval.gate, watch=self._watch
            )

    async def content(self, result: ToolResult) -> str:
        ran = result if isinstance(result, RunResult) else RunResult(ok=result.ok, error=result.error)
        reply = await asyncio.to_thread(self._caller.runtime.reply, ran)
        self._caller.runtime.record_reply(ran, [reply.text])
        return reply.text or "(nothing was printed, and the last line has no value)"


def _call_target(spec: ToolSpec, args: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """Return the tool and arguments that a call of `ot.call` stands for: approval and masking apply to that tool."""
    name, inner = args.get("name"), args.get("args") or {}
    if (
        spec.name != OT_CALL
        or args.keys() - {"name", "args"}
        or not isinstance(name, str)
        or not isinstance(inner, Mapping)
    ):
        return None
    return name, inner


def _error_result(call: ToolCall, error: ToolError) -> ToolResult:
    return ToolResult(ok=False, error=error, meta={"tool": call.name, "source": call.source, "duration_ms": 0.0})


# Approval

Approve = Literal["always", "never"] | Callable[[ToolCall, ToolSpec], Awaitable[bool] | bool]

OT_CALL = "ot.call"
ALLOWING = "--approve always (command line), approve: always (HTTP, Python) lets such calls run"
GO_ON = "do not try it again: go on without it, or say in your answer what you wanted to do"


class Approval:
    """The approval of a model's calls. `denied` are the refused tools, in order; `not_run`, the ids of the calls."""

    def __init__(self, approve: Approve, catalog: ToolCatalog) -> None:
        self._approve: Approve = approve
        self._catalog = catalog
        self.denied: list[str] = []
        self.not_run: set[str] = set()

    async def gate(self, call: ToolCall, spec: ToolSpec) -> ToolFailure | None:
        """Return why the executor must not run a tool, in words for the model."""
        if spec.read_only or spec.pure or self._approve == "always":
            return None
        is_denied = True
        if spec.name == OT_CALL:  # a nested ot.call would hide the tool that it names
            return ToolFailure("ot.call can't call ot.call: name the tool itself", reason="denied")
        if spec.name == "ot.all":  # the user would not be asked about its calls
            return ToolFailure(
                "ot.all can only be used in code: call the tool itself, page by page", reason="denied", hints=[GO_ON]
            )
        try:
            if self._approve != "never":
                answer = self._approve(call, spec)
                is_denied = not (await answer if isawaitable(answer) else answer)
        finally:  # an exception is not an approval
            if is_denied:
                self.denied.append(spec.name)
                self.not_run.add(call.id)
        if is_denied:
            why = f"the person did not approve this call of {spec.name}"
            if self._approve == "never":
                why = f"{spec.name} may change data, and such calls are not approved here"
            return ToolFailure(why, reason="denied", hints=[GO_ON])
        await self._catalog.refresh(at_once=True)  # the tool may have been disabled while waiting for approval
        now = self._catalog.registry.get(spec.name)
        if now is not None and now.enabled:
            return None
        self.not_run.add(call.id)
        return ToolFailure(f"{spec.name} was switched off before it was approved", reason="denied", hints=[GO_ON])
