"""Sessions over HTTP, for clients of the old era: how they begin and end, and streams that can be taken up again."""

import asyncio
import re

import pytest
from helpers import each, until
from interfaces.mcp.peers import INFO, OLD, HttpPeer

from onetool import App
from onetool.core.principal import Principal
from onetool.interfaces.mcp import http_sessions
from onetool.interfaces.mcp.client import RemoteClient
from onetool.interfaces.mcp.http_sessions import HttpSessions
from onetool.interfaces.mcp.service import Service

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
JSON = ("Content-Type", "application/json")


def session(id):
    return [JSON, ("Mcp-Session-Id", id)]


# Beginning and ending


def test_a_session_has_an_id_that_nobody_guesses(http_peer):
    ids = {http_peer("old").session for _ in range(5)}
    assert len(ids) == 5
    assert all(re.fullmatch("[0-9a-f]{32}", id) for id in ids)


def test_after_its_end_it_is_not_found(http_peer, shared_server):
    peer = http_peer("old")
    assert peer.send(PING).status == 200
    ended = shared_server.send(None, session(peer.session), method="DELETE")
    assert (ended.status, ended.body) == (204, b"")
    for method, body in (("POST", PING), ("GET", None), ("DELETE", None)):
        exchange = shared_server.send(body, session(peer.session), method=method)
        assert exchange.status == 404, method
        assert "send initialize again" in exchange.message["error"]["message"]


@each("id", ["0" * 32, "x", "", "é".encode().decode("latin-1"), "a" * 5000])
def test_a_session_that_there_never_was_is_not_found(shared_server, id):
    for method, body in (("POST", PING), ("GET", None), ("DELETE", None)):
        assert shared_server.send(body, session(id), method=method).status == 404, method


def test_without_a_session_there_is_only_the_beginning_of_one(shared_server):
    exchange = shared_server.send(PING, [JSON])
    assert (exchange.status, exchange.code, exchange.message["id"]) == (400, -32600, 1)
    assert "the header mcp-session-id is missing: begin with initialize" in exchange.message["error"]["message"]
    exchange = shared_server.send(None, [("Accept", "text/event-stream")], method="GET")
    assert (exchange.status, exchange.headers["allow"]) == (405, "POST, GET, DELETE")
    assert shared_server.send(None, [], method="DELETE").status == 400


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS"])
def test_other_methods_of_http_are_refused(shared_server, method):
    exchange = shared_server.send(None, [], method=method)
    assert (exchange.status, exchange.headers["allow"]) == (405, "POST, GET, DELETE")


def test_a_session_of_another_owner_is_not_found(serve, tmp_path):
    config = tmp_path / "onetool.yaml"
    config.write_text("http: {token: first-token-of-two}\n")
    server = serve(config=config)
    peer = HttpPeer(server, "old", token="first-token-of-two")
    assert peer.result("ping") == {}
    config.write_text("http: {token: other-token-of-two}\n")
    server.reload()
    peer.token = "other-token-of-two"
    assert until(lambda: (status := peer.send(PING).status) != 401 and status) == 404


def test_the_header_may_name_any_revision_that_we_speak_or_none(http_peer):
    peer = http_peer("old")
    for version in ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"):
        assert peer.send(PING, [*session(peer.session), ("MCP-Protocol-Version", version)]).status == 200
    assert peer.send(PING, session(peer.session)).status == 200
    for version in ("1999-01-01", "2026-01-01", ""):
        exchange = peer.send(PING, [*session(peer.session), ("MCP-Protocol-Version", version)])
        assert (exchange.status, exchange.code) == (400, -32022)
        assert exchange.message["error"]["data"]["requested"] == version
        assert OLD in exchange.message["error"]["data"]["supported"]


def test_notifications_and_responses_are_taken_note_of(http_peer):
    peer = http_peer("old")
    for message in ({"jsonrpc": "2.0", "method": "x"}, {"jsonrpc": "2.0", "id": 5, "result": {}}):
        exchange = peer.send(message)
        assert (exchange.status, exchange.body) == (202, b"")


