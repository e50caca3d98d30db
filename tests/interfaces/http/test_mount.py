"""`onetool.asgi(app)` in somebody's Starlette or FastAPI, served by uvicorn: prefixes, lifespans, authentication."""

import asyncio
import json
import re
import socket
import sys
import threading
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from helpers import each, until
from mcp.client import Client
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect as websocket

import onetool
from onetool import App
from onetool.interfaces.http.mount import below_prefix

PACK = '''"""Greets."""


def hello(name: str) -> str:
    """Greet."""
    return f"Hello {name}"


def long() -> str:
    """Say much."""
    return "word " * 50_000
'''
ECHO = {
    "type": "python",
    "argSchema": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    "pythonImpl": {"func": "tools.echo"},
}
ID = "01890a5d-ac96-774b-bcce-b302099a8057"


@pytest.fixture
def app(tmp_path):
    (tmp_path / "pack.py").write_text(PACK)
    (tmp_path / "onetool.yaml").write_text("packs: [pack.py]\n")
    with App.open(tmp_path / "onetool.yaml") as opened:
        yield opened


@contextmanager
def served(web, **options):
    """The address of a web app that uvicorn serves in a thread."""
    server = uvicorn.Server(uvicorn.Config(web, log_level="error", timeout_graceful_shutdown=2, **options))
    taken = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]}, daemon=True)
    thread.start()
    until(lambda: server.started or not thread.is_alive())
    assert server.started
    try:
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def starlette(*mounts, **options):
    routes = [Mount(path, asgi) for path, asgi in mounts]
    return Starlette(routes=[Route("/", lambda _: PlainTextResponse("theirs")), *routes], **options)


def fastapi(*mounts, **options):
    web = FastAPI(**options)
    web.add_api_route("/", lambda: "theirs")
    for path, asgi in mounts:
        web.mount(path, asgi)
    return web


@pytest.fixture(params=[starlette, fastapi])
def framework(request):
    return request.param


def run_over_mcp(url, code, **options):
    async def work():
        async with asyncio.timeout(30), Client(url, **options) as client:
            return (await client.call_tool("run", {"code": code})).content[0].text

    return asyncio.run(work())


@pytest.mark.parametrize("prefix", ["/tools", "/a/b", "/with space", "/tools/mcp", ""])
def test_it_works_below_any_prefix(app, prefix, framework):
    with served(framework((prefix, onetool.asgi(app))) if prefix else onetool.asgi(app)) as server:
        url = server + prefix.replace(" ", "%20")
        assert "Hello you" in run_over_mcp(f"{url}/mcp", 'pack.hello(name="you")')
        put = httpx.put(f"{url}/tools/bundles/{ID}", json={"slug": "mine", "displayName": "Mine"}, timeout=30)
        assert put.status_code == 201, put.text
        assert httpx.get(server + put.headers["location"]).json()["slug"] == "mine"
        document = httpx.get(f"{url}/openapi.json").json()
        assert document["servers"] == [{"url": prefix.replace(" ", "%20") or "/"}]
        assert f"{url}/mcp" in httpx.get(f"{url}/").text
        page = httpx.get(f"{url}/", headers={"Accept": "text/html"})
        assert (page.status_code, "<title>OneTool</title>" in page.text) == (200, True)
        assert httpx.get(f"{url}/healthz").json()["status"] == "ok"


@pytest.mark.parametrize(("root", "is_stripped"), [("/api", True), ("/api", False), ("/tools", False)])
def test_a_proxy_passes_on_what_is_below_its_own_prefix(app, framework, root, is_stripped):
    """`root_path` says which one. It is a part of links, and not of the paths that routes are compared with."""

    async def asked(path):
        web = framework(("/tools", onetool.asgi(app)))
        transport = httpx.ASGITransport(web, client=("127.0.0.1", 1), root_path=root)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as there:
            return await there.get(path if is_stripped else root + path)

    document = asyncio.run(asked("/tools/openapi.json"))
    assert (document.status_code, document.json()["servers"]) == (200, [{"url": f"{root}/tools"}])
    assert asyncio.run(asked("/tools/tools/bundles")).status_code == 200
    assert "'/nowhere'" in asyncio.run(asked("/tools/nowhere")).text


