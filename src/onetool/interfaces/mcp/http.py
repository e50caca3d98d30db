"""MCP over HTTP as an ASGI app: POST a message, GET a session's stream of notifications, DELETE a session.

interfaces/http checks access first and sets `scope["principal"]`. `McpHttpApp` decodes a message, then
`StatelessMcp` (2026-07-28) or `SessionMcp` (earlier revisions) answers it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import parse_qs

import msgspec

from onetool.app.allow_lists import Offered
from onetool.config.model import Menu
from onetool.core.mcp_protocol import (
    AWAY,
    DEFAULT_REVISION,
    INTERNAL_ERROR,
    PARSE_ERROR,
    SESSION_REVISIONS,
    STATELESS_REVISIONS,
    JsonRpcError,
    Message,
    decode_message,
    error_response,
    id_of,
    notification,
    unsupported_version,
)
from onetool.core.principal import LOCAL, current_principal
from onetool.http.asgi import (
    DUPLICATE,
    HEAD,
    Head,
    HttpError,
    Receive,
    Scope,
    Send,
    header,
    respond,
)
from onetool.http.response_stream import DisconnectWatch, ResponseStream, send_json
from onetool.interfaces.mcp.client import McpRequest, RemoteClient, client_from_meta, is_stateless_message
from onetool.interfaces.mcp.http_headers import (
    ACCEPTS_REPLY,
    HTTP_STATUS,
    SESSION,
    VERSION,
    as_json_rpc,
    check_headers,
    check_single,
)
from onetool.interfaces.mcp.http_sessions import RETRY, HttpSession, HttpSessions, serve_stream
from onetool.interfaces.mcp.methods import handle_request
from onetool.interfaces.mcp.notifications import follow, reload
from onetool.interfaces.mcp.pending_calls import answer_key
from onetool.interfaces.mcp.service import Service

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.cluster.shared_requests import SharedRequests


# Requests of 2026-07-28, which need no session


class NotifyOnlyChannel(msgspec.Struct, eq=False):
    """The channel of a stateless request: only notifications, because the client accepts no requests."""

    response: ResponseStream

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self.response.push(notification(method, params))

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        raise JsonRpcError(INTERNAL_ERROR, "this client accepts no requests")


class NoChannel:
    """The channel of a request whose client is connected to another process."""

    def notify(self, method: str, params: dict[str, Any]) -> None:
        pass

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        raise JsonRpcError(INTERNAL_ERROR, "this client accepts no requests")


class StatelessMcp:
    """Answers stateless requests. A request is cancelled when its client disconnects."""

    def __init__(self, service: Service, shared: "SharedRequests | None") -> None:
        self._service = service
        self._shared = shared

    async def post(self, message: Message, scope: Scope, receive: Receive, send: Send) -> None:
        if "id" not in message or "method" not in message:
            await send_json(send, 202, None)  # notifications of a stateless client are ignored
            return
        id, method, params = message["id"], message["method"], message.get("params", {})
        response, shared = ResponseStream(send), self._shared
        menu, wants_whole = _choices(scope) if scope.get("query_string") else (None, False)
        client = client_from_meta(params.get("_meta"), scope.get("principal", LOCAL))
        client.menu, client.wants_whole = menu, wants_whole
        channel = NotifyOnlyChannel(response)
        request = McpRequest(id=id, method=method, params=params, client=client, channel=channel, head=scope[HEAD])
        with DisconnectWatch(receive, response):
            try:
                holder = None if shared is None else shared.elsewhere(method, params)
                if shared is None or holder is None:
                    result = await handle_request(self._service, request)
                else:  # another process has the call or the task
                    told = {"method": method, "params": params, "menu": client.menu, "whole": client.wants_whole}
                    result = await shared.answer(holder, told, client.principal, answer_key(request))
                reply, status = {"jsonrpc": "2.0", "id": id, "result": result}, 200
            except JsonRpcError as error:
                if error.data is AWAY and not response.is_stream:
                    raise
                reply, status = error_response(id, error), HTTP_STATUS.get(error.code, 200)
            await response.finish(reply, status)

    async def answer_for_other(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request that another process has received. There are no notifications: nobody could get them."""
        method, params = told["method"], told["params"]
        try:
            client = client_from_meta(params.get("_meta"), current_principal.get())
            client.menu, client.wants_whole = told["menu"], told["whole"]
            request = McpRequest(id=0, method=method, params=params, client=client, channel=NoChannel())
            return {"result": await handle_request(self._service, request)}
        except JsonRpcError as error:
            if error.data is AWAY:  # as an HttpError, because it is not the outcome: the client tries again
                raise HttpError(503, AWAY["reason"], str(error), RETRY) from None
            return {"error": [error.code, str(error), error.data]}


