"""What the methods of the server share: the app, the menus made of it, calls that wait, and who listens to changes."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

from onetool import __version__
from onetool.app import App
from onetool.core.call import ToolResult
from onetool.core.offer import Prompt, Resource
from onetool.core.registry import Snapshot
from onetool.core.spec import ToolSpec
from onetool.interfaces.mcp.changes import Changes, State
from onetool.interfaces.mcp.client import Client
from onetool.interfaces.mcp.errands import Errands
from onetool.interfaces.mcp.menus import Menu, menu

SERVER = {"name": "onetool", "title": "OneTool", "version": __version__}


class Service:
    """Lives as long as the process serves."""

    def __init__(self, app: App, menu: str | None = None, allowed: Collection[str] | None = None) -> None:
        self.app = app
        self.allowed = allowed
        self.changes = Changes()
        self.errands = Errands(app.config.results.ttl_s)
        self.reloading = asyncio.Lock()
        self._menu = menu
        self._menus: dict[str, tuple[Snapshot, Menu]] = {}
        self.told: State | None = None  # what clients have been told to be there
        self.unfollow: Callable[[], None] | None = None

    def menu_kind(self, client: Client) -> str:
        return client.menu or self._menu or self.app.config.menu

    def menu(self, client: Client) -> Menu:
        """What this client is shown. Made once per catalogue."""
        kind, catalogue = self.menu_kind(client), self.app.registry.snapshot()
        made = self._menus.get(kind)
        if made is None or made[0] is not catalogue:
            made = self._menus[kind] = (catalogue, menu(kind, self.app, self.allowed))
        return made[1]

    def menus_in_use(self) -> Collection[str]:
        return tuple(self._menus)

    def prompts(self) -> Mapping[str, Prompt]:
        """Those of packs that may be used here."""
        return {name: one for name, one in self.app.prompts.items() if self._offers(one.spec)}

    def resources(self) -> Collection[Resource]:
        return [one for one in self.app.resources.values() if self._offers(one.spec)]

    async def offer(self, spec: ToolSpec, args: Mapping[str, Any]) -> ToolResult:
        """Run what is behind a prompt or a resource. It may call what the client may, and no more."""
        allowed = None if self.allowed is None else {*self.allowed, spec.name}
        return await self.app.offer(spec, args, "mcp", allowed)

    def _offers(self, spec: ToolSpec) -> bool:
        """With an allow-list, what packs offer beside tools is there if one of the pack's tools is."""
        return self.allowed is None or any(name.partition(".")[0] == spec.pack for name in self.allowed)

    def close(self) -> None:
        if self.unfollow is not None:
            self.unfollow()
            self.unfollow = None
        self.errands.close()
        self.changes.close()
