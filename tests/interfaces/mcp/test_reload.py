"""SIGHUP reads the config and all packs again, and tells those who listen what is different."""

import shutil
import time
from contextlib import ExitStack

import pytest
from helpers import until
from interfaces.mcp.peers import META, HttpPeer, StdioPeer
from interfaces.mcp.servers import CONFIG, Server, ended_well

TOOL = 'def wave() -> str:\n    """Wave."""\n    return "o/"\n'
PROMPT = 'from onetool.sdk import prompt\n\n\n@prompt\ndef farewell() -> str:\n    """Bye."""\n    return "Bye."\n'
RESOURCE = PROMPT.replace("@prompt", '@resource("wave://it")').replace("import prompt", "import resource")
KINDS = ("tools", "prompts", "resources")
LOUD = {"env": {"ONETOOL_LOG": "info"}}
TOKEN = "sesame-token-0123456789"
GUARD = f"http: {{token: {TOKEN}}}\nwatch: false\n"  # ot.reload over HTTP is for admins; nothing is read by itself


def reset(folder):
    """The config and the packs that every test begins with."""
    shutil.rmtree(folder / "packs", ignore_errors=True)
    (folder / "packs").mkdir()
    for pack in ("working", "shelf"):
        shutil.copy(CONFIG.parent / "packs" / f"{pack}.py", folder / "packs")
    (folder / "onetool.yaml").write_text(f"menu: direct\npacks: [packs]\n{GUARD}")


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """One client for each way, with a server and a folder of its own."""
    known = {}
    with ExitStack() as ends:

        def place(way):
            if way not in known:
                transport, era = way.split("-")
                folder = tmp_path_factory.mktemp(way)
                reset(folder)
                config = folder / "onetool.yaml"
                if transport == "http":
                    server = Server(folder, config=config)
                    ends.callback(ended_well, server.stop)
                    known[way] = HttpPeer(server, era, token=TOKEN)
                else:
                    known[way] = StdioPeer(folder, era, config=config, **LOUD)
                ends.callback(ended_well, known[way].close)
                known[way].folder = folder
                known[way].result("tools/list")  # it is there now, and takes signals
            return known[way]

        yield place


@pytest.fixture(params=["stdio-old", "stdio-new", "http-old", "http-new"])
def listener(request, places):
    """Make a client hear of changes."""
    peer = places(request.param)
    yield from begun_anew(peer, lambda **wanted: listening(peer, **wanted))


@pytest.fixture(params=["stdio-new", "http-new"])
def newcomer(request, places):
    peer = places(request.param)
    yield from begun_anew(peer, peer)


def begun_anew(peer, given):
    """Everything is as it was in the beginning, and the client has seen all lists."""
    reset(peer.folder)
    reload(peer)
    if getattr(peer, "session", None):
        peer.close()
        peer.session = None
        peer.initialize()
    peer.streams = []
    for kind in KINDS:
        peer.result(f"{kind}/list")
    peer.forget()  # what it was told before these answers, too
    yield given
    for stream in peer.streams:
        stream.exchange.hang_up() if stream.exchange else peer.cancel(stream)


def listening(peer, uris=(), **wanted):
    """The client, which hears of every change, or of those that are wanted."""
    if not peer.is_new:
        for uri in uris:
            assert peer.result("resources/subscribe", {"uri": uri}) == {}
        if hasattr(peer, "server"):
            peer.streams.append(peer.listen())
        return peer
    filter = wanted or {f"{kind}ListChanged": True for kind in KINDS}
    if uris:
        filter["resourceSubscriptions"] = uris
    listen(peer, filter, "listening")
    return peer


def listen(peer, filter, id):
    peer.streams.append(peer.begin("subscriptions/listen", {"notifications": filter}, id=id))
    told = peer.hear("notifications/subscriptions/acknowledged")
    assert told["_meta"] == {f"{META}subscriptionId": id}
    return told["notifications"]


def reload_tells(peer, *told):
    """Have it reload: the client hears of these changes, each once, and of nothing else."""
    reload(peer)
    until(lambda: len(peer.heard) >= len(told))
    peer.result("tools/list")  # what came before the answer has come
    time.sleep(0.05)  # on another stream, too
    heard = [one["method"].removeprefix("notifications/") for one in peer.heard]
    assert sorted(heard) == sorted(told)
    if peer.is_new:
        marks = [one["params"]["_meta"] for one in peer.heard]
        assert marks == [{f"{META}subscriptionId": "listening"}] * len(heard)
    peer.heard.clear()


def reload(peer):
    """Have it reload, and wait for its line in the log. A line that came later would be taken for the next reload's."""
    before = said(peer)
    peer.reload()
    until(lambda: said(peer) > before)


