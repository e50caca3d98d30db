"""What clients see of all tools, what calling them gives, and what it says when that goes wrong."""

import re

import pytest
from interfaces.mcp.peers import HttpPeer
from interfaces.mcp.servers import CONFIG

PLUS = {
    "name": "plus",
    "description": "Add two numbers.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "One of them."},
            "b": {"type": "integer", "description": "The other.", "default": 0},
        },
        "required": ["a"],
    },
}


@pytest.fixture(params=["stdio-old", "stdio-new", "http-old", "http-new"])
def searcher(request, shared_peers):
    """A client with menu search."""
    return shared_peers(request.param, "search")


def names(peer):
    return [tool["name"] for tool in peer.result("tools/list")["tools"]]


def config_with(folder, text):
    file = folder / "onetool.yaml"
    file.write_text(CONFIG.read_text().replace("[packs]", f"[{CONFIG.parent / 'packs'}]") + text)
    return file


# Which menu


def test_run_is_one_tool_and_takes_code(runner):
    (tool,) = runner.result("tools/list")["tools"]
    assert (tool["name"], list(tool["inputSchema"]["properties"])) == ("run", ["code"])
    assert "working" in tool["description"]
    assert "$squares" in tool["description"]
    assert runner.text("run", {"code": "working.add(a=2, b=3) * 10"}) == "50"
    assert runner.text("run", {"code": "$squares count=3"}) == "squares\n[0, 1, 4]"
    assert runner.text("run", {"code": "print('hi')\n[plus(1), plus(a=1, b=1)]"}) == "hi\n[1, 2]"


def test_search_is_three_tools(searcher):
    listed = {tool["name"]: tool["description"] for tool in searcher.result("tools/list")["tools"]}
    assert [*listed] == ["search", "call", "run"]
    assert "[changes]" in listed["run"]  # it says what the marks of lines mean
    found, more = searcher.text("search", {"query": "add two numbers", "limit": 1}).splitlines()
    assert found == "working.add(a: int, b: int = 0) -> int: Add two numbers."
    assert 'call(name="ot.help", args={"query":"working.add"})' in more
    assert "working.add" in searcher.text("call", {"name": "ot.help", "args": {"query": "working.add"}})
    assert len(searcher.text("search", {"query": "a"}).splitlines()) == 6
    assert searcher.text("search", {"query": "qqqqzzzzxxxx"}) == "Nothing found. Try other words."
    in_pack = searcher.text("search", {"query": "add", "pack": "working", "limit": 50}).splitlines()[:-1]
    assert in_pack
    assert all(line.startswith("working.") for line in in_pack)
    refused = searcher.call("search", {"query": "add", "pack": "wroking"})
    assert refused["isError"]
    assert "There is no pack 'wroking'; did you mean working?" in refused["content"][0]["text"]
    assert searcher.text("call", {"name": "working.add", "args": {"a": 2}}) == "2"
    assert searcher.text("call", {"name": "shell.pwd"}).startswith("/")
    assert searcher.text("run", {"code": "[working.add(a=n) for n in range(3)]"}) == "[0, 1, 2]"
    assert "did you mean working.add" in searcher.failure("call", {"name": "working.ad", "args": {}})
    assert "b: expected a whole number" in searcher.failure("call", {"name": "working.add", "args": {"a": 1, "b": "x"}})


def test_direct_is_every_tool_under_its_name_or_its_first_alias(peer):
    tools = {tool["name"]: tool for tool in peer.result("tools/list")["tools"]}
    assert PLUS.items() <= tools["plus"].items()
    assert {"ot__tools", "time__now", "working__point", "in_region"} <= tools.keys()
    assert not {"add", "working__add", "run", "search", "greeting"} & tools.keys()
    assert peer.text("plus", {"a": 2, "b": 3}) == "5"
    assert peer.text("in_region") == '{"ok":true}'


def test_ot_prints_yaml_in_flow_style_in_every_menu(shared_peers):
    in_full = {"pattern": "ot.result", "info": "full"}
    for menu, name, args, long in (
        ("direct", "ot__tools", {"pattern": "working.add"}, in_full),
        (
            "search",
            "call",
            {"name": "ot.tools", "args": {"pattern": "working.add"}},
            {"name": "ot.tools", "args": in_full},
        ),
        (
            "run",
            "run",
            {"code": "ot.tools(pattern='working.add')"},
            {"code": "ot.tools(pattern='ot.result', info='full')"},
        ),
    ):
        peer = shared_peers("stdio-old", menu)
        assert peer.text(name, args) == "- {name: working.add, description: Add two numbers.}"
        assert re.fullmatch("- {name: ot.result, .{1000,}}", peer.text(name, long))
    told = shared_peers("stdio-old", "direct").text("ot__health")
    assert told.startswith("version: ")
    assert "\nregistry: {status: " in told
    assert shared_peers("stdio-old", "direct").text("in_region") == '{"ok":true}'


def test_without_a_word_it_is_run(stdio_peer, serve):
    assert names(stdio_peer("old")) == ["run"]
    assert names(HttpPeer(serve(), "new")) == ["run"]


def test_the_config_chooses_and_the_one_who_starts_it_chooses_better_and_over_http_the_client(
    stdio_peer, serve, tmp_path
):
    config = config_with(tmp_path, "menu: search\n")
    assert names(stdio_peer("new", config=config)) == ["search", "call", "run"]
    assert names(stdio_peer("old", "--menu", "run", config=config)) == ["run"]
    server = serve("--menu", "run", config=config)
    assert names(HttpPeer(server, "new")) == ["run"]
    for era in ("old", "new"):
        peer = HttpPeer(server, era, query="?menu=search&x=1")
        assert names(peer) == ["search", "call", "run"]
        peer.close()


