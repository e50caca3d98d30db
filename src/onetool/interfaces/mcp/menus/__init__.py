"""The menus: which tools a client sees in tools/list. The config chooses the menu, or the client does."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from onetool.core.principal import lasting_owner
from onetool.interfaces.json_data import encode
from onetool.interfaces.mcp.menus.entry import MenuEntry

if TYPE_CHECKING:
    from onetool.app import App

log = logging.getLogger("onetool.mcp")

RECORD_AFTER_S = 0.2  # seconds: what the client wants first comes first


def listing_bytes(listing: Iterable[Mapping[str, Any]]) -> int:
    """The size of a list in bytes, encoded one by one so that other threads can run."""
    return 1 + sum(len(encode(one)) + 1 for one in listing)


def record_listing(app: "App", menu: "Menu", client: str) -> None:
    """Record in the stats, a moment later, that a client was sent a menu."""
    if app.config.stats.enabled:
        asyncio.get_running_loop().call_later(RECORD_AFTER_S, _record, app, menu, client, lasting_owner())


def _record(app: "App", menu: "Menu", client: str, owner: str) -> None:
    stats = app.runtime.stats
    if stats is None:
        return

    def measure() -> None:
        try:
            stats.record_menu(client, "mcp", menu.full_bytes(), menu.sent_bytes(), owner)
        except Exception:
            log.exception("the size of a menu could not be measured; only the stats need it")

    with suppress(RuntimeError):  # the server stops
        asyncio.get_running_loop().run_in_executor(None, measure)


# The menu


class Menu(msgspec.Struct, frozen=True):
    """A menu, built once per catalogue. `full_bytes` is the size of a list of every tool, measured on demand."""

    listing: list[Mapping[str, Any]]
    entries: Mapping[str, MenuEntry]
    sent_bytes: Callable[[], int]
    full_bytes: Callable[[], int]


def menu(kind: str, app: "App", allowed: Collection[str] | None = None) -> Menu:
    """The menu of that kind, over the tools that the app has now."""
    entries: list[MenuEntry] = import_module(f"onetool.interfaces.mcp.menus.{kind}").entries(app, allowed)
    listing = [entry.listing for entry in entries]
    sent = cache(lambda: listing_bytes(listing))
    full = sent if kind == "direct" else cache(lambda: _full_bytes(app, allowed))
    return Menu(listing, {name: entry for entry in entries for name in (*entry.also, entry.name)}, sent, full)


def _full_bytes(app: "App", allowed: Collection[str] | None) -> int:
    from onetool.interfaces.mcp.menus.direct import listed

    return listing_bytes(listing for _, listing, _ in listed(app, allowed))
