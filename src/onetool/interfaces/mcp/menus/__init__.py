"""What a client is shown of all tools. Which menu is the config's choice, or the client's own."""

from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import msgspec

from onetool.app import App
from onetool.interfaces.mcp.menus.entry import Entry
from onetool.interfaces.mcp.menus.weight import weight


class Menu(msgspec.Struct, frozen=True):
    """Made once per catalogue. `full_bytes` is what a list of every tool would weigh; both are measured when asked."""

    listing: list[Mapping[str, Any]]
    entries: Mapping[str, Entry]
    sent_bytes: Callable[[], int]
    full_bytes: Callable[[], int]


def menu(kind: str, app: App, allowed: Collection[str] | None = None) -> Menu:
    """The menu of that kind, over the tools that the app has now."""
    entries: list[Entry] = import_module(f"onetool.interfaces.mcp.menus.{kind}").entries(app, allowed)
    listing = [entry.listing for entry in entries]
    sent = cache(lambda: weight(listing))
    full = sent if kind == "direct" else cache(lambda: _full(app, allowed))
    return Menu(listing, {name: entry for entry in entries for name in (*entry.also, entry.name)}, sent, full)


def _full(app: App, allowed: Collection[str] | None) -> int:
    from onetool.interfaces.mcp.menus.direct import listed

    return weight(listing for _, listing, _ in listed(app, allowed))
