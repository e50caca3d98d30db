"""MCP over HTTP as an ASGI app: POST a message, GET a session's stream of notifications, DELETE a session.

interfaces/http checks access first and sets `scope["principal"]`. Requests of 2026-07-28 are stateless: they are
answered here, and cancelled when their connection ends.
"""

from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import parse_qs

from onetool.app.allow_lists import Offered
from onetool.config.model import Menu
from onetool.core.mcp_protocol import (
    AWAY,
    DEFAULT_REVISION,
    INTERNAL_ERROR,
    PARSE_ERROR,
    PROTOCOL_VERSION,
    SESSION_REVISIONS,
    STATELESS_REVISIONS,
    JsonRpcError,
    Message,
    check_message,
    decode_message,
    error_response,
    id_of,
    notification,
    result_response,
    unsupported_version,
)
from onetool.core.principal import LOCAL
from onetool.http.asgi import (
    BODY_DECODED,
    DUPLICATE,
    HEAD,
    Head,
    HttpError,
    Receive,
    Scope,
    Send,
    header,
    replayed,
    respond,
)
from onetool.http.response_stream import DisconnectWatch, ResponseStream, send_json
from onetool.interfaces.mcp.client import McpRequest, RemoteClient, client_from_meta, is_stateless_message
from onetool.interfaces.mcp.http_headers import (
    ACCEPTS_REPLY,
    HTTP_STATUS,
    METHOD,
    NAME,
    SESSION,
    VERSION,
    as_json_rpc,
    check_arguments,
    check_method,
    check_name,
    check_present,
    check_single,
    check_version,
)
from onetool.interfaces.mcp.http_sessions import HttpSession, HttpSessions, check_batch, serve_stream
from onetool.interfaces.mcp.methods import STATELESS_METHODS, find_entry, handle_request, unknown_method
from onetool.interfaces.mcp.notifications import follow, reload
from onetool.interfaces.mcp.service import Service

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.cluster.shared_requests import SharedRequests


class NotifyOnlyChannel:
    """The channel of a stateless request: only notifications, because the client accepts no requests."""

    def __init__(self, response: ResponseStream) -> None:
        self._response = response

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._response.push(notification(method, params))

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        raise JsonRpcError(INTERNAL_ERROR, "this client accepts no requests")


def request_alone(
    message: Message, head: Head, service: Service, response: ResponseStream, known: RemoteClient
) -> McpRequest:
    """Check the headers against the message, and return the request."""
    method, params = message["method"], message.get("params", {})
    meta = params.get("_meta")
    check_method(head, message)
    if isinstance(meta, dict) and isinstance(version := meta.get(PROTOCOL_VERSION), str):
        check_version(head, version)
    client = client_from_meta(meta, known)
    if method not in STATELESS_METHODS:
        raise unknown_method(method)
    name = check_name(head, message)
    if method == "tools/call":
        check_arguments(head, find_entry(service, client, name), params.get("arguments"))
    link = NotifyOnlyChannel(response)
    return McpRequest(id=message["id"], method=method, params=params, client=client, channel=link)


# The ASGI app

_ALLOW = [(b"allow", b"POST, GET, DELETE")]
RETRY = [(b"retry-after", b"1")]


