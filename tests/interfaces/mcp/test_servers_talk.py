"""While a call is under way: what a server says or asks, and that a client wants it no more, reaches whom it should."""

import json
import time

import pytest
from helpers import until
from interfaces.mcp.conftest import WAYS
from interfaces.mcp.peers import META, StdioPeer
from interfaces.mcp.upstreams import Site, heard, said, up

ERAS = ["old", "new"]
ELICIT, SAMPLE = "elicitation/create", "sampling/createMessage"
PROGRESS, MESSAGE = "notifications/progress", "notifications/message"


def accept(**content):
    return lambda params: {"action": "accept", "content": content}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """One server of each era behind ours; `hasty` and `due` have less time, and calls to `off` are called off."""
    site = Site(tmp_path_factory.mktemp("talk"))
    hasty, new = site.upstream(timeout=0.7), site.upstream(env={"ERA": "new"})
    site.config({"old": site.upstream(), "new": new, "hasty": hasty, "due": hasty, "off": site.upstream()})
    yield site
    site.close()


@pytest.fixture(scope="module")
def peers(site):
    known = {}

    def peer(way):
        if way not in known:
            known[way] = site.peer(way)
            up(known[way], "old", "new", "hasty", "due", "off")
        known[way].forget()
        return known[way]

    return peer


@pytest.fixture(params=WAYS)
def peer(request, peers):
    return peers(request.param)


@pytest.fixture
def client(site, peers):
    """Make clients of `onetool serve`."""
    peers("http-old")  # by now they are up
    return lambda era, **options: site.peer(f"http-{era}", **options)


def begin(peer, tool, arguments, **more):
    return peer.begin("tools/call", {"name": tool, "arguments": arguments}, **more)


def answered(pending):
    return pending.answer()["result"]["content"][0]["text"]


def loud(peer):
    """What a request needs so that messages are sent."""
    return {"meta": {f"{META}logLevel": "debug"}} if peer.is_new else {}


# Progress, messages, cancellation


@pytest.mark.parametrize("era", ERAS)
def test_progress_and_messages_come_while_the_call_runs(site, peer, era):
    file = site.file("wait")
    more = {"meta": {"progressToken": "p", **loud(peer).get("meta", {})}}
    pending = begin(peer, f"{era}__waits", {"file": str(file), "then": ""}, **more)
    assert peer.hear(PROGRESS) == {"progressToken": "p", "progress": 1, "total": 2, "message": "waits"}
    assert not pending.is_answered
    file.touch()
    assert answered(pending) == "it came"
    assert [told["progress"] for told in heard(peer, PROGRESS)] == [2]
    assert peer.text(f"{era}__logs", {"words": "careful"}, **more) == "logged"
    assert peer.hear(MESSAGE) == {"level": "warning", "data": "careful", "logger": "ok"}


@pytest.mark.parametrize("server", ["off", "new"])
def test_a_call_that_is_called_off_is_called_off_at_the_server(site, peer, server):
    file = site.file("wait")
    pending = begin(peer, f"{server}__waits", {"file": str(file), "then": ""})
    until(file.with_name(f"{file.name}.began").exists)
    peer.cancel(pending)
    until(file.with_name(f"{file.name}.cancelled").exists)
    assert peer.text(f"{server}__echo", {"text": "still there"}) == "still there"
    if isinstance(peer, StdioPeer):  # the same client may be asked at once
        peer.answers[ELICIT] = accept(name="Ada")
        assert said(peer, f"{server}__asks")["result"]["content"] == {"name": "Ada"}


def test_the_deadline_calls_it_off_too(site, client):
    file = site.file("wait")
    words = client("old").failure("due__waits", {"file": str(file), "then": ""})
    assert "due.waits did not respond within 0.7 s" in words
    until(file.with_name(f"{file.name}.cancelled").exists)


def test_a_client_that_goes_away_calls_off_what_it_wanted(site, client):
    file, peer = site.file("wait"), client("new")
    pending = begin(peer, "off__waits", {"file": str(file), "then": ""})
    until(file.with_name(f"{file.name}.began").exists)
    pending.exchange.hang_up()
    until(file.with_name(f"{file.name}.cancelled").exists)


# Questions


