"""The providers: what one tool looks like to each, and how each may spell names."""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from onetool.core.errors import UnknownProviderError
from onetool.core.nearest import did_you_mean
from onetool.core.spec import ToolSpec
from onetool.core.wrapper import wrapped_schema
from onetool.formats.plain import plain_parameters, thaw
from onetool.formats.schema_subset import gemini_parameters

Tool = dict[str, Any]

_ANTHROPIC_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Provider(NamedTuple):
    """How one provider wants its tools."""

    shape: Callable[[ToolSpec, str], Tool]
    merged: Callable[[list[Tool]], list[Tool]] | None = None
    letter_first: bool = False  # names must start with a letter or an underscore


def find_provider(provider: str) -> Provider:
    """The provider of that name, or an error that tells the known ones."""
    if provider in PROVIDERS:
        return PROVIDERS[provider]
    message = f"provider {provider!r} is not supported; the supported ones are {', '.join(PROVIDERS)}"
    hint = did_you_mean(str(provider), PROVIDERS, most=1)
    raise UnknownProviderError(f"{message}; {hint}" if hint else message)


def _function(spec: ToolSpec, name: str) -> Tool:
    parameters = plain_parameters(spec.input_schema)
    return {"type": "function", "function": {"name": name, "description": spec.description, "parameters": parameters}}


def _gemini(spec: ToolSpec, name: str) -> Tool:
    parameters = gemini_parameters(spec.input_schema)
    return {"functionDeclarations": [{"name": name, "description": spec.description, "parameters": parameters}]}


def _gemini_merged(tools: list[Tool]) -> list[Tool]:
    declarations = [declaration for tool in tools for declaration in tool["functionDeclarations"]]
    return [{"functionDeclarations": declarations}] if declarations else []


def _anthropic(spec: ToolSpec, name: str) -> Tool:
    schema = _with_good_keys(plain_parameters(spec.input_schema))
    return {"name": name, "description": spec.description, "input_schema": schema}


def _with_good_keys(schema: dict[str, Any]) -> dict[str, Any]:
    """Arguments whose key Anthropic would refuse, and the whole request with it, are told in words instead."""
    odd = {
        key: schema["properties"].pop(key) for key in list(schema["properties"]) if not _ANTHROPIC_KEY.fullmatch(key)
    }
    if odd:
        schema["required"] = [key for key in schema.get("required", []) if key not in odd]
        told = f"Further arguments: {json.dumps(odd, ensure_ascii=False)}"
        schema["description"] = f"{schema['description']} {told}" if schema.get("description") else told
    return schema


def _mcp(spec: ToolSpec, name: str) -> Tool:
    tool: Tool = {"name": name, "description": spec.description, "inputSchema": _mcp_schema(spec.input_schema)}
    if (output := spec.structured_schema or structured(spec)) is not None:
        tool["outputSchema"] = thaw(output)
    hints = {"readOnlyHint": spec.read_only or spec.pure, "idempotentHint": spec.idempotent or spec.pure}
    if any(hints.values()):
        tool["annotations"] = {hint: True for hint, is_set in hints.items() if is_set}
    return tool


def structured(spec: ToolSpec) -> Any:
    """Structured results are objects in MCP: clients drop the whole list for an output schema of another type."""
    is_object = isinstance(spec.output_schema, dict) and spec.output_schema.get("type") == "object"
    return spec.output_schema if is_object else wrapped_schema(spec.output_schema)


def _mcp_schema(schema: Any) -> dict[str, Any]:
    """The full JSON Schema, since MCP takes any, as long as its top says that it is an object."""
    return {**thaw(schema), "type": "object"} if isinstance(schema, dict) else {"type": "object"}


PROVIDERS: dict[str, Provider] = {
    "openai": Provider(_function),
    "ollama": Provider(_function),
    "gemini": Provider(_gemini, merged=_gemini_merged, letter_first=True),
    "anthropic": Provider(_anthropic),
    # MCP itself allows dots, but its clients hand the names on to models whose APIs do not.
    "mcp": Provider(_mcp),
}