class McpHttpApp:
    """The ASGI app of /mcp. `stop` ends open streams; `reload` reloads the config and all tools."""

    def __init__(
        self, app: "App", menu: str | None = None, allowed: Offered = None, shared: "SharedRequests | None" = None
    ) -> None:
        """Serve the app. `shared` has the state shared with other replicas."""
        self.service = Service(app, menu, allowed, shared)
        self._sessions = HttpSessions(self.service)
        self._shared = None if shared is None else shared.attach(self._sessions)

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
            self._shared.stop()
        await self._sessions.end_notifications()

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
                posted = await receive()  # the whole body: `Exchange` reads it
                if posted["type"] == "http.disconnect":
                    raise JsonRpcError(PARSE_ERROR, "the client disconnected in the middle of its message")
                body = posted.get("body", b"")
                message, problem = decode_message(body)
                if BODY_DECODED in scope:
                    scope[BODY_DECODED]()
                if problem is not None:
                    raise problem
                if self._shared is not None and await self._shared.is_answered(
                    message, scope, replayed(body, receive), send
                ):
                    return
                await self._post(scope, head, message, receive, send)
            elif scope["method"] == "GET":
                if SESSION not in head:
                    text = "only a client with a session can GET its stream: POST messages here"
                    raise HttpError(405, "method_not_allowed", text, _ALLOW)
                await self._get(scope, head, receive, send)
            elif scope["method"] == "DELETE":
                session = await self._session(scope, head)
                if self._shared is not None:
                    await self._shared.close(session)
                await self._sessions.close(session)
                await send_json(send, 204, None)
            else:
                text = "POST a message, GET a session's stream, or DELETE a session"
                raise HttpError(405, "method_not_allowed", text, _ALLOW)
        except JsonRpcError as error:
            is_away = error.data is AWAY
            status = 503 if is_away else HTTP_STATUS.get(error.code, 200)
            await send_json(send, status, error_response(id_of(message), error), RETRY if is_away else ())
        except HttpError as refused:
            await respond(send, refused.status, as_json_rpc(refused, id_of(message)), headers=refused.headers)

    async def _post(self, scope: Scope, head: Head, message: Any, receive: Receive, send: Send) -> None:
        """Answer a stateless message, the first message of a session, or a message in a session."""
        version = header(head, VERSION) if VERSION in head else DEFAULT_REVISION
        method = message.get("method", "") if isinstance(message, dict) else ""
        if method:
            params = message.get("params", {})
            scope["log"]["mcp"] = method[:100]
            if isinstance(name := params.get("name"), str):
                scope["log"]["name"] = name[:100]
            is_alone = method == "server/discover" or ("_meta" in params and is_stateless_message(params["_meta"]))
        else:
            is_alone = False
        if is_alone or version in STATELESS_REVISIONS:
            await self._post_alone(scope, head, message, receive, send)
            return
        if version not in SESSION_REVISIONS:
            raise unsupported_version(version, (*STATELESS_REVISIONS, *SESSION_REVISIONS))
        if method == "initialize" and SESSION not in head:
            await self._post_first(scope, message, send)
            return
        try:
            session = await self._session(scope, head)
        except HttpError as refused:
            id, principal = header(head, SESSION), scope.get("principal", LOCAL)
            if refused.status != 503 or self._shared is None:
                raise
            if not await self._shared.relay_unknown(id, principal, message):
                raise
            await send_json(send, 202, None)
            return
        if METHOD in head or NAME in head:
            check_present(head, message)
        is_batch = isinstance(message, list)
        if is_batch:
            check_batch(session, message)
        if self._shared is not None:
            here = await self._shared.relay(session, message if is_batch else [message])
            message = here if is_batch or not here else message
        if message and (is_batch or ("method" in message and "id" in message)):
            await session.answer(message, send)
            return
        if message:
            await session.take(message)
        await send_json(send, 202, None)

    async def _post_alone(self, scope: Scope, head: Head, message: Any, receive: Receive, send: Send) -> None:
        """Answer a message without a session. If the client disconnects, the request is cancelled."""
        if not isinstance(message, dict):  # a batch
            check_message(message)
        if "id" not in message or "method" not in message:
            await send_json(send, 202, None)  # notifications of a stateless client are ignored
            return
        response = ResponseStream(send)
        request = request_alone(message, head, self.service, response, _client(scope))
        with DisconnectWatch(receive, response):
            try:
                reply, status = result_response(request.id, await handle_request(self.service, request)), 200
            except JsonRpcError as error:
                if error.data is AWAY and not response.is_stream:
                    raise
                reply, status = error_response(request.id, error), HTTP_STATUS.get(error.code, 200)
            await response.finish(reply, status)

    async def _get(self, scope: Scope, head: Head, receive: Receive, send: Send) -> None:
        """Serve the stream of notifications, or the rest of an interrupted stream."""
        session = await self._session(scope, head)
        if self._shared is not None:
            here = await self._shared.is_streamed(session, head, scope, receive, send)
            if here is None:
                return
            head = here
        await serve_stream(session, head, receive, send)

    async def _post_first(self, scope: Scope, message: Message, send: Send) -> None:
        """Begin a session: the client sent `initialize`."""
        session = self._sessions.open(_client(scope))
        try:
            reply = await session.conversation.respond(message, session.news.push)
        except HttpError:  # the session could not be stored for the other replicas
            await self._sessions.close(session)
            raise
        if reply is None or "error" in reply:
            await self._sessions.close(session)
            await send_json(send, 400, reply)
            return
        await send_json(send, 200, reply, [(SESSION, session.id.encode())])

    async def _session(self, scope: Scope, head: Head) -> HttpSession:
        if SESSION not in head:
            raise HttpError(400, "no_session", f"the header {SESSION.decode()} is missing: begin with initialize")
        id, principal = header(head, SESSION), scope.get("principal", LOCAL)
        if self._shared is not None:
            await self._shared.load(id, principal)
        if (session := self._sessions.get(id, principal)) is None:
            raise HttpError(404, "no_such_session", "unknown or ended session: send initialize again")
        return session


def _client(scope: Scope) -> RemoteClient:
    """Return the client of a request, with the options in its URL: `?menu=direct&whole=1`."""
    principal, query = scope.get("principal", LOCAL), scope.get("query_string", b"")
    if not query:
        return RemoteClient(principal=principal)
    chosen = parse_qs(query.decode("latin-1"))
    menu, whole = chosen.get("menu", [None])[-1], chosen.get("whole", ["0"])[-1]
    if menu is not None and menu not in get_args(Menu):
        raise HttpError(400, "no_such_menu", f"Invalid menu={menu:.40}: use one of {', '.join(get_args(Menu))}")
    if whole not in ("0", "1"):
        raise HttpError(400, "invalid_whole", f"Invalid whole={whole:.40}: use whole=1 or whole=0")
    return RemoteClient(principal=principal, menu=menu, wants_whole=whole == "1")
