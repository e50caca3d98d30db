"""resources/list, resources/templates/list and resources/read: the tools, stored results, and what packs offer."""

import asyncio
from typing import TYPE_CHECKING, Any

from onetool.core.errors import ToolFailure
from onetool.core.registry import Resource
from onetool.core.signature import signature
from onetool.interfaces.mcp.client import ClientCaller
from onetool.interfaces.mcp.content import RESULTS, as_json, media_in
from onetool.interfaces.mcp.pending_calls import lacking_capability, run_pausable
from onetool.interfaces.mcp.protocol import INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND, JsonRpcError
from onetool.interfaces.mcp.request import McpRequest, page
from onetool.services.results.errors import ResultTooLargeError

if TYPE_CHECKING:
    from onetool.interfaces.mcp.service import Service

TOOLS = "ot://tools"
LONGEST_URI = 2048
LARGEST_RESULT = 32 * 1024 * 1024  # bytes: as much as a server may have sent us at once, a picture for example

_TOOLS_LISTING = {
    "uri": TOOLS,
    "name": "tools",
    "title": "All tools",
    "description": "Every tool that can be called here: its name and what it does, a line each",
    "mimeType": "text/plain",
}
_OWN_TEMPLATES = [
    {
        "uriTemplate": f"{TOOLS}/{{name}}",
        "name": "tool",
        "description": "One tool: its signature, description and schemas",
        "mimeType": "application/json",
    },
    {
        "uriTemplate": f"{RESULTS}{{handle}}",
        "name": "result",
        "description": "A large result that was stored, whole; one of more than 32 MiB only in parts, by ot.result",
        "mimeType": "text/plain",
    },
]


def resource_listing(service: "Service") -> list[dict[str, Any]]:
    return [_TOOLS_LISTING, *({"uri": one.uri, **_listing(one)} for one in service.resources() if not one.variables)]


def template_listing(service: "Service") -> list[dict[str, Any]]:
    theirs = [{"uriTemplate": one.uri, **_listing(one)} for one in service.resources() if one.variables]
    return [*_OWN_TEMPLATES, *theirs]


async def list_resources(service: "Service", request: McpRequest) -> dict[str, Any]:
    return page("resources", resource_listing(service), request)


async def list_templates(service: "Service", request: McpRequest) -> dict[str, Any]:
    return page("resourceTemplates", template_listing(service), request)


async def read_resource(service: "Service", request: McpRequest) -> dict[str, Any]:
    uri = request.param("uri")
    if len(uri) > LONGEST_URI:
        raise _not_found(request, uri[:LONGEST_URI])
    if (own := await asyncio.to_thread(_own_resource, service, request, uri)) is not None:
        return {"contents": [{"uri": uri, **own}]}
    for resource in service.resources():
        if (args := resource.match(uri)) is not None:
            break
    else:
        raise _not_found(request, uri)

    async def work(caller: ClientCaller) -> dict[str, Any]:
        result = await service.offer(resource.spec, args)
        if result.error is not None:
            if result.error.reason == "not_found":
                raise _not_found(request, uri)
            raise lacking_capability(caller) or JsonRpcError(INTERNAL_ERROR, result.error.message)
        return {"contents": [{"uri": uri, **_content(result.data, resource.mime_type)}]}

    return await run_pausable(request, work, service.pending_calls)


def has_resource(service: "Service", uri: str) -> bool:
    """Whether there is a resource at this URI, as far as is known without reading it."""
    if len(uri) > LONGEST_URI:
        return False
    if uri == TOOLS or uri.startswith((f"{TOOLS}/", RESULTS)):
        return True
    return any(one.match(uri) is not None for one in service.resources())


def _own_resource(service: "Service", request: McpRequest, uri: str) -> dict[str, Any] | None:
    """The content of an `ot://` resource; None for other URIs."""
    if uri == TOOLS:
        lines = (f"{spec.name}: {_first_line(spec.description)}" for spec in service.app.tools(service.allowed))
        return {"mimeType": "text/plain", "text": "\n".join(lines)}
    if uri.startswith(f"{TOOLS}/"):
        from urllib.parse import unquote

        name = unquote(uri.removeprefix(f"{TOOLS}/"))
        spec = next((one for one in service.app.tools(service.allowed) if one.name == name), None)
        if spec is None:
            raise _not_found(request, uri)
        data = {"signature": signature(spec), **spec.summary(), "outputSchema": spec.output_schema}
        if spec.seen is not None:
            data["inferredOutput"] = spec.seen.schema()
        return {"mimeType": "application/json", "text": as_json(data)}
    if uri.startswith(RESULTS):
        try:
            text = service.app.runtime.results.read(uri.removeprefix(RESULTS), request.client.owner, LARGEST_RESULT)
        except ResultTooLargeError as failure:
            raise JsonRpcError(INTERNAL_ERROR, str(failure), {"uri": uri}) from None
        except ToolFailure as failure:
            raise _not_found(request, uri, str(failure)) from None
        media = media_in(text)
        return {"mimeType": "text/plain", "text": text} if media is None else {"mimeType": media[0], "blob": media[1]}
    return None


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _listing(resource: Resource) -> dict[str, Any]:
    mime = {"mimeType": resource.mime_type} if resource.mime_type else {}
    return {"name": resource.name, "description": resource.spec.description, **mime}


def _content(value: dict[str, Any], mime_type: str | None) -> dict[str, Any]:
    kind, inside = next(iter(value.items()))
    if kind == "data":
        return {"mimeType": mime_type or "application/json", "text": as_json(inside)}
    return {"mimeType": mime_type or ("text/plain" if kind == "text" else "application/octet-stream"), kind: inside}


def _not_found(request: McpRequest, uri: str, why: str | None = None) -> JsonRpcError:
    code = INVALID_PARAMS if request.client.is_stateless else RESOURCE_NOT_FOUND
    return JsonRpcError(code, why or f"Resource not found: {uri:.200}", {"uri": uri})
