"""Somebody's MCP servers behind ours: there when they are up and not waited for, and each menu has them all."""

import json
import re
import time

import anyio
import pytest
import yaml
from helpers import until, until_async
from interfaces.mcp.conftest import WAYS
from interfaces.mcp.upstreams import Site, heard, listen, listing, names, said, up, with_client
from mcp_types import CreateMessageResult, ElicitResult, TextContent

# The SDK warns of what the newest revision has no more.
pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

STARTING = ["a", "b", "c", "d", "e"]


@pytest.fixture
def site(tmp_path):
    site = Site(tmp_path)
    yield site
    site.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One server of each era behind ours, as long as it lasts."""
    site = Site(tmp_path_factory.mktemp("shared"))
    site.config({"old": site.upstream(), "new": site.upstream(env={"ERA": "new"})})
    yield site
    site.close()


# Starting


@pytest.mark.long
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_lists_are_there_before_any_server_is_and_change_when_they_come(site, transport):
    gate = site.file("gate")
    site.config({name: site.upstream(env={"GATE": str(gate)}) for name in STARTING})
    peers = [site.peer(f"{transport}-{era}") for era in ("old", "new")]
    for peer in peers:
        assert {f"{name}__echo" for name in STARTING}.isdisjoint(names(peer))
        listen(peer)
    if transport == "http":
        _run_names_them_already(site)
    assert site.started() == []  # none of them has come past the gate
    gate.touch()
    for peer in peers:
        peer.hear("notifications/tools/list_changed")
        up(peer, *STARTING)
        time.sleep(0.3)
        assert 1 + len(heard(peer)) < len(STARTING)  # mostly it is the only one, and never one for each of them
        assert peer.text("b__echo", {"text": "hello"}) == "hello"


def _run_names_them_already(site):
    for era in ("old", "new"):
        (run,) = listing(site.peer(f"http-{era}", "run"))
        packs = next(line for line in run["description"].splitlines() if line.startswith("Packs:")).split()
        assert set(STARTING) <= set(packs)
        search, *_ = listing(site.peer(f"http-{era}", "search"))
        assert set(STARTING) <= set(search["description"].split())


def test_a_call_to_one_that_is_starting_waits_for_it(site):
    gate = site.file("gate")
    site.config({"late": site.upstream(env={"GATE": str(gate)}), "here": site.upstream()})
    runner = site.peer("http-old", "run")
    waiting = runner.begin("tools/call", {"name": "run", "arguments": {"code": "late.echo(text='at last')"}})
    assert runner.text("run", {"code": "here.echo(text='at once')"}) == "at once"
    assert not waiting.is_answered
    gate.touch()
    assert waiting.answer()["result"]["content"][0]["text"] == "at last"


def test_a_server_that_is_not_connected_yet_is_connecting(site):
    gate = site.file("gate")
    site.config({"late": site.upstream(env={"GATE": str(gate)}), "here": site.upstream()})
    peer = site.peer("stdio-new")
    told = yaml.safe_load(peer.text("ot__health"))["proxy"]
    assert (told["status"], told["servers"]["late"]) == ("connecting", "connecting"), told
    gate.touch()
    connected = {"status": "ok", "server_count": 2, "servers": {"late": "connected", "here": "connected"}}
    until(lambda: yaml.safe_load(peer.text("ot__health"))["proxy"] == connected)


def test_what_a_server_has_new_is_passed_on(shared):
    for era in ("old", "new"):
        peer = shared.peer(f"http-{era}")
        up(peer, "old", "new")
        listen(peer)
        time.sleep(0.5)  # until what had to be told of their coming is told
        peer.forget()
        assert peer.text(f"{era}__grow") == "grown"
        peer.hear("notifications/tools/list_changed")
        assert peer.text(f"{era}__grown") == "grown"


# What comes through, by the official client


async def elicited(context, params):
    return ElicitResult(action="accept", content={"name": f"Ada ({params.message})"})


async def sampled(context, params):
    asked = params.messages[0].content.text
    return CreateMessageResult(role="assistant", model="m", content=TextContent(type="text", text=f"{asked} Hello!"))


def text(result):
    assert not result.is_error, result
    (block,) = result.content
    return block.text


# Resources of several servers


def test_an_address_that_two_servers_list_belongs_to_neither(site):
    site.config(
        {
            "a": site.nasty("offers", "A"),
            "b": site.nasty("offers", "B", prefix="b b"),
            "c": site.nasty("offers", "C", env={"TEMPLATE": "notes://{anything}"}),
            "d": site.nasty("offers", "D", env={"TEMPLATE": "{path}"}),
        }
    )
    peer = site.peer("stdio-new")
    until(lambda: sum("__one" in name for name in names(peer)) == 4)

    def read(uri):
        (part,) = peer.result("resources/read", {"uri": uri})["contents"]
        assert part["uri"] == uri  # the server's own address belongs to others here
        return part["text"]

    below = {"ot://packs/a/notes://today", "ot://packs/b%20b/notes://today"}
    assert {one["uri"] for one in peer.result("resources/list")["resources"]} == {"ot://tools", *below}
    templates = {one["uriTemplate"] for one in peer.result("resources/templates/list")["resourceTemplates"]}
    assert {one for one in templates if not one.startswith(("ot://tools", "ot://results"))} == {
        "ot://packs/a/notes://day/{day}",
        "ot://packs/b%20b/notes://day/{day}",
        "notes://{anything}",
        "ot://packs/d/{path}",
    }
    assert peer.error("resources/read", {"uri": "notes://today"})["message"] == "Resource not found: notes://today"
    assert [read(uri) for uri in sorted(below)] == ["['A'] notes://today", "['B'] notes://today"]
    assert read("ot://packs/b%20b/notes://day/1") == "['B'] notes://day/1"
    assert read("notes://tomorrow") == "['C'] notes://tomorrow"
    assert read("ot://packs/d/some/path") == "['D'] some/path"

    told = {one["name"]: one["warning"] for one in json.loads(site.cli("servers", "list", "--json").stdout)}
    assert told == {
        "a": "other servers list these addresses, too, so here they begin with ot://packs/a/: "
        "notes://today, notes://day/{day}",
        "b": "other servers list these addresses, too, so here they begin with ot://packs/b%20b/: "
        "notes://today, notes://day/{day}",
        "c": None,
        "d": None,
    }


@pytest.mark.parametrize("way", WAYS)
def test_everything_comes_through_to_the_official_client(shared, way):
    progress, messages = [], []

    async def on_progress(done, total, message):
        progress.append((done, total, message))

    async def on_message(params):
        messages.append((params.level, params.data, params.logger))

    async def work(client):
        with anyio.fail_after(20):
            while not {"old__echo", "new__echo"} <= (tools := await listed(client)).keys():
                await anyio.sleep(0.05)
        for era in ("old", "new"):
            await shows_content(client, tools, era)
            done = await client.call_tool(f"{era}__slow", {"seconds": 0.1}, progress_callback=on_progress)
            assert text(done) == "done"
            assert text(await client.call_tool(f"{era}__logs", {"words": "careful"})) == "logged"
            answer = json.loads(text(await client.call_tool(f"{era}__asks")))
            assert answer["result"] == {"action": "accept", "content": {"name": f"Ada ({era} asks: Who?)"}}
            answer = json.loads(text(await client.call_tool(f"{era}__samples")))
            assert answer["result"]["content"] == {"type": "text", "text": "Say hello. Hello!"}
        with anyio.fail_after(5):
            await until_async(lambda: len(messages) >= 2 and len(progress) >= 20)

    options = {"elicitation_callback": elicited, "sampling_callback": sampled, "logging_callback": on_message}
    with_client(shared.client(way, log_level="info", **options), work)
    assert progress == [(n, 10, f"step {n}") for n in range(1, 11)] * 2
    assert messages == [("warning", "careful", "ok")] * 2


async def listed(client):
    tools, cursor = {}, None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools |= {tool.name: tool for tool in page.tools}
        cursor = page.next_cursor
        if not cursor:
            return tools


async def shows_content(client, tools, era):
    def of(result):
        (block,) = result.content
        return block

    picture = of(await client.call_tool(f"{era}__picture"))
    assert (picture.type, picture.mime_type, picture.data[:11]) == ("image", "image/png", "iVBORw0KGgo")
    sound = of(await client.call_tool(f"{era}__sound"))
    assert (sound.type, sound.mime_type) == ("audio", "audio/wav")
    blob = of(await client.call_tool(f"{era}__blob")).resource
    assert (str(blob.uri), blob.mime_type, len(blob.blob)) == ("file:///b.bin", "application/octet-stream", 344)
    note = of(await client.call_tool(f"{era}__note")).resource
    assert (str(note.uri), note.text) == ("file:///n.txt", "a note")
    link = of(await client.call_tool(f"{era}__link"))
    assert (link.type, str(link.uri), link.name) == ("resource_link", "file:///notes/today.txt", "today")
    mixed = (await client.call_tool(f"{era}__mixed")).content
    assert [block.type for block in mixed] == ["text", "image", "text"]
    result = await client.call_tool(f"{era}__structured", {"city": "Rome"})
    assert result.structured_content == {"c": 21, "city": "Rome"}
    assert tools[f"{era}__structured"].output_schema["properties"] == {"c": {"type": "integer"}}
    assert tools[f"{era}__echo"].annotations.read_only_hint is True
    assert tools[f"{era}__arguments"].annotations.idempotent_hint is True
    assert not (tools[f"{era}__add"].annotations and tools[f"{era}__add"].annotations.read_only_hint)
    failed = await client.call_tool(f"{era}__fails", {"why": "no paper"})
    assert (failed.is_error, failed.content[0].text) == (True, "no paper")
    given = {"given": None, "more": [None, {"ä": None}, 1.5, "日本 🙂"]}
    assert json.loads(text(await client.call_tool(f"{era}__arguments", given))) == given


# By menu


@pytest.fixture(params=["old", "new"])
def runner(request, shared):
    up(shared.peer("http-old"), "old", "new")
    return shared.peer(f"http-{request.param}", "run")


def test_run_shows_pictures_and_the_like_as_what_they_are(runner):
    def content(code):
        result = runner.call("run", {"code": code})
        assert not result.get("isError"), result
        return result["content"]

    (picture,) = content("old.picture()")
    assert (picture["type"], picture["mimeType"]) == ("image", "image/png")
    assert [block["type"] for block in content("[old.picture(), new.sound(), old.link()]")] == [
        "image",
        "audio",
        "resource_link",
    ]
    printed, blob = content("print('look:')\nnew.blob()")
    assert (printed["text"].strip(), blob["type"], blob["resource"]["uri"]) == ("look:", "resource", "file:///b.bin")
    (words,) = content("{'picture': old.picture()}")  # as a part of something it is a record
    assert words["type"] == "text"
    assert "image/png" in words["text"]
    assert "iVBOR" not in words["text"]


def test_a_stored_picture_is_read_as_a_blob_of_its_type(runner):
    code = "import json\njson.dumps([old.picture()['handle'], old.link()['handle']])"
    handle, link = said(runner, "run", {"code": code})
    (content,) = runner.result("resources/read", {"uri": f"ot://results/{handle}"})["contents"]
    assert (content["mimeType"], content["blob"][:11]) == ("image/png", "iVBORw0KGgo")
    (content,) = runner.result("resources/read", {"uri": f"ot://results/{link}"})["contents"]
    assert json.loads(content["text"])["uri"] == "file:///notes/today.txt"


def test_code_joins_what_servers_of_both_eras_say(runner):
    code = """