def test_what_is_not_there(app):
    with served(starlette(("/tools", onetool.asgi(app)))) as url:
        nowhere = httpx.get(f"{url}/tools/nowhere")
        assert (nowhere.status_code, nowhere.json()["error"]["code"]) == (404, "not_found")
        assert "'/nowhere'" in nowhere.text
        assert httpx.get(f"{url}/tools/tools/nowhere").headers["content-type"] == "application/problem+json"
        assert httpx.get(f"{url}/elsewhere").text == "Not Found"
        assert httpx.get(url).text == "theirs"


def test_two_mounts_with_what_each_may_do(app):
    web = starlette(
        ("/all", onetool.asgi(app, menu="direct")), ("/few", onetool.asgi(app, menu="direct", allowed=["pack.hello"]))
    )

    async def listed(url):
        async with asyncio.timeout(30), Client(url) as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    with served(web) as url:
        assert asyncio.run(listed(f"{url}/few/mcp")) == {"pack__hello"}
        assert len(asyncio.run(listed(f"{url}/all/mcp"))) > 5
        refused = httpx.put(f"{url}/few/tools/bundles/{ID}", json={"slug": "mine", "displayName": "Mine"})
        assert refused.status_code == 403


def test_two_apps_in_one_web_app(app, tmp_path):
    (tmp_path / "other.yaml").write_text("packs: []\n")
    code = 'pack.hello(name="you")'
    with (
        App.open(tmp_path / "other.yaml") as other,
        served(starlette(("/one", onetool.asgi(app)), ("/other", onetool.asgi(other)))) as url,
    ):
        assert "Hello you" in run_over_mcp(f"{url}/one/mcp", code)
        assert "Hello you" not in run_over_mcp(f"{url}/other/mcp", code)


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_body_without_any_length_is_counted(tmp_path, method):
    """As servers for HTTP/2 pass it on: with neither Content-Length nor Transfer-Encoding."""
    (tmp_path / "onetool.yaml").write_text("http: {max_body_mb: 1}\n")
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    path = "/call/tools.echo" if method == "POST" else f"/tools/bundles/{ID}"
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"http_version": "2", "scheme": "https", "headers": headers, "client": ("127.0.0.1", 1)}
    pieces, sent = [b" " * 1024**2, b"{}", b""], []

    async def receive():
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    async def send(message):
        sent.append(message)

    with App.open(tmp_path / "onetool.yaml") as app:
        asyncio.run(onetool.asgi(app)(scope, receive, send))
    assert sent[0]["status"] == 413
    assert b"http.max_body_mb" in sent[1]["body"]


# Their lifespan


