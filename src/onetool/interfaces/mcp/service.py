"""What the methods of the server share: the app, the menus made of it, calls that wait, and who listens to changes."""

import asyncio
import logging
from collections.abc import Collection

from onetool import __version__
from onetool.app import App
from onetool.core.errors import ConfigError
from onetool.core.registry import Snapshot
from onetool.interfaces.mcp.changes import Changes, state_of
from onetool.interfaces.mcp.client import Client
from onetool.interfaces.mcp.errands import Errands
from onetool.interfaces.mcp.menus import Menu, menu

log = logging.getLogger("onetool.mcp")

SERVER = {"name": "onetool", "title": "OneTool", "version": __version__}


class Service:
    """Lives as long as the process serves."""

    def __init__(self, app: App, menu: str | None = None, allowed: Collection[str] | None = None) -> None:
        self.app = app
        self.allowed = allowed
        self.changes = Changes()
        self.errands = Errands(app.config.results.ttl_s)
        self._menu = menu
        self._menus: dict[str, tuple[Snapshot, Menu]] = {}

    def menu_kind(self, client: Client) -> str:
        return client.menu or self._menu or self.app.config.menu

    def menu(self, client: Client) -> Menu:
        """What this client is shown. Made once per catalogue."""
        kind, catalogue = self.menu_kind(client), self.app.registry.snapshot()
        made = self._menus.get(kind)
        if made is None or made[0] is not catalogue:
            made = self._menus[kind] = (catalogue, menu(kind, self.app, self.allowed))
        return made[1]

    async def reload(self) -> None:
        """Read everything again, and tell those who listen what is different. A wrong config changes nothing."""
        seen = tuple(self._menus)
        before = state_of(self, seen)
        try:
            await asyncio.to_thread(self.app.reload)
        except ConfigError as error:
            log.error("not reloaded, the config in force stays: %s", error)
            return
        self._menus.clear()
        self.changes.tell(before, state_of(self, seen))
        log.info("reloaded: %d tools", len(self.app.registry))

    def close(self) -> None:
        self.errands.close()
        self.changes.close()
