"""One replica runs a stdio server for all: the same process answers, whoever is asked; it asks back; it moves."""

import json
import os
import signal
from contextlib import ExitStack

import pytest
from cluster.conftest import shared_file
from cluster.members import Member
from helpers import until
from interfaces.mcp.peers import HttpPeer
from sources.mcp_servers.harness import Harness, is_gone

from onetool.cluster.leases import forget_replica
from onetool.database.sqlite import SqliteDatabase


def block_of(pair, **settings):
    """The config with two stdio servers, of which one is in every replica."""
    harness = Harness(pair)
    servers = {"ok": harness.nasty("ok"), "many": harness.nasty("ok", replicate=True, env={"PIDS": str(pair / "many")})}
    return harness, harness.config(servers, menu="direct", **settings)


class Pair:
    """Two replicas with one config, and a client of each."""

    def __init__(self, folder, ends):
        self.harness, config = block_of(folder)
        file = shared_file(folder)
        self.members = []
        for name in ("a", "b"):
            member = Member(
                folder / name,
                file,
                address=f"unix:{folder}/{name}.sock",
                config=config,
                ONETOOL_HOME=str(folder / "home"),
            )
            ends.callback(member.stop)
            self.members.append(member)
            until(lambda: "ok__echo" in self.peer(len(self.members) - 1).tools())
        self.database = SqliteDatabase(file)
        ends.callback(self.database.close)

    def peer(self, number, **options):
        return Client(self.members[number], "old", **options)

    def holder(self):
        """The number of the member that runs the server."""
        rows = self.database.read(
            lambda work: work.execute(
                "SELECT address FROM replicas, leases WHERE id = replica AND name LIKE 'server:ok@%'"
            )
        )
        return "ab".index(rows[0][0][-6]) if rows else None


class Client(HttpPeer):
    def tools(self):
        return [one["name"] for one in self.result("tools/list")["tools"]]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    with ExitStack() as ends:
        yield Pair(tmp_path_factory.mktemp("shared"), ends)


def test_one_process_answers_whoever_is_asked(pair):
    own, other = (pair.peer(number).text("ok__pid") for number in (0, 1))
    assert own == other
    assert pair.harness.started() == [int(own)]


def test_a_server_that_is_replicated_runs_in_every_replica(pair):
    assert pair.peer(0).text("many__pid") != pair.peer(1).text("many__pid")


@pytest.mark.parametrize("number", [0, 1])
def test_values_are_the_same_through_the_other_one(pair, number):
    peer = pair.peer(number)
    assert peer.call("ok__structured", {"city": "Rome"})["structuredContent"] == {"c": 21, "city": "Rome"}
    assert [one["type"] for one in peer.call("ok__picture")["content"]] == ["image"]
    assert [one["type"] for one in peer.call("ok__mixed")["content"]] == ["text", "image", "text"]
    assert "because" in peer.failure("ok__fails", {"why": "because"})
    refused = peer.error("tools/call", {"name": "ok__refuses", "arguments": {"why": "not so"}})
    assert refused == {"code": -32602, "message": "not so"}


@pytest.mark.parametrize("number", [0, 1])
def test_progress_and_messages_arrive(pair, number):
    peer = pair.peer(number)
    answer = peer.call("ok__slow", {"seconds": 0.1}, meta={"progressToken": "p"})
    assert answer["content"][0]["text"] == "done"
    assert [one["progress"] for one in heard(peer, "notifications/progress")] == list(range(1, 11))
    peer.call("ok__logs", {"words": "watch out"})
    assert peer.hear("notifications/message")["data"] == "watch out"


