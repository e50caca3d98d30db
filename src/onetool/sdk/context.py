"""The running call as a tool sees it: its settings, its secrets, its progress, and other tools to call.

A call of another tool goes through the executor like any other: validated, within limits, recorded, with the settings
and secrets of the pack that it calls. In async code it is awaited, elsewhere it returns the value.
"""

import os
from collections.abc import Mapping
from typing import Any

from onetool.core.call import ToolCall
from onetool.core.context import CallExecutor, current_call
from onetool.core.registry import Snapshot
from onetool.core.signature import arguments_by_name
from onetool.core.spec import ToolSpec


def get_config() -> Mapping[str, Any]:
    """The settings of the pack that is running: `settings: {<pack>: …}` in the config. Empty when there are none."""
    context = current_call.get()
    if context is None or context.environment is None:
        return {}
    return context.environment.settings(context.spec.settings_of or context.spec.pack)


def get_secret(name: str) -> str | None:
    """A secret by name, from the app's secrets or the environment; None when there is none."""
    context = current_call.get()
    if context is None or context.environment is None:
        return os.environ.get(name)
    return context.environment.secret(name)


def report_progress(done: float, total: float | None = None, message: str | None = None) -> None:
    """Report to the caller how far the running tool has come. Does nothing without a listener."""
    context = current_call.get()
    if context is None or context.progress is None:
        return
    if message is not None and context.environment is not None:
        message = context.environment.redact(message)
    context.progress(done, total, message)


# Calling other tools


def get_pack(name: str) -> "Pack | None":
    """A pack's tools as methods: `get_pack("llm").transform(input=…)`; None when there is no such pack."""
    tools = _tools().packs().get(name)
    return None if tools is None else Pack(name, tools)


def call_tool(name: str, /, **kwargs: Any) -> Any:
    """Call a tool by its full name and get its value; a tool that fails raises ToolFailure with its message.

    ValueError when there is no such pack, or no such tool in it, or where the arguments are wrong.
    """
    snapshot = _tools()
    spec = snapshot.get(name)
    pack, _, tool = name.partition(".")
    if spec is None:
        spec = snapshot.packs().get(pack, {}).get(tool)  # one without a dot, under the pack that it is listed in
    if spec is not None:
        return _call(spec, kwargs)
    if pack not in snapshot.packs():
        raise ValueError(f"Pack not found: {pack}")
    raise ValueError(f"Tool not found: {name}{_near(tool, snapshot.packs()[pack], f'{pack}.')}")


class Pack:
    """A pack that can be called: `pack.tool(argument=value)`. `dir(pack)` lists its tools."""

    def __init__(self, name: str, tools: Mapping[str, ToolSpec]) -> None:
        self._name = name
        self._tools = tools

    def __getattr__(self, name: str) -> "PackMethod":
        spec = self._tools.get(name)
        if spec is None:
            raise AttributeError(f"pack {self._name!r} has no tool {name!r}{_near(name, self._tools)}")
        return PackMethod(spec)

    def __dir__(self) -> list[str]:
        return sorted(self._tools)

    def __repr__(self) -> str:
        return f"<pack {self._name}: {', '.join(self._tools)}>"


class PackMethod:
    """One tool of a pack, to be called. Arguments may also be given in the order of the signature."""

    def __init__(self, spec: ToolSpec) -> None:
        self._spec = spec
        self.__name__ = spec.name
        self.__doc__ = spec.description

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return _call(self._spec, arguments_by_name(self._spec, args, kwargs))

    def __repr__(self) -> str:
        from onetool.core.signature import signature

        return f"<tool {signature(self._spec)}>"


def _call(spec: ToolSpec, args: dict[str, Any]) -> Any:
    context = current_call.get()
    if context is None or context.environment is None:
        raise RuntimeError(f"{spec.name} was kept from a call that has ended: a tool can be called only from a tool")
    call = ToolCall(f"{context.call.id}/{spec.name}", spec.name, args, f"tool:{context.spec.name}")
    calls = context.environment.calls
    if is_on_event_loop():
        return _value_later(calls, call)
    return calls.execute_blocking(call).value()


async def _value_later(calls: CallExecutor, call: ToolCall) -> Any:
    return (await calls.execute(call)).value()


def is_on_event_loop() -> bool:
    from asyncio import _get_running_loop  # the public one raises, which costs more than the rest of this

    return _get_running_loop() is not None


def _near(name: str, known: Mapping[str, ToolSpec], prefix: str = "") -> str:
    from onetool.core.text import nearest

    names = nearest(name, known)
    if names:
        return f"; did you mean {' or '.join(prefix + one for one in names)}?"
    return f"; it has {', '.join(prefix + one for one in list(known)[:10])}"


def _tools() -> Snapshot:
    """The tools that the running tool may call; none outside of a call (onetool.sdk.testing provides some)."""
    context = current_call.get()
    if context is None or context.environment is None:
        return Snapshot({})
    return context.environment.snapshot()
