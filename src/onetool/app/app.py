"""App: the only place that wires things together.

    app = App.open()                                  # finds its config, loads its tools
    result = await app.call(ToolCall("1", "time.now"))

Every interface decodes, calls one of these methods, and encodes what comes back.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from onetool.app.bundles import AppBundles, Functions
from onetool.app.catalog import ToolCatalog, with_reason
from onetool.app.reload import ConfigWatcher, Read, Reloader
from onetool.app.runtime import Runtime
from onetool.app.view import AppView, internal_handlers
from onetool.config import Config, Found, find, load_config
from onetool.core.call import new_id
from onetool.core.errors import ConfigError, Mistake
from onetool.core.source import Catalogue, Prompt, Resource, SingleTool
from onetool.core.spec import ToolSpec
from onetool.packs.ot import ot_tools
from onetool.registry import Registry
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.catalogues import Offered

if TYPE_CHECKING:
    from onetool.app.ask import AskService, PendingAnswer
    from onetool.ask.sessions import SessionStore
    from onetool.config.trust import Untrusted
    from onetool.core.call import ToolCall, ToolResult
    from onetool.core.context import CallEvent, Gate, Progress, Recorder
    from onetool.core.executor import Executor
    from onetool.core.threads import LoopThread
    from onetool.script.reply import ReadOn, RunReply
    from onetool.script.run_result import RunResult
    from onetool.sources.bundles.service import BundleService
    from onetool.sources.mcp_servers.servers import Servers

log = logging.getLogger("onetool")
trust_log = logging.getLogger("onetool.trust")

PATIENCE = 10.0  # seconds that closing waits for a reload under way


class App:
    """A config in force, the tools that it gives, and the services behind them."""

    def __init__(self, config: Config, *, imports: bool = True, found: Found | None = None) -> None:
        """`found` is where the config was found, if it was: then a reload looks for it again."""
        handlers = internal_handlers(
            find=self.search,
            state=self.fresh_health,
            runtime=lambda: self.runtime,
            run_code=self.run,
            ask_model=self.ask,
        )
        registry = Registry(internals=handlers)
        self._bundles = AppBundles(config, self._open_bundles, lambda: self.catalog.refresh_sync())
        self._on_call: list[Recorder] = []
        self._recorders = (self._bundles.count, self._tell_call)
        self.runtime = Runtime(config, registry, recorders=self._recorders)
        self.catalog = ToolCatalog(
            config,
            registry,
            self._bundles,
            store_result=lambda text: self.runtime.store_result(text),
            redact=self.redact,
            mask_also=lambda secret: self.config.secrets.mask_also(
                secret
            ),  # servers get theirs while they are connected
        )
        view = AppView(self.catalog, lambda: self.runtime, self.fresh_health, self.reload)
        self._own = Catalogue(tools=tuple(ot_tools(view)))
        self._reloader = Reloader(
            config,
            found,
            handlers=handlers,
            imports=imports,
            own=self._own,
            mistakes=lambda: self.mistakes,
            apply=self._apply,
        )
        self.watches = False  # files, whatever the config says about that
        self._watcher = ConfigWatcher(
            self._reloader, lambda: self.watches or self.config.watch, lambda: len(self.registry)
        )
        self._is_closed = self._is_connected = False
        self._on_close: list[Callable[[], None]] = []
        self._apply(config, self._reloader.read(config), found)

    @classmethod
    def open(cls, config: str | Path | Found | None = None, *, imports: bool = True) -> Self:
        """The app for a config file, or for the one that is found from here. Raises ConfigError if it can't be used.

        A file that is named is trusted by that. A project's folder that is found and not trusted is not used, and
        nobody is asked: `untrusted` tells. Without `imports` packs are parsed and not run: the names of their tools
        are known, and calling one fails.
        """
        found = config if isinstance(config, Found) else find(config)
        return cls(load_config(found), imports=imports, found=found)

    # What there is

    def tools(self, allowed: Iterable[str] | None = None) -> list[ToolSpec]:
        """The tools to show, in order; with an allow-list exactly those."""
        return self.catalog.tools(allowed)

    def info(self, name: str, allowed: Collection[str] | None = None) -> dict[str, Any] | None:
        """One tool's schemas and run-time facts, or None."""
        from onetool.app.status import tool_info

        return tool_info(name, allowed, self.catalog, self.runtime, self._bundles)

    def search(
        self, query: str, limit: int = 5, allowed: Collection[str] | None = None
    ) -> list[tuple[ToolSpec, float]]:
        """The tools that fit a query best. Our own, which are about tools, come last unless they are named."""
        return self.catalog.search(query, limit, allowed)

    def health(self, allowed: Collection[str] | None = None) -> dict[str, Any]:
        """Whether everything that should be there is there. Under an allow-list nothing else is named."""
        from onetool.app.status import health

        return health(allowed, self.catalog, self.runtime, self.reload_error)

    # What it does

    async def call(
        self,
        call: "ToolCall",
        allowed: Collection[str] | None = None,
        progress: "Progress | None" = None,
        gate: "Gate | None" = None,
    ) -> "ToolResult":
        """Run one tool, past the `gate`. Of one that is not there because it was refused, the result says why."""
        await self.catalog.refresh()
        if call.name not in self.registry:
            await self.catalog.wait_for_servers([call.name.partition(".")[0]])
            call = replace(call, name=self.catalog.real_name(call.name))
        result = await self.executor.execute(call, allowed, progress, gate=gate)
        if result.error is None or call.name in self.registry or not (why := self.catalog.why_missing(call.name)):
            return result
        return replace(result, error=with_reason(result.error, why))

    async def invoke_version(
        self,
        bundle_id: str,
        slug: str,
        version: str,
        args: Mapping[str, Any],
        source: str = "rest",
        progress: "Progress | None" = None,
        allowed: Collection[str] | None = None,
    ) -> "ToolResult":
        """Run one version of a tool of a bundle, also one that no name in code stands for.

        What is not there, switched off or over its limit raises a BundleError.
        """
        from asyncio import to_thread

        from onetool.core.call import ToolCall

        if not isinstance(args, Mapping):
            raise InvalidError("/args: expected an object", "/args")
        service = self.bundles  # before the refresh, which looks after bundles that are open
        await self.catalog.refresh(at_once=True)  # what somebody has switched off is not called any more
        ready = service.ready(bundle_id, slug, version)
        if ready is None:
            ready = await to_thread(service.make_ready, bundle_id, slug, version)
        call = ToolCall(new_id(), ready.spec.name, args, source)
        result = await self.executor.execute(call, allowed, progress, tools=ready.lookup)
        service.refuse_limited(result)
        return result

    async def call_by_name(
        self,
        name: str,
        args: Mapping[str, Any],
        source: str = "rest",
        progress: "Progress | None" = None,
        allowed: Collection[str] | None = None,
    ) -> "ToolResult":
        """Run the tool of that name or alias. One that is switched off or over its limit raises a BundleError."""
        from onetool.core.call import ToolCall

        await self.catalog.refresh(at_once=True)
        result = await self.call(ToolCall(new_id(), name, args, source), allowed, progress)
        if result.error is not None:
            self._bundles.refuse(self.registry.get(self.catalog.real_name(name)), result, allowed)
        return result

    async def offer(
        self, spec: ToolSpec, args: Mapping[str, Any], source: str, allowed: Collection[str] | None = None
    ) -> "ToolResult":
        """Run what is behind a prompt or a resource."""
        from onetool.core.call import ToolCall

        return await self.executor.execute(ToolCall(new_id(), spec.name, args, source), allowed, tools=SingleTool(spec))

    async def run(
        self,
        code: str,
        allowed: Collection[str] | None = None,
        *,
        source: str = "run",
        progress: "Progress | None" = None,
        live: Callable[[str], None] | None = None,
        variables: Mapping[str, Any] | None = None,
        gate: "Gate | None" = None,
    ) -> "RunResult":
        """Run code over all tools, in the sandbox, with these variables.

        `live` is called with what the code prints, as it prints it. Its calls have to pass the `gate`.
        """
        await self.catalog.refresh()
        if words := self.catalog.names_in_code(code):
            looks_around = "ot" in words and not self._is_connected  # who stays will see them come
            await self.catalog.wait_for_servers(None if looks_around else words)
        result = await self.runtime.engine.run(
            code,
            self.registry.snapshot(),
            allowed=allowed,
            source=source,
            progress=progress,
            live=live,
            variables=variables,
            gate=gate,
        )
        if result.error is None:
            return result
        why = self.catalog.why_code_failed(words, result.error.message)
        if why is None:
            return result
        return replace(result, error=with_reason(result.error, why))

    def ask(self, prompt: str, **options: Any) -> "PendingAnswer":
        """Put a question to a model that has these tools: `await` it for the answer, or iterate over what happens.

        The options are those of `onetool.app.ask.AskOptions`.
        """
        from onetool.app.ask import AskOptions

        return self._ask_service.ask(prompt, AskOptions(**options))

    async def user_call(
        self, name: str, args: Mapping[str, Any], kept: Callable[[str], None], **options: Any
    ) -> "ToolResult":
        """Call a tool as a person does in a session of `ask`: the call and its result become part of what was said.

        `kept` is told the session's id, also if the call is stopped halfway. The options are those of `ask`.
        """
        from onetool.app.ask import AskOptions

        return await self._ask_service.user_call(name, args, kept, AskOptions(**options))

    @property
    def sessions(self) -> "SessionStore":
        """What was asked and answered."""
        return self._ask_service.sessions

    def reply(self, result: "RunResult", whole: bool = False, read_on: "ReadOn | None" = None) -> "RunReply":
        """What a run's caller gets to read. A large result is stored, unless it is wanted whole."""
        return self.runtime.reply(result, whole, read_on)

    def run_sync(self, code: str, allowed: Collection[str] | None = None) -> "RunResult":
        """The same for code that is not async, such as a notebook's."""
        return self._background.run_sync(self.run(code, allowed))

    def warm_bundles(self) -> None:
        """Open the bundles before they are needed. For servers."""
        self._bundles.warm()

    def reload(self) -> None:
        """Read the config, the prompts, the packs and all tools again: all of it, or nothing.

        What can't be used, or would break what worked, raises ConfigError, and everything stays as it was. Calls and
        runs under way go on with what they began with.
        """
        self._reloader.reload()

    def connect(self) -> None:
        """Connect all MCP servers, and watch the files if that is configured, in the background.

        For servers. Without it, only the servers that are called get connected.
        """
        if self._is_closed:
            return
        self._is_connected = True
        self._bundles.start_polling()
        if self.servers is not None:
            self.servers.start()
        self._watcher.start()

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback`, in any thread, whenever the tools change. Returns a function that ends that."""
        return self.catalog.on_change(callback)

    def on_call(self, callback: "Recorder") -> Callable[[], None]:
        """Call `callback`, in any thread, whenever a call has ended. Returns a function that ends that.

        It must be quick and must not raise, and must not keep the values of calls.
        """
        self._on_call.append(callback)
        return lambda: self._on_call.remove(callback)

    def asgi(
        self,
        *,
        auth: "str | Callable[[Any], Any] | None" = None,
        hosts: Collection[str] = (),
        menu: str | None = None,
        allowed: Collection[str] | None = None,
    ) -> "Callable[..., Any]":
        """MCP, REST and the pages as an ASGI app to mount in a web app: `web.mount("/tools", app.asgi())`.

        Without `auth` the rules of `onetool serve` hold: the config's token, and without one this machine alone.
        `auth` says that the web app authenticates: "user" takes `scope["user"]`, as Starlette's middleware sets it;
        a function gets the scope and gives the user's name, or None for 401. Stored results are their user's
        alone. `hosts` are the names that the web app is reached by. Close the App in its lifespan.
        """
        from importlib import import_module

        # By its name: nothing here may import an interface, and only who asks for this one loads it.
        mount = import_module("onetool.interfaces.http.mount")
        return mount.mounted_app(self, auth=auth, hosts=hosts, menu=menu, allowed=allowed)

    def on_close(self, tell: Callable[[], None]) -> None:
        """Have somebody told, in the thread that closes the app, before it is closed."""
        self._on_close.append(tell)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True
        for tell in self._on_close:
            tell()
        self._reloader.close(PATIENCE)
        self._watcher.close()
        self.catalog.close()
        self._bundles.close()
        if background := self.__dict__.get("_background"):
            background.close()
        self.runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def fresh_health(self, allowed: Collection[str] | None = None) -> dict[str, Any]:
        """The health. If the app is not connected, it tries every server first: otherwise only the last known state
        would be shown.
        """
        if self.servers is not None and not self._is_connected:
            await self.servers.wait_connected()
        return self.health(allowed)

    # How it is wired

    @property
    def config(self) -> Config:
        """The one in force."""
        return self.runtime.config

    @property
    def registry(self) -> Registry:
        return self.catalog.registry

    @property
    def servers(self) -> "Servers | None":
        """None where none are configured."""
        return self.catalog.servers

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        return self.catalog.mistakes

    @property
    def prompts(self) -> Mapping[str, Prompt]:
        return self.catalog.prompts

    @property
    def resources(self) -> Mapping[str, Resource]:
        """By their uri."""
        return self.catalog.resources

    @property
    def untrusted(self) -> "Untrusted | None":
        """The project's folder that was found here and is not used."""
        return self.catalog.untrusted

    @property
    def reload_error(self) -> ConfigError | None:
        """Why the last reload changed nothing."""
        return self._reloader.error

    @property
    def executor(self) -> "Executor":
        return self.runtime.executor

    @property
    def bundles(self) -> "BundleService":
        """The bundles in the folder beside the config. The folder is created with the first bundle."""
        return self._bundles.service

    def redact(self, value: Any, sent: Any = None) -> Any:
        """The same data without the config's secrets, except those that its reader `sent` itself."""
        return self.runtime.redact(value, sent)

    @cached_property
    def _ask_service(self) -> "AskService":
        from onetool.app.ask import AskService  # most never ask a model

        return AskService(self, self.catalog)

    @cached_property
    def _background(self) -> "LoopThread":
        from onetool.core.threads import LoopThread

        return LoopThread()

    def _tell_call(self, event: "CallEvent") -> None:
        for tell in tuple(self._on_call):
            tell(event)

    def _open_bundles(self, folder: Path, functions: Functions, offered: Callable[[], Offered]) -> "BundleService":
        from onetool.app.bundle_runtime import open_bundle_service  # brings SQLite: only where there are bundles

        return open_bundle_service(
            folder,
            functions,
            offered,
            runtime=lambda: self.runtime,
            run=self.run,
            catalog=self.catalog,
            invoke=self.invoke_version,
        )

    def _apply(self, config: Config, read: Read, found: Found | None) -> None:
        """All at once, but for servers: those that have changed need time to end, and are not waited for by others."""
        if config.http.token:
            config.secrets.mask_always(str(config.http.token))
        before = self.runtime
        if config is not before.config:  # a reload
            config.secrets.join(before.config.secrets)  # runs under way mask what the new ones know, and these theirs
            self.runtime = Runtime(config, self.registry, before, self._recorders)
            self._bundles.set_config(config)
        try:
            end_others = self.catalog.apply(config, self._own, read)
        finally:
            if before is not self.runtime:
                before.retire()
        end_others()
        for mistake in config.warnings:
            log.warning("%s", mistake)
        self.catalog.untrusted = None if found is None else found.untrusted
        if self.untrusted is not None:
            trust_log.warning("%s", self.untrusted)
        if self._is_connected:
            self.connect()