# Sessions of earlier revisions


class SessionMcp:
    """Answers the messages of sessions, which begin with `initialize`."""

    def __init__(self, service: Service, shared: "SharedRequests | None") -> None:
        self.sessions = HttpSessions(service)
        self._shared = None if shared is None else shared.attach(self.sessions)

    async def post(self, message: Message, scope: Scope, send: Send) -> None:
        head: Head = scope[HEAD]
        version = header(head, VERSION) if VERSION in head else DEFAULT_REVISION
        if version not in SESSION_REVISIONS:
            raise unsupported_version(version, (*STATELESS_REVISIONS, *SESSION_REVISIONS))
        if message.get("method") == "initialize" and SESSION not in head:
            await self._begin(message, scope, send)
            return
        session = await self._receiver(message, scope)
        if session is None:
            await send_json(send, 202, None)
            return
        if "method" in message and "id" in message:
            await session.answer(message, send)
            return
        if self._shared is None or not await self._shared.relay(session, message):
            await session.take(message)
        await send_json(send, 202, None)

    async def get(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream of notifications, or the rest of an interrupted stream."""
        if SESSION not in scope[HEAD]:
            text = "only a client with a session can GET its stream: POST messages here"
            raise HttpError(405, "method_not_allowed", text, _ALLOW)
        session, head = await self._session(scope), scope[HEAD]
        await serve_stream(
            session, head if self._shared is None else self._shared.resumed(session, head), receive, send
        )

    async def delete(self, scope: Scope, send: Send) -> None:
        session = await self._session(scope)
        if self._shared is not None:
            await self._shared.close(session)
        await self.sessions.close(session)
        await send_json(send, 204, None)

    async def _begin(self, message: Message, scope: Scope, send: Send) -> None:
        menu, whole = _choices(scope)
        client = RemoteClient(principal=scope.get("principal", LOCAL), menu=menu, wants_whole=whole)
        session = self.sessions.open(client)
        try:
            reply = await session.conversation.respond(message, session.news.push)
        except HttpError:  # the session could not be stored for the other replicas
            await self.sessions.close(session)
            raise
        if reply is None or "error" in reply:
            await self.sessions.close(session)
            await send_json(send, 400, reply)
            return
        await send_json(send, 200, reply, [(SESSION, session.id.encode())])

    async def _receiver(self, message: Message, scope: Scope) -> HttpSession | None:
        """Return the session of a message; None if another replica took it, which waits for this answer."""
        try:
            return await self._session(scope)
        except HttpError as refused:
            if refused.status != 503 or self._shared is None:
                raise
            id = header(scope[HEAD], SESSION)
            if not await self._shared.relay_unknown(id, scope.get("principal", LOCAL), message):
                raise
            return None

    async def _session(self, scope: Scope) -> HttpSession:
        head: Head = scope[HEAD]
        if SESSION not in head:
            raise HttpError(400, "no_session", f"the header {SESSION.decode()} is missing: begin with initialize")
        id, principal = header(head, SESSION), scope.get("principal", LOCAL)
        if self._shared is not None:
            await self._shared.load(id, principal)
        if (session := self.sessions.get(id, principal)) is None:
            raise HttpError(404, "no_such_session", "unknown or ended session: send initialize again")
        return session


# The ASGI app

_ALLOW = [(b"allow", b"POST, GET, DELETE")]
_STATELESS = frozenset(revision.encode() for revision in STATELESS_REVISIONS)  # values of the version header


class McpHttpApp:
    """The ASGI app of /mcp. `stop` ends open streams; `reload` reloads the config and all tools."""

    def __init__(
        self, app: "App", menu: str | None = None, allowed: Offered = None, shared: "SharedRequests | None" = None
    ) -> None:
        """Serve the app. `shared` has the state shared with other replicas."""
        self.service = Service(app, menu, allowed, shared)
        self._stateless = StatelessMcp(self.service, shared)
        self._session = SessionMcp(self.service, shared)
        self._shared = shared
        if shared is not None:
            shared.on_request(self._stateless.answer_for_other)

    def start(self) -> None:
        """Follow changes in the app. Called on the event loop when the server has started."""
        follow(self.service)
        if self._shared is not None:
            self._shared.start()

    @property
    def is_busy(self) -> bool:
        """Whether calls wait for an answer or continue as tasks."""
        return self.service.pending_calls.is_busy

    async def stop(self) -> None:
        await self.service.pending_calls.give_up()
        self.service.close()
        if self._shared is not None:
            await self._shared.stop()
        await self._session.sessions.end_notifications()

    async def reload(self) -> None:
        await reload(self.service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        message: Any = None
        head: Head = scope[HEAD]
        try:
            if DUPLICATE in head.values():
                check_single(head)
            if scope["method"] == "POST":
                if ACCEPTS_REPLY.search(head.get(b"accept", b"*/*")) is None:
                    text = "the Accept header must allow application/json or text/event-stream"
                    raise HttpError(406, "not_acceptable", text)
                posted = await receive()  # the whole body: `GuardedRequest` reads it
                if posted["type"] == "http.disconnect":
                    raise JsonRpcError(PARSE_ERROR, "the client disconnected in the middle of its message")
                body = posted.get("body", b"")
                message, problem = decode_message(body)
                if problem is not None:
                    raise problem
                params = message.get("params", {})
                if method := message.get("method"):
                    scope["log"]["mcp"] = method[:100]
                    if isinstance(name := params.get("name"), str):
                        scope["log"]["name"] = name[:100]
                is_stateless = (
                    head.get(VERSION) in _STATELESS
                    or method == "server/discover"
                    or ("_meta" in params and is_stateless_message(params["_meta"]))
                )
                if method is not None and ("id" in message or not is_stateless):
                    check_headers(head, method, params, required=is_stateless)
                if is_stateless:
                    await self._stateless.post(message, scope, receive, send)
                else:
                    await self._session.post(message, scope, send)
            elif scope["method"] == "GET":
                await self._session.get(scope, receive, send)
            elif scope["method"] == "DELETE":
                await self._session.delete(scope, send)
            else:
                text = "POST a message, GET a session's stream, or DELETE a session"
                raise HttpError(405, "method_not_allowed", text, _ALLOW)
        except JsonRpcError as error:
            is_away = error.data is AWAY
            status = 503 if is_away else HTTP_STATUS.get(error.code, 200)
            await send_json(send, status, error_response(id_of(message), error), RETRY if is_away else ())
        except HttpError as refused:
            await respond(send, refused.status, as_json_rpc(refused, id_of(message)), headers=refused.headers)


def _choices(scope: Scope) -> tuple[str | None, bool]:
    """Return the menu and the size of results chosen in the URL: `?menu=direct&whole=1`."""
    chosen = parse_qs(scope.get("query_string", b"").decode("latin-1"))
    menu, whole = chosen.get("menu", [None])[-1], chosen.get("whole", ["0"])[-1]
    if menu is not None and menu not in get_args(Menu):
        raise HttpError(400, "no_such_menu", f"Invalid menu={menu:.40}: use one of {', '.join(get_args(Menu))}")
    if whole not in ("0", "1"):
        raise HttpError(400, "invalid_whole", f"Invalid whole={whole:.40}: use whole=1 or whole=0")
    return menu, whole == "1"
