"""What the OpenAPI document says of what pages show: the status."""

from typing import Any

from onetool.interfaces.rest.handlers import VERSION_KEYS
from onetool.interfaces.rest.insight import STATUS_PATH, StatusReport

Part = dict[str, Any]

SHAPES = (StatusReport,)
DESCRIPTIONS = {
    "StatusReport.needsToken": "Whether requests need the token of the server (`http.token`).",
    "StatusReport.canChange": "Whether clients may change bundles and tools here.",
    "StatusReport.isAdmin": "Whether this request came with the token: then it may use what starts code, too.",
    "StatusReport.tools": "How many there are.",
    "StatusReport.health": "As `onetool health` has it.",
    "StatusReport.config": "The file in force; null: the defaults.",
}

# Of each operation: its group, and what `operation` of openapi.py takes, as in openapi_imports.
OPERATIONS: dict[tuple[str, str], tuple[str, Part]] = {
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
OUTSIDE: dict[tuple[str, str], tuple[str, Part]] = {
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


def insight_schemas(tool: Part) -> dict[str, Part]:
    """Schemas of these operations that no struct has. `tool` is the complete one."""
    is_default = {"type": "boolean", "description": "Whether its name in code stands for this version."}
    known: Part = {**tool["properties"], "isDefault": is_default}
    version = _object({key: known[key] for key in VERSION_KEYS}, *VERSION_KEYS)
    return {"VersionList": _object({"versions": {"type": "array", "items": version}}, "versions")}
