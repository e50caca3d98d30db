"""The app: what it wires together really reaches the tools."""

import asyncio
import json
import logging

import pytest
from helpers import definition, run

from onetool import App, ToolCall

PACK = '''
from onetool.sdk import get_config, get_secret

def settings() -> dict:
    """My settings."""
    return dict(get_config())

def secret(name: str):
    """Whether a secret is there."""
    return get_secret(name) is not None

def leak(name: str):
    """Give a secret away."""
    return {"deep": [get_secret(name)]}
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(PACK)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("in docs")
    (tmp_path / "b.txt").write_text("beside")
    return tmp_path


def opened(folder, **config):
    (folder / "onetool.yaml").write_text(json.dumps({"packs": ["mine.py"], **config}))
    return App.open(folder / "onetool.yaml")


def test_settings_reach_their_pack(folder):
    app = opened(folder, settings={"mine": {"unit": "C"}})
    assert run(app.runtime.executor, "mine.settings").data == {"unit": "C"}


def test_fs_sees_its_roots_alone(folder):
    app = opened(folder, fs={"roots": ["docs"]})
    assert run(app.runtime.executor, "fs.read_file", path="a.txt").data == "in docs"
    assert run(app.runtime.executor, "fs.read_file", path=str(folder / "b.txt")).error.reason == "denied"


def test_settings_in_the_wrong_place_are_told(folder):
    app = opened(folder, settings={"fs": {"roots": ["."]}, "mien": {"x": 1}})
    assert [(mistake.key, mistake.severity) for mistake in app.mistakes] == [
        ("settings.mien", "warning"),
        ("settings.fs.roots", "warning"),
    ]


def test_secrets_reach_tools_and_leave_them_masked(folder):
    app = opened(folder, secrets={"KEY": "hunter2-hunter2"})
    assert run(app.runtime.executor, "mine.secret", name="KEY").data is True
    assert run(app.runtime.executor, "mine.secret", name="OTHER").data is False
    assert run(app.runtime.executor, "mine.leak", name="KEY").data == {"deep": ["***"]}


def test_stats_can_be_switched_off_and_on_again(folder):
    app = opened(folder, stats={"enabled": False})
    run(app.runtime.executor, "time.now")
    assert app.info("time.now")["calls"] is None
    assert not (folder / "state.db").exists()
    (folder / "onetool.yaml").write_text("stats: {enabled: true}\n")
    app.reload()
    run(app.runtime.executor, "time.now")
    assert app.info("time.now")["calls"] == 1


def test_close_writes_what_was_counted(folder):
    with opened(folder) as app:
        run(app.runtime.executor, "time.now")
    assert App.open(folder / "onetool.yaml").info("time.now")["calls"] == 1


def test_tools_that_are_off_or_hidden_are_not_shown(folder):
    app = opened(folder, tools=[definition("off", enabled=False), definition("hidden", hidden=True), definition("on")])
    assert [spec.name for spec in app.tools()][-1] == "on"
    assert not {"off", "hidden"} & {spec.name for spec in app.tools()}
    assert not {"off", "hidden"} & {spec.name for spec, _ in app.search("weather", 10)}
    assert run(app.runtime.executor, "hidden").ok
    assert run(app.runtime.executor, "off").error.reason == "denied"


def test_search_follows_a_reload(folder):
    app = opened(folder)
    assert app.search("zebra") == []
    opened(folder, tools=[definition("zebra")])
    app.reload()
    assert app.search("zebra")[0][0].name == "zebra"


def test_near_names_are_offered_only_among_the_allowed(folder):
    app = opened(folder)
    error = asyncio.run(app.call(ToolCall("1", "fs.read_fil"), allowed=["fs.list_dir"])).error
    assert "fs.read_file" not in error.message


def test_warnings_of_the_config_are_logged(folder, caplog):
    opened(folder, secrets={"KEY": "inline-secret"})
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "inline-secret" not in caplog.text


def test_its_registry_takes_further_tools(folder):
    app = opened(folder)
    app.catalog.registry.register(definition("clock", implementation={"type": "builtin", "handler": "time.now"}))
    app.catalog.registry.register(definition("state", implementation={"type": "internal", "handler": "health"}))
    assert "iso" in run(app.runtime.executor, "clock").data
    assert run(app.runtime.executor, "state").data["registry"]["status"] == "ok"


def test_eight_seconds_unless_somebody_says_otherwise(folder):
    from onetool.core.executor import DEFAULT_TIMEOUT

    assert DEFAULT_TIMEOUT == 8.0
    assert opened(folder).runtime.executor._timeout == 8.0


def test_a_schema_is_compiled_once(folder, monkeypatch):
    from onetool.core import schema

    compiled = []
    real = schema._compile
    monkeypatch.setattr(schema, "_compile", lambda one: compiled.append(one) or real(one))
    (folder / "mine.py").write_text("def double(number: int) -> int:\n    'Twice.'\n    return 2 * number\n")
    app = opened(folder)
    for _ in range(5):
        assert run(app.runtime.executor, "mine.double", number=1).data == 2
    assert len(compiled) == 2  # what it takes, and what it gives


def test_a_tool_that_was_refused_says_why(folder):
    (folder / "broken.py").write_text("import nonexistent_library\n")
    (folder / "mine.py").write_text("import socket\ndef odd(s: socket.socket):\n    'O.'\n")
    app = opened(folder, packs=["mine.py", "broken.py"], tools=[definition("bad", parameters={"type": "array"})])
    for name, why in (("bad", 'expected "object"'), ("mine.odd", "socket"), ("broken.any", "nonexistent_library")):
        error = asyncio.run(app.call(ToolCall("1", name))).error
        assert (error.code, error.reason) == ("tool_not_found", "refused")
        assert why in error.message
    assert asyncio.run(app.call(ToolCall("1", "other"))).error.reason is None
