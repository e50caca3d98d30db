"""The methods of resources and prompts, and completion/complete.

Resources are the tools, stored results, and resources of packs; prompts are snippets and prompts of packs.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from onetool.core.call import ServerResult, ToolResult
from onetool.core.errors import ToolFailure
from onetool.core.mcp_protocol import AWAY, INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND, JsonRpcError
from onetool.core.registry import Prompt, Resource
from onetool.core.signature import signature
from onetool.core.spec import ToolSpec
from onetool.core.text import or_rather
from onetool.database import DatabaseError
from onetool.interfaces.mcp.client import ClientCaller, McpRequest
from onetool.interfaces.mcp.content import (
    RESULTS,
    Read,
    as_json,
    blocks_of,
    is_block,
    media_in,
    protocol_error,
    text_block,
)
from onetool.interfaces.mcp.pending_calls import lacking_capability, run_pausable
from onetool.services.results import ResultTooLargeError
from onetool.sources.mcp_servers.apps import address_there

if TYPE_CHECKING:
    from onetool.config.model import Snippet
    from onetool.interfaces.mcp.service import Service

# Resources

TOOLS = "ot://tools"
MAX_URI = 2048
MAX_RESULT = 32 * 1024 * 1024  # bytes: the limit for a response of a server, for example an image

_MIME_TYPES = {"data": "application/json", "text": "text/plain", "blob": "application/octet-stream"}
_TOOLS_LISTING = {
    "uri": TOOLS,
    "name": "tools",
    "title": "All tools",
    "description": "Every tool that can be called: one line with its name and what it does",
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
        "description": "A stored large result in full; results over 32 MiB can only be read in parts, with ot.result",
        "mimeType": "text/plain",
    },
]


def resource_listing(service: "Service") -> list[dict[str, Any]]:
    theirs = [{"uri": one.uri, **_members(one)} for one in service.resources() if not one.variables]
    return theirs if service.menus.is_bare else [_TOOLS_LISTING, *theirs]


def template_listing(service: "Service") -> list[dict[str, Any]]:
    theirs = [{"uriTemplate": one.uri, **_members(one)} for one in service.resources() if one.variables]
    return theirs if service.menus.is_bare else [*_OWN_TEMPLATES, *theirs]


async def read_resource(service: "Service", request: McpRequest) -> dict[str, Any]:
    uri = request.param("uri")
    if len(uri) > MAX_URI:
        raise _not_found(request, uri[:MAX_URI])
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
            raise (
                lacking_capability(caller) or _sent_error(result) or JsonRpcError(INTERNAL_ERROR, result.error.message)
            )
        if "contents" in result.data:  # from an MCP server, which set the types of the parts
            there = address_there(resource.spec.pack, uri)
            contents = [{**part, "uri": uri} if part.get("uri") == there else part for part in result.data["contents"]]
            return {**result.data, "contents": contents}
        kind, inside = next(iter(result.data.items()))
        content = {"text": as_json(inside)} if kind == "data" else {kind: inside}
        return {"contents": [{"uri": uri, "mimeType": resource.mime_type or _MIME_TYPES[kind], **content}]}

    return await run_pausable(request, work, service.pending_calls)


def has_resource(service: "Service", uri: str) -> bool:
    """Return whether there is a resource at this URI, as far as can be known without reading it."""
    if len(uri) > MAX_URI:
        return False
    if uri == TOOLS or uri.startswith((f"{TOOLS}/", RESULTS)):
        return True
    return any(one.match(uri) is not None for one in service.resources())


def _own_resource(service: "Service", request: McpRequest, uri: str) -> dict[str, Any] | None:
    """Return the content of an `ot://` resource; None for other URIs."""
    if uri == TOOLS:
        gists = ((one.name, one.description.strip().partition("\n")[0]) for one in service.app.tools(service.allowed))
        return {"mimeType": "text/plain", "text": "\n".join(f"{name}: {gist}" for name, gist in gists)}
    if uri.startswith(f"{TOOLS}/"):
        from urllib.parse import unquote

        name = unquote(uri.removeprefix(f"{TOOLS}/"))
        spec = next((one for one in service.app.tools(service.allowed) if one.name == name), None)
        if spec is None:
            raise _not_found(request, uri)
        data = {"signature": signature(spec), **spec.summary(), "outputSchema": spec.output_schema}
        if spec.observed is not None:
            data["inferredOutput"] = spec.observed.schema()
        return {"mimeType": "application/json", "text": as_json(data)}
    if uri.startswith(RESULTS):
        try:
            results, handle = service.app.runtime.results, uri.removeprefix(RESULTS)
            text = results.read(handle, results.owner_of(handle, request.client.principal.owners), MAX_RESULT)
        except ResultTooLargeError as failure:
            raise JsonRpcError(INTERNAL_ERROR, str(failure), {"uri": uri}) from None
        except ToolFailure as failure:
            if isinstance(failure.__cause__, DatabaseError):
                raise JsonRpcError(INTERNAL_ERROR, str(failure), AWAY) from None
            raise _not_found(request, uri, str(failure)) from None
        media = media_in(text)
        return {"mimeType": "text/plain", "text": text} if media is None else {"mimeType": media[0], "blob": media[1]}
    return None


def _members(resource: Resource) -> dict[str, Any]:
    mime = {"mimeType": resource.mime_type} if resource.mime_type else {}
    return {"name": resource.name, **_description(resource.spec), **mime, **resource.server_listing}


def _sent_error(result: ToolResult) -> JsonRpcError | None:
    """Return the error that an MCP server sent, if the result is of one."""
    return protocol_error(result) if isinstance(result, ServerResult) else None


def _description(spec: ToolSpec) -> dict[str, str]:
    return {"description": spec.description} if spec.description else {}


def _not_found(request: McpRequest, uri: str, why: str | None = None) -> JsonRpcError:
    code = INVALID_PARAMS if request.client.is_stateless else RESOURCE_NOT_FOUND
    return JsonRpcError(code, why or f"Resource not found: {uri:.200}", {"uri": uri})


# Prompts

ROLES = ("user", "assistant")


def prompt_listing(service: "Service") -> list[dict[str, Any]]:
    snippets = service.snippets()
    theirs = (_pack_listing(name, one) for name, one in service.prompts().items() if name not in snippets)
    return [*(_snippet_listing(name, snippet) for name, snippet in snippets.items()), *theirs]


async def get_prompt(service: "Service", request: McpRequest) -> dict[str, Any]:
    snippets, name = service.snippets(), request.param("name")
    args = request.param("arguments", dict, None) or {}
    if name in snippets:
        return _snippet(name, snippets[name], args)
    prompts = service.prompts()
    if name not in prompts:
        known = [*snippets, *prompts]
        raise JsonRpcError(INVALID_PARAMS, f"Unknown prompt: {name:.100}{or_rather(name, known)}")
    prompt = prompts[name]

    async def work(caller: ClientCaller) -> dict[str, Any]:
        properties = prompt.spec.input_schema["properties"]
        typed = {key: _typed_value(value, properties.get(key, {})) for key, value in args.items()}
        result = await service.offer(prompt.spec, typed)
        if result.error is not None:
            wrong = result.error.code == "invalid_args"
            code = INVALID_PARAMS if wrong else INTERNAL_ERROR
            raise lacking_capability(caller) or _sent_error(result) or JsonRpcError(code, result.error.message)
        if prompt.server_listing is not None:
            return result.data
        return {**_description(prompt.spec), "messages": _messages(result.data, service.app.runtime.read_result)}

    return await run_pausable(request, work, service.pending_calls)


def _snippet_listing(name: str, snippet: Any) -> dict[str, Any]:
    from onetool.script.snippets import parameters

    known = [
        {"name": one["name"], "description": one["description"], "required": one["required"]}
        for one in parameters(snippet)
    ]
    return {"name": name, "description": snippet.description or f"The snippet ${name}", "arguments": known}


def _snippet(name: str, snippet: "Snippet", args: Mapping[str, Any]) -> dict[str, Any]:
    from onetool.script.snippets import SnippetError, render_snippet

    try:
        code = render_snippet(snippet, args, name)
    except SnippetError as error:
        raise JsonRpcError(INVALID_PARAMS, str(error)) from None
    words = f"Run this code with the tool `run`, and tell me the result:\n\n```python\n{code.strip()}\n```"
    return {"description": snippet.description, "messages": [{"role": "user", "content": text_block(words)}]}


def _pack_listing(name: str, prompt: Prompt) -> dict[str, Any]:
    if prompt.server_listing is not None:
        return {"name": name, **_description(prompt.spec), **prompt.server_listing}
    schema = prompt.spec.input_schema
    required = schema.get("required", ())
    arguments = [
        {"name": argument, "description": one.get("description", ""), "required": argument in required}
        for argument, one in schema["properties"].items()
    ]
    title = {"title": prompt.title} if prompt.title else {}
    return {"name": name, **title, **_description(prompt.spec), "arguments": arguments}


def _typed_value(value: Any, schema: Mapping[str, Any]) -> Any:
    """Parse an argument, which clients send as text, as JSON if its schema has another type."""
    if not isinstance(value, str) or schema.get("type", "string") == "string" or len(value) > 10_000:
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _messages(value: Any, read: Read) -> list[dict[str, Any]]:
    """Convert the result of a prompt (text, content blocks, or messages with roles) to messages."""
    if isinstance(value, str):
        return [{"role": "user", "content": text_block(value)}]
    if isinstance(value, list) and value and all(map(_is_message, value)):
        contents = [text_block(one["content"]) if isinstance(one["content"], str) else one["content"] for one in value]
        return [{"role": one["role"], "content": content} for one, content in zip(value, contents, strict=True)]
    if (blocks := blocks_of(value, read)) is not None:
        return [{"role": "user", "content": block} for block in blocks]
    return [{"role": "user", "content": text_block(as_json(value))}]


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or value.keys() != {"role", "content"} or value["role"] not in ROLES:
        return False
    return isinstance(value["content"], str) or is_block(value["content"])


# completion/complete

MAX_COMPLETIONS = 100  # the protocol's own limit


async def complete(service: "Service", request: McpRequest) -> dict[str, Any]:
    ref, argument = request.param("ref", dict), request.param("argument", dict)
    name, begun = argument.get("name"), argument.get("value")
    if not isinstance(name, str) or not isinstance(begun, str):
        raise JsonRpcError(INVALID_PARAMS, "params.argument: expected a name and a value, both strings")
    if ref.get("type") == "ref/prompt":
        words = _of_prompt(service, str(ref.get("name")), name)
    elif ref.get("type") == "ref/resource":
        names_tool = ref.get("uri") == f"{TOOLS}/{{name}}"
        words = [spec.name for spec in service.app.tools(service.allowed)] if names_tool else ()
    else:
        raise JsonRpcError(INVALID_PARAMS, "params.ref.type: expected ref/prompt or ref/resource")
    fitting = [word for word in dict.fromkeys(words) if word.lower().startswith(begun.lower())]
    return {
        "completion": {
            "values": fitting[:MAX_COMPLETIONS],
            "total": len(fitting),
            "hasMore": len(fitting) > MAX_COMPLETIONS,
        }
    }


def _of_prompt(service: "Service", prompt: str, argument: str) -> Iterable[str]:
    snippets, prompts = service.snippets(), service.prompts()
    if prompt in snippets:
        param = snippets[prompt].params.get(argument)
        return () if param is None else _values(param.kind, param.default)
    if prompt in prompts:
        schema = prompts[prompt].spec.input_schema["properties"].get(argument, {})
        return (*map(str, schema.get("enum", ())), *_values(schema.get("type"), schema.get("default")))
    raise JsonRpcError(INVALID_PARAMS, f"Unknown prompt: {prompt:.100}")


def _values(kind: Any, default: Any) -> Iterable[str]:
    if kind == "boolean":
        return ("true", "false")
    return (str(default),) if isinstance(default, str | int | float) and default != "" else ()
