"""The table of MCP methods and their handlers. Which methods exist depends on the revision that the client speaks."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from onetool.app.describe import server_instructions, untrusted_note
from onetool.interfaces.mcp import notifications, prompts, resources, tools
from onetool.interfaces.mcp.client import client_name, known_capabilities
from onetool.interfaces.mcp.protocol import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    LEVELS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    SERVER_INFO,
    STATELESS_REVISIONS,
    TASKS,
    JsonRpcError,
    negotiated_revision,
)
from onetool.interfaces.mcp.request import McpRequest
from onetool.interfaces.mcp.service import SERVER, Service

log = logging.getLogger("onetool.mcp")

Handler = Callable[[Service, McpRequest], Awaitable[dict[str, Any]]]

CAPABILITIES = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "completions": {},
}
MOST_WATCHED = 100  # resources of a session
CACHE = {"ttlMs": 5_000, "cacheScope": "private"}  # a list may be used again for a moment
NO_CACHE = {"ttlMs": 0, "cacheScope": "private"}
IDENTITY = {SERVER_INFO: SERVER}


async def handle_request(service: Service, request: McpRequest) -> dict[str, Any]:
    """The result of a request. Raises JsonRpcError, or CancelledError."""
    table = STATELESS_METHODS if request.client.is_stateless else SESSION_METHODS
    handler = table.get(request.method)
    if handler is None:
        raise unknown_method(request.method)
    try:
        result = await handler(service, request)
    except JsonRpcError:
        raise
    except Exception as error:
        log.exception("%s failed", request.method)
        raise JsonRpcError(
            INTERNAL_ERROR, f"internal error: {type(error).__name__}; the server's log says more"
        ) from None
    return _completed_result(request.method, result) if request.client.is_stateless else result


def _completed_result(method: str, result: dict[str, Any]) -> dict[str, Any]:
    """The result with the members that 2026-07-28 requires."""
    meta = {"_meta": {**IDENTITY, **result["_meta"]}} if "_meta" in result else {"_meta": IDENTITY}
    return {"resultType": "complete", **CACHE_HINTS.get(method, {}), **result, **meta}


def unknown_method(method: str) -> JsonRpcError:
    return JsonRpcError(METHOD_NOT_FOUND, f"Method not found: {method:.100}")


async def initialize(service: Service, request: McpRequest) -> dict[str, Any]:
    client = request.client
    client.revision = negotiated_revision(request.param("protocolVersion"))
    client.capabilities = known_capabilities(request.param("capabilities", dict, {}))
    client.name = client_name(request.param("clientInfo", dict, {}))  # for the stats: nothing here goes by who it is
    members = {"capabilities": {**CAPABILITIES, "logging": {}}, "serverInfo": SERVER}
    return {"protocolVersion": client.revision, **members, "instructions": _instructions(service, request)}


async def discover(service: Service, request: McpRequest) -> dict[str, Any]:
    capabilities = {**CAPABILITIES, "extensions": {TASKS: {}}}
    members = {"supportedVersions": list(STATELESS_REVISIONS), "capabilities": capabilities}
    return {**members, "instructions": _instructions(service, request)}


def _instructions(service: Service, request: McpRequest) -> str:
    kind: Any = service.menu_kind(request.client)
    app = service.app
    members = server_instructions(kind, len(app.catalog.tools(service.allowed)), app.config.texts.instructions)
    return members if app.untrusted is None else f"{members}\n\n{untrusted_note(app.untrusted)}"


async def ping(service: Service, request: McpRequest) -> dict[str, Any]:
    return {}


async def set_level(service: Service, request: McpRequest) -> dict[str, Any]:
    level: Any = request.param("level")
    if level not in LEVELS:
        raise JsonRpcError(INVALID_PARAMS, f"params.level: expected one of {', '.join(LEVELS)}")
    request.client.log_level = level
    return {}


async def subscribe(service: Service, request: McpRequest) -> dict[str, Any]:
    uri = request.param("uri")
    if not resources.has_resource(service, uri):
        raise JsonRpcError(RESOURCE_NOT_FOUND, f"Resource not found: {uri:.200}", {"uri": uri})
    if request.watched is not None:
        if len(request.watched) >= MOST_WATCHED:
            raise JsonRpcError(INVALID_PARAMS, f"{MOST_WATCHED} resources are subscribed to already")
        request.watched.add(uri)
    return {}


async def unsubscribe(service: Service, request: McpRequest) -> dict[str, Any]:
    if request.watched is not None:
        request.watched.discard(request.param("uri"))
    return {}


_COMMON_METHODS: dict[str, Handler] = {
    "tools/list": tools.list_tools,
    "tools/call": tools.call_tool,
    "prompts/list": prompts.list_prompts,
    "prompts/get": prompts.get_prompt,
    "resources/list": resources.list_resources,
    "resources/templates/list": resources.list_templates,
    "resources/read": resources.read_resource,
    "completion/complete": prompts.complete,
}
SESSION_METHODS: Mapping[str, Handler] = {
    **_COMMON_METHODS,
    "initialize": initialize,
    "ping": ping,
    "logging/setLevel": set_level,
    "resources/subscribe": subscribe,
    "resources/unsubscribe": unsubscribe,
}
STATELESS_METHODS: Mapping[str, Handler] = {
    **_COMMON_METHODS,
    "server/discover": discover,
    "subscriptions/listen": notifications.listen,
    "tasks/get": tools.get_task,
    "tasks/update": tools.update_task,
    "tasks/cancel": tools.cancel_task,
}
CACHE_HINTS: Mapping[str, Mapping[str, Any]] = {
    "server/discover": CACHE,
    "tools/list": CACHE,
    "prompts/list": CACHE,
    "resources/list": CACHE,
    "resources/templates/list": CACHE,
    "resources/read": NO_CACHE,
}
