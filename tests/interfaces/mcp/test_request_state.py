"""What a client of the new era holds while its call waits for an answer: good once, for this call, as it was given."""

import pytest
from helpers import until
from interfaces.mcp.peers import HttpPeer
from interfaces.mcp.servers import CONFIG

ADA = {"name": {"action": "accept", "content": {"name": "Ada"}}}
BLUE = {"color": {"action": "accept", "content": {"color": "blue"}}}
NOT_OURS = "Invalid requestState: send it back unchanged"
EXPIRED = "requestState has expired: send the request again without it"
USED = "requestState was used already: it is valid for one answer"
ANOTHERS = "requestState belongs to another request: send the same params with it"


@pytest.fixture(params=["stdio-new", "http-new"])
def newcomer(request, shared_peers):
    found = shared_peers(request.param)
    found.forget()
    return found


def asked(peer, tool="name", arguments=None, **more):
    """Call a tool that asks; the call, and what is held for it."""
    call = {"name": f"asking__{tool}", "arguments": arguments or {}}
    result = peer.result("tools/call", {**call, **more})
    assert result["resultType"] == "input_required", result
    return call, result["requestState"]


def refused(peer, params, method="tools/call"):
    error = peer.error(method, params)
    assert error["code"] == -32602
    return error["message"]


def said(result):
    assert result["resultType"] == "complete", result
    return result["content"][0]["text"]


def test_the_call_goes_on_with_it(newcomer):
    call, state = asked(newcomer)
    assert said(newcomer.result("tools/call", {**call, "inputResponses": ADA, "requestState": state})) == "Hello, Ada!"


def test_it_says_nothing_of_the_call(newcomer, tmp_path):
    _, one = asked(newcomer, "once", {"path": str(tmp_path / "secret")})
    _, other = asked(newcomer, "once", {"path": str(tmp_path / "secret")})
    assert one != other
    assert len(one) < 80
    assert one.replace("-", "").replace("_", "").isalnum()


def test_a_changed_one_is_refused_and_the_right_one_still_works(newcomer):
    call, state = asked(newcomer)
    changed = [f"{'A' if state[place] != 'A' else 'B'}".join((state[:place], state[place + 1 :])) for place in (0, 20)]
    changed += [state[:-1], f"{state}A", f"{state}=", f" {state}", "", "A", "é", "\ud800", state * 2, state.lower()]
    for wrong in [*changed, None, 7, [state], {"state": state}]:
        assert refused(newcomer, {**call, "inputResponses": ADA, "requestState": wrong}) == NOT_OURS
    assert said(newcomer.result("tools/call", {**call, "inputResponses": ADA, "requestState": state})) == "Hello, Ada!"


def test_it_is_good_for_one_answer(newcomer):
    call, first = asked(newcomer, "one_by_one")
    answered = {**call, "inputResponses": ADA, "requestState": first}
    second = newcomer.result("tools/call", answered)["requestState"]
    assert newcomer.result("tools/call", answered)["requestState"] == second  # the same answer has the same outcome
    assert refused(newcomer, {**answered, "inputResponses": BLUE}) == USED
    done = newcomer.result("tools/call", {**call, "inputResponses": BLUE, "requestState": second})
    assert said(done) == "Ada likes blue"
    for state, other in ((first, BLUE), (second, ADA)):
        assert refused(newcomer, {**call, "inputResponses": other, "requestState": state}) == EXPIRED
    again = newcomer.result("tools/call", {**call, "inputResponses": BLUE, "requestState": second})
    assert again["content"] == done["content"]


def test_it_belongs_to_its_call(newcomer, tmp_path):
    marks = tmp_path / "marks"
    ok = {"ok": {"action": "accept", "content": {"ok": True}}}
    call, state = asked(newcomer, "once", {"path": str(marks)})
    held = {"inputResponses": ok, "requestState": state}
    for other in (
        {"name": "asking__once", "arguments": {"path": str(tmp_path / "other")}},
        {"name": "asking__forgiving", "arguments": {"path": str(marks)}},
        {"name": "asking__once", "arguments": {"path": str(marks), "more": 1}},
    ):
        assert refused(newcomer, {**other, **held}) == ANOTHERS
    assert refused(newcomer, {"name": "for_whom", **held}, "prompts/get") == ANOTHERS
    assert marks.read_text() == "before\n"
    assert said(newcomer.result("tools/call", {**call, **held})) == "went on: True"
    assert marks.read_text() == "before\nafter\n"
    assert not (tmp_path / "other").exists()


def test_it_is_of_no_use_to_another_server(shared_peers):
    pipe, http = shared_peers("stdio-new"), shared_peers("http-new")
    call, state = asked(pipe)
    assert refused(http, {**call, "inputResponses": ADA, "requestState": state}) == NOT_OURS


