"""What is stored of a server: of any shape it stops nobody, and what another process writes is noticed."""

import json

import pytest
from document_stores import in_home
from helpers import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from sources.mcp_servers.harness import call, settle

from onetool import App
from onetool.database.restoring import restore

SHAPES = {
    "a tool without a name": {"tools": [{"description": "x"}]},
    "and approved": {"tools": [{"description": "x"}], "approved": {}},
    "an empty name": {"tools": [{"name": ""}]},
    "a schema that is a list": {"tools": [{"name": "a", "inputSchema": [1]}]},
    "a resource without an address": {"tools": [], "offers": {"resources": [{}]}},
    "an argument that is a number": {"tools": [], "offers": {"prompts": [{"name": "x", "arguments": [1]}]}},
    "annotations that are a text": {"tools": [{"name": "a", "annotations": "x"}]},
    "a shape that can't be": {
        "tools": [{"name": "a"}],
        "seen": {"a": {"results": 1, "levels": 2, "shape": {"kinds": ["object"], "fields": {"a": {}}, "required": 3}}},
    },
    "a name that is a number": {"tools": [{"name": 1}], "approved": {"1": {"x": "y"}}},
    "required that is true": {
        "tools": [{"name": "a", "inputSchema": {"type": "object", "properties": {"a": {}}, "required": True}}]
    },
    "items that are a number": {"tools": [{"name": "a", "outputSchema": {"type": ["array"], "items": 3}}]},
}

scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=5)
values = st.recursive(
    scalars, lambda of: st.lists(of, max_size=3) | st.dictionaries(st.text(max_size=5), of, max_size=3), max_leaves=8
)


def some(**fields):
    """A dict with some of these, each of any value or of its own kind."""
    return st.fixed_dictionaries({}, optional={name: values | kind for name, kind in fields.items()})


schemas = some(
    type=st.sampled_from(["object", "array", "string"]),
    properties=st.dictionaries(st.text(max_size=3), values, max_size=2),
    required=st.lists(st.text(max_size=3), max_size=2),
    items=values,
)
definitions = some(
    name=st.text(max_size=5), inputSchema=schemas, outputSchema=schemas, annotations=values, uri=st.text(max_size=9)
)
listed = st.lists(definitions, max_size=3)
memories = some(
    tools=listed,
    offers=some(prompts=listed, resources=listed, templates=listed),
    approved=st.dictionaries(st.text(max_size=3), st.dictionaries(st.text(max_size=3), st.text(max_size=3))),
    former=st.dictionaries(st.text(max_size=3), definitions, max_size=2),
    seen=st.dictionaries(st.text(max_size=3), some(results=values, levels=values, shape=values), max_size=2),
    unusable=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    version=st.text(max_size=3),
    failed=st.floats(),
)


@pytest.fixture
def remembered(harness):
    """Have this stored of the server `one`, and open the app."""
    harness.config({"one": harness.nasty("ok", pin=True)})
    config = harness.folder / "onetool.yaml"
    with App.open(config) as app:
        shelf = app.servers.proxy("one")._cache

    def opened(memory):
        if isinstance(memory, dict):
            memory = {"server": shelf.nothing().server, **memory}
        in_home(harness.folder, "servers").write(shelf._key, json.dumps(memory).encode())
        return App.open(config)

    return opened


def look_around(app):
    """What everybody does who only wants to know what there is."""
    app.tools()
    assert app.servers.load().mistakes is not None
    assert [status.name for status in app.servers.statuses()] == ["one"]
    app.servers.differences("one")
    app.health()
    app.servers.proxy("one").changed()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_document_of_a_shape_that_can_not_be_stops_nobody(remembered, shape):
    with remembered(SHAPES[shape]) as app:
        look_around(app)


@pytest.mark.parametrize("shape", [*SHAPES][::3])
def test_and_its_server_can_be_used(harness, remembered, shape):
    harness.config({"one": harness.nasty("ok")})
    with remembered(SHAPES[shape]) as app:
        assert settle(app)["one"].state == "connected"
        assert call(app, "one.echo", text="x").data == "x"


@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(memory=memories | values)
def test_a_document_of_any_shape_stops_nobody(remembered, memory):
    with remembered(memory) as app:
        look_around(app)


# Another process writes, too


@pytest.fixture
def proxy(harness):
    with harness.app({"one": harness.nasty("ok", pin=True)}) as app:
        call(app, "one.echo", text="x")
        yield app.servers.proxy("one")


def by_another(shelf, memory):
    shelf.write(replace(memory, version="by another"))


def test_what_another_writes_while_we_read_is_noticed(proxy, monkeypatch):
    shelf = proxy._cache
    real = shelf.load

    def load():
        version, memory = real()
        by_another(shelf, memory)
        return version, memory

    shelf.write(replace(proxy.cached, former={}, version="by one"))
    monkeypatch.setattr(shelf, "load", load)
    proxy.reread_approvals()
    monkeypatch.setattr(shelf, "load", real)
    proxy.reread_approvals()
    assert proxy.cached.version == "by another"


def test_what_another_writes_when_we_have_written_is_noticed(proxy, monkeypatch):
    shelf = proxy._cache
    real = shelf.write

    def write(memory):
        written = real(memory)
        monkeypatch.setattr(shelf, "write", real)
        by_another(shelf, memory)
        return written

    monkeypatch.setattr(shelf, "write", write)
    proxy.approve()
    proxy.reread_approvals()
    assert proxy.cached.version == "by another"


def test_a_damaged_database_lets_pinned_servers_wait(harness, tmp_path):
    blocks = {"one": harness.nasty("ok", pin=True), "two": harness.nasty("ok")}
    with harness.app(blocks) as app:
        settle(app)
        assert not app.servers.proxy("one").is_refused
    for file in tmp_path.glob("state.db-*"):
        file.unlink()
    (tmp_path / "state.db").write_bytes(b"garbage" * 1000)
    with App.open(harness.config(blocks)) as app:
        settle(app)
        assert [app.servers.proxy(name).is_refused for name in ("one", "two")] == [True, False]
    restore(tmp_path / "state.db")
    with harness.app(blocks) as app:  # its tools count as new
        settle(app)
        assert not app.servers.proxy("one").is_refused
