"""The declaration of a REST route that isn't an operation, because it streams, or has ETags, as a decorator.

    @RestRoute("GET", "/servers/{server}", "Servers", gives=ServerEntry, errors=(404,))
    async def get_server(request: RestRequest) -> RestResponse:
        "Get a server, and what has changed about its tools."

The router and the OpenAPI document both read it. The name of the function is the operationId; the first line of its
docstring is the summary, and the rest the description.

A handler that is not async runs in a thread, because it may block. A handler with a second parameter gets the body in
it: converted to the type of the parameter, or the plain data if the type is Any.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from inspect import iscoroutinefunction, signature
from typing import Any, Self

import msgspec

from onetool.app.operations import Operation
from onetool.interfaces.rest.problem import Problem
from onetool.interfaces.rest.request import RestRequest, RestResponse, json_body
from onetool.services.secret_file import NAME as SECRET_NAME
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.names import ID_SCHEMA, SLUG_SCHEMA, VERSION_SCHEMA, check_id, check_slug, check_version
from onetool.sources.bundles.validation import converted

EVENT_STREAM = "text/event-stream"

Handler = Callable[[RestRequest], Awaitable[RestResponse | None]]
"""Answers a request. Returns None if the response was streamed or the client has disconnected."""
Shape = Any
"""A type that msgspec describes, or the name of a schema or a type in `openapi_schemas`."""


async def _not_in_a_table(_: RestRequest) -> RestResponse | None:
    raise NotImplementedError  # a separate ASGI app serves this route


class RestRoute(Operation, frozen=True):
    """A route: one method of one path, and what is particular to HTTP."""

    # Request
    needs_body: bool = True
    media: tuple[bytes, ...] = ()  # media types of bodies, in addition to JSON

    # Response
    sends: tuple[str, ...] = ()  # media types of responses, in addition to JSON
    etag: bool = False  # it has an ETag, and takes If-Match and If-None-Match
    headers: tuple[str, ...] = ()
    links: tuple[str, ...] = ()  # operations on the returned item
    problem: type[Problem] = Problem

    handler: Handler = _not_in_a_table  # set by the decorator

    def __call__(self, function: Callable[..., Any]) -> Self:
        return msgspec.structs.replace(self, handler=self._handler(function), **self.described(function))

    def _handler(self, function: Callable[..., Any]) -> Handler:
        is_async = iscoroutinefunction(function)
        body_types = [parameter.annotation for parameter in signature(function).parameters.values()][1:]
        if is_async and not body_types:
            return function
        empty: Any = {} if self.example == {} else ...  # the value of an empty body, if it may be empty

        @wraps(function)
        async def handler(request: RestRequest) -> RestResponse | None:
            arguments: list[Any] = [request]
            for body_type in body_types:
                data = await json_body(request, empty, whole=body_type is Any)
                arguments.append(data if body_type is Any else converted(data, body_type))
            return await (function(*arguments) if is_async else asyncio.to_thread(function, *arguments))

        return handler


class PathParameter(msgspec.Struct, frozen=True):
    """A parameter in a path, such as {name}. `check` raises InvalidError."""

    schema: Mapping[str, Any]
    check: Callable[[str], str] = str
    description: str = ""
    example: str | None = None


def _secret(text: str) -> str:
    if not SECRET_NAME.fullmatch(text):
        raise InvalidError("Invalid name of a secret (expected letters, digits and _, for example METEO_KEY)")
    return text


ANY_NAME = PathParameter({"type": "string", "minLength": 1})
BUNDLE = "/tools/bundles/{bundleID}"
TOOL = "/tools/bundles/{bundleID}/tools/{toolSlug}/version/{version}"
PATH_PARAMETERS = {
    "bundleID": PathParameter(ID_SCHEMA, check_id, example="01890a5d-ac96-774b-bcce-b302099a8057"),
    "toolSlug": PathParameter(SLUG_SCHEMA, check_slug, example="forecast"),
    "version": PathParameter(VERSION_SCHEMA, check_version, example="1.0"),
    "server": PathParameter(
        {"type": "string", "minLength": 1}, description="The name of an MCP server in the config.", example="docs"
    ),
    "host": PathParameter({"type": "string", "minLength": 1}, example="api.example.com"),
    "secret": PathParameter({"type": "string", "pattern": f"^{SECRET_NAME.pattern}$"}, _secret, example="METEO_KEY"),
    "token": PathParameter({"type": "string", "minLength": 1}, description="The name of a token.", example="ci"),
}
