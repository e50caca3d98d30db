"""The web apps of the examples and of docs/reference/web-app.md, with the official MCP client and plain HTTP."""

import asyncio
import importlib.util
import re
import sys
from pathlib import Path

import httpx
import pytest
from interfaces.http.test_mount import served
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

ROOT = Path(__file__).parent.parent.parent
FILE = ROOT / "examples" / "web_app" / "web.py"


@pytest.fixture
def url():
    spec = importlib.util.spec_from_file_location("example_web", FILE)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    closed = []
    module.tools.on_close(lambda: closed.append(True))
    with served(module.web) as address:
        yield address
    assert closed


def test_the_web_app(url):
    key = {"X-Api-Key": "key-of-ada"}
    assert httpx.get(url, headers=key).text == "Hello ada"
    refused = httpx.get(f"{url}/tools/openapi.json")
    assert (refused.status_code, refused.json()) == (401, {"error": "send your key as X-Api-Key"})
    document = httpx.get(f"{url}/tools/openapi.json", headers=key, timeout=30).json()
    assert document["servers"] == [{"url": "/tools"}]

    async def work():
        async with (
            asyncio.timeout(30),
            httpx.AsyncClient(headers=key) as http,
            Client(streamable_http_client(f"{url}/tools/mcp", http_client=http)) as client,
        ):
            return await client.call_tool("orders__status", {"number": "1002"})

    assert "on its way" in asyncio.run(work()).content[0].text


class Users:
    """The middleware that the page takes for granted: it says in the state who asks."""

    def __init__(self, app):
        self._app = app

    async def __call__(self, scope, receive, send):
        name = dict(scope.get("headers", ())).get(b"x-user")
        if name is not None:
            scope.setdefault("state", {})["user_name"] = name.decode()
        await self._app(scope, receive, send)


@pytest.mark.parametrize("framework", ["starlette", "fastapi"])
@pytest.mark.parametrize("is_theirs", [False, True], ids=["ours", "theirs"])
def test_the_page_says_how(tmp_path, monkeypatch, framework, is_theirs):
    """Its examples, as they are written: in Starlette, in FastAPI, and with the authentication of either."""
    (tmp_path / "onetool.yaml").write_text(f"packs: ['{FILE.with_name('orders.py')}']\n")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "reference" / "web-app.md").read_text()
    in_starlette, in_fastapi, with_users = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = {}
    exec(in_starlette, names)
    if framework == "fastapi":
        exec(in_fastapi, names)
    prefix, web, user = "/tools", names["web"], {}
    if is_theirs:
        prefix, user = "/theirs", {"X-User": "ada"}
        exec(with_users.replace('"/tools"', f'"{prefix}"'), names)
        web.add_middleware(Users)
    closed = []
    names["tools"].on_close(lambda: closed.append(True))
    with served(web) as url:
        answer = httpx.post(f"{url}{prefix}/call/orders.status", json={"number": "1002"}, headers=user, timeout=30)
        assert answer.json() == "on its way"
        if is_theirs:
            assert httpx.get(f"{url}{prefix}/openapi.json").status_code == 401
            shop = {"Host": "shop.example.com"}
            assert httpx.get(f"{url}{prefix}/openapi.json", headers={**user, **shop}).status_code == 200
    assert closed
