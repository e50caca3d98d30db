"""completion/complete: what a person may want to type next, for the arguments of prompts and templates."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from onetool.interfaces.mcp.request import Request
from onetool.interfaces.mcp.resources import TOOLS
from onetool.interfaces.mcp.wire import INVALID_PARAMS, Fault

if TYPE_CHECKING:
    from onetool.interfaces.mcp.service import Service

MOST = 100  # the protocol's own limit


async def complete(service: "Service", request: Request) -> dict[str, Any]:
    ref, argument = request.param("ref", dict), request.param("argument", dict)
    name, begun = argument.get("name"), argument.get("value")
    if not isinstance(name, str) or not isinstance(begun, str):
        raise Fault(INVALID_PARAMS, "params.argument: expected a name and a value, both texts")
    if ref.get("type") == "ref/prompt":
        words = _of_prompt(service, str(ref.get("name")), name)
    elif ref.get("type") == "ref/resource":
        words = _of_template(service, str(ref.get("uri")))
    else:
        raise Fault(INVALID_PARAMS, "params.ref.type: expected ref/prompt or ref/resource")
    fitting = [word for word in dict.fromkeys(words) if word.lower().startswith(begun.lower())]
    return {"completion": {"values": fitting[:MOST], "total": len(fitting), "hasMore": len(fitting) > MOST}}


def _of_prompt(service: "Service", prompt: str, argument: str) -> Iterable[str]:
    snippets, prompts = service.app.config.snippets, service.prompts()
    if prompt in snippets:
        param = snippets[prompt].params.get(argument)
        return () if param is None else _values(param.kind, param.default)
    if prompt in prompts:
        schema = prompts[prompt].spec.input_schema["properties"].get(argument, {})
        return (*map(str, schema.get("enum", ())), *_values(schema.get("type"), schema.get("default")))
    raise Fault(INVALID_PARAMS, f"Unknown prompt: {prompt:.100}")


def _values(kind: Any, default: Any) -> Iterable[str]:
    if kind == "boolean":
        return ("true", "false")
    return (str(default),) if isinstance(default, str | int | float) and default != "" else ()


def _of_template(service: "Service", uri: str) -> Iterable[str]:
    return [spec.name for spec in service.app.tools(service.allowed)] if uri == f"{TOOLS}/{{name}}" else ()
