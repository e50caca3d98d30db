"""Several requests at the same time: none waits for another, none is taken for another, and each can be called off.

Nothing here measures time. A slow tool waits for a file, which is made once the others have been answered.
"""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from helpers import until
from interfaces.mcp.peers import ABLE, OLD, TASKS, HttpPeer

from onetool import App
from onetool.core.principal import Principal, current_principal, owner
from onetool.interfaces.mcp.client import RemoteClient
from onetool.interfaces.mcp.conversation import Conversation
from onetool.interfaces.mcp.service import Service

pytestmark = pytest.mark.long

SLOW = ["working__wait_for", "working__wait_for_blocking"]


def begin(peer, tool, path, **more):
    """A call that goes on until its file is there."""
    pending = peer.begin("tools/call", {"name": tool, "arguments": {"path": str(path)}}, **more)
    until(path.with_name(f"{path.name}.began").exists)
    return pending


def said(message):
    return message["result"]["content"][0]["text"]


# None waits


@pytest.mark.parametrize("tool", SLOW)
def test_a_slow_tool_delays_nobody(peer, tool, tmp_path):
    slow = begin(peer, tool, tmp_path / "it")
    assert peer.result("tools/list")["tools"]
    if not peer.is_new:
        assert peer.result("ping") == {}
    assert peer.text("plus", {"a": 1}) == "1"
    assert not slow.is_answered
    (tmp_path / "it").touch()
    assert said(slow.answer()) == "it came"


@pytest.mark.parametrize("tool", SLOW)
def test_many_slow_tools_delay_nobody_either(peer, tool, tmp_path):
    slow = [begin(peer, tool, tmp_path / f"it{number}") for number in range(12)]
    assert peer.text("plus", {"a": 1}) == "1"
    for number in (7, 3, 11):  # whoever is done first is answered first
        (tmp_path / f"it{number}").touch()
        assert said(slow[number].answer()) == f"it{number} came"
    assert sum(one.is_answered for one in slow) == 3
    for number in range(12):
        (tmp_path / f"it{number}").touch()
    assert [said(one.answer()) for one in slow] == [f"it{number} came" for number in range(12)]


def test_code_that_computes_or_waits_delays_nobody(runner, tmp_path):
    endless = runner.begin("tools/call", {"name": "run", "arguments": {"code": "while True: pass"}})
    path = tmp_path / "it"
    slow = runner.begin("tools/call", {"name": "run", "arguments": {"code": f"working.wait_for(path={str(path)!r})"}})
    until((tmp_path / "it.began").exists)
    assert runner.result("tools/list")["tools"]
    assert runner.text("run", {"code": "1 + 1"}) == "2"
    assert not endless.is_answered
    assert not slow.is_answered
    path.touch()
    assert said(slow.answer()) == "it came"
    runner.cancel(endless)


def test_a_search_that_takes_long_delays_nobody_and_knows_its_caller(monkeypatch, tmp_path):
    """A search looks for new tools, takes them in and ranks all of them: with many tools that takes a while."""
    began, may_end, callers = Event(), Event(), []

    def search(*_):
        callers.append(owner())
        began.set()
        may_end.wait(5)
        return []

    async def main(app):
        conversation = Conversation(Service(app, "search"), RemoteClient(), print)

        def ask(number, method, params):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            return asyncio.create_task(conversation.answer(message, print))

        await ask(1, "initialize", {"protocolVersion": OLD, "capabilities": {}})
        searching = ask(2, "tools/call", {"name": "search", "arguments": {"query": "add"}})
        await asyncio.to_thread(began.wait, 5)
        other = await ask(
            3, "tools/call", {"name": "call", "arguments": {"name": "tools.echo", "args": {"message": "hi"}}}
        )
        was_answered = searching.done()
        may_end.set()
        return said(other), was_answered, said(await searching)

    (tmp_path / "onetool.yaml").touch()
    with App.open(tmp_path / "onetool.yaml") as app:
        monkeypatch.setattr(app, "search", search)
        current = current_principal.set(Principal(name="Ann", owner="ann"))
        try:
            assert asyncio.run(main(app)) == ("hi", False, "Nothing found. Try other words.")
        finally:
            current_principal.reset(current)
    assert callers == ["ann"]


def test_fifty_clients_with_the_same_ids_never_get_each_others_answers(shared_server):
    def work(number):
        peer = HttpPeer(shared_server, "new" if number % 2 else "old")
        got = [peer.text("plus", {"a": number, "b": 1000 * turn}, id=turn) for turn in range(1, 6)]
        peer.close()
        return got

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(work, range(50)))
    assert answers == [[str(number + 1000 * turn) for turn in range(1, 6)] for number in range(50)]


def test_ids_are_given_back_as_they_came(peer):
    for id in (0, -1, 2**53, "", "a", "1", "é🦊", "x" * 500, 1):
        assert peer.ask("tools/list", id=id)["id"] == id


