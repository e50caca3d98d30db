"""App: the only place that wires things together.

    app = App.open()                                  # finds its config, loads its tools
    result = await app.call(ToolCall("1", "time.now"))

Every interface decodes, calls one of these methods, and encodes what comes back.
"""

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from threading import Lock, RLock, get_ident
from time import time
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from onetool.app.bundles import AppBundles
from onetool.app.config_lint import lint_config
from onetool.app.missing import gone_aliases, missing_server, names_in_code, why_missing, with_reason
from onetool.app.runtime import EMPTY, Runtime
from onetool.app.view import AppView, internal_handlers
from onetool.config import Config, Found, find, load_config
from onetool.config.files import pack_paths, watched_files
from onetool.config.find import trust_store
from onetool.core.call import new_id
from onetool.core.errors import ConfigError, Mistake, ToolFailure
from onetool.core.json_data import freeze
from onetool.core.registry import Snapshot
from onetool.core.source import Catalogue, Prompt, Resource, SingleTool
from onetool.core.spec import ToolSpec
from onetool.packs.ot import ot_tools
from onetool.registry import Registry
from onetool.sources.bundles.errors import BundleError
from onetool.sources.catalogues import DeclaredTools, add_first, united
from onetool.sources.packs import PackSource, pack_modules, restore_modules

if TYPE_CHECKING:
    from onetool.app.ask import AskService, PendingAnswer
    from onetool.ask.sessions import SessionStore
    from onetool.config.trust import Untrusted
    from onetool.core.call import ToolCall, ToolResult
    from onetool.core.context import Gate, Progress
    from onetool.core.executor import Executor
    from onetool.core.threads import LoopThread
    from onetool.script.reply import ReadOn, RunReply
    from onetool.script.run_result import RunResult
    from onetool.services.file_watcher import FileWatcher
    from onetool.services.results import StoredResult
    from onetool.services.search import SearchIndex
    from onetool.sources.bundles.service import BundleService
    from onetool.sources.mcp_servers.servers import Servers

log = logging.getLogger("onetool")
watch_log = logging.getLogger("onetool.watch")
trust_log = logging.getLogger("onetool.trust")

NO_SERVERS = freeze({"status": "ok", "server_count": 0, "servers": {}})
OWN, NAMED = "ot", 3.0  # a pack that is about all others; the score of who is asked for by its name
PATIENCE = 10.0  # seconds that who only wants to know what there is waits for a server
FACTS = ("calls", "success_rate", "median_ms", "last_called")


