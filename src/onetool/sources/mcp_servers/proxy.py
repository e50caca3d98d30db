"""`ServerProxy` presents one MCP server as a pack: its tools, as known now or from the last time, and their changes."""

from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from time import time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from onetool.core.errors import Mistake, ToolFailure, cut
from onetool.core.inferred_schema import SeenValues
from onetool.core.json_data import AnsweredValue, StoreBlob
from onetool.core.source import Catalogue
from onetool.core.spec import ToolSpec
from onetool.core.structured_content import is_wrapper
from onetool.core.text import lookalikes
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

if TYPE_CHECKING:
    from onetool.sources.mcp_servers.upstream import ServerListing, Work

T = TypeVar("T")

LATELY = 600.0  # seconds
SHOWN = 5  # tools in a message: their names are the server's own words


class ServerAccess(Protocol):
    """Runs work on the connection to a server."""

    async def do(self, server: str, what: str, work: "Work[T]", again: bool) -> T: ...


class _Known(msgspec.Struct, frozen=True):
    """All that is known of it at one moment: who reads one part of it reads the others of the same moment."""

    memory: CachedServer
    changes: Mapping[str, list[str]]
    offered: Catalogue


class ServerProxy:
    """Built from the cache. Updated from the connection's thread, read from any."""

    def __init__(
        self, name: str, settings: ServerSettings, folder: Path, redact: Redact, calls: ServerAccess, keep: StoreBlob
    ) -> None:
        self.name = name
        self.settings = settings
        self.pack = pack_name(name, settings)
        self.journal = ServerLog(name, folder / f"{file_name(name)}.log", redact)
        self._shelf = ServerCache(folder, name, settings)
        self._calls = calls
        self._keep = keep
        self._lock = Lock()
        self._seen: dict[str, SeenValues] = {}
        self._has_seen = False
        self._read()

    # What it offers

    @property
    def memory(self) -> CachedServer:
        return self._now.memory

    @property
    def changes(self) -> Mapping[str, list[str]]:
        """Tools that are not as they were approved, and in what."""
        return self._now.changes

    @property
    def is_listed(self) -> bool:
        """Whether it has ever told its tools."""
        return self.memory.tools is not None

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
        """What a call gets instead of an answer, where its tools are refused."""
        return ToolFailure(self.why_refused(), reason="refused") if self.is_refused else None

    def changed(self) -> list[str]:
        return [f"{_shown(tool)} ({', '.join(parts)})" for tool, parts in self.changes.items()]

    def differences(self) -> dict[str, list[str]]:
        """Of every tool that is not as it was approved: what is other about it, line by line."""
        memory, changed = self._now.memory, self._now.changes
        now = {str(one["name"]): one for one in digests_by_name(memory.tools or (), memory.offers)}
        return {name: difference(memory.former.get(name), now[name]) for name in changed}

    def _warnings(self) -> list[Mistake]:
        key = f"servers.{self.name}"
        told = [*self.settings.mistakes]
        if self.is_refused:
            told.append(Mistake(message=self.why_refused(), key=key))
        known = [str(tool.get("name")) for tool in self.memory.tools or ()]
        for pattern in self.settings.tools or () if known else ():
            if not any(is_allowed(replace(self.settings, tools=(pattern,)), tool) for tool in known):
                message = f"no tool of the server is called {pattern}"
                told.append(Mistake(message=message, key=f"{key}.tools", severity="warning"))
        for alike in lookalikes(known):
            message = f"tools of the server look alike: {', '.join(map(ascii, alike[:SHOWN]))}"
            told.append(Mistake(message=message, key=key, severity="warning"))
        return told

    # What it learns

    def learn(self, told: "ServerListing") -> bool:
        """The server has told what it has. True if that changes what it offers."""
        tools = first_by_name(told.tools)
        all_of_it = digests_by_name(tools, told.offers)
        with self._lock:
            approved = self._newest().approved or self.memory.approved
            before = replace(self.memory, approved=approved)
            if approved is None or not self.settings.pin:  # what is new is trusted; what changes later is noticed
                approved = approval(before, all_of_it, everything=approved is None)
            after = replace(
                before,
                tools=tuple(tools),
                offers=told.offers,
                version=told.version,
                way=told.way,
                approved=approved,
                failed=0.0,
            )
            if after == self.memory:
                return False
            if after.tools != before.tools:
                bad = unusable(self.name, self.settings, tools)
                after = replace(after, unusable=bad, seen=self._still_true(tools))
            after = replace(after, former=former(before, changes(after, all_of_it, self.settings.pin)))
            self._set(after)
        return True

    def failed(self) -> None:
        """It could not be connected, and so it is not known what it has: who only lists need not wait for it again."""
        with self._lock:
            if not self.is_listed and not self.settings.mistakes:  # of such a one nothing is learnt
                self._set(replace(self.memory, failed=time()))

    @property
    def has_failed_lately(self) -> bool:
        return 0 <= time() - self.memory.failed < LATELY

    def _still_true(self, tools: list[Definition]) -> dict[str, Any]:
        """What was seen of tools that are as they were."""
        before = {tool.get("name"): tool for tool in self.memory.tools or ()}
        same = {str(tool.get("name")) for tool in tools if before.get(tool.get("name")) == tool}
        self._seen = {name: seen for name, seen in self._seen.items() if name in same}
        return {name: kept for name, kept in self.memory.seen.items() if name in same}

    def approve(self) -> list[str]:
        """The tools as they are now are the ones to trust."""
        with self._lock:
            told = self.changed()
            memory = self.memory
            approved = approval(memory, digests_by_name(memory.tools or (), memory.offers), everything=True)
            self._set(replace(self.memory, approved=approved, former={}))
        return told

    def look_again(self) -> bool:
        """Another process may have approved meanwhile. True if that changes what it offers."""
        with self._lock:
            if self._shelf.changed_at() == self._read_at:
                return False
            before = self.is_refused, self._held_back()
            self._read()
            return before != (self.is_refused, self._held_back())

    def _held_back(self) -> set[str]:
        """The tools whose hints count as they were before."""
        return {name for name, parts in self.changes.items() if "behaviour" in parts}

    def remember(self) -> None:
        """Write down what values looked like. When there is time: nothing depends on it."""
        with self._lock:
            if self._has_seen:
                self._has_seen = False
                kept = {name: seen.dump() for name, seen in self._seen.items() if seen.results}
                newest = self._newest()
                if newest.tools == self.memory.tools:  # else they are of other tools
                    self._set(replace(newest, seen={**self.memory.seen, **kept}))

    def _newest(self) -> CachedServer:
        """What stands in the file, which another process may have written: what was approved there must stay."""
        return self.memory if self._shelf.changed_at() == self._read_at else self._shelf.read()

    def _read(self) -> None:
        self._read_at = self._shelf.changed_at()
        memory = self._shelf.read()
        try:
            self._now = self._made(memory)
        except Exception as error:  # noqa: BLE001 - it is a file, and anybody may have written into it
            self.journal.note(f"what was remembered of it can't be used, and is forgotten: {error!r:.200}")
            self._now = self._made(self._shelf.nothing())

    def _set(self, memory: CachedServer) -> None:
        """Use it from now on, and store it."""
        self._now = self._made(memory)
        self._read_at = self._shelf.write(memory)

    def _made(self, memory: CachedServer) -> "_Known":
        """What there is, from what is remembered. Tools that can't be used are told."""
        bad, kept = memory.unusable, dict[str, Definition]()
        for tool in memory.tools or ():
            if is_allowed(self.settings, name := str(tool.get("name"))) and name not in bad:
                kept.setdefault(name, tool)  # one that is listed twice is there once
        offered = Catalogue(
            tools=tuple(self._tool(definition, memory) for definition in kept.values()),
            prompts=tuple(prompts_of(self.name, self.pack, self.settings, memory.offers.prompts, self)),
            resources=tuple(resources_of(self.name, self.pack, self.settings, memory.offers, self)),
            mistakes=tuple(
                Mistake(message=why, key=f"servers.{self.name} ({self.pack}.{_shown(name)})")
                for name, why in bad.items()
            ),
        )
        changed = changes(memory, digests_by_name(kept.values(), memory.offers), strict=self.settings.pin)
        return _Known(memory, changed, offered)

    def _tool(self, definition: Definition, memory: CachedServer) -> ToolSpec:
        name = str(definition["name"])
        if definition.get("outputSchema") is None:
            seen = self._seen.setdefault(name, SeenValues.load(memory.seen.get(name)))
        else:
            seen = None
        definition = as_trusted(memory, definition)
        hints = definition.get("annotations") or {}
        handler = _ToolHandler(
            self,
            name,
            again=hints.get("idempotentHint") is True or hints.get("readOnlyHint") is True,
            wraps=is_wrapper(definition.get("outputSchema")),
            defaults=defaults_of(definition.get("inputSchema")),
            seen=seen,
        )
        return spec_of(self.name, self.settings, definition, handler, seen=seen)

    async def call(
        self, tool: str, args: Mapping[str, Any], again: bool, wraps: bool, seen: SeenValues | None
    ) -> AnsweredValue:
        result = await self._calls.do(self.name, tool, lambda link, flight: link.call(tool, args, flight), again)
        if is_light(result):
            answer = answer_of(result, self._keep, wraps)
        else:
            import asyncio  # not for those who only list tools

            answer = await asyncio.to_thread(answer_of, result, self._keep, wraps)
        if seen is not None and seen.note(answer.value):
            self._has_seen = True
        return answer

    async def prompt(self, name: str, args: Mapping[str, str]) -> list[Any]:
        return await self._calls.do(self.name, name, lambda link, flight: link.prompt(name, args, flight), True)

    async def resource(self, uri: str) -> Any:
        return await self._calls.do(self.name, uri, lambda link, flight: link.resource(uri, flight), True)


def _shown(name: str) -> str:
    """A name that may be anything, on a terminal."""
    return cut(name if name.isprintable() else ascii(name), 100)


class _ToolHandler:
    """The handler of one tool."""

    def __init__(
        self,
        proxy: ServerProxy,
        name: str,
        *,
        again: bool,
        wraps: bool,
        defaults: Mapping[str, Any],
        seen: SeenValues | None,
    ) -> None:
        self._proxy = proxy
        self._name = name
        self._again = again  # it does no harm twice
        self._wraps = wraps
        self._defaults = defaults
        self._seen = seen

    async def __call__(self, /, **args: Any) -> Any:
        args = {**self._defaults, **args}
        return await self._proxy.call(self._name, args, self._again, self._wraps, self._seen)
