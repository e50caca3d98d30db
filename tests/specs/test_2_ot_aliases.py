"""2-ot-pack.md: one test for each scenario of `ot.aliases`, named after it."""

import asyncio

import pytest
from helpers import cli
from specs.ot import Agent

from onetool import ToolCall

ALIASES = {"ws": "brave.web_search", "alias_f": "demo.foo", "research": "demo.bar"}
MAPPINGS = ["ws -> brave.web_search", "alias_f -> demo.foo", "research -> demo.bar"]


@pytest.fixture
def agent(tmp_path):
    with Agent(tmp_path, packs=["brave", "demo"], aliases=ALIASES) as agent:
        yield agent


# Requirement: Alias Introspection


def test_list_all_aliases(agent):
    assert agent.value("ot.aliases()") == MAPPINGS
    assert agent.value("ot.aliases()") == agent.value('ot.aliases(info="min")')


@pytest.mark.parametrize("pattern", ["search", "SEARCH", "earc"])
def test_filter_by_pattern(agent, pattern):
    """One has it in its target, the other in its name."""
    assert agent.value(f"ot.aliases(pattern={pattern!r}, info='list')") == ["ws", "research"]


def test_info_level_list(agent):
    assert agent.value('ot.aliases(info="list")') == ["ws", "alias_f", "research"]


@pytest.mark.parametrize("how", ["", 'info="min"'])
def test_info_level_min(agent, how):
    assert agent.value(f"ot.aliases({how})") == MAPPINGS
    text = agent.reads(f"ot.aliases({how})")
    assert all(mapping in text for mapping in MAPPINGS)


def test_info_level_full(agent):
    assert agent.value('ot.aliases(info="full")') == [
        {"name": "ws", "target": "brave.web_search"},
        {"name": "alias_f", "target": "demo.foo"},
        {"name": "research", "target": "demo.bar"},
    ]


# Beyond the scenarios


def test_an_alias_that_is_listed_can_be_called(agent):
    assert agent.value('alias_f(n=2) if "alias_f" in ot.aliases(info="list") else None') == "foofoo"


def test_without_aliases(tmp_path):
    with Agent(tmp_path) as agent:
        for info in ("list", "min", "full"):
            assert agent.value(f"ot.aliases(info={info!r})") == []


def test_an_alias_whose_target_is_gone_says_that(tmp_path):
    with Agent(tmp_path, packs=["brave"], aliases={"ws": "brave.web_searc", "old": "gone.tool"}) as agent:
        for code in ("old(query='x')", "value = old\nvalue(query='x')", "ot.call('old', {})"):
            assert "old is an alias of gone.tool, and there is no tool gone.tool" in agent.error(code).message, code
        assert (
            "there is no tool brave.web_searc; did you mean brave.web_search?" in agent.error("ws(query='x')").message
        )
        result = asyncio.run(agent.app.call(ToolCall("1", "old", {})))
        assert (result.error.code, "alias of gone.tool" in result.error.message) == ("tool_not_found", True)
        told = cli("tools", "info", "old", "--config", str(agent.file), cwd=tmp_path)
        assert "alias of gone.tool" in told.stderr
