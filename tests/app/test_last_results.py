"""The types of a caller's last result stand in the tool's signature, where it declares none. Values never do."""

import asyncio
import sys
from pathlib import Path

import pytest

from onetool import App, ToolCall
from onetool.core.principal import LOCAL, Principal, current_principal
from onetool.core.signature import signature

SERVER = Path(__file__).parents[1] / "sources" / "mcp_servers" / "nasty" / "ok.py"
SHOP = '''
def item(which: str = "a") -> dict:
    """Get an item."""
    if which == "none":
        raise ValueError(which)
    return {"a": {"id": 1, "name": "tea", "by": {"login": "ann"}}, "b": {"other": 1}}[which]

def declared(n: int = 1) -> dict[str, int]:
    """Count."""
    return dict(a=n)
'''


@pytest.fixture
def opened(tmp_path):
    (tmp_path / "packs").mkdir()
    (tmp_path / "packs" / "shop.py").write_text(SHOP)
    (tmp_path / "onetool.yaml").write_text("packs: [packs]\n")
    with App.open(tmp_path / "onetool.yaml") as app:
        yield app


def call(app, name, principal=LOCAL, **args):
    token = current_principal.set(principal)
    try:
        result = asyncio.run(app.call(ToolCall("1", name, args, "test")))
    finally:
        current_principal.reset(token)
    app.runtime.recorder.flush()
    return result


def returns(app, name, principal=LOCAL):
    token = current_principal.set(principal)
    try:
        return signature(app.catalog.registry.get(name)).partition("-> ")[2]
    finally:
        current_principal.reset(token)


def test_the_last_result_tells_what_a_tool_returns(opened):
    assert returns(opened, "shop.item") == "dict"
    call(opened, "shop.item")
    assert returns(opened, "shop.item") == "{id: int, name, by: {login}}"
    assert "tea" not in str(opened.catalog.registry.get("shop.item").observed.schema())


@pytest.mark.attack("other callers")
def test_no_other_caller_is_told(opened):
    ann, bob = Principal(owner="ann"), Principal(owner="bob")
    call(opened, "shop.item", ann)
    assert "login" in returns(opened, "shop.item", ann)
    assert returns(opened, "shop.item", bob) == returns(opened, "shop.item") == "dict"


def test_nothing_is_learned_from_failures_and_what_is_declared_stays(opened):
    assert not call(opened, "shop.item", which="none").ok
    assert returns(opened, "shop.item") == "dict"
    call(opened, "shop.declared")
    assert opened.catalog.registry.get("shop.declared").observed is None


def test_tools_of_servers_learn_as_well(tmp_path):
    server = {"command": sys.executable, "args": [str(SERVER)]}
    (tmp_path / "onetool.yaml").write_text(f"servers: {{ok: {server}}}\n")
    with App.open(tmp_path / "onetool.yaml") as app:
        asyncio.run(app.servers.wait_connected())
        assert call(app, "ok.json_text").ok
        assert returns(app, "ok.json_text") == "{a: list[int], b: None}"
