"""What the OpenAPI document says of bundles and tools: listed, put, switched, deleted and called."""

from onetool.interfaces.rest import openapi_schemas
from onetool.interfaces.rest.openapi_operations import operation
from onetool.interfaces.rest.openapi_parts import (
    LIMIT_HEADERS,
    TOOL_PLACE,
    Part,
    page_responses,
    request_body,
    response,
)

CALL_STREAM = {"schema": {"type": "string", "description": "Server-sent events: progress, chunk, result."}}
_BUNDLE = {"bundleID": "$request.path.bundleID"}
_TOOL = {**_BUNDLE, "toolSlug": "$request.path.toolSlug", "version": "$request.path.version"}


def _links(parameters: Part, *operations: str) -> Part:
    return {name: {"operationId": name, "parameters": parameters} for name in operations}


_TO_BUNDLE = _links(_BUNDLE, "getBundle", "patchBundle", "deleteBundle", "putTool")
_TO_TOOL = _links(_TOOL, "getTool", "patchTool", "deleteTool", "invokeTool")
_CHANGE = ("If-Match", "If-None-Match")

OPERATIONS: dict[tuple[str, str], tuple[str, Part]] = {
    ("/bundles", "GET"): (
        "Bundles",
        operation(
            "listBundles", "List bundles", page_responses("A page.", "BundlePage"), conditions=("If-None-Match",)
        ),
    ),
    ("/bundles/{bundleID}", "GET"): (
        "Bundles",
        operation(
            "getBundle",
            "Get a bundle",
            {200: response("The bundle.", "Bundle", "ETag"), 304: response("It has this ETag still.", None, "ETag")},
            404,
            conditions=("If-None-Match",),
        ),
    ),
    ("/bundles/{bundleID}", "PUT"): (
        "Bundles",
        operation(
            "putBundle",
            "Create or replace a bundle",
            {
                200: response("Replaced.", "Bundle", "ETag", links=_TO_BUNDLE),
                201: response("Created.", "Bundle", "ETag", "Location", links=_TO_BUNDLE),
            },
            *(409, 412),
            note="Of a bundle that was deleted, and is not removed yet, this is the way back.",
            takes=request_body("BundleContent", openapi_schemas.EXAMPLE_BUNDLE),
            conditions=_CHANGE,
        ),
    ),
    ("/bundles/{bundleID}", "PATCH"): (
        "Bundles",
        operation(
            "patchBundle",
            "Switch a bundle on or off",
            {200: response("The bundle.", "Bundle", "ETag")},
            *(404, 409, 412),
            note="The only change that a built-in bundle takes.",
            takes=request_body("Switch", openapi_schemas.EXAMPLE_SWITCH),
            conditions=_CHANGE,
        ),
    ),
    ("/bundles/{bundleID}", "DELETE"): (
        "Bundles",
        operation(
            "deleteBundle",
            "Delete a bundle",
            {204: response("Deleted.")},
            *(404, 409, 412),
            note="Refused while it has tools. It is removed after two days; until then, PUT brings it back.",
            conditions=_CHANGE,
        ),
    ),
    (TOOL_PLACE, "GET"): (
        "Tools",
        operation(
            "getTool",
            "Get a tool",
            {200: response("The tool.", "Tool", "ETag"), 304: response("It has this ETag still.", None, "ETag")},
            404,
            conditions=("If-None-Match",),
        ),
    ),
    (TOOL_PLACE, "PUT"): (
        "Tools",
        operation(
            "putTool",
            "Create a tool",
            {201: response("Created.", "Tool", "ETag", "Location", links=_TO_TOOL)},
            *(404, 409, 412),
            note="A version that is there is never replaced (409): put another version, or delete this one first.",
            takes=request_body("ToolContent", openapi_schemas.EXAMPLE_TOOL),
            conditions=_CHANGE,
        ),
    ),
    (TOOL_PLACE, "PATCH"): (
        "Tools",
        operation(
            "patchTool",
            "Switch a tool on or off",
            {200: response("The tool.", "Tool", "ETag")},
            *(404, 409, 412),
            takes=request_body("Switch", openapi_schemas.EXAMPLE_SWITCH),
            conditions=_CHANGE,
        ),
    ),
    (TOOL_PLACE, "DELETE"): (
        "Tools",
        operation(
            "deleteTool",
            "Delete a tool",
            {204: response("Deleted.")},
            *(404, 409, 412),
            note="For good.",
            conditions=_CHANGE,
        ),
    ),
    (f"{TOOL_PLACE}/invoke", "POST"): (
        "Calls",
        operation(
            "invokeTool",
            "Call a tool",
            {200: response("It ran.", "Envelope", *LIMIT_HEADERS)},
            *(404, 429),
            note=(
                "Arguments that the argSchema does not allow are refused with 400 before anything runs. With `Accept: "
                "text/event-stream` the answer is a stream of events: `progress` {progress, total, message}, `chunk` "
                "{data}, and at the end `result`, which is the envelope. A client that leaves cancels the call."
            ),
            takes=request_body("Call", openapi_schemas.EXAMPLE_CALL),
        ),
    ),
    ("/tools", "GET"): (
        "Lists",
        operation(
            "listTools",
            "List tools of all bundles",
            page_responses("A page.", "ToolPage"),
            conditions=("If-None-Match",),
        ),
    ),
    ("/tools/search", "GET"): (
        "Lists",
        operation(
            "searchTools",
            "Search tools",
            page_responses("A page, the best first.", "ToolPage"),
            note="Beginnings of words come before whole words, these before similar ones; then the newest first.",
            conditions=("If-None-Match",),
        ),
    ),
}
OPERATIONS[f"{TOOL_PLACE}/invoke", "POST"][1]["responses"]["200"]["content"]["text/event-stream"] = CALL_STREAM