@pytest.mark.parametrize("way", ["stdio-old", "stdio-new", "http-old"])
def test_an_id_that_is_in_use_is_refused_and_the_first_request_goes_on(way, shared_peers, tmp_path):
    """Over HTTP in the new era every request stands alone, and equal ids mean nothing."""
    peer = shared_peers(way)
    slow = begin(peer, SLOW[0], tmp_path / "it")
    if way == "http-old":
        refused = peer.send(peer.message("tools/list", id=slow.id)).message
    else:
        refused = peer.reply_to(peer.message("tools/list", id=slow.id), slow.id)
    assert refused["error"]["code"] == -32600
    assert "already used by a request in progress" in refused["error"]["message"]
    (tmp_path / "it").touch()
    assert said(slow.answer()) == "it came"


def test_the_id_of_a_request_that_is_just_cancelled_is_refused_too(shared_server, tmp_path):
    peer = HttpPeer(shared_server, "old", revision="2025-03-26")
    slow = begin(peer, SLOW[0], tmp_path / "it")
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": slow.id}}
    (refused,) = peer.send([cancelled, peer.message("ping", id=slow.id)]).message
    assert "already used by a request in progress" in refused["error"]["message"]
    assert slow.answer() is None
    assert slow.exchange.status == 202
    peer.close()


def test_over_http_in_the_new_era_equal_ids_do_not_matter(shared_peers, tmp_path):
    peer = shared_peers("http-new")
    slow = begin(peer, SLOW[0], tmp_path / "it")
    assert peer.send(peer.message("tools/list", id=slow.id)).message["result"]["tools"]
    (tmp_path / "it").touch()
    assert said(slow.answer()) == "it came"


# Calling it off


@pytest.mark.parametrize("able", [{}, ABLE, {"extensions": {TASKS: {}}}], ids=["unable", "able", "tasks"])
def test_calling_off_reaches_the_tool(peer, tmp_path, able):
    """In the old era by a notification; over HTTP in the new one by hanging up. No answer comes."""
    slow = begin(peer, "working__hang", tmp_path / "it", capabilities=able)
    peer.cancel(slow)
    until((tmp_path / "it.cancelled").exists)
    assert peer.text("plus", {"a": 1}) == "1"
    if hasattr(peer, "session"):
        assert slow.answer() is None
    else:
        assert not slow.is_answered


def test_calling_off_a_tool_in_a_thread_frees_the_client(peer, tmp_path):
    """A thread can't be stopped; nobody waits for it."""
    slow = begin(peer, "working__wait_for_blocking", tmp_path / "it")
    peer.cancel(slow)
    assert peer.text("plus", {"a": 1}) == "1"
    (tmp_path / "it").touch()
    time.sleep(0.05)
    assert peer.text("plus", {"a": 1}) == "1"
    assert not slow.is_answered or slow.answer() is None


def test_calling_off_reaches_a_tool_that_code_calls(runner, tmp_path):
    code = f"working.hang(path={str(tmp_path / 'it')!r})"
    slow = runner.begin("tools/call", {"name": "run", "arguments": {"code": code}})
    until((tmp_path / "it.began").exists)
    runner.cancel(slow)
    until((tmp_path / "it.cancelled").exists)
    assert runner.text("run", {"code": "1"}) == "1"


def test_calling_off_what_is_over_or_was_never_there_is_nothing(shared_peers):
    for way in ("stdio-old", "stdio-new", "http-old"):
        peer = shared_peers(way)
        peer.result("tools/list", id="done")
        for params in ({"requestId": "done"}, {"requestId": 12345}, {"requestId": None}, {"requestId": [1]}, {}):
            peer.tell({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        peer.tell({"jsonrpc": "2.0", "method": "notifications/cancelled"})
        peer.tell({"jsonrpc": "2.0", "method": "notifications/of/any/kind", "params": {}})
        assert peer.text("plus", {"a": 1}) == "1"


def test_an_id_that_was_called_off_can_be_used_again(shared_peers, tmp_path):
    for way in ("stdio-old", "http-old"):
        peer = shared_peers(way)
        path = tmp_path / way
        slow = peer.begin("tools/call", {"name": "working__hang", "arguments": {"path": str(path)}}, id="again")
        until(path.with_name(f"{way}.began").exists)
        peer.cancel(slow)
        until(path.with_name(f"{way}.cancelled").exists)
        assert peer.ask("tools/list", id="again")["result"]["tools"]


def test_one_session_can_not_call_off_what_another_one_wants(http_peer, tmp_path):
    one, other = http_peer("old"), http_peer("old")
    slow = begin(one, SLOW[0], tmp_path / "it")
    other.cancel(slow)
    assert other.result("ping") == {}
    (tmp_path / "it").touch()
    assert said(slow.answer()) == "it came"


def test_a_client_of_the_old_era_that_vanishes_may_come_back_so_its_call_goes_on(http_peer, tmp_path):
    peer = http_peer("old")
    slow = begin(peer, SLOW[0], tmp_path / "it")
    slow.exchange.hang_up()
    assert slow.answer() is None
    assert peer.result("ping") == {}
    (tmp_path / "it").touch()


def test_ending_a_session_ends_what_it_wanted(http_peer, tmp_path):
    peer = http_peer("old")
    begin(peer, "working__hang", tmp_path / "it")
    peer.close()
    until((tmp_path / "it.cancelled").exists)
