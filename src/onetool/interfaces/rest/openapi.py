"""The OpenAPI 3.1 document of the REST API, and the route that serves it."""

from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from onetool._version import __version__
from onetool.app.access import needs_credential
from onetool.interfaces.asgi import Asgi, Receive, Scope, Send, respond
from onetool.interfaces.rest import (
    CALL_PATH,
    openapi_ask,
    openapi_console,
    openapi_imports,
    openapi_insight,
    openapi_operations,
    openapi_schemas,
)
from onetool.interfaces.rest.ask_app import ASK_ROUTES
from onetool.interfaces.rest.openapi_ask import ASK_GROUP
from onetool.interfaces.rest.openapi_operations import (
    CALL_STREAM,
    described_operation,
    operation,
    path_parameters,
    with_query,
)
from onetool.interfaces.rest.openapi_parts import Part, problem_response, request_body, response
from onetool.interfaces.rest.openapi_schemas import components
from onetool.interfaces.rest.routing import ROOT, ROUTES

if TYPE_CHECKING:
    from onetool.app import App


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
    found["responses"]["200"]["content"]["text/event-stream"] = CALL_STREAM
    return found


# The document


ABOUT = """\
Bundles of versioned tools: made, listed, searched, switched on and off, and called. Packs, declared tools and MCP
servers are bundles, too, which only take the switch. And a model that uses all of them: ask it.

Every refusal is `application/problem+json` with a `code` for programs and a `detail` for people. Lists come in pages;
single things have an ETag. A tool that ran and failed is no refusal: its answer is 200 with `ok: false`."""

_FURTHER = openapi_imports.OPERATIONS | openapi_insight.OPERATIONS
OPERATIONS = openapi_operations.OPERATIONS | {
    place: (group, described_operation(one)) for place, (group, one) in _FURTHER.items()
}
_CONSOLE = {place: (group, described_operation(one)) for place, (group, one) in openapi_console.OPERATIONS.items()}


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
            found = ask_operation() if facts is None else with_query(described_operation(facts), dict(one.parameters))
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
        found = {"tags": [group], **described_operation(facts)}
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
    if needs_credential(app.config.http, app.runtime.tokens.store):
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def openapi(app: "App") -> Asgi:
    """The route /openapi.json."""

    async def show(scope: Scope, _receive: Receive, send: Send) -> None:
        await respond(send, 200, msgspec.json.encode(openapi_document(app, scope.get("root_path", ""))))

    return show
