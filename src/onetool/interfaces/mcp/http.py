"""MCP over HTTP, as an ASGI app: POST a message, GET the stream of news, DELETE a session.

Whether the one who sends may is decided before: see interfaces/http. `scope["principal"]` says who it is.
"""

from collections.abc import Collection
from typing import Any, get_args
from urllib.parse import parse_qs

from onetool.app import App
from onetool.config.model import Menu
from onetool.interfaces.asgi import Receive, Refused, Scope, Send, respond
from onetool.interfaces.mcp.alone import answer_alone, request_alone
from onetool.interfaces.mcp.client import Client, is_modern
from onetool.interfaces.mcp.exchange import STATUS, body_of, in_json_rpc
from onetool.interfaces.mcp.headers import SESSION, VERSION, Headers, check_present, headers_of
from onetool.interfaces.mcp.in_session import answer_batch, answer_in, stream
from onetool.interfaces.mcp.news import follow, reload
from onetool.interfaces.mcp.revisions import HANDSHAKE, MODERN, UNNAMED
from onetool.interfaces.mcp.service import Service
from onetool.interfaces.mcp.sessions import Session, Sessions
from onetool.interfaces.mcp.wire import (
    UNSUPPORTED_VERSION,
    Fault,
    Message,
    checked,
    decode,
    id_of,
    refusal,
)
from onetool.interfaces.outlet import send_json

_ALLOW = [(b"allow", b"POST, GET, DELETE")]


class McpOverHttp:
    """The route /mcp. `stop` ends what would go on for ever, `reload` reads the config and all tools again."""

    def __init__(self, app: App, menu: str | None = None, allowed: Collection[str] | None = None) -> None:
        self.service = Service(app, menu, allowed)
        self._sessions = Sessions(self.service)

    def start(self) -> None:
        """On the loop, once it serves."""
        follow(self.service)

    async def stop(self) -> None:
        self.service.close()
        await self._sessions.stop_news()

    async def reload(self) -> None:
        await reload(self.service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        message: Any = None
        try:
            headers = headers_of(scope)
            if scope["method"] == "POST":
                message = decode(await body_of(headers, receive))
                await self._post(scope, headers, message, receive, send)
            elif scope["method"] == "GET":
                if SESSION not in headers:
                    raise Refused(
                        405,
                        "method_not_allowed",
                        "only a client with a session can GET its stream: POST messages here",
                        _ALLOW,
                    )
                await stream(self._session(scope, headers), headers, receive, send)
            elif scope["method"] == "DELETE":
                await self._sessions.close(self._session(scope, headers))
                await send_json(send, 204, None)
            else:
                raise Refused(
                    405, "method_not_allowed", "POST a message, GET a session's stream, or DELETE a session", _ALLOW
                )
        except Fault as fault:
            await send_json(send, STATUS.get(fault.code, 200), refusal(id_of(message), fault))
        except Refused as refused:
            await respond(send, refused.status, in_json_rpc(refused, id_of(message)), headers=refused.headers)

    async def _post(self, scope: Scope, headers: Headers, message: Any, receive: Receive, send: Send) -> None:
        if isinstance(message, dict):
            _note(scope, message)
        if headers.get(VERSION) in MODERN or _stands_alone(message):
            await self._post_alone(scope, headers, checked(message), receive, send)
            return
        if headers.get(VERSION, UNNAMED) not in HANDSHAKE:
            data = {"supported": [*MODERN, *HANDSHAKE], "requested": headers[VERSION]}
            raise Fault(UNSUPPORTED_VERSION, f"protocol version {headers[VERSION]:.40} is not supported here", data)
        if isinstance(message, dict) and message.get("method") == "initialize" and SESSION not in headers:
            await self._post_first(scope, checked(message), send)
            return
        session = self._session(scope, headers)
        check_present(headers, message)
        await _post_in_session(session, message, send)

    async def _post_alone(self, scope: Scope, headers: Headers, message: Message, receive: Receive, send: Send) -> None:
        if "id" not in message or "method" not in message:
            await send_json(send, 202, None)  # nothing that a client could tell us by the way matters here
            return
        owner = scope.get("principal", "")
        request, outlet = request_alone(message, headers, self.service, send, owner, _menu(scope))
        await answer_alone(request, self.service, outlet, receive)

    async def _post_first(self, scope: Scope, message: Message, send: Send) -> None:
        """`initialize`: a session begins."""
        session = self._sessions.open(Client(owner=scope.get("principal", ""), menu=_menu(scope)))
        reply = await session.conversation.respond(message, session.news.push)
        if reply is None or "error" in reply:
            await self._sessions.close(session)
            await send_json(send, 400, reply)
            return
        await send_json(send, 200, reply, [(SESSION.encode(), session.id.encode())])

    def _session(self, scope: Scope, headers: Headers) -> Session:
        if SESSION not in headers:
            raise Refused(400, "no_session", f"the header {SESSION} is missing: begin with initialize")
        session = self._sessions.get(headers[SESSION], scope.get("principal", ""))
        if session is None:
            raise Refused(
                404, "no_such_session", "there is no such session, or it has ended: begin anew with initialize"
            )
        return session


async def _post_in_session(session: Session, message: Any, send: Send) -> None:
    if isinstance(message, list):
        await answer_batch(session, message, send)
    elif "id" in (message := checked(message)) and "method" in message:
        await answer_in(session, message, send)
    else:
        await session.conversation.respond(message, session.news.push)
        await send_json(send, 202, None)


def _stands_alone(message: Any) -> bool:
    """Whether a message is of the new kind, whatever its headers say."""
    if not isinstance(message, dict):
        return False
    params = message.get("params")
    return (
        is_modern(params.get("_meta") if isinstance(params, dict) else None)
        or message.get("method") == "server/discover"
    )


def _menu(scope: Scope) -> str | None:
    """`?menu=direct`: this client's own choice."""
    query = scope.get("query_string", b"")
    if not query:
        return None
    chosen = parse_qs(query.decode("latin-1")).get("menu", [None])[-1]
    if chosen is not None and chosen not in get_args(Menu):
        raise Refused(400, "no_such_menu", f"menu={chosen:.40}: there are {', '.join(get_args(Menu))}")
    return chosen


def _note(scope: Scope, message: Message) -> None:
    """For the line in the access log."""
    log = scope.get("log")
    if log is not None and isinstance(method := message.get("method"), str):
        log["mcp"] = method[:100]
        params = message.get("params")
        name = params.get("name") if isinstance(params, dict) else None
        if isinstance(name, str):
            log["name"] = name[:100]
