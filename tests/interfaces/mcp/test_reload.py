"""SIGHUP reads the config and all packs again, and tells those who listen what is different."""

import shutil
import signal
import time

import pytest
from interfaces.mcp.peers import CONFIG, META, HttpPeer, until

TOOL = 'def wave() -> str:\n    """Wave."""\n    return "o/"\n'
PROMPT = 'from onetool.sdk import prompt\n\n\n@prompt\ndef farewell() -> str:\n    """Bye."""\n    return "Bye."\n'
RESOURCE = PROMPT.replace("@prompt", '@resource("wave://it")').replace("import prompt", "import resource")
KINDS = ("tools", "prompts", "resources")


@pytest.fixture
def folder(tmp_path):
    """A config that may be changed."""
    made = tmp_path / "own"
    (made / "packs").mkdir(parents=True)
    for pack in ("working", "shelf"):
        shutil.copy(CONFIG.parent / "packs" / f"{pack}.py", made / "packs")
    (made / "onetool.yaml").write_text("menu: direct\npacks: [packs]\n")
    return made


@pytest.fixture(params=["stdio-old", "stdio-new", "http-old", "http-new"])
def listener(request, folder, stdio_peer, serve):
    """Make a client that has seen all lists, and hears of every change."""
    transport, era = request.param.split("-")
    config = folder / "onetool.yaml"

    def make(**wanted):
        peer = stdio_peer(era, config=config) if transport == "stdio" else HttpPeer(serve(config=config), era)
        for kind in KINDS:
            peer.result(f"{kind}/list")
        uris = wanted.pop("uris", [])
        if era == "new":
            every = {f"{kind}ListChanged": True for kind in KINDS}
            filter = {**(wanted or every), **({"resourceSubscriptions": uris} if uris else {})}
            peer.stream = peer.begin("subscriptions/listen", {"notifications": filter}, id="listening")
            told = peer.hear("notifications/subscriptions/acknowledged")
            assert told == {"notifications": filter, "_meta": {f"{META}subscriptionId": "listening"}}
            return peer
        for uri in uris:
            assert peer.result("resources/subscribe", {"uri": uri}) == {}
        if transport == "http":
            peer.stream = peer.listen()
        return peer

    return make


def reloaded(peer):
    """Have it reload, and give what was heard of that."""
    before = said(peer)
    peer.reload()
    until(lambda: said(peer) > before)
    peer.result("tools/list")  # what came before the answer has come
    time.sleep(0.05)
    heard = [one["method"].removeprefix("notifications/") for one in peer.heard]
    if peer.is_new:
        marks = [one["params"]["_meta"] for one in peer.heard]
        assert marks == [{f"{META}subscriptionId": "listening"}] * len(heard)
    peer.heard.clear()
    return heard


def said(peer):
    """How often it has told of a reload."""
    return peer.log().lower().count("reloaded")


def names(peer, kind, key="name"):
    return [one[key] for one in peer.result(f"{kind}/list")[kind]]


def test_what_changed_is_told_and_nothing_else(listener, folder):
    peer = listener()
    assert reloaded(peer) == []
    (folder / "packs" / "waving.py").write_text(TOOL)
    assert reloaded(peer) == ["tools/list_changed"]
    assert "waving__wave" in names(peer, "tools")
    assert peer.text("waving__wave") == "o/"
    (folder / "packs" / "leaving.py").write_text(PROMPT)
    assert reloaded(peer) == ["prompts/list_changed"]
    assert "farewell" in names(peer, "prompts")
    (folder / "packs" / "reading.py").write_text(RESOURCE)
    assert reloaded(peer) == ["resources/list_changed"]
    assert "wave://it" in names(peer, "resources", "uri")
    for pack in ("waving", "leaving", "reading"):
        (folder / "packs" / f"{pack}.py").unlink()
    assert sorted(reloaded(peer)) == ["prompts/list_changed", "resources/list_changed", "tools/list_changed"]
    assert "waving__wave" not in names(peer, "tools")


def test_a_tool_that_is_described_anew_is_a_change_and_its_code_alone_is_none(listener, folder):
    peer = listener()
    (folder / "packs" / "waving.py").write_text(TOOL)
    reloaded(peer)
    (folder / "packs" / "waving.py").write_text(TOOL.replace("o/", "O/"))
    assert reloaded(peer) == []
    assert peer.text("waving__wave") == "O/"
    (folder / "packs" / "waving.py").write_text(TOOL.replace("Wave.", "Wave back."))
    assert reloaded(peer) == ["tools/list_changed"]


def test_a_config_that_can_not_be_used_leaves_everything_as_it_was(listener, folder):
    peer = listener()
    (folder / "packs" / "waving.py").write_text(TOOL)
    for broken in ("menu: all\n", "menu: [", "tols: []\n"):
        (folder / "onetool.yaml").write_text(broken)
        assert reloaded(peer) == []
        assert "not reloaded" in peer.log().lower()
        assert "waving__wave" not in names(peer, "tools")
        assert peer.text("working__add", {"a": 1}) == "1"
    (folder / "onetool.yaml").write_text("packs: [packs]\nmenu: direct\n")
    assert reloaded(peer) == ["tools/list_changed"]


def test_another_menu_is_a_change(listener, folder):
    peer = listener()
    (folder / "onetool.yaml").write_text("packs: [packs]\nmenu: run\n")
    assert reloaded(peer) == ["tools/list_changed"]
    assert names(peer, "tools") == ["run"]


