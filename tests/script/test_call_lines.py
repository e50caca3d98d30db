"""`+tool key=value`: one call on one line, which becomes the ordinary call."""

import ast
import json
import shlex

import pytest
from helpers import cli, each
from hypothesis import given
from hypothesis import strategies as st

from onetool import Registry, ToolSpec
from onetool.script.call_lines import expand_call_line, read_call_line
from onetool.script.names import ScriptNames
from onetool.script.parse import ScriptError

TEXT, WHOLE, ITEMS = {"type": "string"}, {"type": "integer"}, {"type": "array", "items": {"type": "string"}}
PROPERTIES = {
    "item": TEXT,
    "count": WHOLE,
    "tags": ITEMS,
    "size": {"enum": ["small", "large one"]},
    "fast": {"type": "boolean"},
    "from": {},
    "odd-name": TEXT,
}


def names_of(*tools, aliases=None, further=None):
    registry = Registry()
    for name in tools:
        registry.add(ToolSpec(name=name, description="d", input_schema={"type": "object", "properties": PROPERTIES}))
    registry.replace(list(registry), further)
    return ScriptNames(registry.snapshot(), aliases)


NAMES = names_of("shop.buy_it", "shop.price", "other.price", "12306-mcp.get-date", aliases={"b": "shop.buy_it"})


def args_of(text):
    return read_call_line(f"+shop.buy_it {text}", NAMES).args


def refusal(line, names=NAMES, allowed=None):
    with pytest.raises(ScriptError) as caught:
        expand_call_line(line, names, allowed)
    return str(caught.value)


# In `run`


@pytest.fixture(scope="module")
def shop(scripts_for_module):
    scripts_for_module.tool("shop.buy_it", lambda **args: args, "item", **PROPERTIES)
    return scripts_for_module


def test_a_line_is_the_ordinary_call(shop):
    assert shop.value("+shop.buy_it item=tea count=3") == {"item": "tea", "count": 3}
    assert shop.value(" \n+buy-it item='green tea' from=[1]\n") == {"item": "green tea", "from": [1]}
    assert shop.value("```\n+shop.buy-it item=3\n```") == {"item": "3"}
    assert shop.run("+buy_it item=tea").meta["calls"] == 1


def test_its_errors_are_those_of_a_call(shop):
    error = shop.error("+shop.buy_it itm=tea")
    assert (error.code, error.reason) == ("invalid_args", "check")
    assert "itm: unknown argument (did you mean item?)" in error.message
    assert "count: expected a whole number" in shop.error("+shop.buy_it item=tea count=many").message
    assert "did you mean shop.buy_it?" in shop.error("+shop.by_it item=tea").message
    assert "not allowed" in shop.error("+shop.buy_it item=tea", allowed=["time.now"]).message


@each("code", ["+5", "+ 5", "++5", "+True if 1 == 1 else 2", "+5 <= 9", "+5 == 5", "+5\n5"])
def test_python_stays_python(shop, code):
    assert shop.value(code) == eval(code.rpartition("\n")[2])


def test_a_name_alone_and_more_than_one_line_are_python(shop):
    assert "unary +" in shop.error("+shop.buy_it").message
    assert shop.value("x = 5\n+x") == 5
    assert "SyntaxError" in shop.error("+shop.buy_it item=tea\n1").message
    assert "SyntaxError" in shop.error("+shop.buy_it tea").message


