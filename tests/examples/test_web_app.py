"""The web app of the examples, with the official MCP client and plain HTTP."""

import asyncio
import importlib.util
import sys
from pathlib import Path

import httpx
import pytest
from interfaces.http.test_mount import served
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

FILE = Path(__file__).parent.parent.parent / "examples" / "web_app" / "web.py"


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
    assert httpx.get(f"{url}/tools/openapi.json", headers=key).json()["servers"] == [{"url": "/tools"}]

    async def work():
        async with (
            asyncio.timeout(30),
            httpx.AsyncClient(headers=key) as http,
            Client(streamable_http_client(f"{url}/tools/mcp", http_client=http)) as client,
        ):
            return await client.call_tool("orders__status", {"number": "1002"})

    assert "on its way" in asyncio.run(work()).content[0].text