import asyncio, json
first, second = await asyncio.gather(old.add(a=1, b=2), new.add(a=3, b=4))
json.dumps([float(first) + float(second), old.json_text(), new.nothing(), new.get_it_now(the_city='Rome')])
"""
    assert said(runner, "run", {"code": code}) == [10, {"a": [1, 2], "b": None}, None, "Rome"]


@pytest.mark.parametrize("era", ["old", "new"])
def test_menu_search_finds_and_calls(shared, era):
    peer = shared.peer(f"http-{era}", "search")
    up(shared.peer(f"http-{era}"), "old", "new")
    found = peer.text("search", {"query": "structured", "limit": 5})
    assert {"old.structured", "new.structured"} <= {line.partition("(")[0] for line in found.splitlines()}
    picture = peer.call("call", {"name": "new.picture"})["content"][0]
    assert picture["type"] == "image"
    answer = peer.call("call", {"name": "old.structured", "args": {"city": "Rome"}})
    assert (answer["content"][0]["text"], answer["structuredContent"]) == ("21 degrees", {"c": 21, "city": "Rome"})
    refused = peer.call("call", {"name": "old.structured", "args": {}})
    assert refused["isError"] is True
    assert "city: expected a value (required), got nothing" in refused["content"][1]["text"]


def test_large_values_are_stored_and_can_be_read_on(runner):
    (words,) = runner.call("run", {"code": "old.big(bytes=300_000)"})["content"]
    assert len(words["text"]) < 20_000
    handle = re.search(r'handle: "?(\w+)', words["text"])[1]
    (content,) = runner.result("resources/read", {"uri": f"ot://results/{handle}"})["contents"]
    assert content["text"] == "x" * 300_000
