"""The MCP methods and their handlers, except those of resources and prompts, which are in offers.

The methods depend on the client's protocol revision. A tool call may become a task.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from onetool.app.describe import server_instructions, untrusted_note
from onetool.core.call import current_caller
from onetool.core.errors import BadArguments
from onetool.core.mcp_protocol import (
    AWAY,
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
from onetool.core.text import or_rather
from onetool.interfaces.mcp import notifications, offers
from onetool.interfaces.mcp.client import (
    PAGE_SIZE,
    ClientCaller,
    McpRequest,
    client_name,
    known_capabilities,
    page,
)
from onetool.interfaces.mcp.content import LINKS_SINCE, for_revision, text_block
from onetool.interfaces.mcp.http_headers import check_arguments
from onetool.interfaces.mcp.menus import Menu, MenuEntry
from onetool.interfaces.mcp.pending_calls import (
    lacking_capability,
    missing_capability,
    run_pausing,
)
from onetool.interfaces.mcp.service import SERVER, Service

log = logging.getLogger("onetool.mcp")
Handler = Callable[[Service, McpRequest], Awaitable[dict[str, Any]]]

WHOLE = "onetool/whole"  # in the `_meta` of a call
UNFINISHED = ("task", "input_required")  # results after which the client sends another request
CAPABILITIES = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "completions": {},
}
MAX_WATCHED = 100  # resources per session
CACHE = {"ttlMs": 5_000, "cacheScope": "private"}  # clients may cache a list briefly
NO_CACHE = {"ttlMs": 0, "cacheScope": "private"}
IDENTITY = {SERVER_INFO: SERVER}


async def handle_request(service: Service, request: McpRequest) -> dict[str, Any]:
    """Return the result of a request. Raises JsonRpcError, or CancelledError."""
    is_stateless = request.client.is_stateless
    handler = (STATELESS_METHODS if is_stateless else SESSION_METHODS).get(request.method)
    if handler is None:
        raise unknown_method(request.method)
    try:
        result = await handler(service, request)
    except JsonRpcError:
        raise
    except Exception as error:
        log.exception("%s failed", request.method)
        raise JsonRpcError(INTERNAL_ERROR, f"internal error: {type(error).__name__}; see the server's log") from None
    if not is_stateless:
        return result
    meta = {**IDENTITY, **result["_meta"]} if "_meta" in result else IDENTITY
    return {"resultType": "complete", **CACHE_HINTS.get(request.method, {}), **result, "_meta": meta}


def unknown_method(method: str) -> JsonRpcError:
    return JsonRpcError(METHOD_NOT_FOUND, f"Method not found: {method:.100}")


# The handshake and the state of a conversation


async def initialize(service: Service, request: McpRequest) -> dict[str, Any]:
    client = request.client
    client.revision = negotiated_revision(request.param("protocolVersion"))
    client.capabilities = known_capabilities(request.param("capabilities", dict, {}))
    client.name = client_name(request.param("clientInfo", dict, {}))  # only for the stats
    members = {"capabilities": {**CAPABILITIES, "logging": {}}, "serverInfo": SERVER}
    return {"protocolVersion": client.revision, **members, **_instructions(service, request)}


async def discover(service: Service, request: McpRequest) -> dict[str, Any]:
    capabilities = {**CAPABILITIES, "extensions": {TASKS: {}}}
    members = {"supportedVersions": list(STATELESS_REVISIONS), "capabilities": capabilities}
    return {**members, **_instructions(service, request)}


def _instructions(service: Service, request: McpRequest) -> dict[str, str]:
    if service.menus.is_bare:
        return {}
    kind: Any = service.menus.kind_of(request.client)
    app = service.app
    text = server_instructions(kind, app.catalog.count(service.allowed), app.config.texts.instructions)
    return {"instructions": text if app.untrusted is None else f"{text}\n\n{untrusted_note(app.untrusted)}"}


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
    if not offers.has_resource(service, uri):
        raise JsonRpcError(RESOURCE_NOT_FOUND, f"Resource not found: {uri:.200}", {"uri": uri})
    if request.watched is not None:
        if len(request.watched) >= MAX_WATCHED:
            raise JsonRpcError(INVALID_PARAMS, f"too many subscriptions: at most {MAX_WATCHED} resources")
        request.watched.add(uri)
    return {}


async def unsubscribe(service: Service, request: McpRequest) -> dict[str, Any]:
    if request.watched is not None:
        request.watched.discard(request.param("uri"))
    return {}


# tools/list and tools/call


async def list_tools(service: Service, request: McpRequest) -> dict[str, Any]:
    menu = service.menus.of(request.client)
    if request.params.get("cursor") is not None:
        return page("tools", menu.listing, request)
    service.app.runtime.record_menu(request.client.name, menu.full_bytes, menu.sent_bytes)
    return {"tools": menu.encoded()} if len(menu.listing) <= PAGE_SIZE else page("tools", menu.listing, request)


async def call_tool(service: Service, request: McpRequest) -> dict[str, Any]:
    """Call a tool, and record how long the client took since its last result."""
    client, params, is_answer = request.client, request.params, False
    if client.gap_timer is not None:
        silent = client.gap_timer.call_started()
        if silent is not None and "requestState" not in params:
            service.app.runtime.record_gap(client.name, silent)
    try:
        menu, name = service.menus.of(client), request.param("name")
        if (entry := menu.entries.get(name)) is None:
            raise _unknown_tool(service, menu, name)
        if request.head is not None and entry.headers:
            check_arguments(request.head, entry.headers, params.get("arguments"))
        # Clients of revisions without tasks can only wait.
        if entry.needs_task and client.is_stateless and not client.can(TASKS):
            raise missing_capability(TASKS, f"{entry.name} may take long and needs a client that supports tasks")
        whole, token, meta = client.wants_whole and client.principal.whole, None, params.get("_meta")
        if isinstance(meta, dict) and (WHOLE in meta or "progressToken" in meta):
            whole, token = _wants_whole(request), request.progress_token
        work = partial(_call_entry, entry, request.param("arguments", dict, None) or {}, whole)
        if request.can_pause(entry.task_after):
            result = await run_pausing(request, work, service.pending_calls, entry.task_after)
        else:
            result = await work(ClientCaller(client, request.channel, token))
        is_answer = result.get("resultType") not in UNFINISHED
    except UnknownToolError as error:
        is_answer, untrusted = True, service.app.untrusted
        if untrusted is None:
            raise
        failure = {"content": [text_block(f"{error}; {untrusted.short}")], "isError": True}  # shown to the model
        return for_revision(failure, client.revision)
    except JsonRpcError:
        is_answer = True
        raise
    finally:
        if client.gap_timer is not None:
            client.gap_timer.call_ended(is_answer)
    return result


async def _call_entry(
    entry: MenuEntry, args: Mapping[str, Any], wants_whole: bool, caller: ClientCaller
) -> dict[str, Any]:
    caller.wants_whole = wants_whole
    token = current_caller.set(caller)
    try:
        result = await entry.call(args, caller)
    except BadArguments as error:
        words = "\n".join((str(error), *(f"  {hint}" for hint in error.hints)))
        return {"content": [text_block(words)], "isError": True}
    except JsonRpcError as error:  # from the MCP server
        raise lacking_capability(caller) or error from None
    finally:
        current_caller.reset(token)
        caller.channel = None
    if result.get("isError") and (failure := lacking_capability(caller)):
        raise failure
    return result if caller.client.revision >= LINKS_SINCE else for_revision(result, caller.client.revision)


def _wants_whole(request: McpRequest) -> bool:
    """Return whether a large result is sent in full, according to the call's `_meta` or the client's URL."""
    client, meta = request.client, request.params.get("_meta")
    wanted = meta.get(WHOLE, client.wants_whole) if isinstance(meta, dict) else client.wants_whole
    if not isinstance(wanted, bool):
        raise JsonRpcError(INVALID_PARAMS, f"params._meta[{WHOLE!r}]: expected true or false")
    return wanted and client.principal.whole


class UnknownToolError(JsonRpcError):
    """Raised for a call of a tool that is not in the client's menu."""


