"""The catalogue as code sees it: every tool has a name that Python can say, and that name leads back to it."""

import ast
import asyncio
import json

import pytest
from helpers import each
from hypothesis import given
from hypothesis import strategies as st

from onetool import Registry, ToolSpec
from onetool.app import App
from onetool.script.names import BUILTINS, CALL, MISSING_BUILTINS, ScriptNames


def names_of(*tools, aliases=None):
    registry = Registry()
    for name in tools:
        registry.add(ToolSpec(name=name, description="d"))
    return ScriptNames(registry.snapshot(), aliases)


def can_be_said(spelling):
    """As the function of a call, in the letters that Python itself makes of it."""
    (statement,) = ast.parse(f"{spelling}()").body
    return ast.unparse(statement) == f"{spelling}()"


def test_every_real_tool_has_a_spelling_that_leads_back(live_tools):
    names = names_of(*(tool["name"] for tool in live_tools))
    spellings = {names.spelling(spec): spec for spec in names.catalogue}
    assert len(spellings) == len(live_tools) == 527
    for spelling, spec in spellings.items():
        assert can_be_said(spelling)
        assert names.tool(spelling) is spec


def test_odd_names():
    names = names_of("12306-mcp.get-date", "class.import", "größe.maß", "a.b.c", "solo-tool")
    assert [names.spelling(spec) for spec in names.catalogue] == [
        "_12306_mcp.get_date",
        "class_.import_",
        "größe.maß",
        "a.b_c",
        "solo_tool",
    ]


PARTS = st.text(st.sampled_from("ab_-é1"), min_size=1, max_size=3) | st.sampled_from(["if", "class", "ot", "call"])
TOOLS = st.lists(PARTS | st.builds("{}.{}".format, PARTS, PARTS), unique=True, max_size=12)


@given(TOOLS)
def test_any_tool_is_found_by_its_spelling(tools):
    names = names_of(*tools)
    for spec in names.catalogue:
        if spec.name != "ot.call":  # a word of the language
            assert can_be_said(names.spelling(spec))
            assert names.tool(names.spelling(spec)) is spec


@given(TOOLS.flatmap(lambda tools: st.tuples(st.just(tools), st.permutations(tools))))
def test_spellings_do_not_depend_on_the_order(both):
    one, other = (names_of(*tools) for tools in both)
    assert {spec.name: one.spelling(spec) for spec in one.catalogue} == {
        spec.name: other.spelling(spec) for spec in other.catalogue
    }


def test_a_tool_and_a_pack_may_share_a_name():
    names = names_of("time", "time.now")
    assert names.tool("time.now").name == "time.now"
    assert names.spelling(names.catalogue.get("time")) == "time"
    assert names.tool("time").name == "time"
    assert list(names.words()).count("time") == 1


def test_ot_call_is_always_there():
    assert names_of().tool("ot.call") is CALL
    assert names_of("ot.result").tool("ot.call") is CALL
    assert names_of("ot.call").tool("ot.call") is CALL


def test_aliases():
    names = names_of("12306-mcp.get-date", "fs.read", aliases={"d": "12306-mcp.get-date", "r": "fs.read"})
    assert names.tool("d").name == "12306-mcp.get-date"
    assert names.tool("r").name == "fs.read"
    assert names.useless == {}


@pytest.mark.parametrize("target", ["_12306_mcp.get_date", "12306-mcp.get-date"])
def test_an_alias_may_be_given_either_name(target):
    assert names_of("12306-mcp.get-date", aliases={"d": target}).tool("d").name == "12306-mcp.get-date"


def test_an_alias_of_nothing_is_told():
    assert names_of(aliases={"d": "no.tool"}).useless == {"d": "there is no tool no.tool"}


def test_an_alias_hides_neither_a_tool_nor_a_pack():
    names = names_of("fs.read", "solo", "other", aliases={"fs": "other", "solo": "other"})
    assert (names.tool("solo").name, names.useless) == ("solo", {"solo": "solo is already a tool"})
    assert (names.tool("fs").name, names.tool("fs.read").name) == ("other", "fs.read")
    assert names.shared() == ["fs"]


def test_a_tool_that_is_spelled_like_a_pack_keeps_its_name():
    names = names_of("high-tide", "high_tide.next")
    assert names.spelling(names.catalogue.get("high-tide")) == "high_tide"
    assert (names.tool("high_tide").name, names.tool("high_tide.next").name) == ("high-tide", "high_tide.next")
    assert names.tool("config.high_tide").name == "high-tide"


