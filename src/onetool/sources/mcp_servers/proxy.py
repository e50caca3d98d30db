"""`ServerProxy`, which presents an MCP server as a pack: its current or cached tools, and their changes."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from threading import Lock
from time import time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from onetool.core.errors import Mistake, ToolFailure, cut
from onetool.core.json_data import AnsweredValue, StoreBlob
from onetool.core.registry import Catalogue
from onetool.core.spec import Handler, ToolSpec
from onetool.core.structured_content import is_wrapper
from onetool.core.text import lookalikes
from onetool.database.documents import Documents, Version
from onetool.sources.mcp_servers.apps import address_below
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
from onetool.sources.mcp_servers.server_cache import (
    CachedServer,
    Definition,
    ServerCache,
    ServerListing,
    approval,
    as_trusted,
    changes,
    difference,
    file_name,
    first_by_name,
    former,
    pinned_definitions,
)
from onetool.sources.mcp_servers.server_log import Redact, ServerLog
from onetool.sources.mcp_servers.settings import ServerSettings, pack_name

if TYPE_CHECKING:
    from onetool.sources.mcp_servers.connection import Work

T = TypeVar("T")
RECENT_SECONDS = 600.0
SHOWN = 5  # tools or addresses in a message: servers choose the names


class ServerSet(Protocol):
    """The interface of `Servers` for modules that `Servers` imports."""

    logins: Documents
    mask_also: Callable[[str], None]
    stays_connected: bool

    def proxy(self, name: str) -> "ServerProxy | None": ...

    async def do(self, server: str, what: str, work: "Work[T]", may_repeat: bool) -> T: ...

    def listing_received(self, proxy: "ServerProxy", listing: ServerListing) -> None: ...

    def reread_approvals(self) -> None: ...


class _Known(msgspec.Struct, frozen=True):
    """An immutable snapshot of a server's known state. Replacing it as a whole keeps its parts consistent."""

    cached: CachedServer
    changes: Mapping[str, list[str]]
    offered: Catalogue


class ChangedSinceSeenError(Exception):
    """An error for tools that have changed since the user reviewed them for approval."""


