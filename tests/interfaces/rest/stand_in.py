"""A site with nothing but the REST API, over a store in memory. Prints its port.

python stand_in.py '{"token": …, "allowed": […]}'
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

sys.path[0] = str(Path(__file__).parents[2])  # of the tests, and not this folder


def app_of(options):
    from document_stores import in_home
    from interfaces.rest.memory_store import MemoryStore, hush

    from onetool.app.access import KnownTokens, token_store
    from onetool.app.journal import AppJournal
    from onetool.config.model import HttpConfig
    from onetool.core.registry import ToolRegistry
    from onetool.services.journal.recorder import Recorder
    from onetool.services.secrets import Secret

    http = HttpConfig(token=Secret(options["token"]) if "token" in options else None)
    store = MemoryStore()
    home = Path(__file__).with_name("no-home")  # nothing is stored
    config = SimpleNamespace(http=http, home=home, path=None, database=None, cluster=None)
    catalog = SimpleNamespace(registry=ToolRegistry())
    tokens = KnownTokens(http.tokens, token_store(config, in_home(home, "tokens")))
    app = SimpleNamespace(config=config, bundles=store, call=store.call, catalog=catalog)
    app.runtime = SimpleNamespace(redact=hush, tokens=tokens)
    app.journal = AppJournal(config, lambda: None, Recorder())
    return app


def main(options):
    from onetool.interfaces.http.credentials import Credentials
    from onetool.interfaces.http.guard import Guard, Route
    from onetool.interfaces.http.listen import listen, resolve
    from onetool.interfaces.http.rules import AccessRules
    from onetool.interfaces.http.server import serve
    from onetool.interfaces.http.site import READ
    from onetool.interfaces.rest.app import RestApp
    from onetool.interfaces.rest.openapi import openapi
    from onetool.interfaces.rest.problem import PROBLEM_TYPE, problem_body
    from onetool.interfaces.rest.routing import API_ROUTES

    app = app_of(options)
    place = listen("127.0.0.1", 0, resolve("127.0.0.1"))
    asgi_client = RestApp(app, allowed=options.get("allowed"))
    routes = [
        Route(
            "/tools", asgi_client, below=True, write_error=problem_body, error_type=PROBLEM_TYPE, check=API_ROUTES.check
        ),
        Route("/openapi.json", openapi(app), methods=READ),
    ]
    credentials = Credentials(app.config.http, calls_only=options.get("allowed") is not None)
    site = Guard(routes, AccessRules(app.config.http, place, credentials), 1024**2, app.runtime.redact)
    serve(site, place, started=lambda: print(place.port, flush=True))


main(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})
