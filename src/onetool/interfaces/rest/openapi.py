"""The OpenAPI 3.1 document of the REST API, generated from its routes, and the route that serves it."""

from collections.abc import Callable, Iterable
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec

from onetool._version import __version__
from onetool.app import App
from onetool.app.access import needs_credential
from onetool.app.operations import names_in
from onetool.http.asgi import Asgi, Receive, Scope, Send, respond
from onetool.interfaces.rest.app import CALL
from onetool.interfaces.rest.ask_app import ASK_ROUTES
from onetool.interfaces.rest.events import EVENTS, STATUS
from onetool.interfaces.rest.openapi_schemas import Schema, describe, query_schemas, schema_ref
from onetool.interfaces.rest.problem import PROBLEM_TYPE, Problem
from onetool.interfaces.rest.route import EVENT_STREAM, PathParameter, RestRoute, Shape
from onetool.interfaces.rest.routing import API_ROUTES, RouteTable

Part = dict[str, Any]

ABOUT = """\
Create, list, search, enable, disable and call bundles of versioned tools, and ask a model that uses the tools. Packs,
declared tools and MCP servers are bundles, too, but can only be enabled and disabled.

Every error is `application/problem+json` with a `code` for programs and a `detail` for people. Lists come in pages;
single items have an ETag. A tool that ran and failed is not an error: the response is 200 with `ok: false`."""

_TOOL_NAME = PathParameter(
    {"type": "string", "minLength": 1},
    description="The name as in code: `time.now`, `bundle.tool`, `bundle.tool@version`, or an alias.",
)
TABLES = (API_ROUTES, ASK_ROUTES, RouteTable((CALL, EVENTS, STATUS), {"name": _TOOL_NAME}))

ANY_ROUTE = (400, 401, 403, 405, 413, 415, 421, 500, 503)
ERRORS = {
    400: "The request is invalid; `in` and `pointer` say where.",
    401: "A valid token is required.",
    403: "Not allowed: the role is not sufficient, the item is built in or disabled, or the page has another origin.",
    404: "Not found.",
    405: "The path doesn't support this method.",
    406: "The response is a stream of events, which `Accept` doesn't allow.",
    409: "Conflict: the item already exists, has changed, or is in use.",
    412: "The condition in If-Match or If-None-Match failed.",
    413: "The body is too large for the server, or the question for the model.",
    415: "A POST or a body needs `Content-Type: application/json`, or another type that the route takes.",
    421: "The header Host doesn't name this server.",
    422: "The model or its provider refused the question.",
    424: "The tool ran and failed: `code` and `reason` say why.",
    429: "Too many requests or calls.",
    500: "A bug in OneTool.",
    502: "The provider of the model refused, can't be reached, or gave an invalid answer.",
    503: "The server or a service is busy, not configured, unreachable or stopping. Nothing has changed, unless the "
    "code is `change_unknown`, `not_stored` or `stopping`.",
    504: "The provider of the model timed out.",
}
_TEXT: Part = {"type": "string"}
HEADERS: dict[str, Part] = {
    "ETag": {"description": "The current state, for If-Match and If-None-Match.", "schema": _TEXT},
    "Location": {"description": "The address of the new item.", "schema": _TEXT},
    "Content-Location": {"description": "The current address of the item.", "schema": _TEXT},
    "Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}},
    "Allow": {"schema": _TEXT},
    "WWW-Authenticate": {"schema": _TEXT},
}
ERROR_HEADERS = {
    401: ("WWW-Authenticate",),
    405: ("Allow",),
    429: ("Retry-After",),
    503: ("Retry-After",),
}
_ETAGS = r'^(\*|[!#-+\x2d-~]+|(W/)?"[!#-~]*"( ?, ?(W/)?"[!#-~]*")*)$'
CONDITIONS = {
    "If-Match": "Only if the item still has this ETag; `*`: only if it exists.",
    "If-None-Match": "Only if the item has another ETag; `*`: only if it doesn't exist yet.",
}
MEDIA: dict[str, Schema] = {
    "application/octet-stream": {"type": "string", "contentMediaType": "application/octet-stream"},
    "application/zip": {"type": "string", "contentMediaType": "application/zip"},
    "application/yaml": {"type": "object"},
    "text/markdown": _TEXT,
    EVENT_STREAM: {"type": "string", "description": "Server-sent events."},
}


def openapi(app: App) -> Asgi:
    async def show(scope: Scope, _receive: Receive, send: Send) -> None:
        await respond(send, 200, msgspec.json.encode(openapi_document(app, scope.get("root_path", ""))))

    return show