class ServerProxy:
    """A server as a pack, built from the cache. Updated from the connection's thread, read from any thread."""

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
        """Build the proxy from `documents`, which store its state. `folder` contains its log."""
        self.name = name
        self.settings = settings
        self.pack = pack_name(name, settings)
        self.server_log = ServerLog(name, folder / f"{file_name(name)}.log", redact)
        self._cache = ServerCache(documents, name, settings)
        self._servers = servers
        self._store_result = store_result
        self._lock = Lock()
        self._restored_at: Version = None
        self._now = self._build(self._cache.nothing())
        self._read()

    # The tools, prompts and resources

    @property
    def cached(self) -> CachedServer:
        return self._now.cached

    @property
    def changes(self) -> Mapping[str, list[str]]:
        """The tools that differ from the approved definitions, with the changed parts."""
        return self._now.changes

    @property
    def is_listed(self) -> bool:
        """Whether the tools of the server are known."""
        return self.cached.tools is not None

    @property
    def is_refused(self) -> bool:
        return self.settings.pin and bool(self.changes)

    def catalogue(self) -> Catalogue:
        if not self.settings.enabled:
            return Catalogue()
        now, key = self._now, f"servers.{self.name}"
        is_refused = self.settings.pin and bool(now.changes)
        mistakes = [*now.offered.mistakes, *self.settings.mistakes]
        if is_refused:
            mistakes.append(Mistake(message=self.why_refused(), key=key))
        known = [str(tool.get("name")) for tool in now.cached.tools or ()]
        for pattern in self.settings.tools or () if known else ():
            if not any(is_allowed(replace(self.settings, tools=(pattern,)), tool) for tool in known):
                message = f"no tool of the server matches {pattern}"
                mistakes.append(Mistake(message=message, key=f"{key}.tools", severity="warning"))
        for names in lookalikes(known):
            message = f"tools of the server look alike: {', '.join(map(ascii, names[:SHOWN]))}"
            mistakes.append(Mistake(message=message, key=key, severity="warning"))
        if is_refused:
            return Catalogue(mistakes=tuple(mistakes))
        return replace(now.offered, mistakes=tuple(mistakes))

    def why_refused(self) -> str:
        changed = self.changed()
        more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
        return (
            f"tools of the server {self.name} have changed since approval: {', '.join(changed[:SHOWN])}{more}; "
            f"review them (onetool servers changes {self.name}), then run: onetool servers approve {self.name}"
        )

    def shared_addresses(self, uris: Sequence[str]) -> str:
        """Return the warning about addresses that other servers list, too."""
        more = f" and {len(uris) - SHOWN} more" if len(uris) > SHOWN else ""
        return (
            f"other servers list these addresses, too, so here they begin with {address_below(self.pack, '')}: "
            f"{', '.join(map(_printable_name, uris[:SHOWN]))}{more}"
        )

    def refusal(self) -> ToolFailure | None:
        """Return the failure of calls if the tools are refused, else None."""
        return ToolFailure(self.why_refused(), reason="refused") if self.is_refused else None

    def changed(self, allowed: Collection[str] | None = None) -> list[str]:
        changes = {tool: parts for tool, parts in self.changes.items() if self._is_visible(tool, allowed)}
        return [f"{_printable_name(tool)} ({', '.join(parts)})" for tool, parts in changes.items()]

    def _is_visible(self, tool: str, allowed: Collection[str] | None) -> bool:
        return allowed is None or f"{self.pack}.{tool}" in allowed

    def differences(self, allowed: Collection[str] | None = None) -> dict[str, list[str]]:
        """Return a line diff of each changed tool against its approved definition."""
        known = self._now
        cached, changed = known.cached, [name for name in known.changes if self._is_visible(name, allowed)]
        now = {str(tool["name"]): tool for tool in pinned_definitions(cached.tools or (), cached.offers)}
        return {name: difference(cached.former.get(name), now[name]) for name in changed}

    # Updates

    def set_listing(self, listing: ServerListing) -> bool:
        """Store the server's listing. Return whether the listing has changed."""
        tools = first_by_name(listing.tools)
        pinned = pinned_definitions(tools, listing.offers)
        with self._lock:
            # Another process may have stored approvals, which must be kept.
            stored = self.cached if self._cache.version() == self._read_at else self._cache.read()
            approved = stored.approved or self.cached.approved
            before = replace(self.cached, approved=approved)
            if approved is None and self.settings.pin and self._cache.load()[1] is None:  # approvals may exist
                approved = {}
            elif approved is None or not self.settings.pin:  # new tools are trusted; later changes are reported
                approved = approval(before, pinned, everything=approved is None)
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
            after = replace(after, former=former(before, changes(after, pinned, self.settings.pin)))
            self._set(after)
        return True

    def failed(self) -> None:
        """Record that connecting failed, so that callers that only list tools don't wait again."""
        with self._lock:
            if not self.is_listed and not self.settings.mistakes:  # nothing is stored for invalid blocks
                self._set(replace(self.cached, failed=time()))

    @property
    def has_failed_lately(self) -> bool:
        return 0 <= time() - self.cached.failed < RECENT_SECONDS

    def approve(self, seen: Mapping[str, list[str]] | None = None) -> list[str]:
        """Approve the current tools, and return the changed ones.

        `seen` are the differences that the user has reviewed. Raises ChangedSinceSeenError if the differences are no
        longer the same.
        """
        with self._lock:
            if seen is not None and seen != self.differences():
                raise ChangedSinceSeenError(f"{self.name} has changed since you reviewed it")
            changed = self.changed()
            cached = self.cached
            approved = approval(cached, pinned_definitions(cached.tools or (), cached.offers), everything=True)
            self._set(replace(self.cached, approved=approved, former={}))
        return changed

    def reread_approvals(self) -> bool:
        """Reload the state: another process may have approved tools. Return whether that changes the catalogue."""
        with self._lock:
            if self._cache.version() == self._read_at:
                return False
            before = self.is_refused, self._tools_with_old_hints()
            self._read()
            return before != (self.is_refused, self._tools_with_old_hints())

    def restore(self) -> None:
        """Store the known state again if it was deleted or damaged, because other processes read it."""
        with self._lock:
            version = self._cache.version()
            if version == self._read_at or (version is not None and version == self._restored_at):
                return
            self._restored_at, stored = self._cache.load()
            if stored is not None and stored.approved is None and self.cached.approved is not None:
                self._set(self.cached)

    def _tools_with_old_hints(self) -> set[str]:
        """Return the tools that keep their previously approved hints."""
        return {name for name, parts in self.changes.items() if "behaviour" in parts}

    def _read(self) -> None:
        self._read_at, cached = self._cache.load()
        if cached is None:  # keep the known state until the stored one is readable
            return
        if cached.approved is None and self.cached.approved is not None:
            # Deleted or damaged. Without the approvals, any tools that the server lists next would be trusted.
            self.server_log.note("the stored state of the server was lost; it is stored again, with its approvals")
            self._read_at = self._cache.write(self.cached)
            return
        try:
            self._now = self._build(cached)
        except Exception as error:  # noqa: BLE001 - the stored state may have any shape
            self.server_log.note(f"the stored state of the server is invalid and was discarded: {error!r:.200}")
            self._now = self._build(self._cache.nothing())

    def _set(self, cached: CachedServer) -> None:
        """Replace the current state and store it."""
        self._now = self._build(cached)
        self._read_at = self._cache.write(cached)

    def _build(self, cached: CachedServer) -> "_Known":
        """Build the catalogue from the cache. Unusable tools are reported."""
        bad, kept = cached.unusable, dict[str, Definition]()
        for tool in cached.tools or ():
            if is_allowed(self.settings, name := str(tool.get("name"))) and name not in bad:
                kept.setdefault(name, tool)  # ignore tools that are listed twice
        tools: list[ToolSpec] = []
        for name, listed in kept.items():
            definition = as_trusted(cached, listed)
            tools.append(spec_of(self.name, self.settings, definition, self._handler(name, definition)))
        offered = Catalogue(
            tools=tuple(tools),
            prompts=tuple(prompts_of(self.name, self.pack, self.settings, cached.offers.prompts, self._fetch)),
            resources=tuple(resources_of(self.name, self.pack, self.settings, cached.offers, self._fetch)),
            mistakes=tuple(
                Mistake(message=why, key=f"servers.{self.name} ({self.pack}.{_printable_name(name)})")
                for name, why in bad.items()
            ),
        )
        changed = changes(cached, pinned_definitions(kept.values(), cached.offers), strict=self.settings.pin)
        return _Known(cached, changed, offered)

    def _handler(self, tool: str, definition: Definition) -> Handler:
        hints = definition.get("annotations") or {}
        may_repeat = hints.get("idempotentHint") is True or hints.get("readOnlyHint") is True
        wraps, defaults = is_wrapper(definition.get("outputSchema")), defaults_of(definition.get("inputSchema"))

        async def run(**args: Any) -> AnsweredValue:
            given = {**defaults, **args}
            result = await self._servers.do(
                self.name, tool, lambda connection, call: connection.call(tool, given, call), may_repeat
            )
            if is_light(result):
                return answer_of(result, self._store_result, self.pack, wraps)
            return await asyncio.to_thread(answer_of, result, self._store_result, self.pack, wraps)

        return run

    async def _fetch(self, name: str, work: "Work[Any]") -> Any:
        return await self._servers.do(self.name, name, work, True)


def _printable_name(name: str) -> str:
    """Return a server's name for a tool, or an address, in a form that is safe for a terminal."""
    return cut(name if name.isprintable() else ascii(name), 100)
