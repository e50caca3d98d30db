"""The site: all routes of an app, behind one `Guard`, and the credentials that it accepts."""

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from importlib import import_module
from threading import Lock
from time import time
from typing import TYPE_CHECKING, Any

import msgspec

from onetool._version import __version__
from onetool.app.access import KnownTokens, local_role, names_other_machine, token_store
from onetool.app.allow_lists import Offered, allow_lists
from onetool.core.redaction import mask_credentials
from onetool.http.asgi import UNLOGGED, Asgi, Receive, Scope, Send, respond
from onetool.interfaces.http.credentials import Credentials
from onetool.interfaces.http.guard import Guard, Route
from onetool.interfaces.http.jwt_token import METADATA_PATHS, ResourceMetadata
from onetool.interfaces.http.listen import BoundAddress, is_loopback
from onetool.interfaces.http.login import LOGIN_METHODS, LOGIN_PATH, MAX_BODY, LoginApp
from onetool.interfaces.http.login_sessions import LoginSessions
from onetool.interfaces.http.metrics import METRICS_PATH, MetricsApp
from onetool.interfaces.http.request_log import RequestAudit
from onetool.interfaces.http.rules import AccessRules
from onetool.interfaces.mcp.http_headers import as_json_rpc
from onetool.interfaces.rest import ASK_PATH, CALL_METHODS, CALL_PATH, EVENTS_PATH, ROOTS, STATUS_PATH, mask_questions
from onetool.interfaces.rest.problem import PROBLEM_TYPE, problem_body
from onetool.interfaces.welcome import connect_text
from onetool.services.request_rates import SharedRates

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.cluster.cluster import Cluster
    from onetool.config.model import HttpConfig
    from onetool.interfaces.http.jwt_verifier import JwtVerifier
    from onetool.services.access_tokens import TokenMemory
    from onetool.services.page_links import ServedLinks

READ = ("GET", "HEAD")
ASK_BODY_FACTOR = 2  # a question may have 5 MiB of files, which base64 enlarges by a third
READY_PATH = "/readyz"
STARTING = "The tokens in the database could not be read yet, so callers can't be checked: the log says why."
CUT_OFF = "This replica can't reach the database: send requests to others, if any can."
CLOSED = "The stored tokens can't be read or are lost, so none is accepted: the log says what to do."
HEALTH_BODY = msgspec.json.encode({"status": "ok", "version": __version__})


def build_site(
    app: "App",
    address: BoundAddress,
    mcp: Any,
    url: Callable[[Scope], str],
    allowed: Offered = None,
    cluster: "Cluster | None" = None,
    links: "ServedLinks | None" = None,
    instance: str = "",
) -> Guard:
    """Return the ASGI app with all routes. `mcp` is an ASGI app that may have `stop()` and `reload()`; `url` returns
    the address of the server for clients. With a `cluster`, it is one of several replicas. `links` open its page.
    `instance` tells clients of one start of the server from those of another.
    """
    app.keep_database()
    place, database = app.runtime.documents("page_sessions", "at once"), app.database
    windows = app.runtime.databases.rates()
    http, sessions = app.config.http, LoginSessions(place, time if database is None else database.now)
    lists = allow_lists(app, allowed)
    members = None if cluster is None else cluster.members

    def rules() -> AccessRules:
        return site.rules

    def needs_login(scope: Scope) -> bool:
        return site.rules.needs_login(scope)

    def text_for_curl(scope: Scope) -> str:
        return connect_text(url(scope), needs_login(scope))

    def mask(text: str) -> str:
        return mask_questions(mask_credentials(app.runtime.redact(text)))

    rest = partial(Route, write_error=problem_body, error_type=PROBLEM_TYPE)
    is_open = partial(Route, protected=False, methods=READ)
    api, page = _lazy("rest.app:RestApp", app, lists, members), _lazy("web:PageApp", text_for_curl)
    check_api, check_ask = partial(_check, "rest.routing:API_ROUTES"), partial(_check, "rest.ask_app:ASK_ROUTES")
    metadata, login = ResourceMetadata(lambda: site.rules.http), LoginApp(rules, sessions, windows)
    call, ask = _lazy("rest.app:CallApp", app, lists), _lazy("rest.ask_app:AskApp", app, lists, cluster)
    status = _lazy("rest.events:StatusApp", app, url, needs_login, lists)
    routes = [
        Route("/mcp", mcp, write_error=as_json_rpc),
        *(rest(root, api, below=True, check=check_api) for root in ROOTS),
        rest(CALL_PATH, call, methods=CALL_METHODS, below=True, takes_bare_post=True),
        rest(ASK_PATH, ask, below=True, check=check_ask, body_factor=ASK_BODY_FACTOR),
        rest(STATUS_PATH, status, methods=READ),
        rest(EVENTS_PATH, _lazy("rest.events:EventsApp", app, lists, instance), methods=("GET",)),
        # It checks its callers itself.
        rest(METRICS_PATH, MetricsApp(app, rules, cluster), protected=False, methods=READ, takes_any_host=True),
        Route("/openapi.json", _lazy("rest.openapi:openapi", app), methods=READ),
        is_open("/healthz", _health),
        is_open(READY_PATH, _readiness(app, lambda: site, cluster), takes_any_host=True),
        *(is_open(path, metadata, methods=(*READ, "OPTIONS"), is_public=True) for path in METADATA_PATHS),
        # The page and signing in are public, because they contain no data.
        is_open(LOGIN_PATH, login, methods=LOGIN_METHODS, max_body=MAX_BODY),
        is_open("/assets", page, below=True),
        is_open("/", page, is_page=True),
    ]
    app.journal.open()
    credentials = credentials_for(app, sessions, lists.is_limited, address=address, links=links)
    site = Guard(
        routes,
        AccessRules(http, address, credentials),
        http.max_body_mb * 1024**2,
        mask,
        RequestAudit(app.journal, LOGIN_PATH),
        cluster,
        None if windows is None else SharedRates(windows),  # counted by all replicas together
        app.runtime.recorder,
    )
    return site


