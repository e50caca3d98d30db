"""The operations of the OpenAPI document: their parameters, how one is made, and those of bundles and tools."""

from onetool.interfaces.rest import openapi_ask, openapi_console, openapi_imports, openapi_schemas
from onetool.interfaces.rest import query as q
from onetool.interfaces.rest.openapi_parts import (
    ANY_REQUEST,
    LIMIT_HEADERS,
    TOOL_PLACE,
    Part,
    page_responses,
    problem_response,
    request_body,
    response,
)
from onetool.interfaces.rest.openapi_schemas import ID, SLUG, VERSION
from onetool.interfaces.rest.query import QueryParameter

_TAGS = r'^(\*|[!#-+\x2d-~]+|(W/)?"[!#-~]*"( ?, ?(W/)?"[!#-~]*")*)$'
PARAMETERS: dict[str, Part] = {
    "bundleID": {"in": "path", "required": True, "schema": ID, "example": openapi_schemas.EXAMPLE_BUNDLE_ID},
    "toolSlug": {"in": "path", "required": True, "schema": SLUG, "example": openapi_schemas.EXAMPLE_TOOL_SLUG},
    "version": {"in": "path", "required": True, "schema": VERSION, "example": openapi_schemas.EXAMPLE_TOOL_VERSION},
    "If-Match": {
        "in": "header",
        "description": "Only if it still has this ETag; `*`: only if it is there.",
        "schema": {"type": "string", "pattern": _TAGS},
    },
    "If-None-Match": {
        "in": "header",
        "description": "Only if it has another ETag; `*`: only if it is not there yet.",
        "schema": {"type": "string", "pattern": _TAGS},
    },
    "tags": {
        "in": "query",
        "description": "Tools with any of these tags: `tags=a&tags=b` or `tags=a,b`.",
        "schema": {"type": "array", "items": {"type": "string"}},
    },
    "bundleIDs": {
        "in": "query",
        "description": "Only these bundles: `bundleIDs=…&bundleIDs=…` or `bundleIDs=…,…`.",
        "schema": {
            "type": "array",
            "items": {"type": "string", "pattern": f"^{ID['pattern'][1:-1]}(,{ID['pattern'][1:-1]})*$"},
        },
    },
    "includeDisabled": {
        "in": "query",
        "description": "Also what is switched off.",
        "schema": {"enum": [True, False, 1, 0], "default": False},
    },
    "pageToken": {
        "in": "query",
        "description": "nextPageToken of the page before. Good for the same query alone; the page's size may change.",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"},
    },
    "q": {
        "in": "query",
        "description": "What is searched for: the beginning of names, whole words, or nearly these, in this order. "
        "Nothing finds everything, the newest first.",
        "schema": {"type": "string", "maxLength": q.LONGEST_SEARCH},
        "example": "forecast",
    },
}
_SIZE: Part = {
    "in": "query",
    "description": "How many at the most.",
    "schema": {"type": "integer", "minimum": 1, "maximum": q.MOST_PER_PAGE, "default": q.PER_PAGE},
}
_RECOMMENDED: Part = {
    "in": "query",
    "description": f"How many at the most. More than {q.MOST_PER_PAGE} means {q.MOST_PER_PAGE}.",
    "schema": {"type": "integer", "minimum": 1, "default": q.PER_PAGE},
}
_NAME: Part = {
    "in": "path",
    "required": True,
    "description": "As code says it: `time.now`, `bundle.tool`, `bundle.tool@version`, or an alias.",
    "schema": {"type": "string", "minLength": 1},
}
PARAMETERS |= {
    "days": {
        "in": "query",
        "description": "How many days, until now.",
        "schema": {"type": "integer", "minimum": 1, "maximum": q.MOST_DAYS, "default": q.USUAL_DAYS},
    },
    "pageSize": _SIZE,
    "recommendedPageSize": _RECOMMENDED,
    "name": _NAME,
    **openapi_imports.PARAMETERS,
    **openapi_ask.PARAMETERS,
    **openapi_console.PARAMETERS,
}


def operation(
    id: str,
    summary: str,
    gives: dict[int, Part],
    *refused: int,
    takes: Part | None = None,
    note: str = "",
    conditions: tuple[str, ...] = (),
) -> Part:
    """One operation. `gives` are the successful responses; `conditions` are further error statuses."""
    refusals = {status: problem_response(status) for status in sorted({*ANY_REQUEST, *refused})}
    found: Part = {
        "operationId": id,
        "summary": summary,
        **({"description": note} if note else {}),
        "parameters": [_parameter(name) for name in conditions],
        **({"requestBody": takes} if takes else {}),
        "responses": {str(status): answer for status, answer in sorted({**gives, **refusals}.items())},
    }
    return found


def with_query(found: Part, parameters: dict[str, QueryParameter]) -> Part:
    return {**found, "parameters": [*found["parameters"], *map(_query_parameter, parameters.values())]}


def _query_parameter(one: QueryParameter) -> Part:
    found = _parameter(one.name)
    if one.values:
        found["schema"] = {"type": "array", "minItems": 1, "items": {"enum": list(one.values)}}
    return found


def path_parameters(template: str) -> list[Part]:
    return [_parameter(part[1:-1]) for part in template.split("/") if part.startswith("{")]


def _parameter(name: str) -> Part:
    return {"name": name, **PARAMETERS[name]}


def described_operation(facts: Part) -> Part:
    """An operation as a table describes it, such as that of `openapi_imports`."""
    gives = {status: response(*one) for status, one in facts["gives"].items()}
    if "content" in facts:
        gives[200]["content"] = facts["content"]
    options = {key: facts[key] for key in ("takes", "note", "conditions") if key in facts}
    return operation(facts["id"], facts["summary"], gives, *facts["refused"], **options)


# Bundles and tools


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