@pytest.mark.parametrize("number", [0, 1])
def test_questions_arrive_and_are_answered(pair, number):
    peer = pair.peer(number)
    peer.answers["elicitation/create"] = lambda params: {"action": "accept", "content": {"name": params["message"]}}
    peer.answers["sampling/createMessage"] = lambda _: {
        "role": "assistant",
        "content": {"type": "text", "text": "hello"},
        "model": "m",
    }
    assert json.loads(peer.text("ok__asks"))["result"]["content"] == {"name": "ok asks: Who?"}
    assert json.loads(peer.text("ok__samples"))["result"]["content"]["text"] == "hello"
    peer.answers["elicitation/create"] = lambda _: {"action": "decline"}
    assert json.loads(peer.text("ok__asks"))["result"]["action"] == "decline"
    unable = pair.peer(number, capabilities={})
    assert "elicitation" in json.loads(unable.text("ok__asks"))["error"]["message"]


@pytest.mark.parametrize("number", [0, 1])
def test_a_cancel_arrives(pair, number):
    peer = pair.peer(number)
    seconds = 5 + number
    pending = peer.begin(
        "tools/call", {"name": "ok__slow", "arguments": {"seconds": seconds}, "_meta": {"progressToken": 1}}
    )
    peer.hear("notifications/progress")
    peer.cancel(pending)
    until(lambda: seconds in json.loads(pair.peer(0).text("ok__cancelled")))


def test_a_change_of_its_tools_reaches_the_other_one(pair):
    pair.peer(0).call("ok__grow")
    until(lambda: all("ok__grown" in pair.peer(number).tools() for number in (0, 1)))
    assert {pair.peer(number).text("ok__grown") for number in (0, 1)} == {"grown"}


def test_the_state_is_told_by_the_other_one(pair):
    def states():
        found = [one for member in pair.members for one in servers_of(member) if one["name"] == "ok"]
        return {(one["state"], one.get("runsIn")) for one in found}

    until(lambda: states() == {("connected", told_holder(pair))})


@pytest.mark.long
def test_when_its_owner_is_killed_the_call_says_so_and_the_next_one_works(tmp_path):
    with ExitStack() as ends:
        pair = Pair(tmp_path, ends)
        owner = until(lambda: pair.holder() is not None) and pair.holder()
        peer = pair.peer(1 - owner)
        before = int(peer.text("ok__pid"))
        call = {"name": "ok__slow", "arguments": {"seconds": 5}, "_meta": {"progressToken": 1}}
        pending = peer.begin("tools/call", call)
        peer.hear("notifications/progress")
        os.kill(pair.members[owner].process.pid, signal.SIGKILL)
        assert "is gone; try again" in pending.answer()["result"]["content"][0]["text"]
        forget_replica(pair.database, pair.members[owner].address)  # else the others find out after some seconds
        after = int(peer.text("ok__pid"))  # it waits until there is another owner
        assert after != before
        assert is_gone(before)


@pytest.mark.long
def test_when_its_owner_is_killed_and_nobody_tells_the_next_call_works(tmp_path):
    with ExitStack() as ends:
        pair = Pair(tmp_path, ends)
        owner = until(lambda: pair.holder() is not None) and pair.holder()
        peer = pair.peer(1 - owner)
        before = int(peer.text("ok__pid"))
        pair.members[owner].kill()
        assert int(peer.text("ok__pid")) != before


@pytest.mark.long
def test_an_owner_that_stops_hands_it_over(tmp_path):
    with ExitStack() as ends:
        pair = Pair(tmp_path, ends)
        owner = until(lambda: pair.holder() is not None) and pair.holder()
        peer = pair.peer(1 - owner)
        before = int(peer.text("ok__pid"))
        pair.members[owner].stop()
        assert is_gone(before)
        assert int(peer.text("ok__pid")) != before
        until(lambda: "ok runs in this process from now on" in pair.members[1 - owner].log())
        assert "many runs in" not in pair.members[1 - owner].log()
        assert "from now on" not in pair.members[owner].log()  # it was the first to run it


def heard(peer, method):
    return [one["params"] for one in peer.heard if one["method"] == method]


def servers_of(member):
    return json.loads(member.send(None, [], path="/servers", method="GET").body)["servers"]


def told_holder(pair):
    sql = "SELECT replica FROM leases WHERE name LIKE 'server:ok@%'"
    return pair.database.read(lambda work: work.execute(sql))[0][0]