@each(
    ("code", "value"),
    [
        ("_12306_mcp.get_date()", "12306-mcp.get-date"),
        ("class_.import_()", "class.import"),
        ("größe.maß()", "größe.maß"),
        ("gro\u0308ße.maß()", "größe.maß"),
        ("solo_tool()", "solo-tool"),
        ("ot.call('12306-mcp.get-date')", "12306-mcp.get-date"),
        ("ot.call('solo-tool', {})", "solo-tool"),
        ("ot.call(name='class.import', args={})", "class.import"),
        ("f = class_.import_\nf()", "class.import"),
        ("import class_\nclass_.import_()", "class.import"),
        ("from _12306_mcp import get_date\nget_date()", "12306-mcp.get-date"),
        ("both.inner()", "both.inner"),
        ("ot.call('both')", "both"),
    ],
)
def test_they_run(odd, code, value):
    assert odd.value(code) == value


@pytest.fixture(scope="module")
def odd(scripts_for_module):
    for name in ("12306-mcp.get-date", "class.import", "größe.maß", "solo-tool", "both", "both.inner"):
        scripts_for_module.tool(name, lambda name=name: name)
    return scripts_for_module


# Tools named like Python's functions

KEPT = ["open", "input", "help"]
LIKE_PYTHON = ["filter", "format", "list", "type", "id", "hash", "map", "next", "sum", "print"]


@pytest.fixture(scope="module")
def declared(tmp_path_factory):
    """An app that declares tools named like functions of Python."""
    config = tmp_path_factory.mktemp("app") / "onetool.yaml"
    tools = [
        {
            "name": name,
            "description": "d",
            "type": "function",
            "handler": name,
            "parameters": {"type": "object", "properties": {"x": {"type": "string"}}},
            "implementation": {"type": "mock", "mock_response": f"the tool {name}"},
        }
        for name in KEPT + LIKE_PYTHON
    ]
    config.write_text(json.dumps({"tools": tools, "stats": {"enabled": False}}))
    with App.open(config) as app:
        yield app


@each("name", KEPT + LIKE_PYTHON)
def test_a_tool_named_like_a_function_of_python(declared, name):
    word = name if name in KEPT else f"{name}_"

    def value(code):
        return asyncio.run(declared.run(code)).value()

    assert value(f"{word}(x='1')") == value(f"f = {word}\n[f()][0]") == f"the tool {name}"
    assert value(f"config.{name}()") == value(f"ot.call({name!r})") == f"the tool {name}"
    assert word in value("ot.tools(info='list')")
    for signature in (value(f"ot.signature({name!r})"), declared.info(name)["signature"]):
        assert signature.startswith(f"{word}(x: str = '...')")
    assert value(f"ot.help({name!r})").startswith(f"# {word}\n")
    assert declared.catalog.real_name(word) == name
    warning = f"{name}() is Python's in code, so the tool is {word}() there"
    assert [one.message for one in declared.mistakes if one.key == f"tools.{name}"] == [warning] * (name != word)


@each("name", LIKE_PYTHON)
def test_a_wrong_call_of_the_function_names_the_tool(declared, name):
    error = asyncio.run(declared.run(f"{name}(x='1')")).error
    assert error.message.startswith("TypeError: ")
    assert error.hints[-1] == f"{name}() is Python's; the tool {name} is {name}_(…)"


def test_an_alias_does_not_hide_a_function_of_python():
    names = names_of("solo", aliases={"print": "solo", "open": "solo"})
    assert names.tool("open").name == "solo"
    assert names.useless == {"print": "print is a built-in name of Python"}


def test_the_functions_that_the_sandbox_has(scripts):
    """`open` exists there, but fails."""
    names = [name for name in BUILTINS if name[0] != "_" and name.islower()]
    tried = "".join(f"try:\n    {name}\nexcept NameError:\n    missing.append({name!r})\n" for name in names)
    missing = scripts.value(f"missing = []\n{tried}missing")
    assert {*missing, "open", "__import__"} == MISSING_BUILTINS.keys()


def test_a_tool_without_a_pack_is_found_under_config_too():
    names = names_of("weather", "config.other", "in-the-sky")
    assert names.tool("config.weather") is names.tool("weather") is not None
    assert names.tool("config.in_the_sky") is names.tool("in_the_sky") is not None
    assert names.tool("config.other").name == "config.other"
    assert names.spellings()["weather"] == "weather"


def test_what_is_called_config_itself_keeps_its_name():
    assert names_of("config", "weather").tool("config").name == "config"
    assert names_of("weather", "config.weather").tool("config.weather").name == "config.weather"