def test_those_who_watch_the_list_of_tools_hear_that_it_changed(listener, folder):
    peer = listener(toolsListChanged=True, uris=["ot://tools", "ot://tools/working.add"])
    (folder / "packs" / "waving.py").write_text(TOOL)
    peer.reload()
    assert peer.hear("notifications/resources/updated")["uri"] == "ot://tools"
    until(lambda: peer.heard)
    assert reloaded(peer) == ["tools/list_changed"]
    if not peer.is_new:
        assert peer.result("resources/unsubscribe", {"uri": "ot://tools"}) == {}
        (folder / "packs" / "waving.py").unlink()
        assert reloaded(peer) == ["tools/list_changed"]


def test_a_call_under_way_ends_as_it_began(listener, folder, tmp_path):
    peer = listener()
    path = tmp_path / "it"
    slow = peer.begin("tools/call", {"name": "working__wait_for", "arguments": {"path": str(path)}})
    until((tmp_path / "it.began").exists)
    (folder / "packs" / "working.py").write_text(TOOL)
    assert reloaded(peer) == ["tools/list_changed"]
    assert not slow.is_answered
    path.touch()
    assert slow.answer()["result"]["content"][0]["text"] == "it came"
    assert "working__wait_for" not in names(peer, "tools")


# Listening in the new era


@pytest.fixture(params=["stdio", "http"])
def newcomer(request, folder, stdio_peer, serve):
    config = folder / "onetool.yaml"
    return stdio_peer("new", config=config) if request.param == "stdio" else HttpPeer(serve(config=config), "new")


def test_only_what_was_asked_for_is_told(newcomer, folder):
    newcomer.result("tools/list")
    asked = {"promptsListChanged": True, "toolsListChanged": False, "more": 1}
    newcomer.begin("subscriptions/listen", {"notifications": asked}, id="one")
    assert newcomer.hear("notifications/subscriptions/acknowledged")["notifications"] == {"promptsListChanged": True}
    (folder / "packs" / "waving.py").write_text(TOOL)
    (folder / "packs" / "leaving.py").write_text(PROMPT)
    newcomer.reload()
    told = newcomer.hear("notifications/prompts/list_changed")
    assert told == {"_meta": {f"{META}subscriptionId": "one"}}
    newcomer.result("tools/list")
    assert newcomer.heard == []


def test_several_streams_of_one_client_are_told_apart(newcomer, folder):
    newcomer.result("tools/list")
    for id in (101, "two"):
        newcomer.begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id=id)
        newcomer.hear("notifications/subscriptions/acknowledged")
    (folder / "packs" / "waving.py").write_text(TOOL)
    newcomer.reload()
    marks = [newcomer.hear("notifications/tools/list_changed")["_meta"] for _ in range(2)]
    assert {mark[f"{META}subscriptionId"] for mark in marks} == {101, "two"}


def test_a_client_that_listens_no_more_is_told_no_more(newcomer, folder):
    newcomer.result("tools/list")
    stream = newcomer.begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    newcomer.hear("notifications/subscriptions/acknowledged")
    newcomer.cancel(stream)
    assert newcomer.text("working__add", {"a": 1}) == "1"
    (folder / "packs" / "waving.py").write_text(TOOL)
    before = said(newcomer)
    newcomer.reload()
    until(lambda: said(newcomer) > before)
    newcomer.result("tools/list")
    assert newcomer.heard == []


def test_a_stream_ends_with_the_server_and_says_so(newcomer):
    stream = newcomer.begin("subscriptions/listen", {"notifications": {}}, id="last")
    newcomer.hear("notifications/subscriptions/acknowledged")
    process = newcomer.server.process if hasattr(newcomer, "server") else newcomer.process
    process.send_signal(signal.SIGTERM)
    if hasattr(newcomer, "server"):
        assert stream.answer()["result"]["_meta"][f"{META}subscriptionId"] == "last"
        assert newcomer.server.stop() == 0
    else:
        assert newcomer.ended() == 0


def test_what_can_not_be_listened_to_is_told(newcomer):
    for params, words in (
        ({}, "params.notifications is missing"),
        ({"notifications": []}, "params.notifications: expected an object"),
        ({"notifications": {"resourceSubscriptions": "ot://tools"}}, "resourceSubscriptions: expected a list of texts"),
        ({"notifications": {"resourceSubscriptions": [1]}}, "resourceSubscriptions: expected a list of texts"),
    ):
        refused = newcomer.error("subscriptions/listen", params)
        assert refused["code"] == -32602
        assert words in refused["message"]


# Listening in the old era


def test_what_is_not_there_can_not_be_watched(shared_peers):
    for way in ("stdio-old", "http-old"):
        peer = shared_peers(way)
        for uri in ("ot://tools", "ot://results/x", "shelf://note", "shelf://books/a/b"):
            assert peer.result("resources/subscribe", {"uri": uri}) == {}
            assert peer.result("resources/unsubscribe", {"uri": uri}) == {}
        refused = peer.error("resources/subscribe", {"uri": "shelf://nothing"})
        assert (refused["code"], refused["data"]) == (-32002, {"uri": "shelf://nothing"})
        assert peer.error("resources/subscribe")["code"] == -32602
        assert peer.result("resources/unsubscribe", {"uri": "shelf://nothing"}) == {}


def test_who_has_no_stream_open_hears_of_it_when_it_opens_one(folder, serve):
    server = serve(config=folder / "onetool.yaml")
    peer = HttpPeer(server, "old")
    peer.result("tools/list")
    (folder / "packs" / "waving.py").write_text(TOOL)
    before = said(peer)
    peer.reload()
    until(lambda: said(peer) > before)
    assert peer.heard == []
    peer.listen()
    peer.hear("notifications/tools/list_changed")
