"""The schemas of the OpenAPI document: made by msgspec of the types of the routes, and some by hand.

By hand are the shapes that no type has (`SCHEMAS`), and what the types don't say (`_refined`): which keys of a tool
belong to which type of tool, and which keys are always there.
"""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import msgspec

from onetool.app.code_names import CodeNames
from onetool.core.call import ToolError
from onetool.http.definition import HttpImpl, ToolLimits
from onetool.interfaces.rest.ask_body import PICTURES
from onetool.interfaces.rest.handlers import VERSION_KEYS
from onetool.interfaces.rest.imports import BASE64
from onetool.script.parse import CodeReport
from onetool.sources.bundles.model import IMPLS, READ_ONLY, UNSAID, FunctionImpl, ScriptImpl
from onetool.sources.bundles.names import ID_SCHEMA, SLUG_SCHEMA, VERSION_SCHEMA
from onetool.sources.bundles.validation import KEPT, SHOWN

Schema = dict[str, Any]

SCHEMA_PREFIX = "#/components/schemas/"
PUBLIC_NAMES = {  # of types whose classes are called otherwise
    "AskQuestion": "Question",
    "AttachedFile": "SessionFile",
    "ResponseOptions": "Response",
    "SessionListItem": "SessionSummary",
    "ToolLimits": "Limits",
}

# Types that routes and other schemas name: those of `/run` would load the parser of code with the first request.
NAMED = (HttpImpl, FunctionImpl, ScriptImpl, ToolLimits, ToolError, CodeNames, CodeReport)


def schema_ref(name: str) -> Schema:
    return {"$ref": f"{SCHEMA_PREFIX}{name}"}


def describe(types: Iterable[Any]) -> tuple[dict[Any, Schema], dict[str, Schema]]:
    shapes = [*types, *NAMED]
    text = msgspec.json.encode(msgspec.json.schema_components(shapes, ref_template=f"{SCHEMA_PREFIX}{{name}}")).decode()
    for name, public in PUBLIC_NAMES.items():
        text = text.replace(f'"{name}":', f'"{public}":').replace(f'/{name}"', f'/{public}"')
    found, named = msgspec.json.decode(text)
    for schema in named.values():
        schema.pop("title", None)
        if "description" in schema:
            schema["description"] = " ".join(schema["description"].split())
        for one in schema.get("properties", {}).values():
            if one.get("default", ...) is None:
                del one["default"]
    return dict(zip(shapes, found, strict=True)), _refined(named)


# Shapes that no type has


