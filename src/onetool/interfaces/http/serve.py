"""Start the HTTP server of an app: bind sockets, build the ASGI app with its routes, and follow config reloads."""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from importlib import import_module
from secrets import token_bytes
from threading import Thread
from time import time
from typing import TYPE_CHECKING, Any

import msgspec

from onetool._version import __version__
from onetool.app.access import KnownTokens, local_role, names_other_machine, needs_credential, token_store
from onetool.app.allow_lists import AllowLists, Offered, allow_lists
from onetool.app.config_lint import RANDOM_VALUE_HINT, access_warnings
from onetool.app.telemetry import start_telemetry
from onetool.core.errors import ConfigError, Mistake
from onetool.core.redaction import mask_credentials
from onetool.core.threads import run_later
from onetool.http.asgi import CLUSTER_PATH, UNLOGGED, Asgi, Receive, Scope, Send, respond
from onetool.interfaces.http import request_log
from onetool.interfaces.http.app import READ, HttpApp, LazyRoute, Route
from onetool.interfaces.http.credentials import Credentials, current_admission, missing_token
from onetool.interfaces.http.jwt_token import METADATA_PATHS, ResourceMetadata
from onetool.interfaces.http.listen import (
    BoundAddress,
    ServerFacts,
    bearer_header,
    connect_text,
    first_tool,
    greeting,
    is_loopback,
    listen,
    listen_unix,
    resolve,
)
from onetool.interfaces.http.login import LOGIN_METHODS, LOGIN_PATH, MAX_BODY, LoginApp
from onetool.interfaces.http.login_sessions import LoginSessions
from onetool.interfaces.http.metrics import METRICS_PATH, MetricsApp
from onetool.interfaces.http.request_log import RequestAudit
from onetool.interfaces.http.rules import AccessRules
from onetool.interfaces.http.server import serve
from onetool.interfaces.mcp.http import McpHttpApp
from onetool.interfaces.mcp.http_headers import as_json_rpc
from onetool.interfaces.rest import ASK_PATH, CALL_METHODS, CALL_PATH, EVENTS_PATH, ROOTS, STATUS_PATH, mask_questions
from onetool.interfaces.rest.problem import PROBLEM_TYPE, problem_body
from onetool.interfaces.watchdog import Watchdog
from onetool.services.logs import add_to_log_lines, make_log_non_blocking
from onetool.services.request_rates import SharedRates

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.cluster import ClusterSettings
    from onetool.cluster.cluster import Cluster
    from onetool.cluster.shared_requests import SharedRequests
    from onetool.database.shared_rates import SharedWindows
    from onetool.interfaces.http.jwt_verifier import JwtVerifier
    from onetool.services.access_tokens import TokenMemory
    from onetool.services.page_links import PageLinks, ServedLinks

log = logging.getLogger("onetool.serve")
ASK_BODY_FACTOR = 2  # a question may have 5 MiB of files, which base64 enlarges by a third
READY_PATH = "/readyz"
STARTING = "The tokens in the database could not be read yet, so callers can't be checked: the log says why."
CUT_OFF = "This replica can't reach the database, but other replicas can: send requests to them."
CLOSED = "The stored tokens can't be read or are lost, so none is accepted: the log says what to do."
HEALTH_BODY = msgspec.json.encode({"status": "ok", "version": __version__})


