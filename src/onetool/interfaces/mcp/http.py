"""MCP over HTTP, as an ASGI app: POST a message, GET the stream of news, DELETE a session.

Whether the one who sends may is decided before: see interfaces/http. `scope["principal"]` says who it is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any
from urllib.parse import parse_qs

from onetool.app import App
from onetool.interfaces.mcp.client import Client, from_meta, is_modern
from onetool.interfaces.mcp.headers import (
    SESSION,
    VERSION,
    Headers,
    check_arguments,
    check_method,
    check_name,
    check_version,
    headers_of,
)
from onetool.interfaces.mcp.menus import MENUS
from onetool.interfaces.mcp.outlet import Outlet, send_json
from onetool.interfaces.mcp.request import Request
from onetool.interfaces.mcp.revisions import HANDSHAKE, MODERN, PROTOCOL_VERSION
from onetool.interfaces.mcp.server import OF_MODERN, respond, unknown
from onetool.interfaces.mcp.service import Service
from onetool.interfaces.mcp.sessions import Session, Sessions
from onetool.interfaces.mcp.tools import wanted
from onetool.interfaces.mcp.wire import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    Fault,
    Message,
    answer,
    checked,
    decode,
    id_of,
    notification,
    refusal,
)

PATIENCE = 0.1  # seconds after which it is worth finding out whether the client is still there
BATCHES = "2025-03-26"  # the one revision that sends several messages at once

STATUS = {
    **dict.fromkeys((PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS), 400),
    **dict.fromkeys((HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION), 400),
    METHOD_NOT_FOUND: 404,
}

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Refused(Exception):  # noqa: N818 - an answer of HTTP's own
    def __init__(self, status: int, message: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


class McpOverHttp:
    """The route /mcp. `stop` ends what would go on for ever, `reload` reads the config and all tools again."""

    def __init__(self, app: App, menu: str | None = None, allowed: Collection[str] | None = None) -> None:
        self.service = Service(app, menu, allowed)
        self._sessions = Sessions(self.service)

    async def stop(self) -> None:
        self.service.close()
        await self._sessions.close_all()

    async def reload(self) -> None:
        await self.service.reload()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        message: Any = None
        try:
            headers = headers_of(scope)
            if scope["method"] == "POST":
                message = decode(await _body(headers, receive))
                await self._post(scope, headers, message, receive, send)
            elif scope["method"] == "GET":
                await self._listen(scope, headers, receive, send)
            elif scope["method"] == "DELETE":
                await self._sessions.close(self._session(scope, headers))
                await send_json(send, 204, None)
            else:
                raise Refused(405, "POST a message, GET a session's stream, or DELETE a session", _ALLOW)
        except Fault as fault:
            await send_json(send, STATUS.get(fault.code, 200), refusal(id_of(message), fault))
        except Refused as refused:
            error = Fault(INVALID_REQUEST, str(refused))
            await send_json(send, refused.status, refusal(id_of(message), error), refused.headers)

    async def _post(self, scope: Scope, headers: Headers, message: Any, receive: Receive, send: Send) -> None:
        params = message.get("params") if isinstance(message, dict) else None
        meta = params.get("_meta") if isinstance(params, dict) else None
        if isinstance(message, dict):
            _note(scope, message)
        if headers.get(VERSION) in MODERN or is_modern(meta) or _is_discovery(message):
            await self._post_alone(scope, headers, checked(message), meta, receive, send)
            return
        if headers.get(VERSION, BATCHES) not in HANDSHAKE:
            data = {"supported": [*MODERN, *HANDSHAKE], "requested": headers[VERSION]}
            raise Fault(UNSUPPORTED_VERSION, f"protocol version {headers[VERSION]:.40} is not supported here", data)
        await self._post_in_session(scope, headers, message, send)

    # Since 2026-07-28: every request stands alone

    async def _post_alone(
        self, scope: Scope, headers: Headers, message: Message, meta: Any, receive: Receive, send: Send
    ) -> None:
        if "id" not in message or "method" not in message:
            await send_json(send, 202, None)  # nothing that a client could tell us by the way matters here
            return
        client = self._client_alone(scope, headers, message, meta)
        outlet = Outlet(send)
        request = Request(
            id=message["id"],
            method=message["method"],
            params=message.get("params", {}),
            client=client,
            link=OneWay(outlet),
        )
        if request.method not in OF_MODERN:
            raise unknown(request.method)
        check_name(headers, message)
        if request.method == "tools/call":
            entry = wanted(self.service, request)
            check_arguments(headers, entry, request.params.get("arguments"))
        watch = Watch(receive)
        try:
            reply, status = answer(request.id, await respond(self.service, request)), 200
        except Fault as fault:
            reply, status = refusal(request.id, fault), STATUS.get(fault.code, 200)
        except asyncio.CancelledError:
            outlet.drop()
            if not watch.client_has_gone:
                raise
            return
        finally:
            watch.end()
        await outlet.finish(reply, status)

    def _client_alone(self, scope: Scope, headers: Headers, message: Message, meta: Any) -> Client:
        check_method(headers, message)
        if isinstance(meta, dict) and isinstance(meta.get(PROTOCOL_VERSION), str):
            check_version(headers, meta[PROTOCOL_VERSION])
        return from_meta(meta, scope.get("principal", ""), _menu(scope))

    # Before: sessions

    async def _post_in_session(self, scope: Scope, headers: Headers, message: Any, send: Send) -> None:
        if isinstance(message, dict) and message.get("method") == "initialize" and SESSION not in headers:
            client = Client(owner=scope.get("principal", ""), menu=_menu(scope))
            session = self._sessions.open(client)
            reply = await session.conversation.respond(checked(message), session.news.push)
            if reply is None or "error" in reply:
                await self._sessions.close(session)
                await send_json(send, 400, reply)
                return
            await send_json(send, 200, reply, [(SESSION.encode(), session.id.encode())])
            return
        session = self._session(scope, headers)
        if isinstance(message, list):
            await self._post_batch(session, message, send)
            return
        message = checked(message)
        if "id" not in message or "method" not in message:
            await session.conversation.respond(message, session.news.push)
            await send_json(send, 202, None)
            return
        await _answer_in(session, message, send)

    async def _post_batch(self, session: Session, messages: list[Any], send: Send) -> None:
        if session.client.revision != BATCHES or not messages:
            raise Fault(INVALID_REQUEST, "expected one JSON-RPC message: there are no batches in this revision")

        async def one(message: Any) -> Message | None:
            try:
                return await session.conversation.respond(checked(message), session.news.push)
            except Fault as fault:
                return refusal(id_of(message), fault)

        replies = [reply for reply in await asyncio.gather(*map(one, messages)) if reply is not None]
        await send_json(send, 200 if replies else 202, replies or None)

    async def _listen(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        """A session's stream of news; or the rest of a stream that broke."""
        if SESSION not in headers:
            raise Refused(405, "only a client with a session can GET its stream: POST messages here", _ALLOW)
        if "text/event-stream" not in headers.get("accept", "text/event-stream") and "*/*" not in headers["accept"]:
            raise Refused(406, "a stream is text/event-stream, which the header accept does not allow")
        session = self._session(scope, headers)
        last = headers.get("last-event-id")
        stream, after = session.news, 0
        if last is not None:
            found = session.found(last)
            if found is None:
                raise Refused(404, f"last-event-id: there is no event {last:.40} in this session")
            stream, after = found
        outlet = Outlet(send)
        stream.attach(outlet, after)
        if stream.is_over:
            await outlet.end()
            return
        try:
            await _gone(receive)
        finally:
            stream.detach(outlet)
            outlet.drop()

    def _session(self, scope: Scope, headers: Headers) -> Session:
        if SESSION not in headers:
            raise Refused(400, f"the header {SESSION} is missing: begin with initialize")
        session = self._sessions.get(headers[SESSION], scope.get("principal", ""))
        if session is None:
            raise Refused(404, "there is no such session, or it has ended: begin anew with initialize")
        return session