def test_a_short_answer_is_plain_json_and_a_long_one_a_stream(http_peer):
    peer = http_peer("old")
    exchange = peer.send(PING)
    assert exchange.headers["content-type"] == "application/json"
    call = {"name": "working__advance", "arguments": {"steps": [1, 2]}}
    exchange = peer.send(peer.message("tools/call", call, meta={"progressToken": "p"}))
    assert exchange.headers["content-type"] == "text/event-stream"
    assert exchange.headers["cache-control"] == "no-cache, no-transform"
    assert [message.get("method", "answer") for message in exchange.messages] == [
        "notifications/progress",
        "notifications/progress",
        "answer",
    ]


# What is sent


@pytest.mark.parametrize("kind", ["text/plain", "application/json-rpc", "", "application/x-www-form-urlencoded"])
def test_a_message_is_json_and_says_so(shared_server, http_peer, kind):
    peer = http_peer("old")
    exchange = peer.send(PING, [("Content-Type", kind), ("Mcp-Session-Id", peer.session)])
    assert exchange.status == 415
    assert peer.send(PING, [("Mcp-Session-Id", peer.session)]).status == 415
    right = [("Content-Type", "Application/JSON; charset=utf-8"), ("Mcp-Session-Id", peer.session)]
    assert peer.send(PING, right).status == 200


def test_a_client_that_takes_no_kind_of_answer_gets_none(http_peer):
    peer = http_peer("old")
    for accept, status in (
        ("text/html", 406),
        ("image/*", 406),
        ("application/json", 200),
        ("application/json, text/event-stream", 200),
        ("*/*", 200),
    ):
        assert peer.send(PING, [*session(peer.session), ("Accept", accept)]).status == status, accept
    exchange = peer.send(None, [("Mcp-Session-Id", peer.session), ("Accept", "application/json")], method="GET")
    assert exchange.status == 406


# Batches


