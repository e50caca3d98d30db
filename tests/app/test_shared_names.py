"""A tool without a pack beside a pack, bundle, server or alias of its name: each is called by its own name."""

import asyncio
import time

import pytest

from onetool.app import App
from onetool.sources.bundles.names import new_id

TIDE = (
    "tools: [{name: tide, description: d, type: function, handler: tide, parameters: {type: object, properties: {}}, "
    "implementation: {type: mock, mock_response: ebb}}]\nstats: {enabled: false}\n"
)
SHARED = "a pack is also called tide: tide() calls the tool, and tide.NAME() a tool of the pack"
PACK = 'pack = "tide"\n\n\ndef high() -> int:\n    """Return the hour."""\n    return 5\n'


def opened(folder, more=""):
    (folder / "onetool.yaml").write_text(TIDE + more)
    return App.open(folder / "onetool.yaml")


def value(app, code):
    return asyncio.run(app.run(code)).value()


def warnings(app):
    return [(one.key, one.message) for one in app.mistakes]


def with_pack(folder):
    (folder / "high.py").write_text(PACK)
    return opened(folder, "packs: [high.py]\n")


def with_bundle(folder):
    app, id = opened(folder), new_id(time.time())
    app.bundles.put_bundle(id, {"slug": "tide"})
    app.bundles.put_tool(id, "high", "1", {"type": "script", "argSchema": {}, "scriptImpl": {"code": "5"}})
    return app


@pytest.mark.parametrize("place", [with_pack, with_bundle])
def test_both_are_called_by_their_names(tmp_path, place):
    with place(tmp_path) as app:
        assert value(app, "(tide(), tide.high(), [f() for f in (tide, tide.high)])") == ["ebb", 5, ["ebb", 5]]
        assert value(app, "sorted(ot.tools('tide', info='list'))") == ["tide", "tide.high"]
        assert warnings(app) == [("tools.tide", SHARED)]


def test_beside_a_server_that_does_not_answer(tmp_path):
    with opened(tmp_path, "servers: {tide: {url: 'http://127.0.0.1:9/mcp'}}\n") as app:
        assert warnings(app) == [("tools.tide", SHARED)]
        assert value(app, "tide()") == "ebb"


def test_an_alias_beside_a_pack(tmp_path):
    (tmp_path / "flood.py").write_text(PACK.replace("tide", "flood"))
    with opened(tmp_path, "packs: [flood.py]\naliases: {flood: tide, tide: flood.high}\n") as app:
        assert value(app, "(tide(), flood(), flood.high())") == ["ebb", "ebb", 5]
        assert warnings(app) == [
            ("aliases.tide", "tide is already a tool"),
            ("aliases.flood", SHARED.replace("tide", "flood").replace("the tool", "the alias")),
        ]


def test_beside_a_module_of_python(tmp_path):
    with opened(tmp_path, "aliases: {time: tide}\n") as app:
        assert value(app, "import time\ntime.sleep(0)\n(time(), time.now()['timestamp'] > 0)") == ["ebb", True]
