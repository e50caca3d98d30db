"""`Guard` checks every request of the HTTP server in one order, then calls its route.

    null characters, Transfer-Encoding   400
    Host                                 421
    Origin and Sec-Fetch-Site            403; preflights are answered here
    Content-Length                       400, 413
    credential                           401, 503; from here on, the request ends if its caller loses access
    rate limit                           429
    path and method                      404, 405
    Content-Type                         415

A route is an ASGI app. Its scope has `principal` (the caller, who is also in the context variable `current_principal`)
and `log` (a dict whose entries go into the line of the access log). The context variable `is_admitted` has a function
for long streams that returns whether the client still has access.

`GuardedRequest` gives the route the whole body in one message, counts it while it arrives (413), and adds headers to
the response. Bodies above 1 MiB wait for one of `LARGE_BODIES` places (503).
"""

import asyncio
import logging
import traceback
from asyncio import CancelledError, Semaphore
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from math import ceil
from sys import maxsize
from time import perf_counter
from typing import TYPE_CHECKING, Any

from starlette import routing
from starlette.convertors import StringConvertor, register_url_convertor

from onetool.core.limits import MIB
from onetool.core.principal import Principal
from onetool.core.text import did_you_mean
from onetool.core.trace import begin_trace, current_trace
from onetool.http.asgi import (
    CLOSE,
    DUPLICATE,
    HEAD,
    JSON,
    REPLICA,
    REQUEST_ID,
    Asgi,
    HttpError,
    Message,
    Receive,
    Scope,
    Send,
    check_content_type,
    read_head,
    respond,
)
from onetool.interfaces.http.admissions import Admissions
from onetool.interfaces.http.request_log import CLIENT_CLOSED_REQUEST, RequestAudit, clean, log_request
from onetool.interfaces.http.rules import AccessRules, answer_preflight, check_fetch_site, cors_headers, is_preflight
from onetool.services.journal.recorder import Recorder
from onetool.services.request_rates import PrincipalRates, RequestRates

if TYPE_CHECKING:
    from onetool.cluster.cluster import Cluster

log = logging.getLogger("onetool")
LARGE_BODY = MIB
LARGE_BODIES = 8  # that arrive at the same time
PLACE_S = 30.0  # a large body waits this long for a place, and has it this long; clients have a minute to send it
RETRY_AFTER_S = 5
LINGER_S = 2.0  # for a client that sends everything before it reads …
LINGER_BYTES = 32 * MIB  # … and the bytes that it may still send
LOOK_S = 0.05  # between two checks whether requests are done, before the server stops
STOPPED = "The server stopped before this was done. It is unknown whether it had an effect."
NO_ACCESS = "Your token or session has ended, or its rights have changed."
DISCONNECT: Message = {"type": "http.disconnect"}


class Slash(StringConvertor):
    """The end of a path that may have a slash."""

    regex = "/?"


class Below(StringConvertor):
    """The end of a path that may go on after a slash."""

    regex = "(?s:/.*)?"


register_url_convertor("slash", Slash())
register_url_convertor("below", Below())


class Route(routing.Route):
    """A path with its ASGI app; with `below`, including all paths below it."""

    def __init__(
        self,
        path: str,
        app: Asgi,
        *,
        protected: bool = True,
        methods: tuple[str, ...] = (),
        below: bool = False,
        write_error: Callable[[HttpError], bytes] = HttpError.body,
        error_type: bytes = JSON,
        is_page: bool = False,
        takes_bare_post: bool = False,
        check: Callable[[Scope], Collection[bytes]] | None = None,
        is_public: bool = False,
        takes_any_host: bool = False,
        body_factor: int = 1,
        max_body: int | None = None,
    ) -> None:
        """Set the facts. Without `methods`, the app handles all; `write_error` encodes errors, with `error_type`.

        `check` returns the media types that a request may have besides JSON, and raises if its path or method doesn't
        exist. A body may have `max_body` bytes, or else a multiple of http.max_body_mb, because some have files.
        """
        super().__init__(path if path == "/" else f"{path}{{rest:{'below' if below else 'slash'}}}", app)
        self.path, self.app, self.methods = path, app, None
        self.protected, self.allowed, self.below = protected, methods, below
        self.write_error, self.error_type = write_error, error_type
        self.is_page = is_page  # links on any page may lead here
        self.takes_bare_post = takes_bare_post  # see `check_media_type`
        self.is_public = is_public  # with JWTs, pages of all origins may read it: it says where to get a JWT
        self.takes_any_host = takes_any_host  # balancers send no name or an address; the response has only a status
        self.check, self.body_factor, self.max_body = check, body_factor, max_body


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None: ...


NOWHERE = Route("/", _nothing)  # for paths without a route