def open_stream(url):
    """A session's stream of notifications, over plain HTTP: the client and the response, both open."""
    client = httpx.Client(timeout=20, headers={"accept": "application/json, text/event-stream"})
    first = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    }
    begun = client.post(url, json=first)
    assert begun.status_code == 200, begun.text
    headers = {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": "2025-06-18"}
    response = client.send(client.build_request("GET", url, headers=headers), stream=True)
    assert response.status_code == 200
    return client, response


def test_it_starts_with_the_first_request_and_ends_with_the_app(tmp_path, framework):
    """A mounted app gets no lifespan."""
    started = tmp_path / "started"
    command = f"echo $$ >> {started}; exec {sys.executable} -m mcp_server_time"
    config = {"servers": {"clock": {"command": "sh", "args": ["-c", command]}}}
    (tmp_path / "onetool.yaml").write_text(json.dumps(config))
    with App.open(tmp_path / "onetool.yaml") as app, served(framework(("/tools", onetool.asgi(app)))) as url:
        assert "theirs" in httpx.get(url).text
        assert not started.exists()
        assert httpx.get(f"{url}/tools/healthz").status_code == 200
        until(started.exists)
        until(lambda: "UTC" in run_over_mcp(f"{url}/tools/mcp", 'clock.get_current_time(timezone="UTC")'))
        (pid,) = started.read_text().split()
        assert Path(f"/proc/{pid}").exists()
        app.close()
        until(lambda: not Path(f"/proc/{pid}").exists())
        assert httpx.get(f"{url}/tools/healthz").status_code == 503


def test_closing_ends_streams_and_refuses_what_comes_later(app, framework):
    with served(framework(("/tools", onetool.asgi(app)))) as url:
        client, response = open_stream(f"{url}/tools/mcp")
        threading.Timer(0.2, app.close).start()
        list(response.iter_raw())  # ends
        client.close()
        later = httpx.get(f"{url}/tools/healthz")
        assert (later.status_code, later.json()["error"]["code"]) == (503, "closed")
        assert "theirs" in httpx.get(url).text


def test_their_lifespan_closes_it_while_a_stream_is_open(app, framework):
    states = []

    @asynccontextmanager
    async def lifespan(_):
        async with app:
            yield

    app.on_close(lambda: states.append("closed"))
    with served(framework(("/tools", onetool.asgi(app)), lifespan=lifespan)) as url:
        assert "Hello you" in run_over_mcp(f"{url}/tools/mcp", 'pack.hello(name="you")')
        client, _ = open_stream(f"{url}/tools/mcp")
    assert states == ["closed"]
    client.close()


# Their authentication


class TheirUsers:
    """Middleware as people write it: a header names the user."""

    def __init__(self, app):
        self._app = app

    async def __call__(self, scope, receive, send):
        name = dict(scope["headers"]).get(b"x-user") if scope["type"] == "http" else None
        if scope["type"] == "http" and name is None:
            await PlainTextResponse("who are you?", 401)(scope, receive, send)
            return
        await self._app({**scope, "their_user": name and name.decode()}, receive, send)


def named(scope):
    name = scope.get("their_user")
    return None if name == "nobody" else name


@pytest.fixture
def shared(app):
    with served(TheirUsers(starlette(("/tools", onetool.asgi(app, auth=named))))) as url:
        yield url


def test_their_middleware_refuses_before_us(shared):
    refused = httpx.get(f"{shared}/tools/openapi.json")
    assert (refused.status_code, refused.text) == (401, "who are you?")


def test_who_is_nobody_gets_401_from_us(shared):
    refused = httpx.get(f"{shared}/tools/openapi.json", headers={"x-user": "nobody"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthorized")
    assert httpx.get(f"{shared}/tools/healthz", headers={"x-user": "nobody"}).status_code == 200


def run_as(user, url, code):
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": "run",
            "arguments": {"code": code},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    }
    headers = {
        "x-user": user,
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "run",
    }
    answer = httpx.post(f"{url}/tools/mcp", json=body, headers=headers, timeout=30)
    assert answer.status_code == 200, answer.text
    return json.dumps(answer.json()["result"])


def test_results_are_their_users_alone(shared):
    told = run_as("ada", shared, "pack.long()")
    handle = re.search(r"handle=\W*([\w-]+)", told)
    assert handle, told[:800]
    code = f'ot.result(handle="{handle[1]}", limit=1)'
    assert "word word" in run_as("ada", shared, code)
    theirs = run_as("bob", shared, code)
    assert f"Handle not found: {handle[1]}" in theirs


def test_sessions_of_ask_are_their_users_alone(shared):
    def as_user(user, method, path, **options):
        return httpx.request(method, f"{shared}/tools/ask{path}", headers={"x-user": user}, **options)

    called = as_user("ada", "POST", "/calls", json={"name": "pack.long"})
    id = called.json()["sessionId"]
    assert [one["id"] for one in as_user("ada", "GET", "/sessions").json()["sessions"]] == [id]
    assert as_user("bob", "GET", "/sessions").json()["sessions"] == []
    assert as_user("bob", "GET", f"/sessions/{id}").status_code == 404


def test_without_a_word_about_authentication_the_rules_of_serve_hold(app):
    async def answers(client=("127.0.0.1", 1), host="localhost:1", **headers):
        transport = httpx.ASGITransport(starlette(("/tools", onetool.asgi(app))), client=client)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as there:
            return (await there.get("/tools/openapi.json", headers=headers)).status_code

    assert asyncio.run(answers()) == 200
    assert asyncio.run(answers(client=("192.0.2.7", 1))) == 401
    assert asyncio.run(answers(client=("testclient", 1))) == 401
    assert asyncio.run(answers(host="evil.example")) == 421
    assert asyncio.run(answers(origin="https://evil.example")) == 403
    assert asyncio.run(answers(**{"sec-fetch-site": "cross-site"})) == 403
    assert asyncio.run(answers(origin="http://localhost:1")) == 200


@pytest.mark.parametrize("header", ["Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Via"])
def test_what_a_proxy_on_this_machine_passes_on_is_not_from_here(app, header):
    with served(starlette(("/tools", onetool.asgi(app)))) as url:
        assert httpx.get(f"{url}/tools/openapi.json").status_code == 200
        refused = httpx.get(f"{url}/tools/openapi.json", headers={header: "127.0.0.1"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthorized")


def test_a_token_of_the_config_is_asked_for(tmp_path):
    (tmp_path / "onetool.yaml").write_text("http: {token: sesame-token-0123456789}\n")
    with App.open(tmp_path / "onetool.yaml") as app, served(starlette(("/tools", onetool.asgi(app)))) as url:
        assert httpx.get(f"{url}/tools/openapi.json").status_code == 401
        headers = {"authorization": "Bearer sesame-token-0123456789"}
        assert httpx.get(f"{url}/tools/openapi.json", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("hosts", "host", "status"),
    [
        ((), "shop.example", 421),
        (["shop.example"], "shop.example", 200),
        (["shop.example"], "shop.example:8443", 200),
        (["shop.example"], "evil.example", 421),
        (["*"], "evil.example", 200),
    ],
)
def test_hosts_and_origins_are_theirs_to_name(app, hosts, host, status):
    async def answer(**headers):
        transport = httpx.ASGITransport(onetool.asgi(app, auth=lambda _: "ada", hosts=hosts), client=("192.0.2.7", 1))
        async with httpx.AsyncClient(transport=transport, base_url=f"https://{host}") as there:
            return (await there.get("/openapi.json", headers=headers)).status_code

    assert asyncio.run(answer()) == status
    assert asyncio.run(answer(origin="https://other.example")) in (403, 421)


def test_any_host_needs_somebody_who_authenticates(tmp_path):
    """Else a page whose name is rebound to this machine could use it."""
    file = tmp_path / "onetool.yaml"
    file.write_text("packs: []\n")
    with App.open(file) as app:
        with pytest.raises(ValueError, match=r"auth=.*http\.token"):
            onetool.asgi(app, hosts=["*"])
        file.write_text("http: {token: sesame-token-0123456789}\n")
        app.reload()
        mounted = onetool.asgi(app, hosts=["*"])

        async def answer():
            transport = httpx.ASGITransport(mounted, client=("127.0.0.1", 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://evil.example") as there:
                return (await there.get("/openapi.json")).status_code

        assert asyncio.run(answer()) == 401
        file.write_text("packs: []\n")
        app.reload()
        assert asyncio.run(answer()) == 401


@pytest.mark.parametrize("options", [{"auth": "nobody"}, {"auth": 1}, {"hosts": "a.b"}, {"allowed": "pack.hello"}])
def test_what_can_not_be_meant(app, options):
    with pytest.raises(ValueError, match=r"expected None|lists of names"):
        onetool.asgi(app, **options)


async def asked_later(_):
    return "ada"


@pytest.mark.parametrize(("auth", "status"), [(asked_later, 200), (lambda _: "", None), (lambda _: 7, None)])
def test_the_function_may_be_async_and_has_to_give_a_name(app, auth, status):
    async def answer():
        transport = httpx.ASGITransport(onetool.asgi(app, auth=auth))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as there:
            return (await there.get("/openapi.json")).status_code

    if status is not None:
        assert asyncio.run(answer()) == status
        return
    with pytest.raises(TypeError, match="expected the name of the user"):
        asyncio.run(answer())


def test_a_websocket_is_refused_politely(app):
    with served(starlette(("/tools", onetool.asgi(app)))) as url:
        with pytest.raises(InvalidStatus) as refused:
            websocket(f"{url.replace('http', 'ws')}/tools/mcp")
        assert refused.value.response.status_code == 403
        assert httpx.get(f"{url}/tools/healthz").status_code == 200


@each(
    ("scope", "path", "raw"),
    [
        ({"path": "/t/mcp", "raw_path": b"/t/mcp", "root_path": "/t"}, "/mcp", b"/mcp"),
        ({"path": "/t", "raw_path": b"/t", "root_path": "/t"}, "/", b"/"),
        ({"path": "/tx", "raw_path": b"/tx", "root_path": "/t"}, "/tx", b"/tx"),
        ({"path": "/a b/c d", "raw_path": b"/a%20b/c%20d", "root_path": "/a b"}, "/c d", b"/c%20d"),
        ({"path": "/t/x", "root_path": "/t"}, "/x", b"/x"),
        ({"path": "/t/x", "raw_path": b"/t/x", "root_path": "/api/t", "app_root_path": "/api"}, "/x", b"/x"),
        ({"path": "/x", "raw_path": b"/x"}, "/x", b"/x"),
    ],
)
def test_the_path_below_the_prefix(scope, path, raw):
    inner, root = below_prefix(scope)
    assert (inner["path"], inner["raw_path"]) == (path, raw)
    assert root == scope.get("root_path", "")
