"""Parameters for the providers that take JSON Schema, with the few things mended that they refuse."""

from collections.abc import Iterator, Mapping
from typing import Any

from onetool.core.schema_parts import inside
from onetool.formats.flatten import resolve
from onetool.formats.folding import Folder


def plain_parameters(schema: Any) -> dict[str, Any]:
    """The parameters as OpenAI, Ollama and Anthropic take them: a plain object at the top, JSON Schema below."""
    parameters = thaw(Folder(schema).folded(schema))
    for part in _parts(parameters):
        _mend_array(part)
        _mend_properties(part)
        # Folding takes away places that a reference may have pointed to; one that leads nowhere is refused.
        if "$ref" in part and not isinstance(resolve(parameters, str(part["$ref"])), Mapping | bool):
            del part["$ref"]
    return parameters


def thaw(value: Any) -> Any:
    """A copy in plain dicts and lists. A loop, since schemas may nest deeper than calls can."""
    holder = [value]
    waiting: list[Any] = [holder]
    while waiting:
        container = waiting.pop()
        for key, item in list(container.items() if isinstance(container, dict) else enumerate(container)):
            if isinstance(item, Mapping | list | tuple):
                container[key] = dict(item) if isinstance(item, Mapping) else list(item)
                waiting.append(container[key])
    return holder[0]


def _parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schema and every schema inside. Each is given before one looks into it, so it may be changed."""
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict):
            continue
        yield part
        waiting += inside(part)


def _mend_array(schema: dict[str, Any]) -> None:
    """OpenAI refuses an array without `items`, and JSON Schema 2020-12, which Anthropic asks for, a list in it."""
    declared = schema.get("type")
    if "array" not in (declared if isinstance(declared, list) else [declared]):
        return
    items = schema.get("items")
    if isinstance(items, list):
        schema["prefixItems"] = items
        items = schema.pop("additionalItems", {})
    schema["items"] = items if isinstance(items, dict) else {}


def _mend_properties(schema: dict[str, Any]) -> None:
    """Ollama reads each property as an object; `true` and `false` are schemas too."""
    properties = schema.get("properties")
    if isinstance(properties, dict):
        for name, part in properties.items():
            if isinstance(part, bool):
                properties[name] = {} if part else {"not": {}}
