"""What tools return, learned from their first results: names and types, shared by all processes, never values."""

import asyncio
import json
import sys
from contextlib import contextmanager
from pathlib import Path
from time import time

import pytest
from helpers import cli, until
from postgres import database_url, postgres

from onetool import App, ToolCall
from onetool.app.learned_shapes import MAX_CALLERS
from onetool.core.inferred_schema import MAX_RESULTS
from onetool.core.principal import LOCAL, Principal, current_principal
from onetool.core.signature import signature
from onetool.sources.bundles.names import new_id

__all__ = ["database_url", "postgres"]  # fixtures

SERVER = Path(__file__).parents[1] / "sources" / "mcp_servers" / "nasty" / "ok.py"
SHOP = '''
ROWS = {"a": {"id": 1, "name": "tea", "by": {"login": "ann"}}, "b": {"other": 1}, "c": {"ann@example.com": 2}}

def item(which: str = "a") -> dict:
    """Get an item."""
    if which == "none":
        raise ValueError(which)
    return ROWS[which]

def rows(keys: list[str]) -> dict:
    """Get rows."""
    return dict([("rows", [dict.fromkeys(keys, 1)])])

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


@pytest.fixture(params=["sqlite", "postgres"])
def stored_in(request):
    """What the config says of where the state is."""
    return {} if request.param == "sqlite" else {"database": request.getfixturevalue("database_url")}


@pytest.fixture
def opened(tmp_path, stored_in):
    (tmp_path / "packs").mkdir()
    (tmp_path / "packs" / "shop.py").write_text(SHOP)
    (tmp_path / "onetool.yaml").write_text(json.dumps({"packs": ["packs"], "tools": [MOCK], **stored_in}))
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


ANN, BOB, EVE = (Principal(name=name, owner=name) for name in ("ann", "bob", "eve"))


@contextmanager
def acting(principal):
    before = current_principal.set(principal)
    try:
        yield
    finally:
        current_principal.reset(before)


def call_as(principal, app, name, **args):
    with acting(principal):
        return call(app, name, **args)


def shape_for(principal, app, name):
    with acting(principal):
        return shape(app, name)


def test_a_key_of_one_callers_results_is_told_to_nobody_else(opened):
    with opened() as app:
        call_as(ANN, app, "shop.item")
        assert shape_for(ANN, app, "shop.item") == "{id: int, name, by: {login}}"
        for other in (BOB, LOCAL):
            with acting(other):
                assert shape(app, "shop.item") == "{str: {str: str} | str | int}"
                told = (
                    app.run_sync("[ot.help('shop'), ot.help('shop.item'), ot.tools('shop')]").data,
                    app.info("shop.item", None),
                )
                assert "login" not in str(told)
        call_as(BOB, app, "shop.item")
        for one in (ANN, BOB, EVE, LOCAL):  # two callers have seen them: they are the tool's
            assert shape_for(one, app, "shop.item") == "{id: int, name, by: {login}}"


def test_a_name_of_items_needs_two_callers_as_well(opened):
    with opened() as app:
        call_as(ANN, app, "shop.rows", keys=["id", "ann_only"])
        call_as(BOB, app, "shop.rows", keys=["id", "bob_only"])
        assert shape_for(EVE, app, "shop.rows") == "{rows: [{id: int}]}"
        assert shape_for(ANN, app, "shop.rows") == "{rows: [{id: int, ann_only?: int}]}"


def test_each_caller_has_its_first_results_and_there_is_an_end(opened):
    with opened() as app:
        for _ in range(MAX_RESULTS):
            call_as(ANN, app, "shop.item")
        seen = app.catalog.registry.get("shop.item").observed
        assert (seen.learns_from("ann"), seen.learns_from("bob")) == (False, True)
        for number in range(MAX_CALLERS):
            call_as(Principal(owner=f"{number}"), app, "shop.item")
        assert not seen.learns_from("another")
        assert seen.results == MAX_RESULTS + MAX_CALLERS - 1


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
        assert not spec.observed.learns_from("")
        call(app, "shop.item", which="b")
        assert shape(app, "shop.item") == "{id: int, name, by: {login}}"


def test_other_processes_see_it_and_a_changed_source_forgets_it(opened, tmp_path):
    with opened() as app, opened() as other:
        assert shape(other, "shop.item") == "dict"
        call(app, "shop.item")
        until(lambda: shape(other, "shop.item") == "{id: int, name, by: {login}}")  # PostgreSQL is asked each second
    with opened() as app:
        assert shape(app, "shop.item") == "{id: int, name, by: {login}}"
    (tmp_path / "packs" / "shop.py").write_text(f"{SHOP}\n# changed\n")
    with opened() as app:
        assert shape(app, "shop.item") == "dict"
        call(app, "shop.item", which="b")
        assert shape(app, "shop.item") == "{other: int}"


def test_a_process_of_its_own_and_another_replica_see_it(opened, tmp_path, stored_in):
    with opened() as app:
        call(app, "shop.item")
        told = cli("--config", str(tmp_path / "onetool.yaml"), "tools", "info", "shop.item", "--json", cwd=tmp_path)
        assert json.loads(told.stdout)["signature"].endswith(" -> {id: int, name, by: {login}}")
        other = tmp_path / "other"
        other.mkdir()
        config = json.loads((tmp_path / "onetool.yaml").read_text())
        (other / "onetool.yaml").write_text(json.dumps({**config, "packs": [str(tmp_path / "packs")]}))
        with App.open(other / "onetool.yaml") as replica:
            shared = bool(stored_in)
            assert shape(replica, "shop.item") == ("{id: int, name, by: {login}}" if shared else "dict")
            call_as(ANN, replica, "shop.item", which="b")
        told = "{str: {login} | str | int}" if shared else "{id: int, name, by: {login}}"
        until(lambda: shape(app, "shop.item") == told)


def test_what_is_stored_of_a_pack_can_be_forgotten(opened):
    with opened() as app:
        app.catalog.shapes.forget("shop")
        call(app, "shop.item")
        app.catalog.shapes.forget("shop")
        assert app.runtime.documents("shapes").read("shop") is None
        asyncio.run(app.call(ToolCall("1", "shop.item", {}, "test")))  # its shape isn't stored yet
        app.catalog.shapes.forget("shop")
        app.catalog.shapes.write()
        assert app.runtime.documents("shapes").read("shop") is None


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


@pytest.mark.parametrize("stored_in", [{}])
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
