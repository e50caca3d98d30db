"""ToolCatalog: the current tools, prompts and resources, a search over them, and the reason why a tool is missing.

It combines the tools of packs, the config, bundles and MCP servers, and is rebuilt after each change.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from threading import Event, RLock, Thread
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from onetool.app.bundles import AppBundles
from onetool.app.call_evidence import CallEvidence
from onetool.app.config_lint import lint_config
from onetool.core.errors import Mistake, ToolFailure, message_of
from onetool.core.json_data import freeze
from onetool.core.principal import current_principal, owner
from onetool.core.registry import (
    NO_PACKS,
    Catalogue,
    LazyTool,
    Prompt,
    Resource,
    SingleTool,
    Snapshot,
    ToolList,
    count_shown,
    is_shown,
    shown_packs,
)
from onetool.core.spec import ToolSpec
from onetool.core.text import lazy_pattern, or_rather
from onetool.core.type_names import learn_returns
from onetool.sources.catalogues import Offered, add_first, united
from onetool.sources.packs import Registry

if TYPE_CHECKING:
    from onetool.app.runtime import CurrentRuntime
    from onetool.config import Config
    from onetool.config.trust import Untrusted
    from onetool.core.call import ToolError, ToolResult, ToolVersion
    from onetool.core.context import CallEvent
    from onetool.database.documents import Documents
    from onetool.script.run_result import RunResult
    from onetool.services.search import SearchIndex
    from onetool.sources.mcp_servers.servers import BriefHealth, Servers

log = logging.getLogger("onetool")
config_log = logging.getLogger("onetool.config")  # commands print the warnings themselves
OWN, NAMED = "ot", 3.0  # the pack of tools about tools; the score of a tool that the query names
FURTHER = 20  # extra results, because earlier calls may change their order
MANY_TOOLS, FIRST_REQUESTS_S = 5_000, 2.0  # from this number on, the search is prepared a moment after the start
LISTING_TIMEOUT = 10.0  # seconds to wait for servers when only the list of their tools is needed
WORD = lazy_pattern(r"[^\W\d]\w*")
GUESS = lazy_pattern(r"; did you mean [^;]*\?")
# Errors of code about a missing tool whose pack has other tools or is also a Python module.
NO_TOOL = lazy_pattern(
    r"AttributeError: (?:module )?'(\w+)'(?: object)? has no attribute|ImportError: cannot import name .* from '(\w+)'|"
    r"(\w+)\.\w+: there is no such tool|there is no tool '(\w+)\."
)
NO_SUCH_TOOL = lazy_pattern(r"\b(\w+\.\w+): there is no such tool")
NO_PACK = lazy_pattern(r"there is no pack (\w+)")
NO_NAME = lazy_pattern(r"there is no (?:pack|tool) |is not defined")


class ToolCatalog:
    """All tools, by name."""

    def __init__(
        self,
        registry: Registry,
        bundles: AppBundles,
        current: "CurrentRuntime",
        pending_changes: Callable[[], list[Mistake]],
        untrusted: "Callable[[], Untrusted | None]",
    ) -> None:
        """Create a catalogue.

        `pending_changes` returns the changes that a reload would load; `untrusted`, the ignored folder.
        """
        self.registry = registry
        self.mistakes: tuple[Mistake, ...] = ()
        self.warnings: tuple[Mistake, ...] = ()  # the warnings among them that are not only for `onetool check`
        self.prompts: Mapping[str, Prompt] = freeze({})
        self.resources: tuple[Resource, ...] = ()  # templates last
        self.servers: Servers | None = None  # None: none are configured
        self._config = current.runtime.config
        self._bundles = bundles
        self._current, self._pending_changes, self._untrusted = current, pending_changes, untrusted
        self._own, self._local = Catalogue(), Offered()
        self._logged: set[str] = set()
        self._index: tuple[Snapshot | None, SearchIndex] | None = None
        self._evidence = CallEvidence()
        self._serves = False
        self._closed = Event()
        self._indexing = RLock()
        self._listed_load: tuple[object, int] | None = None  # the last load of bundles whose tools are listed
        self._listed: tuple[Any, ...] = ()  # the servers' listings when the tools were last listed
        self._listing = RLock()  # servers report their tools in other threads
        self._refreshing = RLock()  # concurrent refreshes share one load
        self._listeners: list[Callable[[], None]] = []

    # What there is

    def tools(self, allowed: Iterable[str] | None = None) -> ToolList:
        """Return the visible tools, in order; with an allow-list, exactly the allowed ones."""
        return ToolList([one for one in self.current_snapshot().listed(allowed).held if is_shown(one)])

    def count(self, allowed: Iterable[str] | None = None) -> int:
        """Return the number of visible tools, without loading bundles."""
        if allowed is not None:
            return len(self.tools(allowed))
        snapshot = self.current_snapshot()
        return sum(map(is_shown, snapshot.own())) + sum(map(count_shown, snapshot.lazy.values()))

    def each(self, allowed: Iterable[str] | None = None) -> Iterator[ToolSpec | LazyTool]:
        """Yield the visible tools one by one, for callers that need only the first ones."""
        return filter(is_shown, self.current_snapshot().each() if allowed is None else self.tools(allowed).held)

    def packs(self, allowed: Iterable[str] | None = None) -> list[str]:
        """Return the packs that have visible tools."""
        if allowed is not None:
            return [*dict.fromkeys(tool.pack for tool in self.tools(allowed).held)]
        snapshot = self.current_snapshot()
        own = (spec.pack for spec in snapshot.own() if is_shown(spec))
        return [*dict.fromkeys([*own, *shown_packs(snapshot.lazy)])]

    def texts(self, allowed: Iterable[str] | None = None) -> list[object]:
        """Return objects that change with the list of tools. A changed lazy tool, even if disabled, has a new pack."""
        if allowed is None:
            snapshot = self.current_snapshot()
            return [*map(_listed_text, filter(is_shown, snapshot.own())), snapshot.lazy]
        return [*map(_listed_text, self.tools(allowed).held)]

    def search(
        self, query: str, limit: int = 5, allowed: Collection[str] | None = None, pack: str | None = None
    ) -> list[tuple[ToolSpec, float]]:
        """Return the tools that best match a query, from all packs or one.

        OneTool's own tools, which are about tools, come last unless the query names them. Raises BadArguments for an
        unknown pack.
        """
        self._current.runtime.recorder.flush()  # counts the latest calls
        snapshot, counted = self.current_snapshot(), self._evidence.of(owner())
        if pack is not None:
            allowed = snapshot.names_in_pack(pack, allowed)
        most = limit + len(self._own.tools) + (FURTHER if counted else 0)
        found = [
            (spec, score + counted.get(spec.name, 0.0))
            for spec, score in self._search_index(snapshot).search(query, most, allowed)
        ]
        return sorted(found, key=lambda one: (one[0].pack == OWN and one[1] < NAMED, -one[1]))[:limit]

    def count_call(self, event: "CallEvent") -> None:
        """Count a successful call, which ranks the tool a little higher in its caller's searches."""
        if event.error is not None or event.spec is None:
            return
        if event.value is not None and event.spec.observed is not None:
            event.spec.observed.note(event.principal.lasting_owner, event.value)
        if not event.spec.name.startswith(f"{OWN}."):
            self._evidence.record(event.principal.owner, event.spec.name)

    def _search_index(self, snapshot: Snapshot) -> "SearchIndex":
        """Return the index, updated for these tools."""
        from onetool.services.search import SearchIndex

        with self._indexing:
            known = self._index
            if known is None or known[0] is not snapshot:
                (kept, is_current), specs = self._bundles.searched(), (one for one in snapshot.own() if one.enabled)
                file = self._bundles.vectors_file()
                if known is None or known[1].vectors != file:
                    index = SearchIndex(specs, snapshot.lazy, kept, background=self._serves, vectors=file)
                else:
                    index = known[1]
                    index.update(specs, snapshot.lazy, kept)
                known = self._index = (snapshot if is_current else None, index)  # else the next search updates it again
            return known[1]

    def real_name(self, name: str) -> str:
        """Resolve an alias, or a name as code writes it (`files.read_text` for `files.read-text`)."""
        if name in self.registry:
            return name
        from onetool.script.names import ScriptNames

        spec = ScriptNames(self.registry.snapshot(), self._config.aliases).tool(name)
        return name if spec is None else spec.name

    def current_snapshot(self) -> Snapshot:
        self.refresh_sync()
        return self.registry.snapshot()

    def server_packs(self, allowed: Collection[str] | None = None) -> Collection[str]:
        """Return the packs of servers that are still starting, whose tools are not known yet."""
        return () if self.servers is None else self.servers.packs(allowed)

    def server_health(self) -> "Mapping[str, BriefHealth]":
        return {} if self.servers is None else self.servers.brief_health()

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback`, in any thread, whenever the tools change. Returns a function that unsubscribes."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    def refuse_switched_off(self, name: str, result: "ToolResult", allowed: Collection[str] | None) -> None:
        """Raise BundleError if a call of this name failed because the tool is disabled or over its limit."""
        if result.error is not None:
            self._bundles.refuse(self.registry.get(self.real_name(name)), result, allowed)

    # Keeping up with changes

    def warm_bundles(self) -> bool:
        """Open the bundles in advance. Returns False if there are none. Used by servers."""
        return self._bundles.warm()

    def warm_search(self) -> None:
        """Load the embeddings of tools before the first search. Servers call this, in any thread.

        From now on no search waits for embeddings: until they are loaded, searches match words only.
        """
        self._serves = True
        if len(self.registry) < MANY_TOOLS:
            self._prepare_search()
        else:  # takes seconds of processor time: let the first requests go first
            wait = (FIRST_REQUESTS_S,)
            Thread(target=self._prepare_search, args=wait, name="onetool-search", daemon=True).start()

    def _prepare_search(self, seconds: float = 0.0) -> None:
        try:
            self._bundles.searched()  # the words are all that REST's search needs
            if not self._closed.wait(seconds):
                self._search_index(self.current_snapshot()).load_meanings()
        except Exception as error:  # noqa: BLE001 - the first search tries again and reports the error
            log.warning("the search could not be prepared: %s: %s", type(error).__name__, error)

    def apply(self, config: "Config", own: Catalogue, read: Iterable[Catalogue]) -> Callable[[], None]:
        """Switch to another config and its tools.

        Returns a function that stops the servers that it changed or removed.
        """
        self._config = config
        packs, declared = read
        self._own, self._local = own, Offered(own, packs, declared)
        self._logged = set()
        if self.servers is None and self._config.servers:
            from onetool.sources.mcp_servers.servers import Servers

            folder, documents, current = config.home / "servers", self._server_documents(), self._current
            self.servers = Servers(
                folder, *documents, current.store_result, current.redact, self._list, current.mask_also
            )
        if self.servers is not None:
            self.servers.keep_in(*self._server_documents())
        end_others = (lambda: None) if self.servers is None else self.servers.configure(self._config.servers)
        self._list()
        for mistake in config.warnings:
            config_log.warning("%s", mistake)
        return end_others

    @property
    def untrusted(self) -> "Untrusted | None":
        """The project folder that was found but is not used."""
        return self._untrusted()

    def refresh_sync(self, at_once: bool = False) -> None:
        """Reload the tools of bundles if they were changed, perhaps by another process."""
        if not self._bundles.is_current(at_once):
            with self._refreshing:
                if not self._bundles.is_current(at_once):  # another thread may have refreshed them
                    self._list()
        if self._listed_load != self._bundles.last_load and not self._closed.is_set():
            self._wait_until_listed()

    def _wait_until_listed(self) -> None:
        """Wait for the thread that has loaded tools to list them. Does nothing on an event loop: `refresh` waits."""
        from onetool.sdk.context import is_on_event_loop

        if not is_on_event_loop():
            with self._listing:  # that thread holds it
                is_behind = self._listed_load != self._bundles.last_load
            if is_behind:  # it has failed
                self._list()

    def is_unchanged(self, at_once: bool = False) -> bool:
        """Return whether the listed tools are known to be current. Never blocks."""
        # In this order, because another thread may load tools between the two questions.
        is_loaded = self._bundles.is_unchanged(at_once)
        return is_loaded and (self._listed_load == self._bundles.last_load or self._closed.is_set())

    async def refresh(self, at_once: bool = False) -> None:
        """Refresh on an event loop; files are read and tools loaded in a thread.

        A change by another process is seen after a moment; with `at_once`, immediately.
        """
        from asyncio import to_thread

        if not self.is_unchanged(at_once):
            await to_thread(self.refresh_sync, at_once)

    async def find_version(self, version: "ToolVersion") -> SingleTool:
        """Find a version of a bundle's tool. Raises BundleError if it is missing or disabled."""
        service = self._bundles.service  # before the refresh, which checks only open bundles
        if not self._bundles.is_unchanged(at_once=True):  # a tool disabled by another process must not be called
            await self.refresh(at_once=True)
        if (found := service.ready(version)) is not None:
            return found
        from asyncio import to_thread

        return await to_thread(service.make_ready, version)

    async def wait_for_servers(self, packs: Iterable[str] | None = None) -> None:
        """Wait until the servers of these packs, or all servers, have listed their tools or failed."""
        if self.servers is not None and (names := self.servers.unlisted(packs)):
            with suppress(ToolFailure):  # the app is closing
                await self.servers.wait_connected(
                    names, retry=packs is not None, seconds=LISTING_TIMEOUT if packs is None else None
                )
        if self.servers is not None and packs is not None and self.servers.listings() != self._listed:
            from asyncio import to_thread

            await to_thread(self._catch_up)

    async def wait_for_tool(self, name: str) -> None:
        """Wait until the server of a missing tool has registered its tools."""
        await self.wait_for_servers([name.partition(".")[0]])

    def _catch_up(self) -> None:
        """Register the tools that servers have listed since the last registration.

        The thread that received a listing may be about to register it.
        """
        if (servers := self.servers) is None:
            return
        with self._listing:
            is_behind = servers.listings() != self._listed
        if is_behind:
            self._list()

    def wait_for_servers_sync(self, packs: Iterable[str] | None = None) -> None:
        """Wait for servers, for callers that are not async."""
        if self.servers is not None and (names := self.servers.unlisted(packs)):
            self.servers.wait_connected_sync(names, LISTING_TIMEOUT if packs is None else None)

    def close(self) -> None:
        self._closed.set()
        if self.servers is not None:
            self.servers.close()

    def _server_documents(self) -> "tuple[Documents, Documents]":
        runtime = self._current.runtime
        return runtime.documents("servers"), runtime.documents("logins")

    def _list(self) -> None:
        """Register all current tools by name. Runs again whenever a server's tools change."""
        with self._listing:
            listed = () if self.servers is None else self.servers.listings()  # read first, as it may change
            waiting = self.server_packs()  # their tools may not be known yet
            offered = replace(self._local)  # a new object, so that everything derived from it is rebuilt
            if self.servers is not None:
                offered = replace(offered, served=self.servers.load(), servers=tuple(self.servers.enabled()))
            offers = self._bundles.add_bundles(offered, waiting)
            tools, mistakes = united(offers)
            for spec in tools:
                learn_returns(spec)
            lazy = next((offer.lazy for offer in offers if offer.lazy), NO_PACKS)
            self.registry.replace(tools, self._bundles.versions(), lazy)
            self._listed, self._listed_load = listed, self._bundles.last_load
            self.prompts = add_first({}, ((one.name, one) for offer in offers for one in offer.prompts), mistakes)
            resources = [(one.uri, one) for offer in offers for one in offer.resources]
            by_uri = add_first({}, (pair for pair in resources if not pair[1].variables), mistakes)
            templates = add_first({}, (pair for pair in resources if pair[1].variables), mistakes)
            self.resources = (*by_uri.values(), *templates.values())
            found = lint_config(self._config, self.registry, waiting, lambda: self._current.runtime.tokens.store)
            self.mistakes = (*mistakes, *found)
            self.warnings = tuple(one for one in mistakes if one.severity != "error")
            for mistake in mistakes:  # `onetool check` reports the others
                if str(mistake) not in self._logged:
                    self._logged.add(str(mistake))
                    if mistake.severity == "error":
                        log.error("%s", mistake)
                    else:
                        config_log.warning("%s", mistake)
        for tell in list(self._listeners):
            try:
                tell()
            except Exception:
                log.exception("a listener for changed tools failed; the others are still called")

    # Why something is missing

    def why_missing(self, name: str) -> ToolFailure | None:
        """Explain why a tool is missing: a problem with the tool, its pack or its server."""
        if (gone := self._missing_alias_target(name)) is not None:
            return gone
        pack = name.partition(".")[0]
        if self.servers is not None and (why := self.servers.missing(pack)):
            return why
        if (refused := self._refused(name)) is not None:
            return refused
        if self.untrusted is not None and pack not in self.registry.packs():  # untrusted files aren't read to find out
            return ToolFailure(self.untrusted.short)
        return self._not_loaded()

    def _refused(self, name: str) -> ToolFailure | None:
        """Explain a missing tool or pack by a mistake in its definition."""
        pack = name.partition(".")[0]
        for mistake in self.mistakes:
            file, key = Path(mistake.file or ""), mistake.key or ""
            of_its_pack = key == "packs" and file.stem == pack
            of_its_tool = name == pack and file.suffix == ".py" and key.startswith(f"{pack}.")
            if of_its_pack or of_its_tool or key == name or key.endswith(f" ({name})"):
                return ToolFailure(f"it is invalid: {self._current.redact(str(mistake))}", reason="refused")
        return None

    def explain_call(self, result: "ToolResult", name: str) -> "ToolResult":
        """Return the result, with the reason added to an error about a missing tool."""
        if result.error is None or name in self.registry:
            return result
        why = self.why_missing(name)
        return result if why is None else replace(result, error=_with_reason(result.error, why))

    def explain_run(self, result: "RunResult", words: Iterable[str]) -> "RunResult":
        """Attribute an error in code that uses these names to a missing server, folder or alias target."""
        if (error := result.error) is None:
            return result
        servers, named = self.servers, dict.fromkeys(WORD.findall(error.message))
        both = () if servers is None else (one for one in words if one in named and one not in self.registry.packs())
        aliases = (self._missing_alias_target(word) for word in named if word in self._config.aliases)
        refused = map(self._refused, [*NO_SUCH_TOOL.findall(error.message), *NO_PACK.findall(error.message)])
        why = next(filter(None, chain(map(servers.missing, both) if servers else (), aliases, refused)), None)
        if why is None and self.untrusted is not None and NO_NAME.search(error.message):
            why = ToolFailure(self.untrusted.short)
        if why is None and self.servers is not None and (found := NO_TOOL.search(error.message)):
            why = self.servers.missing(found[found.lastindex or 0])
            if why is not None and "Error: " in found[0]:  # Python means its own module
                error = replace(error, message=message_of(why), hints=error.hints[:1])
        if why is None and (NO_NAME.search(error.message) or NO_TOOL.search(error.message)):
            why = self._not_loaded()
        return result if why is None else replace(result, error=_with_reason(error, why))

    def names_in_code(self, code: str) -> set[str]:
        """Return the names that code, its aliases and its snippets use. Empty if there are no servers."""
        if self.servers is None:
            return set()
        words = set(WORD.findall(code))
        if self.servers.unlisted(words):  # else parsing would make no difference
            from onetool.script.parse import names_used_in

            used = names_used_in(code)
            words = words if used is None else used.names
        words |= {target.partition(".")[0] for alias, target in self._config.aliases.items() if alias in words}
        bodies = [snippet.body for name, snippet in self._config.snippets.items() if name in words]
        return words.union(*map(WORD.findall, bodies))

    def _missing_alias_target(self, name: str) -> ToolFailure | None:
        """Explain an alias whose target is missing: the target is wrong, not the alias."""
        aliases = self._config.aliases
        target = aliases.get(name)
        if target is None or self.registry.get(self.real_name(target)) is not None:
            return None
        why = self.why_missing(target) if target not in aliases else None
        near = f"; {message_of(why)}" if why else or_rather(target, self.registry.names())
        return ToolFailure(f"{name} is an alias of {target}, and there is no tool {target}{near}", reason="refused")

    def _not_loaded(self) -> ToolFailure | None:
        """Return pending changes as the reason for a missing tool. Only callers who may edit get names of files."""
        if (behind := self._bundles.why_behind()) is not None:
            return behind
        if not (pending := self._pending_changes()):
            return None
        if not current_principal.get().may("edit"):
            return ToolFailure("files of this server have changed and are not loaded yet: ask its owner to reload")
        changes: dict[str | None, list[str]] = {}
        for one in pending:
            changes.setdefault(one.hint, []).append(str(replace(one, hint=None)))
        listed = (", ".join(found) + (f" ({hint})" if hint else "") for hint, found in changes.items())
        return ToolFailure(f"not loaded yet: {self._current.redact('; '.join(listed))}")


def _listed_text(tool: ToolSpec | LazyTool) -> object:
    return (tool.name, tool.description) if isinstance(tool, ToolSpec) else tool


def _with_reason(error: "ToolError", why: ToolFailure) -> "ToolError":
    """Add the reason to the error. If the reason is certain, it replaces the guess at what was meant."""
    message = error.message
    if message_of(why) not in message:
        message = f"{GUESS.sub('', message) if why.reason else message}; {message_of(why)}"
    hints = tuple(dict.fromkeys((*error.hints, *why.hints)))
    return replace(error, message=message, reason=why.reason or error.reason, hints=hints)
