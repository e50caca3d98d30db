"""The components: shapes as msgspec describes them, and on top of that what only a pattern or a sentence can say."""

from copy import deepcopy
from typing import Any

import msgspec

from onetool.core import call
from onetool.handlers.http.impl import HttpImpl, Limits
from onetool.interfaces.rest import problem
from onetool.interfaces.rest.openapi import ask_shapes
from onetool.interfaces.rest.openapi.examples import ADDRESS
from onetool.sources.bundles.model import IMPLS, Bundle, BundleContent, FunctionImpl, ScriptImpl, Tool, ToolContent
from onetool.sources.bundles.reading import KEPT, SHOWN

Schema = dict[str, Any]

ID: Schema = {
    "type": "string",
    "description": "A UUIDv7 in lower case.",
    "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$",
}
SLUG: Schema = {
    "type": "string",
    "description": "Letters, decimal digits and dashes; case matters; in Unicode's normal form NFC.",
    "pattern": "^[\\p{L}\\p{Nd}-]+$",  # with {1,64} it is too large for many an engine
    "minLength": 1,
    "maxLength": 64,
}
VERSION: Schema = {
    "type": "string",
    "description": "A label without an order of its own: letters, decimal digits, dashes and dots, in NFC.",
    "pattern": "^[\\p{L}\\p{Nd}.-]+$",
    "minLength": 1,
    "maxLength": 64,
}
TIME: Schema = {"type": "string", "format": "date-time", "readOnly": True}
ANYTHING: Schema = {"readOnly": True, "description": "Known to the store: not looked at when it is sent."}

_SHAPES = (
    BundleContent,
    Bundle,
    ToolContent,
    Tool,
    HttpImpl,
    FunctionImpl,
    ScriptImpl,
    Limits,
    problem.Problem,
    call.ToolError,
    *ask_shapes.SHAPES,
)
_OWN = {  # of what the store adds
    "id": {**ID, "readOnly": True},
    "bundleID": {**ID, "readOnly": True},
    "isBuiltIn": {"type": "boolean", "readOnly": True, "description": "Part of OneTool: only isEnabled can change."},
    "createdAt": TIME,
    "modifiedAt": {
        **TIME,
        "description": "The last change of its content, also by an edit of its file; switching it on or off is none.",
    },
    "softDeletedAt": {"type": ["string", "null"], "format": "date-time", "readOnly": True},
    "schemaVersion": {"type": "string", "readOnly": True},
    "disabledReason": {
        "type": "string",
        "readOnly": True,
        "description": "Why it can't be called though it is switched on: its function is gone. It may come back.",
    },
    "warnings": {
        "type": "array",
        "items": {"type": "string"},
        "readOnly": True,
        "description": "Only in the answer to PUT: it is kept, but can't be called as the config is now.",
    },
    "callCount": {"type": "integer", "minimum": 0, "readOnly": True},
    "lastCalledAt": {"type": ["string", "null"], "format": "date-time", "readOnly": True},
}
_WORDS = {  # by the key alone where it means one thing wherever it stands, else with its shape before it
    "displayName": "What people see. No part of any name.",
    "description": "What it is good for, for people and models.",
    "tags": "Words to find it by, and to list by.",
    "isEnabled": "Switched on. What is switched off can't be called, and a bundle that is takes no changes inside.",
    "parallel": "Whether its calls may run beside others that a model makes in one step. Else they run in order.",
    "argSchema": "JSON Schema (2020-12) of the arguments, an object. Others are refused unless it says otherwise.",
    "outputSchema": "JSON Schema of the value; empty: any.",
    "urlTemplate": "http or https, with `${name}` for arguments and secrets; its host must be in allowedHosts.",
    "query": "Pairs that are added to the URL's own; a list repeats its name.",
    "headers": "Names and values, with `${name}` in the values.",
    "body": "JSON with `${name}` in its texts, or a text. One that is just a placeholder keeps the value's type.",
    "timeoutMs": "For each try.",
    "retries": "Further tries after a network error, 429 or 5xx, with growing pauses.",
    "idempotent": "Whether it may be tried again, whatever its method says.",
    "successCodes": "None: all of 200 to 299.",
    "selector": "JMESPath: which part of the answer is the value.",
    "errorMode": "What another status means: a failure, the value null, or `{status, body}` as the value.",
    "maxCallsPerMinute": "More are refused with 429.",
    "func": "The name of a registered function: `pack.tool`.",
    "ScriptImpl.code": "Code in the language of `run`; the arguments are its variables, its last value is the result.",
    "Problem.code": "Why, for programs: one word that stays the same, whatever `detail` says.",
    "Problem.in": "Which part of the request is wrong, where it is one.",
    "Problem.pointer": "JSON pointer (RFC 6901) to what is wrong, in what `in` names.",
    "Problem.errors": "Where several things are wrong: each of them.",
    "Fault.pointer": "JSON pointer (RFC 6901) to what is wrong, in what `in` of the problem names.",
    "ToolError.code": "One of three. The finer cause is in `reason`.",
    "ToolError.reason": "timeout, denied, rate_limited, upstream_error … or what the tool itself says.",
    "ToolError.hints": "What could be done about it.",
    "ToolError.details": "Of `invalid_args`: each wrong argument.",
    "WrongArgument.path": "As a person writes it: `options.limit[0]`.",
    "WrongArgument.pointer": "JSON pointer (RFC 6901) to it in the arguments: `/options/limit/0`.",
    **ask_shapes.WORDS,
}
_PATTERNS = {
    "urlTemplate": "^[hH][tT][tT][pP][sS]?://",
}


