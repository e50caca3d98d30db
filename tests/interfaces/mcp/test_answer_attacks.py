"""Answers of a hostile or broken client to a question that a tool asks a person: none of them is a yes."""

import pytest
from helpers import until
from interfaces.mcp.test_request_state import asked

ELICIT = "elicitation/create"
YES = {"action": "accept", "content": {"ok": True}}
ANSWERS = {
    "nothing": {},
    "no action": {"content": {"ok": True}},
    "action in capitals": {"action": "ACCEPT", "content": {"ok": True}},
    "action with a space": {"action": "accept ", "content": {"ok": True}},
    "action that looks like it": {"action": "\u0430ccept", "content": {"ok": True}},
    "list of actions": {"action": ["accept"], "content": {"ok": True}},
    "action true": {"action": True, "content": {"ok": True}},
    "null": {"action": None, "content": {"ok": True}},
    "another word": {"action": "approve", "content": {"ok": True}},
    "declined with a yes": {"action": "decline", "content": {"ok": True}},
    "cancelled with a yes": {"action": "cancel", "content": {"ok": True}},
    "no content": {"action": "accept"},
    "empty content": {"action": "accept", "content": {}},
    "null content": {"action": "accept", "content": None},
    "content as text": {"action": "accept", "content": '{"ok": true}'},
    "content as list": {"action": "accept", "content": [{"ok": True}]},
    "text": {"action": "accept", "content": {"ok": "true"}},
    "number": {"action": "accept", "content": {"ok": 1}},
    "nested": {"action": "accept", "content": {"ok": {"ok": True}}},
    "null field": {"action": "accept", "content": {"ok": None}},
    "other field": {"action": "accept", "content": {"Ok": True}},
    "field that looks like it": {"action": "accept", "content": {"\u043ek": True}},
    "yes beside it": {"action": "accept", "ok": True},
}


def marks(file):
    return file.read_text() if file.exists() else ""


@pytest.mark.attack("approvals", 2 * len(ANSWERS))
@pytest.mark.parametrize("way", ["stdio-old", "http-old"])
def test_no_answer_but_a_yes_lets_a_call_go_on(shared_peers, tmp_path, way):
    peer, through = shared_peers(way), {}
    for name, answer in ANSWERS.items():
        file = tmp_path / name
        peer.answers[ELICIT] = lambda params, answer=answer: answer
        peer.failure("asking__once", {"path": str(file)})
        if marks(file) != "before\n":
            through[name] = marks(file)
    assert through == {}
    peer.answers[ELICIT] = lambda params: YES
    assert peer.text("asking__once", {"path": str(tmp_path / "last")}) == "went on: True"


@pytest.mark.attack("approvals", 2 * len(ANSWERS))
@pytest.mark.parametrize("way", ["stdio-new", "http-new"])
def test_no_answer_but_a_yes_goes_with_a_request(shared_peers, tmp_path, way):
    peer, through = shared_peers(way), {}
    for name, answer in ANSWERS.items():
        file = tmp_path / name
        call, state = asked(peer, "once", {"path": str(file)})
        done = peer.ask("tools/call", {**call, "inputResponses": {"ok": answer}, "requestState": state})
        if marks(file) != "before\n":
            through[name] = done
    assert through == {}


@pytest.mark.attack("approvals", 6)
def test_nobody_else_answers_a_question(http_peer, tmp_path):
    """Another session sends yes to every id that the question could have, and to those of its own."""
    victim, enemy, file = http_peer("old"), http_peer("old"), tmp_path / "marks"
    victim.answers[ELICIT] = lambda params: None  # the person is still thinking
    pending = victim.begin("tools/call", {"name": "asking__once", "arguments": {"path": str(file)}})
    until(lambda: victim.asked)
    id = victim.asked[0]["id"]
    for guess in (id, str(id), pending.id, 0, 1, "x"):
        enemy.tell({"jsonrpc": "2.0", "id": guess, "result": YES})
    assert marks(file) == "before\n"
    assert not pending.is_answered
    victim.tell({"jsonrpc": "2.0", "id": id, "result": {"action": "decline"}})
    assert "declined" in pending.answer()["result"]["content"][0]["text"]
    victim.tell({"jsonrpc": "2.0", "id": id, "result": YES})  # and not afterwards
    assert marks(file) == "before\n"
