"""One tool of a menu: its listing, and the function that calls it."""

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any

import msgspec

from onetool.core.errors import BadArguments
from onetool.core.signature import signature
from onetool.core.spec import ToolSpec
from onetool.interfaces.mcp.client import ClientCaller

TASK_GRACE = 0.1  # seconds that a call may take before it becomes a task

Call = Callable[[Mapping[str, Any], ClientCaller], Awaitable[dict[str, Any]]]


class MenuEntry(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A tool of a menu. After `task_after` seconds a client with tasks gets a task; None is never."""

    listing: Mapping[str, Any]
    call: Call
    task_after: float | None = None
    needs_task: bool = False
    also: tuple[str, ...] = ()  # further names that it answers to, though they are not listed

    @property
    def name(self) -> str:
        return self.listing["name"]

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """Arguments that a client over HTTP repeats in a header of its own, each with the name of that header."""
        properties = self.listing["inputSchema"].get("properties", {})
        return {
            name: mark
            for name, schema in properties.items()
            if isinstance(schema, dict) and isinstance(mark := schema.get("x-mcp-header"), str)
        }


class ArgumentCheck:
    """Checks the arguments of the menu's own tools (run, search, call); others are checked by the executor."""

    def __init__(self, listing: Mapping[str, Any]) -> None:
        self._spec = ToolSpec(name=listing["name"], description="", input_schema=listing["inputSchema"])

    def __call__(self, args: Mapping[str, Any]) -> None:
        if problems := self._spec.arguments.check(args):
            listed = "; ".join(map(str, problems))
            raise BadArguments(f"Invalid arguments for {self._spec.name}: {listed}", hints=[signature(self._spec)])