async def _answer_in(session: Session, message: Message, send: Send) -> None:
    """A request of a session. It goes on when its client's connection breaks: the client may come back for the rest."""
    stream = session.stream()
    outlet = stream.outlet = Outlet(send, stream.opening() if session.primes else b"")

    def push(message: Message) -> None:
        """A question may be taken back when the request that it came with is over."""
        (session.news if stream.is_over else stream).push(message)

    try:
        reply = await session.conversation.respond(message, push)
    except BaseException:
        outlet.drop()
        raise
    finally:
        stream.is_over = True
    if outlet.is_stream:
        if reply is not None:
            stream.push(reply)
        await outlet.end()
        return
    session.forget(stream)
    if reply is None:
        outlet.drop()
        await send_json(send, 202, None)  # cancelled: whoever did that waits for nothing
    else:
        await outlet.finish(reply)


class OneWay:
    """The way back for a request that stands alone: there is nobody to take questions."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._outlet.push(notification(method, params))

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        raise Fault(INTERNAL_ERROR, "this client takes no requests")


class Watch:
    """Notices when the client goes away, and cancels the task that works for it. Costs nothing while that is quick."""

    def __init__(self, receive: Receive) -> None:
        self.client_has_gone = False
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._worker = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(PATIENCE, self._begin)

    def end(self) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    def _begin(self) -> None:
        self._watcher = self._loop.create_task(self._watch())

    async def _watch(self) -> None:
        await _gone(self._receive)
        self.client_has_gone = True
        if self._worker is not None:
            self._worker.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


_ALLOW = [(b"allow", b"POST, GET, DELETE")]


async def _body(headers: Headers, receive: Receive) -> bytes:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(415, "a message is application/json: set the header content-type")
    accepted = headers.get("accept", "*/*")
    if not any(one in accepted for one in ("application/json", "text/event-stream", "*/*", "application/*")):
        raise Refused(406, "an answer is application/json or text/event-stream, which the header accept does not allow")
    first = await receive()
    if not first.get("more_body"):
        return first.get("body", b"")
    parts = [first["body"]]
    while True:
        part = await receive()
        if part["type"] == "http.disconnect":
            raise Fault(PARSE_ERROR, "the client went away in the middle of its message")
        parts.append(part.get("body", b""))
        if not part.get("more_body"):
            return b"".join(parts)


def _is_discovery(message: Any) -> bool:
    return isinstance(message, dict) and message.get("method") == "server/discover"


def _menu(scope: Scope) -> str | None:
    """`?menu=direct`: this client's own choice."""
    query = scope.get("query_string", b"")
    if not query:
        return None
    chosen = parse_qs(query.decode("latin-1")).get("menu", [None])[-1]
    if chosen is not None and chosen not in MENUS:
        raise Refused(400, f"menu={chosen:.40}: there are {', '.join(MENUS)}")
    return chosen


def _note(scope: Scope, message: Message) -> None:
    """For the line in the access log."""
    log = scope.get("log")
    if log is not None and isinstance(method := message.get("method"), str):
        log["mcp"] = method[:100]
        name = message.get("params", {}).get("name") if isinstance(message.get("params"), dict) else None
        if isinstance(name, str):
            log["name"] = name[:100]