@pytest.mark.parametrize("revision", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
def test_batches_are_refused(http_peer, revision):
    peer = http_peer("old", revision=revision)
    for batch in ([PING], []):
        exchange = peer.send(batch)
        assert (exchange.status, exchange.code, exchange.message["id"]) == (400, -32600, None)
        assert "send one message at a time" in exchange.message["error"]["message"]
    assert peer.send(PING).status == 200


def test_batches_are_refused_without_a_session_and_over_stdio(shared_server, http_peer, shared_peers):
    new = http_peer("new")
    exchange = new.send([new.message("tools/list")], new.headers(new.message("tools/list")))
    assert (exchange.status, exchange.code) == (400, -32600)
    assert shared_server.send([PING], [JSON]).status == 400
    for way in ("stdio-old", "stdio-new"):
        assert shared_peers(way).reply_to([PING])["error"]["code"] == -32600


# Streams that break


def begin(peer, path):
    """A call that tells of its progress, once it has."""
    call = {"name": "working__wait_for", "arguments": {"path": str(path)}}
    pending = peer.begin("tools/call", call, meta={"progressToken": "p"})
    until(lambda: len(pending.exchange.messages) == 1)
    return pending


def test_a_stream_begins_with_an_id_to_come_back_with(http_peer, tmp_path):
    for revision, primed in (("2025-11-25", True), ("2025-06-18", False)):
        peer = http_peer("old", revision=revision)
        (tmp_path / "it").touch()
        pending = peer.begin(
            "tools/call",
            {"name": "working__wait_for", "arguments": {"path": str(tmp_path / "it")}},
            meta={"progressToken": "p"},
        )
        assert pending.answer()["result"]
        events = pending.exchange.events
        assert ("retry" in events[0]) is primed
        ids = [event["id"] for event in events]
        assert len(set(ids)) == len(ids) == (4 if primed else 3)
        if primed:
            assert events[0].get("data", "") == ""


def test_the_rest_of_a_broken_stream_comes_to_whoever_comes_back(http_peer, tmp_path):
    peer = http_peer("old")
    broken = begin(peer, tmp_path / "it")
    broken.exchange.hang_up()
    assert broken.answer() is None
    last = broken.exchange.events[-1]["id"]
    (tmp_path / "it").touch()
    rest = until(lambda: resumed(peer, last) or None)
    assert [message.get("id", message.get("method")) for message in rest] == ["notifications/progress", broken.id]
    assert rest[-1]["result"]["content"][0]["text"] == "it came"


def resumed(peer, last):
    """What came after that event, once it has all come."""
    pending = peer.listen(last)
    pending.answer()
    assert pending.exchange.status == 200
    return pending.exchange.messages


def test_one_who_comes_back_while_it_is_under_way_gets_the_rest_as_it_comes_and_the_stream_ends(http_peer, tmp_path):
    peer = http_peer("old")
    broken = begin(peer, tmp_path / "it")
    broken.exchange.hang_up()
    again = peer.listen(broken.exchange.events[-1]["id"])
    assert not again.is_answered
    (tmp_path / "it").touch()
    again.answer()
    assert [message.get("id", message.get("method")) for message in again.exchange.messages] == [
        "notifications/progress",
        broken.id,
    ]


def test_it_can_be_had_again_from_any_event_on(http_peer, tmp_path):
    peer = http_peer("old")
    (tmp_path / "it").touch()
    call = {"name": "working__wait_for", "arguments": {"path": str(tmp_path / "it")}}
    pending = peer.begin("tools/call", call, meta={"progressToken": "p"})
    assert pending.answer()
    until(lambda: len(pending.exchange.events) == 4)
    for place, event in enumerate(pending.exchange.events):
        assert resumed(peer, event["id"]) == pending.exchange.messages[place:]


@pytest.mark.parametrize("last", ["x", "", "99-1", "0", "1-x", "1--1", "-", "é".encode().decode("latin-1"), "0-1²"])
def test_an_event_that_there_never_was_is_not_found(http_peer, last):
    peer = http_peer("old")
    headers = [("Accept", "text/event-stream"), ("Mcp-Session-Id", peer.session), ("Last-Event-ID", last)]
    exchange = peer.send(None, headers, method="GET")
    assert exchange.status == 404
    assert "last-event-id" in exchange.message["error"]["message"]


def test_two_sessions_do_not_see_each_others_streams(http_peer, tmp_path):
    one, other = http_peer("old"), http_peer("old")
    (tmp_path / "it").touch()
    call = {"name": "working__wait_for", "arguments": {"path": str(tmp_path / "it")}}
    pending = one.begin("tools/call", call, meta={"progressToken": "p"})
    assert pending.answer()
    headers = [("Mcp-Session-Id", other.session), ("Last-Event-ID", pending.exchange.events[-1]["id"])]
    assert other.send(None, headers, method="GET").status == 404


def test_the_end_of_a_session_ends_its_streams(http_peer):
    peer = http_peer("old")
    news = peer.listen()
    peer.close()
    news.answer()
    assert (news.exchange.status, news.exchange.messages) == (200, [])


def test_who_listens_again_ends_the_stream_before(http_peer):
    peer = http_peer("old")
    first, second = peer.listen(), peer.listen()
    first.answer()
    assert not second.is_answered


def test_a_handshake_inside_of_a_session_is_refused(http_peer):
    peer = http_peer("old")
    params = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": INFO}
    exchange = peer.send(peer.message("initialize", params))
    assert exchange.code == -32600
    exchange = peer.send(peer.message("initialize", params), session("0" * 32))
    assert exchange.status == 404


def test_many_sessions_of_one_caller_push_out_its_own(monkeypatch, tmp_path):
    monkeypatch.setattr(http_sessions, "MAX_SESSIONS", 4)

    async def main(app):
        sessions = HttpSessions(Service(app))
        clients = {who: RemoteClient(principal=Principal(owner=who)) for who in ("ada", "bob")}
        bobs = sessions.open(clients["bob"])
        adas = [sessions.open(clients["ada"]) for _ in range(6)]
        assert sessions.get(bobs.id, clients["bob"].principal) is bobs
        assert [one for one in adas if sessions.get(one.id, clients["ada"].principal)] == adas[-3:]

    (tmp_path / "onetool.yaml").touch()
    with App.open(tmp_path / "onetool.yaml") as app:
        asyncio.run(main(app))
