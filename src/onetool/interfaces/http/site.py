"""The site: what every request passes, once and in this order, and the routes behind it.

    access log -> Host -> Origin -> length of the body -> token, unless the route is open -> kind of the body -> route

A route is an ASGI app. It finds in its scope `principal`, whose request this is ("" when no token is configured, else
a hash of the token), and `log`, a dict whose entries go into the request's log line.
"""

import logging
import traceback
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Mapping
from time import perf_counter
from typing import NamedTuple

from onetool.core.nearest import did_you_mean
from onetool.interfaces.asgi import CLOSE, JSON, Asgi, Message, Receive, Refused, Scope, Send, respond
from onetool.interfaces.content_type import check_content_type
from onetool.interfaces.http.access import GONE, clean, write_line
from onetool.interfaces.http.body import Counted, TooLarge, check_length, is_json_wanted, refuse_body
from onetool.interfaces.http.cors import is_preflight, preflight, readable_by
from onetool.interfaces.http.foreign import check_fetch_site
from onetool.interfaces.http.rules import Rules, wanted

log = logging.getLogger("onetool")

READ = ("GET", "HEAD")


class Route(NamedTuple):
    """One address, or with `below` everything below it too."""

    path: str
    app: Asgi
    protected: bool = True
    methods: tuple[str, ...] = ()  # none: the app has its own answer to each
    below: bool = False
    told: Callable[[Refused], bytes] = Refused.body  # a refusal, as clients of this route read it …
    kind: bytes = JSON  # … and what that is
    is_page: bool = False  # people may come here by a link on any page
    finds: Callable[[Scope], object] | None = None  # raises where there is nothing, or not for this method

    def is_above(self, path: str) -> bool:
        return self.below and path.startswith(f"{self.path}/")


class Site:
    """An ASGI app. `rules` may be replaced while it serves; `stop` is told to routes that have streams to end."""

    def __init__(
        self,
        routes: Iterable[Route],
        rules: Rules,
        max_body: int,
        redact: Callable[[str], str] = str,
    ) -> None:
        self.rules = rules
        self.max_body = max_body
        self._routes = {route.path: route for route in routes}
        self._redact = redact

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        began = perf_counter()
        scope["log"] = {}
        answer = Answer(send)
        try:
            await self._admit(scope, receive, answer)
        except Refused as refused:
            scope["log"]["error"] = refused.code
            await self._refuse(refused, receive, answer, scope["path"])
        except CancelledError:  # the server stops, and this took too long
            await self._fail(answer, Refused(503, "stopping", "The server is stopping; try again.", [CLOSE]))
            raise
        except Exception as error:  # noqa: BLE001 - whatever a route raises is a bug of ours, and costs this request alone
            text = "".join(traceback.format_exception(error))
            log.error("%s %s failed\n%s", scope["method"], clean(scope["path"]), self._redact(text))
            message = "Something went wrong in the server; its log says what. This is a bug in OneTool."
            await self._refuse(Refused(500, "internal", message), receive, answer, scope["path"])
        finally:
            write_line(scope, answer.status or GONE, perf_counter() - began, answer.bytes, self._redact)

    async def stop(self) -> None:
        """Ask the routes to end what would go on for ever."""
        for route in self._routes.values():
            if stop := getattr(route.app, "stop", None):
                await stop()

    async def _admit(self, scope: Scope, receive: Receive, answer: "Answer") -> None:
        head, rules = wanted(scope["headers"]), self.rules
        server = scope.get("server")
        host = head.get(b"host")
        rules.check_host(host, server[0] if server else None)
        route = self._route(scope["path"])
        origin = head.get(b"origin")
        reader = rules.check_origin(origin, host)
        if reader is None:
            check_fetch_site(head.get(b"sec-fetch-site"), origin, scope, route is not None and route.is_page)
        elif is_preflight(scope):
            await preflight(scope, reader, answer.send)
            return
        else:
            answer.add = readable_by(reader)
        check_length(head.get(b"content-length"), self.max_body)
        is_open = route is not None and not route.protected
        scope["principal"] = "" if is_open else rules.check_token(head.get(b"authorization"))
        route = self._can_take(scope, route, head)
        if b"transfer-encoding" in head:
            counted = Counted(receive, answer.send, self.max_body, route.told, route.kind)
            await route.app(scope, counted.receive, counted.send)
        else:
            await route.app(scope, receive, answer.send)

    def _route(self, path: str) -> Route | None:
        found = self._routes.get(path) or self._routes.get(path.rstrip("/"))
        return found or next((one for one in self._routes.values() if one.is_above(path)), None)

    def _can_take(self, scope: Scope, route: Route | None, head: Mapping[bytes, bytes]) -> Route:
        if route is None:
            path = scope["path"]
            near = did_you_mean(path, self._routes) or f"there are {', '.join(self._routes)}"
            raise Refused(404, "not_found", f"There is nothing at {path[:100]!r}; {near}")
        if route.methods and scope["method"] not in route.methods:
            allowed = ", ".join(route.methods)
            message = f"{route.path} takes {allowed}, not {scope['method']}."
            raise Refused(405, "method_not_allowed", message, [(b"allow", allowed.encode())])
        if is_json_wanted(scope["method"], head):
            try:
                check_content_type(head.get(b"content-type"))
            except Refused:
                if route.finds is not None:
                    route.finds(scope)  # that there is nothing to send it to is worth more to know
                raise
        return route

    async def _refuse(self, refused: Refused, receive: Receive, answer: "Answer", path: str) -> None:
        route = self._route(path)
        body, kind = (route.told(refused), route.kind) if route else (refused.body(), JSON)
        if isinstance(refused, TooLarge):
            await refuse_body(refused, self.max_body, receive, answer.send, body, kind)
        else:
            await self._fail(answer, refused, body, kind)

    async def _fail(self, answer: "Answer", refused: Refused, body: bytes | None = None, kind: bytes = JSON) -> None:
        if not answer.status:  # else it is half told, and the server below ends the connection
            await respond(answer.send, refused.status, body or refused.body(), kind, refused.headers)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The start and the end of the server. There are no websockets here."""
        if scope["type"] != "lifespan":
            raise RuntimeError(f"OneTool does not speak {scope['type']}")
        while (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})


class Answer:
    """What is sent to the client, and for the log how it began and how much it was."""

    __slots__ = ("_send", "add", "bytes", "status")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.add: tuple[tuple[bytes, bytes], ...] = ()
        self.status = 0
        self.bytes = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.add:
                message = {**message, "headers": [*message.get("headers", ()), *self.add]}
        else:
            self.bytes += len(message.get("body", b""))
        await self._send(message)
