"""What a tool gives, on its way to the client: data, content, and what is too large or too long for one message."""

import json
import re

import pytest
import yaml
from helpers import definition, until
from interfaces.mcp.peers import HttpPeer
from interfaces.mcp.servers import CONFIG

from onetool.core.schema import CompiledSchema

SCHEMA = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
    "required": ["x", "y"],
}


def test_an_object_of_a_known_form_comes_as_data_too(peer):
    tools = {tool["name"]: tool for tool in peer.result("tools/list")["tools"]}
    assert tools["working__point"]["outputSchema"].items() >= SCHEMA.items()
    result = peer.call("working__point", {"x": 1, "y": 2})
    assert result["structuredContent"] == {"x": 1, "y": 2}
    assert [json.loads(block["text"]) for block in result["content"]] == [{"x": 1, "y": 2}]
    assert "isError" not in result
    assert "outputSchema" not in tools["working__lines"]
    assert "structuredContent" not in peer.call("working__lines", {"count": 1})
    failed = peer.call("working__point", {"x": "one"})
    assert failed["isError"] is True
    assert "structuredContent" not in failed


def test_what_is_no_object_comes_as_data_in_a_wrapper(peer):
    tools = {tool["name"]: tool for tool in peer.result("tools/list")["tools"]}
    schema = tools["plus"]["outputSchema"]
    assert (schema["type"], schema["required"], schema["x-fastmcp-wrap-result"]) == ("object", ["result"], True)
    assert schema["properties"]["result"]["type"] == "integer"
    result = peer.call("plus", {"a": 1, "b": 2})
    assert (result["structuredContent"], result["content"][0]["text"]) == ({"result": 3}, "3")
    listed = peer.call("fs__list_dir", {"path": "."})
    assert listed["structuredContent"]["result"] == json.loads(listed["content"][0]["text"])
    assert CompiledSchema(tools["fs__list_dir"]["outputSchema"]).check(listed["structuredContent"]) == []


def test_run_gives_text_alone(runner):
    assert "structuredContent" not in runner.call("run", {"code": "[1, 2]"})


def test_run_gives_data_to_programs_where_the_config_says_so(serve, tmp_path):
    config = tmp_path / "structured.yaml"
    config.write_text(f"run: {{structured: true}}\npacks: [{CONFIG.parent / 'packs'}]")
    asked = HttpPeer(serve(config=config), "new", query="?menu=run")
    (listing,) = asked.result("tools/list")["tools"]
    assert "outputSchema" not in listing
    answer = asked.call("run", {"code": "[1, {'a': None}]"})
    assert answer["structuredContent"] == {"result": [1, {"a": None}]}
    assert answer["content"][0]["text"] == "- 1\n- {a: null}"
    large = asked.call("run", {"code": "['line'] * 20_000"})
    assert large["structuredContent"] == {"handle": stored(large)[2]}
    assert "structuredContent" not in asked.call("run", {"code": "1 / 0"})
    picture = asked.call("run", {"code": "[drawing.alone(), 'x']"})
    assert [block["type"] for block in picture["content"]] == ["image", "text"]
    assert "structuredContent" not in picture


