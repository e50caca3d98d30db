"""Opens the bundle service of a folder and gives the tools of bundles access to the app.

Imported only if there are bundles, because it loads SQLite and the HTTP handlers.
"""

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onetool.app.database import cache_folder
from onetool.app.describe import tool_signature
from onetool.config.file_checks import ownership_mistake
from onetool.config.find import trust_store, user_home
from onetool.core.call import ToolError
from onetool.core.context import CallTool, current_call
from onetool.core.errors import Mistake, ToolFailure
from onetool.core.registry import Snapshot
from onetool.core.spec import ToolSpec
from onetool.core.state_folders import make_state_folder
from onetool.core.type_names import learn_returns
from onetool.http.errors import RequestRefusedError
from onetool.sources.bundles.derived import DerivedBundles
from onetool.sources.bundles.model import built_in_bundles, http_of, limits_of
from onetool.sources.bundles.rate_limits import RateLimiter
from onetool.sources.bundles.service import BundleService
from onetool.sources.bundles.store.store import database_store, folder_store
from onetool.sources.bundles.tool_factory import ToolFactory
from onetool.sources.catalogues import Offered
from onetool.sources.packs import BUILTIN, builtin_tools

if TYPE_CHECKING:
    from onetool.app.bundles import Functions
    from onetool.app.catalog import ToolCatalog
    from onetool.app.runtime import CurrentRuntime, RunCode
    from onetool.http.definition import HttpImpl, ToolLimits
    from onetool.http.preview import PreviewRequest
    from onetool.http.tool import HttpTool
    from onetool.http.upstream import OnResponse
    from onetool.sources.bundles.model import Tool
    from onetool.sources.bundles.tool_factory import Health, SecretHosts


def open_bundle_service(
    folder: Path,
    functions: "Functions",
    offered: Callable[[], Offered],
    *,
    current: "CurrentRuntime",
    call: CallTool,
    run: "RunCode",
    catalog: "ToolCatalog",
) -> BundleService:
    """Open the bundles of a folder, the built-in bundles, and those derived from everything else `offered`."""
    own = {spec.name for pack in BUILTIN for spec in builtin_tools(pack)}
    built_in = [
        spec
        for spec in functions().values()
        if spec.name in own or (spec.pack == "ot" and spec.defined_in is None)  # not a declared tool of the same name
    ]
    bundle_runtime = AppBundleRuntime(functions, current, run, catalog)
    names = [spec.name for spec in built_in]
    derived = DerivedBundles(offered, names)
    runtime = current.runtime
    options: dict[str, Any] = {
        "built_in": built_in_bundles(built_in),
        "derived": derived,
        "max_tools": runtime.config.bundles.max_tools,
    }
    if (database := runtime.database) is None:
        store = folder_store(folder, foreign=foreign_file, database=runtime.state, **options)
    else:
        cache = cache_folder(runtime.config)
        with suppress(OSError):
            make_state_folder(cache)  # also closes the config beside it to the tools of other servers
        store = database_store(database, cache, **options)
    limits = RateLimiter(lambda: current.runtime.databases.tool_rates())
    factory = ToolFactory(bundle_runtime, limits)
    return BundleService(store, factory, call, names, derived, bundle_runtime)


def foreign_file(path: Path) -> Mistake | None:
    """Return why a file is ignored because of its owner or mode; None if it is fine."""
    return ownership_mistake(path, user_home(os.environ), trust_store().owners)


NO_TOOLS = Snapshot({})
REPORTING_S = 0.1  # seconds that a pre-processor has less than its call
_LINE = re.compile(r"line \d+")


def _with_line(error: ToolError) -> list[str]:
    """Return the error's line number and message, then its hints."""
    message, hints = error.message, error.hints
    if not _LINE.match(message) and hints and (found := _LINE.match(hints[0])):
        return [f"{found[0]}: {message}", *hints[1:]]
    return [message, *hints]


