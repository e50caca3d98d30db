"""Creates the bundle service of a folder and gives the tools of bundles access to the app.

It is imported only where there are bundles, because it brings SQLite and the HTTP handlers with it.
"""

import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onetool.config.file_checks import ownership_mistake
from onetool.config.find import trust_store, user_home
from onetool.core.call import ToolCall, ToolResult
from onetool.core.context import Progress, current_call
from onetool.core.errors import Mistake
from onetool.core.registry import Snapshot
from onetool.core.source import SingleTool
from onetool.core.spec import ToolSpec
from onetool.sources.bundles.files.store import FileStore
from onetool.sources.bundles.model import built_in_bundles
from onetool.sources.bundles.service import BundleService
from onetool.sources.bundles.tool_factory import ToolFactory
from onetool.sources.packs import BUILTIN, builtin_tools

if TYPE_CHECKING:
    from onetool.app.bundles import Functions
    from onetool.app.runtime import RunCode, Runtime
    from onetool.http.definition import HttpImpl, ToolLimits


def open_bundle_service(
    folder: Path,
    functions: "Functions",
    *,
    runtime: Callable[[], "Runtime"],
    run: "RunCode",
    snapshot: Callable[[], Snapshot],
    refresh: Callable[[], Awaitable[None]],
) -> BundleService:
    """The bundles of a folder, and the built-in packs."""
    own = {spec.name for pack in BUILTIN for spec in builtin_tools(pack)}
    built_in = [spec for spec in functions().values() if spec.name in own or _is_ot(spec)]
    ways = AppBundleRuntime(functions, runtime, run, snapshot)
    most = runtime().config.bundles.max_tools
    store = FileStore(folder, built_in_bundles(built_in), max_tools=most, foreign=_foreign)
    return BundleService(
        store, ToolFactory(ways), ways.execute, ways.function, [spec.name for spec in built_in], refresh
    )


def _foreign(path: Path) -> Mistake | None:
    return ownership_mistake(path, user_home(os.environ), trust_store().owners)


def _is_ot(spec: ToolSpec) -> bool:
    """Whether the tool is of the built-in pack `ot`, and not declared under its name."""
    return spec.pack == "ot" and spec.defined_in is None


class AppBundleRuntime:
    """What the tools of bundles use of the app: `sources.bundles.tool_factory` says what that is."""

    def __init__(
        self, functions: "Functions", runtime: Callable[[], "Runtime"], run: "RunCode", snapshot: Callable[[], Snapshot]
    ) -> None:
        self._functions = functions
        self._runtime = runtime  # a reload replaces it
        self._run = run
        self._snapshot = snapshot

    def function(self, name: str) -> ToolSpec | None:
        spec = self._functions().get(name)
        return spec if spec is not None and spec.enabled and spec.handler is not None else None

    def functions(self) -> list[str]:
        return [name for name, spec in self._functions().items() if spec.enabled and spec.handler is not None]

    async def run_script(self, code: str, variables: Mapping[str, Any]) -> Any:
        context = current_call.get()
        source = "run" if context is None else context.call.source
        return (await self._run(code, source=source, variables=variables)).value()

    def check_script(self, code: str, variables: tuple[str, ...]) -> str | None:
        error = self._runtime().engine.check(code, self._snapshot(), variables)
        return None if error is None else " ".join((error.message, *error.hints))

    def http_tool(
        self, impl: "HttpImpl", arg_schema: Mapping[str, Any], limits: "ToolLimits"
    ) -> Callable[..., Awaitable[Any]]:
        from onetool.http.tool import HttpTool

        return HttpTool(impl, arg_schema, limits, lambda: self._runtime().http_context)

    def why_not_called(self, impl: "HttpImpl", arg_schema: Mapping[str, Any]) -> str | None:
        from onetool.http.errors import RequestRefusedError
        from onetool.http.template import RequestTemplate

        url = RequestTemplate(impl.request, arg_schema).fixed_url
        try:
            if url is not None:
                self._runtime().http_context.hosts.check(url)
        except RequestRefusedError as refusal:
            return "; ".join([str(refusal), *refusal.hints])
        return None

    @property
    def script_seconds(self) -> float:
        return self._runtime().config.run.timeout_s

    async def execute(
        self, call: ToolCall, spec: ToolSpec, allowed: Collection[str] | None, progress: Progress | None
    ) -> ToolResult:
        return await self._runtime().executor.execute(call, allowed, progress, tools=SingleTool(spec))