def said(peer):
    """How often it has told of a reload."""
    return peer.log().lower().count("reloaded")


def names(peer, kind, key="name"):
    return [one[key] for one in peer.result(f"{kind}/list")[kind]]


def test_what_changed_is_told_and_nothing_else(listener):
    peer = listener()
    reload_tells(peer)
    (peer.folder / "packs" / "waving.py").write_text(TOOL)
    reload_tells(peer, "tools/list_changed")
    assert "waving__wave" in names(peer, "tools")
    assert peer.text("waving__wave") == "o/"
    (peer.folder / "packs" / "leaving.py").write_text(PROMPT)
    reload_tells(peer, "prompts/list_changed")
    assert "farewell" in names(peer, "prompts")
    (peer.folder / "packs" / "reading.py").write_text(RESOURCE)
    reload_tells(peer, "resources/list_changed")
    assert "wave://it" in names(peer, "resources", "uri")
    for pack in ("waving", "leaving", "reading"):
        (peer.folder / "packs" / f"{pack}.py").unlink()
    reload_tells(peer, "prompts/list_changed", "resources/list_changed", "tools/list_changed")
    assert "waving__wave" not in names(peer, "tools")


def test_texts_of_ones_own_are_read_again(listener):
    peer = listener()
    (peer.folder / "onetool.yaml").write_text(f"menu: run\npacks: [packs]\nprompts: words.yaml\n{GUARD}")
    (peer.folder / "words.yaml").write_text("run: Do it.\n")
    reload_tells(peer, "tools/list_changed")
    [run] = peer.result("tools/list")["tools"]
    assert run["description"].startswith("Do it.\n\nPacks: ")
    (peer.folder / "words.yaml").write_text("run: Do it well.\ninstructions: Be kind.\n")
    reload_tells(peer, "tools/list_changed")
    [run] = peer.result("tools/list")["tools"]
    assert run["description"].startswith("Do it well.\n\nPacks: ")
    if peer.is_new:
        assert peer.result("server/discover")["instructions"] == "Be kind."


def test_a_client_may_ask_for_it_and_all_hear_of_it(listener):
    peer = listener()
    (peer.folder / "packs" / "wave.py").write_text(TOOL)
    assert peer.text("ot__reload") == "OK: Configuration reloaded"
    assert peer.hear("notifications/tools/list_changed") is not None
    assert "wave__wave" in names(peer, "tools")
    peer.heard.clear()


def test_a_tool_that_is_described_anew_is_a_change_and_its_code_alone_is_none(listener):
    peer = listener()
    (peer.folder / "packs" / "waving.py").write_text(TOOL)
    reload_tells(peer, "tools/list_changed")
    (peer.folder / "packs" / "waving.py").write_text(TOOL.replace("o/", "O/"))
    reload_tells(peer)
    assert peer.text("waving__wave") == "O/"
    (peer.folder / "packs" / "waving.py").write_text(TOOL.replace("Wave.", "Wave back."))
    reload_tells(peer, "tools/list_changed")


def test_a_config_that_can_not_be_used_leaves_everything_as_it_was(listener):
    peer = listener()
    (peer.folder / "packs" / "waving.py").write_text(TOOL)
    for broken in ("menu: all\n", "menu: [", "tols: []\n"):
        (peer.folder / "onetool.yaml").write_text(broken)
        reload_tells(peer)
        assert "not reloaded" in peer.log().lower()
        assert "waving__wave" not in names(peer, "tools")
        assert peer.text("working__add", {"a": 1}) == "1"
    (peer.folder / "onetool.yaml").write_text(f"packs: [packs]\nmenu: direct\n{GUARD}")
    reload_tells(peer, "tools/list_changed")


def test_another_menu_is_a_change(listener):
    peer = listener()
    (peer.folder / "onetool.yaml").write_text(f"packs: [packs]\nmenu: run\n{GUARD}")
    reload_tells(peer, "tools/list_changed")
    assert names(peer, "tools") == ["run"]


def test_those_who_watch_the_list_of_tools_hear_that_it_changed(listener):
    peer = listener(toolsListChanged=True, uris=["ot://tools", "ot://tools/working.add"])
    (peer.folder / "packs" / "waving.py").write_text(TOOL)
    reload(peer)
    assert peer.hear("notifications/resources/updated")["uri"] == "ot://tools"
    until(lambda: peer.heard)
    reload_tells(peer, "tools/list_changed")
    if not peer.is_new:
        assert peer.result("resources/unsubscribe", {"uri": "ot://tools"}) == {}
        (peer.folder / "packs" / "waving.py").unlink()
        reload_tells(peer, "tools/list_changed")


