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
from onetool.core.source import SingleTool
from onetool.core.spec import ToolSpec
from onetool.sources.bundles.files.store import FileStore
from onetool.sources.bundles.model import built_in_bundles
from onetool.sources.bundles.service import BundleService
from onetool.sources.bundles.tool_factory import ToolFactory
from onetool.sources.packs import BUILTIN, builtin_tools

if TYPE_CHECKING:
    from onetool.app.app import App
    from onetool.http.definition import HttpImpl, ToolLimits


Functions = Callable[[], Mapping[str, ToolSpec]]
"""All tools beside those of bundles, by their names: what a tool of a bundle may stand for."""


def open_bundle_service(app: "App", folder: Path, functions: Functions) -> BundleService:
    """The shelf of a folder. The built-in packs stand on it, too."""
    own = {spec.name for pack in BUILTIN for spec in builtin_tools(pack)}
    built_in = [spec for spec in functions().values() if spec.name in own or _is_ot(spec)]
    ways = AppBundleRuntime(app, functions)
    most = app.config.bundles.max_tools
    store = FileStore(folder, built_in_bundles(built_in), max_tools=most, foreign=_foreign)
    return BundleService(
        store, ToolFactory(ways), ways.execute, ways.function, [spec.name for spec in built_in], app.refresh
    )


def _foreign(path: Path) -> Mistake | None:
    return ownership_mistake(path, user_home(os.environ), trust_store().owners)


def _is_ot(spec: ToolSpec) -> bool:
    """Of the pack `ot`, and not declared under its name."""
    return spec.pack == "ot" and spec.defined_in is None


class AppBundleRuntime:
    """The ways of `sources.bundles.making`, by an app."""

    def __init__(self, app: "App", functions: Functions) -> None:
        self._app = app
        self._functions = functions

    def function(self, name: str) -> ToolSpec | None:
        spec = self._functions().get(name)
        return spec if spec is not None and spec.enabled and spec.handler is not None else None

    def functions(self) -> list[str]:
        return [name for name, spec in self._functions().items() if spec.enabled and spec.handler is not None]

    async def run_script(self, code: str, variables: Mapping[str, Any]) -> Any:
        context = current_call.get()
        source = "run" if context is None else context.call.source
        return (await self._app.run(code, source=source, variables=variables)).value()

    def check_script(self, code: str, variables: tuple[str, ...]) -> str | None:
        self._app.in_step()
        error = self._app.runtime.engine.check(code, self._app.registry.snapshot(), variables)
        return None if error is None else " ".join((error.message, *error.hints))

    def http_tool(
        self, impl: "HttpImpl", arg_schema: Mapping[str, Any], limits: "ToolLimits"
    ) -> Callable[..., Awaitable[Any]]:
        from onetool.http.tool import HttpTool

        return HttpTool(impl, arg_schema, limits, lambda: self._app.runtime.outside)

    def why_not_called(self, impl: "HttpImpl", arg_schema: Mapping[str, Any]) -> str | None:
        from onetool.http.errors import RequestRefusedError
        from onetool.http.template import RequestTemplate

        url = RequestTemplate(impl.request, arg_schema).fixed_url
        try:
            if url is not None:
                self._app.runtime.outside.hosts.check(url)
        except RequestRefusedError as refusal:
            return "; ".join([str(refusal), *refusal.hints])
        return None

    @property
    def script_seconds(self) -> float:
        return self._app.config.run.timeout_s

    async def execute(
        self, call: ToolCall, spec: ToolSpec, allowed: Collection[str] | None, progress: Progress | None
    ) -> ToolResult:
        return await self._app.executor.execute(call, allowed, progress, tools=SingleTool(spec))