@pytest.mark.parametrize("era", ERAS)
def test_questions_of_a_server_are_asked_in_its_name(peer, era):
    peer.answers[ELICIT] = accept(name="Ada")
    answer = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Hello."}}
    peer.answers[SAMPLE] = lambda params: answer
    assert said(peer, f"{era}__asks")["result"] == {"action": "accept", "content": {"name": "Ada"}}
    assert said(peer, f"{era}__samples")["result"]["content"] == {"type": "text", "text": "Hello."}
    first, second = peer.asked
    assert first["params"]["message"] == f"{era} asks: Who?"
    assert second["params"]["messages"] == [{"role": "user", "content": {"type": "text", "text": "Say hello."}}]
    assert second["params"]["maxTokens"] == 10


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_the_server_is_told_that_the_person_said_no(peer, action):
    peer.answers[ELICIT] = lambda params: {"action": action}
    assert said(peer, "old__asks")["result"]["action"] == action


@pytest.mark.parametrize("way", ["http-old", "stdio-new"])
def test_the_time_that_an_answer_takes_is_not_the_servers(peers, way):
    peer = peers(way)

    def slowly(params):
        time.sleep(1)
        return {"action": "accept", "content": {"name": "Ada"}}

    peer.answers[ELICIT] = slowly
    assert said(peer, "hasty__asks")["result"]["action"] == "accept"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("tool", "whom"), [("asks", "a person"), ("samples", "a model")])
def test_where_the_client_can_not_be_asked_the_server_is_told_so(client, era, tool, whom):
    peer = client(era, capabilities={})
    refused = said(peer, f"old__{tool}")["error"]  # and may go on without
    assert f"needs to ask {whom}, which can't be done through this client" in refused["message"]
    result = peer.ask("tools/call", {"name": f"new__{tool}", "arguments": {}})
    assert f"needs to ask {whom}" in json.dumps(result)
    assert peer.asked == []


def test_from_the_command_line_nobody_is_asked(site):
    code = """
said = [old.asks()]
try:
    new.samples()
except Exception as error:
    said.append(str(error))
said
"""
    done = site.cli("run", code, stdin="")
    assert done.returncode == 0, done.stderr
    assert "needs to ask a person, which can't be done from here" in done.stdout
    assert "needs to ask a model, which can't be done from here" in done.stdout


# Two clients at once


def two(client, eras):
    """Two clients that hear and answer everything."""
    made = [client(era) for era in eras]
    for name, peer in zip("AB", made, strict=True):
        peer.answers[ELICIT] = accept(name=name)
        peer.answers[SAMPLE] = lambda params: {"role": "assistant", "content": {"type": "text", "text": "Hi."}}
    return made


@pytest.mark.parametrize("eras", [("old", "old"), ("new", "new"), ("old", "new")])
def test_with_two_callers_no_question_or_message_of_an_old_server_goes_astray(site, client, eras):
    one, other = two(client, eras)
    assert said(one, "old__asks")["result"]["content"] == {"name": "A"}  # while it is alone
    assert said(other, "old__asks")["result"]["content"] == {"name": "B"}
    one.asked.clear()
    other.asked.clear()
    waiting = site.file("other")
    beside = begin(other, "old__waits", {"file": str(waiting), "then": ""}, **loud(other))
    until(waiting.with_name(f"{waiting.name}.began").exists)
    for tool in ("asks", "samples"):
        refused = said(one, f"old__{tool}")["error"]
        assert "OneTool can't tell during which call" in refused["message"]
    assert one.text("old__logs", {"words": "secret of one"}, **loud(one)) == "logged"
    waiting.touch()
    assert answered(beside) == "it came"
    assert (one.asked, other.asked) == ([], [])
    assert heard(other, MESSAGE) == []


def test_a_new_server_says_itself_to_whom_it_speaks(site, client):
    one, other = two(client, ("old", "new"))
    waiting = site.file("other")
    beside = begin(other, "new__waits", {"file": str(waiting), "then": ""})
    until(waiting.with_name(f"{waiting.name}.began").exists)
    assert said(one, "new__asks")["result"] == {"action": "accept", "content": {"name": "A"}}
    waiting.touch()
    assert answered(beside) == "it came"
    assert len(one.asked) == 1
    assert other.asked == []


def test_what_belongs_to_a_call_that_was_called_off_reaches_nobody_else(site, client):
    one, other = two(client, ("old", "old"))
    file, waiting = site.file("mumble"), site.file("other")
    pending = begin(one, "old__mumbles", {"file": str(file), "words": "secret of one"})
    until(file.with_name(f"{file.name}.began").exists)
    one.cancel(pending)
    beside = begin(other, "old__waits", {"file": str(waiting), "then": ""})
    until(waiting.with_name(f"{waiting.name}.began").exists)
    file.touch()
    until(file.with_name(f"{file.name}.said").exists)
    waiting.touch()
    assert answered(beside) == "it came"
    assert other.asked == []
    assert heard(other, MESSAGE) == []
