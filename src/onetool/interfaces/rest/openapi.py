"""The OpenAPI 3.1 document of the REST API, and the route that serves it."""

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from onetool._version import __version__
from onetool.interfaces.asgi import Asgi, Receive, Scope, Send, respond
from onetool.interfaces.rest import openapi_ask, openapi_console, openapi_imports, openapi_insight, openapi_schemas
from onetool.interfaces.rest import routing as q
from onetool.interfaces.rest.ask_app import ASK_ROUTES
from onetool.interfaces.rest.openapi_ask import ASK_GROUP
from onetool.interfaces.rest.openapi_schemas import ID, SLUG, VERSION, components
from onetool.interfaces.rest.routing import CALL_PATH, ROOT, ROUTES, QueryParameter

if TYPE_CHECKING:
    from onetool.app import App


Part = dict[str, Any]

LIMIT_HEADERS = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "RateLimit-Policy", "RateLimit")

# !Error statuses: their meaning, and the headers that come with them. Any request may get those of the second line.
REFUSALS: dict[int, tuple[str, tuple[str, ...]]] = {
    400: ("Something that was sent can't be used; `in` and `pointer` say where.", ()),
    401: ("This server needs its token.", ("WWW-Authenticate",)),
    403: ("Not allowed: built-in, switched off, not to be changed here, or a page of another origin asks.", ()),
    404: ("There is no such thing.", ()),
    406: ("This is a stream of events, and `Accept` does not name that.", ()),
    405: ("This address takes other methods.", ("Allow",)),
    409: ("It is there already, or something is in the way.", ()),
    412: ("It is not what If-Match or If-None-Match says.", ()),
    413: ("The body is larger than this server takes.", ()),
    415: ("A POST, and whatever has a body, must say `Content-Type: application/json`, or what this takes.", ()),
    421: ("The Host is no name of this server.", ()),
    424: ("The tool ran, and failed: `code` and `reason` say why.", ()),
    429: ("Called more often than its limit allows.", ("Retry-After", *LIMIT_HEADERS)),
    500: ("A bug of ours.", ()),
    503: ("The store can't be used now, or the server is stopping. Nothing has changed.", ("Retry-After",)),
}
ANY_REQUEST = (400, 401, 403, 405, 413, 415, 421, 500, 503)

_COUNT = {"type": "integer", "minimum": 0}
HEADERS: dict[str, Part] = {
    "ETag": {"description": "The state of it, for If-Match and If-None-Match.", "schema": {"type": "string"}},
    "Location": {"description": "Where it is.", "schema": {"type": "string"}},
    "Content-Location": {"description": "Where it is now.", "schema": {"type": "string"}},
    "Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}},
    "RateLimit-Limit": {"description": "Of a tool with a limit: calls a minute.", "schema": _COUNT},
    "RateLimit-Remaining": {"description": "How many of them are left.", "schema": _COUNT},
    "RateLimit-Reset": {"description": "Seconds until there are more.", "schema": _COUNT},
    "RateLimit-Policy": {"description": 'The limit: `"minute";q=60;w=60`.', "schema": {"type": "string"}},
    "RateLimit": {"description": 'What is left of it: `"minute";r=12;t=34`.', "schema": {"type": "string"}},
    "Allow": {"schema": {"type": "string"}},
    "WWW-Authenticate": {"schema": {"type": "string"}},
}

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


def problem_response(status: int, words: str | None = None, shape: str = "Problem") -> Part:
    """The response for an error status. `words` replaces the usual description."""
    usual, headers = REFUSALS.get(status, ("", ()))
    return {
        "description": words or usual,
        **({"headers": {name: HEADERS[name] for name in headers}} if headers else {}),
        "content": {"application/problem+json": {"schema": {"$ref": f"{openapi_schemas.SCHEMA_PREFIX}{shape}"}}},
    }


def response(words: str, schema: str | None = None, *headers: str, links: Part | None = None) -> Part:
    content = {"application/json": {"schema": {"$ref": f"{openapi_schemas.SCHEMA_PREFIX}{schema}"}}} if schema else None
    return {
        "description": words,
        **({"headers": {name: HEADERS[name] for name in headers}} if headers else {}),
        **({"content": content} if content else {}),
        **({"links": links} if links else {}),
    }


def page_responses(words: str, schema: str) -> dict[int, Part]:
    """Of a list: a page, or that it is the one that the client has."""
    return {200: response(words, schema, "ETag"), 304: response("The page has this ETag still.", None, "ETag")}


def request_body(schema: str, example: Any) -> Part:
    content = {"schema": {"$ref": f"{openapi_schemas.SCHEMA_PREFIX}{schema}"}, "example": example}
    return {"required": True, "content": {"application/json": content}}


# POST /ask


def ask_operation() -> Part:
    found = operation(
        "ask",
        "Ask a model that has these tools",
        {200: response("It answered.", "Answer")},
        note=openapi_ask.ASK_DESCRIPTION,
        takes=request_body("Question", openapi_schemas.EXAMPLE_QUESTION),
    )
    found["responses"]["200"]["content"]["text/event-stream"] = {"schema": openapi_ask.ASK_STREAM}
    refusals = {
        str(status): problem_response(status, words, "AskProblem") for status, words in openapi_ask.ASK_REFUSALS.items()
    }
    return {**found, "responses": dict(sorted({**found["responses"], **refusals}.items()))}


# POST /call/{name}


CALL = f"{CALL_PATH}/{{name}}"
_CALL_DESCRIPTION = """\
The body is the arguments, an object; without any, it may be left out, together with its Content-Type, unless a browser
asks. The answer is the value itself. Refusals, limits and streams are those of `invokeTool`; but a tool that ran and
failed is 424. A stream ends with `result`, which is the envelope."""


