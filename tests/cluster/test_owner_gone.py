"""The replica that has something is killed: the other one says so at once, and goes on with what rows tell."""

import sqlite3
from contextlib import closing
from threading import Event

import pytest
from cluster.test_tasks import KNOWS, begin, settled
from helpers import until
from interfaces.mcp.peers import HttpPeer

SILENT = "The process that has this call does not answer. Send the same request again"
PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}


@pytest.fixture
def owner(own_pair):
    """Which one is killed."""
    return own_pair.servers[0]


@pytest.fixture
def other(own_pair, owner):
    return next(one for one in own_pair.servers if one is not owner)


def test_everything_that_was_alive_in_it(owner, other, tmp_path):
    calls = HttpPeer(owner, "new", capabilities=KNOWS)
    asked = {"name": "asking__name", "arguments": {}}
    state = calls.result("tools/call", asked)["requestState"]
    under_way, done = begin(calls, "job", path=str(tmp_path / "never")), begin(calls, "job", path=str(tmp_path / "it"))
    (tmp_path / "it").touch()
    result = settled(calls, done, "completed")["result"]
    until(lambda: settled(HttpPeer(other, "new", capabilities=KNOWS), done, "completed"))
    old = HttpPeer(owner, "old")
    news = old.listen()
    waiting = {"name": "working__wait_for", "arguments": {"path": str(tmp_path / "nothing")}}
    running = old.begin("tools/call", waiting, meta={"progressToken": 1})
    old.hear("notifications/progress")
    last = running.exchange.events[-1]["id"]
    old.answers["elicitation/create"] = lambda params: Event().wait(60)
    old.begin("tools/call", asked)
    until(lambda: old.asked)

    owner.kill()

    calls.server = old.server = other
    again = {**asked, "inputResponses": {}, "requestState": state}
    until(lambda: SILENT in calls.ask("tools/call", again)["error"]["message"])  # it may come back
    assert calls.result("tasks/get", under_way)["status"] == "working"
    assert calls.result("tasks/get", done)["result"] == result
    strange = HttpPeer(other, "new", capabilities=KNOWS)
    assert strange.result("tools/list")["tools"]

    assert old.send(PING).message["result"] == {}  # the session lives on
    replica = last.partition(".")[0]
    headers = [("Accept", "text/event-stream"), ("Mcp-Session-Id", old.session)]
    assert other.send(None, [*headers, ("Last-Event-ID", last)], method="GET").status == 404
    until(lambda: news.is_answered)
    old.heard.clear()
    resumed = old.listen(f"{replica}.0-0")  # notifications go on elsewhere, and nothing is missed
    assert resumed.exchange.status == 200
    for kind in ("tools", "prompts", "resources"):
        old.hear(f"notifications/{kind}/list_changed")
    resumed.exchange.hang_up()

    _counts_as_ended(owner, replica)
    lost = calls.result("tasks/get", under_way)
    assert (lost["status"], lost["error"]["message"]) == (
        "failed",
        "the replica that ran this task is gone; the outcome of the task is unknown",
    )
    for method, params in (("tools/call", again), ("tasks/cancel", under_way)):
        gone = calls.send(calls.message(method, params))
        assert gone.status == 502
        assert "is gone; it is unknown whether the call had an effect" in gone.message["error"]["message"]


def _counts_as_ended(owner, replica):
    """As after half a minute."""
    with closing(sqlite3.connect(owner.folder.parent / "home" / "state.db", timeout=10)) as file, file:
        file.execute("UPDATE replicas SET seen_at = seen_at - 30 WHERE id = ?", (replica,))
