"""The ASGI app of all routes: finds the route of a request, runs its handler, and sends the response or the problem."""

from typing import TYPE_CHECKING

from onetool.app.allow_lists import Offered
from onetool.core.errors import OneToolError
from onetool.interfaces.asgi import AUDIT, FORWARDED, HttpError, Receive, Scope, Send, read_headers, respond
from onetool.interfaces.rest.database_problem import database_problem
from onetool.interfaces.rest.problem import PROBLEM_TYPE, RestError, error_from_store, problem_body, role_error
from onetool.interfaces.rest.query import read_query
from onetool.interfaces.rest.request import ClientInput, RestContext, RestRequest, RestResponse, refuse_tools
from onetool.interfaces.rest.routing import API_ROUTES, RouteTable, audited, needed_role
from onetool.services.audit import AuditKind, AuditUnavailableError
from onetool.sources.bundles.errors import BundleError

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.services.cluster.members import Members

_RELEVANT_HEADERS = frozenset((b"content-type", b"accept", b"accept-encoding", b"if-match", b"if-none-match"))
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")


class RestApp:
    """All routes of one table: /tools and everything below, /run, /servers and all other roots."""

    routes: RouteTable = API_ROUTES

    def __init__(self, app: "App", allowed: Offered = None, members: "Members | None" = None) -> None:
        """`allowed` are the tools that may be called; None allows all. `members`: see RestContext."""
        self._context = RestContext(app, allowed, members)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = ClientInput(scope, receive)
        try:
            answer = await self._answer(scope, sent.receive, send)
        except BundleError as error:
            await self._refuse(scope, error_from_store(error), send, sent)
        except HttpError as refused:
            await self._refuse(scope, refused, send, sent)
        except OneToolError as error:
            if (refused := database_problem(error)) is None:
                raise
            await self._refuse(scope, refused, send, sent)
        else:
            if answer is not None:
                await _send_response(answer, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> RestResponse | None:
        found = self.routes.match(scope["raw_path"], scope["method"])
        if found.method is None:
            takes = found.route.allow_header(self._context.principal)
            return RestResponse(204, headers=((b"allow", takes.encode()),))
        if not found.method.for_tools:
            refuse_tools(scope)
        principal = self._context.principal
        noted = scope[AUDIT] = audited(scope["method"], found, principal)
        if not principal.may(role := needed_role(scope["method"], found.method, principal)):
            raise role_error(principal, role, scope["method"])
        if noted is not None and FORWARDED not in scope:  # who has sent it on notes it
            await self._begin(*noted)
        raw, parameters = scope["query_string"], found.method.parameters
        query = read_query(raw, parameters) if raw or parameters else parameters
        return await found.method.answer(
            RestRequest(self._context, found.path, query, read_headers(scope, _RELEVANT_HEADERS), scope, receive, send)
        )

    async def _begin(self, kind: AuditKind, what: str) -> None:
        try:
            await self._context.app.audit.begin(kind, what, via="http")
        except AuditUnavailableError as error:
            raise RestError(503, "audit_unavailable", f"Nothing was done: {error}.") from None

    async def _refuse(self, scope: Scope, refused: HttpError, send: Send, sent: ClientInput) -> None:
        if (log := scope.get("log")) is not None:
            log["error"] = refused.code
        body = problem_body(refused, lambda text: self._context.clean(text, sent.texts()))
        await respond(send, refused.status, body, PROBLEM_TYPE, refused.headers)


async def _send_response(answer: RestResponse, send: Send) -> None:
    if answer.body:
        await respond(send, answer.status, answer.body, answer.kind, answer.headers)
        return
    headers = [_NO_SNIFFING, *answer.headers]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
