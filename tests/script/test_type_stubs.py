"""What the type checker is told of our tools."""

import ast

from helpers import each

from onetool import App, ToolSpec
from onetool.core.inferred_schema import LastResults
from onetool.core.registry import Snapshot
from onetool.script.names import ScriptNames
from onetool.script.type_stubs import MORE, SELF, type_stubs

CODE = """
item = shop.item(id=1)
item["id"] + len(item["colour"]) + item.get("size", 0) + shop.item(id=2).get("id")
"""


def spec(name, **more):
    return ToolSpec(**{"name": name, "description": "d", "handler": lambda **_: None, **more})


def declared(*specs):
    names = ScriptNames(Snapshot({one.name: one for one in specs}))
    return type_stubs(names, {names.spelling(one).partition(".")[0] for one in specs})


def test_what_was_inferred_is_a_comment_and_no_type():
    seen = LastResults()
    seen.note("", {"id": 1, "title": None})

    text = declared(
        spec("shop.item", observed=seen), spec("plain", observed=seen), spec("shop.none", observed=LastResults())
    )
    comment = "# returns {id: int, title: None} (as in the last result)"
    assert f"    def item({SELF}, {MORE}) -> Any: ...  {comment}\n" in text
    assert f"def plain({MORE}) -> Any: ...  {comment}\n" in text
    assert f"    def none({SELF}, {MORE}) -> Any: ...\n" in text


@each("key", ["x\ny: int", "x\rdef y(): ...", "x\u2028y", "\x0c", '"""'])
def test_no_key_breaks_out_of_the_comment(key):
    seen = LastResults()
    seen.note("", {key: {key: 1}, "a": 1})
    text = declared(spec("shop.item", observed=seen))
    assert [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)] == ["item"]


def test_the_stubs_of_real_servers_are_python(live_tools):
    specs = [spec(one["name"], input_schema=one["inputSchema"], observed=LastResults()) for one in live_tools]
    for one in specs:
        one.observed.note("", {"id": 1, "class": "x", "content-type": "y", "名称": [{"@id": 5}]})
    text = declared(*specs)
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    assert len(functions) == len(specs) == 527


def test_a_value_may_have_more_than_was_inferred(tmp_path):
    seen = LastResults()
    seen.note("", {"id": "text"})  # so far; the next value is another one
    (tmp_path / "onetool.yaml").write_text("stats: {enabled: false}\nrun: {typecheck: true}\n")
    properties = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    with App.open(tmp_path / "onetool.yaml") as app:
        item = spec(
            "shop.item", observed=seen, input_schema=properties, handler=lambda **args: {**args, "colour": "red"}
        )
        app.catalog.registry.register(item)
        assert app.run_sync(CODE).data == 1 + 3 + 0 + 2
        assert app.run_sync("n = 'x'\nshop.item(id=n)").error.reason == "check"


def test_a_parameter_may_be_called_self(tmp_path):
    (tmp_path / "onetool.yaml").write_text("stats: {enabled: false}\nrun: {typecheck: true}\n")
    properties = {"type": "object", "properties": {"self": {"type": "integer"}, "more": {"type": "integer"}}}
    with App.open(tmp_path / "onetool.yaml") as app:
        app.catalog.registry.register(spec("shop.item", input_schema=properties, handler=lambda **args: args))
        assert app.run_sync("shop.item(self=1, more=2)").data == {"self": 1, "more": 2}
        assert app.run_sync("n = 'x'\nshop.item(self=n)").error.reason == "check"
