"""Tools that ask whoever called them: the person, the model, or where the client works.

In the old era a question is a request of the server's; in the new one it is the answer to the client's request, which
then comes again with what was wanted.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from helpers import until
from interfaces.mcp.peers import HttpPeer
from interfaces.mcp.servers import CONFIG

ELICIT, SAMPLE, ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def accept(**content):
    return lambda params: {"action": "accept", "content": content}


def slowly(seconds, **content):
    def answer(params):
        time.sleep(seconds)
        return {"action": "accept", "content": content}

    return answer


# To the person


def test_the_person_is_asked_with_a_form(peer):
    peer.answers[ELICIT] = accept(name="Ada")
    assert peer.text("asking__name") == "Hello, Ada!"
    (asked,) = peer.asked
    assert asked["params"] == {"message": "Who are you?", "requestedSchema": NAME}


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_the_person_may_say_no(peer, action):
    peer.answers[ELICIT] = lambda params: {"action": action}
    said = {"decline": "declined", "cancel": "cancelled"}[action]
    assert peer.failure("asking__name") == f"Error: the person {said}"
    assert peer.text("asking__forgiving") == f"never mind ({action})"


def test_two_questions_at_once(peer):
    peer.answers[ELICIT] = lambda params: {
        "action": "accept",
        "content": {"name": "Ada"} if "Who" in params["message"] else {"color": "blue"},
    }
    assert peer.text("asking__both") == "Ada likes blue"
    assert len(peer.asked) == 2


def test_one_question_after_the_other(peer):
    peer.answers[ELICIT] = lambda params: {
        "action": "accept",
        "content": {"name": "Ada"} if "Who" in params["message"] else {"color": "blue"},
    }
    assert peer.text("asking__one_by_one") == "Ada likes blue"
    assert [asked["params"]["message"] for asked in peer.asked] == ["Who are you?", "Which color, Ada?"]


def test_what_was_done_before_the_question_is_done_once(peer, tmp_path):
    peer.answers[ELICIT] = accept(ok=True)
    assert peer.text("asking__once", {"path": str(tmp_path / "marks")}) == "went on: True"
    assert (tmp_path / "marks").read_text() == "before\nafter\n"


def test_two_questions_at_once_need_names_of_their_own(shared_peers):
    """In the new era the names are on the wire. Before, each question has an id."""
    for way in ("stdio-new", "http-new"):
        peer = shared_peers(way)
        peer.answers[ELICIT] = accept(name="Ada")
        assert "have the key 'same': use a different key for each" in peer.failure("asking__alike")


# To the model, and where the client works


def test_the_model_is_asked(peer):
    said = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Paris"}}
    peer.answers[SAMPLE] = lambda params: said
    assert peer.text("asking__model", {"prompt": "Capital of France?"}) == "It says: Paris"
    (asked,) = peer.asked
    assert asked["params"] == {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Capital of France?"}}],
        "maxTokens": 7,
        "systemPrompt": "Be brief.",
    }


def test_the_model_may_say_several_things_but_some_of_them_in_words(peer):
    picture = {"type": "image", "data": "", "mimeType": "image/png"}
    blocks = [{"type": "text", "text": "one"}, picture, {"type": "text", "text": "two"}]
    peer.answers[SAMPLE] = lambda params: {"role": "assistant", "model": "m", "content": blocks}
    assert peer.text("asking__model", {"prompt": "?"}) == "It says: one\ntwo"
    peer.answers[SAMPLE] = lambda params: {"role": "assistant", "model": "m", "content": picture}
    assert "answered with image; expected text" in peer.failure("asking__model", {"prompt": "?"})


def test_the_client_tells_where_it_works(peer):
    peer.answers[ROOTS] = lambda params: {"roots": [{"uri": "file:///a", "name": "A"}, {"uri": "file:///b"}]}
    assert peer.text("asking__folders") == "file:///a file:///b"
    peer.answers[ROOTS] = lambda params: {"roots": []}
    assert peer.text("asking__folders") == ""


# To those who can't answer


@pytest.mark.parametrize(
    ("tool", "arguments", "capability"),
    [("name", {}, "elicitation"), ("model", {"prompt": "?"}, "sampling"), ("folders", {}, "roots")],
)
def test_in_the_new_era_the_error_names_what_is_lacking(shared_peers, tool, arguments, capability):
    others = {one: {} for one in ("elicitation", "sampling", "roots") if one != capability}
    for way in ("stdio-new", "http-new"):
        peer = shared_peers(way)
        for able in ({}, others):
            call = {"name": f"asking__{tool}", "arguments": arguments}
            pending = peer.begin("tools/call", call, capabilities=able)
            refused = pending.answer()["error"]
            assert refused["code"] == -32021
            assert refused["data"] == {"requiredCapabilities": {capability: {}}}
            assert refused["message"].startswith(f"asking.{tool} needs to ask ")
            if pending.exchange:
                assert pending.exchange.status == 400


def test_in_the_old_era_the_tool_fails_with_words(http_peer, stdio_peer):
    for peer in (http_peer("old", capabilities={}), stdio_peer("old", "--menu", "direct", capabilities={})):
        words = peer.failure("asking__name")
        assert words.startswith("Error: asking.name needs to ask a person, which can't be done through this client")
        assert peer.asked == []


def test_a_tool_can_find_out_first(shared_peers, http_peer):
    nothing = dict.fromkeys(("elicitation", "sampling", "roots", "io.modelcontextprotocol/tasks"), False)
    for able, expected in (
        ({}, nothing),
        ({"sampling": {}}, {**nothing, "sampling": True}),
        ({"elicitation": {"form": {}}}, {**nothing, "elicitation": True}),
        ({"elicitation": {"url": {}}}, nothing),  # a page is not a form
        ({"elicitation": {"url": {}, "form": {}}}, {**nothing, "elicitation": True}),
        ({"elicitation": None, "roots": True}, nothing),
    ):
        for way in ("stdio-new", "http-new"):
            assert shared_peers(way).call("asking__able", capabilities=able)["structuredContent"] == expected
        assert http_peer("old", capabilities=able).call("asking__able")["structuredContent"] == expected


# Answers that are none


@pytest.mark.parametrize("wrong", [{"age": "old"}, {"age": -1}, {}, {"years": 3}])
def test_in_the_new_era_an_answer_that_does_not_fit_is_asked_for_again(shared_peers, wrong):
    for way in ("stdio-new", "http-new"):
        peer = shared_peers(way)
        peer.forget()
        answers = iter([wrong, wrong, {"age": 7}])
        peer.answers[ELICIT] = lambda params, answers=answers: {"action": "accept", "content": next(answers)}
        assert peer.text("asking__age") == "8"
        assert len(peer.asked) == 3
        assert peer.asked[0] == peer.asked[2]


@pytest.mark.parametrize("wrong", [{"action": "maybe"}, {"action": "accept"}, {"action": "accept", "content": [1]}, []])
def test_in_the_new_era_what_is_no_answer_at_all_is_asked_for_again(shared_peers, wrong):
    peer = shared_peers("http-new")
    peer.forget()
    answers = iter([wrong, {"action": "accept", "content": {"age": 7}}])
    peer.answers[ELICIT] = lambda params: next(answers)
    assert peer.text("asking__age") == "8"


def test_in_the_old_era_the_tool_fails_with_what_is_wrong(shared_peers):
    for way in ("stdio-old", "http-old"):
        peer = shared_peers(way)
        peer.answers[ELICIT] = accept(age="old")
        assert "the client's answer can't be used: age: expected a whole number" in peer.failure("asking__age")
        peer.answers[ELICIT] = lambda params: {"error": {"code": -1, "message": "no idea"}}
        assert peer.failure("asking__age") == "Error: the client could not answer: no idea"
        peer.answers[ROOTS] = lambda params: {"roots": "none"}
        assert "can't be used: expected roots" in peer.failure("asking__folders")


def test_a_response_to_nothing_is_ignored(shared_peers):
    for way in ("stdio-old", "http-old", "stdio-new"):
        peer = shared_peers(way)
        for id in (99999, "x", None):
            message = {"jsonrpc": "2.0", "id": id, "error": {"code": -1, "message": "?"}}
            peer.tell(message)
        peer.tell({"jsonrpc": "2.0", "id": 99999, "result": {}})
        assert peer.text("plus", {"a": 1}) == "1"


# Time


def test_the_time_that_an_answer_takes_is_not_the_tools(peer):
    """The tool has half a second, of which it uses a part after the answer."""
    peer.answers[ELICIT] = slowly(0.6, name="Ada")
    assert peer.text("asking__hurried") == "Hello, Ada!"


@pytest.mark.parametrize("era", ["old", "new"])
def test_nor_is_it_that_of_code(era, stdio_peer, serve, tmp_path):
    config = tmp_path / "onetool.yaml"
    text = CONFIG.read_text().replace("timeout_s: 5", "timeout_s: 2").replace("[packs]", f"[{CONFIG.parent / 'packs'}]")
    config.write_text(text)

    def work(peer):
        peer.answers[ELICIT] = slowly(2.2, name="Ada")
        code = "before = working.add(a=1)\nanswer = asking.hurried()\n[before, answer]"
        endless = peer.begin("tools/call", {"name": "run", "arguments": {"code": "while True: pass"}})
        assert peer.text("run", {"code": code}) == '[1, "Hello, Ada!"]'
        assert "2 s" in endless.answer()["result"]["content"][0]["text"]  # time that nobody is asked in does end

    with ThreadPoolExecutor() as threads:
        list(threads.map(work, (stdio_peer(era, config=config), HttpPeer(serve(config=config), era))))


# From other places


def test_code_may_call_tools_that_ask(runner, tmp_path):
    marks = tmp_path / "marks"
    runner.answers[ELICIT] = lambda params: {
        "action": "accept",
        "content": {"ok": True} if "Go" in params["message"] else {"name": "Ada", "color": "blue", "age": 1},
    }
    code = f"asking.once(path={str(marks)!r})\n[asking.name(), asking.one_by_one(), asking.age()]"
    assert runner.text("run", {"code": code}) == '["Hello, Ada!", Ada likes blue, 2]'
    assert marks.read_text() == "before\nafter\n"
    together = "import asyncio\nawait asyncio.gather(asking.name(), asking.age())"
    assert runner.text("run", {"code": together}) == '["Hello, Ada!", 2]'
    runner.answers[ELICIT] = lambda params: {"action": "decline"}
    code = "try:\n    asking.name()\nexcept Exception as e:\n    print('so be it:', e)"
    assert "so be it:" in runner.text("run", {"code": code})


def test_prompts_and_resources_may_ask(peer):
    peer.answers[ELICIT] = accept(name="Ada")
    got = peer.finished("prompts/get", {"name": "for_whom"})
    assert got["messages"][0]["content"]["text"] == "Write to Ada."
    got = peer.finished("resources/read", {"uri": "shelf://owner"})
    assert got["contents"][0]["text"] == "Ada"
    peer.answers[ELICIT] = lambda params: {"action": "decline"}
    call = {"name": "for_whom"}
    with pytest.raises(AssertionError, match="the person declined"):
        peer.finished("prompts/get", call)


def test_prompts_and_resources_that_can_not_ask_say_what_is_lacking(shared_peers, http_peer):
    for way in ("stdio-new", "http-new"):
        for method, params in (("prompts/get", {"name": "for_whom"}), ("resources/read", {"uri": "shelf://owner"})):
            refused = shared_peers(way).error(method, params, capabilities={})
            assert (refused["code"], refused["data"]) == (-32021, {"requiredCapabilities": {"elicitation": {}}})
    peer = http_peer("old", capabilities={})
    assert peer.error("prompts/get", {"name": "for_whom"})["code"] == -32603


# Calling it off


def test_a_question_whose_call_is_called_off_is_taken_back(shared_peers, http_peer):
    """Over HTTP on the stream that belongs to no request: the one of the request has ended."""
    session = http_peer("old")
    session.listen()
    for peer in (shared_peers("stdio-old"), session):
        peer.forget()
        taken_back = Event()
        peer.answers[ELICIT] = lambda params, late=taken_back: late.wait(5) and {"action": "cancel"}
        pending = peer.begin("tools/call", {"name": "asking__name"})
        (asked,) = until(lambda peer=peer: peer.asked)
        peer.cancel(pending)
        assert peer.hear("notifications/cancelled", 5)["requestId"] == asked["id"]
        taken_back.set()
        assert peer.result("ping") == {}
