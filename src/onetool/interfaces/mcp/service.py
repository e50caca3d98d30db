"""The shared state of all methods: the app, its menus, pending calls, and clients that listen for changes."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from onetool._version import __version__
from onetool.app.allow_lists import Offered, allow_lists
from onetool.core.call import ToolCall, ToolResult, new_id
from onetool.core.registry import Prompt, Resource, SingleTool
from onetool.core.spec import ToolSpec
from onetool.interfaces.mcp.client import RemoteClient
from onetool.interfaces.mcp.menus import Menus
from onetool.interfaces.mcp.pending_calls import PendingCalls

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.cluster.shared_requests import SharedRequests
    from onetool.config.model import Snippet

KINDS = ("tools", "prompts", "resources")
Notify = Callable[[str, dict[str, Any]], None]


class ChangeListener(msgspec.Struct, eq=False):
    """A stream of notifications: its client, its filters, and its channel."""

    notify: Notify
    client: RemoteClient
    kinds: Collection[str] = KINDS
    uris: set[str] = msgspec.field(default_factory=set[str])  # watched resources


class ListedState(msgspec.Struct, frozen=True):
    """The lists last shown to clients with the same allow-list, to find changes."""

    menu: str  # of clients that chose none
    menus: Mapping[str, bytes]
    prompts: bytes
    resources: bytes
    texts: Mapping[str, Any]  # of our own resources, by URI

    def changed(self, before: "ListedState", client: RemoteClient) -> list[str]:
        return [
            *(["tools"] if self._tools(client) != before._tools(client) else []),
            *(["prompts"] if self.prompts != before.prompts else []),
            *(["resources"] if self.resources != before.resources else []),
        ]

    def _tools(self, client: RemoteClient) -> bytes | None:
        return self.menus.get(client.menu or self.menu)


ListedStates = Mapping[tuple[str, ...] | None, ListedState]
"""States by the allow-lists of the clients' tokens."""


class ChangeListeners:
    def __init__(self) -> None:
        self._listeners: set[ChangeListener] = set()
        self.closed = asyncio.Event()

    def add(self, listener: ChangeListener) -> Callable[[], None]:
        """Add a listener; returns a function that removes it."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def notify(self, before: ListedStates, after: ListedStates) -> None:
        for listener in list(self._listeners):
            tools = listener.client.principal.tools
            old, new = before.get(tools), after[tools]  # without an old state everything may have changed
            for kind in KINDS if old is None else new.changed(old, listener.client):
                if kind in listener.kinds:
                    listener.notify(f"notifications/{kind}/list_changed", {})
            for uri, text in new.texts.items():
                if uri in listener.uris and (old is None or text != old.texts[uri]):
                    listener.notify("notifications/resources/updated", {"uri": uri})

    def allow_lists(self) -> set[tuple[str, ...] | None]:
        return {listener.client.principal.tools for listener in self._listeners}


# The service

SERVER = {"name": "onetool", "title": "OneTool", "version": __version__}


class Service:
    """The shared state of the server."""

    def __init__(
        self, app: "App", menu: str | None = None, allowed: Offered = None, shared: "SharedRequests | None" = None
    ) -> None:
        """Serve the app. `shared` has the state shared with other replicas."""
        self.app = app
        self.replica = "" if shared is None else shared.id
        self.tasks = None if shared is None else shared.tasks
        self._allow_lists = allow_lists(app, allowed)
        self.changes = ChangeListeners()
        self.pending_calls = PendingCalls(app.config.results.ttl_s, shared)
        self.reloading = asyncio.Lock()
        self.menus = Menus(app, menu, self._allow_lists)
        self.last_listed: ListedStates | None = None  # the lists last announced to clients
        self.stop_following: Callable[[], None] | None = None

    @property
    def allowed(self) -> Collection[str] | None:
        """The tools that the caller of the current request may call; None means all."""
        return self._allow_lists.current()

    def snippets(self) -> "Mapping[str, Snippet]":
        """Return the snippets that the caller may use."""
        return {} if self.menus.is_bare else self.app.snippets(self.allowed)

    def prompts(self) -> Mapping[str, Prompt]:
        """Return the prompts of packs that the caller may use, by the names that clients see."""
        found = {name: one for name, one in self.app.catalog.prompts.items() if self._offers(one.spec)}
        return {name.partition(".")[2]: one for name, one in found.items()} if self.menus.is_bare else found

    def resources(self) -> Collection[Resource]:
        return [one for one in self.app.catalog.resources if self._offers(one.spec)]

    async def offer(self, spec: ToolSpec, args: Mapping[str, Any]) -> ToolResult:
        """Run the function of a prompt or a resource, which may call only tools that the client may call."""
        allowed = self.allowed
        allowed = None if allowed is None else {*allowed, spec.name}
        call = ToolCall(new_id(), spec.name, args, "mcp")
        return await self.app.call(call, allowed, tools=SingleTool(spec))

    def _offers(self, spec: ToolSpec) -> bool:
        """Return whether the allow-list permits prompts and resources of a pack: it has one of the pack's tools."""
        allowed = self.allowed
        return allowed is None or any(name.partition(".")[0] == spec.pack for name in allowed)

    def close(self) -> None:
        if self.stop_following is not None:
            self.stop_following()
            self.stop_following = None
        self.pending_calls.close()
        self.changes.closed.set()
