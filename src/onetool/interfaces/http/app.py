"""The ASGI app of the HTTP server: the checks that every request passes, in this order, and the routes behind them.

    access log -> Host -> Origin -> Content-Length -> who it is, and its rate, unless the route is open ->
    Content-Type -> route

A route is an ASGI app. Its scope has `principal` (who the request comes from, which the context variable
`current_principal` says, too), `log` (a dict whose entries go into the line of the access log) and `is_admitted` (a
function for long streams: whether this client would still be let in).

`RequestBody` reads the body for the route, within its limits.
"""

import asyncio
import logging
import traceback
from asyncio import CancelledError
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from math import ceil
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from onetool.core.principal import Principal, current_address, current_principal, is_admitted
from onetool.core.text import did_you_mean
from onetool.http.asgi import (
    ANSWERED_HEADER,
    CLOSE,
    CLUSTER_PATH,
    FORWARDED,
    FORWARDED_HEADER,
    JSON,
    Asgi,
    HttpError,
    Message,
    Receive,
    Scope,
    Send,
    check_content_type,
    current_scope,
    read_body,
    replayed,
    respond,
)
from onetool.interfaces.http.bodies import BodyMemory, RequestBody, RequestBodyError, check_length, refuse_body
from onetool.interfaces.http.credentials import Admissions
from onetool.interfaces.http.request_log import CLIENT_CLOSED_REQUEST, RequestAudit, clean, log_request
from onetool.interfaces.http.rules import (
    AccessRules,
    answer_preflight,
    check_fetch_site,
    cors_headers,
    is_preflight,
    relevant_headers,
)
from onetool.services.request_rates import PrincipalRates, RequestRates

if TYPE_CHECKING:
    from onetool.cluster.cluster import Cluster
    from onetool.cluster.forwarding import ForwardSeal

_OF_BROWSERS = (b"origin", b"sec-fetch-site")  # each has one of them with every POST
_BODY = (b"content-type", b"transfer-encoding")


def needs_json(method: str, head: Mapping[bytes, bytes], takes_bare_post: bool = False) -> bool:
    """Whether a request needs `Content-Type: application/json`: every POST, and every other request with a body.

    A page can send a POST to another origin without a preflight, unless it is JSON. Other methods that change
    something always need a preflight. A bare POST has no body and no type, and no browser has sent it.
    """
    has_body = b"transfer-encoding" in head or int(head.get(b"content-length", b"0")) > 0
    if method != "POST" or has_body or not takes_bare_post:
        return method == "POST" or has_body
    return any(name in head for name in (*_OF_BROWSERS, *_BODY))


# The ASGI app


log = logging.getLogger("onetool")

READ = ("GET", "HEAD")


class Route(NamedTuple):
    """One path, or with `below` all paths below it, too."""

    path: str
    app: Asgi
    protected: bool = True
    methods: tuple[str, ...] = ()  # none: the app has its own answer to each
    below: bool = False
    write_error: Callable[[HttpError], bytes] = HttpError.body  # a refusal, as clients of this route read it …
    error_type: bytes = JSON  # … and what that is
    is_page: bool = False  # people may come here by a link on any page
    takes_bare_post: bool = False  # see `needs_json`
    check: Callable[[Scope], Collection[bytes]] | None = None  # raises where there is nothing, or not for this method;
    # else the media types that are taken beside JSON
    is_public: bool = False  # where JWTs are accepted, pages of all origins may read it: it says where one gets one
    takes_any_host: bool = False  # balancers ask without a name, or by an address; it tells nothing but a status
    body_factor: int = 1  # how many times http.max_body_mb its bodies may have: some carry files
    max_body: int | None = None  # bytes of its bodies, whatever http.max_body_mb is

    @property
    def is_internal(self) -> bool:
        """Whether it is for other replicas only."""
        return self.path == CLUSTER_PATH or self.path.startswith(f"{CLUSTER_PATH}/")