class App:
    """A config in force, the tools that it gives, and the services behind them."""

    def __init__(self, config: Config, *, imports: bool = True) -> None:
        self._imports = imports
        self.registry = Registry(internals=internal_handlers(self))
        self.runtime = Runtime(config, self.registry)
        self.mistakes: tuple[Mistake, ...] = ()
        self.prompts: Mapping[str, Prompt] = EMPTY
        self.resources: Mapping[str, Resource] = EMPTY  # by their uri
        self.servers: Servers | None = None  # none are configured
        self._bundling = AppBundles(self)
        self._index: tuple[Snapshot, SearchIndex] | None = None
        self._listing = RLock()  # servers tell of their tools in a thread of their own
        self._stepping = RLock()  # one load for all who wait for it
        self._listeners: list[Callable[[], None]] = []
        self._asking, self._reloading = Lock(), Lock()
        self._asked = self._begun = 0  # reloads
        self._reloader: int | None = None  # the thread that is at it
        self._is_closed = False
        self._finds_config = False  # and so looks for it again
        self.untrusted: Untrusted | None = None  # the project's folder that was found here and is not used
        self.reload_error: ConfigError | None = None  # why the last reload changed nothing …
        self._files_to_mend: tuple[Path, ...] = ()  # … and which files are to be mended
        self._stays = False
        self.watches = False  # files, whatever the config says about that
        self._lookout: FileWatcher | None = None
        self._read_at = time()
        self._own = Catalogue(tools=tuple(ot_tools(AppView(self))))
        self._apply(config, self._read(config))

    @classmethod
    def open(cls, config: str | Path | Found | None = None, *, imports: bool = True) -> Self:
        """The app for a config file, or for the one that is found from here. Raises ConfigError if it can't be used.

        A file that is named is trusted by that. A project's folder that is found and not trusted is not used, and
        nobody is asked: `untrusted` tells. Without `imports` packs are parsed and not run: the names of their tools
        are known, and calling one fails.
        """
        found = config if isinstance(config, Found) else find(config)
        app = cls(load_config(found), imports=imports)
        app._finds_config = found.whose != "named"
        app._note_untrusted(found)
        return app

    # What there is

    def tools(self, allowed: Iterable[str] | None = None) -> list[ToolSpec]:
        """The tools to show, in order; with an allow-list exactly those."""
        self.in_step()
        return [spec for spec in self.registry.list(allowed) if spec.enabled and not spec.hidden]

    def info(self, name: str, allowed: Collection[str] | None = None) -> dict[str, Any] | None:
        """One tool's schemas and run-time facts, or None."""
        from onetool.core.signature import signature
        from onetool.script.names import ScriptNames

        self.in_step()
        spec = self.registry.get(self.real_name(name))
        if spec is None:
            return None
        return {
            **spec.summary(),
            "outputSchema": spec.output_schema,
            **({"inferredOutput": spec.seen.schema()} if spec.seen else {}),
            "signature": signature(spec, ScriptNames(self.registry.snapshot()).spelling(spec)),
            "source": spec.source,
            "definedIn": spec.defined_in or self._bundling.place(spec),
            **({"requires": [need.told() for need in spec.requires]} if spec.requires else {}),
            "allowed": allowed is None or spec.name in allowed,
            "enabled": spec.enabled,
            **(self.runtime.stats.facts(spec.name) if self.runtime.stats else dict.fromkeys(FACTS)),
        }

    def search(
        self, query: str, limit: int = 5, allowed: Collection[str] | None = None
    ) -> list[tuple[ToolSpec, float]]:
        """The tools that fit a query best. Our own, which are about tools, come last unless they are named."""
        from onetool.services.search import SearchIndex

        self.in_step()
        snapshot = self.registry.snapshot()
        if self._index is None or self._index[0] is not snapshot:
            self._index = (snapshot, SearchIndex([spec for spec in snapshot if spec.enabled]))
        found = self._index[1].search(query, limit + len(self._own.tools) if allowed is None else len(snapshot))
        found = [(spec, score) for spec, score in found if allowed is None or spec.name in allowed]
        return sorted(found, key=lambda one: one[0].pack == OWN and one[1] < NAMED)[:limit]

    def health(self, allowed: Collection[str] | None = None) -> dict[str, Any]:
        """Whether everything that should be there is there. Under an allow-list nothing else is named."""
        import platform

        from onetool._version import __version__

        status = "degraded" if any(m.severity == "error" for m in self.mistakes) else "ok"
        return {
            "version": __version__,
            "python": platform.python_version(),
            "cwd": os.getcwd(),
            "registry": {
                "status": status,
                "tool_count": len(self.registry) if allowed is None else len(self.tools(allowed)),
                **({"mistakes": [str(m) for m in self.mistakes]} if self.mistakes and allowed is None else {}),
            },
            "proxy": NO_SERVERS if self.servers is None else self.servers.health(allowed),
            **({"trust": str(self.untrusted)} if self.untrusted else {}),
            **({"reload": f"failed: {self.redact(str(self.reload_error))}"} if self.reload_error else {}),
        }

    # What it does

    async def call(
        self,
        call: "ToolCall",
        allowed: Collection[str] | None = None,
        progress: "Progress | None" = None,
        gate: "Gate | None" = None,
    ) -> "ToolResult":
        """Run one tool, past the `gate`. Of one that is not there because it was refused, the result says why."""
        await self.refresh()
        if call.name not in self.registry:
            await self.listed([call.name.partition(".")[0]])
            call = replace(call, name=self.real_name(call.name))
        result = await self.executor.execute(call, allowed, progress, gate=gate)
        if result.error is None or call.name in self.registry or not (why := why_missing(self, call.name)):
            return result
        return replace(result, error=with_reason(result.error, why))

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

        `live` is told what it prints, as it prints it; what it calls has to pass the `gate`.
        """
        await self.refresh()
        words = () if self.servers is None and self.untrusted is None else names_in_code(self, code)
        if words:
            looks_around = "ot" in words and not self._stays  # who stays will see them come
            await self.listed(None if looks_around else words)
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
        why = missing_server(self, words, result.error.message) or gone_aliases(self, result.error.message)
        if why is None:
            return result
        return replace(result, error=with_reason(result.error, why))

    def ask(self, prompt: str, **options: Any) -> "PendingAnswer":
        """Put a question to a model that has these tools: `await` it for the answer, or iterate over what happens.

        The options are those of `onetool.app.ask.AskOptions`.
        """
        from onetool.app.ask import AskOptions

        return self._asks.ask(prompt, AskOptions(**options))

    @property
    def sessions(self) -> "SessionStore":
        """What was asked and answered."""
        return self._asks.sessions

    def reply(self, result: "RunResult", whole: bool = False, read_on: "ReadOn | None" = None) -> "RunReply":
        """What a run's caller gets to read. A large result is stored, unless it is wanted whole."""
        return self.runtime.reply(result, whole, read_on)

    def run_sync(self, code: str, allowed: Collection[str] | None = None) -> "RunResult":
        """The same for code that is not async, such as a notebook's."""
        return self._background.call(self.run(code, allowed))

    def warm_bundles(self) -> None:
        """The same for who serves them: opening them takes a while, and whoever asks first should not wait."""
        with suppress(BundleError):  # who asks for them is told
            self.bundles.store.state()

    def real_name(self, name: str) -> str:
        """Of a tool that is called as code spells it, `files.read_text` for `files.read-text`, or by an alias."""
        if name in self.registry:
            return name
        from onetool.script.names import ScriptNames

        spec = ScriptNames(self.registry.snapshot(), self.config.aliases).tool(name)
        return name if spec is None else spec.name

    def why_missing(self, name: str) -> ToolFailure | None:
        """What is wrong with a tool, or with its pack or its server, that should be there."""
        return why_missing(self, name)

    def reload(self) -> None:
        """Read the config, the prompts, the packs and all tools again: all of it, or nothing.

        What can't be used, or would break what worked, raises ConfigError, and everything stays as it was. Calls and
        runs under way go on with what they began with.
        """
        if self._reloader == get_ident():
            raise RuntimeError("a reload is under way in this very thread, and can't begin another one")
        with self._asking:
            self._asked = asked = self._asked + 1
        with self._reloading:
            if self._begun >= asked:  # somebody else's began after we asked for ours, and so was ours, too
                if self.reload_error is not None:
                    raise ConfigError(self.reload_error.mistakes)
                return
            begun, self._begun, self._reloader = self._begun, self._asked, get_ident()
            try:
                self._reload()
            except ConfigError:
                raise
            except BaseException:  # nobody's who waits for his turn: he tries himself
                self._begun = begun
                raise
            finally:
                self._reloader = None

    def _reload(self) -> None:
        modules, began = pack_modules(), time()
        try:
            found = self._find_again()
            config = load_config(self.config.path if found is None else found)
            read = self._read(config, again=True)
            if broken := self._broken(read):
                raise ConfigError(broken)
        except OSError as error:  # a path that the system refuses, say
            restore_modules(modules)
            self._refused(ConfigError([Mistake(message=str(error))]))
            raise self.reload_error or error from None
        except ConfigError as error:
            restore_modules(modules)
            self._refused(error)
            raise
        if self._is_closed:
            return
        self.reload_error, self._files_to_mend, self._read_at = None, (), began
        self._apply(config, read)
        self._note_untrusted(found)
        if self._stays:
            self.connect()

    def connect(self) -> None:
        """For who stays: connect all MCP servers, and look after the files if that is wanted, both in the background.

        Others connect those servers that they call.
        """
        if self._is_closed:
            return
        self._stays = True
        self._bundling.stay()
        if self.servers is not None:
            self.servers.start()
        if self._lookout is None and (self.watches or self.config.watch):
            from onetool.services.file_watcher import FileWatcher

            self._lookout = FileWatcher(self._files, self._reload_on_change, since=self._read_at)

    async def listed(self, packs: Iterable[str] | None = None) -> None:
        """Wait for servers whose tools are not known yet: of those packs, or all; until they tell, or can't."""
        if self.servers is not None and (names := self.servers.unlisted(packs)):
            with suppress(ToolFailure):  # it is closing
                await self.servers.settled(names, anew=packs is not None, patience=PATIENCE if packs is None else None)

    def wait_for_servers_sync(self, packs: Iterable[str] | None = None) -> None:
        """The same for who is not async."""
        if self.servers is not None and (names := self.servers.unlisted(packs)):
            self.servers.settle(names, PATIENCE if packs is None else None)

    def on_change(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Have somebody told, in some thread, when there are other tools; what comes back ends that."""
        self._listeners.append(tell)
        return lambda: self._listeners.remove(tell)

    def close(self) -> None:
        self._is_closed = True
        waits = self._reloader != get_ident() and self._reloading.acquire(timeout=PATIENCE)  # for a reload under way
        if waits:
            self._reloading.release()
        for part in (self._lookout, self.servers, self._bundling):
            if part is not None:
                part.close()
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
        """Health. Who has only just come tries every server first: else it would only be known how they were."""
        if self.servers is not None and not self._stays:
            await self.servers.settled()
        return self.health(allowed)

    # How it is wired

    @property
    def config(self) -> Config:
        """The one in force."""
        return self.runtime.config

    @property
    def executor(self) -> "Executor":
        return self.runtime.executor

    @property
    def bundles(self) -> "BundleService":
        """The bundles in the folder beside the config. Nothing is written there before somebody keeps something."""
        return self._bundling.shelf

    def in_step(self) -> None:
        """See to it that the tools of bundles are those of now: another process may have changed them."""
        if not self._bundling.is_in_step():
            with self._stepping:
                if not self._bundling.is_in_step():  # somebody else may have been faster
                    self._list()

    async def refresh(self) -> None:
        """The same on a loop that others wait for: with many tools it takes a while."""
        if not self._bundling.is_in_step():
            from asyncio import to_thread

            await to_thread(self.in_step)

    def redact(self, value: Any, sent: Any = None) -> Any:
        """The same data without the config's secrets, except those that its reader `sent` itself."""
        return self.runtime.redact(value, sent)

    @cached_property
    def _asks(self) -> "AskService":
        from onetool.app.ask import AskService  # most never ask a model

        return AskService(self)

    @cached_property
    def _background(self) -> "LoopThread":
        from onetool.core.threads import LoopThread

        return LoopThread()

    def _find_again(self) -> Found | None:
        """What is in force here now. A project that was trusted and waits for another look stays as it was."""
        if not self._finds_config:
            return None
        found, config = find(), self.config
        if config.whose == "project" and (found.untrusted is not None or found.whose != "project"):
            waits = found.untrusted
            told = "it is gone, or another one" if waits is None else str(waits)
            raise ConfigError([Mistake(message=told, file=str(config.path or config.folder))])
        return found

    def _note_untrusted(self, found: Found | None) -> None:
        self.untrusted = None if found is None else found.untrusted
        if self.untrusted is not None:
            trust_log.warning("%s", self.untrusted)

    def _refused(self, error: ConfigError) -> None:
        self.reload_error = error
        self._files_to_mend = tuple({Path(mistake.file) for mistake in error.mistakes if mistake.file})

    def _files(self) -> list[Path]:
        waiting = () if self.untrusted is None else (self.untrusted.config, trust_store().file)
        in_vain = (*self._files_to_mend, *(file for file in waiting if file))
        return watched_files(self.config, in_vain, self._finds_config)

    def _reload_on_change(self) -> None:
        try:
            self.reload()
        except ConfigError as error:
            watch_log.error("Not reloaded, what was in force stays: %s", error)
        else:
            watch_log.info("Reloaded, since files have changed: %d tools", len(self.registry))
        if self._lookout is not None and not (self.watches or self.config.watch):
            self._lookout.close()
            self._lookout = None

    def _store_result(self, text: str) -> "StoredResult":
        return self.runtime.store_result(text)

    def _know(self, secret: str) -> None:
        """One more to mask: servers get theirs while they are connected. Other configs know it by that, too."""
        self.config.secrets.know(secret)

    def _configured_servers(self) -> Callable[[], None]:
        """The same ones as before, with what has changed about them; what comes back ends those that are others now."""
        if self.servers is None and self.config.servers:
            from onetool.sources.mcp_servers.servers import Servers

            self.servers = Servers(
                self.config.home / "servers", self._store_result, self.redact, self._list, self._know
            )
        return (lambda: None) if self.servers is None else self.servers.configure(self.config.servers)

    def _read(self, config: Config, again: bool = False) -> tuple[Catalogue, Catalogue]:
        """The packs and the declared tools of a config. Nothing is changed by that."""
        fresh = again or config.whose == "project"  # what was compiled there is not what was trusted
        packs = PackSource(pack_paths(config), fresh=fresh, imports=self._imports).load()
        functions = {spec.name: spec.handler for spec in packs.tools if spec.handler}
        return packs, DeclaredTools(config.tools, functions, internal_handlers(self)).load()

    def _broken(self, read: Iterable[Catalogue]) -> list[Mistake]:
        """Mistakes that were not there before."""
        known = {(mistake.key, mistake.message) for mistake in self.mistakes}
        _, mistakes = united([self._own, *read])
        return [one for one in mistakes if one.severity == "error" and (one.key, one.message) not in known]

    def _apply(self, config: Config, read: Iterable[Catalogue]) -> None:
        """All at once, but for servers: those that have changed need time to end, and are not waited for by others."""
        if config.http.token:
            config.secrets.keep(str(config.http.token))
        config.secrets.join(self.config.secrets)  # runs under way mask what the new ones know, and the other way round
        before, self.runtime = self.runtime, Runtime(config, self.registry, self.runtime, [self._bundling.count])
        self._bundling.follow(config)
        self._catalogues = (self._own, *read)
        self._told: set[str] = set()
        try:
            end_others = self._configured_servers()
            self._list()
        finally:
            before.rest()
        end_others()
        for mistake in config.warnings:
            log.warning("%s", mistake)

    def _list(self) -> None:
        """All tools that there are now, under their names. Again whenever a server has others than before."""
        with self._listing:
            waiting = () if self.servers is None else self.servers.packs()  # their tools may not be known yet
            local = self._bundling.add_bundles(self._catalogues, waiting)
            offers = [*local, *([] if self.servers is None else [self.servers.load()])]
            tools, mistakes = united(offers)
            self.registry.replace(tools, self._bundling.versions())
            self.prompts = add_first({}, ((one.name, one) for offer in offers for one in offer.prompts), mistakes)
            self.resources = add_first({}, ((one.uri, one) for offer in offers for one in offer.resources), mistakes)
            self.mistakes = (*mistakes, *lint_config(self.config, self.registry, waiting))
            for mistake in mistakes:  # the rest is for `onetool check`
                if str(mistake) not in self._told:
                    self._told.add(str(mistake))
                    log.log(logging.ERROR if mistake.severity == "error" else logging.WARNING, "%s", mistake)
        for tell in list(self._listeners):
            try:
                tell()
            except Exception:
                log.exception("somebody could not be told of other tools; the others are")
