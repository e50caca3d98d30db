"""A stored result as a resource of the MCP server: whole, up to a size."""

import asyncio
from types import SimpleNamespace

import pytest
from services.result_stores import harness

from onetool.core.mcp_protocol import INTERNAL_ERROR, INVALID_PARAMS, JsonRpcError
from onetool.core.principal import Principal
from onetool.interfaces.mcp import offers

__all__ = ["harness"]


@pytest.fixture
def results(harness):
    return harness.open()


def read(results, handle, owner=""):
    """What `resources/read` gives to a client that is this owner."""
    app = SimpleNamespace(runtime=SimpleNamespace(results=results))
    service = SimpleNamespace(app=app, allowed=None, resources=list)
    client = SimpleNamespace(principal=Principal(owner=owner), is_stateless=True)
    request = SimpleNamespace(client=client, param=lambda _: f"ot://results/{handle}")
    (content,) = asyncio.run(offers.read_resource(service, request))["contents"]
    return content


def test_a_result_is_read_whole(results):
    text = "line é\n" * 200_000
    handle = results.put(text, "alice").handle
    assert read(results, handle, "alice") == {"uri": f"ot://results/{handle}", "mimeType": "text/plain", "text": text}


def test_one_that_is_too_large_is_told_how_to_read(results, monkeypatch):
    monkeypatch.setattr(offers, "MAX_RESULT", 2_000_000)
    handle = results.put("x" * 2_000_001).handle
    with pytest.raises(JsonRpcError, match=f'2,000,001 bytes.*ot.result.handle="{handle}"') as caught:
        read(results, handle)
    assert caught.value.code == INTERNAL_ERROR
    assert len(read(results, results.put("x" * 2_000_000).handle)["text"]) == 2_000_000


def test_that_of_another_is_not_found(results, monkeypatch):
    monkeypatch.setattr(offers, "MAX_RESULT", 1)
    handle = results.put("mine", "alice").handle
    with pytest.raises(JsonRpcError, match="Handle not found") as caught:
        read(results, handle, "bob")
    assert caught.value.code == INVALID_PARAMS
