"""App connects all parts of OneTool; nothing else does.

    app = App.open()                                  # finds its config, loads its tools
    result = await app.call(ToolCall("1", "time.now"))

Every interface decodes a request, calls one of these methods, and encodes the result.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from weakref import finalize

from msgspec.structs import replace

from onetool.app.bundles import AppBundles, Functions
from onetool.app.catalog import ToolCatalog
from onetool.app.database import AppDatabase
from onetool.app.journal import AppJournal
from onetool.app.reload import ConfigWatcher, Read, Reloader, WatchMode
from onetool.app.runtime import CurrentRuntime, Runtime
from onetool.app.view import AppView, internal_handlers
from onetool.config import Config, Found, find, load_config
from onetool.config.load import add_servers
from onetool.config.stateful import refuse_stateful_servers
from onetool.core.errors import Mistake
from onetool.core.registry import Catalogue
from onetool.core.spec import ToolSpec
from onetool.packs.ot import ot_tools
from onetool.services.journal.recorder import Recorder
from onetool.sources.catalogues import Offered
from onetool.sources.packs import Registry

if TYPE_CHECKING:
    from onetool.app.ask import AskModels, AskService, PendingAnswer
    from onetool.app.code_names import CodeNames
    from onetool.ask.sessions import SessionStore
    from onetool.config.model import ServerSettings, Snippet
    from onetool.config.trust import Untrusted
    from onetool.core.call import ToolCall, ToolResult
    from onetool.core.context import CallEvent, CallWatch, Gate, Progress, ToolLookup
    from onetool.core.errors import ConfigError
    from onetool.core.threads import LoopThread
    from onetool.database import Database
    from onetool.script.parse import CodeReport
    from onetool.script.render import ReadOn, RunReply
    from onetool.script.run_result import RunResult
    from onetool.sources.bundles.service import BundleService
    from onetool.sources.mcp_servers.servers import Servers

RELOAD_TIMEOUT = 10.0  # seconds that `close` waits for a running reload


class App:
    """A config, the tools that it provides, and the services that they use."""

    def __init__(
        self,
        config: Config,
        *,
        imports: bool = True,
        watch: bool = False,
        makes_tables: bool = True,
        found: Found | None = None,
        servers: "Mapping[str, ServerSettings] | None" = None,
    ) -> None:
        """Open the app for a config. `found` is where the config was found; if given, a reload searches again."""
        servers = servers or {}
        config = add_servers(config, servers)
        self._recorder = Recorder()
        finalize(self, self._recorder.close)
        self._on_call: list[Callable[[CallEvent], None]] = []
        self._on_close: list[Callable[[], None]] = []
        self._reload_others: Callable[[], None] = lambda: None
        self._watches_all = watch  # regardless of the config
        self._is_closed = self._is_connected = self._follows_settings = False
        self._database = AppDatabase(config, makes_tables=makes_tables)
        self.journal = AppJournal(config, self._database.state, self._recorder)
        self._new_runtime = partial(
            Runtime,
            recorder=self._recorder,
            count_call=self._count_call,
            journal=self.journal,
            databases=self._database,
            call=self.call,
            newest=self.look_again,
        )
        self._current = CurrentRuntime()
        handlers = internal_handlers(
            find=self.search, state=self._fresh_health, current=self._current, run_code=self.run, ask_model=self.ask
        )
        registry = Registry(internals=handlers)
        self._current.runtime = self._new_runtime(config, registry)
        self._bundles = AppBundles(config, self._open_bundles, self._recorder)
        self.catalog = ToolCatalog(
            registry, self._bundles, self._current, self.pending_changes, untrusted=lambda: self.untrusted
        )
        view = AppView(self.catalog, self._current, self._fresh_health, self.reload)
        self._own = Catalogue(tools=tuple(ot_tools(view)))
        self._reloader = Reloader(
            config, found, self.catalog, self._apply, handlers=handlers, imports=imports, own=self._own, servers=servers
        )
        self._watcher = ConfigWatcher(self._reloader, self._watch_mode, registry)
        self._reloader.start(found)

    @classmethod
    def open(
        cls,
        config: str | Path | Found | None = None,
        *,
        imports: bool = True,
        watch: bool = False,
        makes_tables: bool = True,
        servers: "Mapping[str, ServerSettings] | None" = None,
    ) -> Self:
        """Open the app for a config file, or for the config found from the current folder. Raises ConfigError if it
        can't be used.

        A file passed by path counts as trusted. A project folder that is found but not trusted is ignored without a
        question: see `untrusted`. Without `imports`, packs are parsed but not run: their tools have names, but can't be
        called. With `watch`, a connected app reloads on changes, regardless of the config. Missing tables in the
        config's database are created; without `makes_tables`, they are an error. `servers` are added to those of the
        config.
        """
        found = config if isinstance(config, Found) else find(config)
        read = load_config(found)
        return cls(read, imports=imports, watch=watch, makes_tables=makes_tables, found=found, servers=servers)

    # What there is

    def tools(self, allowed: Iterable[str] | None = None) -> list[ToolSpec]:
        """Return the visible tools, in order; with an allow-list, exactly the allowed ones."""
        return [*self.catalog.tools(allowed)]

    def info(self, name: str, allowed: Collection[str] | None = None) -> dict[str, Any] | None:
        """Return a tool's schemas and run-time facts, or None if there is no such tool."""
        from onetool.app.describe import tool_info

        return tool_info(name, allowed, self.catalog, self.runtime, self._bundles)

    def search(
        self, query: str, limit: int = 5, allowed: Collection[str] | None = None, pack: str | None = None
    ) -> list[tuple[ToolSpec, float]]:
        """Return the tools that best match a query, from all packs or one. Raises BadArguments for an unknown pack."""
        return self.catalog.search(query, limit, allowed, pack)

    def health(self, allowed: Collection[str] | None = None, *, with_findings: bool = True) -> dict[str, Any]:
        """Return the state of packs, servers and services; with an allow-list, only those of allowed tools."""
        from onetool.app.describe import health

        return health(allowed, self.catalog, self.runtime, self.findings if with_findings else tuple)

    def findings(self) -> tuple[Mistake, ...]:
        """Return everything that is wrong with the config and the tools, as `onetool check` lists it."""
        from onetool.app.findings import findings

        return findings(self.catalog, self.runtime, self._bundles, self._reloader.error, self.pending_changes())

    # What it does

    async def call(
        self,
        call: "ToolCall",
        allowed: Collection[str] | None = None,
        progress: "Progress | None" = None,
        *,
        tools: "ToolLookup | None" = None,
        gate: "Gate | None" = None,
        for_tool: bool = False,
        runtime: Runtime | None = None,
    ) -> "ToolResult":
        """Run one tool, if the `gate` permits it. Interfaces, code, `ask` and other tools all call tools through this
        method.

        `tools` are tools that the caller has already looked up. `runtime` is the one that the enclosing call or run
        started with. With `for_tool`, the caller is a function of a pack, and the result isn't masked. If the tool is
        missing because it was refused, the error says why. Raises BundleError for a `version` that can't be called.
        """
        if isinstance(call.version, tuple):
            tools = await self.catalog.find_version(call.version)
            call = replace(call, name=tools.spec.name)
        is_by_name = tools is None and runtime is None
        if is_by_name:
            if not self.catalog.is_unchanged():
                await self.catalog.refresh()
            if call.name not in self.catalog.registry:
                await self.catalog.wait_for_tool(call.name)
                call = replace(call, name=self.catalog.real_name(call.name))
        executor = (runtime or self._current.runtime).executor
        result = await executor.execute(call, allowed, progress, tools=tools, gate=gate, for_tool=for_tool)
        return self.catalog.explain_call(result, call.name) if result.error is not None and is_by_name else result

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
        watch: "CallWatch | None" = None,
    ) -> "RunResult":
        """Run code in the sandbox, with access to all tools and with these variables. `live` is called with its output
        while it runs. Its calls have to pass the `gate` and are reported to the `watch`.
        """
        if not self.catalog.is_unchanged():
            await self.catalog.refresh()
        if words := self.catalog.names_in_code(code):
            looks_around = "ot" in words and not self._is_connected  # a connected app has them listed in the background
            await self.catalog.wait_for_servers(None if looks_around else words)
        result = await self.runtime.engine.run(
            code,
            self.catalog.registry.snapshot(),
            allowed=allowed,
            source=source,
            progress=progress,
            live=live,
            variables=variables,
            gate=gate,
            watch=watch,
        )
        return result if result.error is None else self.catalog.explain_run(result, words)

    def check_code(
        self, code: str, allowed: Collection[str] | None = None, variables: Mapping[str, Any] | None = None
    ) -> "CodeReport":
        """Report all errors that can be found in code without running it, and the tools that it calls."""
        return self.runtime.engine.report(code, self.catalog.current_snapshot(), allowed, variables or {})

    def code_names(self, allowed: Collection[str] | None = None) -> "CodeNames":
        """Return the names that code can use: packs with their tools, functions, modules, snippets, aliases."""
        from onetool.app.code_names import code_names

        return code_names(self.catalog.current_snapshot(), self.config, allowed)

    def snippets(self, allowed: Collection[str] | None = None) -> "Mapping[str, Snippet]":
        """Return the snippets of the config; with an allow-list, only those that use allowed tools."""
        from onetool.app.describe import snippets_for

        return snippets_for(self.catalog.current_snapshot(), self.config, allowed)

    def ask(self, prompt: str, **options: Any) -> "PendingAnswer":
        """Ask a model that can use these tools. Await the result for the answer, or iterate over it for events.

        See AskOptions.
        """
        from onetool.app.ask import AskOptions

        return self._ask_service.ask(prompt, AskOptions(**options))

    async def user_call(
        self, name: str, args: Mapping[str, Any], on_session: Callable[[str], None], **options: Any
    ) -> "ToolResult":
        """Call a tool on behalf of a user in a session of `ask`, which stores the call and its result.

        `on_session` receives the session's id, even if the call is cancelled. The options are those of `ask`.
        """
        from onetool.app.ask import AskOptions

        return await self._ask_service.user_call(name, args, on_session, AskOptions(**options))

    @property
    def ask_models(self) -> "AskModels":
        """The models that can be asked."""
        from onetool.app.ask import AskModels

        return AskModels(self._ask_service)

    @property
    def sessions(self) -> "SessionStore":
        """The sessions of `ask`, with their questions and answers."""
        return self._ask_service.sessions

    def reply(self, result: "RunResult", whole: bool = False, read_on: "ReadOn | None" = None) -> "RunReply":
        """Build the reply to the caller of a run. A large result is stored, unless `whole` is set."""
        return self.runtime.reply(result, whole, read_on)

    def run_sync(self, code: str, allowed: Collection[str] | None = None) -> "RunResult":
        """Call `run` from code that is not async, such as a notebook."""
        return self._background.run_sync(self.run(code, allowed))

    def reload(self, *, here: bool = False) -> None:
        """Reload everything, or nothing at all: with `here`, only in this one of several processes that serve together.

        Raises ConfigError if the config can't be used or would break working tools. Running calls keep the old config.
        """
        self._reloader.reload()
        if not here:
            self._reload_others()

    def reload_settings(self) -> None:
        """Reload the settings, but no code. Used when another worker reloads."""
        self._reloader.reload_settings()

    async def look_again(self) -> Runtime:
        """Check whether settings have changed, after something was not found. Return the current runtime."""
        await self._watcher.look_again()
        return self.runtime

    @property
    def follows_files(self) -> bool:
        """Whether changed settings take effect without a reload."""
        return self._watch_mode() is not None

    def connect(self) -> None:
        """Connect all MCP servers and, if configured, watch the files, in the background. Intended for servers: without
        it, MCP servers are connected when they are called.
        """
        if self._is_closed:
            return
        self._is_connected = True
        self._bundles.start_polling(self.catalog.refresh_sync)
        if self.servers is not None:
            self.servers.start()
        self._watcher.start()

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback`, in any thread, whenever the tools change. Returns a function that unsubscribes."""
        return self.catalog.on_change(callback)

    def on_call(self, callback: "Callable[[CallEvent], None]") -> Callable[[], None]:
        """Call `callback`, in any thread, soon after each call. Returns a function that unsubscribes.

        The callback must be quick.
        """
        self._on_call.append(callback)
        return lambda: self._on_call.remove(callback)

    def on_close(self, tell: Callable[[], None]) -> None:
        """Call `tell` when the app is closed, in the closing thread; immediately if it is already closed."""
        self._on_close.append(tell)
        if self._is_closed:
            tell()

    def close(self) -> None:
        self._is_closed = True
        for tell in self._on_close:
            tell()
        self._reloader.close(RELOAD_TIMEOUT)
        self._watcher.close()
        self._recorder.flush()
        self.catalog.close()
        self._bundles.close()
        if background := self.__dict__.get("_background"):
            background.close()
        self.runtime.close()
        self._recorder.close()
        self.journal.close()
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def _fresh_health(self, allowed: Collection[str] | None = None) -> dict[str, Any]:
        """Return the health. An app that doesn't stay connected tries every server first."""
        if self.servers is not None and not self.servers.stays_connected:
            await self.servers.wait_connected()
        from asyncio import to_thread

        return await to_thread(self.health, allowed)

    # How it is wired

    @property
    def runtime(self) -> Runtime:
        return self._current.runtime

    @property
    def config(self) -> Config:
        """The current config."""
        return self.runtime.config

    @property
    def servers(self) -> "Servers | None":
        """The MCP servers; None if none are configured."""
        return self.catalog.servers

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        return self.catalog.mistakes

    @property
    def reload_error(self) -> "ConfigError | None":
        """The reason why the last reload failed."""
        return self._reloader.error

    def pending_changes(self) -> list[Mistake]:
        """Return the file changes that are not loaded yet, each with a hint on how to load it."""
        return self._reloader.pending_changes()

    @property
    def pending_count(self) -> int:
        """The number of file changes that were noticed and wait for a reload. Quicker than `pending_changes`."""
        return self._watcher.pending_count

    def follow_settings(self) -> None:
        """Let `connect` watch settings, unless the config has `watch`.

        Intended for servers that listen only on this machine.
        """
        self._follows_settings = True

    @property
    def untrusted(self) -> "Untrusted | None":
        """The project folder that was found but is not used."""
        return self._watcher.untrusted

    @property
    def bundles(self) -> "BundleService":
        """The bundles in the folder beside the config. The folder is created with the first bundle."""
        return self._bundles.service

    @property
    def database(self) -> "Database | None":
        """The database that replicas share; None if the app uses files and SQLite."""
        return self._database.get()

    def require_state(self) -> None:
        """Raise DatabaseError if `state.db` can't be used. Servers use this to fail at startup."""
        self._database.require_file()

    def keep_database(self) -> None:
        """Refuse reloads that change `database` or `cluster` from now on: servers store their sessions there."""
        self._reloader.kept = ("database", "cluster")

    def serve_beside(self, replicas: Callable[[], int], reload_others: Callable[[], None], pid: int) -> None:
        """Share reloads and rate limits with other processes: see `AppDatabase.share_rates`. `pid` is the process to
        send SIGHUP.

        Refuses servers that must not run in each of them, now (ConfigError) and in reloads.
        """
        refuse_stateful_servers(self.config)
        self._reloader.pid, self._reload_others = pid, reload_others
        self._reloader.refuse_stateful_servers = True
        self._database.share_rates(replicas)

    @cached_property
    def _ask_service(self) -> "AskService":
        from onetool.app.ask import AskService  # most apps never ask a model

        return AskService(self, self.catalog, self._database)

    @cached_property
    def _background(self) -> "LoopThread":
        from onetool.core.threads import LoopThread

        return LoopThread()

    def _watch_mode(self) -> WatchMode | None:
        if self._watches_all or self.config.watch:
            return "everything"
        return "settings" if self._follows_settings and self.config.watch is None else None

    def _count_call(self, event: "CallEvent") -> None:
        """Count a call for bundles and searches, and call subscribers. Runs in the recorder's thread."""
        self._bundles.count(event)
        self.catalog.count_call(event)
        for tell in tuple(self._on_call):
            tell(event)

    def _open_bundles(self, folder: Path, functions: Functions, offered: Callable[[], Offered]) -> "BundleService":
        from onetool.app.bundle_runtime import open_bundle_service  # loads SQLite: only if there are bundles

        return open_bundle_service(
            folder, functions, offered, current=self._current, call=self.call, run=self.run, catalog=self.catalog
        )

    def _apply(self, config: Config, read: Read) -> None:
        """Apply the whole config at once. Changed servers are stopped afterwards, because stopping takes time."""
        if config.http.token:
            config.secrets.mask_always(str(config.http.token))
        before = self.runtime
        if config is not before.config:  # a reload
            config.secrets.join(before.config.secrets)  # running calls mask old and new secrets
            self._database.set_config(config)
            self._current.runtime = self._new_runtime(config, self.catalog.registry, before)
            self.journal.set_config(config)
            self._bundles.set_config(config)
        try:
            end_others = self.catalog.apply(config, self._own, read)
        finally:
            if before is not self.runtime:
                before.retire()
        end_others()
        if self._is_connected:
            self.connect()