def test_a_call_under_way_ends_as_it_began(listener, tmp_path):
    peer = listener()
    path = tmp_path / "it"
    slow = peer.begin("tools/call", {"name": "working__wait_for", "arguments": {"path": str(path)}})
    until((tmp_path / "it.began").exists)
    (peer.folder / "packs" / "working.py").write_text(TOOL)
    reload_tells(peer, "tools/list_changed")
    assert not slow.is_answered
    path.touch()
    assert slow.answer()["result"]["content"][0]["text"] == "it came"
    assert "working__wait_for" not in names(peer, "tools")


# Listening in the new era


def test_only_what_was_asked_for_is_told(newcomer):
    asked = {"promptsListChanged": True, "toolsListChanged": False, "more": 1}
    assert listen(newcomer, asked, "one") == {"promptsListChanged": True}
    (newcomer.folder / "packs" / "waving.py").write_text(TOOL)
    (newcomer.folder / "packs" / "leaving.py").write_text(PROMPT)
    reload(newcomer)
    told = newcomer.hear("notifications/prompts/list_changed")
    assert told == {"_meta": {f"{META}subscriptionId": "one"}}
    newcomer.result("tools/list")
    assert newcomer.heard == []


def test_several_streams_of_one_client_are_told_apart(newcomer):
    for id in (10001, "two"):
        listen(newcomer, {"toolsListChanged": True}, id)
    (newcomer.folder / "packs" / "waving.py").write_text(TOOL)
    reload(newcomer)
    marks = [newcomer.hear("notifications/tools/list_changed")["_meta"] for _ in range(2)]
    assert {mark[f"{META}subscriptionId"] for mark in marks} == {10001, "two"}


def test_a_client_that_listens_no_more_is_told_no_more(newcomer):
    listen(newcomer, {"toolsListChanged": True}, "one")
    newcomer.cancel(newcomer.streams.pop())
    assert newcomer.text("working__add", {"a": 1}) == "1"
    (newcomer.folder / "packs" / "waving.py").write_text(TOOL)
    reload(newcomer)
    newcomer.result("tools/list")
    assert newcomer.heard == []


def test_a_stream_ends_with_the_server(stdio_peer, serve):
    peer = stdio_peer("new")
    stream = peer.begin("subscriptions/listen", {"notifications": {}}, id="last")
    peer.hear("notifications/subscriptions/acknowledged")
    assert peer.close() == 0  # the client has gone: nothing keeps the process
    assert stream.answer()["result"]["_meta"][f"{META}subscriptionId"] == "last"
    server = serve()
    peer = HttpPeer(server, "new")
    stream = peer.begin("subscriptions/listen", {"notifications": {}}, id="last")
    peer.hear("notifications/subscriptions/acknowledged")
    assert server.stop() == 0
    assert stream.answer()["result"]["_meta"][f"{META}subscriptionId"] == "last"


def test_what_can_not_be_listened_to_is_told(newcomer):
    for params, words in (
        ({}, "params.notifications is missing"),
        ({"notifications": []}, "params.notifications: expected an object"),
        (
            {"notifications": {"resourceSubscriptions": "ot://tools"}},
            "resourceSubscriptions: expected a list of strings",
        ),
        ({"notifications": {"resourceSubscriptions": [1]}}, "resourceSubscriptions: expected a list of strings"),
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


def test_who_has_no_stream_open_hears_of_it_when_it_opens_one(places):
    for peer in begun_anew(places("http-old"), places("http-old")):
        (peer.folder / "packs" / "waving.py").write_text(TOOL)
        reload_tells(peer)
        peer.streams.append(peer.listen())
        peer.hear("notifications/tools/list_changed")


def test_on_two_streams_of_one_session_each_message_comes_once(places):
    for peer in begun_anew(places("http-old"), places("http-old")):
        peer.streams += [peer.listen(), peer.listen()]
        (peer.folder / "packs" / "waving.py").write_text(TOOL)
        reload_tells(peer, "tools/list_changed")


@pytest.mark.parametrize("way", ["stdio-new", "http-new"])
def test_settings_are_read_again_without_a_signal(places, way):
    peer, watched = places(way), GUARD.replace("watch: false\n", "")
    reset(peer.folder)
    (peer.folder / "onetool.yaml").write_text(f"menu: direct\npacks: [packs]\n{watched}")
    reload(peer)
    (peer.folder / "packs" / "waves.py").write_text(TOOL)
    (peer.folder / "onetool.yaml").write_text(f"menu: search\npacks: [packs]\n{watched}")
    until(lambda: names(peer, "tools") == ["search", "call", "run"])
    until(lambda: "waves.py" in str(peer.result("tools/call", {"name": "call", "arguments": {"name": "waves.wave"}})))