def test_from_the_command_line(tmp_path):
    assert cli("run", "+echo message='a b'", cwd=tmp_path).stdout == "a b\n"
    wrong = cli("run", "+tools.ech message=a", cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "did you mean tools.echo?" in wrong.stderr


# Which tool


def test_a_tool_has_many_names():
    for name in ("shop.buy_it", "shop.buy-it", "buy_it", "buy-it", "b"):
        assert expand_call_line(f"+{name} item=tea", NAMES) == "shop.buy_it(item='tea')"
    assert expand_call_line("+12306-mcp.get-date item=x", NAMES) == "_12306_mcp.get_date(item='x')"
    assert expand_call_line("+get-date item=x", NAMES) == "_12306_mcp.get_date(item='x')"


def test_a_slug_of_several_tools_is_not_guessed():
    assert refusal("+price item=x") == "several tools have the slug price: name one of shop.price, other.price"
    assert expand_call_line("+price item=x", NAMES, {"other.price"}) == "other.price(item='x')"


def test_a_version_that_is_in_no_list():
    older = ToolSpec(name="shop.buy_it@1", description="d")
    names = names_of("shop.buy_it", further={older.name: older}.get)
    for name in ("shop.buy_it@1", "shop.buy-it@1", "buy-it@1"):
        assert expand_call_line(f"+{name} item=tea", names) == "ot.call('shop.buy_it@1', {'item': 'tea'})"
    assert refusal("+buy-it@2 item=tea", names) == "there is no version '2' of shop.buy_it"


def test_a_tool_of_a_bundle_by_its_slug(tmp_path):
    config = tmp_path / "onetool.yaml"
    config.write_text("{}")
    (tmp_path / "code.py").write_text('f"{city}: {days} days"')
    arguments = ("--arg", "city:string", "--arg", "days:integer=3")
    env = {"ONETOOL_CONFIG": str(config)}
    saved = cli("bundles", "save", "weather/fore-cast", "code.py", "--create", *arguments, cwd=tmp_path, env=env)
    assert saved.returncode == 0, saved.stderr
    for name in ("fore-cast", "weather.fore-cast", "weather.fore_cast", "weather.fore-cast@1"):
        done = cli("run", f"+{name} city='New York' days=2", cwd=tmp_path, env=env)
        assert done.stdout == "New York: 2 days\n", done.stderr


def test_names_that_mean_something_else_are_not_used():
    assert expand_call_line("+buy-it item=tea", NAMES, None, {"shop"}) == "ot.call('shop.buy_it', {'item': 'tea'})"


# Arguments


@each(
    ("text", "args"),
    [
        ("", {}),
        ("item=", {"item": ""}),
        ("item=a=b", {"item": "a=b"}),
        ("item==b", {"item": "=b"}),
        ("item=null count=null", {"item": "null", "count": None}),
        ("item=\"a b\"'c d'e\\ f", {"item": "a bc de f"}),
        ("item='[1]' tags='[\"a b\"]'", {"item": "[1]", "tags": ["a b"]}),
        ('tags=["a b", "c"] count=2', {"tags": ["a b", "c"], "count": 2}),
        ("tags=[a,b]", {"tags": "[a,b]"}),
        ("from=3 size=small fast=true", {"from": 3, "size": "small", "fast": True}),
        ("from={x} count=1.50", {"from": "{x}", "count": 1.5}),
        ("count=NaN from=1e999", {"count": "NaN", "from": "1e999"}),
        ("odd-name=1", {"odd-name": "1"}),
    ],
)
def test_values(text, args):
    assert args_of(text) == args


@each(
    ("line", "words"),
    [
        ('+shop.buy_it item="a', "item has a quote that is not closed"),
        ("+shop.buy_it item=a\\", "item has a quote that is not closed"),
        ("+shop.buy_it item=a item=b", "item is given twice"),
        ("+shop.buy_it item=a tea", "'tea' is not key=value; it takes item, count"),
        ("+nowhere.at_all item=a", "there is no tool 'nowhere.at_all'"),
    ],
)
def test_what_is_wrong_with_a_line(line, words):
    assert words in refusal(line)


@given(st.text(), st.dictionaries(st.text(max_size=3), st.none() | st.integers() | st.text()))
def test_any_text_and_any_data_come_through(text, data):
    line = f"+buy-it item={shlex.quote(text)} from={shlex.quote(json.dumps(data))}"
    assert read_call_line(line, NAMES).args == {"item": text, "from": data}
    if "\n" not in line:
        call = ast.parse(expand_call_line(line, NAMES), mode="eval").body
        assert {one.arg: ast.literal_eval(one.value) for one in call.keywords} == {"item": text, "from_": data}
