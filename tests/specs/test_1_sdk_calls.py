"""1-sdk.md: Pack Access and Tool Invocation, one test for each scenario, in a real app with real packs."""

import asyncio
import json

import pytest
from helpers import definition, run

from onetool import App, ToolCall

LLM = '''
from onetool.sdk import get_config, get_secret

pack = "llm"

def transform(input: str, prompt: str) -> str:
    """Transform a text."""
    return f"{prompt}: {input} ({get_config().get('model')}, {get_secret('LLM_KEY')})"
'''
CALLER = '''
from onetool.sdk import call_tool, get_config, get_pack

def by_pack(text: str):
    """Call through a pack."""
    return get_pack("llm").transform(input=text, prompt="summarize")

def by_name(name: str, args: dict):
    """Call by name."""
    return call_tool(name, **args)

async def by_pack_async(text: str):
    """The same from async code."""
    return await get_pack("llm").transform(input=text, prompt="summarize")

def has(name: str) -> bool:
    """Whether there is such a pack."""
    return get_pack(name) is not None

def own() -> dict:
    """My own settings, before and after calling somebody else."""
    before = dict(get_config())
    get_pack("llm").transform(input="x", prompt="y")
    return {"before": before, "after": dict(get_config())}
'''


@pytest.fixture
def app(tmp_path):
    (tmp_path / "llm.py").write_text(LLM)
    (tmp_path / "caller.py").write_text(CALLER)
    (tmp_path / "onetool.yaml").write_text(
        "packs: [llm.py, caller.py]\nsettings: {llm: {model: tiny}, caller: {mine: 1}}\nsecrets: {LLM_KEY: k3y}\n"
    )
    app = App.open(tmp_path / "onetool.yaml")
    assert [one.key for one in app.mistakes] == ["LLM_KEY"]  # too short to be masked, so that the tests can see it
    return app


def test_retrieve_pack_proxy(app):
    for tool in ("caller.by_pack", "caller.by_pack_async"):
        result = run(app.runtime.executor, tool, text="hello")
        assert result.ok, result.error
        assert result.data == "summarize: hello (tiny, k3y)"  # the config and secrets of the pack that is called
    assert run(app.runtime.executor, "caller.own").data == {"before": {"mine": 1}, "after": {"mine": 1}}


def test_pack_not_found(app):
    assert run(app.runtime.executor, "caller.has", name="nonexistent").data is False
    assert run(app.runtime.executor, "caller.has", name="llm").data is True


def test_call_tool_successfully(app):
    args = {"input": "hello", "prompt": "summarize"}
    assert (
        run(app.runtime.executor, "caller.by_name", name="llm.transform", args=args).data
        == "summarize: hello (tiny, k3y)"
    )


def test_pack_not_found_error(app):
    error = run(app.runtime.executor, "caller.by_name", name="nonexistent.foo", args={"arg": "value"}).error
    assert error.message == "ValueError: Pack not found: nonexistent"


def test_a_tool_without_a_dot_is_in_the_pack_that_it_is_listed_under(tmp_path):
    """Everything shows it in the pack `config`."""
    source = (
        CALLER
        + '''
def weather(city: str):
    """Call through the pack of tools without a dot."""
    return get_pack("config").weather(city=city)
'''
    )
    (tmp_path / "caller.py").write_text(source)
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    config = {"packs": ["caller.py"], "tools": [definition(parameters=schema)], "aliases": {"sky": "config.weather"}}
    (tmp_path / "onetool.yaml").write_text(json.dumps(config))
    with App.open(tmp_path / "onetool.yaml") as app:
        assert run(app.runtime.executor, "caller.by_name", name="config.weather", args={"city": "Rome"}).data == {
            "c": 21
        }
        assert run(app.runtime.executor, "caller.weather", city="Rome").data == {"c": 21}
        assert asyncio.run(app.call(ToolCall("1", "config.weather", {"city": "Rome"}))).data == {"c": 21}
        for code in (
            "config.weather(city='Rome')",
            "weather(city='Rome')",
            "ot.call('config.weather', {'city': 'Rome'})",
            "from config import weather\nweather(city='Rome')",
            "sky(city='Rome')",
        ):
            result = app.run_sync(code)
            assert result.data == {"c": 21}, (code, result.error)
        assert "town: unknown argument" in app.run_sync("config.weather(town='Rome')").error.message
        assert app.run_sync("ot.help('config.weather')").data.startswith("# weather")
        assert app.run_sync("ot.tools(pattern='weather', info='list')").data == ["caller.weather", "weather"]
        wrong = run(app.runtime.executor, "caller.by_name", name="config.x", args={})
        assert "Tool not found: config.x" in wrong.error.message
