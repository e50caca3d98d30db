"""A page of another origin in a real browser: it tries whatever pages can on every route, and gets and does nothing."""

import json
import os
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from ask.stand_in import StandIn
from browser.chromium import chromium, found
from interfaces.http.conftest import Served

pytestmark = [
    pytest.mark.long,
    pytest.mark.attack("other origins"),
    pytest.mark.skipif(found() is None, reason="no Chromium on this machine (ONETOOL_TEST_BROWSER names one)"),
]

OWN = "01890a5d-ac96-774b-bcce-b302099a8057"
PACK = '''
"""Marks."""

def mark() -> str:
    """Leave a mark."""
    with open({file!r}, "a") as file:
        file.write("x")
    return "a secret of the server"
'''
LAMP = {"type": "python", "pythonImpl": {"func": "marks.mark"}, "argSchema": {"type": "object"}}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "page", "version": "1"}},
}
PAGES = ("/",)
WHOLE = os.environ.get("ONETOOL_BROWSER") == "full"


class Names(dict):
    """The parts of an address. One that is not given has its own name."""

    def __missing__(self, name):
        return name


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Nobody reads it."""


@pytest.fixture
def enemy():
    """A server of the enemy's page, on a port of its own; gives that."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=Path(__file__).parent))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def model():
    with StandIn(keys=False) as one:
        yield one


@pytest.fixture
def server(tmp_path, model):
    (tmp_path / "packs").mkdir()
    (tmp_path / "packs" / "marks.py").write_text(PACK.format(file=str(tmp_path / "marks.txt")))
    ask = {"provider": "openai", "base_url": model.urls["openai"], "model": "stand-in"}
    config = {"packs": ["packs"], "ask": ask}
    running = Served(tmp_path, "--port", "0", config=config, real=True)
    yield running
    running.stop()


def operations(api, built_in):
    """Every route with every method: those that the server tells of, and those that it does not.

    With a tool that could be changed; `make test-browser` tries one that could not, too.
    """
    found = [("/mcp", "POST", INITIALIZE), ("/mcp", "DELETE", {}), *((path, "GET", None) for path in (*PAGES, "/mcp"))]
    found += [(path, "GET", None) for path in ("/healthz", "/openapi.json", "/login", "/assets/index.js")]
    found += [("/login", "POST", {"token": "x"}), ("/login", "DELETE", None)]
    for template, item in api.get("/openapi.json").json()["paths"].items():
        for method in item.keys() - {"parameters"}:
            content = item[method].get("requestBody", {}).get("content", {})
            body = content.get("application/json", {}).get("example")
            for id, slug, version in ((OWN, "lamp", "1"), *([built_in] if WHOLE else [])):
                path = template.format_map(Names(bundleID=id, toolSlug=slug, version=version))
                found.append((path, method.upper(), body))
    asks = {"/ask": {"prompt": "Leave a mark.", "approve": "always"}}
    asks |= {path: {"args": {}} for path, _, _ in found if path.endswith("/invoke")}
    return [
        {"path": path, "method": method, "body": json.dumps(asks.get(path, body))}
        for (path, method), body in {(path, method): body for path, method, body in found}.items()
    ]


def things(api):
    """All bundles and tools with their states."""
    places = ("bundles?pageSize=100", "tools?recommendedPageSize=100")
    return [api.get(f"/tools/{place}&includeDisabled=true").json() for place in places]


def test_a_page_of_another_origin_gets_and_does_nothing(server, enemy, model):
    host = f"http://localhost:{server.port}"
    with httpx.Client(base_url=host, headers={"Content-Type": "application/json"}, timeout=20) as api:
        assert api.put(f"/tools/bundles/{OWN}", json={"slug": "mine"}).status_code == 201
        put = api.put(f"/tools/bundles/{OWN}/tools/lamp/version/1", json=LAMP)
        assert put.status_code == 201, put.text
        listed = api.get("/tools/tools?recommendedPageSize=100").json()["tools"]
        (built_in,) = [(one["bundleID"], "now", "1") for one in listed if one["slug"] == "now"]
        call = f"/tools/bundles/{OWN}/tools/lamp/version/1/invoke"
        assert api.post(call, json={"args": {}}).json()["ok"], "a program may"
        marks, before = server.folder / "marks.txt", things(api)
        assert marks.read_text() == "x"
        todo = operations(api, built_in)
        seen = len(server.requests(wait_for="/openapi.json"))
        with chromium("localhost", "127.0.0.1") as browser:
            # Of the same site, a few; of another one, all: of both the server refuses by the same look at the origin.
            for name, wanted in (("localhost", todo if WHOLE else todo[::6]), ("127.0.0.1", todo)):
                with browser.page(f"http://{name}:{enemy}/hostile.html") as page:
                    done = page.value(f"attack({json.dumps(host)}, {json.dumps(wanted)})")
                    assert done["read"] == []
                    assert done["sent"] > 200
            assert api.get("/the-end").status_code == 404
            came = server.requests(wait_for="/the-end")[seen:]
            landed = follow_links(browser, enemy, host)
        assert api.get("/the-end-of-links").status_code == 404
        read = server.requests(wait_for="/the-end-of-links")[seen + len(came) :]
        assert (marks.read_text(), len(model.seen)) == ("x", 0)
        assert things(api) == before
    assert {one["path"] for one in came if one["status"] < 400} <= set(PAGES)
    assert {one["path"] for one in came if one["status"] == 403} >= {one["path"] for one in todo}
    assert landed.pop("/").endswith("OneTool")
    assert landed == {"/openapi.json": "", "/tools/bundles": ""}
    # A link leads to our own page, which then reads what it shows, and changes nothing.
    assert {("GET", path) for path in PAGES} <= {(one["method"], one["path"]) for one in read if one["status"] < 400}
    # What the enemy's page sent last may come late, and is refused.
    assert {one["method"] for one in read if one["status"] != 403} == {"GET"}


def follow_links(browser, enemy, host):
    """Where a click on a link of the page leads to: the titles."""
    titles = {}
    for path in ("/", "/openapi.json", "/tools/bundles"):
        with browser.page(f"http://localhost:{enemy}/hostile.html") as page:
            page.value(f"void (location.href = {json.dumps(host + path)})")
            titles[path] = page.title_at(host + path)
    return titles
