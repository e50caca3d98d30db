"""2-ot-pack.md: one test for each scenario of `ot.tools`, named after it."""

import ast

import pytest
from helpers import definition, run

from onetool import App, ToolSpec
from onetool.core.spelling import spelled

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


def test_proxy_tool_signature_and_arguments_of_real_servers(app, live_tools):
    """527 definitions as they come: each signature is Python, required parameters first and without a default."""
    for one in live_tools:
        server = one["name"].partition(".")[0]
        app.registry.add(
            ToolSpec(
                name=one["name"],
                description=one["description"],
                input_schema=one["inputSchema"],
                handler=lambda **_: None,
                source=f"proxy:{server}",
            )
        )
    listed = [tool for tool in tools(app, info="full") if tool["source"] not in ("local", "proxy:github")]
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
            assert ast.literal_eval(default) in (wanted, "..."), tool["signature"]
        described = [name for name in properties if properties[name].get("description", "").strip()]
        args = dict(text.split(": ", 1) for text in tool.get("args", ()))
        assert all(args[spelled(name)].startswith(properties[name]["description"].strip()) for name in described)


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
