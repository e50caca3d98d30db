"""What the OpenAPI document says of what pages show: the status."""

from typing import Any

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

# Of each operation: its group, and what `operation` of openapi.py takes. These are not below /tools.
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
