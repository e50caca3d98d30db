"""Every route of the server and of its REST API with every method, and a request to each of them without a socket."""

import asyncio
import json
import re
from hashlib import sha256

from onetool import App
from onetool.interfaces.http.listen import BoundAddress
from onetool.interfaces.http.site import build_site
from onetool.interfaces.mcp.http import McpHttpApp
from onetool.interfaces.rest import ASK_PATH, ROOTS
from onetool.interfaces.rest.ask_app import ASK_ROUTES
from onetool.interfaces.rest.routing import API_ROUTES

TOKEN, OTHER = "sesame-token-0123456789", "another-token-0123456789"
HOST = "127.0.0.1:8765"
ADDRESS = BoundAddress("127.0.0.1", 8765, ("127.0.0.1",))
ID = "01890a5d-0000-7000-8000-000000000001"
SAMPLES = {"bundleID": ID, "toolSlug": "nothing", "version": "1"}
PATIENCE = 60

# Routes that answer everybody, also where there is a token.
READ = ("GET", "HEAD")
OPEN = {(path, method) for path in ("/", "/assets", "/assets/index.js", "/healthz", "/readyz") for method in READ}
OPEN |= {("/login", method) for method in (*READ, "POST")}
METADATA = ("/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp")
OPEN |= {(path, method) for path in METADATA for method in (*READ, "OPTIONS")}
# The methods of routes that have their own answer to each, and what lies below.
OWN_METHODS = {"/mcp": ("GET", "POST", "DELETE", "OPTIONS")}
SAMPLES_BELOW = {"/call": "/call/nothing.here", "/assets": "/assets/index.js"}
# The routes that are at and below a path.
TABLES = (*ROOTS, ASK_PATH)


def served(folder, config):
    """The routes of a server, without the server."""
    folder.mkdir(exist_ok=True)
    (folder / "onetool.yaml").write_text(json.dumps(config))
    app = App.open(folder / "onetool.yaml")
    return app, build_site(app, ADDRESS, McpHttpApp(app), lambda _scope: f"http://{HOST}")


def token_of(name):
    """The text of a named token."""
    return f"ot_{name}_0123456789abcdef"


def token_entry(name, text=None, **more):
    """A named token, as the config has it."""
    return {"name": name, "hash": f"sha256:{sha256((text or token_of(name)).encode()).hexdigest()}", **more}


def bearer(token):
    """The header that shows a token; None: no header."""
    return [] if token is None else [("authorization", f"Bearer {token}")]


def address(template):
    return re.sub(r"\{(\w+)\}", lambda name: SAMPLES.get(name[1], "nothing"), template)


def rest_cases():
    for route in (*API_ROUTES.resources, *ASK_ROUTES.resources):
        for method in (*route.methods, *(["HEAD"] if "GET" in route.methods else []), "OPTIONS"):
            yield address(route.path), method


def cases(site):
    """(path, method) of everything that there is, and of one path where there is nothing."""
    found = [("/nothing", "GET"), ("/nothing", "POST"), *rest_cases()]
    for route in site.routes:
        methods = route.allowed or OWN_METHODS.get(route.path, ())
        if route.path not in TABLES:  # whose routes have methods of their own
            assert methods, f"{route.path} takes any method: name those that it answers in OWN_METHODS"
        found += [(route.path, method) for method in methods]
        if route.below and route.path not in TABLES:
            found += [(SAMPLES_BELOW[route.path], method) for method in methods]
    return list(dict.fromkeys(found))


def status_of(site, path, method, headers=(), sent_body=b"{}"):
    """The status, and the body. A stream is left as soon as it has begun."""
    status, _, body = asyncio.run(exchange(site, path, method, headers, sent_body))
    return status, body


def statuses(site, tried, headers=()):
    """The status and the body of each (path, method), asked one after the other in one loop."""

    async def ask():
        return {case: await exchange(site, *case, headers) for case in tried}

    return {case: (status, body) for case, (status, _, body) in asyncio.run(ask()).items()}


async def exchange(site, path, method, headers=(), sent_body=b"{}", host=HOST, client=("127.0.0.1", 5)):
    """The same, with the headers: for several in one loop."""
    sent, began = [], asyncio.Event()
    body = [] if method in ("GET", "HEAD", "DELETE", "OPTIONS") else [sent_body]
    head = [
        ("host", host),
        *headers,
        *([("content-type", "application/json"), ("content-length", str(len(sent_body)))] if body else []),
    ]
    raw = [(name.lower().encode(), value.encode()) for name, value in head]

    async def receive():
        if body:
            return {"type": "http.request", "body": body.pop(), "more_body": False}
        await began.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)
        if message["type"] == "http.response.body" or b"text/event-stream" in dict(sent[0]["headers"]).values():
            began.set()

    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": raw, "client": client, "server": ("127.0.0.1", 8765), "http_version": "1.1"}
    task = asyncio.ensure_future(site(scope, receive, send))
    waiting = asyncio.ensure_future(began.wait())
    await asyncio.wait((task, waiting), timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    for one in (task, waiting):
        one.cancel()
    await asyncio.gather(task, waiting, return_exceptions=True)
    return sent[0]["status"], dict(sent[0]["headers"]), b"".join(one.get("body", b"") for one in sent[1:])