def _unknown_tool(service: Service, menu: Menu, name: str) -> JsonRpcError:
    if (behind := service.app.catalog.why_missing(name)) is not None and behind.reason == AWAY["reason"]:
        return JsonRpcError(INTERNAL_ERROR, f"Unknown tool: {name:.100}; {behind}", AWAY)
    return UnknownToolError(INVALID_PARAMS, f"Unknown tool: {name:.100}{or_rather(name, menu.entries)}")


async def list_offers(
    name: str, listing: Callable[[Service], list[dict[str, Any]]], service: Service, request: McpRequest
) -> dict[str, Any]:
    return page(name, listing(service), request)


# Tasks


async def get_task(service: Service, request: McpRequest) -> dict[str, Any]:
    _check_tasks(request)
    id, ttl_ms = request.param("taskId"), service.pending_calls.ttl_ms
    if service.tasks is not None and service.tasks.is_elsewhere(id):
        return await service.tasks.read(id, request.client.owner, ttl_ms)
    return service.pending_calls.task(id, request.client).task(ttl_ms)


async def update_task(service: Service, request: McpRequest) -> dict[str, Any]:
    _check_tasks(request)
    pending = service.pending_calls.task(request.param("taskId"), request.client)
    pending.take_answers(request.param("inputResponses", dict))
    await service.pending_calls.stored(pending)
    return {}


async def cancel_task(service: Service, request: McpRequest) -> dict[str, Any]:
    _check_tasks(request)
    pending = service.pending_calls.task(request.param("taskId"), request.client)
    pending.cancel()
    await service.pending_calls.stored(pending)
    return {}


def _check_tasks(request: McpRequest) -> None:
    if not request.client.can(TASKS):
        raise missing_capability(TASKS, f"{request.method} needs a client that declares the extension {TASKS}")


# The table

_COMMON_METHODS: dict[str, Handler] = {
    "tools/list": list_tools,
    "tools/call": call_tool,
    "prompts/list": partial(list_offers, "prompts", offers.prompt_listing),
    "prompts/get": offers.get_prompt,
    "resources/list": partial(list_offers, "resources", offers.resource_listing),
    "resources/templates/list": partial(list_offers, "resourceTemplates", offers.template_listing),
    "resources/read": offers.read_resource,
    "completion/complete": offers.complete,
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
    "tasks/get": get_task,
    "tasks/update": update_task,
    "tasks/cancel": cancel_task,
}
CACHE_HINTS: Mapping[str, Mapping[str, Any]] = {
    "server/discover": CACHE,
    "tools/list": CACHE,
    "prompts/list": CACHE,
    "resources/list": CACHE,
    "resources/templates/list": CACHE,
    "resources/read": NO_CACHE,
}
