"""A tool's signature in one line, for people and models: `fs.read_file(path: str, maxBytes: int = 204800)`."""

from collections.abc import Mapping
from typing import Any, cast

from onetool.core.spec import ToolSpec
from onetool.core.spelling import spelled
from onetool.core.type_names import resolved, type_name

_LONGEST_DEFAULT = 40


def signature(spec: ToolSpec, name: str | None = None) -> str:
    """Required parameters come first and without a default; optional ones show theirs, or '...' where none is known.

    `name` is what code calls the tool, where that is not its own name.
    """
    schema = spec.input_schema
    properties = cast(Mapping[str, Any], schema.get("properties") or {})
    required = cast(list[str], schema.get("required") or [])
    parts = [_parameter(one, properties[one], schema, one in required) for one in spec.order]
    if schema.get("additionalProperties"):
        parts.append("**more")
    returns = f" -> {type_name(spec.output_schema, spec.output_schema)}" if spec.output_schema else ""
    return f"{name or spec.name}({', '.join(parts)}){returns}"


def _parameter(name: str, schema: Any, root: Mapping[str, Any], required: bool) -> str:
    text = f"{spelled(name)}: {type_name(schema, root)}"
    return text if required else f"{text} = {_default(resolved(schema, root))}"


def _default(schema: Any) -> str:
    if isinstance(schema, Mapping) and "default" in schema:
        text = repr(cast(Mapping[str, Any], schema)["default"])
        if len(text) <= _LONGEST_DEFAULT:
            return text
    return "'...'"
