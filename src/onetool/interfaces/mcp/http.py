"""MCP over HTTP as an ASGI app: POST a message, GET a session's stream of notifications, DELETE a session.

Access is decided before, in interfaces/http; `scope["principal"]` says who the client is. A request of 2026-07-28
stands alone: it is answered here, and is cancelled when its connection ends.
"""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import parse_qs

from onetool.app.allow_lists import Offered
from onetool.config.model import Menu
from onetool.core.mcp_protocol import (
    DEFAULT_REVISION,
    INTERNAL_ERROR,
    PROTOCOL_VERSION,
    SESSION_REVISIONS,
    STATELESS_REVISIONS,
    JsonRpcError,
    Message,
    check_message,
    decode,
    error_response,
    id_of,
    notification,
    result_response,
    unsupported_version,
)
from onetool.core.principal import LOCAL, Principal
from onetool.http.asgi import BODY_DECODED, HttpError, Receive, Scope, Send, replayed, respond
from onetool.http.response_stream import DisconnectWatch, ResponseStream, send_json
from onetool.interfaces.mcp.client import RemoteClient, client_from_meta, is_stateless_message
from onetool.interfaces.mcp.http_headers import (
    HTTP_STATUS,
    SESSION,
    VERSION,
    Headers,
    as_json_rpc,
    check_arguments,
    check_method,
    check_name,
    check_present,
    check_version,
    headers_of,
    read_message,
)
from onetool.interfaces.mcp.http_sessions import (
    HttpSession,
    HttpSessions,
    answer_batch,
    answer_in_session,
    check_batch,
    serve_stream,
)
from onetool.interfaces.mcp.methods import STATELESS_METHODS, find_entry, handle_request, unknown_method
from onetool.interfaces.mcp.notifications import follow, reload
from onetool.interfaces.mcp.request import McpRequest
from onetool.interfaces.mcp.service import Service

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.cluster.shared_requests import SharedRequests


class NotifyOnlyChannel:
    """The channel of a stateless request: notifications only, the client takes no requests."""

    def __init__(self, response: ResponseStream) -> None:
        self._response = response

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._response.push(notification(method, params))

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        raise JsonRpcError(INTERNAL_ERROR, "this client takes no requests")


async def answer_alone(request: McpRequest, service: Service, response: ResponseStream, receive: Receive) -> None:
    """Handle the request and send the response. If the client disconnects, the request is cancelled."""
    watch = DisconnectWatch(receive, response.begin_when_idle)
    try:
        reply, status = result_response(request.id, await handle_request(service, request)), 200
    except JsonRpcError as error:
        reply, status = error_response(request.id, error), HTTP_STATUS.get(error.code, 200)
    except asyncio.CancelledError:
        response.drop()
        if not watch.was_disconnected():
            raise
        return
    finally:
        watch.end()
    await response.finish(reply, status)


def request_alone(
    message: Message, headers: Headers, service: Service, send: Send, known: RemoteClient
) -> tuple[McpRequest, ResponseStream]:
    """Check the headers against the message, and make the request."""
    method, params = message["method"], message.get("params", {})
    meta = params.get("_meta")
    check_method(headers, message)
    if isinstance(meta, dict) and isinstance(version := meta.get(PROTOCOL_VERSION), str):
        check_version(headers, version)
    client = client_from_meta(meta, known)
    if method not in STATELESS_METHODS:
        raise unknown_method(method)
    name = check_name(headers, message)
    entry = None
    if method == "tools/call":
        entry = find_entry(service, client, name)
        check_arguments(headers, entry, params.get("arguments"))
    response = ResponseStream(send)
    link = NotifyOnlyChannel(response)
    return McpRequest(
        id=message["id"], method=method, params=params, client=client, channel=link, entry=entry
    ), response


# The ASGI app


_ALLOW = [(b"allow", b"POST, GET, DELETE")]


