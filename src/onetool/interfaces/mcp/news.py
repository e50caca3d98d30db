"""Reading everything again, and telling clients what is different; subscriptions/listen."""

import asyncio
import logging
from collections.abc import Collection
from typing import Any

from onetool.core.errors import ConfigError
from onetool.interfaces.mcp.changes import KINDS, Listener, State
from onetool.interfaces.mcp.client import Client
from onetool.interfaces.mcp.prompts import prompt_listing
from onetool.interfaces.mcp.request import Request
from onetool.interfaces.mcp.resources import TOOLS, resource_listing, template_listing
from onetool.interfaces.mcp.revisions import SUBSCRIPTION_ID
from onetool.interfaces.mcp.service import Service
from onetool.interfaces.mcp.wire import INVALID_PARAMS, Fault, encode

log = logging.getLogger("onetool.mcp")


async def reload(service: Service) -> None:
    """Read the config and all tools again, one reload at a time. One that can't be used leaves everything as it is."""
    async with service.reloading:
        kinds = service.menus_in_use()
        before = _state(service, kinds)
        try:
            await asyncio.to_thread(service.app.reload)
        except ConfigError as error:
            log.error("not reloaded, the config in force stays: %s", error)
            return
        except Exception as error:  # noqa: BLE001 - whatever goes wrong with it, the server goes on
            log.error("not reloaded: %s: %s", type(error).__name__, error)
            return
        service.changes.tell(before, _state(service, kinds))
        log.info("reloaded: %d tools", len(service.app.registry))


def _state(service: Service, kinds: Collection[str]) -> State:
    usual = service.menu_kind(Client())
    return State(
        menu=usual,
        menus={kind: encode(service.menu(Client(menu=kind)).listing) for kind in {*kinds, usual}},
        prompts=encode(prompt_listing(service)),
        resources=encode([resource_listing(service), template_listing(service)]),
        texts={TOOLS: [(spec.name, spec.description) for spec in service.app.tools(service.allowed)]},
    )


async def listen(service: Service, request: Request) -> dict[str, Any]:
    """A stream of what was asked for, until one side ends it."""
    wanted = request.param("notifications", dict)
    kinds = [kind for kind in KINDS if wanted.get(f"{kind}ListChanged") is True]
    uris = wanted.get("resourceSubscriptions", [])
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
        raise Fault(INVALID_PARAMS, "params.notifications.resourceSubscriptions: expected a list of texts")
    mark = {SUBSCRIPTION_ID: request.id}

    def notify(method: str, params: dict[str, Any]) -> None:
        request.link.notify(method, {**params, "_meta": mark})

    honoured: dict[str, Any] = {f"{kind}ListChanged": True for kind in kinds}
    if uris:
        honoured["resourceSubscriptions"] = uris
    notify("notifications/subscriptions/acknowledged", {"notifications": honoured})
    forget = service.changes.add(Listener(notify, request.client, kinds, set(uris)))
    try:
        await service.changes.until_closed()
    finally:
        forget()
    return {"_meta": mark}