def build_app(
    app: "App",
    address: BoundAddress,
    mcp: Any,
    url: Callable[[Scope], str],
    allowed: Offered = None,
    cluster: "Cluster | None" = None,
    links: "ServedLinks | None" = None,
) -> HttpApp:
    """Return the ASGI app with all routes. `mcp` is an ASGI app that may have `stop()` and `reload()`; `url` returns
    the address of the server for clients. With a `cluster`, it is one of several replicas. `links` open its page.
    """
    app.keep_database()
    place, database = app.runtime.documents("page_sessions", "at once"), app.database
    windows = app.runtime.databases.rates()
    http, sessions = app.config.http, LoginSessions(place, time if database is None else database.now)
    lists = allow_lists(app, allowed)
    metadata, methods = ResourceMetadata(lambda: site.rules.http), (*READ, "OPTIONS")
    routes = [
        Route("/mcp", mcp, write_error=as_json_rpc),
        *_api_routes(app, url, lambda: site.rules, lists, cluster),
        Route("/openapi.json", _lazy("rest.openapi:openapi", app), methods=READ),
        Route("/healthz", _health, protected=False, methods=READ),
        Route(READY_PATH, _readiness(app, lambda: site, cluster), protected=False, methods=READ, takes_any_host=True),
        *([Route(CLUSTER_PATH, cluster, below=True)] if cluster is not None else []),
        *(Route(path, metadata, protected=False, methods=methods, is_public=True) for path in METADATA_PATHS),
        *_page_routes(url, lambda: site.rules, sessions, windows),
    ]
    rules = AccessRules(http, address, credentials_for(app, sessions, lists.is_limited, address=address, links=links))

    def mask(text: str) -> str:
        return mask_questions(mask_credentials(app.runtime.redact(text)))

    app.audit.open()
    audit, most = RequestAudit(app.audit, LOGIN_PATH), http.max_body_mb * 1024**2
    rates = None if windows is None else SharedRates(windows)  # counted by all replicas together
    site = HttpApp(routes, rules, most, mask, audit, cluster, rates, app.runtime.recorder)
    return site


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
    calls_only = http.admin is False or (is_limited and http.admin is None)
    known, jwt = (None, None) if before is None else (before.memory, before.jwt)
    is_reachable = names_other_machine(http, hosts) or (address is not None and not is_loopback(address.addresses))
    is_own = address is not None and is_for_this_machine(app, address)
    if before is not None:
        links = before.links if is_own else None
    tokens, jwt, local = known_tokens(app, known), _jwt_verifier(app, jwt), local_role(http) if is_own else None
    return Credentials(http, tokens, sessions, calls_only, jwt, is_reachable, links, local)


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


def _api_routes(
    app: "App",
    url: Callable[[Scope], str],
    rules: Callable[[], AccessRules],
    allowed: AllowLists,
    cluster: "Cluster | None",
) -> list[Route]:
    """Return the routes of the REST API. Its refusals are problem documents."""
    route = partial(Route, write_error=problem_body, error_type=PROBLEM_TYPE)
    metrics = MetricsApp(app, rules, cluster)  # it checks its callers itself
    rest = _lazy("rest.app:RestApp", app, allowed, None if cluster is None else cluster.members)
    call, ask = _lazy("rest.app:CallApp", app, allowed), _lazy("rest.ask_app:AskApp", app, allowed, cluster)
    status = _lazy("rest.events:StatusApp", app, url, lambda scope: rules().needs_login(scope), allowed)
    events = _lazy("rest.events:EventsApp", app, allowed)
    check_rest, check_ask = partial(_check, "rest.routing:API_ROUTES"), partial(_check, "rest.ask_app:ASK_ROUTES")
    return [
        *(route(root, rest, below=True, check=check_rest) for root in ROOTS),
        route(CALL_PATH, call, methods=CALL_METHODS, below=True, takes_bare_post=True),
        route(ASK_PATH, ask, below=True, check=check_ask, body_factor=ASK_BODY_FACTOR),
        route(STATUS_PATH, status, methods=READ),
        route(EVENTS_PATH, events, methods=("GET",)),
        route(METRICS_PATH, metrics, protected=False, methods=READ, takes_any_host=True),
    ]


def _loaded(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"onetool.interfaces.{module}"), name)


def _lazy(place: str, *args: Any) -> LazyRoute:
    """Return a route whose app is made by the class or function at `place`."""
    return LazyRoute(lambda: _loaded(place)(*args))


def _check(place: str, scope: Scope) -> tuple[bytes, ...]:
    """Return the media types of a route in the table at `place`. Raises RestError if there is no such route."""
    return _loaded(place).check(scope)


def _page_routes(
    url: Callable[[Scope], str],
    rules: Callable[[], AccessRules],
    sessions: LoginSessions,
    windows: "SharedWindows | None",
) -> list[Route]:
    """Return the routes of the page and of signing in. They are public, because they contain no data."""
    page = _lazy("web:PageApp", lambda scope: connect_text(url(scope), rules().needs_login(scope)))
    login = LoginApp(rules, sessions, windows)
    return [
        Route(LOGIN_PATH, login, protected=False, methods=LOGIN_METHODS, max_body=MAX_BODY),
        Route("/assets", page, protected=False, methods=READ, below=True),
        Route("/", page, protected=False, methods=READ, is_page=True),
    ]


def client_url(app: "App", address: BoundAddress) -> str:
    """Return the URL of this server for clients: http.url (behind a proxy or balancer), or the listening address."""
    return app.config.http.url.rstrip("/") if app.config.http.url else address.url


