"""2-ot-pack.md: one test for each scenario of `ot.packs`, named after it."""

import pytest
from helpers import BUILT_IN_PACKS, definition
from specs.ot import Agent, github

INSTRUCTIONS = "Read before you write.\nRows start at 1."


@pytest.fixture
def agent(tmp_path):
    with Agent(
        tmp_path,
        packs=["brave", "excel"],
        prompts={"packs": {"excel": INSTRUCTIONS}},
        tools=[definition("weather")],
        servers={"github": github(tmp_path)},
    ) as agent:
        yield agent


# Requirement: Pack Discovery


def test_list_all_packs(agent):
    packs = {pack["name"]: pack for pack in agent.value("ot.packs()")}
    assert {*BUILT_IN_PACKS, "brave", "excel", "github", "config"} == packs.keys()
    assert agent.value("ot.packs()") == agent.value('ot.packs(info="min")')


@pytest.mark.parametrize("pattern", ["brav", "BRAV", "rave", "brave"])
def test_filter_by_pattern(agent, pattern):
    assert [pack["name"] for pack in agent.value(f"ot.packs(pattern={pattern!r})")] == ["brave"]


def test_info_level_list(agent):
    assert agent.value('ot.packs(pattern="e", info="list")') == [
        pack["name"] for pack in agent.value('ot.packs(pattern="e")')
    ]
    assert agent.value('ot.packs(pattern="excel", info="list")') == ["excel"]


@pytest.mark.parametrize("how", ["", ', info="min"'])
def test_info_level_min(agent, how):
    packs = agent.value(f'ot.packs(pattern=""{how})')
    assert all(pack.keys() == {"name", "source", "tool_count"} for pack in packs)
    by_name = {pack["name"]: pack for pack in packs}
    assert by_name["brave"] == {"name": "brave", "source": "local", "tool_count": 2}
    assert by_name["github"] == {"name": "github", "source": "proxy", "tool_count": 2}
    assert by_name["config"] == {"name": "config", "source": "local", "tool_count": 1}
    assert sum(pack["tool_count"] for pack in packs) == len(agent.app.tools())


def test_info_level_full(agent):
    [pack] = agent.value('ot.packs(pattern="brave", info="full")')
    assert pack == {
        "name": "brave",
        "source": "local",
        "tool_count": 2,
        "tools": [
            {"name": "brave.search", "description": "Search the web by Brave."},
            {"name": "brave.web_search", "description": "Look for pages about something."},
        ],
    }


def test_pack_with_configured_instructions(agent):
    [pack] = agent.value('ot.packs(pattern="excel", info="full")')
    assert pack["instructions"] == INSTRUCTIONS
    text = agent.reads('ot.packs(pattern="excel", info="full")')
    assert all(line in text for line in INSTRUCTIONS.splitlines())


def test_proxy_pack(agent):
    [pack] = agent.value('ot.packs(pattern="github", info="full")')
    assert pack["source"] == "proxy"
    assert pack["tools"] == [
        {"name": "github.search", "description": "Search code."},
        {"name": "github.open_issue", "description": "Open an issue."},
    ]


# What the decisions add


def test_nothing_matches(agent):
    assert agent.value('ot.packs(pattern="no such thing")') == []


def test_an_unknown_level_is_refused_with_those_that_there_are(agent):
    error = agent.error('ot.packs(info="everything")')
    assert error.code == "invalid_args"
    assert all(level in error.message for level in ("list", "min", "full", "everything"))


def test_a_pack_of_tools_that_are_not_allowed_is_not_there(agent):
    packs = agent.value("ot.packs()", allowed=["ot.packs", "brave.search"])
    assert {pack["name"]: pack["tool_count"] for pack in packs} == {"ot": 1, "brave": 1}