def call_operation() -> Part:
    found = operation(
        "callTool",
        "Call a tool by its name",
        {200: {"description": "The value.", "content": {"application/json": {"schema": {}}}}},
        *(404, 424, 429),
        note=_CALL_DESCRIPTION,
        takes=request_body("Arguments", {}) | {"required": False},
    )
    found["responses"]["200"]["content"]["text/event-stream"] = _STREAM
    return found


# The document


ABOUT = """\
Bundles of versioned tools: made, listed, searched, switched on and off, and called. Packs, declared tools and MCP
servers are bundles, too, which only take the switch. And a model that uses all of them: ask it.

Every refusal is `application/problem+json` with a `code` for programs and a `detail` for people. Lists come in pages;
single things have an ETag. A tool that ran and failed is no refusal: its answer is 200 with `ok: false`."""

_BUNDLE = {"bundleID": "$request.path.bundleID"}
_TOOL = {**_BUNDLE, "toolSlug": "$request.path.toolSlug", "version": "$request.path.version"}


def _links(parameters: Part, *operations: str) -> Part:
    return {name: {"operationId": name, "parameters": parameters} for name in operations}


_TO_BUNDLE = _links(_BUNDLE, "getBundle", "patchBundle", "deleteBundle", "putTool")
_TO_TOOL = _links(_TOOL, "getTool", "patchTool", "deleteTool", "invokeTool")
_CHANGE = ("If-Match", "If-None-Match")
_TOOL_PLACE = "/bundles/{bundleID}/tools/{toolSlug}/version/{version}"

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
    (_TOOL_PLACE, "GET"): (
        "Tools",
        operation(
            "getTool",
            "Get a tool",
            {200: response("The tool.", "Tool", "ETag"), 304: response("It has this ETag still.", None, "ETag")},
            404,
            conditions=("If-None-Match",),
        ),
    ),
    (_TOOL_PLACE, "PUT"): (
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
    (_TOOL_PLACE, "PATCH"): (
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
    (_TOOL_PLACE, "DELETE"): (
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
    (f"{_TOOL_PLACE}/invoke", "POST"): (
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


def _further_operation(facts: Part) -> Part:
    """An operation of `openapi_imports` or `openapi_insight`."""
    gives = {status: response(*one) for status, one in facts["gives"].items()}
    if "content" in facts:
        gives[200]["content"] = facts["content"]
    options = {key: facts[key] for key in ("takes", "note", "conditions") if key in facts}
    return operation(facts["id"], facts["summary"], gives, *facts["refused"], **options)


_FURTHER = openapi_imports.OPERATIONS | openapi_insight.OPERATIONS
OPERATIONS |= {place: (group, _further_operation(one)) for place, (group, one) in _FURTHER.items()}
_CONSOLE = {place: (group, _further_operation(one)) for place, (group, one) in openapi_console.OPERATIONS.items()}
_STREAM = {"schema": {"type": "string", "description": "Server-sent events: progress, chunk, result."}}
OPERATIONS[f"{_TOOL_PLACE}/invoke", "POST"][1]["responses"]["200"]["content"]["text/event-stream"] = _STREAM


def _groups() -> list[str]:
    return [group for group, _ in (*OPERATIONS.values(), *_CONSOLE.values(), *openapi_insight.OUTSIDE.values())]


def _schemas() -> Part:
    found = components()
    further = openapi_insight.insight_schemas(found["Tool"])
    return found | openapi_imports.import_schemas(found["Tool"], found["Bundle"]) | further


def _ask_paths() -> Part:
    paths: Part = {}
    for route in ASK_ROUTES.routes:
        item: Part = {"parameters": path_parameters(route.template)}
        paths[route.path] = item
        for method, one in route.methods.items():
            facts = openapi_ask.OPERATIONS.get((route.template, method))
            found = ask_operation() if facts is None else with_query(_further_operation(facts), dict(one.parameters))
            item[method.lower()] = {"tags": [ASK_GROUP], **found}
    return paths


def openapi_document(app: "App", root: str = "") -> Part:
    """The OpenAPI document. Only whether a token is needed depends on the config. `root` is before all addresses."""
    paths: Part = {}
    for route in ROUTES:
        item: Part = {"parameters": path_parameters(route.template)}
        paths[route.path] = item
        described = OPERATIONS if route.root == ROOT else _CONSOLE
        for method, one in route.methods.items():
            group, found = described[route.template, method]
            item[method.lower()] = {"tags": [group], **with_query(found, dict(one.parameters))}
    paths[CALL] = {"parameters": path_parameters(CALL), "post": {"tags": ["Calls"], **call_operation()}}
    for (path, method), (group, facts) in openapi_insight.OUTSIDE.items():
        found = {"tags": [group], **_further_operation(facts)}
        paths.setdefault(path, {"parameters": path_parameters(path)})[method.lower()] = found
    paths |= _ask_paths()
    document: Part = {
        "openapi": "3.1.0",
        "info": {
            "title": "OneTool",
            "version": __version__,
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": quote(root) or "/"}],
        "tags": [{"name": name} for name in dict.fromkeys([*_groups(), ASK_GROUP])],
        "paths": paths,
        "components": {"schemas": _schemas()},
    }
    if app.config.http.token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def openapi(app: "App") -> Asgi:
    """The route /openapi.json."""

    async def show(scope: Scope, _receive: Receive, send: Send) -> None:
        await respond(send, 200, msgspec.json.encode(openapi_document(app, scope.get("root_path", ""))))

    return show