def server_facts(app: "App", address: BoundAddress, allowed: Collection[str] | None) -> ServerFacts:
    allowed = app.catalog.registry.allowing(allowed)
    tools = app.catalog.count(allowed)
    header = None
    if (token := app.config.http.token) is not None:
        header = bearer_header(token.shown)
    elif needs_credential(app.config.http, app.runtime.tokens.store):
        header = bearer_header()
    return ServerFacts(
        listens=address.listens,
        own_url=address.url,
        url=client_url(app, address),
        tools=f"{tools:,} tool{'' if tools == 1 else 's'}",
        config=f"the config {app.config.path}" if app.config.path else "the default config",
        header=header,
        first=first_tool(app.catalog.each(allowed)),
        has_links=is_for_this_machine(app, address),
    )


def follow_config(
    app: "App", address: BoundAddress, http_app: HttpApp, allowed: Collection[str] | None = None
) -> Callable[[], None]:
    """Apply the access rules of every new config. The listening address does not change."""
    in_force = app.config

    def changed() -> None:
        nonlocal in_force
        if app.config is in_force:
            return
        in_force, http = app.config, app.config.http
        before = http_app.rules.credentials
        lacks = missing_token(http, known_tokens(app, before.memory))
        if lacks and not is_loopback(address.addresses):
            how = "set http.token, or: onetool tokens add"
            log.error(
                "others can reach this server, which needs %s (%s): the previous rules stay in effect", lacks, how
            )
            return
        request_log.enable_access_log(http.access_log)
        credentials = credentials_for(app, before.sessions, allowed is not None, before, address)
        if (own := current_admission.get()) is not None:
            own.task = None  # the request that reloads is answered, even if its caller loses access
        http_app.rules = AccessRules(http, address, credentials)
        before.give_way_to(credentials)
        if (links := credentials.links) is not None and links.home != app.config.home:
            Thread(target=links.move, args=(_links_in_state(app),), daemon=True).start()  # keeps the event loop free
        http_app.max_body = http.max_body_mb * 1024**2

    return app.on_change(changed)


async def reload_app(app: "App", mcp: Any) -> None:
    """Reload the config and the tools, and log it after clients were notified."""
    before = app.config
    await mcp.reload()
    if app.config is not before:  # otherwise the config is invalid, which was logged
        log.info("Reloaded: %d tools", app.catalog.count())


async def _health(_scope: Scope, _receive: Receive, send: Send) -> None:
    await respond(send, 200, HEALTH_BODY)


def _readiness(app: "App", site: Callable[[], HttpApp], cluster: "Cluster | None") -> Asgi:
    """Return the app of GET /readyz: whether a balancer should send requests here.

    While no replica can reach the database, all stay ready, because their tools continue to work. A replica is not
    ready if only it can't reach the database; before it has first reached the database, because valid tokens are
    unknown; and after `state.db` was lost. A shared database that lost its tokens must not take out all replicas.
    """

    async def answer(scope: Scope, _receive: Receive, send: Send) -> None:
        scope["log"][UNLOGGED] = True  # balancers poll every second
        found = {"status": "ready"}
        tokens = await asyncio.to_thread(site().rules.credentials.stored_tokens)
        if tokens is not None and app.config.database is not None and tokens.is_away:
            found = {"status": "starting", "message": STARTING}
        if tokens is not None and app.config.database is None and (tokens.problem or tokens.loss):
            found = {"status": "closed", "message": CLOSED}
        if app.config.database is not None and cluster is not None and await cluster.is_cut_off():
            found = {"status": "cut_off", "message": CUT_OFF}
        if site().is_draining:
            found = {"status": "draining", "message": "This server is about to stop: send requests to other servers."}
        is_ready = found["status"] == "ready"
        if app.config.database is not None and (database := app.database) is not None:
            found["database"] = "away" if database.is_away else "ok"
        await respond(send, 200 if is_ready else 503, msgspec.json.encode(found))

    return answer


# Start

WARM_AFTER_S = 0.2  # clients waiting for the address come first