class Guard:
    """The ASGI app around the routes. A reload replaces `rules` and `max_body`."""

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
        """Serve the routes. Messages of other processes of a `cluster` run as the callers that those have checked.

        `rates` counts requests together with other processes. `recorder` shows each request to its observers.
        """
        self.rules = rules
        self.max_body = max_body
        self.routes = tuple(routes)
        self._by_start: dict[str, list[Route]] = {}  # the first segment of the path
        for route in self.routes:
            self._by_start.setdefault(route.path.split("/", 2)[1], []).append(route)
        self.places = Semaphore(LARGE_BODIES)
        self.is_draining = False
        self._redact = redact
        self._audit = audit
        self._rates = rates or RequestRates()
        self._admissions = Admissions()
        self._cluster = cluster
        if cluster is not None:
            cluster.mailbox.admit = self._admit_message
        self._recorder = recorder
        self._under_way: set[GuardedRequest] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._serve_lifespan(scope, receive, send)
            return
        began, head = perf_counter(), read_head(scope["headers"])
        record_span = None if self._recorder is None else self._recorder.record_span  # set once the export has started
        trace = begin_trace(head.get(REQUEST_ID), head.get(b"traceparent"), head.get(b"tracestate"), record_span)
        current_trace.set(trace)
        route = self._route(scope["path"])
        scope[HEAD], scope["log"] = head, {}
        request = GuardedRequest(self, route, head, scope, receive, send)
        request.add = ((REQUEST_ID, trace.request_id.encode()),)
        if b"upgrade" in head:  # uvicorn reads no further request on this connection
            request.add += (CLOSE,)
        self._under_way.add(request)
        try:
            await self._answer(request, scope, route, head)
        except HttpError as refused:
            await request.refuse(refused)
        except CancelledError:
            if not await self._has_lost_access(request):  # the server is stopping, and this took too long
                await request.refuse(HttpError(503, "stopping", STOPPED, [CLOSE]))
                raise
        except Exception as error:  # noqa: BLE001 - exceptions of a route are our bugs and must fail only this request
            text = "".join(traceback.format_exception(error))
            log.error("%s %s failed\n%s", scope["method"], clean(scope["path"]), self._redact(text))
            message = "Internal error: this is a bug in OneTool. See the server's log."
            await request.refuse(HttpError(500, "internal", message))
        finally:
            self._under_way.discard(request)
            if (admission := scope.pop("admission", None)) is not None:
                self._admissions.end(admission)
            status, seconds = request.status or CLIENT_CLOSED_REQUEST, perf_counter() - began
            path = "" if route is NOWHERE else route.path
            log_request(scope, status, seconds, request.bytes, self._redact, path, self._recorder)
            if self._audit is not None:
                self._audit(scope, status, seconds, path or None)

    async def _answer(self, request: "GuardedRequest", scope: Scope, route: Route, head: Mapping[bytes, bytes]) -> None:
        """Check the request, and call its route. Raises HttpError."""
        query, rules = scope.get("query_string", b""), self.rules
        if "\0" in scope["path"] or b"%00" in query or b"\0" in query:  # PostgreSQL refuses it in every string
            raise HttpError(400, "bad_request", "The address has a null character (%00). Remove it.")
        coding = head.get(b"transfer-encoding")
        if coding is not None and (coding.lower() != b"chunked" or scope["http_version"] != "1.1"):
            # A proxy in front of us may see the end of this body elsewhere, and take the rest for the next request.
            raise HttpError(
                400, "bad_request", "Transfer-Encoding must be given once, as chunked, in HTTP/1.1.", [CLOSE]
            )
        if not route.takes_any_host:
            server = scope.get("server")
            rules.check_host(head.get(b"host"), server[0] if server else None)
        if (b"origin" in head or b"sec-fetch-site" in head) and not (route.is_public and rules.http.jwt):
            reader = rules.check_origin(head.get(b"origin"), head.get(b"host"))
            if reader is None:
                check_fetch_site(head.get(b"sec-fetch-site"), head.get(b"origin"), scope, route.is_page)
            elif is_preflight(scope):
                await answer_preflight(scope, reader, request.send)
                return
            else:
                request.add += cors_headers(reader)
        request.check_length()
        if route.protected:
            authorization = head.get(b"authorization")
            principal = scope["principal"] = await rules.authenticate(authorization, scope)
            if principal.rate is not None and (wait := await self._rates.check_async(principal)) is not None:
                raise _too_many(principal, wait)
            address = str(scope["client"][0]) if scope.get("client") else ""
            self._admissions.begin(scope, principal, address, lambda: self.rules.identify(authorization, scope))
            if self._cluster is not None and principal.role == "admin":
                request.add += ((REPLICA, self._cluster.id.encode()),)
        if route is NOWHERE:
            paths = [one.path for one in self.routes]
            near = did_you_mean(scope["path"], paths) or f"use one of {', '.join(paths)}"
            raise HttpError(404, "not_found", f"Unknown path {scope['path'][:100]!r}; {near}")
        if route.allowed and scope["method"] not in route.allowed:
            allowed = ", ".join(route.allowed)
            message = f"{route.path} takes {allowed}, not {scope['method']}."
            raise HttpError(405, "method_not_allowed", message, [(b"allow", allowed.encode())])
        if head.get(b"content-type") != JSON:
            check_media_type(scope, route, head)
        await route.app(scope, request.receive, request.send)
        if request.body_error is not None:
            raise request.body_error

    def _route(self, path: str) -> Route:
        """Return the route of a path, which is compared without the prefix of a mount."""
        near = self._by_start.get(path.split("/", 2)[1], ()) if path[:1] == "/" else ()
        for route in near:
            if route.path_regex.match(path) is not None:
                return route
        return NOWHERE

    @contextmanager
    def _admit_message(self, principal: Principal, address: str) -> Generator[None]:
        """Make the caller of another process's message the current one, if it still has access. Raises HttpError."""

        def identify() -> Principal:
            credentials = self.rules.credentials  # a reload replaces them
            return credentials.current(credentials.capped(principal))

        scope = dict[str, Any]()
        self._admissions.begin(scope, identify(), address, identify)
        try:
            yield
        finally:
            self._admissions.end(scope["admission"])

    async def _has_lost_access(self, request: "GuardedRequest") -> bool:
        """Return whether the request was cancelled because its caller lost access; if so, end the response."""
        admission, task = request.scope.get("admission"), asyncio.current_task()
        if admission is None or not admission.is_over or task is None:
            return False
        task.uncancel()
        request.scope["log"]["error"] = "unauthorized"
        if request.status:
            await request.send({"type": "http.response.body", "body": b""})
        else:
            await request.refuse(HttpError(401, "unauthorized", NO_ACCESS))
        return True

    # Start and end

    async def _serve_lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the ASGI lifespan. WebSockets are not supported."""
        if scope["type"] != "lifespan":
            raise RuntimeError(f"OneTool does not support {scope['type']}")
        while (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

    def drain(self) -> None:
        """Continue to serve, but send clients to other connections and servers, because this one stops soon."""
        if self.is_draining:
            return
        self.is_draining = True
        if self._cluster is not None:
            asyncio.get_running_loop().run_in_executor(None, self._cluster.members.drain)

    async def finish(self, seconds: float) -> bool:
        """Wait until current requests, those of other processes, tasks and open questions are done. Return False if
        that takes longer than `seconds`. Streams of notifications don't count, because they have no end.
        """
        waited_for = set(self._under_way)
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        busy = [] if self._cluster is None else [self._cluster.mailbox]
        busy += [route.app for route in self.routes]
        while any(one.is_work for one in waited_for & self._under_way) or any(
            getattr(one, "is_busy", False) for one in busy
        ):
            if clock() >= until:
                return False
            await asyncio.sleep(LOOK_S)
        return True

    async def stop(self) -> None:
        """Ask the routes to end their endless streams."""
        self.is_draining = True
        for route in self.routes:
            if stop := getattr(route.app, "stop", None):
                await stop()


class GuardedRequest:
    """A request and its response. `receive` returns the whole body at once, `send` takes the route's response.

    If the body is refused, the route sees a disconnect, which it has to handle anyway; its further output is dropped,
    and the guard sends `body_error`. `add` has headers for the response. `status` and `bytes` describe the response.
    """

    def __init__(
        self, guard: Guard, route: Route, head: Mapping[bytes, bytes], scope: Scope, receive: Receive, send: Send
    ) -> None:
        self.route, self.scope = route, scope
        self.add: tuple[tuple[bytes, bytes], ...] = ()
        self.body_error: HttpError | None = None
        self.status = self.bytes = 0
        self._head, self._receive, self._send = head, receive, send
        self._max_body = route.max_body or guard.max_body * route.body_factor
        self._guard = guard
        self._length = 0  # bytes, from Content-Length
        self._is_read = False

    @property
    def is_work(self) -> bool:
        """Whether the request does work: False for reads and for streams of notifications."""
        return self.scope["method"] not in ("GET", "HEAD") and self.scope["log"].get("mcp") != "subscriptions/listen"

    def check_length(self) -> None:
        """Raise HttpError if Content-Length is invalid or too large."""
        length = self._head.get(b"content-length")
        if length is None:
            return
        if length is DUPLICATE or not length.isdigit():
            raise HttpError(400, "bad_request", "Content-Length must be one whole number.", [CLOSE])
        self._length = int(length) if len(length) <= 18 else maxsize
        if self._length > self._max_body:
            self.body_error = too_large(self._max_body)
            raise self.body_error

    async def receive(self) -> Message:
        if self.body_error is not None:
            return DISCONNECT
        if self._is_read:  # the route has the body and waits for the disconnect
            return await self._receive()
        self._is_read = True
        message = None
        if self._length <= LARGE_BODY:
            message = await self._receive()
            if not message.get("more_body") and len(message.get("body", b"")) <= self._max_body:
                return message
        try:
            return await self._receive_rest(message)
        except HttpError as error:
            self.body_error = error
            return DISCONNECT

    async def _receive_rest(self, message: Message | None) -> Message:
        """Return the whole body, which begins with this message if it is not None. Raises HttpError."""
        body, place = bytearray(), None
        try:
            if message is None:
                place = await Place.take(self._guard.places)
                message = await self._receive()
            while message["type"] == "http.request":
                body += message.get("body", b"")
                if len(body) > self._max_body:
                    raise too_large(self._max_body)
                if not message.get("more_body"):
                    return {"type": "http.request", "body": bytes(body), "more_body": False}
                if len(body) > LARGE_BODY and place is None:
                    place = await Place.take(self._guard.places)
                message = await self._receive()
            return message
        finally:
            if place is not None:
                place.give_back()

    async def send(self, message: Message) -> None:
        """Pass on a message of the response. Adds our headers to the message itself."""
        if self.body_error is not None:
            return
        if message["type"] == "http.response.start":
            if self.status:
                raise RuntimeError("a second response was started")
            self.status = message["status"]
            message["headers"] = headers = [*message.get("headers", ()), *self.add]
            if self._guard.is_draining and CLOSE not in headers:
                headers.append(CLOSE)  # the next request on this connection might meet us stopping
        else:
            self.bytes += len(message.get("body", b""))
        await self._send(message)

    async def refuse(self, error: HttpError) -> None:
        """Respond with an error in the format of the route. Does nothing if a response has begun."""
        self.scope["log"].setdefault("error", error.code)
        if self.status:
            return
        lingers, self.body_error = self.body_error is not None, None
        body, kind = self.route.write_error(error), self.route.error_type
        await respond(self.send, error.status, body, kind, error.headers, is_last=not lingers)
        if lingers:
            await self._linger()
            await self.send({"type": "http.response.body", "body": b""})

    async def _linger(self) -> None:
        """Read the rest of a refused body for a moment.

        Most clients send everything before they read. Closing with unread bytes would reset the connection, and they
        would never see the response.
        """
        left = LINGER_BYTES
        try:
            async with asyncio.timeout(LINGER_S):
                while left > 0:
                    message = await self._receive()
                    left -= len(message.get("body", b""))
                    if not message.get("more_body"):
                        break
        except TimeoutError:
            pass


class Place:
    """A place for a large body while it arrives. A body that takes long gives it back, and goes on without one."""

    def __init__(self, places: Semaphore) -> None:
        self._places = places
        self._timer = asyncio.get_running_loop().call_later(PLACE_S, self.give_back)
        self._is_taken = True

    @classmethod
    async def take(cls, places: Semaphore) -> "Place":
        """Wait for a place. Raises HttpError (503)."""
        try:
            async with asyncio.timeout(PLACE_S):
                await places.acquire()
        except TimeoutError:
            message = f"Too many large request bodies are being read; try again in {RETRY_AFTER_S} s."
            headers = [CLOSE, (b"retry-after", b"%d" % RETRY_AFTER_S)]
            raise HttpError(503, "too_many_bodies", message, headers) from None
        return cls(places)

    def give_back(self) -> None:
        self._timer.cancel()
        if self._is_taken:
            self._is_taken = False
            self._places.release()


def too_large(limit: int) -> HttpError:
    if limit < MIB:
        message = f"The body of a request to this address may have at most {limit / 1024:g} KiB."
    else:
        setting = "http.max_body_mb in the config of the server sets this"
        message = f"The body of a request may have at most {limit / MIB:g} MiB; {setting}."
    return HttpError(413, "too_large", message, [CLOSE])


def _too_many(principal: Principal, wait: float) -> HttpError:
    seconds = max(1, ceil(wait))
    rate = principal.rate
    most = "" if rate is None else f": at most {rate.count:,} in {rate.seconds:g} s"
    message = f"{principal.name} makes too many requests{most}; try again in {seconds} s."
    return HttpError(429, "too_many", message, [(b"retry-after", b"%d" % seconds)])


_FROM_BROWSERS = (b"origin", b"sec-fetch-site")  # every browser sends one of them with every POST


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
    except HttpError as refused:
        # An unknown path is the more useful error.
        others = (route.check(scope) or ()) if route.check is not None else ()
        if head.get(b"content-type", b"").split(b";")[0].strip().lower() not in others:
            also = f" Here {b', '.join(others).decode()} is right, too." if others else ""
            raise HttpError(415, refused.code, f"{refused}{also}") from None
