"""2-ot-pack.md: one test for each scenario of `ot.tools`, named after it."""

import ast
import json

import pytest
from helpers import cli, definition
from specs.ot import Agent, github

from onetool import ToolSpec
from onetool.core.signature import as_identifier


@pytest.fixture
def agent(tmp_path):
    servers = {"github": github(tmp_path)}
    with Agent(tmp_path, packs=["brave", "demo"], tools=[definition("weather")], servers=servers) as agent:
        yield agent


# Requirement: List Tools


def test_list_all_tools(agent):
    listed = agent.value("ot.tools()")
    assert [tool["name"] for tool in listed] == [spec.name for spec in agent.app.tools()]
    names = {tool["name"] for tool in listed}
    assert {"ot.tools", "ot.result", "fs.read_file", "weather", "brave.search", "github.search"} <= names
    assert listed == agent.value('ot.tools(info="min")')


@pytest.mark.parametrize("pattern", ["web_search", "WEB_SEARCH", "eb_sear", "brave.w", "ve.web"])
def test_filter_by_pattern(agent, pattern):
    assert [tool["name"] for tool in agent.value(f"ot.tools(pattern={pattern!r})")] == ["brave.web_search"]


def test_filter_by_pattern_finds_all_that_contain_it(agent):
    names = {tool["name"] for tool in agent.value('ot.tools(pattern="search")')}
    assert names == {"ot.search", "brave.search", "brave.web_search", "github.search"}


def test_info_level_list(agent):
    names = agent.value('ot.tools(info="list")')
    assert all(isinstance(name, str) for name in names)
    assert names == [tool["name"] for tool in agent.value("ot.tools()")]
    assert agent.value('ot.tools(pattern="fs.", info="list")') == ["fs.list_dir", "fs.read_file"]


@pytest.mark.parametrize("how", ["", ', info="min"'])
def test_info_level_min(agent, how):
    assert all(tool.keys() == {"name", "description"} for tool in agent.value(f'ot.tools(pattern=""{how})'))
    assert agent.value(f'ot.tools(pattern="weather"{how})') == [
        {"name": "weather", "description": "Says what the weather is like."},
    ]


def test_info_level_full(agent):
    listed = {tool["name"]: tool for tool in agent.value('ot.tools(info="full")')}
    assert all({"name", "signature", "description", "source"} <= tool.keys() for tool in listed.values())
    assert {tool["source"] for tool in listed.values()} == {"local", "proxy:github"}
    assert listed["brave.search"] == {
        "name": "brave.search",
        "signature": "brave.search(query: str, count: int = 10) -> list[str]",
        "description": "Search the web by Brave.",
        "source": "local",
        "args": ["query: What to look for", "count: How many results to give"],
        "returns": "Titles of pages, the best first.",
        "example": 'brave.search(query="tea", count=3)',
    }
    # Nothing is known of what it takes and gives.
    assert listed["weather"].keys() == {"name", "signature", "description", "source", "example"}
    assert listed["weather"]["example"] == "weather()"
    assert listed["github.search"]["source"] == "proxy:github"


def test_proxy_tool_signature_from_schema(agent):
    [tool] = agent.value('ot.tools(pattern="github.search", info="full")')
    assert tool["signature"] == "github.search(query: str, repo: str = '...', limit: int = 10)"
    assert tool["source"] == "proxy:github"


def test_proxy_tool_arguments_from_schema(agent):
    [tool] = agent.value('ot.tools(pattern="github.search", info="full")')
    assert tool["args"] == ["query: What to look for", "repo: Only in this repository"]


def test_proxy_tool_signature_and_arguments_of_real_servers(tmp_path, live_tools):
    """527 definitions as they come: each signature is Python, required parameters first and without a default."""
    with Agent(tmp_path, run={"max_output_bytes": 10_000_000}) as agent:
        for one in live_tools:
            agent.app.catalog.registry.add(
                ToolSpec(
                    name=one["name"],
                    description=one["description"],
                    input_schema=one["inputSchema"],
                    handler=lambda **_: None,
                    source=f"proxy:{one['name'].partition('.')[0]}",
                )
            )
        listed = agent.value('[tool for tool in ot.tools(info="full") if tool["source"] != "local"]')
    assert len(listed) == len(live_tools) == 527
    for tool, one in zip(listed, live_tools, strict=True):
        schema = one["inputSchema"]
        properties, required = schema.get("properties") or {}, schema.get("required") or []
        [function] = ast.parse(f"def f{tool['signature'].removeprefix(tool['name'])}: ...").body
        named = function.args.args
        assert len(named) == len(properties)
        assert len(function.args.defaults) == len(properties) - len(required)
        for parameter, default in zip(named[len(required) :], function.args.defaults, strict=True):
            wanted = properties.get(parameter.arg, {}).get("default", "...")
            assert ast.literal_eval(default) == wanted, tool["signature"]
        described = [name for name in properties if properties[name].get("description", "").strip()]
        args = dict(text.split(": ", 1) for text in tool.get("args", ()))
        assert all(args[as_identifier(name)].startswith(properties[name]["description"].strip()) for name in described)


# What the decisions add


def test_nothing_matches(agent):
    assert agent.value('ot.tools(pattern="no such thing")') == []


def test_an_unknown_level_is_refused_with_those_that_there_are(agent):
    error = agent.error('ot.tools(info="everything")')
    assert error.code == "invalid_args"
    assert all(level in error.message for level in ("list", "min", "full", "everything"))


def test_a_declared_tool_without_a_pack_is_under_config(agent):
    assert agent.value('ot.tools(pattern="config.", info="list")') == ["weather"]
    assert "weather" not in agent.value('ot.tools(pattern="config", info="list")')


def test_code_can_filter_what_it_gets(agent):
    code = '[tool["name"] for tool in ot.tools(info="full") if tool["source"].startswith("proxy:")]'
    assert agent.value(code) == ["github.search", "github.open_issue"]


def test_only_what_is_allowed_is_listed(agent):
    assert set(agent.value('ot.tools(info="list")', allowed=["ot.tools", "demo.foo"])) == {"ot.tools", "demo.foo"}


NEEDY = '''
from onetool.sdk import requires_cli, requires_lib

@requires_cli("rg", minimum="13", install="apt install ripgrep")
@requires_lib("pandas")
def search(words: str, most: int = 3) -> int:
    """Count lines with words in them."""
    return most
'''


def test_what_a_tool_needs_returns_and_looks_like_in_a_call(tmp_path):
    requires = [
        {"kind": "cli", "name": "rg", "minimum": "13", "install": "apt install ripgrep"},
        {"kind": "lib", "name": "pandas"},
    ]
    (tmp_path / "packs").mkdir()
    (tmp_path / "packs" / "ripgrep.py").write_text(NEEDY)
    with Agent(tmp_path) as agent:
        [full] = agent.value("ot.tools(pattern='ripgrep.', info='full')")
        assert (full["returns"], full["example"]) == ("int", "ripgrep.search(words='...')")
        assert full["requires"] == requires
        page = agent.value("ot.help('ripgrep.search')")
        assert "- rg (command; at least 13; to install it: apt install ripgrep)\n- pandas (library)" in page
        assert agent.app.info("ripgrep.search")["requires"] == requires
        told = cli("tools", "info", "ripgrep.search", "--config", str(agent.file), "--json", cwd=tmp_path)
        assert json.loads(told.stdout)["requires"] == requires
        assert "requires" not in agent.app.info("time.now")
