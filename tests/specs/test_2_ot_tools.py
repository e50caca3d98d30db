"""2-ot-pack.md: one test for each scenario of `ot.tools`, named after it."""

import pytest
from helpers import definition, run

from onetool import App, ToolSpec

SEARCH = {
    "type": "object",
    "properties": {
        "repo": {"type": "string", "description": "Only in this repository"},
        "query": {"type": "string", "description": "What to look for"},
        "limit": {"type": "integer", "default": 10},
    },
    "required": ["query"],
}


@pytest.fixture
def app(tmp_path):
    (tmp_path / "onetool.yaml").write_text("stats: {enabled: false}\n")
    app = App.open(tmp_path / "onetool.yaml")
    app.registry.register(definition("weather"))
    app.registry.register(
        ToolSpec(
            name="github.search",
            description="Search code.",
            input_schema=SEARCH,
            handler=lambda **_: None,
            source="proxy:github",
        )
    )
    return app


def tools(app, **args):
    result = run(app.executor, "ot.tools", **args)
    assert result.ok, result.error
    return result.data


# Requirement: List Tools


def test_list_all_tools(app):
    listed = tools(app)
    assert [tool["name"] for tool in listed] == [spec.name for spec in app.tools()]
    assert {"ot.tools", "ot.result", "fs.read_file", "weather", "github.search"} <= {tool["name"] for tool in listed}
    assert listed == tools(app, info="min")


@pytest.mark.parametrize("pattern", ["search", "SEARCH", "earc", "github.", "hub.sea"])
def test_filter_by_pattern(app, pattern):
    assert [tool["name"] for tool in tools(app, pattern=pattern)] == ["github.search"]


def test_info_level_list(app):
    names = tools(app, info="list")
    assert all(isinstance(name, str) for name in names)
    assert names == [tool["name"] for tool in tools(app)]
    assert tools(app, pattern="fs.", info="list") == ["fs.list_dir", "fs.read_file"]


def test_info_level_min(app):
    assert all(tool.keys() == {"name", "description"} for tool in tools(app))
    assert tools(app, pattern="weather") == [
        {"name": "weather", "description": "Says what the weather is like."},
    ]


def test_info_level_full(app):
    listed = {tool["name"]: tool for tool in tools(app, info="full")}
    assert all({"name", "signature", "description", "source"} <= tool.keys() for tool in listed.values())
    assert {tool["source"] for tool in listed.values()} == {"local", "proxy:github"}
    own = listed["ot.tools"]
    assert own["signature"].startswith("ot.tools(pattern: str = '', info: Literal['list', 'min', 'full'] = 'min')")
    assert [text.partition(":")[0] for text in own["args"]] == ["pattern", "info"]
    assert own["returns"].startswith("Names; or {name, description}")
    assert own["example"] == 'ot.tools(pattern="file", info="full")'
    assert listed["weather"].keys() == {"name", "signature", "description", "source"}  # nothing else is known of it


def test_proxy_tool_signature_from_schema(app):
    [tool] = tools(app, pattern="github.search", info="full")
    assert tool["signature"] == "github.search(query: str, repo: str = '...', limit: int = 10)"
    assert tool["source"] == "proxy:github"


def test_proxy_tool_arguments_from_schema(app):
    [tool] = tools(app, pattern="github.search", info="full")
    assert tool["args"] == ["query: What to look for", "repo: Only in this repository"]


# What the decisions add


def test_nothing_matches(app):
    assert tools(app, pattern="no such thing") == []


def test_an_unknown_level_is_refused_with_those_that_there_are(app):
    error = run(app.executor, "ot.tools", info="everything").error
    assert error.code == "invalid_args"
    assert all(level in error.message for level in ('"list"', '"min"', '"full"', '"everything"'))


def test_a_declared_tool_without_a_pack_is_under_config(app):
    assert tools(app, pattern="config.", info="list") == ["weather"]
    assert tools(app, pattern="config", info="list") == []


# Requirement: Logging


def test_span_naming(app, caplog):
    caplog.set_level("INFO", "onetool.span")
    tools(app, pattern="fs", info="list")
    [event] = [vars(record) for record in caplog.records if record.name == "onetool.span"]
    assert (event["span"], event["pattern"], event["info"]) == ("ot.tools", "fs", "list")
