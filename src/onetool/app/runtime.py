"""The services that depend on one config: executor, engine, results, stats, topics and the HTTP client.

Each is created when first used. A reload creates a new `Runtime` and retires the old one; running calls keep the old
runtime to the end, with its settings, secrets and limits.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from onetool.config import Config
from onetool.config.load import code_files, roots_within, setting_files
from onetool.config.model import PROMPTS_FILE
from onetool.core.call import DRAFT
from onetool.core.context import current_call
from onetool.core.json_data import freeze, size_of
from onetool.core.principal import current_principal, owner, owners
from onetool.core.registry import Snapshot
from onetool.core.state_folders import CONFIG_FILES, STATE_FILES, STATE_FOLDERS, mark_home
from onetool.services.journal.recorder import Recorder
from onetool.services.logs import log_call
from onetool.sources.packs import Registry

if TYPE_CHECKING:
    from onetool.app.access import KnownTokens
    from onetool.app.database import AppDatabase
    from onetool.app.documents import DocumentKind
    from onetool.app.journal import AppJournal
    from onetool.app.secret_rules import SecretRules
    from onetool.core.call import ToolCall, ToolResult
    from onetool.core.context import CallEvent, RunEvent
    from onetool.core.errors import Need
    from onetool.core.executor import Executor
    from onetool.database import Database
    from onetool.database.documents import Documents, Following
    from onetool.http.client import HttpClient
    from onetool.http.tool import HttpContext, HttpTool
    from onetool.script.engine import Engine, SharedWorkers
    from onetool.script.render import ReadOn, RunReply
    from onetool.script.run_result import RunResult
    from onetool.services.journal.stats import Stats
    from onetool.services.results import StoredResult
    from onetool.services.results.store import ResultStore
    from onetool.services.topics import Topics

log = logging.getLogger("onetool")
T = TypeVar("T")

EMPTY: Mapping[str, Any] = freeze({})

RunCode = Callable[..., Coroutine[Any, Any, "RunResult"]]
"""`App.run`, for code that needs nothing else of the app."""

AppCall = Callable[..., Coroutine[Any, Any, "ToolResult"]]
"""`App.call`, for nested calls: with the `runtime` that the outer call or run started with."""


class part(Generic[T]):  # noqa: N801 - used like `property`
    """A service of a runtime, created once at its first use, by any thread. One service may need another."""

    def __init__(self, new: "Callable[[Runtime], T]") -> None:
        self._new, self._name, self.__doc__ = new, new.__name__, new.__doc__

    def __get__(self, runtime: "Runtime", owner: object = None) -> T:
        made = vars(runtime)  # attribute access finds it here the next time
        with runtime.lock:
            if self._name not in made:
                made[self._name] = self._new(runtime)
        return made[self._name]


class Runtime:
    """The services of one config; also the environment of running tools."""

    def __init__(
        self,
        config: Config,
        registry: Registry,
        before: "Runtime | None" = None,
        *,
        recorder: Recorder,
        count_call: "Callable[[CallEvent], None]",
        journal: "AppJournal",
        databases: "AppDatabase",
        call: "AppCall",
        newest: "Callable[[], Awaitable[Runtime]]",
    ) -> None:
        """Create the services of a config.

        Events go into the queue of the `recorder`, whose thread also calls `count_call` for every call. `call` is
        `App.call`. `newest` checks for changed settings and returns the current runtime.
        """
        self.config = config
        self.recorder = recorder
        self._count_call = count_call
        self.journal = journal
        self._call = call
        self._newest = newest
        self.databases = databases
        self._registry = registry
        self._settings = {pack: freeze(own) for pack, own in config.settings.items()}  # packs can't change them
        self.lock = RLock()
        self._is_retired = self._shares_workers = False
        if before is not None:
            before.share_with(self)

    # Parts

    @part
    def executor(self) -> "Executor":
        from onetool.core.executor import Executor  # loads asyncio, which listing tools doesn't need

        mark_home(self.config.home)
        self.journal.start()
        defaults = self.config.defaults
        return Executor(
            self._registry,
            timeout=defaults.timeout_s,
            retries=defaults.retries,
            environment=self,
            recorders=[self.record_call],
            redact=self.config.secrets.redact_data,
            journal=self.journal.before if self.config.audit.mode == "required" else None,
        )

    @part
    def workers(self) -> "SharedWorkers":
        from onetool.script.engine import SharedWorkers  # loads the sandbox
        from onetool.script.run_result import RunLimits

        run = self.config.run
        limits = RunLimits(
            seconds=run.timeout_s,
            memory_mb=run.memory_mb,
            calls=run.max_calls,
            output_bytes=run.max_output_bytes,
            workers=run.workers,
        )
        workers = SharedWorkers(limits)
        if self._is_retired:  # a call may come late: the workers serve it, but don't stay
            workers.close()
        return workers

    @part
    def engine(self) -> "Engine":
        from onetool.script.engine import Engine

        self.journal.start()
        return Engine(
            self.workers.limits,
            partial(self._call, runtime=self),
            environment=self,
            aliases=self.config.aliases,
            snippets=self.config.snippets,
            typecheck=self.config.run.typecheck,
            recorders=[self.record_run],
            journal=self.journal.before if self.config.audit.mode == "required" else None,
            workers=self.workers,
            store=self.store_result,
        )

    @part
    def bare_engine(self) -> "Engine":
        """The engine for code that calls no tools. It shares the workers of `engine`, but none of its caches."""
        from onetool.script.engine import Engine

        workers = self.workers
        return Engine(workers.limits, partial(self._call, runtime=self), environment=self, workers=workers)

    @part
    def results(self) -> "ResultStore":
        from onetool.services.results.store import ResultStore

        return ResultStore(self.state, self.config.results.ttl_s, self.config.results.max_total_mb)

    @part
    def stats(self) -> "Stats | None":
        journal = self.journal.start() if self.config.stats.enabled else None
        if journal is None:
            return None
        from onetool.services.journal.stats import Stats

        return Stats(journal, self.config.results.inline_bytes)

    @property
    def database(self) -> "Database | None":
        """The database of all replicas; None if the app uses files. Raises ConfigError if it can't be used."""
        return self.databases.get()

    @property
    def state(self) -> "Database":
        """The database of all stores. Raises ConfigError if it can't be used."""
        return self.databases.state()

    def documents(self, kind: "DocumentKind", follow: "Following | None" = None) -> "Documents":
        """Return the small documents of a kind."""
        from onetool.app.documents import documents_in

        return documents_in(self.state, kind, self.config, follow)

    @part
    def tokens(self) -> "KnownTokens":
        """The named tokens of `onetool serve`."""
        from onetool.app.access import KnownTokens, token_store

        return KnownTokens(self.config.http.tokens, token_store(self.config, self.documents("tokens")))

    @part
    def topics(self) -> "Topics":
        from onetool.services.topics import Topics

        config = self.config
        topics = [(one.pattern, one.file) for one in config.topics]
        return Topics(topics, config.fs.roots, self.unwritable, within=self.allowed_folders, beside=config.beside)

    @part
    def client(self) -> "HttpClient":
        """The HTTP client of HTTP tools and `ask`."""
        from onetool.http.client import HttpClient

        return HttpClient()

    @cached_property
    def secret_rules(self) -> "SecretRules":
        """The rules for which secrets HTTP tools may send, and where."""
        from onetool.app.secret_rules import SecretRules

        return SecretRules(self.config, self.tokens)

    @part
    def http_context(self) -> "HttpContext":
        from onetool.app.tool_files import file_sources
        from onetool.http.allowed_hosts import AllowedHosts, HostRule
        from onetool.http.tool import HttpContext

        hosts = AllowedHosts([HostRule(one.host, one.allow_private) for one in self.config.allowed_hosts])
        return HttpContext(
            client=self.client,
            hosts=hosts,
            store_result=self.store_result,
            mask_also=self.config.secrets.mask_also,
            secret=self.secret_rules.get,
            check_secret=self.secret_rules.check,
            logins=self.documents("logins"),  # logins to MCP servers are stored there, too
            files=file_sources(self, self.read_result),
            needs=self._needs_of,
            look_again=self._newer_http_context,
        )

    def _needs_of(self, tool: "HttpTool") -> "list[Need]":
        from onetool.app.requirements import http_requirements

        return http_requirements(self.secret_rules, self.http_context.hosts, [tool]).missing()

    async def _newer_http_context(self) -> "HttpContext | None":
        newest = await self._newest()
        return None if newest is self else newest.http_context

    def share_with(self, to: "Runtime") -> None:
        """Hand over services that are the same in both configs, so that no new workers start."""
        with self.lock:
            mine, theirs = self.config, to.config
            same = {"client"}
            if (mine.home, mine.results, mine.database) == (theirs.home, theirs.results, theirs.database):
                same.add("results")
            if mine.run == theirs.run:
                same.add("workers")
            shared = {name: one for name, one in vars(self).items() if name in same}
            vars(to).update(shared)
            self._shares_workers = "workers" in shared

    def retire(self) -> None:
        """Let the workers end after their runs. Unused services are not created for this."""
        with self.lock:
            self._is_retired = True
            workers = self._made("workers")
        if workers is not None and not self._shares_workers:
            workers.close()

    def close(self) -> None:
        """Close everything, including the services that all configs share, because the app is closed."""
        self.retire()
        client = self._made("client")
        if client is not None:
            client.close()

    def _made(self, name: str) -> Any:
        """Return a service if it has been used."""
        return vars(self).get(name)

    # The environment of running tools

    def settings(self, pack: str) -> Mapping[str, Any]:
        """Return a pack's settings. `fs` has its own section in the config, and must not show our secrets to models."""
        own = self._settings.get(pack, EMPTY)
        if pack != "fs":
            return own
        private = [str(path) for path in self._private()]
        return {**own, "roots": list(self.config.fs.roots), "private": private, "within": self.allowed_folders}

    @cached_property
    def allowed_folders(self) -> list[str] | None:
        """The folders that may contain roots; None allows any folder."""
        return roots_within(self.config)

    def _private(self) -> list[Path]:
        """Return the paths of the config, its secrets, and state with other users' data, such as stored results.

        Every folder `.onetool` is private anyway; this is for configs and state that are stored elsewhere. If a config
        is inside a user's project, folders with the names of state folders may belong to the project.
        """
        secrets, home = self.config.secrets.file, self.config.home
        mixed = self.config.path is not None and home == self.config.path.parent and home.name != ".onetool"
        folders = [home / part for part in STATE_FOLDERS]
        if mixed:
            folders = [folder for folder in folders if (folder / ".gitignore").exists()]  # which marks it as ours
        ours = [home / name for name in STATE_FILES]
        files = (self.config.path, *self.config.include, secrets, *self.config.secrets.files, *ours)
        return [*(file for file in files if file), *folders]

    @property
    def unwritable(self) -> list[str]:
        """Paths that no tool may write: state, and files that a start or a reload reads, whether they exist or not."""
        config = self.config
        state = (config.home / name for name in ("bundles", *STATE_FOLDERS))
        read = (config.beside / name for name in (PROMPTS_FILE, "packs", *CONFIG_FILES))
        files = (*setting_files(config, finds=True), *code_files(config))
        return [str(path) for path in (*self._private(), *state, *read, *files)]

    def snapshot(self) -> Snapshot:
        return self._registry.snapshot()

    async def call_tool(self, call: "ToolCall") -> "ToolResult":
        return await self._call(call, for_tool=True, runtime=self)

    def secret(self, name: str) -> str | None:
        return self.config.secrets.get(name)

    def redact(self, value: Any, sent: Any = None) -> Any:
        """Mask the config's secrets in data, except those that its reader `sent` itself."""
        return self.config.secrets.redact_data(value, sent)

    def store_result(self, text: str, value: Any = None, is_json: bool = False) -> "StoredResult":
        """Store a result for the caller of the running call, with its value if that differs from the text.

        With `is_json`, the text is the JSON of the value.
        """
        context, kept = current_call.get(), None
        if value is not None and value != text and not is_json:
            with suppress(ValueError):  # a number with thousands of digits: the text is loaded instead
                kept = json.dumps(self.redact(value), ensure_ascii=False, separators=(",", ":"))
        name = None if context is None else context.call.name
        return self.results.put(self.redact(text), owner(), name, kept, is_json)

    def read_result(self, handle: str, max_bytes: int | None = None) -> str:
        """Read a stored result of the caller of the running call. Raises ResultTooLargeError if it has more bytes."""
        return self.results.read(handle, self.result_owner(handle), max_bytes)

    def result_owner(self, handle: str) -> str:
        """Return the owner of a result that the current caller may use; the caller if there is none."""
        return self.results.owner_of(handle, owners())

    def reply(self, result: "RunResult", whole: bool = False, read_on: "ReadOn | None" = None) -> "RunReply":
        """Build the reply to the caller of a run. A large result is stored, unless `whole` is set."""
        from onetool.script.render import in_code, run_reply

        sizes = self.config.results
        store = None if whole else self.store_result
        return run_reply(result, sizes.inline_bytes, store, read_on or in_code, sizes.max_preview)

    # Recording events: the path of a call only puts them into a queue

    def record_call(self, event: "CallEvent") -> None:
        size = len(event.args) + (0 if event.value is None else event.bytes_out)
        self.recorder.put(self._write_call, event, size=size)

    def record_run(self, event: "RunEvent") -> None:
        self.recorder.put(self._write_run, event, size=len(event.code))

    def record_gap(self, client: str, seconds: float) -> None:
        """Record the seconds between our reply and the client's next call."""
        if (journal := self.journal.current) is not None:
            self.recorder.put(journal.record_wait, client, seconds, current_principal.get().lasting_owner)

    def record_menu(self, client: str, full_bytes: Callable[[], int], sent_bytes: Callable[[], int]) -> None:
        """Record that a menu was sent to a client. The recorder's thread measures it, and a list of all tools."""
        self.recorder.put(self._write_menu, client, full_bytes, sent_bytes, current_principal.get().lasting_owner)

    def record_reply(self, result: "RunResult", parts: Iterable[Any]) -> None:
        """Record the size of a run's reply: text, and other parts as JSON."""
        run, journal = result.meta.get("run"), self.journal.current
        if journal is not None and run is not None:
            self.recorder.put(journal.record_reply, run, sum(map(size_of, parts)))

    def _write_call(self, event: "CallEvent") -> None:
        log_call(event, self.redact)
        if event.source != DRAFT:
            self._count_call(event)
        if (journal := self.journal.current) is not None:
            journal.add(event)
        self.recorder.observe(event)

    def _write_run(self, event: "RunEvent") -> None:
        if (journal := self.journal.current) is not None:
            journal.add(event)
        self.recorder.observe(event)

    def _write_menu(
        self, client: str, full_bytes: Callable[[], int], sent_bytes: Callable[[], int], owner: str
    ) -> None:
        if (journal := self.journal.start()) is not None and journal.settings.counts:
            journal.record_menu(client, "mcp", full_bytes(), sent_bytes(), owner)

    def records_health(self) -> dict[str, dict[str, Any] | None]:
        """Return the problems with the journal and the event queue, which drops events when flooded."""
        dropped = self.recorder.lost
        return {
            "journal": self.journal.health(),
            "events": {"status": "degraded", "dropped": dropped} if dropped else None,
        }

    def sandbox_usage(self) -> dict[str, int]:
        """Return the limit of parallel runs, and how many are running and waiting; empty before the first run."""
        workers: SharedWorkers | None = self._made("workers")
        return {} if workers is None else workers.usage()

    def warm(self) -> None:
        """Start the services that the first run would have to wait for.

        Any thread may call this; failures are only logged.
        """
        try:
            self.engine.warm()
        except Exception as error:  # noqa: BLE001 - the first run tries again and reports the error
            log.warning("the sandbox could not be started ahead of time: %s: %s", type(error).__name__, error)


class CurrentRuntime:
    """The current runtime, which a reload replaces.

    Objects that outlive a reload keep a reference to this object instead.
    """

    runtime: Runtime

    def store_result(self, text: str) -> "StoredResult":
        return self.runtime.store_result(text)

    def redact(self, value: Any) -> Any:
        return self.runtime.redact(value)

    def mask_also(self, secret: str) -> None:
        self.runtime.config.secrets.mask_also(secret)
