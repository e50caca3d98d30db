"""Requests of 2026-07-28 over HTTP: each stands alone, and ends with its connection."""

import asyncio
from typing import Any

from onetool.interfaces.asgi import Receive, Send
from onetool.interfaces.leaving import Watch
from onetool.interfaces.mcp.client import Client, from_meta
from onetool.interfaces.mcp.exchange import STATUS
from onetool.interfaces.mcp.headers import Headers, check_arguments, check_method, check_name, check_version
from onetool.interfaces.mcp.request import Request
from onetool.interfaces.mcp.revisions import PROTOCOL_VERSION
from onetool.interfaces.mcp.server import OF_MODERN, respond, unknown
from onetool.interfaces.mcp.service import Service
from onetool.interfaces.mcp.tools import wanted
from onetool.interfaces.mcp.wire import INTERNAL_ERROR, Fault, Message, answer, notification, refusal
from onetool.interfaces.outlet import Outlet


class OneWay:
    """The way back for a request that stands alone: there is nobody to take questions."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._outlet.push(notification(method, params))

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        raise Fault(INTERNAL_ERROR, "this client takes no requests")


async def answer_alone(request: Request, service: Service, outlet: Outlet, receive: Receive) -> None:
    """Carry it out, and send what comes of it. A client that goes away wants nothing any more."""
    watch = Watch(receive, outlet.begin_when_quiet)
    try:
        reply, status = answer(request.id, await respond(service, request)), 200
    except Fault as fault:
        reply, status = refusal(request.id, fault), STATUS.get(fault.code, 200)
    except asyncio.CancelledError:
        outlet.drop()
        if not watch.forgive():
            raise
        return
    finally:
        watch.end()
    await outlet.finish(reply, status)


def request_alone(
    message: Message, headers: Headers, service: Service, send: Send, owner: str, menu: str | None
) -> tuple[Request, Outlet]:
    """The request that a message is, once all that it says of itself agrees."""
    method, params = message["method"], message.get("params", {})
    client = _client(message, headers, params.get("_meta"), owner, menu)
    if method not in OF_MODERN:
        raise unknown(method)
    name = check_name(headers, message)
    entry = None
    if method == "tools/call":
        entry = wanted(service, client, name)
        check_arguments(headers, entry, params.get("arguments"))
    outlet = Outlet(send)
    link = OneWay(outlet)
    return Request(id=message["id"], method=method, params=params, client=client, link=link, entry=entry), outlet


def _client(message: Message, headers: Headers, meta: Any, owner: str, menu: str | None) -> Client:
    check_method(headers, message)
    if isinstance(meta, dict) and isinstance(meta.get(PROTOCOL_VERSION), str):
        check_version(headers, meta[PROTOCOL_VERSION])
    return from_meta(meta, owner, menu)
