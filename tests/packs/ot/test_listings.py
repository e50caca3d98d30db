"""`ot.tools` as code and allow-lists meet it: real names, the catalogue of the moment, and ten thousand tools."""

import asyncio

import pytest
from bench.tokens import seven_packs
from helpers import BUILT_IN_PACKS, calls, each
from rs_bpe import openai

from onetool import App, ToolCall, ToolSpec
from onetool.core.inferred_schema import LastResults
from onetool.core.registry import Snapshot
from onetool.core.signature import as_identifier
from onetool.packs.ot.listings import SHORT, Listing
from onetool.script.names import ScriptNames


@pytest.fixture
def app(tmp_path):
    (tmp_path / "onetool.yaml").write_text("stats: {enabled: false}\naliases: {shout: tools.echo}\n")
    with App.open(tmp_path / "onetool.yaml") as app:
        yield app


def spec(name, **more):
    return ToolSpec(**{"name": name, "description": "d", "handler": lambda **_: name, **more})


def tools(app, allowed=None, **args):
    result = asyncio.run(app.call(ToolCall("1", "ot.tools", args, "test"), allowed))
    assert result.ok, result.error
    return result.data


def listing(*specs):
    return Listing(lambda catalogue: {one.name: one.name for one in catalogue}), Snapshot(
        {one.name: one for one in specs}
    )


# Names


def test_names_are_what_code_writes(app):
    odd = ["12306-mcp.get-date", "a.class", "a.b.c", "print", "a", "déjà.vu", "x-y.t", "x_y.t", "two words", "class"]
    for name in odd:
        app.catalog.registry.register(spec(name))
    names = ScriptNames(app.catalog.registry.snapshot())
    shown = tools(app, info="list")
    assert shown == [names.spelling(one) for one in app.catalog.registry]
    assert "_12306_mcp.get_date" in shown
    assert all(names.tool(name) is not None for name in shown)
    called = [name for name in shown if name.partition(".")[0] not in BUILT_IN_PACKS]
    assert sorted(app.run_sync(f"[{', '.join(f'{name}()' for name in called)}]").data) == sorted(odd)


def test_every_name_of_real_servers_is_what_code_writes(app, live_tools):
    for one in live_tools:
        app.catalog.registry.add(spec(one["name"], description=one["description"], input_schema=one["inputSchema"]))
    names = ScriptNames(app.catalog.registry.snapshot())
    listed = tools(app, info="full")
    assert len(listed) == len(app.catalog.registry)
    assert [tool["name"] for tool in listed] == [names.spelling(one) for one in app.catalog.registry]
    assert all(tool["signature"].startswith(f"{tool['name']}(") for tool in listed)
    assert all(": " in text for tool in listed for text in tool.get("args", ()))


def test_a_tool_is_found_by_both_of_its_names(app):
    app.catalog.registry.register(spec("12306-mcp.get-date"))
    for pattern in ("12306-mcp.", "_12306_MCP.", "get-d", "get_d"):
        assert tools(app, pattern=pattern, info="list") == ["_12306_mcp.get_date"]


def test_arguments_are_spelled_as_code_writes_them():
    ask, catalogue = listing(
        spec(
            "a.b", input_schema={"type": "object", "properties": {"from": {"type": "string", "description": " Where "}}}
        )
    )
    [tool] = ask.tools(catalogue, info="full")
    assert (tool["signature"], tool["args"]) == ("a.b(from_: str = '...')", ["from_: Where"])


# What is listed


def test_what_is_hidden_or_switched_off_is_not_listed():
    ask, catalogue = listing(spec("a.shown"), spec("a.hidden", hidden=True), spec("a.off", enabled=False))
    assert ask.tools(catalogue, info="list") == ["a.shown"]


