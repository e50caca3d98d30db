"""From a config to a server that runs: where it listens, whether it may, what is behind it, and what it says."""

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from onetool.core.errors import ConfigError, Mistake
from onetool.interfaces.http import access
from onetool.interfaces.http.greeting import greeting
from onetool.interfaces.http.listen import Place, is_loopback, listen, resolve
from onetool.interfaces.http.routes import facts_of, follow_rules, reload_site, site_of
from onetool.interfaces.http.rules import lack_of_token
from onetool.interfaces.http.server import serve
from onetool.interfaces.mcp.http import McpOverHttp
from onetool.interfaces.patient_log import make_log_patient
from onetool.interfaces.watchdog import Watchdog

if TYPE_CHECKING:
    from onetool.app import App

_LONG_RANDOM = (
    "set http: {token: ${ONETOOL_TOKEN}} and keep a long random value: "
    "openssl rand -hex 32 | onetool auth set ONETOOL_TOKEN"
)
WARM_AFTER_S = 0.2  # those who wait for the address come first


def serve_app(
    app: "App",
    host: str,
    port: int,
    *,
    menu: str | None = None,
    allowed: Collection[str] | None = None,
    say: Callable[[str], None],
) -> int:
    """Serve until a signal says to stop; gives that signal."""
    place = place_for(app, host, port)
    make_log_patient(access.AccessHandler)
    access.switch(app.config.http.access_log)
    for told in ("onetool.serve", "onetool.watch"):
        logging.getLogger(told).setLevel(logging.INFO)
    facts = partial(facts_of, app, place, menu, allowed)
    mcp = McpOverHttp(app, menu=menu, allowed=allowed)
    site = site_of(app, place, mcp, facts, allowed)
    follow_rules(app, place, site)
    dogs: list[Watchdog] = []

    def started() -> None:
        say(greeting(facts()))
        loop = asyncio.get_running_loop()
        loop.call_later(WARM_AFTER_S, loop.run_in_executor, None, app.warm)
        loop.run_in_executor(None, app.warm_bundles)
        mcp.start()
        dogs.append(Watchdog())

    try:
        return serve(site, place, started=started, reload=partial(reload_site, app, mcp))
    finally:
        for dog in dogs:
            dog.close()


def place_for(app: "App", host: str, port: int) -> Place:
    """Bound sockets; not where strangers could reach them and no token keeps them out."""
    addresses = resolve(host)
    if not is_loopback(address for _, address in addresses) and (lacks := lack_of_token(app.config.http)):
        message = f"a server on {host} can be reached from other machines, so it needs {lacks}"
        file = str(app.config.path) if app.config.path else None
        raise ConfigError([Mistake(message=message, file=file, key="http.token", hint=_LONG_RANDOM)])
    return listen(host, port, addresses)