def serve_app(
    app: "App",
    address: BoundAddress,
    *,
    menu: str | None = None,
    allowed: Collection[str] | None = None,
    print_line: Callable[[str], None],
    cluster: "ClusterSettings | None" = None,
    drain_s: float | None = None,
    on_reload: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> int:
    """Serve until a signal stops the server; return the signal.

    `cluster` makes it one of several replicas; the default is the config's `database` and `cluster`. `drain_s` is how
    long requests are still accepted after SIGTERM; None means some seconds behind a balancer. A reload requested by a
    signal runs within `on_reload()`.
    """
    if is_loopback(address.addresses):
        app.follow_settings()
    shared, requests = _cluster(app, cluster)
    replica = None if shared is None else shared.id
    _start_logs(app, replica)
    lists = allow_lists(app, allowed)
    mcp = McpHttpApp(app, menu=menu, allowed=lists, shared=requests)
    links = _page_links(app, address, token_bytes(32) if cluster is None else cluster.key)
    http_app = build_app(app, address, mcp, lambda _scope: client_url(app, address), lists, shared, links)
    follow_config(app, address, http_app, allowed)

    async def reload() -> None:
        with on_reload():
            await reload_app(app, mcp)

    if shared is not None and app.config.database is not None:
        shared.on_serving.append(partial(shared.follow_reloads, reload))

    def started() -> None:
        if links is not None:
            links.begin()  # from now on `onetool page` finds the server
            at_end.callback(links.end)
        print_line(greeting(server_facts(app, address, allowed)))
        _warm(app)
        for call in () if shared is None else shared.on_serving:
            call()
        mcp.start()
        at_end.callback(Watchdog().close)

    with ExitStack() as at_end:
        if (end_telemetry := start_telemetry(app.config, app.runtime.recorder, replica)) is not None:
            at_end.callback(end_telemetry)
        further: dict[str, Any] = {}
        if shared is not None:
            at_end.callback(shared.close)
            further = shared.start(listen_unix)
        if drain_s is not None:
            further["drain_s"] = drain_s
        return serve(http_app, address, started=started, reload=reload, **further)


def _start_logs(app: "App", replica: str | None) -> None:
    if replica is not None:
        add_to_log_lines(replica=replica)
    make_log_non_blocking(partial(request_log.AccessHandler, recorder=app.runtime.recorder, replica=replica))
    request_log.enable_access_log(app.config.http.access_log)
    for logger_name in ("onetool.serve", "onetool.watch"):
        logging.getLogger(logger_name).setLevel(logging.INFO)


def _page_links(app: "App", address: BoundAddress, secret: bytes) -> "ServedLinks | None":
    """Return the links that open the page; None if others could reach it. All workers share `secret`."""
    if not is_for_this_machine(app, address):
        return None
    from onetool.services.page_links import ServedLinks

    return ServedLinks(_links_in_state(app), address.url, secret)


def _links_in_state(app: "App") -> "PageLinks":
    from onetool.services.page_links import PageLinks

    return PageLinks(app.runtime.documents("page_links"), app.config.home)


def _warm(app: "App") -> None:
    """Load what the first requests need, in the background."""
    loop = asyncio.get_running_loop()
    run_later(WARM_AFTER_S, lambda: app.runtime.warm())
    loop.run_in_executor(None, _warm_bundles, app)
    loop.run_in_executor(None, app.catalog.warm_search)


def _warm_bundles(app: "App") -> None:
    if app.catalog.warm_bundles():  # requests for them are likely
        import onetool.interfaces.rest.app  # noqa: F401  # pyright: ignore[reportUnusedImport]


def _cluster(app: "App", settings: "ClusterSettings | None") -> "tuple[Cluster, SharedRequests] | tuple[None, None]":
    """Make this process a member of a cluster, with these settings or those of the config. The tables exist already."""
    if settings is None:
        if (config := app.config.cluster) is None or (database := app.database) is None:
            return None, None
        from onetool.cluster import ClusterSettings

        key, *accepted = config.keys
        settings = ClusterSettings(config.address, key, database, accepted=tuple(accepted), finish_s=config.finish_s)
    from onetool.cluster.cluster import Cluster
    from onetool.cluster.drift import Drift
    from onetool.cluster.shared_requests import SharedRequests
    from onetool.cluster.shared_servers import SharedServers

    cluster = Cluster(settings)
    if not settings.is_one_machine:
        Drift(cluster, app)
    is_own = app.config.database is None  # only for the workers of this machine
    app.share_rates(lambda: len(cluster.members.alive()), settings.database if is_own else None)
    SharedServers(cluster, app)
    return cluster, SharedRequests(cluster)


def bind_address(app: "App", host: str, port: int) -> BoundAddress:
    """Bind the sockets. Raises ConfigError if other machines could connect and there is no token."""
    addresses = resolve(host)
    if not is_loopback(address for _, address in addresses) and (
        lacks := missing_token(app.config.http, known_tokens(app))
    ):
        message = f"a server on {host} can be reached from other machines, so it needs {lacks}"
        file = str(app.config.path) if app.config.path else None
        raise ConfigError([Mistake(message=message, file=file, key="http.token", hint=RANDOM_VALUE_HINT)])
    for warning in access_warnings(app.config, host):
        log.warning("%s", warning)
    return listen(host, port, addresses)
