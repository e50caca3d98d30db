"""tools/list and tools/call, and the tasks that calls may become."""

from typing import Any

from onetool.core.errors import BadArguments
from onetool.core.principal import lasting_owner
from onetool.interfaces.mcp.client import ClientCaller, RemoteClient
from onetool.interfaces.mcp.content import for_revision, text_block
from onetool.interfaces.mcp.menus import MenuEntry, record_listing
from onetool.interfaces.mcp.pending_calls import PendingCall, lacking_capability, missing_capability, run_pausable
from onetool.interfaces.mcp.protocol import INVALID_PARAMS, TASK_GONE, TASKS, JsonRpcError
from onetool.interfaces.mcp.request import McpRequest, page
from onetool.interfaces.mcp.service import Service

UNFINISHED = ("task", "input_required")  # results that the client has to come back for


async def list_tools(service: Service, request: McpRequest) -> dict[str, Any]:
    menu = service.menu(request.client)
    listed = page("tools", menu.listing, request)
    if request.params.get("cursor") is None:
        record_listing(service.app, menu, request.client.name)
    return listed


async def call_tool(service: Service, request: McpRequest) -> dict[str, Any]:
    """tools/call. Also records how long the client took since the last result."""
    client, is_answer = request.client, False
    silent = client.gap_timer.call_started()
    if silent is not None and "requestState" not in request.params and (stats := service.app.runtime.stats):
        stats.record_gap(client.name, silent, lasting_owner())
    try:
        result = await _call(service, request)
        is_answer = result.get("resultType") not in UNFINISHED
    except JsonRpcError:
        is_answer = True
        raise
    finally:
        client.gap_timer.call_ended(is_answer)
    return result


async def _call(service: Service, request: McpRequest) -> dict[str, Any]:
    if request.entry is None and (untrusted := _untrusted_error(service, request)):
        return for_revision({"content": [text_block(untrusted)], "isError": True}, request.client.revision)
    entry = request.entry or find_entry(service, request.client, request.param("name"))
    args = request.param("arguments", dict, None) or {}
    # Clients from before there were tasks have only one way to have it: to wait.
    if entry.needs_task and request.client.is_stateless and not request.client.can(TASKS):
        raise missing_capability(TASKS, f"{entry.name} may take long, and is for clients that know tasks")

    async def work(caller: ClientCaller) -> dict[str, Any]:
        try:
            result = await entry.call(args, caller)
        except BadArguments as error:
            words = "\n".join((str(error), *(f"  {hint}" for hint in error.hints)))
            return {"content": [text_block(words)], "isError": True}
        if result.get("isError") and (failure := lacking_capability(caller)):
            raise failure
        return for_revision(result, request.client.revision)

    return await run_pausable(request, work, service.pending_calls, entry.task_after)


def _untrusted_error(service: Service, request: McpRequest) -> str | None:
    """The error for a tool of a folder that is not trusted yet; None otherwise."""
    untrusted, name = service.app.untrusted, request.param("name")
    if untrusted is None or name in service.menu(request.client).entries or not untrusted.defines(name):
        return None
    return f"{name:.100}: {untrusted.folder} is {untrusted.short}"


def find_entry(service: Service, client: RemoteClient, name: str) -> MenuEntry:
    """The entry of the client's menu by its name. Raises JsonRpcError."""
    menu = service.menu(client)
    if name in menu.entries:
        return menu.entries[name]
    from onetool.core.text import or_rather

    raise JsonRpcError(INVALID_PARAMS, f"Unknown tool: {name:.100}{or_rather(name, menu.entries)}")


async def get_task(service: Service, request: McpRequest) -> dict[str, Any]:
    _check_tasks(request)
    id, ttl_ms = request.param("taskId"), service.pending_calls.ttl_ms
    if service.tasks is not None and service.tasks.is_lost(id):
        return await service.tasks.lost(id, request.client, ttl_ms)
    return service.pending_calls.task(id, request.client).task(ttl_ms)


async def update_task(service: Service, request: McpRequest) -> dict[str, Any]:
    _check_tasks(request)
    pending = await _running_task(service, request)
    pending.take_answers(request.param("inputResponses", dict))
    return {}


async def cancel_task(service: Service, request: McpRequest) -> dict[str, Any]:
    _check_tasks(request)
    (await _running_task(service, request)).cancel()
    return {}


async def _running_task(service: Service, request: McpRequest) -> PendingCall:
    """A task of this replica. Raises JsonRpcError."""
    id = request.param("taskId")
    if service.tasks is not None and service.tasks.is_lost(id):
        await service.tasks.lost(id, request.client, 0)  # who does not own it learns nothing else
        raise JsonRpcError(INVALID_PARAMS, f"taskId: {TASK_GONE}")
    return service.pending_calls.task(id, request.client)


def _check_tasks(request: McpRequest) -> None:
    if not request.client.can(TASKS):
        raise missing_capability(TASKS, f"{request.method} is for clients that declare the extension {TASKS}")
