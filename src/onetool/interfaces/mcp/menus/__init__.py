"""What a client is shown of all tools. Which menu is the config's choice, or the client's own."""

from collections.abc import Collection, Mapping
from importlib import import_module
from typing import Any

import msgspec

from onetool.app import App
from onetool.interfaces.mcp.menus.entry import Entry


class Menu(msgspec.Struct, frozen=True):
    """Made once per catalogue."""

    listing: list[Mapping[str, Any]]
    entries: Mapping[str, Entry]


def menu(kind: str, app: App, allowed: Collection[str] | None = None) -> Menu:
    """The menu of that kind, over the tools that the app has now."""
    entries: list[Entry] = import_module(f"onetool.interfaces.mcp.menus.{kind}").entries(app, allowed)
    return Menu([entry.listing for entry in entries], {entry.name: entry for entry in entries})
