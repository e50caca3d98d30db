"""The ASGI apps of all routes in the table, and of /call, which calls a tool by name.

`RestApp` finds the route of a request, runs its handler, and sends the response or the problem. `POST /call/time.now`
is for use with curl: the body is the arguments, and the response is the bare value. If a tool ran and failed, the
response is a problem with status 424, or 400 if it refused its arguments. Everything else, including streams, works as
in `invoke`.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from onetool.app.allow_lists import Offered
from onetool.core.call import ToolCall, ToolResult, new_id
from onetool.core.errors import OneToolError
from onetool.core.mismatch import described
from onetool.core.principal import current_principal
from onetool.http.asgi import (
    AUDIT,
    HEAD,
    HttpError,
    Receive,
    Scope,
    Send,
    check_content_type,
    encode,
    read_body,
    respond,
)
from onetool.interfaces.rest import CALL_METHODS, CALL_PATH
from onetool.interfaces.rest.invoke import answer_call, refuse_unrun
from onetool.interfaces.rest.problem import (
    PROBLEM_TYPE,
    RestError,
    problem_body,
    retry_after,
    role_error,
    wrong_part,
)
from onetool.interfaces.rest.query import percent_decoded, read_query
from onetool.interfaces.rest.request import (
    SENT_BODY,
    SOURCE,
    RestContext,
    RestRequest,
    RestResponse,
    json_body,
    refusal_of,
    refuse_tools,
    sent_texts,
)
from onetool.interfaces.rest.route import EVENT_STREAM, RestRoute
from onetool.interfaces.rest.routing import API_ROUTES, RouteTable, audited
from onetool.services.journal import AuditUnavailableError
from onetool.services.journal.row import AuditKind
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.rate_limits import NOTE

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.cluster.members import Members

_NO_SNIFFING = (b"x-content-type-options", b"nosniff")


class RestApp:
    """The ASGI app of one route table: /tools and everything below, /run, /servers and all other roots."""

    routes: RouteTable = API_ROUTES
    write_problem = staticmethod(problem_body)

    def __init__(self, app: "App", allowed: Offered = None, members: "Members | None" = None) -> None:
        """Serve the app. `allowed` lists the tools that may be called; None allows all.

        For `members`, see RestContext.
        """
        self._context = RestContext(app, allowed, members)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._answer(scope, receive, send)
        except (OneToolError, HttpError) as error:
            if (refused := refusal_of(error)) is None:
                raise
            await self._refuse(scope, refused, send)
        else:
            if answer is not None and answer.body:
                await respond(send, answer.status, answer.body, answer.kind, answer.headers)
            elif answer is not None:
                headers = [_NO_SNIFFING, *answer.headers]
                await send({"type": "http.response.start", "status": answer.status, "headers": headers})
                await send({"type": "http.response.body", "body": b""})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> RestResponse | None:
        found = self.routes.match(scope["raw_path"], scope["method"])
        if found.route is None:
            takes = found.resource.allow_header(self._context.principal)
            return RestResponse(204, headers=((b"allow", takes.encode()),))
        if not found.route.for_tools:
            refuse_tools(scope)
        principal = current_principal.get()
        role = found.route.needed_role(principal)
        kind, what = scope[AUDIT] = audited(scope["method"], found, principal, role)
        if not principal.may(role):
            raise role_error(principal, role, scope["method"])
        if kind is not None:
            await self._begin(kind, what)
        query = read_query(scope["query_string"], found.route.query)
        request = RestRequest(self._context, found.path, query, scope[HEAD], scope, receive, send)
        try:
            return await found.route.handler(request)
        except InvalidError as error:
            raise wrong_part(error, found.route) from None

    async def _begin(self, kind: AuditKind, what: str) -> None:
        try:
            await self._context.app.journal.begin(kind, what, via="http")
        except AuditUnavailableError as error:
            raise RestError(503, "audit_unavailable", f"Nothing was done: {error}.") from None

    async def _refuse(self, scope: Scope, refused: HttpError, send: Send) -> None:
        if (log := scope.get("log")) is not None:
            log["error"] = refused.code
        body = self.write_problem(refused, lambda value: self._context.clean(value, sent_texts(scope)))
        await respond(send, refused.status, body, PROBLEM_TYPE, refused.headers)


# /call

CALL = RestRoute(
    "POST",
    f"{CALL_PATH}/{{name}}",
    "Calls",
    takes="Arguments",
    example={},
    needs_body=False,
    gives=Any,
    sends=(EVENT_STREAM,),
    errors=(404, 424, 429),
    id="callTool",
    doc="""Call a tool by name.

The body is an object with the arguments. A call without arguments may omit the body and its Content-Type, except from a
browser. The response is the value itself. Errors, limits and streams are those of `invokeTool`, except that a tool that
ran and failed gives 424, or 400 if it refused its arguments. A stream ends with `result`, which has the envelope.""",
)


class CallApp(RestApp):
    """The ASGI app of /call and everything below."""

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> RestResponse | None:
        name = _tool_name(scope["raw_path"])
        if scope["method"] == "OPTIONS":
            return RestResponse(204, headers=((b"allow", ", ".join(CALL_METHODS).encode()),))
        read_query(scope["query_string"], None)
        request = RestRequest(self._context, (name,), None, scope[HEAD], scope, receive, send)
        call = ToolCall(new_id(), name, await _read_args(request), SOURCE)
        return await answer_call(request, call, bare_value, args_at="")


def _tool_name(raw: bytes) -> str:
    """Return everything after /call/: names may contain any character."""
    try:
        name = percent_decoded(raw.removeprefix(CALL_PATH.encode()).removeprefix(b"/"))
    except ValueError as error:
        raise RestError(400, "bad_path", f"The path can't be read: {error}.", part="path", pointer="/name") from None
    if not name:
        raise RestError(404, "not_found", f"Name a tool: POST {CALL_PATH}/time.now; GET /tools/tools lists them.")
    return name


async def _read_args(request: RestRequest) -> dict[str, Any]:
    if b"content-type" not in request.headers:  # interfaces/http admits this only without a body
        request.scope[SENT_BODY] = await read_body(request.receive)
        if request.scope[SENT_BODY]:
            check_content_type(None)
        return {}
    args = await json_body(request, empty={})
    if not isinstance(args, dict):
        message = f"expected an object with the arguments by their names, got {described(args)}"
        raise RestError(400, "invalid", message, part="body", pointer="")
    return args


def bare_value(result: ToolResult) -> bytes:
    """Encode the value as JSON. Raises RestError if the result has no value."""
    error = result.error
    if error is None:
        return encode(result.data)
    if error.code == "tool_not_found" and result.meta.get("tool") == "run":
        error = msgspec.structs.replace(error, message=f"{error.message}; code is run with POST /run")
    refuse_unrun(error, "")
    headers = retry_after(result.meta.get(NOTE))
    more: dict[str, Any] = {"reason": error.reason, "hints": error.hints, "needs": error.needs}
    refused = error.code == "invalid_args"
    raise RestError(400 if refused else 424, error.code, error.message, **more, headers=headers)
