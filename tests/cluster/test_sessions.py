"""A client whose every request comes to another replica: sessions, questions, cancellations, streams."""

import json
import re
import sqlite3
from contextlib import closing
from secrets import token_hex

import pytest
from helpers import until
from interfaces.mcp.peers import HttpPeer

ELICIT = "elicitation/create"
PING = {"jsonrpc": "2.0", "id": 77, "method": "ping"}


def accept(**content):
    return lambda params: {"action": "accept", "content": content}


def test_both_serve_a_session(peer):
    one = peer("old")
    for number in range(6):
        assert one.text("plus", {"a": number, "b": 1}) == str(number + 1)
    assert re.fullmatch("[0-9a-f]{32}", one.session)


def test_both_know_what_the_address_of_the_first_request_chose(peer):
    one = peer("old", query="?whole=1")
    one.path = "/mcp"
    for _ in range(2):
        assert one.text("working__lines", {"count": 6_000}).endswith("\nline 6000")


@pytest.mark.parametrize("era", ["old", "new"])
def test_a_question_is_answered_through_the_other(peer, era):
    one = peer(era)
    one.answers[ELICIT] = accept(name="Ada")
    for _ in range(3):
        assert one.text("asking__name") == "Hello, Ada!"
        one.result("tools/list")  # an odd number of requests: the next call begins at the other one


@pytest.mark.parametrize("era", ["old", "new"])
def test_several_rounds_of_questions(peer, era):
    one = peer(era)
    one.answers[ELICIT] = lambda params: {
        "action": "accept",
        "content": {"name": "Ada"} if "Who" in params["message"] else {"color": "blue"},
    }
    assert one.text("asking__one_by_one") == "Ada likes blue"
    assert one.text("asking__both") == "Ada likes blue"


def test_a_cancellation_reaches_the_one_that_runs_the_call(peer, tmp_path):
    for number in range(2):  # whoever has it
        one, path = peer("old"), tmp_path / f"{number}"
        for _ in range(number):
            one.send(PING)
        running = one.begin("tools/call", {"name": "working__hang", "arguments": {"path": str(path)}})
        until((tmp_path / f"{number}.began").exists)
        one.cancel(running)
        until((tmp_path / f"{number}.cancelled").exists)


def test_after_its_end_neither_knows_it(peer, pair):
    one = peer("old")
    assert [one.send(PING).status for _ in range(2)] == [200, 200]
    assert pair.send(None, [("Mcp-Session-Id", one.session)], method="DELETE").status == 204
    for _ in range(2):
        gone = one.send(PING)
        assert (gone.status, gone.message["error"]["data"]["reason"]) == (404, "no_such_session")


@pytest.fixture
def sides(peer, pair):
    """One client with a session, as each of the two replicas sees it."""
    one = peer("old")
    found = [HttpPeer(server, "old", begun=False) for server in pair.servers]
    for side in found:
        side.session, side.revision = one.session, one.revision
        assert side.result("ping") == {}  # both have it in memory
    return found


def test_what_a_client_sets_holds_everywhere(sides):
    for side, level in ((sides[0], "error"), (sides[1], "debug")):
        side.result("logging/setLevel", {"level": level})
        for heard in sides:
            heard.heard.clear()
            heard.call("working__tell", {"levels": ["info", "error"]})
            levels = [one["params"]["level"] for one in heard.heard if one["method"] == "notifications/message"]
            assert levels == (["error"] if level == "error" else ["info", "error"])


def test_subscriptions_hold_everywhere(sides, pair):
    def watched():
        with closing(sqlite3.connect(pair.servers[0].folder.parent / "home" / "state.db")) as file, file:
            ((body,),) = file.execute("SELECT body FROM mcp_sessions WHERE id = ?", (sides[0].session,)).fetchall()
        return json.loads(body).get("watched", [])

    sides[0].result("resources/subscribe", {"uri": "shelf://note"})
    sides[1].result("resources/subscribe", {"uri": "ot://tools"})
    assert watched() == ["ot://tools", "shelf://note"]
    sides[1].result("resources/unsubscribe", {"uri": "shelf://note"})
    assert watched() == ["ot://tools"]


def test_the_stream_of_a_request_is_only_at_its_owner(peer, pair, tmp_path):
    one = peer("old")
    path = tmp_path / "it"
    arguments = {"name": "working__wait_for", "arguments": {"path": str(path)}}
    running = one.begin("tools/call", arguments, meta={"progressToken": 1})
    one.hear("notifications/progress")
    last = running.exchange.events[-1]["id"]
    assert re.fullmatch(r"[0-9a-f]{8}\.\d+-\d+", last)
    running.exchange.hang_up()
    listening = [one.listen(last) for _ in range(2)]  # one comes to each
    path.touch()
    until(lambda: any(message.get("id") == running.id for one in listening for message in one.exchange.messages))
    assert sorted(one.exchange.status for one in listening) == [200, 404]


def test_two_streams_of_notifications(peer, pair):
    """Each replica serves the stream; its events say whose they are."""
    one = peer("old")
    streams = [one.listen(), one.listen()]
    assert all(stream.exchange.status == 200 for stream in streams)
    for stream in streams:
        stream.exchange.hang_up()


def test_a_session_of_somebody_else_is_not_found(pair):
    strange = HttpPeer(pair, "old", begun=False)
    strange.session = "0" * 32
    for _ in range(2):
        assert strange.send(PING).status == 404


def test_ready(pair):
    for server in pair.servers:
        found = server.send(None, path="/readyz", method="GET")
        assert (found.status, found.message["status"]) == (200, "ready")


def rows(pair, sql, *params):
    with closing(sqlite3.connect(pair.servers[0].folder.parent / "home" / "state.db", timeout=10)) as file, file:
        return file.execute(sql, params).fetchall()


def test_half_of_a_surrogate_pair_harms_nobody(sides, pair):
    ids = [id for (id,) in rows(pair, "SELECT id FROM replicas")]
    sent = [{"jsonrpc": "2.0", "id": "\ud800-1", "result": {}}]
    sent += [{"jsonrpc": "2.0", "id": f"{id}-1", "result": {"x": "\ud800"}} for id in ids]
    sent += [{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "\ud800"}}]
    assert [side.send(one).status for side in sides for one in sent] == [202] * 8


@pytest.mark.parametrize("body", ["[]", "{bad", '{"revision":"2025-06-18","menu":"../x"}'])
def test_a_row_that_cannot_be_read_is_no_session(pair, peer, body):
    one, id = peer("old"), token_hex(16)
    sql = "INSERT INTO mcp_sessions SELECT ?, owner, ?, 7, created_at, used_at FROM mcp_sessions WHERE id = ?"
    rows(pair, sql, id, body, one.session)
    one.session = id
    for _ in range(2):
        found = one.send({**PING, "method": "tools/list"})
        assert (found.status, "result" in found.message) == ((200, True) if "menu" in body else (404, False))
