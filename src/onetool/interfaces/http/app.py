"""The ASGI app of the HTTP server: it checks every request in this order, then passes it to its route.

    access log -> Host -> Origin -> Content-Length -> caller and rate limit, unless the route is open ->
    Content-Type -> route

A route is an ASGI app. Its scope has `principal` (the caller, who is also in the context variable `current_principal`)
and `log` (a dict whose entries go into the line of the access log). The context variable `is_admitted` has a function
for long streams that returns whether the client still has access.

`Exchange` reads the body for the route, within its limits, and passes the response on.
"""

import asyncio
import logging
import traceback
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import ceil
from time import perf_counter
from typing import TYPE_CHECKING, Any

from onetool.core.principal import Principal
from onetool.core.text import did_you_mean
from onetool.core.trace import begin_trace, current_trace
from onetool.http.asgi import (
    CLOSE,
    FORWARDED,
    FORWARDED_HEADER,
    HEAD,
    JSON,
    REQUEST_ID,
    Asgi,
    HttpError,
    Receive,
    Scope,
    Send,
    check_content_type,
    current_scope,
    read_body,
    read_head,
    replayed,
)
from onetool.interfaces.http.credentials import Admissions
from onetool.interfaces.http.exchange import BodyMemory, Exchange, Route
from onetool.interfaces.http.request_log import CLIENT_CLOSED_REQUEST, RequestAudit, clean, log_request
from onetool.interfaces.http.rules import AccessRules, answer_preflight, check_fetch_site, cors_headers, is_preflight
from onetool.services.event_queue import Recorder
from onetool.services.request_rates import PrincipalRates, RequestRates

if TYPE_CHECKING:
    from onetool.cluster.cluster import Cluster
    from onetool.cluster.forwarding import ForwardSeal

log = logging.getLogger("onetool")
READ = ("GET", "HEAD")
LOOK_S = 0.05  # between two checks whether requests are done, before the server stops
STOPPED = "The server stopped before this was done. It is unknown whether it had an effect."
_FROM_BROWSERS = (b"origin", b"sec-fetch-site")  # every browser sends one of them with every POST


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None: ...


NOWHERE = Route("", _nothing)  # for paths without a route


def check_media_type(scope: Scope, route: Route, head: Mapping[bytes, bytes]) -> None:
    """Raise HttpError unless a request that needs `Content-Type: application/json` has it: every POST, and every other
    request with a body.

    Pages can POST to another origin without a preflight, unless they send JSON. Other methods that change something
    always need a preflight. A bare POST has no body and no type, and does not come from a browser.
    """
    has_body = b"transfer-encoding" in head or int(head.get(b"content-length", b"0")) > 0
    needs_json = scope["method"] == "POST" or has_body
    if scope["method"] == "POST" and not has_body and route.takes_bare_post:
        needs_json = any(name in head for name in (*_FROM_BROWSERS, b"content-type"))
    if not needs_json:
        return
    try:
        check_content_type(head.get(b"content-type"))
    except HttpError:
        # An unknown path is the more useful error.
        others = (route.check(scope) or ()) if route.check is not None else ()
        if head.get(b"content-type", b"").split(b";")[0].strip().lower() not in others:
            raise


class LazyRoute:
    """A route whose app is imported and created at its first request, in a thread.

    Many servers have only MCP clients, and REST takes megabytes of memory. The thread keeps other requests going.
    """

    def __init__(self, load: Callable[[], Asgi]) -> None:
        self._load = load
        self._app: Any = None
        self._is_stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            made = await asyncio.to_thread(self._load)
            if self._app is None:  # otherwise another request was faster
                self._app = made
                if self._is_stopping:
                    await self.stop()
        await self._app(scope, receive, send)

    async def stop(self) -> None:
        self._is_stopping = True
        if (stop := getattr(self._app, "stop", None)) is not None:
            await stop()


