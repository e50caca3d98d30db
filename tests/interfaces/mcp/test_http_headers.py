"""In the new era a client over HTTP says some things twice, in headers and in the body. They must agree."""

from base64 import b64encode
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st
from interfaces.mcp.peers import META, NEW
from interfaces.mcp.servers import as_header

from onetool.core.mcp_protocol import JsonRpcError
from onetool.interfaces.mcp.http_headers import METHOD, NAME, _decoded, check_headers

CALL = {"name": "plus", "arguments": {"a": 1}}


@pytest.fixture
def peer(shared_peers):
    return shared_peers("http-new")


def sent(peer, message, *changes, without=()):
    """A message with other headers than it should have."""
    gone = {name.lower() for name in (*without, *dict(changes))}
    kept = [(name, value) for name, value in peer.headers(message) if name.lower() not in gone]
    return peer.send(message, [*kept, *changes])


def refused(exchange):
    """The words of a refusal."""
    assert (exchange.status, exchange.code) == (400, -32020), exchange.messages
    return exchange.message["error"]["message"]


def test_all_is_well_when_they_agree(peer):
    message = peer.message("tools/call", CALL, id="mine")
    exchange = sent(peer, message)
    assert (exchange.status, exchange.message["id"]) == (200, "mine")
    assert sent(peer, message, ("mcp-method", "  tools/call\t"), ("MCP-NAME", "plus")).status == 200


@pytest.mark.parametrize("name", ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"])
def test_each_of_them_is_needed(peer, name):
    exchange = sent(peer, peer.message("tools/call", CALL, id="mine"), without=[name])
    assert f"the header {name.lower()} is missing" in refused(exchange)
    assert exchange.message["id"] == "mine"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Mcp-Method", "tools/list"),
        ("Mcp-Method", "Tools/Call"),
        ("Mcp-Method", ""),
        ("Mcp-Name", "working__crash"),
        ("Mcp-Name", "Plus"),
        ("Mcp-Name", ""),
        ("MCP-Protocol-Version", "2025-11-25"),
        ("MCP-Protocol-Version", "2030-01-01"),
    ],
)
def test_each_of_them_must_agree_with_the_body(peer, name, value):
    words = refused(sent(peer, peer.message("tools/call", CALL), (name, value)))
    assert name.lower() in words
    assert sent(peer, peer.message("tools/call", CALL)).status == 200


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("Mcp-Method", ("tools/call", "tools/call")),
        ("Mcp-Name", ("plus", "working__crash")),
        ("MCP-Protocol-Version", (NEW, NEW)),
        ("Mcp-Param-Region", ("a", "b")),
        ("Mcp-Session-Id", ("a", "b")),
    ],
)
def test_one_that_comes_twice_is_refused(peer, name, values):
    exchange = sent(peer, peer.message("tools/call", CALL), *((name, value) for value in values))
    assert refused(exchange) == f"the header {name.lower()} was sent twice"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("prompts/get", {"name": "dialogue"}),
        ("resources/read", {"uri": "shelf://note"}),
        ("resources/read", {"uri": "shelf://books/É/é 🦊"}),
        ("tools/list", {}),
        ("server/discover", {}),
    ],
)
def test_methods_with_a_name_repeat_it_and_others_do_not(peer, method, params):
    message = peer.message(method, params)
    assert sent(peer, message).status == 200
    wrong = sent(peer, message, ("Mcp-Name", "other"))
    assert wrong.status == (400 if params else 200)


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_tasks_are_named_too(peer, method):
    able = {"extensions": {f"{META}tasks": {}}}
    message = peer.message(method, {"taskId": "x", "inputResponses": {}}, capabilities=able)
    assert "mcp-name" in refused(sent(peer, message, without=["Mcp-Name"]))
    assert sent(peer, message).code == -32602