def test_content_comes_as_what_it_is(peer):
    assert peer.call("working__picture")["content"] == [
        {"type": "text", "text": "look:"},
        {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
    ]


def test_content_that_code_gives_is_shown_after_what_it_prints(runner):
    *printed, words, picture = runner.call("run", {"code": "print('see:')\nworking.picture()"})["content"]
    assert [block["text"].strip() for block in (*printed, words)] == ["see:", "look:"]
    assert picture["type"] == "image"
    assert runner.text("run", {"code": "working.picture()[0]"}) == "look:"


def test_values_that_json_can_hardly_say_do_not_disturb_anything(peer):
    assert peer.call("working__odd_text")["content"][0]["text"].endswith(" \u2028 \x00 \x7f 🦊")
    assert json.loads(peer.text("working__big_number")) == 10**30
    assert peer.text("plus", {"a": 1}) == "1"


def test_what_goes_in_comes_out_whatever_is_in_it(peer):
    for text in ("", "a\nb\r\n\tc", "\u2028\u2029\x85", "\x00", "🦊 é e\u0301", '"\\/', "data: x\n\nid: 1\n"):
        assert peer.text("tools__echo", {"message": text}) == text


# Too large to send


def stored(result):
    """The words alone, the address of the whole, and its handle."""
    (words,) = result["content"]
    assert "isError" not in result
    handle = re.search(r'handle: "?(\w+)', words["text"])[1]
    return words["text"], f"ot://results/{handle}", handle


def how_to_read_on(words, pattern):
    """What the words say after that, in parts."""
    return re.search(f"\nRead on with: {pattern}(?:\nCompute with all of it in code: .*)?$", words).groups()


def test_a_large_result_is_stored_and_can_be_read(peer):
    text = "\n".join(f"line {number}" for number in range(1, 1001))
    words, uri, _ = stored(peer.call("working__lines", {"count": 1000}))
    assert len(words) < 2000
    assert "line 1\n" in words
    assert "line 1000" not in words
    assert f"size: {len(text)}, lines: 1000" in words
    (content,) = peer.result("resources/read", {"uri": uri})["contents"]
    assert content == {"uri": uri, "mimeType": "text/plain", "text": text}


def test_what_just_fits_is_not_stored(peer):
    fits = peer.call("tools__echo", {"message": "é" * 1000})["content"]
    assert [len(block["text"]) for block in fits] == [1000]
    stored(peer.call("tools__echo", {"message": "é" * 1000 + "."}))


def test_the_rest_is_read_by_the_call_that_the_words_name(peer):
    words, _, handle = stored(peer.call("working__lines", {"count": 1000}))
    tool, arguments = how_to_read_on(words, r"the tool (\w+) with (\{.*\})")
    offset = json.loads(arguments)["offset"]
    assert json.loads(arguments)["handle"] == handle
    assert f"\nline {offset - 1}\nRead on" in words
    page = yaml.safe_load(peer.text(tool, {**json.loads(arguments), "limit": 2}))
    assert page["lines"] == [f"line {offset}", f"line {offset + 1}"]


def test_the_same_in_code(runner):
    words, uri, _ = stored(runner.call("run", {"code": "working.lines(count=1000)"}))
    (code,) = how_to_read_on(words, r"(ot\.result\(.*\))")
    last = int(re.search(r"line (\d+)\nRead on", words)[1])
    assert f"line {last + 1}" in runner.text("run", {"code": code.replace(")", ", limit=3)")})
    assert runner.result("resources/read", {"uri": uri})["contents"][0]["text"].endswith("\nline 1000")


def test_the_same_where_tools_are_searched_for(shared_peers):
    for way in ("stdio-old", "http-new"):
        peer = shared_peers(way, "search")
        words, _, _ = stored(peer.call("call", {"name": "working.lines", "args": {"count": 1000}}))
        (arguments,) = how_to_read_on(words, r'call\(name="ot\.result", args=(\{.*\})\)')
        page = yaml.safe_load(peer.text("call", {"name": "ot.result", "args": json.loads(arguments)}))
        assert f"\n{page['lines'][0]}\n" not in words
        assert f"\nline {page['offset'] - 1}\n" in words


def test_a_page_that_is_too_large_is_cut_and_goes_on_where_it_says(shared_peers):
    """Not stored in its turn, in any menu."""
    text = f"{'a' * 3000}\n{'b' * 3000}"
    for menu, name, args in (
        ("direct", "{}__{}", lambda tool, args: args),
        ("search", "call", lambda tool, args: {"name": tool, "args": args}),
        ("run", "run", lambda tool, args: {"code": f"{tool}(**{args})"}),
    ):
        peer = shared_peers("stdio-old", menu)
        _, _, handle = stored(peer.call(name.format("tools", "echo"), args("tools.echo", {"message": text})))
        got, next = "", {"offset": 1, "column": 1}
        while next is not None:
            arguments = args("ot.result", {"handle": handle, **next})
            (block,) = peer.call(name.format("ot", "result"), arguments)["content"]
            assert len(block["text"]) <= 2000
            page = yaml.safe_load(block["text"])
            assert page["total_lines"] == 2
            assert page["returned"] == len(page["lines"]) == 1
            got += page["lines"][0]
            assert page["offset"] == next["offset"]
            assert page.get("cut", False) is page["has_more"] is ("next" in page)
            next = page.get("next")
        assert got == text.replace("\n", "")


def test_a_stored_result_belongs_to_whoever_made_it(serve, tmp_path):
    """With a token, an owner is whoever has it; what was stored before the token changed is another's."""
    config = tmp_path / "onetool.yaml"

    def write(token):
        config.write_text(json.dumps({"http": {"token": token}, "menu": "direct", "results": {"inline_bytes": 100}}))

    write("one" * 8)
    server = serve(config=config)
    peer = HttpPeer(server, "new", token="one" * 8)
    _, uri, handle = stored(peer.call("tools__echo", {"message": "x" * 200}))
    assert peer.result("resources/read", {"uri": uri})["contents"]
    write("two" * 8)
    server.reload()
    other = HttpPeer(server, "new", token="two" * 8)
    until(lambda: other.send(other.message("tools/list")).status == 200)
    assert other.error("resources/read", {"uri": uri})["code"] == -32602
    assert "not found" in other.text("ot__result", {"handle": handle}).lower()


def test_a_handle_that_there_is_not(peer):
    code = -32602 if peer.is_new else -32002
    for handle in ("0" * 32, "..", "../../etc/passwd", "", "%2e%2e", "a/b", "\x00"):
        refused = peer.error("resources/read", {"uri": f"ot://results/{handle}"})
        assert refused["code"] == code, (handle, refused)
        assert refused["data"] == {"uri": f"ot://results/{handle}"}


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-06-18", "2025-03-26", "2024-11-05"])
def test_the_config_adds_a_link(serve, tmp_path, revision):
    """Clients from before there were links get its address as text."""
    config = tmp_path / "linked.yaml"
    config.write_text(f"menu: run\nresults: {{link: true}}\npacks: [{CONFIG.parent / 'packs'}]")
    era = {} if revision == "2026-07-28" else {"revision": revision}
    peer = HttpPeer(serve(config=config), "old" if era else "new", **era)
    words, where = peer.call("run", {"code": "working.lines(count=2000)"})["content"]
    handle = re.search(r'handle: "?(\w+)', words["text"])[1]
    if revision >= "2025-06-18":
        assert (where["type"], where["mimeType"], where["size"]) == ("resource_link", "text/plain", 18_892)
        assert where["uri"] == f"ot://results/{handle}"
    else:
        assert where == {"type": "text", "text": f"result-{handle[:8]}: ot://results/{handle}"}


# Too long to list


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A config with 1,300 tools."""
    folder = tmp_path_factory.mktemp("many")
    tools = [definition(f"tool_{number}") for number in range(1300)]
    (folder / "onetool.yaml").write_text(json.dumps({"menu": "direct", "tools": tools}))
    return folder / "onetool.yaml"


def pages(peer):
    cursor, found = None, []
    while True:
        page = peer.result("tools/list", {} if cursor is None else {"cursor": cursor})
        found.append([tool["name"] for tool in page["tools"]])
        cursor = page.get("nextCursor")
        if cursor is None:
            return found


def test_many_tools_come_in_pages(many, stdio_peer, serve):
    server = serve(config=many)
    for peer in (stdio_peer("old", config=many), HttpPeer(server, "new")):
        found = pages(peer)
        assert [len(page) for page in found[:-1]] == [1000]
        everything = [name for page in found for name in page]
        assert [name for name in everything if name.startswith("tool_")] == [f"tool_{n}" for n in range(1300)]
        assert len(set(everything)) == len(everything)
        for cursor in ("0", "-1", "1000.0", "x", "", "9" * 30, "99999", "١٠"):
            refused = peer.error("tools/list", {"cursor": cursor})
            assert (refused["code"], refused["message"]) == (
                -32602,
                "Invalid params.cursor: begin again without it",
            ), cursor
        assert (
            peer.error("tools/list", {"cursor": 1000})["message"]
            == "params.cursor: expected a string, got the number 1000"
        )


def test_run_stays_one_small_tool(many, stdio_peer):
    (tool,) = stdio_peer("old", "--menu", "run", config=many).result("tools/list")["tools"]
    assert len(json.dumps(tool)) < 2500
    assert "… and" in tool["description"]


def test_a_large_text_beside_a_picture_is_stored(runner):
    told, picture = runner.call("run", {"code": "print('see:')\n[*working.picture(), 'a line\\n' * 5_000]"})["content"]
    assert picture["type"] == "image"
    assert "The result is large and was stored." in told["text"]
    handle = re.search(r"\w{32}", told["text"])[0]
    assert runner.text("run", {"code": f"ot.result(handle='{handle}', limit=1)['lines'][0]"}) == "see:"
