"""tools/list and tools/call, and the tasks that calls may become."""

from typing import Any

from onetool.core.errors import BadArguments
from onetool.interfaces.mcp.caller import ClientCaller
from onetool.interfaces.mcp.client import Client
from onetool.interfaces.mcp.content import readable, text_block
from onetool.interfaces.mcp.menus.entry import Entry
from onetool.interfaces.mcp.menus.weight import tell
from onetool.interfaces.mcp.paging import page
from onetool.interfaces.mcp.pausing import carried_out, lacking, missing
from onetool.interfaces.mcp.request import Request
from onetool.interfaces.mcp.revisions import TASKS
from onetool.interfaces.mcp.service import Service
from onetool.interfaces.mcp.wire import INVALID_PARAMS, Fault

UNFINISHED = ("task", "input_required")  # results that the client has to come back for


async def list_tools(service: Service, request: Request) -> dict[str, Any]:
    menu = service.menu(request.client)
    listed = page("tools", menu.listing, request)
    if request.params.get("cursor") is None:
        tell(service.app, menu, request.client.name)
    return listed


async def call_tool(service: Service, request: Request) -> dict[str, Any]:
    """Answer it; and count how long its client took to come with it, since the last answer."""
    client, is_answer = request.client, False
    silent = client.peer.calls()
    if silent is not None and "requestState" not in request.params and (stats := service.app.stats):
        stats.waited(client.name, silent)
    try:
        result = await _called(service, request)
        is_answer = result.get("resultType") not in UNFINISHED
    except Fault:
        is_answer = True
        raise
    finally:
        client.peer.gets(is_answer)
    return result


async def _called(service: Service, request: Request) -> dict[str, Any]:
    if request.entry is None and (waits := _untrusted(service, request)):
        return readable({"content": [text_block(waits)], "isError": True}, request.client.revision)
    entry = request.entry or wanted(service, request.client, request.param("name"))
    args = request.param("arguments", dict, None) or {}
    # Clients from before there were tasks have only one way to have it: to wait.
    if entry.needs_task and request.client.is_modern and not request.client.can(TASKS):
        raise missing(TASKS, f"{entry.name} may take long, and is for clients that know tasks")

    async def work(caller: ClientCaller) -> dict[str, Any]:
        try:
            result = await entry.call(args, caller)
        except BadArguments as error:
            words = "\n".join((str(error), *(f"  {hint}" for hint in error.hints)))
            return {"content": [text_block(words)], "isError": True}
        if result.get("isError") and (fault := lacking(caller)):
            raise fault
        return readable(result, request.client.revision)

    return await carried_out(request, work, service.errands, entry.task_after)


def _untrusted(service: Service, request: Request) -> str | None:
    """Why a tool is not there that a folder would give which nobody has trusted yet."""
    waits, name = service.app.untrusted, request.param("name")
    if waits is None or name in service.menu(request.client).entries or not waits.defines(name):
        return None
    return f"{name:.100}: {waits.folder} is {waits.short}"


def wanted(service: Service, client: Client, name: str) -> Entry:
    """The tool of the client's menu that it calls."""
    menu = service.menu(client)
    if name in menu.entries:
        return menu.entries[name]
    from onetool.core.nearest import or_rather

    raise Fault(INVALID_PARAMS, f"Unknown tool: {name:.100}{or_rather(name, menu.entries)}")


async def get_task(service: Service, request: Request) -> dict[str, Any]:
    _know_tasks(request)
    return service.errands.task(request.param("taskId"), request.client).task(service.errands.ttl_ms)


async def update_task(service: Service, request: Request) -> dict[str, Any]:
    _know_tasks(request)
    errand = service.errands.task(request.param("taskId"), request.client)
    errand.give(request.param("inputResponses", dict))
    return {}


async def cancel_task(service: Service, request: Request) -> dict[str, Any]:
    _know_tasks(request)
    service.errands.task(request.param("taskId"), request.client).cancel()
    return {}


def _know_tasks(request: Request) -> None:
    if not request.client.can(TASKS):
        raise missing(TASKS, f"{request.method} is for clients that declare the extension {TASKS}")