def test_it_is_of_no_use_to_another_owner(serve, tmp_path):
    """Who has another token is another one, even where the server is the same."""
    config = tmp_path / "onetool.yaml"
    (tmp_path / "packs").symlink_to(CONFIG.parent / "packs")
    config.write_text("menu: direct\nhttp: {token: first-token-of-two}\n")
    server = serve(config=config)
    peer = HttpPeer(server, "new", token="first-token-of-two")
    call, state = asked(peer)
    config.write_text("menu: direct\nhttp: {token: other-token-of-two}\n")
    server.reload()
    other = HttpPeer(server, "new", token="other-token-of-two")
    until(lambda: other.send(other.message("tools/list")).status == 200)
    assert refused(other, {**call, "inputResponses": ADA, "requestState": state}) == EXPIRED


def test_without_an_answer_it_is_asked_again_under_a_new_one(newcomer):
    call, state = asked(newcomer)
    for answers in ({}, {"other": ADA["name"]}, {"name": {"action": "accept", "content": {"name": 7}}}):
        again = newcomer.result("tools/call", {**call, "inputResponses": answers, "requestState": state})
        assert list(again["inputRequests"]) == ["name"]
        assert again["requestState"] != state
        state = again["requestState"]
    again = newcomer.result("tools/call", {**call, "requestState": state})
    assert again["resultType"] == "input_required"
    last = {**call, "inputResponses": {**ADA, **BLUE}, "requestState": again["requestState"]}
    assert said(newcomer.result("tools/call", last)) == "Hello, Ada!"


def test_some_of_the_answers_are_kept_and_the_rest_is_asked_for(newcomer):
    call, state = asked(newcomer, "both")
    again = newcomer.result("tools/call", {**call, "inputResponses": BLUE, "requestState": state})
    assert list(again["inputRequests"]) == ["name"]
    last = {**call, "inputResponses": ADA, "requestState": again["requestState"]}
    assert said(newcomer.result("tools/call", last)) == "Ada likes blue"


def test_questions_at_once_are_asked_at_once(newcomer):
    result = newcomer.result("tools/call", {"name": "asking__both"})
    assert set(result["inputRequests"]) == {"name", "color"}
    assert {one["method"] for one in result["inputRequests"].values()} == {"elicitation/create"}


def test_a_client_that_knows_what_will_be_asked_may_say_it_at_once(newcomer):
    call = {"name": "asking__one_by_one", "inputResponses": {**ADA, **BLUE}}
    assert said(newcomer.result("tools/call", call)) == "Ada likes blue"
    result = newcomer.result("tools/call", {"name": "asking__one_by_one", "inputResponses": ADA})
    assert list(result["inputRequests"]) == ["color"]


def test_answers_that_are_no_object_are_refused(newcomer):
    for answers in ([], "Ada", 7):
        assert "params.inputResponses: expected an object" in refused(
            newcomer, {"name": "asking__name", "inputResponses": answers}
        )


def test_a_call_that_goes_on_may_not_begin_again_because_its_client_says_less_of_itself(newcomer, tmp_path):
    """What was done before the question would be done twice."""
    marks = tmp_path / "marks"
    ok = {"ok": {"action": "accept", "content": {"ok": True}}}
    call, state = asked(newcomer, "once", {"path": str(marks)})
    last = {**call, "inputResponses": ok, "requestState": state}
    for _ in range(2):  # the same answer has the same outcome
        assert said(newcomer.result("tools/call", last, capabilities={})) == "went on: True"
        assert marks.read_text() == "before\nafter\n"
    last["inputResponses"] = {"ok": {"action": "decline"}}
    assert newcomer.error("tools/call", last, capabilities={})["message"] == EXPIRED


def test_prompts_and_resources_hold_one_too(newcomer):
    for method, params in (("prompts/get", {"name": "for_whom"}), ("resources/read", {"uri": "shelf://owner"})):
        state = newcomer.result(method, params)["requestState"]
        assert refused(newcomer, {**params, "requestState": f"{state}x"}, method) == NOT_OURS
        done = newcomer.result(method, {**params, "inputResponses": ADA, "requestState": state})
        assert done["resultType"] == "complete"


def test_progress_of_each_round_comes_under_the_token_of_that_round(newcomer):
    call = {"name": "asking__one_by_one"}
    state = newcomer.result("tools/call", call, meta={"progressToken": "first"})["requestState"]
    assert newcomer.hear("notifications/progress") == {"progressToken": "first", "progress": 1}
    again = {**call, "inputResponses": ADA, "requestState": state}
    state = newcomer.result("tools/call", again, meta={"progressToken": "second"})["requestState"]
    assert newcomer.hear("notifications/progress") == {"progressToken": "second", "progress": 2}
    assert said(newcomer.result("tools/call", {**call, "inputResponses": BLUE, "requestState": state}))
    assert newcomer.heard == []


def test_calls_that_wait_for_an_answer_do_not_keep_a_server_from_ending(stdio_peer, serve):
    peer = stdio_peer("new", "--menu", "direct")
    for _ in range(5):
        asked(peer)
    assert peer.close() == 0
    server = serve("--menu", "direct")
    asked(HttpPeer(server, "new"))
    assert server.stop() == 0
    assert "Traceback" not in server.log()
