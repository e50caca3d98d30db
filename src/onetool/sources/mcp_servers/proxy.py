"""`ServerProxy` presents one MCP server as a pack: its tools, as known now or from the last time, and their changes."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from threading import Lock
from time import time
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from onetool.core.errors import Mistake, ToolFailure, cut
from onetool.core.json_data import AnsweredValue, StoreBlob
from onetool.core.registry import Catalogue
from onetool.core.spec import ToolSpec
from onetool.core.structured_content import is_wrapper
from onetool.core.text import lookalikes
from onetool.database.documents import Documents, Version
from onetool.sources.mcp_servers.conversion import (
    answer_of,
    defaults_of,
    is_allowed,
    is_light,
    prompts_of,
    resources_of,
    spec_of,
    unusable,
)
from onetool.sources.mcp_servers.owners import ServerRequest
from onetool.sources.mcp_servers.server_cache import (
    CachedServer,
    Definition,
    ServerCache,
    ServerListing,
    approval,
    as_trusted,
    changes,
    difference,
    digests_by_name,
    file_name,
    first_by_name,
    former,
)
from onetool.sources.mcp_servers.server_log import Redact, ServerLog
from onetool.sources.mcp_servers.settings import ServerSettings, pack_name

LATELY = 600.0  # seconds
SHOWN = 5  # tools in a message: their names are the server's own words


class ServerSet(Protocol):
    """The set of all servers, as the parts of one server use it: `Servers` imports these parts."""

    logins: Documents
    mask_also: Callable[[str], None]

    def proxy(self, name: str) -> "ServerProxy | None": ...

    async def do(self, server: str, what: str, work: Any, may_repeat: bool) -> Any: ...

    def listing_received(self, proxy: "ServerProxy", listing: ServerListing) -> None: ...

    def reread_approvals(self) -> None: ...


class _Known(msgspec.Struct, frozen=True):
    """What is known of a server at one moment. Replaced as a whole, so that its parts fit together."""

    cached: CachedServer
    changes: Mapping[str, list[str]]
    offered: Catalogue


class ChangedSinceSeenError(Exception):
    """The tools of a server are not those that somebody has looked at and wants to approve."""


class ServerProxy:
    """Built from the cache. Updated from the connection's thread, read from any."""

    def __init__(
        self,
        name: str,
        settings: ServerSettings,
        folder: Path,
        redact: Redact,
        servers: ServerSet,
        store_result: StoreBlob,
        documents: Documents,
    ) -> None:
        """`folder` has its log; `documents`, what is known of it."""
        self.name = name
        self.settings = settings
        self.pack = pack_name(name, settings)
        self.server_log = ServerLog(name, folder / f"{file_name(name)}.log", redact)
        self._cache = ServerCache(documents, name, settings)
        self._servers = servers
        self._store_result = store_result
        self._lock = Lock()
        self._looked_at: Version = None
        self._now = self._build(self._cache.nothing())
        self._read()

    # What it offers

    @property
    def cached(self) -> CachedServer:
        return self._now.cached

    @property
    def changes(self) -> Mapping[str, list[str]]:
        """The tools that differ from the approved ones, and in what."""
        return self._now.changes

    @property
    def is_listed(self) -> bool:
        """Whether its tools are known."""
        return self.cached.tools is not None

    @property
    def is_refused(self) -> bool:
        return self.settings.pin and bool(self.changes)

    def catalogue(self) -> Catalogue:
        if not self.settings.enabled:
            return Catalogue()
        now = self._now
        mistakes = (*now.offered.mistakes, *self._warnings())
        if self.settings.pin and now.changes:
            return Catalogue(mistakes=mistakes)
        return replace(now.offered, mistakes=mistakes)

    def why_refused(self) -> str:
        changed = self.changed()
        more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
        return (
            f"tools of the server {self.name} are not as they were approved: {', '.join(changed[:SHOWN])}{more}; "
            f"look at them (onetool servers changes {self.name}), then: onetool servers approve {self.name}"
        )

    def refusal(self) -> ToolFailure | None:
        """Return the failure that calls get where the tools are refused."""
        return ToolFailure(self.why_refused(), reason="refused") if self.is_refused else None

    def changed(self, allowed: Collection[str] | None = None) -> list[str]:
        changes = {tool: parts for tool, parts in self.changes.items() if self._is_visible(tool, allowed)}
        return [f"{_shown(tool)} ({', '.join(parts)})" for tool, parts in changes.items()]

    def _is_visible(self, tool: str, allowed: Collection[str] | None) -> bool:
        return allowed is None or f"{self.pack}.{tool}" in allowed

    def differences(self, allowed: Collection[str] | None = None) -> dict[str, list[str]]:
        """Return the differences of each tool from the approved one, line by line."""
        known = self._now
        cached, changed = known.cached, [name for name in known.changes if self._is_visible(name, allowed)]
        now = {str(one["name"]): one for one in digests_by_name(cached.tools or (), cached.offers)}
        return {name: difference(cached.former.get(name), now[name]) for name in changed}

    def _warnings(self) -> list[Mistake]:
        key = f"servers.{self.name}"
        told = [*self.settings.mistakes]
        if self.is_refused:
            told.append(Mistake(message=self.why_refused(), key=key))
        known = [str(tool.get("name")) for tool in self.cached.tools or ()]
        for pattern in self.settings.tools or () if known else ():
            if not any(is_allowed(replace(self.settings, tools=(pattern,)), tool) for tool in known):
                message = f"no tool of the server is called {pattern}"
                told.append(Mistake(message=message, key=f"{key}.tools", severity="warning"))
        for alike in lookalikes(known):
            message = f"tools of the server look alike: {', '.join(map(ascii, alike[:SHOWN]))}"
            told.append(Mistake(message=message, key=key, severity="warning"))
        return told

    # What it learns

    def set_listing(self, listing: ServerListing) -> bool:
        """Take the server's listing. Return whether that changes what it offers."""
        tools = first_by_name(listing.tools)
        all_of_it = digests_by_name(tools, listing.offers)
        with self._lock:
            approved = self._newest().approved or self.cached.approved
            before = replace(self.cached, approved=approved)
            if approved is None and self.settings.pin and self._cache.has_lost:  # nobody knows what was approved
                approved = {}
            elif approved is None or not self.settings.pin:  # what is new is trusted; what changes later is noticed
                approved = approval(before, all_of_it, everything=approved is None)
            after = replace(
                before,
                tools=tuple(tools),
                offers=listing.offers,
                version=listing.version,
                way=listing.way,
                approved=approved,
                failed=0.0,
            )
            if after == self.cached:
                return False
            if after.tools != before.tools:
                after = replace(after, unusable=unusable(self.name, self.settings, tools))
            after = replace(after, former=former(before, changes(after, all_of_it, self.settings.pin)))
            self._set(after)
        return True

    def failed(self) -> None:
        """Note that connecting failed, so that a caller that only lists need not wait again."""
        with self._lock:
            if not self.is_listed and not self.settings.mistakes:  # of such a one nothing is learnt
                self._set(replace(self.cached, failed=time()))

    @property
    def has_failed_lately(self) -> bool:
        return 0 <= time() - self.cached.failed < LATELY

    def approve(self, seen: Mapping[str, list[str]] | None = None) -> list[str]:
        """Trust the tools as they are now. `seen`: the differences that somebody has looked at.

        Raises ChangedSinceSeenError if there are others by now.
        """
        with self._lock:
            if seen is not None and seen != self.differences():
                raise ChangedSinceSeenError(f"{self.name} has changed since you looked")
            told = self.changed()
            cached = self.cached
            approved = approval(cached, digests_by_name(cached.tools or (), cached.offers), everything=True)
            self._set(replace(self.cached, approved=approved, former={}))
        return told

    def reread_approvals(self) -> bool:
        """Read it again: another process may have approved. Return whether that changes what it offers."""
        with self._lock:
            if self._cache.version() == self._read_at:
                return False
            before = self.is_refused, self._held_back()
            self._read()
            return before != (self.is_refused, self._held_back())

    def restore(self) -> None:
        """Store what is known again if somebody has deleted or damaged it, for those who read it there."""
        with self._lock:
            version = self._cache.version()
            if version == self._read_at or (version is not None and version == self._looked_at):
                return
            self._looked_at, stored = self._cache.load()
            if stored is not None and stored.approved is None and self.cached.approved is not None:
                self._set(self.cached)

    def follow(self) -> bool:
        """Read it again: another process that runs the server writes what it offers. Return whether it has changed."""
        with self._lock:
            if self._cache.version() == self._read_at:
                return False
            before = self.cached
            self._read()
            now = self.cached
            return (before.tools, before.offers, before.approved) != (now.tools, now.offers, now.approved)

    def _held_back(self) -> set[str]:
        """Return the tools whose hints count as they were before."""
        return {name for name, parts in self.changes.items() if "behaviour" in parts}

    def _newest(self) -> CachedServer:
        """Return what is stored, which another process may have written: what was approved there must stay."""
        return self.cached if self._cache.version() == self._read_at else self._cache.read()

    def _read(self) -> None:
        self._read_at, cached = self._cache.load()
        if cached is None:  # what is known counts until it can be read
            return
        if cached.approved is None and self.cached.approved is not None:
            # It is gone, or damaged. Else whatever the server offers next would be trusted.
            self.server_log.note("what was remembered of it is gone: it is stored again, with what was approved")
            self._read_at = self._cache.write(self.cached)
            return
        try:
            self._now = self._build(cached)
        except Exception as error:  # noqa: BLE001 - of any shape
            self.server_log.note(f"what was remembered of it can't be used, and is forgotten: {error!r:.200}")
            self._now = self._build(self._cache.nothing())

    def _set(self, cached: CachedServer) -> None:
        """Use it from now on, and store it."""
        self._now = self._build(cached)
        self._read_at = self._cache.write(cached)

    def _build(self, cached: CachedServer) -> "_Known":
        """Build the catalogue from the cache. Unusable tools are reported."""
        bad, kept = cached.unusable, dict[str, Definition]()
        for tool in cached.tools or ():
            if is_allowed(self.settings, name := str(tool.get("name"))) and name not in bad:
                kept.setdefault(name, tool)  # one that is listed twice is there once
        offered = Catalogue(
            tools=tuple(self._tool(definition, cached) for definition in kept.values()),
            prompts=tuple(prompts_of(self.name, self.pack, self.settings, cached.offers.prompts, self._fetch)),
            resources=tuple(resources_of(self.name, self.pack, self.settings, cached.offers, self._fetch)),
            mistakes=tuple(
                Mistake(message=why, key=f"servers.{self.name} ({self.pack}.{_shown(name)})")
                for name, why in bad.items()
            ),
        )
        changed = changes(cached, digests_by_name(kept.values(), cached.offers), strict=self.settings.pin)
        return _Known(cached, changed, offered)

    def _tool(self, definition: Definition, cached: CachedServer) -> ToolSpec:
        name = str(definition["name"])
        definition = as_trusted(cached, definition)
        hints = definition.get("annotations") or {}
        handler = _ToolHandler(
            self,
            name,
            may_repeat=hints.get("idempotentHint") is True or hints.get("readOnlyHint") is True,
            wraps=is_wrapper(definition.get("outputSchema")),
            defaults=defaults_of(definition.get("inputSchema")),
        )
        return spec_of(self.name, self.settings, definition, handler)

    async def call(self, tool: str, args: Mapping[str, Any], may_repeat: bool, wraps: bool) -> AnsweredValue:
        result = await self._servers.do(self.name, tool, ServerRequest("tool", tool, args), may_repeat)
        if is_light(result):
            return answer_of(result, self._store_result, self.pack, wraps)
        import asyncio  # listing tools does not need it

        return await asyncio.to_thread(answer_of, result, self._store_result, self.pack, wraps)

    async def _fetch(self, request: ServerRequest) -> Any:
        return await self._servers.do(self.name, request.name, request, True)


def _shown(name: str) -> str:
    """Return a name that may be anything, for a terminal."""
    return cut(name if name.isprintable() else ascii(name), 100)


class _ToolHandler:
    def __init__(
        self,
        proxy: ServerProxy,
        name: str,
        *,
        may_repeat: bool,
        wraps: bool,
        defaults: Mapping[str, Any],
    ) -> None:
        self._proxy = proxy
        self._name = name
        self._may_repeat = may_repeat  # it does no harm twice
        self._wraps = wraps
        self._defaults = defaults

    async def __call__(self, /, **args: Any) -> Any:
        args = {**self._defaults, **args}
        return await self._proxy.call(self._name, args, self._may_repeat, self._wraps)
