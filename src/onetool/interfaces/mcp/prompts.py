"""The methods prompts/list, prompts/get and completion/complete: snippets of the config, and prompts of packs."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from onetool.core.registry import Prompt
from onetool.interfaces.mcp.client import ClientCaller
from onetool.interfaces.mcp.content import as_json, blocks_of, is_block, text_block
from onetool.interfaces.mcp.pending_calls import lacking_capability, run_pausable
from onetool.interfaces.mcp.protocol import INTERNAL_ERROR, INVALID_PARAMS, JsonRpcError
from onetool.interfaces.mcp.request import McpRequest, page
from onetool.interfaces.mcp.resources import TOOLS

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.interfaces.mcp.service import Service


ROLES = ("user", "assistant")


def prompt_listing(service: "Service") -> list[dict[str, Any]]:
    snippets = service.app.config.snippets
    theirs = (_listing(one) for name, one in service.prompts().items() if name not in snippets)
    return [*(_snippet_listing(name, snippet) for name, snippet in snippets.items()), *theirs]


async def list_prompts(service: "Service", request: McpRequest) -> dict[str, Any]:
    return page("prompts", prompt_listing(service), request)


async def get_prompt(service: "Service", request: McpRequest) -> dict[str, Any]:
    app, name = service.app, request.param("name")
    args = request.param("arguments", dict, None) or {}
    if name in app.config.snippets:
        return _snippet(app, name, args)
    prompts = service.prompts()
    if name not in prompts:
        from onetool.core.text import or_rather

        known = [*app.config.snippets, *prompts]
        raise JsonRpcError(INVALID_PARAMS, f"Unknown prompt: {name:.100}{or_rather(name, known)}")
    prompt = prompts[name]

    async def work(caller: ClientCaller) -> dict[str, Any]:
        result = await service.offer(prompt.spec, _typed_arguments(prompt, args))
        if result.error is not None:
            wrong = result.error.code == "invalid_args"
            raise lacking_capability(caller) or JsonRpcError(
                INVALID_PARAMS if wrong else INTERNAL_ERROR, result.error.message
            )
        return {"description": prompt.spec.description, "messages": _messages(result.data)}

    return await run_pausable(request, work, service.pending_calls)


def _snippet_listing(name: str, snippet: Any) -> dict[str, Any]:
    from onetool.script.snippets import parameters

    known = [
        {"name": one["name"], "description": one["description"], "required": one["required"]}
        for one in parameters(snippet)
    ]
    return {"name": name, "description": snippet.description or f"The snippet ${name}", "arguments": known}


def _snippet(app: "App", name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    from onetool.script.snippets import SnippetError, render_snippet

    snippet = app.config.snippets[name]
    try:
        code = render_snippet(snippet, args, name)
    except SnippetError as error:
        raise JsonRpcError(INVALID_PARAMS, str(error)) from None
    words = f"Run this code with the tool `run`, and tell me what comes of it:\n\n```python\n{code.strip()}\n```"
    return {"description": snippet.description, "messages": [{"role": "user", "content": text_block(words)}]}


def _listing(prompt: Prompt) -> dict[str, Any]:
    schema = prompt.spec.input_schema
    required = schema.get("required", ())
    arguments = [
        {"name": name, "description": one.get("description", ""), "required": name in required}
        for name, one in schema["properties"].items()
    ]
    title = {"title": prompt.title} if prompt.title else {}
    return {"name": prompt.name, **title, "description": prompt.spec.description, "arguments": arguments}


def _typed_arguments(prompt: Prompt, args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with their types: clients send texts, which are parsed as JSON if the schema wants another type."""
    properties = prompt.spec.input_schema["properties"]
    return {name: _typed_value(value, properties.get(name, {})) for name, value in args.items()}


def _typed_value(value: Any, schema: Mapping[str, Any]) -> Any:
    if not isinstance(value, str) or schema.get("type", "string") == "string" or len(value) > 10_000:
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _messages(value: Any) -> list[dict[str, Any]]:
    """The result of a prompt as messages: from a text, content blocks, or messages with roles."""
    if isinstance(value, str):
        return [{"role": "user", "content": text_block(value)}]
    if (blocks := blocks_of(value)) is not None:
        return [{"role": "user", "content": block} for block in blocks]
    if isinstance(value, list) and value and all(map(_is_message, value)):
        return [{"role": one["role"], "content": _content(one["content"])} for one in value]
    return [{"role": "user", "content": text_block(as_json(value))}]


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or value.keys() != {"role", "content"} or value["role"] not in ROLES:
        return False
    return isinstance(value["content"], str) or is_block(value["content"])


def _content(value: Any) -> dict[str, Any]:
    return text_block(value) if isinstance(value, str) else value


# completion/complete


MOST_COMPLETIONS = 100  # the protocol's own limit


async def complete(service: "Service", request: McpRequest) -> dict[str, Any]:
    ref, argument = request.param("ref", dict), request.param("argument", dict)
    name, begun = argument.get("name"), argument.get("value")
    if not isinstance(name, str) or not isinstance(begun, str):
        raise JsonRpcError(INVALID_PARAMS, "params.argument: expected a name and a value, both texts")
    if ref.get("type") == "ref/prompt":
        words = _of_prompt(service, str(ref.get("name")), name)
    elif ref.get("type") == "ref/resource":
        words = _of_template(service, str(ref.get("uri")))
    else:
        raise JsonRpcError(INVALID_PARAMS, "params.ref.type: expected ref/prompt or ref/resource")
    fitting = [word for word in dict.fromkeys(words) if word.lower().startswith(begun.lower())]
    return {
        "completion": {
            "values": fitting[:MOST_COMPLETIONS],
            "total": len(fitting),
            "hasMore": len(fitting) > MOST_COMPLETIONS,
        }
    }


def _of_prompt(service: "Service", prompt: str, argument: str) -> Iterable[str]:
    snippets, prompts = service.app.config.snippets, service.prompts()
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


def _of_template(service: "Service", uri: str) -> Iterable[str]:
    return [spec.name for spec in service.app.tools(service.allowed)] if uri == f"{TOOLS}/{{name}}" else ()
