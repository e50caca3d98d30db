"""The REST routes of operations: reads what a function takes, and encodes what it gives."""

import asyncio
from inspect import iscoroutinefunction

import msgspec

from onetool.app.operations import Operation, all_operations
from onetool.http.asgi import encode
from onetool.interfaces.rest import ASK_PATH
from onetool.interfaces.rest.request import NO_CONTENT, RestRequest, RestResponse, json_body
from onetool.interfaces.rest.route import RestRoute
from onetool.sources.bundles.validation import converted

NO_STORE = (b"cache-control", b"no-store")


def route_of(operation: Operation) -> RestRoute:
    """Return the route of an operation."""
    run, headers = operation.run, (NO_STORE,) if operation.is_secret else ()

    async def answer(request: RestRequest) -> RestResponse:
        if operation.changes_access:
            request.scope["admission"].task = None
        request.context.port = (request.scope.get("server") or (None, None))[1]
        given = [request.context, *request.path]
        if operation.query is not None:
            given.append(request.query)
        if operation.takes is not None:
            body = await json_body(request, {} if operation.example == {} else ...)
            given.append(converted(body, operation.takes))
        found = await run(*given) if iscoroutinefunction(run) else await asyncio.to_thread(run, *given)
        if operation.gives is None:
            return NO_CONTENT
        return RestResponse(operation.status[0], encode(request.context.clean(msgspec.to_builtins(found))), headers)

    return RestRoute(**{name: getattr(operation, name) for name in Operation.__struct_fields__}, handler=answer)


def operation_routes(below_ask: bool = False) -> list[RestRoute]:
    """Return the routes of all operations that have one: those below /ask, or all others."""
    return [route_of(one) for one in all_operations() if one.path and one.path.startswith(ASK_PATH) == below_ask]
