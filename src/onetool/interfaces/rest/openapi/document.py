"""The document as a whole, and the route that gives it."""

from typing import TYPE_CHECKING, Any

import msgspec

from onetool import __version__
from onetool.interfaces.asgi import Asgi, Receive, Scope, Send, respond
from onetool.interfaces.rest.ask import PATH as ASK
from onetool.interfaces.rest.openapi import examples
from onetool.interfaces.rest.openapi.ask_operation import GROUP as ASK_GROUP
from onetool.interfaces.rest.openapi.ask_operation import ask_operation
from onetool.interfaces.rest.openapi.operations import answer, body, operation, path_parameters, with_query
from onetool.interfaces.rest.openapi.schemas import components
from onetool.interfaces.rest.places import PLACES, ROOT

if TYPE_CHECKING:
    from onetool.app import App

Part = dict[str, Any]

ABOUT = """\
Bundles of versioned tools: made, listed, searched, switched on and off, and called. And a model that uses them: ask it.

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
        operation("listBundles", "List bundles", {200: answer("A page.", "BundlePage")}),
    ),
    ("/bundles/{bundleID}", "GET"): (
        "Bundles",
        operation(
            "getBundle",
            "Get a bundle",
            {200: answer("The bundle.", "Bundle", "ETag"), 304: answer("It has this ETag still.", None, "ETag")},
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
                200: answer("Replaced.", "Bundle", "ETag", links=_TO_BUNDLE),
                201: answer("Created.", "Bundle", "ETag", "Location", links=_TO_BUNDLE),
            },
            *(409, 412),
            says="Of a bundle that was deleted, and is not removed yet, this is the way back.",
            takes=body("BundleContent", examples.BUNDLE),
            conditions=_CHANGE,
        ),
    ),
    ("/bundles/{bundleID}", "PATCH"): (
        "Bundles",
        operation(
            "patchBundle",
            "Switch a bundle on or off",
            {200: answer("The bundle.", "Bundle", "ETag")},
            *(404, 409, 412),
            says="The only change that a built-in bundle takes.",
            takes=body("Switch", examples.SWITCH),
            conditions=_CHANGE,
        ),
    ),
    ("/bundles/{bundleID}", "DELETE"): (
        "Bundles",
        operation(
            "deleteBundle",
            "Delete a bundle",
            {204: answer("Deleted.")},
            *(404, 409, 412),
            says="Refused while it has tools. It is removed after two days; until then, PUT brings it back.",
            conditions=_CHANGE,
        ),
    ),
    (_TOOL_PLACE, "GET"): (
        "Tools",
        operation(
            "getTool",
            "Get a tool",
            {200: answer("The tool.", "Tool", "ETag"), 304: answer("It has this ETag still.", None, "ETag")},
            404,
            conditions=("If-None-Match",),
        ),
    ),
    (_TOOL_PLACE, "PUT"): (
        "Tools",
        operation(
            "putTool",
            "Create a tool",
            {201: answer("Created.", "Tool", "ETag", "Location", links=_TO_TOOL)},
            *(404, 409, 412),
            says="A version that is there is never replaced (409): put another version, or delete this one first.",
            takes=body("ToolContent", examples.TOOL),
            conditions=_CHANGE,
        ),
    ),
    (_TOOL_PLACE, "PATCH"): (
        "Tools",
        operation(
            "patchTool",
            "Switch a tool on or off",
            {200: answer("The tool.", "Tool", "ETag")},
            *(404, 409, 412),
            takes=body("Switch", examples.SWITCH),
            conditions=_CHANGE,
        ),
    ),
    (_TOOL_PLACE, "DELETE"): (
        "Tools",
        operation(
            "deleteTool",
            "Delete a tool",
            {204: answer("Deleted.")},
            *(404, 409, 412),
            says="For good.",
            conditions=_CHANGE,
        ),
    ),
    (f"{_TOOL_PLACE}/invoke", "POST"): (
        "Calls",
        operation(
            "invokeTool",
            "Call a tool",
            {200: answer("It ran.", "Envelope")},
            *(404, 429),
            says=(
                "Arguments that the argSchema does not allow are refused with 400 before anything runs. With `Accept: "
                "text/event-stream` the answer is a stream of events: `progress` {progress, total, message}, `chunk` "
                "{data}, and at the end `result`, which is the envelope. A client that leaves cancels the call."
            ),
            takes=body("Call", examples.CALL),
        ),
    ),
    ("/tools", "GET"): (
        "Lists",
        operation("listTools", "List tools of all bundles", {200: answer("A page.", "ToolPage")}),
    ),
    ("/tools/search", "GET"): (
        "Lists",
        operation(
            "searchTools",
            "Search tools",
            {200: answer("A page, the best first.", "ToolPage")},
            says="Beginnings of words come before whole words, these before similar ones; then the newest first.",
        ),
    ),
}
_STREAM = {"schema": {"type": "string", "description": "Server-sent events: progress, chunk, result."}}
OPERATIONS[f"{_TOOL_PLACE}/invoke", "POST"][1]["responses"]["200"]["content"]["text/event-stream"] = _STREAM


def openapi_document(app: "App") -> Part:
    """Whether it needs a token is the one thing that depends on the config."""
    paths: Part = {}
    for place in PLACES:
        item: Part = {"parameters": path_parameters(place.template)}
        paths[ROOT + place.template] = item
        for method, way in place.ways.items():
            group, found = OPERATIONS[place.template, method]
            item[method.lower()] = {"tags": [group], **with_query(found, dict(way.parameters))}
    paths[ASK] = {"parameters": [], "post": {"tags": [ASK_GROUP], **ask_operation()}}
    document: Part = {
        "openapi": "3.1.0",
        "info": {
            "title": "OneTool",
            "version": __version__,
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name} for name in dict.fromkeys([*(group for group, _ in OPERATIONS.values()), ASK_GROUP])],
        "paths": paths,
        "components": {"schemas": components()},
    }
    if app.config.http.token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def openapi(app: "App") -> Asgi:
    """The route /openapi.json."""

    async def show(_scope: Scope, _receive: Receive, send: Send) -> None:
        await respond(send, 200, msgspec.json.encode(openapi_document(app)))

    return show
