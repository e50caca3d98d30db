"""A function -> ToolSpec: its signature is the schema, its docstring the description."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import msgspec

from onetool.core.spec import ToolSpec
from onetool.sdk.binding import bind
from onetool.sdk.decorators import marks_of
from onetool.sdk.docs import FunctionDocs, read_docs

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def tool_from_function(function: Callable[..., Any], pack: str) -> ToolSpec:
    """The tool `<pack>.<function>`. Raises TypeError where a hint has no form in JSON Schema."""
    marks, docs = marks_of(function), read_docs(function)
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters
    returns = hints.pop("return", Any)
    return ToolSpec(
        name=f"{pack}.{marks.name or function.__name__}",
        description=docs.description,
        input_schema=_input_schema(parameters, hints, docs),
        output_schema=None if returns in (Any, None, type(None)) else _schemas([returns])[0],
        handler=bind(function, hints),
        timeout=marks.timeout,
        pure=marks.pure,
        idempotent=marks.idempotent,
        read_only=marks.read_only,
        hidden=marks.hidden,
        tags=marks.tags,
        examples=marks.examples or docs.examples,
    )


def _input_schema(
    parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any], docs: FunctionDocs
) -> dict[str, Any]:
    named = [parameter for parameter in parameters.values() if parameter.kind not in _VARIADIC]
    schemas = _schemas([hints.get(parameter.name, Any) for parameter in named])
    properties = {
        parameter.name: _property(schema, parameter, docs.parameters.get(parameter.name))
        for parameter, schema in zip(named, schemas, strict=True)
    }
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    required = [parameter.name for parameter in named if parameter.default is parameter.empty]
    if required:
        schema["required"] = required
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        schema["additionalProperties"] = True
    return schema


def _property(schema: dict[str, Any], parameter: inspect.Parameter, description: str | None) -> dict[str, Any]:
    if description:
        schema = {**schema, "description": description}
    if parameter.default is not parameter.empty:
        schema = {**schema, "default": msgspec.to_builtins(parameter.default)}
    return schema


def _schemas(hints: list[Any]) -> list[dict[str, Any]]:
    """One schema for each hint, each with the definitions that it refers to."""
    schemas, definitions = msgspec.json.schema_components(hints, ref_template="#/$defs/{name}")
    return [
        {**schema, "$defs": definitions} if definitions and "$ref" in repr(schema) else schema for schema in schemas
    ]
