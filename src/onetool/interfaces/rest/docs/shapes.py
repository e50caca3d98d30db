"""Schemas as people read them: a table of what may be in it, and the kind of each in a few words."""

import json
from html import escape
from typing import Any

from onetool.interfaces.rest.openapi.examples import ADDRESS

Part = dict[str, Any]

_BOUNDS = (
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minimum", "from {}"),
    ("maximum", "to {}"),
    ("maxItems", "at most {}"),
)


def of_component(name: str, schema: Part) -> str:
    said = f"<p>{escape(schema['description'])}</p>\n" if "description" in schema else ""
    return f'<article id="schema-{escape(name)}">\n<h3>{escape(name)}</h3>\n{said}{_inside(schema)}</article>\n'


def kind_of(schema: Part) -> str:
    """In one line, with links to the shapes that have a name."""
    if "$ref" in schema:
        name = escape(schema["$ref"].removeprefix(ADDRESS))
        return f'<a href="#schema-{name}">{name}</a>'
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(kind_of(one) for one in schema[key])
    if "const" in schema:
        return f"<code>{escape(json.dumps(schema['const']))}</code>"
    if "enum" in schema:
        return " · ".join(f"<code>{escape(json.dumps(one))}</code>" for one in schema["enum"])
    kind = schema.get("type", "any JSON")
    if kind == "array":
        return f"list of {kind_of(schema['items'])}"
    words = " or ".join(kind) if isinstance(kind, list) else str(kind)
    bounds = [text.format(f"{schema[key]:,}") for key, text in _BOUNDS if key in schema]
    return escape(", ".join([words, *bounds]))


def _inside(schema: Part) -> str:
    if "properties" not in schema:
        return f"<p>{kind_of(schema)}</p>\n"
    rows = [_row(key, one, key in schema.get("required", ())) for key, one in schema["properties"].items()]
    return f'<div class="scroll"><table>\n{"".join(rows)}</table></div>\n'


def _row(key: str, schema: Part, needed: bool) -> str:
    marks = [mark for mark, holds in (("required", needed), ("read-only", schema.get("readOnly"))) if holds]
    if schema.get("default") not in (None, "", [], {}):
        marks.append(f"default {json.dumps(schema['default'])}")
    told = f"<br>{escape(schema['description'])}" if "description" in schema else ""
    small = f" <small>{escape(', '.join(marks))}</small>" if marks else ""
    return f"<tr><th><code>{escape(key)}</code></th><td>{kind_of(schema)}{small}{told}</td></tr>\n"