class AppBundleRuntime:
    """The parts of the app that bundles and their tools use."""

    def __init__(
        self, functions: "Functions", current: "CurrentRuntime", run: "RunCode", catalog: "ToolCatalog"
    ) -> None:
        self._functions = functions
        self._current = current
        self._run = run
        self._catalog = catalog

    async def refresh(self) -> None:
        await self._catalog.refresh(at_once=True)

    def signature(self, name: str) -> str | None:
        return tool_signature(self._catalog.current_snapshot(), name)

    def learn_returns(self, spec: ToolSpec, tool: "Tool") -> None:
        learn_returns(spec)

    def server_health(self) -> "Mapping[str, Health]":
        return self._catalog.server_health()

    def function(self, name: str) -> ToolSpec | None:
        spec = self._functions().get(name)
        return spec if spec is not None and spec.enabled and spec.handler is not None else None

    def functions(self) -> list[str]:
        return [name for name, spec in self._functions().items() if spec.enabled and spec.handler is not None]

    async def run_script(self, code: str, variables: Mapping[str, Any]) -> Any:
        context = current_call.get()
        source = "run" if context is None else context.call.source
        if context is not None and context.outer_args is not None:  # a model may have written the code: no secrets
            variables = self._current.runtime.redact(variables, context.outer_args)
        return (await self._run(code, source=source, variables=variables)).value()

    def check_script(self, code: str, variables: tuple[str, ...]) -> str | None:
        error = self._current.runtime.engine.check(code, self._catalog.current_snapshot(), variables)
        return None if error is None else " ".join((error.message, *error.hints))

    async def run_pre_processor(self, code: str, args: Mapping[str, Any]) -> Any:
        context = current_call.get()
        source, left = ("run", inf) if context is None else (context.call.source, context.left())
        try:
            # The pre-processor times out a moment before the call, so that the error names it.
            async with asyncio.timeout(None if left == inf else left - min(REPORTING_S, left / 10)):
                engine = self._current.runtime.bare_engine
                result = await engine.run(code, NO_TOOLS, source=source, variables={"args": dict(args)})
        except TimeoutError:
            seconds = inf if context is None else context.seconds
            raise ToolFailure(f"took longer than the call's limit of {seconds:g} s", reason="timeout") from None
        if result.error is not None:
            message, *hints = _with_line(result.error)
            raise ToolFailure(message, result.error.reason, hints)
        return result.data

    def check_pre_processor(self, code: str) -> str | None:
        error = self._current.runtime.bare_engine.check(code, NO_TOOLS, ("args",))
        if error is None:
            return None
        return " ".join(_with_line(error)) + ("; a pre-processor can't call tools" if error.reason == "check" else "")

    def http_tool(
        self,
        impl: "HttpImpl",
        arg_schema: Mapping[str, Any],
        limits: "ToolLimits",
        bundle: str | None = None,
        on_response: "OnResponse | None" = None,
    ) -> "HttpTool":
        from onetool.http.tool import HttpTool

        return HttpTool(impl, arg_schema, limits, lambda: self._current.runtime.http_context, bundle, on_response)

    def preview_http(self, tool: "Tool", args: Mapping[str, Any]) -> "list[PreviewRequest]":
        from onetool.http.tool import HttpTool

        outside = self._current.runtime.http_context
        return HttpTool(http_of(tool), tool.arg_schema, limits_of(tool), lambda: outside, tool.bundle_id).preview(args)

    def why_not_called(self, made: "HttpTool") -> str | None:
        hosts = self._current.runtime.http_context.hosts
        try:
            for url in made.fixed_urls:
                hosts.check(url)
        except RequestRefusedError as refusal:
            return "; ".join([str(refusal), *refusal.hints])
        return None

    def why_unbound(self, made: "HttpTool", new: "SecretHosts") -> str | None:
        rules = self._current.runtime.secret_rules
        return next(filter(None, (rules.why_unbound(name, url, new) for name, url in made.destinations)), None)

    @property
    def default_retries(self) -> int:
        return self._current.runtime.config.defaults.retries

    @property
    def script_seconds(self) -> float:
        return self._current.runtime.config.run.timeout_s