def test_an_allow_list_counts_for_the_list_as_well(app):
    allowed = ["fs.read_file", "time.now", "ot.tools", "no.such"]
    assert tools(app, allowed, info="list") == ["ot.tools", "time.now", "fs.read_file"]
    assert tools(app, allowed, pattern="fs", info="list") == ["fs.read_file"]
    assert app.run_sync('ot.tools(info="list")', allowed).data == ["ot.tools", "time.now", "fs.read_file"]


def test_a_change_of_the_catalogue_is_seen_at_once(app):
    assert tools(app, pattern="late") == []
    app.catalog.registry.register(spec("late.tool"))
    assert tools(app, pattern="late", info="list") == ["late.tool"]


def test_outside_of_an_app_there_is_nothing_to_list():
    from onetool.packs.ot.listings import current_catalogue

    catalogue, allowed = current_catalogue()
    assert (len(catalogue), allowed) == (0, None)


def test_code_can_filter_what_it_gets(app):
    code = '[tool["name"] for tool in ot.tools() if "folder" in tool["description"]]'
    assert app.run_sync(code).data == ["fs.list_dir"]


# How much is told


def test_in_short_a_description_is_its_first_paragraph():
    first = "Finds things.\n  In many places."
    ask, catalogue = listing(
        spec("a.b", description=f"{first}\n\nNot to be read at a glance."), spec("a.c", description="x" * 999)
    )
    brief, long = ask.tools(catalogue)
    assert brief["description"] == "Finds things. In many places."
    assert len(long["description"]) == SHORT
    assert ask.tools(catalogue, pattern="b", info="full")[0]["description"].endswith("glance.")


def test_a_value_without_words_is_told_by_its_fields():
    schema = {"type": "object", "properties": {"iso": {"type": "string"}}, "required": ["iso"]}
    ask, catalogue = listing(spec("a.b", output_schema=schema, examples=("a.b()", "a.b(1)")))
    [tool] = ask.tools(catalogue, info="full")
    assert (tool["returns"], tool["example"]) == ("{iso: str}", "a.b()")


def test_what_was_inferred_of_a_value_is_told_as_inferred():
    learnt, nothing, declared = LastResults(), LastResults(), LastResults()
    schema = {"type": "object", "properties": {"iso": {"type": "string"}}}
    ask, catalogue = listing(
        spec("a.learnt", observed=learnt),
        spec("a.nothing", observed=nothing),
        spec("a.declared", observed=declared, output_schema=schema),
    )
    for seen in (learnt, declared):
        seen.note("", {"id": "7", "title": "x", "by": {"login": "ann"}})
    told = {tool["name"]: tool.get("returns") for tool in ask.tools(catalogue, info="full")}
    assert told == {
        "a.learnt": "{id: str, title: str, by: {login: str}} (as in the last result)",
        "a.nothing": None,
        "a.declared": "{iso?: str}",
    }
    learnt.note("", {"id": "8", "title": None, "by": None})
    [tool] = ask.tools(catalogue, pattern="learnt", info="full")
    assert tool["returns"] == "{id: str, title: None, by: None} (as in the last result)"
    assert tool["signature"] == "a.learnt() -> {id, title: None, by: None}"


@each(
    ("value", "told"),
    [("x", "str"), ([1, 2.5], "list[float]"), ({"ann@example.com": 1}, "dict[str, int]"), ([], "list"), ({}, "dict")],
)
def test_what_has_no_fields_is_told_by_its_type(value, told):
    seen = LastResults()
    seen.note("", value)
    ask, catalogue = listing(spec("a.b", observed=seen))
    assert ask.tools(catalogue, info="full")[0]["returns"] == f"{told} (as in the last result)"


# ot.search, ot.help of packs


def found(app, **args):
    result = asyncio.run(app.call(ToolCall("1", "ot.search", args, "test")))
    return result.data if result.ok else result.error


