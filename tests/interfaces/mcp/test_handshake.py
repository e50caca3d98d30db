"""How a client begins: by a handshake, or with every request for itself."""

import pytest
from interfaces.mcp.peers import INFO, META, NEW, OLD

from onetool import __version__

SERVER = {"name": "onetool", "title": "OneTool", "version": __version__}
CAPABILITIES = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "completions": {},
}
REVISIONS = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]


@pytest.fixture(params=["stdio", "http"])
def stranger(request, stdio_peer, http_peer):
    """Make a client that has not said anything yet."""
    make = stdio_peer if request.param == "stdio" else http_peer
    return lambda **options: make("old", begun=False, **options)


@pytest.fixture(params=["stdio-new", "http-new"])
def newcomer(request, shared_peers):
    """A client that needs to say nothing first."""
    return shared_peers(request.param)


# The handshake


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_revision_that_a_client_wants_is_agreed(stranger, revision):
    told = stranger(revision=revision).initialize()
    assert told["protocolVersion"] == revision
    assert told["serverInfo"] == SERVER
    assert told["capabilities"] == {**CAPABILITIES, "logging": {}}


@pytest.mark.parametrize("revision", ["2030-01-01", "2024-10-07", "", NEW])
def test_a_client_that_wants_another_one_is_offered_our_newest(stranger, revision):
    assert stranger(revision=revision).initialize()["protocolVersion"] == OLD


def test_instructions_say_how_many_tools_there_are(stranger):
    words = stranger().initialize()["instructions"]
    assert words.startswith("OneTool gives you ")
    assert "tools" in words


def test_after_the_handshake_the_session_works(stranger):
    peer = stranger(revision="2024-11-05")
    peer.initialize()
    assert peer.result("ping") == {}
    assert peer.result("tools/list")["tools"]


def test_a_handshake_that_is_none_is_refused_and_the_next_one_works(stranger):
    peer = stranger()
    for params, words in (
        ({}, "params.protocolVersion is missing: initialize needs it"),
        ({"protocolVersion": 7}, "params.protocolVersion: expected a string, got the number 7"),
        ({"protocolVersion": OLD, "capabilities": []}, "params.capabilities: expected an object, got an empty list"),
        ({"protocolVersion": OLD, "clientInfo": "me"}, "params.clientInfo: expected an object, got the string 'me'"),
    ):
        refused = peer.error("initialize", params)
        assert (refused["code"], refused["message"]) == (-32602, words)
    assert peer.initialize()["protocolVersion"] == OLD


def test_a_second_handshake_is_refused_and_changes_nothing(stranger):
    peer = stranger(revision="2025-06-18")
    peer.initialize()
    refused = peer.error("initialize", {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": INFO})
    assert refused["code"] == -32600
    assert peer.result("ping") == {}


def test_on_a_pipe_only_a_ping_may_come_before(stdio_peer):
    peer = stdio_peer("old", begun=False)
    assert peer.result("ping") == {}
    for method in ("tools/list", "tools/call", "no/such/method"):
        refused = peer.error(method)
        assert (refused["code"], refused["message"]) == (
            -32600,
            f"{method} was sent before initialize, and without a protocol version in _meta",
        )
    peer.initialize()
    assert peer.result("tools/list")["tools"]


# Every request for itself


def test_discovery_says_what_there_is(newcomer):
    told = newcomer.result("server/discover")
    assert told.pop("instructions").startswith("OneTool gives you ")
    assert told == {
        "resultType": "complete",
        "supportedVersions": [NEW],
        "capabilities": {**CAPABILITIES, "extensions": {f"{META}tasks": {}}},
        "ttlMs": 5000,
        "cacheScope": "private",
        "_meta": {f"{META}serverInfo": SERVER},
    }


def test_no_discovery_is_needed(newcomer):
    listed = newcomer.result("tools/list")
    assert listed["tools"]
    assert (listed["resultType"], listed["ttlMs"], listed["cacheScope"]) == ("complete", 5000, "private")
    assert listed["_meta"] == {f"{META}serverInfo": SERVER}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("protocolVersion", 7, "must be a string"),
        ("clientCapabilities", None, "is missing"),
        ("clientCapabilities", [], "must be an object"),
        ("logLevel", "loud", "must be one of debug, info, notice"),
        ("logLevel", ["info"], "must be one of debug, info, notice"),
    ],
)
def test_what_a_request_says_of_its_client_must_make_sense(newcomer, key, value, words):
    refused = newcomer.error("tools/list", meta={f"{META}{key}": value})
    assert refused["code"] == -32602
    assert f"params._meta['{META}{key}'] {words}" in refused["message"]
    assert newcomer.result("tools/list")["tools"]


def test_another_version_is_refused_with_those_that_would_do(shared_peers):
    other = {f"{META}protocolVersion": "2030-01-01"}
    data = {"supported": [NEW], "requested": "2030-01-01"}
    refused = shared_peers("stdio-new").error("tools/list", meta=other)
    assert (refused["code"], refused["data"]) == (-32022, data)
    peer = shared_peers("http-new")
    message = peer.message("tools/list", meta=other)
    headers = [(name, "2030-01-01" if value == NEW else value) for name, value in peer.headers(message)]
    exchange = peer.send(message, headers)
    assert (exchange.status, exchange.code) == (400, -32022)
    assert exchange.message["error"]["data"] == data


def test_a_discovery_without_a_word_on_its_client_is_refused(newcomer):
    message = {"jsonrpc": "2.0", "id": 7, "method": "server/discover"}
    if hasattr(newcomer, "send"):
        exchange = newcomer.send(message)
        assert exchange.status == 400
        reply = exchange.message
    else:
        reply = newcomer.reply_to(message, 7)
    assert reply["error"]["code"] == -32602
    assert f"{META}protocolVersion" in reply["error"]["message"]


def test_a_client_that_looks_for_the_new_era_may_still_begin_in_the_old_one(stdio_peer):
    """As clients do that do not know whom they have before them. And one pipe can carry both."""
    peer = stdio_peer("old", begun=False)
    unknown = {f"{META}protocolVersion": "2030-01-01", f"{META}clientCapabilities": {}}
    assert peer.error("server/discover", meta=unknown)["code"] == -32022
    assert peer.initialize()["protocolVersion"] == OLD
    assert "resultType" not in peer.result("tools/list")
    alone = {f"{META}protocolVersion": NEW, f"{META}clientCapabilities": {}}
    assert peer.result("tools/list", meta=alone)["resultType"] == "complete"
    assert "resultType" not in peer.result("tools/list")


# What each era has, and the other has not


@pytest.mark.parametrize("method", ["ping", "logging/setLevel", "resources/subscribe", "initialize", "x", "tools/List"])
def test_methods_that_are_gone_are_not_found(newcomer, method):
    refused = newcomer.error(method, {"level": "info", "uri": "ot://tools"})
    assert (refused["code"], refused["message"]) == (-32601, f"Method not found: {method}")


def test_methods_that_were_not_there_yet_are_not_found_and_results_have_nothing_of_the_new_era(stranger):
    peer = stranger()
    peer.initialize()
    for method in ("subscriptions/listen", "tasks/get", "tasks/cancel", "x", "sampling/createMessage"):
        assert peer.error(method, {"taskId": "x", "notifications": {}})["code"] == -32601, method
    for method in ("ping", "tools/list", "prompts/list", "resources/list", "resources/templates/list"):
        assert not {"resultType", "ttlMs", "cacheScope", "_meta"} & set(peer.result(method)), method
