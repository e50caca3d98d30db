"""2-ot-pack.md: the scenario of `ot.reload`, and what the decisions add to it."""

import pytest
from helpers import definition
from specs.ot import PACKS, Agent, github

RELOADED = "OK: Configuration reloaded"


@pytest.fixture
def agent(tmp_path):
    with Agent(tmp_path, packs=["demo"], prompts={"packs": {"demo": "As before."}}, aliases={"f": "demo.foo"}) as agent:
        yield agent


# Requirement: Reload Configuration


def test_reload_config(agent):
    assert agent.value("ot.config()")["aliases"] == {"f": "demo.foo"}
    agent.configure(aliases={"g": "demo.bar"}, snippets={"two": {"description": "Two", "body": "demo.bar(n=2)"}})
    assert agent.value("ot.config()")["aliases"] == {"f": "demo.foo"}
    assert agent.value("ot.reload()") == RELOADED
    assert agent.value("ot.config()") == {
        "aliases": {"g": "demo.bar"},
        "snippets": {"two": {"description": "Two"}},
        "servers": [],
    }
    assert agent.value("g()") == "bar"
    assert agent.value("$two") == "barbar"
    assert agent.reads("ot.reload()") == RELOADED


# What the decisions add


def test_packs_are_read_again(agent):
    agent.pack("demo", PACKS["demo"].replace('"foo" * n', '"new foo" * n'))
    agent.pack("excel", PACKS["excel"])
    agent.value("ot.reload()")
    assert agent.value("demo.foo()") == "new foo"
    assert "excel" in agent.value('ot.packs(info="list")')


def test_declared_tools_are_read_again(agent):
    agent.configure(tools=[definition("weather")])
    agent.value("ot.reload()")
    assert agent.value("weather()") == {"c": 21}


def test_prompts_are_read_again(agent):
    (agent.folder / "prompts.yaml").write_text("packs: {demo: All is new.}\n")
    agent.value("ot.reload()")
    [pack] = agent.value('ot.packs(pattern="demo", info="full")')
    assert pack["instructions"] == "All is new."


def test_servers_are_read_again(agent):
    agent.configure(servers={"github": github(agent.folder)})
    agent.value("ot.reload()")
    assert agent.value('ot.tools(pattern="github.", info="list")') == ["github.search", "github.open_issue"]
    agent.configure()
    agent.value("ot.reload()")
    assert agent.value('ot.tools(pattern="github.", info="list")') == []


@pytest.mark.parametrize(
    ("broken", "told"),
    [("aliases: [", "onetool.yaml"), ("alliases: {}", "alliases"), ("run: {timeout_s: never}", "timeout_s")],
)
def test_a_broken_config_leaves_the_old_one_in_force(agent, broken, told):
    before = agent.value("ot.config()")
    agent.file.write_text(broken)
    assert told in agent.error("ot.reload()").message
    assert agent.value("ot.config()") == before
    assert agent.value("f()") == "foo"


def test_broken_prompts_leave_the_old_ones_in_force(agent):
    (agent.folder / "prompts.yaml").write_text("packs: [")
    agent.configure(prompts="prompts.yaml", aliases={"g": "demo.bar"})
    assert "prompts.yaml" in agent.error("ot.reload()").message
    assert agent.value("ot.config()")["aliases"] == {"f": "demo.foo"}
    [pack] = agent.value('ot.packs(pattern="demo", info="full")')
    assert pack["instructions"] == "As before."


def test_a_run_goes_on_with_the_tools_that_it_began_with(agent):
    (agent.folder / "packs" / "demo.py").unlink()
    agent.configure()
    assert agent.value("told = ot.reload()\n[told, demo.foo(n=2)]") == [RELOADED, "foofoo"]
    assert agent.error("demo.foo()").message
