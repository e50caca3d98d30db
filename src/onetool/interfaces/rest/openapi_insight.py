"""What the OpenAPI document says of what pages show: the status."""

from onetool.interfaces.rest import EVENTS_PATH, STATUS_PATH
from onetool.interfaces.rest.editing import PreviewDraft
from onetool.interfaces.rest.events import StatusReport
from onetool.interfaces.rest.handlers import VERSION_KEYS
from onetool.interfaces.rest.openapi_parts import (
    COUNTED_NOTE,
    IS_COUNTED,
    TOOL_PLACE,
    Part,
    object_schema,
    request_body,
)
from onetool.services.stats.usage import ToolUsage
from onetool.sources.bundles.drafts import DraftReport, PreviewReport
from onetool.sources.bundles.editing import ShownExamples
from onetool.sources.bundles.validation import ExampleList

EXAMPLE_DRAFT = {"type": "script", "scriptImpl": {"code": "1 + 1"}}

SHAPES = (StatusReport, DraftReport, PreviewReport, PreviewDraft, ToolUsage, ExampleList, ShownExamples)
DESCRIPTIONS = {
    "StatusReport.needsToken": "Whether requests need a credential: a token, a session or a JWT.",
    "StatusReport.canChange": "Whether this client may change bundles and tools: it has the role edit, or admin.",
    "StatusReport.isAdmin": "Whether this client has the role admin.",
    "StatusReport.isCapped": "Whether the server is for calls only, and one's token would allow more elsewhere.",
    "DraftReport.ok": "Whether it would be taken.",
    "DraftReport.warnings": "What keeps it from being called for now; it can be stored.",
    "DraftFault.pointer": "JSON pointer (RFC 6901) to what is wrong.",
    "ShownExamples.own": "The names of those that are one's own; not there for `http.token` and without tokens.",
    "ToolUsage.enabled": IS_COUNTED,
    "ToolUsage.lastErrors": "The newest first, at most 20.",
    "ToolUsage.recent": "The newest first, at most 20.",
    "UsageFailure.message": "The finer cause in a word, or the code. What the caller was told is not kept.",
    "UsageCall.caller": "The name of a token, or `iss|sub`; null for the command line and `http.token`.",
    "UsageCall.source": "How it was called: rest, mcp, run, cli …",
    "ToolExample.name": "What people see.",
    "ToolExample.args": "The arguments of the call.",
    "PreviewReport.requests": "Of an HTTP tool. Empty where something is wrong.",
    "PreviewReport.code": "Of a script: what would run, with the arguments before it.",
    "PreviewReport.call": "Of any other tool: the call, as code writes it.",
    "PreviewRequest.step": "Its name, where a tool sends several.",
    "PreviewRequest.notes": "What is not known yet, or would keep it from being sent.",
    "PreviewRequest.body": "As text; null where there is none, or where it is no text.",
    "StatusReport.tools": "How many there are.",
    "StatusReport.health": "As `onetool health` has it.",
    "StatusReport.config": "The file in force; null: the defaults.",
}


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
            "takes": request_body("DraftRequest", {"tool": EXAMPLE_DRAFT}),
        },
    ),
    (f"{TOOL_PLACE}/validate", "POST"): (
        "Drafts",
        {
            "id": "validateArgs",
            "summary": "Check arguments before a call",
            "gives": {200: ("What is wrong with them, if anything is.", "DraftReport")},
            "refused": (404,),
            "note": "Nothing is called, but for the pre-processors of the tool, which have 5 s. Pointers lead into the "
            "arguments.",
            "takes": request_body("Call", {"args": {"city": "Oslo"}}),
        },
    ),
    ("/preview", "POST"): (
        "Drafts",
        {
            "id": "previewDraft",
            "summary": "See what a tool would send, before it is stored",
            "gives": {200: ("What would be sent, or what is wrong.", "PreviewReport")},
            "refused": (),
            "note": "Nothing is stored or sent, and secrets are `***`. Pointers of errors begin with `/tool` or "
            "`/args`. Only where bundles may be changed.",
            "takes": request_body("PreviewDraft", {"tool": EXAMPLE_DRAFT, "args": {}}),
        },
    ),
    (f"{TOOL_PLACE}/preview", "POST"): (
        "Drafts",
        {
            "id": "previewCall",
            "summary": "See what a call would send",
            "gives": {200: ("What would be sent, or what is wrong.", "PreviewReport")},
            "refused": (404,),
            "note": "Nothing is sent or called, but for the pre-processors of the tool; secrets are `***`. Pointers of "
            "errors lead into the arguments.",
            "takes": request_body("Call", {"args": {"city": "Oslo"}}),
        },
    ),
    (f"{TOOL_PLACE}/examples", "GET"): (
        "Tools",
        {
            "id": "getExamples",
            "summary": "Get the examples of a tool",
            "gives": {200: ("They.", "ShownExamples", "ETag"), 304: ("The tool has this ETag still.", None, "ETag")},
            "refused": (404,),
            "conditions": ("If-None-Match",),
        },
    ),
    (f"{TOOL_PLACE}/examples", "PUT"): (
        "Tools",
        {
            "id": "putExamples",
            "summary": "Replace the examples of a tool",
            "gives": {200: ("They, as they are now.", "ShownExamples", "ETag")},
            "refused": (404, 409, 412),
            "note": "Also of tools that are read-only else. A caller with a name (a named token, a JWT) replaces the "
            "examples of their own, which nobody else sees; examples of the tool that are in the list stay what they "
            "are. Help shows them to people and models. An example has at "
            "most 16 KiB, a name of its own, and no argument that its schema marks as secret. The version "
            "of the tool stays, and `modifiedAt`, too.",
            "takes": request_body("ExampleList", {"examples": [{"name": "Oslo", "args": {"city": "Oslo"}}]}),
            "conditions": ("If-Match", "If-None-Match"),
        },
    ),
    (f"{TOOL_PLACE}/usage", "GET"): (
        "Tools",
        {
            "id": "getUsage",
            "summary": "How often a tool was called, and how that went",
            "gives": {200: ("Its usage.", "ToolUsage")},
            "refused": (404,),
            "note": COUNTED_NOTE,
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
            "slow for so many. Calls of other callers are told to admins only. A comment comes every 15 seconds. At "
            "most 64 clients read at once; others get 503.",
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


_ANY_OBJECT: Part = {"type": "object", "description": "As PUT takes it."}


def insight_schemas(tool: Part) -> dict[str, Part]:
    """Schemas of these operations that no struct has. `tool` is the complete one."""
    is_default = {"type": "boolean", "description": "Whether its name in code stands for this version."}
    known: Part = {**tool["properties"], "isDefault": is_default}
    version = object_schema({key: known[key] for key in VERSION_KEYS}, *VERSION_KEYS)
    places = {key: {"type": ["string", "null"]} for key in ("bundleID", "slug", "version")}
    draft = {
        "oneOf": [
            object_schema({"tool": _ANY_OBJECT, **places}, "tool"),
            object_schema({"bundle": _ANY_OBJECT}, "bundle"),
        ]
    }
    return {
        "DraftRequest": draft,
        "VersionList": object_schema({"versions": {"type": "array", "items": version}}, "versions"),
    }
