"""Testing a pack without a server.

from onetool.sdk.testing import packs
import weather

def test_forecast():
    with packs(weather, settings={"weather": {"unit": "C"}}, secrets={"WEATHER_KEY": "k"}) as tools:
        assert tools.call("weather.forecast", city="Oslo") == "sunny"       # validated, as an agent would call it
        assert tools.result("weather.forecast").error.code == "invalid_args"
        assert weather.forecast("Oslo") == "sunny"                          # or the function itself
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from onetool.core.call import ToolCall, ToolResult
from onetool.core.context import CallContext, current_call
from onetool.core.errors import DefinitionError
from onetool.core.executor import Executor
from onetool.core.json_data import freeze
from onetool.core.redaction import mask_values
from onetool.core.registry import Snapshot, ToolRegistry
from onetool.core.spec import ToolSpec
from onetool.sdk.pack import pack_name, tools_of


class Tools:
    """The tools of the packs under test."""

    def __init__(
        self, modules: tuple[ModuleType, ...], settings: Mapping[str, Mapping[str, Any]], secrets: Mapping[str, str]
    ) -> None:
        self._registry = ToolRegistry()
        for module in modules:
            found = tools_of(module)
            if found.mistakes:
                raise DefinitionError("; ".join(map(str, found.mistakes)))
            for spec in found.tools:
                self._registry.register(spec)
        self._settings = freeze(settings)
        self._secrets = secrets
        self.calls = Executor(self._registry, environment=self)
        self.progress: list[tuple[float, float | None, str | None]] = []

    def call(self, name: str, /, **args: Any) -> Any:
        """Call a tool as an agent would and return its value. Raises ToolFailure if the tool fails."""
        return self.result(name, **args).value()

    def result(self, name: str, /, **args: Any) -> ToolResult:
        """Call a tool and return the whole result, even for failures."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self.result_async(name, **args))
        raise RuntimeError("in an async test, write: await tools.result_async(…)")

    async def result_async(self, name: str, /, **args: Any) -> ToolResult:
        """Call a tool in an async test and return the whole result."""
        return await self.calls.execute(ToolCall("test", name, args, "test"), progress=self._note)

    # The parts of an app that running tools use

    def settings(self, pack: str) -> Mapping[str, Any]:
        return self._settings.get(pack, {})

    def secret(self, name: str) -> str | None:
        return self._secrets.get(name)

    def redact(self, value: Any, sent: Any = None) -> Any:
        there = str(sent)
        return mask_values(value, [secret for secret in self._secrets.values() if secret not in there])

    def snapshot(self) -> Snapshot:
        return self._registry.snapshot()

    async def call_tool(self, call: ToolCall) -> ToolResult:
        return await self.calls.execute(call, for_tool=True)

    def _note(self, done: float, total: float | None, message: str | None) -> None:
        self.progress.append((done, total, message))


@contextmanager
def packs(
    *modules: ModuleType,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    secrets: Mapping[str, str] | None = None,
) -> Iterator[Tools]:
    """Run these packs as an app would: with settings by pack, secrets by name, and each other's tools. Secrets are
    never read from the environment of the tests.

    Functions that are called directly inside of the block see the settings of the first pack.
    """
    for module in modules:
        if not isinstance(module, ModuleType):  # pyright: ignore[reportUnnecessaryIsInstance] - a name is a likely slip
            raise TypeError(f"packs() takes modules, got {module!r}: import it first")
    tools = Tools(modules, settings or {}, secrets or {})
    name = f"{pack_name(modules[0])}.test" if modules else "test"
    context = CallContext(
        spec=ToolSpec(name=name, description="a test"),
        call=ToolCall("test", name, {}, "test"),
        environment=tools,
        progress=tools._note,  # pyright: ignore[reportPrivateUsage]
    )
    token = current_call.set(context)
    try:
        yield tools
    finally:
        current_call.reset(token)
