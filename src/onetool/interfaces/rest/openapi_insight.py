"""What the OpenAPI document says of what pages show: the status."""

from typing import Any

from onetool.interfaces.rest.events import EVENTS_PATH
from onetool.interfaces.rest.handlers import VERSION_KEYS
from onetool.interfaces.rest.insight import STATUS_PATH, StatusReport
from onetool.sources.bundles.drafts import DraftReport

Part = dict[str, Any]

_TOOL_PLACE = "/bundles/{bundleID}/tools/{toolSlug}/version/{version}"
EXAMPLE_DRAFT = {"type": "script", "scriptImpl": {"code": "1 + 1"}}

SHAPES = (StatusReport, DraftReport)
DESCRIPTIONS = {
    "StatusReport.needsToken": "Whether requests need the token of the server (`http.token`).",
    "StatusReport.canChange": "Whether clients may change bundles and tools here.",
    "StatusReport.isAdmin": "Whether this request came with the token: then it may use what starts code, too.",
    "DraftReport.ok": "Whether it would be taken.",
    "DraftReport.warnings": "What keeps it from being called for now; it can be stored.",
    "DraftFault.pointer": "JSON pointer (RFC 6901) to what is wrong.",
    "StatusReport.tools": "How many there are.",
    "StatusReport.health": "As `onetool health` has it.",
    "StatusReport.config": "The file in force; null: the defaults.",
}


def _takes(schema: str, example: Any) -> Part:
    content = {"schema": {"$ref": f"#/components/schemas/{schema}"}, "example": example}
    return {"required": True, "content": {"application/json": content}}


# Of each operation: its group, and what `operation` of openapi.py takes, as in openapi_imports.
OPERATIONS: dict[tuple[str, str], tuple[str, Part]] = {
    ("/validate", "POST"): (
        "Drafts",
        {
            "id": "validateDraft",
            "summary": "Check a tool or a bundle before it is stored",
            "gives": {200: ("What is wrong with it, if anything is.", "DraftReport")},
            "refused": (),
            "note": "Nothing is stored. Pointers lead into the tool or the bundle. With `bundleID`, `slug` and "
            "`version` it is also checked whether it could be put there. Only where bundles may be changed.",
            "takes": _takes("DraftRequest", {"tool": EXAMPLE_DRAFT}),
        },
    ),
    (f"{_TOOL_PLACE}/validate", "POST"): (
        "Drafts",
        {
            "id": "validateArgs",
            "summary": "Check arguments before a call",
            "gives": {200: ("What is wrong with them, if anything is.", "DraftReport")},
            "refused": (404,),
            "note": "Nothing is called, but for the pre-processors of the tool. Pointers lead into the arguments.",
            "takes": _takes("Call", {"args": {"city": "Oslo"}}),
        },
    ),
    ("/bundles/{bundleID}/tools/{toolSlug}/versions", "GET"): (
        "Tools",
        {
            "id": "listVersions",
            "summary": "List the versions of a tool",
            "gives": {200: ("The versions, the newest first.", "VersionList")},
            "refused": (404,),
        },
    ),
}

# The same, of what is not below /tools.
_EVENTS = {"type": "string", "description": "Server-sent events: hello, changed, call."}
OUTSIDE: dict[tuple[str, str], tuple[str, Part]] = {
    (EVENTS_PATH, "GET"): (
        "Server",
        {
            "id": "readEvents",
            "summary": "Read what happens, as it happens",
            "gives": {200: ("A stream that ends when the server does.", None)},
            "content": {"text/event-stream": {"schema": _EVENTS}},
            "refused": (406,),
            "note": "Needs `Accept: text/event-stream`. `hello` {version, instance} comes at once; `changed` {tools} "
            "when tools, switches or servers have changed, at most four times a second; `call` {bundleID, toolSlug, "
            "version, name, ok, durationMs, source, at} when a call has ended, or {dropped} where a client was too "
            "slow for so many. A comment comes every 15 seconds. At most 64 clients read at once; others get 503.",
        },
    ),
    (STATUS_PATH, "GET"): (
        "Server",
        {
            "id": "getStatus",
            "summary": "What this server is, and how it does",
            "gives": {200: ("The status.", "StatusReport")},
            "refused": (),
        },
    ),
}


def _object(properties: Part, *required: str) -> Part:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


_ANY_OBJECT: Part = {"type": "object", "description": "As PUT takes it."}


def insight_schemas(tool: Part) -> dict[str, Part]:
    """Schemas of these operations that no struct has. `tool` is the complete one."""
    is_default = {"type": "boolean", "description": "Whether its name in code stands for this version."}
    known: Part = {**tool["properties"], "isDefault": is_default}
    version = _object({key: known[key] for key in VERSION_KEYS}, *VERSION_KEYS)
    places = dict.fromkeys(("bundleID", "slug", "version"), {"type": ["string", "null"]})
    draft = {"oneOf": [_object({"tool": _ANY_OBJECT, **places}, "tool"), _object({"bundle": _ANY_OBJECT}, "bundle")]}
    return {
        "DraftRequest": draft,
        "VersionList": _object({"versions": {"type": "array", "items": version}}, "versions"),
    }
