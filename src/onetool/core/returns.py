"""What a tool returns, in a line: in its author's words, or the fields or the type of its value; inferred, where nobody
says."""

from onetool.core.spec import ToolSpec
from onetool.core.type_names import fields, type_name


def returns(spec: ToolSpec) -> str | None:
    """None where nothing is known."""
    if spec.output_schema is None:
        return inferred(spec)
    schema = spec.output_schema
    return schema.get("description") or fields(schema, schema) or type_name(schema, schema)


def inferred(spec: ToolSpec) -> str | None:
    """What its values have looked like so far, marked as that: `{id: str, title?: str} (inferred from 12 results)`."""
    schema = None if spec.seen is None else spec.seen.schema()
    if spec.seen is None or schema is None:
        return None
    count = spec.seen.results
    what = fields(schema, schema) or type_name(schema)
    return f"{what} (inferred from {count} result{'' if count == 1 else 's'})"
