"""2-ot-pack.md: one test for each scenario of `ot.config`, named after it."""

import yaml
from specs.ot import Agent, script

SHOWN = """
aliases: {ws: brave.web_search, alias_f: demo.foo}
snippets: {foon: {description: "Get foo() for n items"}, barn: {description: "Get bar() for n items"}}
servers: [proxy_package_version]
"""


def test_show_config(tmp_path):
    config = {
        "aliases": {"ws": "brave.web_search", "alias_f": "demo.foo"},
        "snippets": {
            "foon": {"description": "Get foo() for n items", "body": "demo.foo()"},
            "barn": {"description": "Get bar() for n items", "body": "demo.bar()"},
        },
        "servers": {"proxy_package_version": script("light_clock")},
    }
    with Agent(tmp_path, packs=["brave", "demo"], **config) as agent:
        told = agent.value("ot.config()")
        text = agent.reads("ot.config()")
    assert told == yaml.safe_load(SHOWN)
    assert text.strip() == SHOWN.strip().replace('"', "")  # quotes stand only where they are needed


def test_empty_config(tmp_path):
    with Agent(tmp_path) as agent:
        assert agent.value("ot.config()") == {"aliases": {}, "snippets": {}, "servers": []}
        assert agent.reads("ot.config()") == "{aliases: {}, snippets: {}, servers: []}"


def test_no_secret_is_told(tmp_path):
    server = {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": "Bearer s3cr3t-of-mine"}}
    with Agent(tmp_path, secrets={"KEY": "an0ther-secret"}, servers={"docs": server}) as agent:
        text = agent.reads("ot.config()")
    assert "docs" in text
    assert "s3cr3t-of-mine" not in text
    assert "an0ther-secret" not in text