def test_a_name_that_is_no_plain_text_comes_in_base64(peer):
    for name in ("é", "🦊", " plus", "a\nb", "=?base64?x?="):
        exchange = sent(peer, peer.message("tools/call", {"name": name}), ("Mcp-Name", coded(name)))
        assert (exchange.status, exchange.code) == (400, -32602), name
        assert exchange.message["error"]["message"].startswith("Unknown tool: ")
    assert sent(peer, peer.message("tools/call", CALL), ("Mcp-Name", coded("plus"))).status == 200


def coded(text):
    return f"=?base64?{b64encode(text.encode()).decode()}?="


@pytest.mark.parametrize("inside", ["x", "====", "cGx1cw", "cGx1 cw==", "cGx1cx==", "/w==", "é", "*", "cGx1cw==\u00e9"])
def test_base64_that_is_none_is_refused(peer, inside):
    words = refused(sent(peer, peer.message("tools/call", CALL), ("Mcp-Name", f"=?base64?{inside}?=")))
    assert words == "the header mcp-name is not valid Base64"


def test_arguments_that_are_marked_are_repeated_too(peer):
    def call(*headers, **arguments):
        return sent(peer, peer.message("tools/call", {"name": "in_region", "arguments": arguments}), *headers)

    north, urgent = ("Mcp-Param-Region", "north"), ("Mcp-Param-Urgent", "true")
    assert call().status == 200
    assert call(north, region="north").status == 200
    assert call(north, urgent, region="north", urgent=True).status == 200
    assert call(("mcp-param-URGENT", "false"), urgent=False).status == 200
    assert call(("Mcp-Param-Region", coded("Süd")), region="Süd").status == 200
    assert call(("Mcp-Param-Other", "x")).status == 200
    assert "mcp-param-region is missing: it must repeat arguments.region" in refused(call(region="north"))
    assert "mcp-param-region and arguments.region differ" in refused(call(north, region="south"))
    assert "mcp-param-urgent and arguments.urgent differ" in refused(call(urgent, urgent=False))
    assert "mcp-param-region and arguments.region differ" in refused(call(north))


def test_the_header_alone_does_not_make_a_new_request_of_an_old_one(shared_server, peer):
    old = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = [("Content-Type", "application/json"), ("MCP-Protocol-Version", NEW), ("Mcp-Method", "tools/list")]
    exchange = shared_server.send(old, headers)
    assert (exchange.status, exchange.code) == (400, -32602)
    assert "params._meta is missing" in exchange.message["error"]["message"]


def test_nor_does_a_session_make_an_old_request_of_a_new_one(peer):
    exchange = sent(peer, peer.message("tools/list"), ("Mcp-Session-Id", "0" * 32))
    assert exchange.message["result"]["resultType"] == "complete"


def test_what_a_client_tells_by_the_way_is_taken_note_of(peer):
    for message in ({"jsonrpc": "2.0", "method": "notifications/x"}, {"jsonrpc": "2.0", "id": 1, "result": {}}):
        exchange = peer.send(message)
        assert (exchange.status, exchange.body) == (202, b"")


# One by one


@given(st.text())
def test_every_text_survives_its_way_through_a_header(text):
    assert _decoded(coded(text)) == text
    check_headers({METHOD: b"tools/call", NAME: as_header(text).encode("latin-1")}, "tools/call", {"name": text})


@given(st.text(st.characters(max_codepoint=255)))
def test_whatever_a_header_says_it_agrees_or_is_refused(value):
    head = {METHOD: b"tools/call", NAME: value.encode("latin-1")}
    agrees = value.strip(" \t") in ("plus", coded("plus"))
    with nullcontext() if agrees else pytest.raises(JsonRpcError, match=r"differ|not valid Base64"):
        check_headers(head, "tools/call", {"name": "plus"})


@given(st.binary(max_size=30))
def test_base64_is_spelled_in_one_way(data):
    inside = b64encode(data).decode()
    text = f"=?base64?{inside}?="
    try:
        expected = data.decode()
    except UnicodeDecodeError:
        expected = None
    assert _decoded(text) == expected
    if inside.endswith("="):
        assert _decoded(text.replace("=?=", "?=")) is None