def _object(properties: Schema, *required: str, words: str = "") -> Schema:
    return {
        "type": "object",
        **({"description": words} if words else {}),
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _list(items: Schema, words: str = "") -> Schema:
    return {"type": "array", "items": items, **({"description": words} if words else {})}


def _whole(**properties: Schema) -> Schema:
    return _object(properties, *properties)


_TEXT: Schema = {"type": "string"}
_TEXTS = _list(_TEXT)
_NULLABLE: Schema = {"type": ["string", "null"]}
_FLAG: Schema = {"type": "boolean"}
_ANY_OBJECT: Schema = {"type": "object", "description": "As PUT takes it."}
_ARGUMENTS: Schema = {"type": "object", "description": "As the tool's argSchema says."}
_WHAT: Schema = {"enum": ["new", "same", "changed", "clash", "kept"], "description": "Compared to what is here."}
_REMARKS = _list(_whole(about=_TEXT, why=_TEXT))
_PLACE = dict.fromkeys(("bundleID", "slug", "version"), _NULLABLE)
_DIGEST: Schema = {"type": "string", "description": "For the real one: what has changed since is refused."}


def _page(key: str, name: str) -> Schema:
    token = {**_NULLABLE, "description": "pageToken of the next page; null on the last one."}
    return _whole(**{key: _list(schema_ref(name)), "nextPageToken": token})


SCHEMAS: dict[str, Schema] = {
    "Switch": _whole(isEnabled=_FLAG),
    "Call": {key: value for key, value in _object({"args": _ARGUMENTS}).items() if key != "required"},
    "Arguments": _ARGUMENTS,
    "Value": _object({"ok": {"const": True}, "value": {}}, "ok", "value", words="The tool ran, and this is its value."),
    "Failure": _object(
        {"ok": {"const": False}, "error": schema_ref("ToolError")}, "ok", "error", words="The tool ran, and failed."
    ),
    "Envelope": {"oneOf": [schema_ref("Value"), schema_ref("Failure")]},
    "BundlePage": _page("bundles", "ListedBundle"),
    "ToolPage": _page("tools", "ListedTool"),
    "DraftRequest": {
        "oneOf": [_object({"tool": _ANY_OBJECT, **_PLACE}, "tool"), _object({"bundle": _ANY_OBJECT}, "bundle")]
    },
    "ToolCopy": _object(
        {
            "bundleID": {**ID_SCHEMA, "description": "Where it is put; default: the same bundle."},
            "slug": {**SLUG_SCHEMA, "description": "Default: the same."},
            "version": {**VERSION_SCHEMA, "description": "Default: the same."},
            "changes": {"type": "object", "description": "A JSON Merge Patch (RFC 7396)."},
        }
    ),
    "ToolRename": {**_object({"slug": SLUG_SCHEMA, "version": VERSION_SCHEMA}), "minProperties": 1},
    "ImportReport": _whole(
        dryRun=_FLAG,
        bundles=_list(_whole(id=ID_SCHEMA, slug=SLUG_SCHEMA, what=_WHAT)),
        tools=_list(_whole(slug=SLUG_SCHEMA, version=VERSION_SCHEMA, what=_WHAT)),
        servers=_list(_object({"name": _TEXT, "what": _WHAT, "block": {"type": "object"}}, "name", "what")),
        skipped={**_REMARKS, "description": "What could not be imported, and why."},
        warnings={**_REMARKS, "description": "What is not quite as it was, or can't be called yet."},
        secretsKept={**_TEXTS, "description": "Names of secrets that came with it, and are in the secrets file."},
        secretNames=_list(
            _whole(**{"name": _TEXT, "as": _TEXT, "isNew": _FLAG}),
            "Of a curl command: proposed names of its secrets, and the names that are used.",
        ),
        needs=_whole(
            secrets=_list(_whole(name=_TEXT, source=_NULLABLE), "`source` is null: the secret is not set."),
            hosts=_list(_whole(host=_TEXT, allowed={"type": ["boolean", "null"]}, entry=_NULLABLE)),
            missing=_list(schema_ref("Need"), "What has to be allowed or set before the tools can be called."),
        ),
    ),
    "ServerChanges": _whole(
        dryRun=_FLAG, server=_TEXT, changes=_list(_whole(tool=_TEXT, lines=_TEXTS)), digest=_DIGEST
    ),
    "TrustReport": _whole(
        dryRun=_FLAG,
        folder=_TEXT,
        runs=_TEXTS,
        dials=_TEXTS,
        reads=_TEXTS,
        secrets=_TEXTS,
        warnings=_REMARKS,
        digest=_DIGEST,
    ),
}


# What the types don't say

_IGNORED: Schema = {**READ_ONLY, "description": "Known to the store: ignored when it is sent."}
_INHERITED = {"argSchema": {"type": "object"}, "outputSchema": {"type": "object"}, "description": _TEXT}
_SHOWN: dict[str, Schema] = {
    "disabledReason": {"type": "string", "description": "Why it can't be called though it is enabled."},
    "warnings": _list(_TEXT, "Only in the response to PUT: it is stored, but can't be called with this config."),
    "callCount": {"type": "integer", "minimum": 0},
    "name": {**_NULLABLE, "description": "Its name in code and for `/call`; null where another bundle has that."},
    "bundleSlug": _NULLABLE,
    "origin": {"enum": ["bundle", "built-in", "pack", "config", "server"], "description": "`bundle`: can be changed."},
    "health": {
        "enum": ["ok", "off", "down", "changed"],
        "description": "`off`: it or its bundle is disabled, or its function is gone; `down`: its MCP server can't be "
        "reached; `changed`: the tools of its server have changed and wait for approval.",
    },
    "signature": {"type": "string", "description": "Only of a single tool: how code calls it."},
    "effect": {
        "enum": ["reads", "changes", "changes, repeatable", "repeatable"],
        "description": "Whether it changes something, and whether a repeat is safe; absent where nobody has said.",
    },
    "inherited": {"type": "object", "properties": _INHERITED, "description": "What it has from its function."},
    "takesOver": {
        "type": "string",
        "description": "Only in the response to PATCH: the version that has its name now.",
    },
    "lastCalledAt": {**_NULLABLE, "format": "date-time"},
}
_ALWAYS_COMPLETE = ("Answer", "Usage", "Executed", "ToolProblem", "ToolCall", "ToolResult")
_IMPL_NAMES = {kind: impl.__name__ for kind, (_, impl) in IMPLS.items()}


def _refined(named: dict[str, Schema]) -> dict[str, Schema]:
    for own in ("timeout", "version", "called_via"):  # which calls of a model don't have
        del named["ToolCall"]["properties"][own]
    for name in _ALWAYS_COMPLETE:
        _complete(named[name])
    del named["Bundle"]["properties"]["schemaVersion"]  # only in its file
    for name in ("Bundle", "Tool"):
        _complete(named[name], optional={*UNSAID, *dict(IMPLS.values())})
        named[name]["properties"]["source"]["$ref"] = named[name]["properties"]["source"].pop("anyOf")[0]["$ref"]
    named["Tool"]["properties"] |= {key: {**_SHOWN[key], **READ_ONLY} for key in sorted(SHOWN)}
    named["Tool"]["properties"] |= {key: schema_ref(_IMPL_NAMES[kind]) for kind, (key, _) in IMPLS.items()}
    named["BundleContent"]["properties"] |= dict.fromkeys(sorted(KEPT - {"bundleID"}), _IGNORED)
    contents = {f"{kind.title()}Tool": _content(named["ToolContent"], kind) for kind in IMPLS}
    named["ToolContent"] = _one_of(dict(zip(IMPLS, contents, strict=True)), "type")
    named["HttpImpl"] = _one_or_several(named["HttpImpl"])
    return named | contents | _files(named) | _rows(named) | SCHEMAS


def _complete(schema: Schema, optional: Iterable[str] = ()) -> None:
    """Require all properties, except the optional ones."""
    schema["required"] = [key for key in schema["properties"] if key not in optional]
    for one in schema["properties"].values():
        one.pop("default", None)


def _content(base: Schema, kind: str) -> Schema:
    """Return the request schema of a tool of one type."""
    schema = deepcopy(base)
    own, _ = IMPLS[kind]
    properties = schema["properties"]
    properties["type"] = {"const": kind}
    for key, _ in IMPLS.values():
        properties[key] = schema_ref(_IMPL_NAMES[kind]) if key == own else {"type": "null"}
    properties["limits"] = schema_ref("Limits")
    properties |= dict.fromkeys(sorted(KEPT | SHOWN | {"slug", "version"}), _IGNORED)
    schema["required"] = ["type", own]
    return schema


def _one_of(names: dict[str, str], by: str) -> Schema:
    mapping = {value: f"{SCHEMA_PREFIX}{name}" for value, name in names.items()}
    return {
        "oneOf": [schema_ref(name) for name in names.values()],
        "discriminator": {"propertyName": by, "mapping": mapping},
    }


def _one_or_several(impl: Schema) -> Schema:
    """Require `request` with its `response`, or `requests`: an HTTP tool never has both."""
    nothing = {"type": "null"}
    properties = impl["properties"]
    one = properties | {"request": schema_ref("Request"), "requests": nothing}
    several = {"requests": properties["requests"]["anyOf"][0], "request": nothing, "response": nothing}
    shape = {"type": "object", "additionalProperties": False}
    kinds = [shape | {"properties": one, "required": ["request"]}]
    kinds.append(shape | {"properties": several, "required": ["requests"]})
    return {"description": impl["description"], "oneOf": kinds}


def _files(named: dict[str, Schema]) -> dict[str, Schema]:
    """Require a text or a picture of each file of a question."""
    name, kind = (named["QuestionFile"]["properties"][key] for key in ("name", "kind"))
    data = {"type": "string", "contentEncoding": "base64", "minLength": 4, "pattern": BASE64}
    return {
        "QuestionText": _object({"name": name, "kind": kind, "text": _TEXT}, "name", "text"),
        "QuestionPicture": _object({"name": name, "kind": {"enum": [*PICTURES]}, "data": data}, "name", "kind", "data"),
        "QuestionFile": {"oneOf": [schema_ref("QuestionText"), schema_ref("QuestionPicture")]},
    }


def _rows(named: dict[str, Schema]) -> dict[str, Schema]:
    """Rows of lists: `fields` may have picked some keys of them."""
    default = {"type": "boolean", "description": "Whether its name in code stands for this version."}
    known = {**named["Tool"]["properties"], "isDefault": default}
    words = "All of it, unless `fields` says which keys."
    return {
        "ListedTool": {**named["Tool"], "required": [], "description": words},
        "ListedBundle": {**named["Bundle"], "required": [], "description": words},
        "VersionList": _whole(versions=_list(_whole(**{key: known[key] for key in VERSION_KEYS}))),
    }
