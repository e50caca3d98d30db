"""What tools return, learned from their first results: names and types, shared by all processes, never values."""

import asyncio
import json
import sys
from pathlib import Path
from time import time

import pytest

from onetool import App, ToolCall
from onetool.core.inferred_schema import MAX_RESULTS
from onetool.core.signature import signature
from onetool.sources.bundles.names import new_id

SERVER = Path(__file__).parents[1] / "sources" / "mcp_servers" / "nasty" / "ok.py"
SHOP = '''
ROWS = {"a": {"id": 1, "name": "tea", "by": {"login": "ann"}}, "b": {"other": 1}, "c": {"ann@example.com": 2}}

def item(which: str = "a") -> dict:
    """Get an item."""
    if which == "none":
        raise ValueError(which)
    return ROWS[which]

def declared(n: int = 1) -> dict[str, int]:
    """Count."""
    return dict(a=n)
'''
MOCK = {
    "name": "weather",
    "description": "Says it.",
    "type": "function",
    "handler": "x",
    "parameters": {"type": "object"},
    "implementation": {"type": "mock", "mock_response": [{"at": "noon", "degrees": 1.5}, {"at": "night"}]},
}


@pytest.fixture
def opened(tmp_path):
    (tmp_path / "packs").mkdir()
    (tmp_path / "packs" / "shop.py").write_text(SHOP)
    (tmp_path / "onetool.yaml").write_text(json.dumps({"packs": ["packs"], "tools": [MOCK]}))
    return lambda: App.open(tmp_path / "onetool.yaml")


def call(app, name, **args):
    result = asyncio.run(app.call(ToolCall("1", name, args, "test")))
    app.runtime.recorder.flush()
    app.catalog.shapes.write()
    return result


def shape(app, name):
    return signature(app.catalog.current_snapshot().get(name)).partition(" -> ")[2]


def test_the_first_results_tell_what_a_tool_returns(opened):
    with opened() as app:
        assert (shape(app, "shop.item"), shape(app, "weather")) == ("dict", "")
        assert call(app, "shop.item").ok
        assert call(app, "weather").ok
        assert shape(app, "shop.item") == "{id: int, name, by: {login}}"
        assert shape(app, "weather") == "[{at, degrees?: float}]"
        for where in (
            "ot.help('shop')",
            "ot.help('shop.item')",
            "ot.search('get an item')",
            "ot.signature('shop.item')",
        ):
            assert "-> {id: int, name, by: {login}}" in str(app.run_sync(where).data)
        assert app.info("shop.item", None)["signature"].endswith(" -> {id: int, name, by: {login}}")


def test_no_value_is_kept_and_keys_that_differ_or_are_data_are_a_map(opened):
    with opened() as app:
        call(app, "shop.item", which="c")
        assert shape(app, "shop.item") == "{str: int}"
        call(app, "shop.item")
        assert shape(app, "shop.item") == "{str: {login} | str | int}"
        kept = app.runtime.documents("shapes").read("shop")
        assert not any(word in kept for word in (b"ann", b"tea", b"login_"))


def test_nothing_is_learned_from_failures_and_what_is_declared_stays(opened):
    with opened() as app:
        assert not call(app, "shop.item", which="none").ok
        assert call(app, "shop.declared").ok
        assert (shape(app, "shop.item"), shape(app, "shop.declared")) == ("dict", "{str: int}")
        assert app.catalog.registry.get("shop.declared").observed is None


def test_only_the_first_results_are_looked_at_and_no_value_waits_afterwards(opened):
    with opened() as app:
        for _ in range(MAX_RESULTS):
            call(app, "shop.item")
        spec = app.catalog.registry.get("shop.item")
        assert spec.observed.is_full
        call(app, "shop.item", which="b")
        assert shape(app, "shop.item") == "{id: int, name, by: {login}}"


def test_other_processes_see_it_and_a_changed_source_forgets_it(opened, tmp_path):
    with opened() as app, opened() as other:
        assert shape(other, "shop.item") == "dict"
        call(app, "shop.item")
        assert shape(other, "shop.item") == "{id: int, name, by: {login}}"
    with opened() as app:
        assert shape(app, "shop.item") == "{id: int, name, by: {login}}"
    (tmp_path / "packs" / "shop.py").write_text(f"{SHOP}\n# changed\n")
    with opened() as app:
        assert shape(app, "shop.item") == "dict"
        call(app, "shop.item", which="b")
        assert shape(app, "shop.item") == "{other: int}"


def test_tools_of_servers_learn_as_well(opened, tmp_path):
    config = json.loads((tmp_path / "onetool.yaml").read_text())
    config["servers"] = {"good": {"command": sys.executable, "args": [str(SERVER)]}}
    (tmp_path / "onetool.yaml").write_text(json.dumps(config))
    with opened() as app:
        asyncio.run(app.servers.wait_connected())
        assert shape(app, "good.json_text") == ""
        assert call(app, "good.json_text").ok
        assert shape(app, "good.json_text") == "{a: list[int], b: None}"
        assert "good.echo(text: str) [reads]" in app.run_sync("ot.help('good')").data


def test_tools_of_bundles_learn_until_their_code_changes(opened):
    def put(version, code):
        tool = {"type": "script", "argSchema": {"type": "object"}, "scriptImpl": {"code": code}}
        app.bundles.put_tool(id, "row", version, tool)

    id = new_id(time())
    with opened() as app:
        app.bundles.put_bundle(id, {"slug": "mine"})
        put("1", "{'id': 1}")
        assert call(app, "mine.row").ok
        assert shape(app, "mine.row") == "{id: int}"
        put("2", "{'name': 'x'}")
        assert shape(app, "mine.row") == ""
        assert call(app, "mine.row").ok
        assert shape(app, "mine.row") == "{name}"


def test_looking_creates_no_database(opened, tmp_path):
    with opened() as app:
        assert shape(app, "shop.item") == "dict"
    assert not list(tmp_path.rglob("state.db"))


def test_damaged_documents_are_written_anew(opened):
    with opened() as app:
        app.runtime.documents("shapes").write("shop", b"rubbish")
        assert shape(app, "shop.item") == "dict"
        call(app, "shop.item")
        assert shape(app, "shop.item") == "{id: int, name, by: {login}}"