def _loaded(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"onetool.interfaces.{module}"), name)


def _lazy(place: str, *args: Any) -> "LazyRoute":
    """Return a route whose app is made by the class or function at `place`."""
    return LazyRoute(lambda: _loaded(place)(*args))


def _check(place: str, scope: Scope) -> tuple[bytes, ...]:
    """Return the media types of a route in the table at `place`. Raises RestError if there is no such route."""
    return _loaded(place).check(scope)


class LazyRoute:
    """A route whose app is imported and created at its first request, in a thread.

    Many servers have only MCP clients, and REST takes megabytes of memory. The thread keeps other requests going.
    """

    def __init__(self, load: Callable[[], Asgi]) -> None:
        self._load = load
        self._lock = Lock()
        self._app: Any = None

    def _loaded_app(self) -> Asgi:
        with self._lock:
            self._app = self._app or self._load()
            return self._app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app or await asyncio.to_thread(self._loaded_app)
        await app(scope, receive, send)

    async def stop(self) -> None:
        if (stop := getattr(self._app, "stop", None)) is not None:
            await stop()


# Credentials


def credentials_for(
    app: "App",
    sessions: LoginSessions | None,
    is_limited: bool,
    before: Credentials | None = None,
    address: BoundAddress | None = None,
    links: "ServedLinks | None" = None,
    hosts: Collection[str] = (),
) -> Credentials:
    """Return the credentials of the current config.

    With an allow-list the server is calls-only, unless http.admin is set. Keeps state of the credentials `before`: the
    keys of the same issuer and the memory of tokens. `hosts` are names of the server that the config doesn't have.
    """
    http = app.config.http
    calls_only = is_calls_only(http, is_limited)
    known, jwt = (None, None) if before is None else (before.memory, before.jwt)
    is_reachable = names_other_machine(http, hosts) or (address is not None and not is_loopback(address.addresses))
    is_own = address is not None and is_for_this_machine(app, address)
    if before is not None:
        links = before.links if is_own else None
    tokens, jwt, local = known_tokens(app, known), _jwt_verifier(app, jwt), local_role(http) if is_own else None
    return Credentials(http, tokens, sessions, calls_only, jwt, is_reachable, links, local)


def is_calls_only(http: "HttpConfig", is_limited: bool) -> bool:
    """Return whether every caller has the role `call` at most. `is_limited` means that there is an allow-list."""
    return http.admin is False or (is_limited and http.admin is None)


def is_for_this_machine(app: "App", address: BoundAddress) -> bool:
    """Return whether only this machine can reach the server, and it is not part of a cluster."""
    return bool(address.addresses) and is_loopback(address.addresses) and app.config.cluster is None


def _jwt_verifier(app: "App", before: "JwtVerifier | None") -> "JwtVerifier | None":
    http = app.config.http
    if http.jwt is None or (before is not None and before.is_for(http.jwt, http.url)):
        return None if http.jwt is None else before
    from onetool.interfaces.http.jwt_verifier import JwtVerifier, json_fetcher

    return JwtVerifier(http.jwt, http.url, json_fetcher(app.runtime.client, http.jwt))


def known_tokens(app: "App", memory: "TokenMemory | None" = None) -> KnownTokens:
    """Return the named tokens. Without `memory`, they share the app's, so that errors are logged only once."""
    place = app.runtime.documents("tokens", "at once")
    return KnownTokens(
        app.config.http.tokens, token_store(app.config, place, memory or app.runtime.tokens.store.memory)
    )


# Health


async def _health(scope: Scope, _receive: Receive, send: Send) -> None:
    scope["log"][UNLOGGED] = True  # balancers and containers poll every second
    await respond(send, 200, HEALTH_BODY)


def _readiness(app: "App", site: Callable[[], Guard], cluster: "Cluster | None") -> Asgi:
    """Return the app of GET /readyz: whether a balancer should send requests here.

    A replica is not ready while it can't reach the database; before it has first reached the database, because valid
    tokens are unknown; and after `state.db` was lost. While no replica is ready, balancers should send requests to all
    that are alive, because their tools continue to work: deploy/haproxy.cfg shows how.
    """

    async def answer(scope: Scope, _receive: Receive, send: Send) -> None:
        scope["log"][UNLOGGED] = True
        found = {"status": "ready"}
        tokens = await asyncio.to_thread(site().rules.credentials.stored_tokens)
        if tokens is not None and app.config.database is not None and tokens.is_away:
            found = {"status": "starting", "message": STARTING}
        if tokens is not None and app.config.database is None and (tokens.problem or tokens.loss):
            found = {"status": "closed", "message": CLOSED}
        if cluster is not None and not cluster.members.has_database:
            found = {"status": "cut_off", "message": CUT_OFF}
        if site().is_draining:
            found = {"status": "draining", "message": "This server is about to stop: send requests to other servers."}
        is_ready = found["status"] == "ready"
        if app.config.database is not None and (database := app.database) is not None:
            found["database"] = "away" if database.is_away else "ok"
        await respond(send, 200 if is_ready else 503, msgspec.json.encode(found))

    return answer
