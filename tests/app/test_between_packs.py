"""Values between packs are whole: secrets are masked where a value leaves for a model, a log or a person."""

import asyncio
import logging
import time

import pytest
from helpers import trusted

from onetool import ToolCall
from onetool.app import App
from onetool.sources.bundles.names import new_id

KEY = "sk-live-0123456789"
VAULT = f'''
"""Keeps keys."""
pack = "vault"

def key() -> str:
    """Returns a key."""
    return "{KEY}"

async def keys() -> dict:
    """Returns keys."""
    return {{"{KEY}": ["{KEY}"]}}
'''
USER = '''
"""Uses keys."""
from onetool.sdk import call_tool, get_pack
pack = "user"

def by_name() -> dict:
    """Calls by name."""
    key = call_tool("vault.key")
    return {"length": len(key), "key": key}

def by_pack() -> dict:
    """Calls a method of the pack."""
    key = get_pack("vault").key()
    return {"length": len(key), "key": key}

async def awaited() -> dict:
    """Awaits the call."""
    [(name, keys)] = (await call_tool("vault.keys")).items()
    return {"length": len(name), "key": keys[0]}

def fails() -> str:
    """Fails with the key."""
    raise ValueError("bad key " + call_tool("vault.key"))

def to_script() -> str:
    """Gives the key to a script."""
    return call_tool("scripts.reverse", text=call_tool("vault.key"))

def from_script() -> str:
    """Gets what a script made of the key."""
    return call_tool("scripts.fetch")
'''


@pytest.fixture
def app(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    home = tmp_path / ".onetool"
    (home / "packs").mkdir(parents=True)
    (home / "packs" / "vault.py").write_text(VAULT)
    (home / "packs" / "user.py").write_text(USER)
    (home / "onetool.yaml").write_text("menu: run\n")
    (home / "secrets.yaml").write_text(f"KEY: {KEY}\n")
    (home / "secrets.yaml").chmod(0o600)
    trusted(tmp_path)
    with App.open() as app:
        yield app


@pytest.fixture
def scripts(app):
    """Two script tools: one reverses its argument, one reverses what the vault returns."""
    id = new_id(time.time())
    app.bundles.put_bundle(id, {"slug": "scripts"})
    text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    reverse = {"type": "script", "argSchema": text, "scriptImpl": {"code": "text[::-1]"}}
    app.bundles.put_tool(id, "reverse", "1.0", reverse)
    app.bundles.put_tool(id, "fetch", "1.0", {"type": "script", "scriptImpl": {"code": "vault.key()[::-1]"}})


def called(app, name):
    return asyncio.run(app.call(ToolCall("1", name, {}, "test")))


@pytest.mark.parametrize("name", ["user.by_name", "user.by_pack", "user.awaited"])
def test_a_pack_gets_the_value_and_its_caller_a_mask(app, name):
    assert called(app, name).data == {"length": len(KEY), "key": "***"}


def test_code_gets_a_mask(app):
    assert asyncio.run(app.run("[len(vault.key()), user.by_name()['length']]")).value() == [3, len(KEY)]


def test_an_error_with_the_value_is_masked(app):
    assert called(app, "user.fails").error.message == "ValueError: bad key ***"


def test_events_and_logs_are_masked(app, caplog):
    events = []
    app.on_call(events.append)
    with caplog.at_level(logging.DEBUG, "onetool"):
        called(app, "user.awaited")
        called(app, "user.by_name")
        app.runtime.recorder.flush()
    assert {event.tool for event in events} == {"vault.key", "vault.keys", "user.by_name", "user.awaited"}
    assert {event.bytes_out for event in events if event.tool == "vault.key"} == {len("***")}
    assert KEY not in str(events)
    assert KEY not in str([vars(record) for record in caplog.records])


@pytest.mark.usefixtures("scripts")
@pytest.mark.parametrize("name", ["user.to_script", "user.from_script", "scripts.fetch"])
def test_a_script_tool_gets_a_mask(app, name):
    assert called(app, name).data == "***"


@pytest.mark.usefixtures("scripts")
def test_a_script_tool_gets_what_its_caller_sent(app):
    """Also through a pack: a mask would tell that a guess is right."""
    sent = ToolCall("1", "scripts.reverse", {"text": KEY}, "test")
    assert asyncio.run(app.call(sent)).data == KEY[::-1]
    through = ToolCall("1", "ot.call", {"name": "scripts.reverse", "args": {"text": KEY}}, "test")
    assert asyncio.run(app.call(through)).data == KEY[::-1]
    assert asyncio.run(app.run(f"ot.call('scripts.reverse', {{'text': '{KEY}'}})")).value() == KEY[::-1]