def components() -> dict[str, Schema]:
    _, found = msgspec.json.schema_components(_SHAPES, ref_template="#/components/schemas/{name}")
    named = {_name(name): _renamed(schema) for name, schema in found.items()}
    content = named.pop("ToolContent")
    shown = named["Tool"]
    for name, schema in (("ToolContent", content), *named.items()):
        _refine(name, schema)
    named["BundleContent"]["properties"] |= dict.fromkeys(sorted(KEPT - {"bundleID"}), ANYTHING)
    named["BundleContent"]["properties"]["slug"] = SLUG
    del named["Bundle"]["properties"]["schemaVersion"]  # stands in its file alone
    for schema in (named["Bundle"], shown):
        _complete(schema)
    shown["properties"] |= {key: _OWN[key] for key in sorted(SHOWN)}
    left_out = {"parallel", *dict(IMPLS.values())}  # where they say nothing
    shown["required"] = [key for key in shown["required"] if key not in left_out]
    for kind, (key, _) in IMPLS.items():
        shown["properties"][key] = _ref(_IMPL_NAMES[kind])
    named |= {_content_name(kind): _content(content, kind) for kind in IMPLS}
    named["ToolContent"] = _one_of({kind: _content_name(kind) for kind in IMPLS}, "type")
    ask_shapes.refine(named)
    return named | _further()


_IMPL_NAMES = {"http": "HttpImpl", "python": "FunctionImpl", "go": "FunctionImpl", "script": "ScriptImpl"}


def _name(name: str) -> str:
    return {"onetool.core.call.Problem": "WrongArgument", f"{problem.__name__}.Problem": "Problem"}.get(name, name)


def _renamed(schema: Any) -> Any:
    """References lead to the names that we show."""
    if isinstance(schema, dict):
        return {
            key: ADDRESS + _name(value.removeprefix(ADDRESS)) if key == "$ref" else _renamed(value)
            for key, value in schema.items()
        }
    return [_renamed(one) for one in schema] if isinstance(schema, list) else schema


def _refine(name: str, schema: Schema) -> None:
    """Say of each property what its type can't."""
    schema.pop("title", None)
    if "description" in schema:
        schema["description"] = " ".join(schema["description"].split())
    for key, one in schema.get("properties", {}).items():
        if words := _WORDS.get(f"{name}.{key}", _WORDS.get(key)):
            one["description"] = words
        if key in _PATTERNS:
            one["pattern"] = _PATTERNS[key]
        one.pop("default", None) if one.get("default", ...) is None else None


def _complete(schema: Schema) -> None:
    """As it is shown: everything is there."""
    for key in schema["properties"]:
        if key in _OWN:
            schema["properties"][key] = _OWN[key]
    schema["properties"]["slug"] = {**SLUG}
    if "version" in schema["properties"]:
        schema["properties"]["version"] = {**VERSION}
    for one in schema["properties"].values():
        one.pop("default", None)
    schema["required"] = list(schema["properties"])


def _content(base: Schema, kind: str) -> Schema:
    """What is sent of a tool of one type."""
    schema = deepcopy(base)
    own, _ = IMPLS[kind]
    properties = schema["properties"]
    properties["type"] = {"const": kind}
    for key, _ in IMPLS.values():
        properties[key] = _ref(_IMPL_NAMES[kind]) if key == own else {"type": "null"}
    properties["limits"] = _ref("Limits")
    properties |= dict.fromkeys(sorted(KEPT | SHOWN | {"slug", "version"}), ANYTHING)
    schema["required"] = ["type", own]
    schema["description"] = _KINDS[kind]
    return schema


_KINDS = {
    "http": "A tool that sends an HTTP request.",
    "python": "A tool that calls a function that is registered in this process.",
    "go": "Another word for `python`, given back as it was stored.",
    "script": "A tool that runs code over other tools.",
}


def _content_name(kind: str) -> str:
    return f"{kind.title()}Tool"


def _further() -> dict[str, Schema]:
    """What has no shape of its own in the code."""
    return {
        "Switch": {
            "type": "object",
            "properties": {"isEnabled": {"type": "boolean"}},
            "required": ["isEnabled"],
            "additionalProperties": False,
        },
        "Call": {
            "type": "object",
            "properties": {"args": {"type": "object", "description": "What the tool's argSchema asks for."}},
            "additionalProperties": False,
        },
        "Value": {
            "type": "object",
            "description": "The tool ran, and this is its value.",
            "properties": {"ok": {"const": True}, "value": {"description": "Any JSON."}},
            "required": ["ok", "value"],
            "additionalProperties": False,
        },
        "Failure": {
            "type": "object",
            "description": "The tool ran, and failed.",
            "properties": {"ok": {"const": False}, "error": _ref("ToolError")},
            "required": ["ok", "error"],
            "additionalProperties": False,
        },
        "Envelope": {"oneOf": [_ref("Value"), _ref("Failure")]},
        "BundlePage": _page("bundles", "Bundle"),
        "ToolPage": _page("tools", "Tool"),
    }


def _page(key: str, name: str) -> Schema:
    token = {"type": ["string", "null"], "description": "pageToken of the next page; null on the last one."}
    return {
        "type": "object",
        "properties": {key: {"type": "array", "items": _ref(name)}, "nextPageToken": token},
        "required": [key, "nextPageToken"],
        "additionalProperties": False,
    }


def _one_of(names: dict[str, str], by: str) -> Schema:
    mapping = {value: f"{ADDRESS}{name}" for value, name in names.items()}
    return {
        "oneOf": [_ref(name) for name in names.values()],
        "discriminator": {"propertyName": by, "mapping": mapping},
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"{ADDRESS}{name}"}
