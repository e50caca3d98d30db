"""What a tool tells while it works: progress and messages, as far as the client wants to hear of them."""

import pytest
from helpers import until
from interfaces.mcp.peers import META

LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
PROGRESS, MESSAGE = "notifications/progress", "notifications/message"


def heard(peer, method):
    return [one["params"] for one in peer.heard if one["method"] == method]


def tell(peer, levels, level=None):
    """Which of these levels the client heard of, which wants them from one on."""
    peer.heard.clear()
    meta = None
    if peer.is_new:
        meta = {f"{META}logLevel": level} if level else None
    elif level:
        assert peer.result("logging/setLevel", {"level": level}) == {}
    assert peer.text("working__tell", {"levels": levels}, meta=meta) == "told"
    return [params["level"] for params in heard(peer, MESSAGE)]


# Progress


@pytest.mark.parametrize("token", ["p1", 7, 0])
def test_progress_comes_under_the_token_of_the_request(peer, token):
    assert peer.text("working__advance", {"steps": [1, 2.5, 10]}, meta={"progressToken": token}) == "there"
    assert heard(peer, PROGRESS) == [
        {"progressToken": token, "progress": 1, "total": 10},
        {"progressToken": token, "progress": 2.5, "total": 10},
        {"progressToken": token, "progress": 10, "total": 10},
    ]


def test_without_a_token_there_is_none(peer):
    peer.text("working__advance", {"steps": [1, 2]})
    assert heard(peer, PROGRESS) == []


def test_progress_only_grows(peer):
    peer.text("working__advance", {"steps": [3, 3, 1, 4, -1, 4.5]}, meta={"progressToken": "p"})
    assert [params["progress"] for params in heard(peer, PROGRESS)] == [3, 4, 4.5]


def test_a_tool_in_a_thread_is_heard_too(peer):
    if not peer.is_new:  # another test may have set the level of the session
        peer.result("logging/setLevel", {"level": "debug"})
    meta = {"progressToken": "p", f"{META}logLevel": "debug"} if peer.is_new else {"progressToken": "p"}
    assert peer.text("working__tell_from_a_thread", meta=meta) == "told"
    assert heard(peer, PROGRESS) == [
        {"progressToken": "p", "progress": 1, "total": 2, "message": "half"},
        {"progressToken": "p", "progress": 2, "total": 2},
    ]
    assert heard(peer, MESSAGE) == [{"level": "warning", "data": "halfway", "logger": "mine"}]


def test_tools_that_code_calls_are_heard_too(runner):
    code = "working.advance(steps=[1, 2])\nworking.tell(levels=['error'])"
    if not runner.is_new:
        runner.result("logging/setLevel", {"level": "info"})
    meta = {"progressToken": "p", **({f"{META}logLevel": "info"} if runner.is_new else {})}
    assert runner.text("run", {"code": code}, meta=meta) == "told"
    assert [params["progress"] for params in heard(runner, PROGRESS)] == [1, 2]
    assert [params["level"] for params in heard(runner, MESSAGE)] == ["error"]


def test_what_goes_on_when_its_call_is_over_is_not_heard(peer, tmp_path):
    meta = {"progressToken": "p", **({f"{META}logLevel": "debug"} if peer.is_new else {})}
    words = peer.failure("working__outlast", {"path": str(tmp_path / "it")}, meta=meta)
    assert "did not respond within 0.2 s" in words
    (tmp_path / "it").touch()
    until((tmp_path / "it.done").exists)
    peer.result("tools/list")
    assert [params["progress"] for params in heard(peer, PROGRESS)] == [1]
    assert heard(peer, MESSAGE) == []


# Messages


def test_a_client_hears_of_the_level_that_it_wants_and_of_worse(peer):
    for level in LEVELS:
        assert tell(peer, LEVELS, level) == LEVELS[LEVELS.index(level) :]


def test_a_message_has_its_data_and_the_name_of_its_pack(peer):
    tell(peer, ["error"], "error")
    assert heard(peer, MESSAGE) == [{"level": "error", "data": {"level is": "error"}, "logger": "working"}]


def test_who_says_nothing_hears_nothing_in_the_new_era_and_all_but_the_smallest_in_the_old(shared_peers, http_peer):
    for way in ("stdio-new", "http-new"):
        peer = shared_peers(way)
        tell(peer, LEVELS, "debug")
        assert tell(peer, LEVELS) == []  # what one request wants is not an other's business
    assert tell(http_peer("old"), LEVELS) == LEVELS[1:]


def test_the_level_is_the_sessions_own(http_peer):
    one, other = http_peer("old"), http_peer("old")
    assert tell(one, LEVELS, "emergency") == ["emergency"]
    assert tell(other, LEVELS, "debug") == LEVELS
    assert tell(one, LEVELS) == ["emergency"]


def test_a_level_that_there_is_not_is_refused(shared_peers):
    for way in ("stdio-old", "http-old"):
        for level in ("loud", "INFO", 3, None, []):
            refused = shared_peers(way).error("logging/setLevel", {"level": level})
            assert refused["code"] == -32602
        assert "expected one of debug, info" in shared_peers(way).error("logging/setLevel", {"level": "x"})["message"]
