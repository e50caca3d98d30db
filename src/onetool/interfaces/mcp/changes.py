"""Who wants to hear when tools, prompts or resources change, and telling them."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from onetool.interfaces.mcp.client import Client
from onetool.interfaces.mcp.prompts import prompt_listing
from onetool.interfaces.mcp.request import Request
from onetool.interfaces.mcp.resources import TOOLS, resource_listing, template_listing
from onetool.interfaces.mcp.revisions import SUBSCRIPTION_ID
from onetool.interfaces.mcp.wire import INVALID_PARAMS, Fault, encode

if TYPE_CHECKING:
    from onetool.interfaces.mcp.service import Service

KINDS = ("tools", "prompts", "resources")

Notify = Callable[[str, dict[str, Any]], None]


class Listener(msgspec.Struct, eq=False):
    """One stream of notifications: what it is for, and where they go."""

    notify: Notify
    client: Client
    kinds: Iterable[str] = KINDS
    uris: set[str] = msgspec.field(default_factory=set[str])  # of resources that it watches


class Changes:
    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._closed = asyncio.Event()

    def add(self, listener: Listener) -> Callable[[], None]:
        """Tell it of changes from now on; what comes back ends that."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def tell(self, before: "State", after: "State") -> None:
        changed = [kind for kind in KINDS if before.lists[kind] != after.lists[kind]]
        for listener in list(self._listeners):
            for kind in changed:
                if kind in listener.kinds:
                    listener.notify(f"notifications/{kind}/list_changed", {})
            if TOOLS in listener.uris and before.tools != after.tools:
                listener.notify("notifications/resources/updated", {"uri": TOOLS})

    def close(self) -> None:
        self._closed.set()

    async def until_closed(self) -> None:
        await self._closed.wait()


class State(msgspec.Struct, frozen=True):
    """What clients may have seen of us, in short."""

    lists: Mapping[str, Any]
    tools: Any


def state_of(service: "Service", seen: Collection[str]) -> State:
    """`seen` are the menus that clients have seen. Which one is theirs may change, too."""
    app = service.app
    menus = {kind: encode(service.menu(Client(menu=kind)).listing) for kind in seen}
    resources = encode([resource_listing(app), template_listing(app)])
    names = [(spec.name, spec.description) for spec in app.tools(service.allowed)]
    tools = (service.menu_kind(Client()), menus) if seen else None
    return State({"tools": tools, "prompts": encode(prompt_listing(app)), "resources": resources}, names)


async def listen(service: "Service", request: Request) -> dict[str, Any]:
    """subscriptions/listen: a stream of what was asked for, until one side ends it."""
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
