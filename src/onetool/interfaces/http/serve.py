"""Start the HTTP server of an app: bind sockets, build the ASGI app with its routes, and follow config reloads."""

import asyncio
import logging
import os
from collections.abc import Callable, Collection
from contextlib import ExitStack
from functools import partial
from hashlib import sha256
from secrets import token_bytes
from socket import gethostname
from threading import Thread
from typing import TYPE_CHECKING, Any

from onetool.app.access import needs_credential
from onetool.app.allow_lists import allow_lists
from onetool.app.config_lint import RANDOM_VALUE_HINT, access_warnings
from onetool.app.telemetry import start_telemetry
from onetool.core.errors import ConfigError, Mistake
from onetool.core.threads import run_later
from onetool.interfaces.http import request_log
from onetool.interfaces.http.admissions import current_admission
from onetool.interfaces.http.credentials import missing_token
from onetool.interfaces.http.guard import Guard
from onetool.interfaces.http.listen import BoundAddress, is_loopback, listen, resolve
from onetool.interfaces.http.rules import AccessRules
from onetool.interfaces.http.server import serve
from onetool.interfaces.http.site import build_site, credentials_for, is_calls_only, is_for_this_machine, known_tokens
from onetool.interfaces.mcp.http import McpHttpApp
from onetool.interfaces.watchdog import Watchdog
from onetool.interfaces.welcome import ServerFacts, bearer_header, first_tool, greeting
from onetool.services.logs import add_to_log_lines, make_log_non_blocking

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.cluster.cluster import Cluster
    from onetool.cluster.shared_requests import SharedRequests
    from onetool.services.page_links import PageLinks, ServedLinks

log = logging.getLogger("onetool.serve")


def client_url(app: "App", address: BoundAddress) -> str:
    """Return the URL of this server for clients: http.url (behind a proxy or balancer), or the listening address."""
    return app.config.http.url.rstrip("/") if app.config.http.url else address.url


def server_facts(app: "App", address: BoundAddress, allowed: Collection[str] | None) -> ServerFacts:
    calls_only = is_calls_only(app.config.http, allowed is not None)
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
        link_role=("call" if calls_only else "admin") if is_for_this_machine(app, address) else None,
    )


def follow_config(
    app: "App", address: BoundAddress, site: Guard, allowed: Collection[str] | None = None
) -> Callable[[], None]:
    """Apply the access rules of every new config. The listening address does not change."""
    in_force = app.config

    def changed() -> None:
        nonlocal in_force
        if app.config is in_force:
            return
        in_force, http = app.config, app.config.http
        before = site.rules.credentials
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
        site.rules = AccessRules(http, address, credentials)
        if (links := credentials.links) is not None and links.home != app.config.home:
            Thread(target=links.move, args=(_links_in_state(app),), daemon=True).start()  # keeps the event loop free
        site.max_body = http.max_body_mb * 1024**2

    return app.on_change(changed)


async def reload_app(app: "App", mcp: Any) -> None:
    """Reload the config and the tools, and log it after clients were notified."""
    before = app.config
    await mcp.reload()
    if app.config is not before:  # otherwise the config is invalid, which was logged
        log.info("Reloaded: %d tools", app.catalog.count())


# Start

WARM_AFTER_S = 0.2  # clients waiting for the address come first


def serve_app(
    app: "App",
    address: BoundAddress,
    *,
    menu: str | None = None,
    allowed: Collection[str] | None = None,
    print_line: Callable[[str], None],
    drain_s: float | None = None,
    worker_secret: bytes | None = None,
) -> int:
    """Serve until a signal stops the server; return the signal.

    `drain_s` is how long requests are still accepted after SIGTERM; None means some seconds behind a balancer.
    `worker_secret` makes it one of several workers, which share it; `cluster` in the config, one of several replicas.
    """
    if is_loopback(address.addresses):
        app.follow_settings()
    shared, requests = _cluster(app, address.port, is_worker=worker_secret is not None)
    replica = None if shared is None else shared.id
    _start_logs(app, replica)
    lists = allow_lists(app, allowed)
    mcp = McpHttpApp(app, menu=menu, allowed=lists, shared=requests)
    secret = worker_secret or token_bytes(32)
    links, instance = _page_links(app, address, secret), sha256(secret).hexdigest()[:16]
    site = build_site(app, address, mcp, lambda _scope: client_url(app, address), lists, shared, links, instance)
    follow_config(app, address, site, allowed)
    reload = partial(reload_app, app, mcp)
    if shared is not None:
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
            at_end.callback(shared.members.close)
            further = shared.start()
        if drain_s is not None:
            further["drain_s"] = drain_s
        return serve(site, address, started=started, reload=reload, **further)


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


def _cluster(app: "App", port: int, *, is_worker: bool) -> "tuple[Cluster, SharedRequests] | tuple[None, None]":
    """Make this process one of several, if it is. The tables exist already."""
    config = app.config.cluster
    if config is None and not is_worker:
        return None, None
    from onetool.app.documents import home_key
    from onetool.cluster import ClusterSettings
    from onetool.cluster.cluster import Cluster
    from onetool.cluster.drift import Drift
    from onetool.cluster.shared_requests import SharedRequests

    key, *accepted = (config.keys if config is not None else []) or [home_key(app.config)]
    finish_s = 0.0 if config is None else config.finish_s
    place = f"{gethostname()}:{port}"
    settings = ClusterSettings(place, key, app.runtime.state, tuple(accepted), finish_s, is_worker)
    cluster = Cluster(settings)
    if not is_worker:  # workers read the same files
        Drift(cluster, app)
    pid = os.getppid() if is_worker else os.getpid()
    app.serve_beside(lambda: len(cluster.members.alive()), cluster.reload_others, pid)
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
