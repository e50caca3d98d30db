"""Reload the config and tools, and notify clients of changes; the method subscriptions/listen."""

import asyncio
import logging
from contextlib import suppress
from typing import Any

from onetool.core.errors import ConfigError
from onetool.core.mcp_protocol import INVALID_PARAMS, SUBSCRIPTION_ID, JsonRpcError
from onetool.core.principal import Principal, current_principal
from onetool.http.asgi import encode
from onetool.interfaces.mcp.client import McpRequest, RemoteClient
from onetool.interfaces.mcp.offers import TOOLS, prompt_listing, resource_listing, template_listing
from onetool.interfaces.mcp.service import KINDS, ChangeListener, ListedState, ListedStates, Service

log = logging.getLogger("onetool.mcp")
DEBOUNCE_S = 0.15  # without a further change, before clients are notified
MAX_DEBOUNCE_S = 1.0  # after which clients are notified even with further changes
CONNECT_AFTER_S = 0.2  # so that the client's first requests come first


async def reload(service: Service) -> None:
    """Reload the config and all tools, one reload at a time. An invalid config changes nothing."""
    async with service.reloading:
        # Keep a pending change.
        service.last_listed = service.last_listed or _states(service)
        try:
            await asyncio.to_thread(service.app.reload, here=True)
        except ConfigError as error:
            log.error("Not reloaded, the previous config stays in effect: %s", error)
            return
        except Exception as error:  # noqa: BLE001 - a failed reload must not stop the server
            log.error("Not reloaded: %s: %s", type(error).__name__, error)
            return
        notify_clients(service)
        log.info("reloaded: %d tools", service.app.catalog.count())


def follow(service: Service) -> None:
    """Let the app watch its servers and files, and notify clients when the tools change."""
    loop = asyncio.get_running_loop()
    news = _DebouncedNotice(loop, service)

    def changed() -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(news.on_change)

    def begin() -> None:
        service.last_listed = service.last_listed or _states(service)
        service.app.connect()

    service.stop_following = service.app.on_change(changed)
    if service.app.servers is not None:  # servers may connect before the first list
        service.last_listed = _states(service)
        service.app.servers.stays_connected = True
    loop.call_later(CONNECT_AFTER_S, begin)


class _DebouncedNotice:
    """A debouncer of notifications: when many servers start at once, clients get one notification."""

    def __init__(self, loop: asyncio.AbstractEventLoop, service: Service) -> None:
        self._loop = loop
        self._service = service
        self._timer: asyncio.TimerHandle | None = None
        self._latest = 0.0

    def on_change(self) -> None:
        now = self._loop.time()
        if self._timer is None:
            self._latest = now + MAX_DEBOUNCE_S
        else:
            self._timer.cancel()
        self._timer = self._loop.call_at(min(now + DEBOUNCE_S, self._latest), self._notify)

    def _notify(self) -> None:
        self._timer = None
        notify_clients(self._service)


def notify_clients(service: Service) -> None:
    """Notify clients of the changes since the last notification."""
    before, service.last_listed = service.last_listed, _states(service)
    if before is not None:
        service.changes.notify(before, service.last_listed)


def _states(service: Service) -> ListedStates:
    """Return the current lists, for each allow-list of the clients."""
    kinds: dict[tuple[str, ...] | None, set[str]] = {tools: set() for tools in (None, *service.changes.allow_lists())}
    for kind, tools in service.menus.in_use():
        kinds.setdefault(tools, set()).add(kind)
    return {tools: _state(service, Principal(tools=tools), shown) for tools, shown in kinds.items()}


def _state(service: Service, principal: Principal, kinds: set[str]) -> ListedState:
    token = current_principal.set(principal)
    try:
        usual = service.menus.kind_of(RemoteClient())
        clients = {kind: RemoteClient(menu=kind, principal=principal) for kind in {*kinds, usual}}
        return ListedState(
            menu=usual,
            menus={kind: encode(service.menus.of(client).listing) for kind, client in clients.items()},
            prompts=encode(prompt_listing(service)),
            resources=encode([resource_listing(service), template_listing(service)]),
            texts={TOOLS: service.app.catalog.texts(service.allowed)},
        )
    finally:
        current_principal.reset(token)


async def listen(service: Service, request: McpRequest) -> dict[str, Any]:
    """Answer subscriptions/listen: send the requested notifications until one side ends the stream."""
    wanted = request.param("notifications", dict)
    kinds = [kind for kind in KINDS if wanted.get(f"{kind}ListChanged") is True]
    uris = wanted.get("resourceSubscriptions", [])
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
        raise JsonRpcError(INVALID_PARAMS, "params.notifications.resourceSubscriptions: expected a list of strings")
    mark = {SUBSCRIPTION_ID: request.id}

    def notify(method: str, params: dict[str, Any]) -> None:
        request.channel.notify(method, {**params, "_meta": mark})

    honoured: dict[str, Any] = {f"{kind}ListChanged": True for kind in kinds}
    if uris:
        honoured["resourceSubscriptions"] = uris
    notify("notifications/subscriptions/acknowledged", {"notifications": honoured})
    forget = service.changes.add(ChangeListener(notify, request.client, kinds, set(uris)))
    try:
        await service.changes.closed.wait()
    finally:
        forget()
    return {"_meta": mark}