def test_a_search_in_a_pack_finds_its_tools_alone(app):
    for name in ("stock.quote", "kospi_stock.quote", "my-stock.quote"):
        app.catalog.registry.register(spec(name, description="The quote of a stock."))
    [line, _] = found(app, query="stock quote", pack="stock")
    assert line == "stock.quote(): The quote of a stock."
    assert found(app, query="stock quote", pack="my_stock")[0].startswith("my_stock.quote()")
    assert found(app, query="stock quote", pack="my-stock")[0].startswith("my_stock.quote()")
    error = found(app, query="stock", pack="stok")
    assert error.code == "invalid_args"
    assert "There is no pack 'stok'; did you mean stock?" in error.message
    hidden = asyncio.run(
        app.call(ToolCall("1", "ot.search", {"query": "x", "pack": "stok"}), ["ot.search", "fs.list_dir"])
    )
    assert "stock?" not in hidden.error.message


def test_a_limit_that_is_given_replaces_the_budget_of_tokens(app):
    for number in range(60):
        app.catalog.registry.register(spec(f"shop.order{number}", description=f"Order a thing. {'x ' * 40}"))
    assert len(found(app, query="order a thing")) == 5 + 1
    assert len(found(app, query="order a thing", limit=30)) == 30 + 1
    *lines, also, more = found(app, query="order a thing", limit=60)
    assert (len(lines), also[:5], more[-18:]) == (50, "Also:", "More: other words.")


def test_a_search_with_a_limit_fills_16_kb_and_is_not_stored(app):
    for number in range(60):
        words = f"order a thing {chr(34) * 30}{'价格' * 28}"
        app.catalog.registry.register(spec(f"shop.order_{number}_{'x' * 62}", description=words))
    reply = app.reply(asyncio.run(app.run("ot.search('order a thing', limit=60)")))
    assert reply.stored is None
    *lines, also, more = reply.text.splitlines()
    assert (also[:8], more[-19:]) == ('- "Also:', 'More: other words."')
    assert len(lines) < 50
    assert 15_000 < len("\n".join(lines).encode()) < len(reply.text.encode()) <= 16 * 1024


def test_help_of_seven_packs_with_23_real_tools_takes_3_500_tokens(app, live_tools):
    for one in live_tools:
        app.catalog.registry.add(spec(one["name"], description=one["description"], input_schema=one["inputSchema"]))
    packs = [as_identifier(pack) for pack in seven_packs()]
    text = asyncio.run(app.call(ToolCall("1", "ot.help", {"query": packs}, "test"))).data
    assert len([line for line in text.splitlines() if line.startswith("- ")]) == 23
    assert len(openai.o200k_base().encode(text)) <= 3_500


def test_ten_thousand_tools_are_listed_with_little_work():
    names = [f"pack-{number % 200}.tool-{number}" for number in range(10_000)]
    ask, catalogue = listing(*(spec(name, description="What it does, in some words. " * 5) for name in names))
    with calls(100 * len(names)):
        assert ask.tools(catalogue, pattern="tool-777", info="list")[0] == "pack-177.tool-777"
        assert len(ask.tools(catalogue)) == 10_000


LONG = ("x y zz " * 430_000, "x" * 3_000_000)


@pytest.mark.long
@pytest.mark.parametrize("query", LONG)
@pytest.mark.parametrize(
    ("name", "argument", "more"),
    [
        ("ot.help", "query", {}),
        ("ot.search", "query", {}),
        ("ot.tools", "pattern", {}),
        ("ot.packs", "pattern", {}),
        ("ot.snippets", "pattern", {"info": "full"}),
        ("ot.stats", "period", {}),
        ("ot.stats", "output", {}),
        ("ot.signature", "name", {}),
    ],
)
def test_a_query_of_megabytes_costs_what_its_beginning_does(name, argument, more, query):
    with App.open() as app:
        asyncio.run(app.call(ToolCall("1", name, {argument: "x", **more})))  # what is made once
        counts = []
        for _ in range(3):  # vectors of meanings may be loaded during one of them
            with calls() as made:
                result = asyncio.run(app.call(ToolCall("2", name, {argument: query, **more})))
            counts.append(made())
        assert min(counts) <= 10_000
    assert len(str(result.data)) + len(str(result.error)) < 5_000
