"""prompts/list and prompts/get: snippets of the config, and what packs offer."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onetool.app import App
from onetool.core.offer import Prompt
from onetool.interfaces.mcp.caller import ClientCaller
from onetool.interfaces.mcp.content import as_json, blocks_of, is_block, text_block
from onetool.interfaces.mcp.paging import page
from onetool.interfaces.mcp.pausing import carried_out, lacking
from onetool.interfaces.mcp.request import Request
from onetool.interfaces.mcp.wire import INTERNAL_ERROR, INVALID_PARAMS, Fault

if TYPE_CHECKING:
    from onetool.interfaces.mcp.service import Service

ROLES = ("user", "assistant")


def prompt_listing(service: "Service") -> list[dict[str, Any]]:
    snippets = service.app.config.snippets
    theirs = (_listing(one) for name, one in service.prompts().items() if name not in snippets)
    return [*(_snippet_listing(name, snippet) for name, snippet in snippets.items()), *theirs]


async def list_prompts(service: "Service", request: Request) -> dict[str, Any]:
    return page("prompts", prompt_listing(service), request)


async def get_prompt(service: "Service", request: Request) -> dict[str, Any]:
    app, name = service.app, request.param("name")
    args = request.param("arguments", dict, None) or {}
    if name in app.config.snippets:
        return _snippet(app, name, args)
    prompts = service.prompts()
    if name not in prompts:
        from onetool.core.nearest import or_rather

        known = [*app.config.snippets, *prompts]
        raise Fault(INVALID_PARAMS, f"Unknown prompt: {name:.100}{or_rather(name, known)}")
    prompt = prompts[name]

    async def work(caller: ClientCaller) -> dict[str, Any]:
        result = await service.offer(prompt.spec, _typed(prompt, args))
        if result.error is not None:
            wrong = result.error.code == "invalid_args"
            raise lacking(caller) or Fault(INVALID_PARAMS if wrong else INTERNAL_ERROR, result.error.message)
        return {"description": prompt.spec.description, "messages": _messages(result.data)}

    return await carried_out(request, work, service.errands)


def _snippet_listing(name: str, snippet: Any) -> dict[str, Any]:
    from onetool.script.snippets import parameters

    known = [
        {"name": one["name"], "description": one["description"], "required": one["required"]}
        for one in parameters(snippet)
    ]
    return {"name": name, "description": snippet.description or f"The snippet ${name}", "arguments": known}


def _snippet(app: App, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    from onetool.script.snippets import SnippetError, render

    snippet = app.config.snippets[name]
    try:
        code = render(snippet, args, name)
    except SnippetError as error:
        raise Fault(INVALID_PARAMS, str(error)) from None
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


def _typed(prompt: Prompt, args: Mapping[str, Any]) -> dict[str, Any]:
    """Clients send texts. Where another type is wanted, the text is read as what it says."""
    properties = prompt.spec.input_schema["properties"]
    return {name: _read(value, properties.get(name, {})) for name, value in args.items()}


def _read(value: Any, schema: Mapping[str, Any]) -> Any:
    if not isinstance(value, str) or schema.get("type", "string") == "string" or len(value) > 10_000:
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _messages(value: Any) -> list[dict[str, Any]]:
    """What a prompt gave: a text, content, or messages with their roles."""
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