class HttpApp:
    """The ASGI app. `rules` may be replaced while it serves; `stop` asks routes to end their streams."""

    def __init__(
        self,
        routes: Iterable[Route],
        rules: AccessRules,
        max_body: int,
        redact: Callable[[str], str] = str,
        audit: RequestAudit | None = None,
        cluster: "Cluster | None" = None,
        rates: PrincipalRates | None = None,
    ) -> None:
        """With a `cluster`, requests of its other replicas are let in, as those whom these have checked. `rates` counts
        requests, if not this process alone does.
        """
        self.rules = rules
        self.max_body = max_body
        self.bodies = BodyMemory()
        self.routes = {route.path: route for route in routes}
        self._internal = frozenset(path for path, route in self.routes.items() if route.is_internal)
        self._above = tuple((f"{path}/", route) for path, route in self.routes.items() if route.below)
        self._redact = redact
        self._audit = audit
        self._rates = rates or RequestRates()
        self._admissions = Admissions()
        self._cluster = cluster
        self.is_draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        began = perf_counter()
        scope["log"] = {}
        if self._cluster is not None:
            current_scope.set(scope)
        route = self._route(scope["path"])
        answer = LoggedResponse(send)
        if self.is_draining:
            answer.add = (CLOSE,)  # the next request on this connection might meet us stopping
        try:
            await self._admit(scope, route, receive, answer)
        except HttpError as refused:
            scope["log"].setdefault("error", refused.code)
            await self._refuse(refused, receive, answer, route)
        except CancelledError:
            if await self._has_ended(scope, route, receive, answer):
                return
            # The server stops, and this took too long.
            await self._fail(answer, HttpError(503, "stopping", "The server is stopping; try again.", [CLOSE]))
            raise
        except Exception as error:  # noqa: BLE001 - whatever a route raises is a bug of ours, and costs this request alone
            text = "".join(traceback.format_exception(error))
            log.error("%s %s failed\n%s", scope["method"], clean(scope["path"]), self._redact(text))
            message = "Something went wrong in the server; its log says what. This is a bug in OneTool."
            await self._refuse(HttpError(500, "internal", message), receive, answer, route)
        finally:
            if (admission := scope.pop("admission", None)) is not None:
                del scope["is_admitted"]
                self._admissions.end(admission)
            status, seconds = answer.status or CLIENT_CLOSED_REQUEST, perf_counter() - began
            log_request(scope, status, seconds, answer.bytes, self._redact, None if route is None else route.path)
            if self._audit is not None:
                self._audit(scope, status, seconds, None if route is None else route.path)

    def drain(self) -> None:
        """It will stop soon, and still answers: clients should come on other connections, and to others."""
        if self.is_draining:
            return
        self.is_draining = True
        if self._cluster is not None:
            asyncio.get_running_loop().run_in_executor(None, self._cluster.members.drain)

    async def stop(self) -> None:
        """Ask the routes to end what would go on for ever."""
        for route in self.routes.values():
            if stop := getattr(route.app, "stop", None):
                await stop()

    async def _admit(self, scope: Scope, route: Route | None, receive: Receive, answer: "LoggedResponse") -> None:
        query = scope.get("query_string", b"")
        if "\0" in scope["path"] or b"%00" in query or b"\0" in query:  # PostgreSQL refuses it in every text
            raise HttpError(400, "bad_request", "The address has a null character (%00). Remove it.")
        head = relevant_headers(scope["headers"])
        refuse = partial(self._refuse, receive=receive, answer=answer, route=route)
        body = RequestBody(self.bodies, scope, head, self._max_body(route), receive, answer.send, refuse)
        receive = body.receive
        try:
            if self._cluster is not None and FORWARDED_HEADER in head:
                header = head[FORWARDED_HEADER]
                opened = self._cluster.seal.open(header, scope)
                answer.prove = partial(self._cluster.seal.proof, header)
                receive = await self._admit_forwarded(self._cluster.seal, opened, scope, route, head, body)
            elif not await self._admit_client(scope, route, head, answer):
                return
            elif route is None or route.protected:
                body.count_for(scope["principal"])
            route = self._can_take(scope, route, head)
            if self._audit is not None and FORWARDED in scope:
                await self._audit.begin_forwarded(scope, route.path)
            await route.app(scope, receive, body.send)
        finally:
            body.close()

    async def _admit_client(
        self, scope: Scope, route: Route | None, head: Mapping[bytes, bytes], answer: "LoggedResponse"
    ) -> bool:
        """Check a request from outside. False: it is answered already. Raises HttpError."""
        rules, server = self.rules, scope.get("server")
        if route is None or not route.takes_any_host:
            rules.check_host(head.get(b"host"), server[0] if server else None)
        if (b"origin" in head or b"sec-fetch-site" in head) and not await self._admit_page(scope, route, head, answer):
            return False
        check_length(head.get(b"content-length"), self._max_body(route))
        if route is not None and route.path in self._internal:
            raise HttpError(401, "unauthorized", f"{route.path} is for other replicas of this cluster.")
        if route is None or route.protected:
            authorization = head.get(b"authorization")
            principal = scope["principal"] = await rules.authenticate(authorization, scope)
            if principal.rate is not None and (wait := await self._rates.check_async(principal)) is not None:
                raise _too_many(principal, wait)
            self._begin(scope, principal, _address(scope), lambda: self.rules.identify(authorization, scope))
        return True

    async def _admit_page(
        self, scope: Scope, route: Route | None, head: Mapping[bytes, bytes], answer: "LoggedResponse"
    ) -> bool:
        """Check what a browser says of the page that asks. False: it is answered already. Raises HttpError."""
        rules, origin = self.rules, head.get(b"origin")
        if route is not None and route.is_public and rules.http.jwt is not None:
            return True
        reader = rules.check_origin(origin, head.get(b"host"))
        if reader is None:
            check_fetch_site(head.get(b"sec-fetch-site"), origin, scope, route is not None and route.is_page)
        elif is_preflight(scope):
            await answer_preflight(scope, reader, answer.send)
            return False
        else:
            answer.add = (*answer.add, *cors_headers(reader))
        return True

    async def _admit_forwarded(
        self,
        seal: "ForwardSeal",
        opened: bytes,
        scope: Scope,
        route: Route | None,
        head: Mapping[bytes, bytes],
        body: RequestBody,
    ) -> Receive:
        """Check that another replica has sent this, which has checked everything else. Gives its body once more."""
        told = seal.read(opened)
        if b"transfer-encoding" in head:
            raise HttpError(411, "length_required", "What a replica sends on has a Content-Length.", [CLOSE])
        check_length(head.get(b"content-length"), self._max_body(route))
        body.count_for(told.principal)
        data = await read_body(body.receive) or b""
        seal.accept(told, data, scope)
        if route is not None and route.is_internal:  # it is the sender's own request, who ends it where it has to end
            self._begin(scope, told.principal, told.address, lambda: told.principal)
        else:
            principal = self.rules.credentials.capped(told.principal)
            self._begin(scope, principal, told.address, lambda: self.rules.credentials.current(principal))
        return replayed(data, body.receive)

    def _begin(self, scope: Scope, principal: Principal, address: str, identify: Callable[[], Principal]) -> None:
        """Set who it is for all that the request does. `identify` says who it would be if it came now."""
        scope["principal"] = principal
        current_principal.set(principal)
        current_address.set(address)
        admission = scope["admission"] = self._admissions.begin(identify, principal)
        scope["is_admitted"] = admission.is_valid
        is_admitted.set(admission.is_valid)

    async def _has_ended(self, scope: Scope, route: Route | None, receive: Receive, answer: "LoggedResponse") -> bool:
        """Whether the request was cancelled because its caller is no longer let in. Then its response is ended."""
        admission, task = scope.get("admission"), asyncio.current_task()
        if admission is None or not admission.is_over or task is None:
            return False
        task.uncancel()
        scope["log"]["error"] = "unauthorized"
        if answer.status:
            await answer.send({"type": "http.response.body", "body": b""})
        else:
            refused = HttpError(401, "unauthorized", "Your token or session has ended, or may other things now.")
            await self._refuse(refused, receive, answer, route)
        return True

    def _max_body(self, route: Route | None) -> int:
        """Return how many bytes a body may have."""
        if route is None:
            return self.max_body
        return route.max_body or self.max_body * route.body_factor

    def _route(self, path: str) -> Route | None:
        found = self.routes.get(path) or self.routes.get(path.rstrip("/"))
        if found is None:
            for above, route in self._above:
                if path.startswith(above):
                    return route
        return found

    def _can_take(self, scope: Scope, route: Route | None, head: Mapping[bytes, bytes]) -> Route:
        if route is None:
            path = scope["path"]
            near = did_you_mean(path, self.routes) or f"there are {', '.join(self.routes)}"
            raise HttpError(404, "not_found", f"There is nothing at {path[:100]!r}; {near}")
        if route.methods and scope["method"] not in route.methods:
            allowed = ", ".join(route.methods)
            message = f"{route.path} takes {allowed}, not {scope['method']}."
            raise HttpError(405, "method_not_allowed", message, [(b"allow", allowed.encode())])
        if needs_json(scope["method"], head, route.takes_bare_post):
            try:
                check_content_type(head.get(b"content-type"))
            except HttpError:
                # That there is nothing to send it to is worth more to know.
                others = (route.check(scope) or ()) if route.check is not None else ()
                said = head.get(b"content-type", b"").split(b";")[0].strip().lower()
                if said not in others:
                    raise
        return route

    async def _refuse(
        self, refused: HttpError, receive: Receive, answer: "LoggedResponse", route: Route | None
    ) -> None:
        body, kind = (route.write_error(refused), route.error_type) if route else (refused.body(), JSON)
        if isinstance(refused, RequestBodyError):
            await refuse_body(refused, receive, answer.send, body, kind)
        else:
            await self._fail(answer, refused, body, kind)

    async def _fail(
        self, answer: "LoggedResponse", refused: HttpError, body: bytes | None = None, kind: bytes = JSON
    ) -> None:
        if not answer.status:  # else it is half told, and the server below ends the connection
            await respond(answer.send, refused.status, body or refused.body(), kind, refused.headers)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI lifespan. WebSockets are not supported."""
        if scope["type"] != "lifespan":
            raise RuntimeError(f"OneTool does not speak {scope['type']}")
        while (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _too_many(principal: Principal, wait: float) -> HttpError:
    seconds = max(1, ceil(wait))
    rate = principal.rate
    most = "" if rate is None else f": at most {rate.count:,} in {rate.seconds:g} s"
    message = f"{principal.name} makes too many requests{most}; try again in {seconds} s."
    return HttpError(429, "too_many", message, [(b"retry-after", b"%d" % seconds)])


class LoggedResponse:
    """Wraps `send`, and notes status and size for the access log.

    `prove` makes a header of the status: for another replica, which believes no answer without it.
    """

    __slots__ = ("_send", "add", "bytes", "prove", "status")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.add: tuple[tuple[bytes, bytes], ...] = ()
        self.prove: Callable[[int], bytes] | None = None
        self.status = 0
        self.bytes = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            add = self.add if self.prove is None else (*self.add, (ANSWERED_HEADER, self.prove(self.status)))
            if add:
                message = {**message, "headers": [*message.get("headers", ()), *add]}
        else:
            self.bytes += len(message.get("body", b""))
        await self._send(message)