class OneProcess:
    """What is asked of other replicas, for a server that has none. `cluster.shared_requests` has the other form."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    async def load(self, id: str, principal: Principal) -> None: ...

    async def close(self, session: HttpSession) -> None: ...

    async def relay(self, session: HttpSession, messages: list[Any]) -> list[Any]:
        return messages

    async def is_answered(self, message: Any, scope: Scope, receive: Receive, send: Send) -> bool:
        return False

    async def is_streamed(
        self, session: HttpSession, headers: Headers, scope: Scope, receive: Receive, send: Send
    ) -> Headers | None:
        return headers


class McpHttpApp:
    """The route /mcp. `stop` ends open streams; `reload` reads the config and all tools again."""

    def __init__(
        self, app: "App", menu: str | None = None, allowed: Offered = None, shared: "SharedRequests | None" = None
    ) -> None:
        """`shared` is what this process shares with other replicas."""
        self.service = Service(app, menu, allowed, shared)
        self._sessions = HttpSessions(self.service)
        self._shared = OneProcess() if shared is None else shared.attach(self._sessions)

    def start(self) -> None:
        """On the loop, once it serves."""
        follow(self.service)
        self._shared.start()

    async def stop(self) -> None:
        self.service.close()
        self._shared.stop()
        await self._sessions.end_notifications()

    async def reload(self) -> None:
        await reload(self.service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        message: Any = None
        try:
            headers = headers_of(scope)
            if scope["method"] == "POST":
                body = await read_message(headers, receive)
                message = decode(body)
                if BODY_DECODED in scope:
                    scope[BODY_DECODED]()
                if await self._shared.is_answered(message, scope, replayed(body, receive), send):
                    return
                await self._post(scope, headers, message, receive, send)
            elif scope["method"] == "GET":
                if SESSION not in headers:
                    raise HttpError(
                        405,
                        "method_not_allowed",
                        "only a client with a session can GET its stream: POST messages here",
                        _ALLOW,
                    )
                await self._get(scope, headers, receive, send)
            elif scope["method"] == "DELETE":
                session = await self._session(scope, headers)
                await self._shared.close(session)
                await self._sessions.close(session)
                await send_json(send, 204, None)
            else:
                raise HttpError(
                    405, "method_not_allowed", "POST a message, GET a session's stream, or DELETE a session", _ALLOW
                )
        except JsonRpcError as error:
            await send_json(send, HTTP_STATUS.get(error.code, 200), error_response(id_of(message), error))
        except HttpError as refused:
            await respond(send, refused.status, as_json_rpc(refused, id_of(message)), headers=refused.headers)

    async def _post(self, scope: Scope, headers: Headers, message: Any, receive: Receive, send: Send) -> None:
        if isinstance(message, dict):
            _log_method(scope, message)
        if headers.get(VERSION) in STATELESS_REVISIONS or _stands_alone(message):
            await self._post_alone(scope, headers, check_message(message), receive, send)
            return
        if headers.get(VERSION, DEFAULT_REVISION) not in SESSION_REVISIONS:
            raise unsupported_version(headers[VERSION], (*STATELESS_REVISIONS, *SESSION_REVISIONS))
        if isinstance(message, dict) and message.get("method") == "initialize" and SESSION not in headers:
            await self._post_first(scope, check_message(message), send)
            return
        session = await self._session(scope, headers)
        check_present(headers, message)
        if isinstance(message, list):
            check_batch(session, message)
            rest = await self._shared.relay(session, message)
            await (answer_batch(session, rest, send) if rest else send_json(send, 202, None))
            return
        rest = await self._shared.relay(session, [check_message(message)])
        if rest and "id" in message and "method" in message:
            await answer_in_session(session, message, send)
            return
        for one in rest:
            await session.take(one)
        await send_json(send, 202, None)

    async def _get(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        """The stream of notifications, or the rest of a stream."""
        session = await self._session(scope, headers)
        here = await self._shared.is_streamed(session, headers, scope, receive, send)
        if here is not None:
            await serve_stream(session, here, receive, send)

    def _post_alone(
        self, scope: Scope, headers: Headers, message: Message, receive: Receive, send: Send
    ) -> Awaitable[None]:
        if "id" not in message or "method" not in message:
            return send_json(send, 202, None)  # nothing that a client could tell us by the way matters here
        request, response = request_alone(message, headers, self.service, send, _client(scope))
        return answer_alone(request, self.service, response, receive)

    async def _post_first(self, scope: Scope, message: Message, send: Send) -> None:
        """`initialize`: a session begins."""
        session = self._sessions.open(_client(scope))
        reply = await session.conversation.respond(message, session.news.push)
        if reply is None or "error" in reply:
            await self._sessions.close(session)
            await send_json(send, 400, reply)
            return
        await send_json(send, 200, reply, [(SESSION.encode(), session.id.encode())])

    async def _session(self, scope: Scope, headers: Headers) -> HttpSession:
        if SESSION not in headers:
            raise HttpError(400, "no_session", f"the header {SESSION} is missing: begin with initialize")
        id, principal = headers[SESSION], scope.get("principal", LOCAL)
        await self._shared.load(id, principal)
        if (session := self._sessions.get(id, principal)) is None:
            raise HttpError(
                404, "no_such_session", "there is no such session, or it has ended: begin anew with initialize"
            )
        return session


def _stands_alone(message: Any) -> bool:
    """Whether a message is stateless (2026-07-28), whatever its headers say."""
    if not isinstance(message, dict):
        return False
    params = message.get("params")
    return (
        is_stateless_message(params.get("_meta") if isinstance(params, dict) else None)
        or message.get("method") == "server/discover"
    )


def _client(scope: Scope) -> RemoteClient:
    """Return the client of a request, with what its URL chooses: `?menu=direct&whole=1`."""
    principal, query = scope.get("principal", LOCAL), scope.get("query_string", b"")
    if not query:
        return RemoteClient(principal=principal)
    chosen = parse_qs(query.decode("latin-1"))
    menu, whole = chosen.get("menu", [None])[-1], chosen.get("whole", ["0"])[-1]
    if menu is not None and menu not in get_args(Menu):
        raise HttpError(400, "no_such_menu", f"menu={menu:.40}: there are {', '.join(get_args(Menu))}")
    if whole not in ("0", "1"):
        raise HttpError(400, "invalid_whole", f"Invalid whole={whole:.40}: write whole=1 or whole=0")
    return RemoteClient(principal=principal, menu=menu, wants_whole=whole == "1")


def _log_method(scope: Scope, message: Message) -> None:
    """For the line in the access log."""
    log = scope.get("log")
    if log is not None and isinstance(method := message.get("method"), str):
        log["mcp"] = method[:100]
        params = message.get("params")
        name = params.get("name") if isinstance(params, dict) else None
        if isinstance(name, str):
            log["name"] = name[:100]