def openapi_document(app: App, root: str = "") -> Part:
    """Return the document. Only its token requirement depends on the config; `root` is the prefix of all paths."""
    tags, paths, schemas = describe_routes(TABLES)
    document: Part = {
        "openapi": "3.1.0",
        "info": {
            "title": "OneTool",
            "version": __version__,
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": quote(root) or "/"}],
        "tags": [{"name": name} for name in tags],
        "paths": paths,
        "components": {"schemas": schemas},
    }
    if needs_credential(app.config.http, app.runtime.tokens.store):
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


@cache
def describe_routes(tables: tuple[RouteTable, ...]) -> tuple[list[str], Part, dict[str, Schema]]:
    """Return the tags, paths and schemas of all routes."""
    resources = [(one, table) for table in tables for one in table.resources]
    routes = [route for one, _ in resources for route in one.methods.values()]
    shapes = dict.fromkeys(shape for one in routes for shape in (one.takes, one.gives, one.problem))
    known, schemas = describe(one for one in shapes if one is not None and not isinstance(one, str))

    def schema(shape: Shape) -> Schema:
        return schema_ref(shape) if isinstance(shape, str) else known[shape]

    paths = {
        resource.path: {
            "parameters": [
                _parameter(name, "path", one.description, one.schema, one.example, required=True)
                for name, one in ((name, table.parameter(name)) for name in names_in(resource.path))
            ],
            **{method.lower(): _operation(route, schema) for method, route in resource.methods.items()},
        }
        for resource, table in resources
    }
    return list(dict.fromkeys(one.tag for one in routes)), paths, schemas


def _parameter(name: str, where: str, description: str, schema: Any, example: Any, **more: Any) -> Part:
    return {
        "name": name,
        "in": where,
        **more,
        **_given({"description": description, "schema": schema, "example": example}),
    }


def _query_parameter(name: str, schema: Schema) -> Part:
    alternatives = [one for one in schema.pop("anyOf", [{}]) if one != {"type": "null"}]
    description, (example, *_) = schema.pop("description"), schema.pop("examples", [None])
    if schema.get("default") in (None, (), ""):
        schema.pop("default", None)
    if schema.get("type") == "boolean":
        schema = {"enum": [True, False, 1, 0], **_given({"default": schema.get("default")})}
    return _parameter(name, "query", description, {**alternatives[0], **schema}, example)


def _given(members: Part) -> Part:
    return {key: value for key, value in members.items() if value not in (None, "", {})}


def _operation(route: RestRoute, schema: Callable[[Shape], Schema]) -> Part:
    summary, _, description = route.doc.partition("\n\n")
    if route.role in ("edit", "admin"):
        description += f" Needs the role {route.role}."
    names = () if not route.etag else ("If-None-Match",) if route.method == "GET" else CONDITIONS
    etags = {"in": "header", "schema": {**_TEXT, "pattern": _ETAGS}}
    conditions = [{"name": name, "description": CONDITIONS[name], **etags} for name in names]
    query = [] if route.query is None else [_query_parameter(*one) for one in query_schemas(route.query).items()]
    body: Part = {}
    if route.takes is not None:
        content: Part = {"application/json": {"schema": schema(route.takes), "example": route.example}}
        content |= {kind.decode(): {"schema": MEDIA[kind.decode()]} for kind in route.media}
        body = {"requestBody": {"required": route.needs_body, "content": content}}
    return {
        "tags": [route.tag],
        "operationId": route.id,
        "summary": summary.rstrip("."),
        **_given({"description": " ".join(description.split())}),
        "parameters": [*conditions, *query],
        **body,
        "responses": {str(status): one for status, one in sorted(_responses(route, schema))},
    }


def _responses(route: RestRoute, schema: Callable[[Shape], Schema]) -> Iterable[tuple[int, Part]]:
    content: Part = {} if route.gives is None else {"application/json": {"schema": schema(route.gives)}}
    content |= {kind: {"schema": MEDIA[kind]} for kind in route.sends}
    parameters = {name: f"$request.path.{name}" for name in names_in(route.path)}
    links = {name: {"operationId": name, "parameters": parameters} for name in route.links}
    etag = ("ETag",) if route.etag else ()
    for status in route.status:
        if status == 204:
            yield status, _response(status)
        else:
            location = ("Location",) if status == 201 else ()
            yield status, _response(status, (*etag, *location, *route.headers), content, links)
    if etag and route.method == "GET":
        yield 304, _response(304, etag)
    for status in {*ANY_ROUTE, *route.errors, *((412,) if etag and route.method != "GET" else ())}:
        problem = route.problem if status in route.errors else Problem
        kind = {PROBLEM_TYPE.decode(): {"schema": schema(problem)}}
        yield status, _response(status, ERROR_HEADERS.get(status, ()), kind) | {"description": ERRORS[status]}


def _response(status: int, headers: Iterable[str] = (), content: Part | None = None, links: Part | None = None) -> Part:
    more = {"headers": {name: HEADERS[name] for name in headers}, "content": content or {}, "links": links or {}}
    return {"description": HTTPStatus(status).phrase, **_given(more)}