def test_a_menu_that_there_is_not_is_refused(shared_server, http_peer):
    for era in ("old", "new"):
        peer = http_peer(era, begun=False, query="?menu=all")
        exchange = peer.send(peer.message("initialize" if era == "old" else "tools/list"))
        assert exchange.status == 400
        assert exchange.message["error"]["message"] == "Invalid menu=all: use one of run, search, direct"


def test_a_session_keeps_the_menu_that_it_began_with(http_peer):
    peer = http_peer("old", query="?menu=search")
    peer.path = "/mcp"
    assert names(peer) == ["search", "call", "run"]


def test_a_tool_of_another_menu_is_not_there(searcher):
    refused = searcher.error("tools/call", {"name": "plus", "arguments": {"a": 1}})
    assert (refused["code"], refused["message"]) == (-32602, "Unknown tool: plus")


def test_an_allow_list_holds_in_every_menu(stdio_peer):
    allow = ("--tool-allow", "working.add,working.fail")
    peer = stdio_peer("old", "--menu", "direct", *allow)
    assert names(peer) == ["plus", "working__fail"]
    assert peer.result("resources/read", {"uri": "ot://tools"})["contents"][0]["text"].splitlines() == [
        "working.add: Add two numbers.",
        "working.fail: Fail with words.",
    ]
    assert peer.error("resources/read", {"uri": "ot://tools/shell.pwd"})["code"] == -32002
    peer = stdio_peer("new", "--menu", "search", *allow)
    *found, more = peer.text("search", {"query": "working directory", "limit": 50}).splitlines()
    assert {line.partition("(")[0] for line in found} == {"working.add", "working.fail"}
    assert "ot.help" not in more
    assert "not allowed" in peer.failure("call", {"name": "shell.pwd"})
    assert "not allowed" in peer.failure("run", {"code": "working.add(a=1)\not.call('shell.pwd')"})
    peer = stdio_peer("old", "--menu", "run", *allow)
    assert peer.text("run", {"code": "working.add(a=1)"}) == "1"
    assert "shell" in peer.failure("run", {"code": "shell.pwd()"})


def test_help_names_nothing_that_the_menu_does_not_have(stdio_peer):
    code = ("in code", "in one run", "$squares", "$name")
    for menu, name, args, runs in (
        ("run", "run", lambda query: {"code": f"ot.help({query!r})"}, True),
        ("search", "call", lambda query: {"name": "ot.help", "args": {"query": query}}, True),
        ("direct", "ot__help", lambda query: {"query": query}, False),
    ):
        peer = stdio_peer("old", "--menu", menu)
        told = peer.text(name, args("")) + peer.text(name, args("squares of numbers"))
        assert [word in told for word in code] == [runs] * len(code), (menu, told)
    peer = stdio_peer("old", "--menu", "run", "--tool-allow", "ot.help,ot.tools")
    assert set(re.findall(r"ot\.\w+", peer.text("run", {"code": "ot.help()"}))) == {"ot.help", "ot.tools", "ot.call"}


# What goes wrong


def test_an_unknown_tool_is_an_error_that_names_the_likely_one(peer):
    refused = peer.error("tools/call", {"name": "working__poin"})
    assert refused["code"] == -32602
    assert refused["message"].startswith("Unknown tool: working__poin; did you mean working__point")


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, "params.name is missing: tools/call needs it"),
        ({"name": 7}, "params.name: expected a string, got the number 7"),
        ({"name": "plus", "arguments": [1]}, "params.arguments: expected an object, got a list of 1 item"),
        ({"name": "plus", "arguments": "a"}, "params.arguments: expected an object, got the string 'a'"),
    ],
)
def test_params_that_are_none_are_told(shared_peers, params, words):
    for way in ("stdio-old", "stdio-new", "http-old"):
        refused = shared_peers(way).error("tools/call", params)
        assert (refused["code"], refused["message"]) == (-32602, words)


def test_no_arguments_are_as_good_as_an_empty_object(peer):
    for params in ({}, {"arguments": None}, {"arguments": {}}):
        assert peer.result("tools/call", {"name": "shell__pwd", **params})["content"]


def test_wrong_arguments_come_back_as_words_that_help(peer):
    words = peer.failure("plus", {"a": "two", "c": 1})
    assert "a: expected a whole number" in words
    assert "c: unknown argument (known: a, b)" in words
    assert words.endswith("\n  working.add(a: int, b: int = 0) -> int")


def test_a_tool_that_fails_says_why_and_what_to_do(peer):
    assert peer.failure("working__fail") == "Error: the shop is closed\n  come back tomorrow"
    words = peer.failure("working__crash")
    assert "boom" in words
    assert "Traceback" not in words


def test_code_that_fails_says_where_and_what_to_do(runner):
    for code, expected in (
        ("1 +", "line 1"),
        ("working.ad(a=1)", "working.add"),
        ("working.add(a='x')", "a: expected a whole number"),
        ("working.fail()", "the shop is closed"),
        ("nothing", "nothing"),
        ("1 / 0", "division"),
        ("raise ValueError('mine')", "mine"),
    ):
        words = runner.failure("run", {"code": code})
        assert expected in words, (code, words)
        assert "Traceback" not in words
    assert runner.failure("run", {"code": "print('before')\n1 / 0"}).startswith("before\n")
    for arguments in ({}, {"code": 1}, {"code": "1", "more": 2}, {"Code": "1"}):
        words = runner.failure("run", arguments)
        assert words.startswith("Invalid arguments for run: ")
        assert "run(code: str)" in words
    assert runner.text("run", {"code": "1"}) == "1"


def test_the_command_line_offers_the_menus_that_there_are():
    from typing import get_args

    from onetool.config.model import Menu
    from onetool.interfaces.cli.options import MENUS

    assert get_args(Menu) == MENUS
