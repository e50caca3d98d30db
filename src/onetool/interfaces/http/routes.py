"""The site of an app: its routes, and what a reload changes about it."""

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import msgspec

from onetool import __version__
from onetool.interfaces.asgi import Asgi, Receive, Scope, Send, respond
from onetool.interfaces.http import access
from onetool.interfaces.http.greeting import Facts, bearer
from onetool.interfaces.http.listen import Place, is_loopback
from onetool.interfaces.http.page import page
from onetool.interfaces.http.rules import Rules, lack_of_token
from onetool.interfaces.http.site import READ, Route, Site
from onetool.interfaces.mcp.exchange import in_json_rpc
from onetool.interfaces.rest import ask, finds, rest, told
from onetool.interfaces.rest.problem import KIND as PROBLEM

if TYPE_CHECKING:
    from onetool.app import App

log = logging.getLogger("onetool.serve")

HEALTHY = msgspec.json.encode({"status": "ok", "version": __version__})


def site_of(
    app: "App", place: Place, mcp: Any, facts: Callable[[], Facts], allowed: Collection[str] | None = None
) -> Site:
    """Every route in one place. `mcp` is an ASGI app; it may have `stop()` and `reload()`."""
    routes = [
        Route("/mcp", mcp, told=in_json_rpc),
        Route("/tools", rest(app, allowed), below=True, told=told, kind=PROBLEM, finds=finds),
        Route(ask.PATH, _later(lambda: _ask(app, allowed)), methods=ask.METHODS, told=told, kind=PROBLEM),
        Route("/openapi.json", _later(lambda: _openapi(app)), methods=READ),
        Route("/docs", _later(lambda: _docs(app)), methods=READ, is_page=True),
        Route("/healthz", _health, protected=False, methods=READ),
        Route("/", page(facts), methods=READ, is_page=True),
    ]
    http = app.config.http
    return Site(routes, Rules(http, place), http.max_body_mb * 1024**2, app.redact)


def facts_of(app: "App", place: Place, menu: str | None, allowed: Collection[str] | None) -> Facts:
    tools = len(app.tools(allowed))
    token = app.config.http.token
    return Facts(
        url=place.url,
        version=__version__,
        menu=menu or app.config.menu,
        tools=f"{tools:,} tool{'' if tools == 1 else 's'}",
        config=f"the config {app.config.path}" if app.config.path else "its defaults",
        header=bearer(token.shown) if token else None,
    )


def follow_rules(app: "App", place: Place, site: Site) -> Callable[[], None]:
    """Go by the rules of every config that comes into force, whoever has it read. Where we listen does not change."""
    in_force = app.config

    def changed() -> None:
        nonlocal in_force
        if app.config is in_force:
            return
        in_force, http = app.config, app.config.http
        if (lacks := lack_of_token(http)) and not is_loopback(place.addresses):
            log.error("others can reach this server, which needs %s in http.token: the old rules stay in force", lacks)
            return
        access.switch(http.access_log)
        site.rules, site.max_body = Rules(http, place), http.max_body_mb * 1024**2

    return app.on_change(changed)


async def reload_site(app: "App", mcp: Any) -> None:
    """Read the config and the tools again, and say so when clients have been told."""
    before = app.config
    await mcp.reload()
    if app.config is not before:  # else it can't be used, which has been told
        log.info("Reloaded: %d tools", len(app.tools()))


def _later(load: Callable[[], Asgi]) -> Asgi:
    """A route that is loaded when somebody first comes by: most servers never show it."""
    loaded: list[Asgi] = []

    async def show(scope: Scope, receive: Receive, send: Send) -> None:
        if not loaded:
            loaded.append(load())
        await loaded[0](scope, receive, send)

    return show


def _ask(app: "App", allowed: Collection[str] | None) -> Asgi:
    from onetool.interfaces.rest.ask.door import AskDoor

    return AskDoor(app, allowed)


def _openapi(app: "App") -> Asgi:
    from onetool.interfaces.rest.openapi import openapi

    return openapi(app)


def _docs(app: "App") -> Asgi:
    from onetool.interfaces.rest.docs import docs

    return docs(app)


async def _health(_scope: Scope, _receive: Receive, send: Send) -> None:
    await respond(send, 200, HEALTHY)