class HttpApp:
    """The ASGI app. `rules` can be replaced while it serves; `stop` asks routes to end their streams."""

    def __init__(
        self,
        routes: Iterable[Route],
        rules: AccessRules,
        max_body: int,
        redact: Callable[[str], str] = str,
        audit: RequestAudit | None = None,
        cluster: "Cluster | None" = None,
        rates: PrincipalRates | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        """Serve the routes. Requests from other replicas of a `cluster` run as the callers that those replicas checked.

        `rates` counts requests together with other processes. `recorder` shows each request to its observers.
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
        self._recorder = recorder
        self.is_draining = False
        self._under_way: set[Exchange] = set()  # only with a cluster

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        began = perf_counter()
        if (head := scope.get(HEAD)) is None:  # our own server has read it
            head = scope[HEAD] = read_head(scope["headers"])
        record_span = None if self._recorder is None else self._recorder.record_span
        trace = begin_trace(head.get(REQUEST_ID), head.get(b"traceparent"), head.get(b"tracestate"), record_span)
        current_trace.set(trace)
        scope["log"] = {}
        route = self.routes.get(scope["path"]) or self._route(scope["path"])
        limit = route.max_body or self.max_body * route.body_factor
        exchange = Exchange(self.bodies, route, limit, scope, receive, send)
        exchange.add = ((REQUEST_ID, trace.request_id.encode()),)
        if self._cluster is not None:
            current_scope.set(scope)
            self._under_way.add(exchange)
        if self.is_draining or b"upgrade" in head:
            # The next request on this connection might meet us stopping; after an upgrade, uvicorn reads none.
            exchange.add += (CLOSE,)
        try:
            await self._answer(scope, route, head, exchange)
        except HttpError as refused:
            scope["log"].setdefault("error", refused.code)
            await exchange.refuse(refused)
        except CancelledError:
            if await self._has_ended(scope, exchange):
                return
            # The server is stopping, and this took too long.
            await exchange.refuse(HttpError(503, "stopping", STOPPED, [CLOSE]))
            raise
        except Exception as error:  # noqa: BLE001 - exceptions of a route are our bugs and must fail only this request
            text = "".join(traceback.format_exception(error))
            log.error("%s %s failed\n%s", scope["method"], clean(scope["path"]), self._redact(text))
            message = "Internal error: this is a bug in OneTool. See the server's log."
            await exchange.refuse(HttpError(500, "internal", message))
        finally:
            exchange.close()
            self._under_way.discard(exchange)
            if (admission := scope.pop("admission", None)) is not None:
                self._admissions.end(admission)
            status, seconds = exchange.status or CLIENT_CLOSED_REQUEST, perf_counter() - began
            log_request(scope, status, seconds, exchange.bytes, self._redact, route.path, self._recorder)
            if self._audit is not None:
                self._audit(scope, status, seconds, route.path or None)

    def drain(self) -> None:
        """Continue to serve, but send clients to other connections and servers, because this one stops soon."""
        if self.is_draining:
            return
        self.is_draining = True
        if self._cluster is not None:
            asyncio.get_running_loop().run_in_executor(None, self._cluster.members.drain)

    async def finish(self, seconds: float) -> bool:
        """Wait until current requests, tasks and open questions are done. Return False if that takes longer than
        `seconds`. Streams of notifications don't count, because they have no end.
        """
        waited_for = set(self._under_way)
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while any(one.is_work for one in waited_for & self._under_way) or any(
            getattr(route.app, "is_busy", False) for route in self.routes.values()
        ):
            if clock() >= until:
                return False
            await asyncio.sleep(LOOK_S)
        return True

    async def stop(self) -> None:
        """Ask the routes to end their endless streams."""
        for route in self.routes.values():
            if stop := getattr(route.app, "stop", None):
                await stop()

    async def _answer(self, scope: Scope, route: Route, head: dict[bytes, bytes], exchange: Exchange) -> None:
        """Check the request and call its route. Raises HttpError."""
        query, receive = scope.get("query_string", b""), exchange.receive
        if "\0" in scope["path"] or b"%00" in query or b"\0" in query:  # PostgreSQL refuses it in every string
            raise HttpError(400, "bad_request", "The address has a null character (%00). Remove it.")
        if head.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
            # A proxy in front of us may see the end of this body elsewhere, and take the rest for the next request.
            raise HttpError(400, "bad_request", "Transfer-Encoding must be given once, as chunked.", [CLOSE])
        if self._cluster is not None and FORWARDED_HEADER in head:
            header = head[FORWARDED_HEADER]
            opened, key = self._cluster.seal.open(header, scope)
            exchange.prove = partial(self._cluster.seal.proof, header, key=key)
            receive = await self._admit_forwarded(self._cluster.seal, opened, scope, head, exchange)
        else:
            rules = self.rules
            if not route.takes_any_host:
                server = scope.get("server")
                rules.check_host(head.get(b"host"), server[0] if server else None)
            if (b"origin" in head or b"sec-fetch-site" in head) and not await self._admit_page(scope, head, exchange):
                return
            exchange.check_length()
            if route.path in self._internal:
                raise HttpError(401, "unauthorized", f"{route.path} is only for other replicas of this cluster.")
            if route.protected:
                authorization = head.get(b"authorization")
                principal = scope["principal"] = await rules.authenticate(authorization, scope)
                if principal.rate is not None and (wait := await self._rates.check_async(principal)) is not None:
                    raise _too_many(principal, wait)
                address = str(scope["client"][0]) if scope.get("client") else ""
                self._admissions.begin(scope, principal, address, lambda: self.rules.identify(authorization, scope))
                exchange.count_for(principal)
                if self._cluster is not None:
                    exchange.name_replica(principal, self._cluster.id)
        if not route.path:
            near = did_you_mean(scope["path"], self.routes) or f"use one of {', '.join(self.routes)}"
            raise HttpError(404, "not_found", f"Unknown path {scope['path'][:100]!r}; {near}")
        if route.methods and scope["method"] not in route.methods:
            allowed = ", ".join(route.methods)
            message = f"{route.path} takes {allowed}, not {scope['method']}."
            raise HttpError(405, "method_not_allowed", message, [(b"allow", allowed.encode())])
        if head.get(b"content-type") != JSON:
            check_media_type(scope, route, head)
        if self._audit is not None and FORWARDED in scope:
            await self._audit.begin_forwarded(scope, route.path)
        await route.app(scope, receive, exchange.send)

    async def _admit_page(self, scope: Scope, head: Mapping[bytes, bytes], exchange: Exchange) -> bool:
        """Check the browser's headers about the requesting page. Return False if answered already. Raises HttpError."""
        rules, origin, route = self.rules, head.get(b"origin"), exchange.route
        if route.is_public and rules.http.jwt is not None:
            return True
        reader = rules.check_origin(origin, head.get(b"host"))
        if reader is None:
            check_fetch_site(head.get(b"sec-fetch-site"), origin, scope, route.is_page)
        elif is_preflight(scope):
            await answer_preflight(scope, reader, exchange.send)
            return False
        else:
            exchange.add += cors_headers(reader)
        return True

    async def _admit_forwarded(
        self, seal: "ForwardSeal", opened: bytes, scope: Scope, head: Mapping[bytes, bytes], exchange: Exchange
    ) -> Receive:
        """Check that another replica, which did all other checks, sent this; return a `receive` with its body."""
        forwarded = seal.read(opened)
        if b"transfer-encoding" in head:
            raise HttpError(411, "length_required", "A forwarded request needs a Content-Length.", [CLOSE])
        exchange.check_length()
        exchange.count_for(forwarded.principal)
        data = await read_body(exchange.receive) or b""
        seal.accept(forwarded, data, scope)
        if exchange.route.is_internal:  # the sending replica made this request and ends it itself
            self._admissions.begin(scope, forwarded.principal, forwarded.address, lambda: forwarded.principal)
        else:
            principal = self.rules.credentials.capped(forwarded.principal)
            identify = partial(self.rules.credentials.current, principal)
            self._admissions.begin(scope, principal, forwarded.address, identify)
            exchange.name_replica(principal, seal.replica)
        return replayed(data, exchange.receive)

    async def _has_ended(self, scope: Scope, exchange: Exchange) -> bool:
        """Return whether the request was cancelled because its caller lost access; if so, end the response."""
        admission, task = scope.get("admission"), asyncio.current_task()
        if admission is None or not admission.is_over or task is None:
            return False
        task.uncancel()
        scope["log"]["error"] = "unauthorized"
        if exchange.status:
            await exchange.send({"type": "http.response.body", "body": b""})
        else:
            refused = HttpError(401, "unauthorized", "Your token or session has ended, or its rights have changed.")
            await exchange.refuse(refused)
        return True

    def _route(self, path: str) -> Route:
        """Return the route of a path, which may be below the route's own path."""
        if found := self.routes.get(path.rstrip("/")):
            return found
        return next((route for above, route in self._above if path.startswith(above)), NOWHERE)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the ASGI lifespan. WebSockets are not supported."""
        if scope["type"] != "lifespan":
            raise RuntimeError(f"OneTool does not support {scope['type']}")
        while (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})


def _too_many(principal: Principal, wait: float) -> HttpError:
    seconds = max(1, ceil(wait))
    rate = principal.rate
    most = "" if rate is None else f": at most {rate.count:,} in {rate.seconds:g} s"
    message = f"{principal.name} makes too many requests{most}; try again in {seconds} s."
    return HttpError(429, "too_many", message, [(b"retry-after", b"%d" % seconds)])
