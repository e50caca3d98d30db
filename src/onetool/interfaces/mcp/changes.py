"""Who wants to hear when tools, prompts or resources change."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from onetool.interfaces.mcp.client import Client

KINDS = ("tools", "prompts", "resources")

Notify = Callable[[str, dict[str, Any]], None]


class Listener(msgspec.Struct, eq=False):
    """One stream of notifications: what it is for, and where they go."""

    notify: Notify
    client: Client
    kinds: Collection[str] = KINDS
    uris: set[str] = msgspec.field(default_factory=set[str])  # of resources that it watches


class State(msgspec.Struct, frozen=True):
    """What clients may have seen of us, in short."""

    menu: str  # of clients that have chosen none
    menus: Mapping[str, bytes]
    prompts: bytes
    resources: bytes
    texts: Mapping[str, Any]  # of resources of our own, by their uri

    def changed(self, before: "State", client: Client) -> list[str]:
        """Which lists are others now, for that client."""
        return [
            *(["tools"] if self._tools(client) != before._tools(client) else []),
            *(["prompts"] if self.prompts != before.prompts else []),
            *(["resources"] if self.resources != before.resources else []),
        ]

    def _tools(self, client: Client) -> bytes | None:
        return self.menus.get(client.menu or self.menu)


class Changes:
    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._closed = asyncio.Event()

    def add(self, listener: Listener) -> Callable[[], None]:
        """Tell it of changes from now on; what comes back ends that."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def tell(self, before: State, after: State) -> None:
        for listener in list(self._listeners):
            for kind in after.changed(before, listener.client):
                if kind in listener.kinds:
                    listener.notify(f"notifications/{kind}/list_changed", {})
            for uri, text in after.texts.items():
                if uri in listener.uris and text != before.texts[uri]:
                    listener.notify("notifications/resources/updated", {"uri": uri})

    def close(self) -> None:
        self._closed.set()

    async def until_closed(self) -> None:
        await self._closed.wait()
