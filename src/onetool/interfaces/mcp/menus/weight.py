"""What a menu weighs, beside a list of every tool: for the stats. Measured once per menu, and never on the loop."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from onetool.app import App
from onetool.interfaces.encoding import encode

if TYPE_CHECKING:
    from onetool.interfaces.mcp.menus import Menu

log = logging.getLogger("onetool.mcp")

LATER = 0.2  # seconds: what the client wants first comes first


def weight(listing: Iterable[Mapping[str, Any]]) -> int:
    """Bytes of the list. One by one: others want the interpreter, too."""
    return 1 + sum(len(encode(one)) + 1 for one in listing)


def tell(app: App, menu: "Menu", client: str) -> None:
    """A client has been sent a menu: have that counted, in a moment."""
    if app.config.stats.enabled:
        asyncio.get_running_loop().call_later(LATER, _tell, app, menu, client)


def _tell(app: App, menu: "Menu", client: str) -> None:
    stats = app.stats
    if stats is None:
        return

    def measure() -> None:
        try:
            stats.listed(client, "mcp", menu.full_bytes(), menu.sent_bytes())
        except Exception:
            log.exception("a menu could not be measured; nothing but the stats goes by that")

    with suppress(RuntimeError):  # the server stops
        asyncio.get_running_loop().run_in_executor(None, measure)
