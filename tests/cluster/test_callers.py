"""Who calls, over two replicas: owners, roles, rates, and questions of POST /ask that are decided at the other one."""

import json
from contextlib import ExitStack

import pytest
from ask.stand_in import Says, StandIn, Wants
from cluster.conftest import shared_file
from cluster.members import Balancer, Member
from helpers import until
from interfaces.http.lasting import LastingRequest
from interfaces.http.matrix import token_entry, token_of
from interfaces.mcp.peers import HttpPeer
from interfaces.mcp.servers import CONFIG

RATE = 30
ELICIT = "elicitation/create"
PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}


@pytest.fixture(scope="module")
def model():
    with StandIn() as running:
        yield running


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, model):
    folder = tmp_path_factory.mktemp("guarded")
    tokens = [token_entry("ada"), token_entry("bob"), token_entry("eve", rate=f"{RATE}/min")]
    config = {
        "packs": [str(CONFIG.parent / "packs")],
        "http": {"tokens": tokens},
        "ask": {"provider": "openai", "model": "stand-in", "base_url": model.urls["openai"]},
    }
    (folder / "onetool.yaml").write_text(json.dumps(config))
    file = shared_file(folder)
    with ExitStack() as ends:
        pair = []
        for name in "ab":
            env = {"OPENAI_API_KEY": "sk-stand-in-0123456789"}
            pair.append(Member(folder / name, file, config=folder / "onetool.yaml", **env))
            ends.callback(pair[-1].stop)
        yield Balancer(*pair)
    for one in pair:
        assert "Traceback" not in one.log()


def test_a_session_is_its_owners_everywhere(guarded):
    ada = HttpPeer(guarded, "old", token=token_of("ada"))
    assert [ada.send(PING).status for _ in range(4)] == [200] * 4
    for who in ("bob", None):
        strange = HttpPeer(guarded, "old", token=who and token_of(who), begun=False)
        strange.session = ada.session
        assert {strange.send(PING).status for _ in range(2)} == {404 if who else 401}


def test_a_call_that_waits_is_its_owners_everywhere(guarded):
    ada, bob = (HttpPeer(guarded, "new", token=token_of(who)) for who in ("ada", "bob"))
    asked = {"name": "asking__name", "arguments": {}}
    state = ada.result("tools/call", asked)["requestState"]
    again = {**asked, "requestState": state, "inputResponses": {"name": {"action": "accept", "content": {"name": "A"}}}}
    for _ in range(2):
        assert "requestState has expired" in bob.error("tools/call", again)["message"]
    guarded.skip()
    assert ada.result("tools/call", again)["content"][0]["text"] == "Hello, A!"
    for _ in range(2):  # sent again, it has the same outcome, wherever it comes to
        assert ada.result("tools/call", again)["content"][0]["text"] == "Hello, A!"
    again["inputResponses"] = {"name": {"action": "decline"}}
    for _ in range(2):
        assert "expired" in ada.error("tools/call", again)["message"]


def test_what_was_sent_on_counts_once(guarded):
    """Requests come to the second one, which counts them and sends them on. Both count together."""
    first, second = guarded.servers
    eve = HttpPeer(first, "new", token=token_of("eve"))
    state = eve.result("tools/call", {"name": "asking__name", "arguments": {}})["requestState"]
    eve.server = second
    again = {"name": "asking__name", "arguments": {}, "requestState": state, "inputResponses": {}}
    answered = 1
    while (reply := eve.ask("tools/call", again)) is not None:  # None: 429, whose body has no id
        answered += 1
        again["requestState"] = reply["result"]["requestState"]
    assert answered == RATE
    eve.server = first
    assert eve.ask("tools/list") is None


@pytest.fixture
def question(guarded, model):
    """A question of Ada's at the first replica, and the call that waits for her answer."""
    model.will(Says(calls=[Wants("working__add", {"a": 1})]), "Done.")
    asking = LastingRequest(guarded.servers[0], token_of("ada"), "POST", "/ask", {"prompt": "Add.", "approve": "ask"})
    waits = until(lambda: next((one for one in asking.exchange.messages if one["type"] == "approval"), None))
    yield asking, waits
    until(lambda: asking.is_over)


def send(server, who, method, path, body=None):
    head = [("Authorization", f"Bearer {token_of(who)}"), ("Content-Type", "application/json")]
    return server.send(body, head, path=path, method=method)


def test_a_call_is_approved_at_the_other_one(guarded, question):
    asking, waits = question
    other, path = guarded.servers[1], f"/ask/{waits['question']}/approvals/{waits['call']}"
    assert len(waits["question"]) == 40
    assert send(other, "bob", "POST", path, {"approve": True}).status == 404
    assert send(other, "ada", "POST", path, {"approve": "maybe"}).status == 400
    assert send(other, "ada", "POST", path, {"approve": True}).status == 204
    until(lambda: asking.is_over)
    assert asking.exchange.messages[-1]["answer"]["denied"] == []
    for server in guarded.servers:
        assert waits["question"] not in server.log()
        assert waits["question"][32:] not in server.log()


def test_a_question_is_cancelled_at_the_other_one(guarded, question):
    asking, waits = question
    assert send(guarded.servers[1], "bob", "DELETE", f"/ask/{waits['question']}").status == 404
    assert send(guarded.servers[1], "ada", "DELETE", f"/ask/{waits['question']}").status == 204
    until(lambda: asking.is_over)
    assert asking.exchange.messages[-1]["reason"] == "interrupted"


def test_a_question_of_a_replica_that_is_gone(guarded):
    for server in guarded.servers:
        gone = send(server, "ada", "DELETE", f"/ask/{'0' * 40}")
        assert (gone.status, json.loads(gone.body)["code"]) == (502, "process_gone")
        assert send(server, "ada", "DELETE", f"/ask/{'0' * 32}").status == 404
