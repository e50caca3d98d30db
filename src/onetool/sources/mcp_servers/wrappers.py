"""Values in a wrapper: structured content has to be an object, so that SDKs send any other value as {"result": value}.

Code gets the value itself, and its schema. A text in the wrapper that is JSON is the data that it says.
"""

from collections.abc import Mapping
from typing import Any, cast

from onetool.core.schema_parts import stands_alone
from onetool.core.type_names import resolved

RESULT = "result"
MARK = "x-fastmcp-wrap-result"
DEFINITIONS = ("$defs", "definitions")
LEVELS = 4  # of alternatives inside of each other: they may go in circles
DATA = ({"type": "object"}, {"type": "array"})  # what a text may be when it is read as JSON

Schema = Mapping[str, Any]


def is_wrapper(schema: Any) -> bool:
    """Whether an output schema says that the object is a wrapper, and nothing that the tool is about."""
    if not isinstance(schema, Mapping):
        return False
    parts = cast(Schema, schema)
    properties = parts.get("properties")
    is_alone = isinstance(properties, Mapping) and list(cast(Schema, properties)) == [RESULT]
    return parts.get(MARK) is True or (is_alone and str(parts.get("title")).endswith("Output"))


def inner_schema(schema: Schema) -> Schema | None:
    """The schema of the value in a wrapper, as code gets it. None where it means nothing outside of the wrapper."""
    properties: Any = schema.get("properties") or {}
    inner: Any = properties.get(RESULT, {})
    if not isinstance(inner, Mapping) or not stands_alone(schema) or any(word in inner for word in DEFINITIONS):
        return None
    shared = {word: schema[word] for word in DEFINITIONS if word in schema}
    if may_be_text(inner, schema):
        return {"anyOf": [inner, *DATA], **shared}
    return {**cast(Schema, inner), **shared}


def may_be_text(schema: Any, root: Schema, levels: int = LEVELS) -> bool:
    """Whether a text fits which may be JSON: a schema that lists its texts has none of these."""
    part: Any = resolved(schema, root)
    if not isinstance(part, Mapping) or "enum" in part or "const" in part or levels == 0:
        return False
    kinds: Any = cast(Schema, part).get("type")
    if kinds == "string" or (isinstance(kinds, list) and "string" in kinds):
        return True
    arms: list[Any] = [arm for word in ("anyOf", "oneOf") if isinstance(found := part.get(word), list) for arm in found]
    return any(may_be_text(arm, root, levels - 1) for arm in arms)
