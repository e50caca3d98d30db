"""`otel` and MCP servers: a span for each request to them, whose trace context they get in `_meta`."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from interfaces.http.collector import attributes
from interfaces.http.matrix import bearer, exchange, served, token_entry, token_of
from interfaces.http.meta_server import meta_server
from interfaces.http.test_otel import CLIENT_SPAN, SECRET, TRACE, send

from onetool.app.telemetry import start_telemetry

SCRIPT = Path(__file__).with_name("meta_server.py")
STATE = "vendor=abc"
SENT = (("traceparent", f"00-{TRACE}-{CLIENT_SPAN}-01"), ("tracestate", STATE))


@pytest.fixture(params=["stdio", "http"])
def block(request):
    """A server of each kind in the config, and what is told of where it is."""
    if request.param == "stdio":
        yield {"command": sys.executable, "args": [str(SCRIPT)]}, {"network.transport": "pipe"}
        return
    with meta_server() as url:
        port = int(url.removesuffix("/mcp").rpartition(":")[2])
        place = {"network.transport": "tcp", "server.address": "127.0.0.1", "server.port": port}
        yield {"url": url, "headers": {"x-key": SECRET}}, place


# A server over stdio takes 1.5 s of CPU to start: one test uses it.
OVER_HTTP = pytest.mark.parametrize("block", ["http"], indirect=True)


def opened(folder, block, otel):
    config = {
        "http": {"tokens": [token_entry("edit-1", token_of("edit"), role="edit")]},
        "servers": {"far": block},
        **({"otel": otel} if otel else {}),
    }
    return served(folder, config)


def run(site, code):
    return send(site, "POST", "/run", {"code": code}, SENT)[2]


def test_a_request_to_a_server_is_a_span_and_carries_its_trace(tmp_path, collector, block):
    definition, place = block
    app, site = opened(tmp_path / "served", definition, collector.url)
    end = start_telemetry(app.config, app.runtime.recorder)
    with app:
        told = run(site, f"far.meta(text='{SECRET}')")
        end()
    spans = {span.name: span for span in collector.spans(TRACE)}
    call, sent = spans["execute_tool far.meta"], spans["tools/call meta"]
    assert (sent.parent_span_id, sent.kind) == (call.span_id, sent.SPAN_KIND_CLIENT)
    assert call.kind == call.SPAN_KIND_INTERNAL
    found = attributes(sent)
    assert found.pop("mcp.protocol.version")
    assert found == {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "meta",
        "onetool.server": "far",
        **place,
    }
    assert f"00-{TRACE}-{sent.span_id.hex()}-01".encode() in told
    assert STATE.encode() in told
    assert all(SECRET.encode() not in body for _, _, body in collector.got)


@OVER_HTTP
def test_without_it_servers_get_no_trace(tmp_path, block):
    app, site = opened(tmp_path / "served", block[0], None)
    assert start_telemetry(app.config, app.runtime.recorder) is None
    with app:
        told = run(site, f"far.meta(text='{SECRET}')")
    assert b"traceparent" not in told
    assert TRACE.encode() not in told
    assert STATE.encode() not in told


@OVER_HTTP
@pytest.mark.parametrize(
    ("code", "error"),
    [
        (f"far.fail(text='{SECRET}')", "tool_error"),
        (f"far.refuse(code='-32602', text='{SECRET}')", "-32602"),
        (f"far.refuse(code='7', text='{SECRET}')", "MCPError"),
    ],
)
def test_an_error_is_told_without_the_words_of_the_server(tmp_path, collector, block, code, error):
    app, site = opened(tmp_path / "served", block[0], collector.url)
    end = start_telemetry(app.config, app.runtime.recorder)
    with app:
        run(site, f"try:\n    {code}\nexcept Exception:\n    pass")
        end()
    (sent,) = [span for span in collector.spans(TRACE) if span.name.startswith("tools/call")]
    assert attributes(sent)["error.type"] == error
    assert sent.status.code == sent.status.STATUS_CODE_ERROR
    assert all(SECRET.encode() not in body for _, _, body in collector.got)


@OVER_HTTP
def test_prompts_and_resources_are_spans_without_their_arguments(tmp_path, collector, block):
    app, site = opened(tmp_path / "served", block[0], collector.url)
    end = start_telemetry(app.config, app.runtime.recorder)
    session = []

    async def ask(method, **params):
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = (*bearer(token_of("edit")), *SENT, *session)
        _, answered, body = await exchange(site, "/mcp", "POST", headers, json.dumps(message).encode())
        session[:] = session or [("mcp-session-id", answered[b"mcp-session-id"].decode())]
        return json.loads(body)["result"]

    async def work():
        await app.servers.wait_connected()
        client = {"name": "one", "version": "1"}
        await ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
        (prompt,) = [one["name"] for one in (await ask("prompts/list"))["prompts"] if "greet" in one["name"]]
        (uri,) = [one["uri"] for one in (await ask("resources/list"))["resources"] if "note" in one["uri"]]
        await ask("prompts/get", name=prompt, arguments={"name": SECRET})
        await ask("resources/read", uri=uri)

    with app:
        asyncio.run(work())
        end()
    spans = {span.name: span for span in collector.spans(TRACE) if span.kind == span.SPAN_KIND_CLIENT}
    assert spans.keys() == {"prompts/get greet", "resources/read"}
    assert attributes(spans["prompts/get greet"])["gen_ai.prompt.name"] == "greet"
    assert not any("note" in str(value) for value in attributes(spans["resources/read"]).values())
    assert all(SECRET.encode() not in body for _, _, body in collector.got)
